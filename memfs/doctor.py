"""memfs doctor: check the tree, the cache, the corpus and the machine; say what is wrong, and with `fix` repair it.

Without `fix` no file, row or object is changed. Nothing is ever done to a file that
the user edited or made.
"""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from importlib.metadata import version
from typing import TYPE_CHECKING, NamedTuple

from memfs.config import NO_LIMIT_BYTES
from memfs.errors import ConfigError, CorruptError, MemfsError, NotFoundError, UnreachableError
from memfs.project import MARK
from memfs.workset.apply import recover, unsettled
from memfs.workset.cache import HostCache
from memfs.workset.manifest import Seen, inspect
from memfs.workset.mirror import Mirror
from memfs.workset.space import Limits, network_file_system, space
from memfs.workset.tree import Tree, is_temporary, read_mark

if TYPE_CHECKING:
    from memfs.corpus.audit import Audit
    from memfs.corpus.table import Corpus

__all__ = ["Checkup", "Finding", "doctor"]

OK, NOTE, PROBLEM = "ok", "note", "problem"
SKEW_S = 120
"""A clock that is further off than this gives files and sessions dates in the wrong order."""
OLDEST_CLOCK_S = 1_735_689_600
"""2025-01-01: an earlier clock was never set."""
PROBE = ".memfs-probe"
PYTHON = (3, 10)


class Finding(NamedTuple):
    """One thing that was looked at."""

    where: str
    """`memfs`, `tree`, `cache`, `corpus`, `clock` or `disk`."""
    what: str
    severity: str = OK
    """`ok`, `note` (so it is, and nothing is wrong) or `problem`."""
    names: tuple[str, ...] = ()
    """Files that it is about, all of them."""
    repair: str = ""
    """What `fix` would do or did, or what the user can do."""
    fixable: bool = False
    """True if `fix` repairs it."""
    fixed: bool = False


class Checkup(NamedTuple):
    """All findings, in the order of the checks."""

    findings: tuple[Finding, ...]
    deep: bool
    fix: bool

    @property
    def healthy(self) -> bool:
        """True if no problem is left."""
        return all(finding.severity != PROBLEM or finding.fixed for finding in self.findings)


def doctor(
    tree: str,
    *,
    state_dir: str,
    cache: HostCache,
    corpus: str | None,
    embedder: str | None = None,
    limits: Limits,
    deep: bool = False,
    fix: bool = False,
) -> Checkup:
    """Look at everything that memfs keeps for the folder `tree`; `deep` reads and hashes all of it."""
    found = (
        *_memfs(),
        *_guarded("tree", lambda: _tree(tree, state_dir, limits, deep, fix)),
        *_guarded("cache", lambda: _cache(cache, deep, fix)),
        *_guarded("corpus", lambda: _corpus(corpus, embedder, cache.folder, deep, fix)),
        *_disk({"tree": tree, "state": state_dir, "cache": cache.folder}, limits),
    )
    return Checkup(found, deep, fix)


def _guarded(where: str, check: Callable[[], Iterator[Finding]]) -> Iterator[Finding]:
    """One part that cannot be looked at is a finding; the others are looked at all the same."""
    try:
        yield from check()
    except UnreachableError as error:
        yield Finding(where, f"not looked at: {error.message}", NOTE, repair=error.hint or "")
    except MemfsError as error:
        yield Finding(where, error.message, PROBLEM, repair=error.hint or "")


def _mended(finding: Finding, fix: bool, repair: Callable[[], object]) -> Finding:
    """Run the repair if it is to be run, and say whether it worked."""
    if not fix:
        return finding._replace(fixable=True)
    try:
        repair()
    except (MemfsError, OSError) as error:
        return finding._replace(repair=f"could not be repaired: {error}")
    return finding._replace(fixable=True, fixed=True)


# -- this program and machine -----------------------------------------------------------


