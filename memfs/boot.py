"""memfs boot: lay the initial map of a corpus into a folder, in one GET.

Needs neither lancedb nor pyarrow unless a larger map than the published one is asked for.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from memfs.corpus import bootset
from memfs.corpus.bootset import BootFile, BootSet, LeftOut
from memfs.corpus.location import Location, parse
from memfs.corpus.objects import Objects
from memfs.errors import (
    AccessError,
    ConflictError,
    DiskError,
    MemfsError,
    NotACorpusError,
    NotFoundError,
    UnreachableError,
)
from memfs.later import Later
from memfs.workset.cache import BootCopy, HostCache
from memfs.workset.space import NO_LIMITS, Limits

if TYPE_CHECKING:
    from memfs.workset.plan import Plan, Step, Wanted
    from memfs.workset.room import Going
    from memfs.workset.tree import Tree

__all__ = ["Receipt", "boot"]

TABLE = "passages"
BUDGET_REASON = "over the budget that was asked for"
NO_ROOM_REASON = "no room below --max-size; memfs evict, or a larger one, makes some"


class Receipt(NamedTuple):
    """What a boot did: what is here, how much exists, what was left out and why."""

    corpus: str
    corpus_version: int
    """Of the map."""
    newest_version: int | None
    """Of the corpus, None if it could not be asked; larger than `corpus_version` where a map is out of date."""
    tree: str
    files_here: int
    """Of the corpus, on disk now (written, or there already); indices that memfs makes are not counted."""
    bytes_here: int
    files_written: int
    total_files: int
    total_bytes: int
    left_out: tuple[LeftOut, ...]
    deleted: tuple[str, ...]
    """Files of the map that were deleted in this tree: left so, `memfs get` brings them back."""
    kept: tuple[Step, ...]
    """Local files that the map would have replaced: yours are kept."""
    refused: tuple[Step, ...]
    evicted: tuple[Going, ...]
    """What went to make room for the map: fetched before, and used longest ago."""
    offline: bool
    """True when the store did not answer and the host's cache was used."""
    from_cache: bool
    """True when no bytes were fetched, because the host had them."""
    dry_run: bool
    no_history: str
    """Why `knowledge/` has no Git history though the corpus has one; "" where all is well."""
    boot_set: BootSet


class _Map(NamedTuple):
    boot_set: BootSet
    newest: int | None
    offline: bool
    from_cache: bool


def boot(
    corpus: str,
    tree: str,
    *,
    cache_dir: str,
    state_dir: str,
    budget_bytes: int | None = None,
    limits: Limits = NO_LIMITS,
    dry_run: bool = False,
    rebuild: bool = False,
) -> Receipt:
    """Lay the initial map of `corpus` into the folder `tree`; over an earlier boot it is a refresh.

    Local edits are kept, and what was deleted here stays so. With no `budget_bytes`, the map is as large as it
    was published. A `limits.max_bytes` becomes the tree's own: later commands keep to it. The map is pinned,
    and still goes no further than that limit, what is wanted most first.

    Raises:
        UnreachableError: the store did not answer, and this host has no copy of the map.
        NotACorpusError, AccessError, CorruptError, DiskError, ConfigError
    """
    location = parse(corpus)
    # The modules that write the tree are loaded while the map is on its way.
    cache = HostCache(cache_dir, min_free_bytes=limits.min_free_bytes)
    found = _find_map(location, cache, budget_bytes, rebuild, dry_run)
    chosen, left_out = _within(found.boot_set, budget_bytes)
    from memfs.workset.apply import apply
    from memfs.workset.plan import Action
    from memfs.workset.tree import Tree

    wanted = list(_wanted(chosen, found.boot_set.corpus_version))
    if dry_run:
        plan, deleted = _dry_plan(wanted, tree, state_dir, limits)
        kept, refused = plan.having(Action.EDITED, Action.CONFLICT), plan.having(Action.REFUSED, Action.NO_ROOM)
        written, evicted, no_history = 0, plan.evict, ""
    else:
        with Tree.open(tree, state_dir, corpus=location.uri, limits=limits) as opened:
            with opened.manifest.writing():
                opened.keep_limit()
                opened.manifest.unpin_older_maps(found.boot_set.corpus_version)
            plan, deleted = _spared(wanted, opened)
            done = apply(plan, opened, {file.path: file.data for file in chosen})
            written, kept, refused, evicted = done.written, done.kept, done.refused, done.evicted
            with opened.manifest.writing():
                _remember(opened, found, budget_bytes)
            no_history = _attach(opened, found.boot_set)
    away = {*deleted, *(step.wanted.path for step in refused)}
    here = [file for file in chosen if file.path not in away and not file.generated]
    no_room = [step.wanted for step in refused if step.action is Action.NO_ROOM]
    left_out = (*left_out, *_counted(((w.path, w.size) for w in no_room if not w.generated), NO_ROOM_REASON))
    return Receipt(
        corpus=location.uri,
        corpus_version=found.boot_set.corpus_version,
        newest_version=found.newest,
        tree=tree,
        files_here=len(here),
        bytes_here=sum(len(file.data) for file in here),
        files_written=written,
        total_files=found.boot_set.total_files,
        total_bytes=found.boot_set.total_bytes,
        left_out=left_out,
        deleted=deleted,
        kept=kept,
        refused=tuple(step for step in refused if step.action is not Action.NO_ROOM),
        evicted=evicted,
        offline=found.offline,
        from_cache=found.from_cache,
        dry_run=dry_run,
        no_history=no_history,
        boot_set=found.boot_set,
    )