def _memfs() -> Iterator[Finding]:
    python = ".".join(map(str, sys.version_info[:3]))
    if sys.version_info < PYTHON:
        yield Finding("memfs", f"Python {python} is too old", PROBLEM, repair="install Python 3.10 or newer")
    yield Finding("memfs", f"memfs {version('agent-memfs')}, Python {python}")
    rg = shutil.which("rg")
    if rg:
        yield Finding("memfs", f"ripgrep is {rg}")
    else:
        yield Finding("memfs", "rg (ripgrep) is not on the PATH", NOTE, repair="install ripgrep, for fast searches")
    if time.time() < OLDEST_CLOCK_S:
        yield Finding("clock", "this machine's clock was never set", PROBLEM, repair="set the clock")


def _disk(folders: dict[str, str], limits: Limits) -> Iterator[Finding]:
    seen: set[int] = set()
    for name, folder in folders.items():
        existing = folder
        while not os.path.exists(existing) and os.path.dirname(existing) != existing:
            existing = os.path.dirname(existing)
        try:
            device, disk = os.stat(existing).st_dev, space(existing, limits.min_free_bytes)
        except OSError as error:
            yield Finding("disk", f"{name} folder {folder}: {error.strerror}", PROBLEM, repair="check owner and mode")
            continue
        kind = network_file_system(existing)
        if kind:
            severity = NOTE if name == "tree" else PROBLEM
            repair = f"keep the {name} on a local disk" if name == "tree" else f"set MEMFS_{name.upper()}_DIR"
            yield Finding("disk", f"the {name} folder is on {kind}, where locks may not hold", severity, repair=repair)
        if device in seen:
            continue
        seen.add(device)
        what = (
            f"{disk.free_bytes:,} bytes free of {disk.total_bytes:,} ({name} folder); the floor is {disk.floor_bytes:,}"
        )
        if disk.usable_bytes <= 0:
            yield Finding("disk", what, PROBLEM, repair="make room: memfs evict --all drops what can be fetched again")
        else:
            yield Finding("disk", what)
        if disk.files_free is not None and disk.files_free < 1_000:
            left = f"{disk.files_free:,} inodes are left on the disk of the {name} folder"
            yield Finding("disk", left, PROBLEM, repair="delete files there: each takes one, however small")


# -- the tree ---------------------------------------------------------------------------


def _tree(root: str, state_dir: str, limits: Limits, deep: bool, fix: bool) -> Iterator[Finding]:
    mark = read_mark(root)
    if mark is None:
        yield Finding("tree", f"{root} is no memfs tree", NOTE, repair="make one with: memfs boot")
        return
    folder = os.path.join(state_dir, "trees", mark[1])
    found = inspect(folder)
    if found is None or found.damage:
        what = "is lost" if found is None else f"is damaged ({found.damage})"
        lost = Finding(
            "tree",
            f"its manifest {what}: {folder}",
            PROBLEM,
            repair="starts a new one: no file is touched; the next boot compares each with the corpus, "
            "and keeps those that differ as yours",
        )
        yield _mended(lost, fix, lambda: _set_aside(folder))
        if not fix:
            return
    elif found.root not in (None, os.path.realpath(root)):
        yield Finding(
            "tree",
            f"was moved or copied here from {found.root}",
            NOTE,
            repair="the next memfs command takes note of it; its files are not looked at before",
        )
        if not fix:
            return
    with Tree.open(root, state_dir, limits=limits) as tree:
        yield from _rows(tree, deep, fix)


def _set_aside(folder: str) -> None:
    for name in ("manifest.sqlite", "manifest.sqlite-wal", "manifest.sqlite-shm"):
        with suppress(FileNotFoundError):
            os.replace(os.path.join(folder, name), os.path.join(folder, f"{name}.damaged"))


def _rows(tree: Tree, deep: bool, fix: bool) -> Iterator[Finding]:
    left = tuple(each.path for each in unsettled(tree))
    if left:
        what = f"{len(left):,} files were being written or removed when memfs was killed"
        killed = Finding("tree", what, PROBLEM, left, "settles the manifest by what lies on disk; no file is touched")
        yield _mended(killed, fix, lambda: _recover(tree))
    disk = dict(tree.everything())
    half = tuple(path for path in disk if is_temporary(path))
    if half:
        folders = {path.rpartition("/")[0] for path in half}
        what = f"{len(half):,} unfinished files of a killed run"
        yield _mended(Finding("tree", what, PROBLEM, half, "deletes them"), fix, lambda: tree.sweep(folders))
    yield from _against_disk(tree, disk, deep)


def _recover(tree: Tree) -> None:
    with tree.manifest.writing():
        recover(tree)


def _against_disk(tree: Tree, disk: dict[str, Seen | str], deep: bool) -> Iterator[Finding]:
    rows = {path: row for path, row in tree.manifest.all().items() if row.pending is None}
    here = {p: seen for p, seen in disk.items() if isinstance(seen, Seen) and p != MARK and not is_temporary(p)}
    away = {path: tree.look(path) for path in rows if path not in here}
    blocked = tuple(f"{path}: {found}" for path, found in away.items() if isinstance(found, str))
    if blocked:
        what = f"something else lies where {len(blocked):,} files were laid"
        yield Finding("tree", what, PROBLEM, blocked, "look at them, and move them away; then memfs get lays the files")
    links = tuple(f"{path}: {found}" for path, found in disk.items() if isinstance(found, str) and path not in rows)
    if links:
        what = f"{len(links):,} symlinks or special files, which memfs neither follows nor writes"
        yield Finding("tree", what, NOTE, links)
    edited = tuple(path for path, row in rows.items() if path in here and not tree.is_clean(row, here[path]))
    changed = tuple(
        path
        for path, row in rows.items()
        if deep and path in here and path not in edited and tree.sha256(path) != row.sha256
    )
    if changed:
        what = f"{len(changed):,} files have other bytes than were laid, though nothing says that they were written to"
        yield Finding("tree", what, PROBLEM, changed, "a failing disk? delete them, then memfs get lays them anew")
    new = tuple(path for path in here if path not in rows and path not in tree.manifest.pending())
    deleted = tuple(path for path, found in away.items() if found is None)
    for names, said in ((edited, "edited here"), (new, "yours"), (deleted, "deleted here")):
        if names:
            yield Finding("tree", f"{len(names):,} files are {said}; they are left alone", NOTE, names)
    clean = len(rows) - len(edited) - len(away) - len(changed)
    size = sum(seen.size for seen in here.values())
    hashed = ", each hashed" if deep else ""
    limit = "" if tree.max_bytes in (None, NO_LIMIT_BYTES) else f"; the limit is {tree.max_bytes:,}"
    yield Finding("tree", f"{tree.root}: {clean:,} files are as they were laid{hashed}; {size:,} bytes in all{limit}")


# -- the host's cache ---------------------------------------------------------------------


def _cache(cache: HostCache, deep: bool, fix: bool) -> Iterator[Finding]:
    try:
        status = os.lstat(cache.folder)
    except FileNotFoundError:
        yield Finding("cache", f"{cache.folder} is not there yet", NOTE)
        return
    if status.st_mode & 0o077 and status.st_uid == os.getuid():
        what = f"{cache.folder} is open to other users (mode {status.st_mode & 0o777:o})"
        opened = Finding("cache", what, PROBLEM, repair="makes it 0700; what lies in it is checked after that")
        yield _mended(opened, fix, lambda: os.chmod(cache.folder, 0o700))
        if not fix:
            return
    copies = cache.damaged_boot_copies(fix=fix)
    if copies:
        yield Finding(
            "cache", f"{len(copies):,} copies of maps are not whole", PROBLEM, copies, "drops them", True, fix
        )
    found = cache.check(deep=deep, fix=fix)
    if found is None:
        yield Finding("cache", f"{cache.folder} holds no files yet")
        return
    if found.damaged:
        what = f"{len(found.damaged):,} blobs do not match their hash (they would be a miss, never a wrong file)"
        yield Finding("cache", what, PROBLEM, found.damaged, "drops them", True, fix)
    if found.complaints:
        what = f"{len(found.complaints):,} faults in its database"
        yield Finding("cache", what, PROBLEM, found.complaints, "repairs it, and deletes stray files", True, fix)
    sample = "all" if found.checked == found.blobs else "a sample of"
    yield Finding(
        "cache",
        f"{cache.folder}: {found.blobs:,} blobs, {sample} {found.checked:,} hashed; "
        f"{cache.blob_bytes():,} bytes of at most {cache.max_bytes:,}",
    )