def _find_map(location: Location, cache: HostCache, budget_bytes: int | None, rebuild: bool, dry_run: bool) -> _Map:
    copy = cache.boot_copy(location.uri)
    try:
        objects = Objects(location)
        newest = Later(lambda: _newest(objects))
        if rebuild:
            made = _rebuild(location, bootset.PUBLISHED_BYTES) if dry_run else _republish(location)
            return _Map(made, newest.wait(), offline=False, from_cache=False)
        data, from_cache = _fetch(objects, location, cache, copy)
        boot_set = bootset.unpack(data)
    except UnreachableError as error:
        if copy is None:
            raise UnreachableError(
                error.message, hint=f"{error.hint}; this host's cache has no copy of the map"
            ) from error
        return _Map(bootset.unpack(copy.data), None, offline=True, from_cache=True)
    except NotFoundError:
        if not Objects(location).any_below(f"{TABLE}.lance/_versions"):
            raise NotACorpusError(
                f"{location.uri} is not a memfs corpus", hint=f"make one with: memfs init {location.uri}"
            ) from None
        made = _rebuild(location, bootset.PUBLISHED_BYTES) if dry_run else _mend(location)
        return _Map(made, newest.wait(), offline=False, from_cache=False)
    if budget_bytes is not None and _wants_more(boot_set, budget_bytes):
        boot_set, from_cache = _rebuild(location, budget_bytes), False
    return _Map(boot_set, newest.wait(), offline=False, from_cache=from_cache)


def _newest(objects: Objects) -> int | None:
    try:
        return objects.newest_version(TABLE)
    except MemfsError:
        # Only the receipt's "newer exists" line depends on it; None says that it is not known.
        return None


def _import_meanwhile() -> None:
    """Load what a boot needs once the map is here: some 40 ms, a round trip or two."""
    import memfs.workset.apply  # noqa: F401

    bootset.load()


def _fetch(objects: Objects, location: Location, cache: HostCache, copy: BootCopy | None) -> tuple[bytes, bool]:
    coming = Later(lambda: objects.read(bootset.KEY, unless_etag=copy.etag if copy else None))
    _import_meanwhile()
    fetched = coming.wait()
    if fetched is None:
        assert copy is not None
        return copy.data, True
    cache.keep_boot(location.uri, BootCopy(fetched.data, fetched.etag))
    return fetched.data, False


def _wants_more(boot_set: BootSet, budget_bytes: int) -> bool:
    """A budget above the published map's, while files were left out of it for their size."""
    have = sum(len(file.data) for file in boot_set.files)
    missing = any(x.reason != bootset.NOT_INDEXED for x in boot_set.left_out)
    return missing and budget_bytes > max(have, bootset.PUBLISHED_BYTES)


def _rebuild(location: Location, budget_bytes: int) -> BootSet:
    """Make a map out of the table, for this boot only."""
    from memfs.corpus import bootbuild
    from memfs.corpus.table import Corpus

    return bootbuild.build(Corpus.open(location.uri), budget_bytes)