# -- the corpus ---------------------------------------------------------------------------


def _corpus(uri: str | None, embedder: str | None, cache_dir: str, deep: bool, fix: bool) -> Iterator[Finding]:
    if uri is None:
        yield Finding("corpus", "none is named", NOTE, repair="give --corpus URI, or set MEMFS_CORPUS")
        return
    from memfs.corpus import audit
    from memfs.corpus.table import Corpus

    corpus = Corpus.open(uri, embedder=embedder)
    yield from _embedder(corpus)
    yield from _lease(corpus)
    found = audit.audit(corpus, deep=deep)
    if found.doubled:
        twice = Finding(
            "corpus",
            f"{len(found.doubled):,} files have a passage twice",
            PROBLEM,
            found.doubled,
            "drops what is surplus, in one commit; of two mixed versions the newer whole one stays",
        )
        yield _unmixed(twice, corpus, fix)
    if found.broken:
        names = tuple(f"{each.path}: {each.reason}" for each in found.broken)
        repair = "puts back what an older version, kept for 7 days, has whole"
        broken = Finding("corpus", f"{len(names):,} files are not whole", PROBLEM, names, repair)
        yield _restored(broken, [each.path for each in found.broken], corpus, fix)
    yield from _indices(corpus, found, fix)
    yield from _boot_set(corpus, fix)
    yield from _graph(corpus, fix)
    yield _whole(corpus, found)
    if deep:
        yield from _mirror(corpus, cache_dir, fix)
    yield from _clock(corpus, fix)


def _whole(corpus: Corpus, found: Audit) -> Finding:
    whole = found.files - len(found.doubled) - len(found.broken)
    bodies = (
        f"{found.bytes_read:,} bytes read and hashed"
        if found.bytes_read or not found.bytes
        else f"their {found.bytes:,} bytes not read: --deep does"
    )
    return Finding(
        "corpus",
        f"{corpus.uri}, version {found.version}: {whole:,} of {found.files:,} files are whole, "
        f"{found.passages:,} passages; {bodies}",
    )


def _embedder(corpus: Corpus) -> Iterator[Finding]:
    try:
        made_by = corpus.embedder
    except ConfigError as error:
        yield Finding("corpus", error.message, PROBLEM, repair=error.hint or "")
    else:
        yield Finding("corpus", f"embedder {made_by.name}, {made_by.dimensions} dimensions")


def _lease(corpus: Corpus) -> Iterator[Finding]:
    from memfs.corpus import lease

    try:
        owner = lease.holder(corpus.location, corpus.objects)
    except CorruptError as error:
        yield Finding("corpus", error.message, PROBLEM, repair=error.hint or "")
        return
    if owner:
        repair = f"wait for it; if it died, the next writer takes over after {lease.TTL_S:.0f} s"
        yield Finding("corpus", f"a writer holds it: {owner}", NOTE, repair=repair)


def _unmixed(finding: Finding, corpus: Corpus, fix: bool) -> Finding:
    from memfs.corpus import audit

    mended: list[str] = []
    tried = _mended(finding, fix, lambda: mended.extend(audit.mend(corpus, finding.names)))
    rest = tuple(path for path in finding.names if path not in mended)
    if not tried.fixed or not rest:
        return tried
    what = f"{len(rest):,} files have a passage twice, and no version of them is whole"
    return finding._replace(what=what, names=rest, repair="add them again from their source")


def _restored(finding: Finding, broken: Sequence[str], corpus: Corpus, fix: bool) -> Finding:
    from memfs.corpus import audit

    restored: list[str] = []
    tried = _mended(finding, fix, lambda: restored.extend(audit.restore(corpus, broken)))
    rest = [name for name, path in zip(finding.names, broken, strict=True) if path not in restored]
    if not tried.fixed or not rest:
        return tried
    what = f"{len(rest):,} files are not whole, and no older version has them so"
    return finding._replace(what=what, names=tuple(rest), repair="add them again from their source")


def _mirror(corpus: Corpus, cache_dir: str, fix: bool) -> Iterator[Finding]:
    """What grep searches: a search trusts it, for hashing all of it would cost more than the search."""
    mirror = Mirror(cache_dir, corpus.uri)
    damaged = mirror.damaged()
    if damaged:
        what = f"{len(damaged):,} files of the mirror that grep searches do not match their hash"
        finding = Finding("cache", what, PROBLEM, tuple(damaged), "writes them again from the corpus")
        yield _mended(finding, fix, lambda: mirror.mend(corpus.read_whole(damaged)))
    elif mirror.version:
        yield Finding("cache", f"the mirror that grep searches: {len(mirror.entries):,} files, each hashed")


def _indices(corpus: Corpus, found: Audit, fix: bool) -> Iterator[Finding]:
    tail = corpus.tail_rows()
    if tail:
        what = f"{tail:,} passages are outside the indices (searches scan them), {found.tombstones:,} rows are buried"
        repair = "folds them in and sweeps; an add does it by itself from 1,000 on"
        yield _mended(Finding("corpus", what, NOTE, repair=repair), fix, corpus.maintain)


def _boot_set(corpus: Corpus, fix: bool) -> Iterator[Finding]:
    from memfs.corpus import bootset

    try:
        fetched = corpus.objects.read(bootset.KEY)
        assert fetched is not None
        made_for = bootset.unpack(fetched.data).corpus_version
    except NotFoundError:
        state, severity = "the map for boots is missing", PROBLEM
    except CorruptError as error:
        state, severity = f"the map for boots is damaged ({error.message})", PROBLEM
    else:
        if made_for == corpus.refresh():
            yield Finding("corpus", f"the map for boots is of version {made_for}, the newest")
            return
        state, severity = f"the map for boots is of version {made_for}, the corpus at {corpus.version}", NOTE
    yield _mended(Finding("corpus", state, severity, repair="makes it anew"), fix, lambda: _publish(corpus))


def _graph(corpus: Corpus, fix: bool) -> Iterator[Finding]:
    from memfs.corpus.edges import Edges
    from memfs.recall.graph import build

    try:
        edges = Edges.open(corpus)
        if edges is not None:
            yield Finding("corpus", f"the graph: {edges.check():,} edges, each read")
    except CorruptError as error:
        repair = "makes it anew from what is in the corpus; what a model filed comes back by memfs graph build --model"
        damaged = Finding("corpus", error.message, PROBLEM, repair=repair)
        yield _mended(damaged, fix, lambda: build(corpus, again=True))


def _publish(corpus: Corpus) -> None:
    from memfs.corpus import bootbuild, bootset

    with corpus.writing(publish=False):
        bootbuild.publish(corpus, bootset.PUBLISHED_BYTES)


def _clock(corpus: Corpus, fix: bool) -> Iterator[Finding]:
    """Compare this clock with the store's, which dates what is written there. Only writing tells how late it is."""
    from memfs.corpus import bootset

    if corpus.location.is_local:
        yield Finding("clock", "the corpus is a folder: no other clock to compare this one with", NOTE)
        return
    if fix:
        corpus.objects.write(PROBE, b"1")
        try:
            ahead = time.time() - corpus.objects.modified(PROBE)
        finally:
            corpus.objects.delete(PROBE)
    else:
        with suppress(NotFoundError):
            ahead = time.time() - corpus.objects.modified(bootset.KEY)
            if ahead > -SKEW_S:
                what = "not behind the store's; whether it is ahead can't be told without a write, which --fix makes"
                yield Finding("clock", what, NOTE)
                return
            yield _skew(ahead)
            return
        yield Finding("clock", "can't be told: the store has nothing to compare with", NOTE)
        return
    if abs(ahead) > SKEW_S:
        yield _skew(ahead)
    else:
        yield Finding("clock", f"within {SKEW_S} s of the store's")


def _skew(ahead: float) -> Finding:
    word = "ahead of" if ahead > 0 else "behind"
    return Finding("clock", f"{abs(ahead):,.0f} s {word} the store's", PROBLEM, repair="set this machine's clock")