def _mend(location: Location) -> BootSet:
    """Make the published map that is missing; where this sandbox may only read, for this boot alone."""
    try:
        return _republish(location)
    except (AccessError, ConflictError, DiskError):
        return _rebuild(location, bootset.PUBLISHED_BYTES)


def _republish(location: Location) -> BootSet:
    """Make the published map anew."""
    from memfs.corpus import bootbuild
    from memfs.corpus.table import Corpus

    corpus = Corpus.open(location.uri)
    with corpus.writing(publish=False):
        return bootbuild.publish(corpus, bootset.PUBLISHED_BYTES)


def _within(boot_set: BootSet, budget_bytes: int | None) -> tuple[list[BootFile], tuple[LeftOut, ...]]:
    if budget_bytes is None:
        return list(boot_set.files), boot_set.left_out
    chosen: list[BootFile] = []
    dropped: list[tuple[str, int]] = []
    room = budget_bytes
    for file in boot_set.files:
        if len(file.data) <= room:
            chosen.append(file)
            room -= len(file.data)
        else:
            dropped.append((file.path, len(file.data)))
    return chosen, (*boot_set.left_out, *_counted(dropped, BUDGET_REASON))


def _counted(files: Iterable[tuple[str, int]], reason: str) -> Iterator[LeftOut]:
    """Count files (path, bytes) by their top folder."""
    sizes: dict[str, list[int]] = {}
    for path, size in files:
        sizes.setdefault(path.split("/", 1)[0], []).append(size)
    yield from (LeftOut(name, len(each), sum(each), reason) for name, each in sizes.items())


def _wanted(files: list[BootFile], version: int) -> Iterator[Wanted]:
    from memfs.workset.manifest import Pin
    from memfs.workset.plan import Wanted

    for rank, file in enumerate(files):
        yield Wanted(
            path=file.path,
            sha256=file.sha256,
            size=len(file.data),
            mtime_ns=file.mtime_us * 1_000,
            version=version,
            why="boot",
            pinned=Pin.MAP,
            generated=file.generated,
            rank=rank,
        )


def _spared(wanted: list[Wanted], tree: Tree) -> tuple[Plan, tuple[str, ...]]:
    """Plan the map without what was deleted here, and what is newer here than in the map; return the former too.

    A map that is behind (offline, or its publish was cut short) must not undo a push or a fetch.
    """
    from memfs.workset.plan import Action, diff

    plan = diff(wanted, tree)
    absent = [step for step in plan.having(Action.WRITE, Action.NO_ROOM) if step.seen is None]
    older = plan.having(Action.REPLACE)
    rows = tree.manifest.some(step.wanted.path for step in (*absent, *older))
    settled = {path: row for path, row in rows.items() if row.pending is None}
    deleted = tuple(step.wanted.path for step in absent if step.wanted.path in settled)
    newer = {
        step.wanted.path
        for step in older
        if step.wanted.path in settled and settled[step.wanted.path].version > step.wanted.version
    }
    spared = newer.union(deleted)
    if not spared:
        return plan, ()
    # Anew: what is not laid needs no room.
    return diff([want for want in wanted if want.path not in spared], tree), deleted


def _dry_plan(wanted: list[Wanted], tree: str, state_dir: str, limits: Limits) -> tuple[Plan, tuple[str, ...]]:
    from memfs.workset.plan import diff
    from memfs.workset.tree import Tree, read_mark

    if read_mark(tree) is None:
        return diff(wanted, None, limits), ()
    with Tree.open(tree, state_dir, limits=limits) as opened:
        return _spared(wanted, opened)


def _attach(tree: Tree, boot_set: BootSet) -> str:
    if not boot_set.history:
        return ""
    from memfs.brain.history import attach

    return attach(tree, dict(boot_set.history))


def _remember(tree: Tree, found: _Map, budget_bytes: int | None) -> None:
    # A refresh keeps to it.
    tree.manifest.set_meta("boot_budget", "" if budget_bytes is None else str(budget_bytes))
    tree.manifest.set_meta("boot_version", str(found.boot_set.corpus_version))
    tree.manifest.set_meta("total_files", str(found.boot_set.total_files))
    tree.manifest.set_meta("total_bytes", str(found.boot_set.total_bytes))
