"""memfs grep: the lines that ripgrep would print if every file of the corpus lay in the tree.

The host's mirror says which files have a matching line; those, and whatever in the
tree is not the corpus's, are set up as a scratch folder (the mirror's bytes, and
symlinks to the tree's own files), and ripgrep itself prints. So there is one regex
dialect, ripgrep's, and one printer. Files that match and are not on disk are laid.

Flags that change which lines match go to both runs. With flags that the flat mirror
cannot stand for (inverted or multi-line matching, `\\A`), every file is set up.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from memfs import paths
from memfs.errors import ConfigError, CorruptError, DiskError, InputError, NotFoundError
from memfs.later import Later
from memfs.workset.apply import apply
from memfs.workset.manifest import Laid
from memfs.workset.mirror import Entry, Mirror
from memfs.workset.plan import Wanted, diff

if TYPE_CHECKING:
    from memfs.workset.tree import Tree

    OpenTree = Callable[[], AbstractContextManager[Tree | None]]
    Bring = Callable[[Sequence[Entry]], Mapping[str, bytes]]

__all__ = ["INCOMPLETE", "Coverage", "Grepped", "Query", "find_rg", "grep"]

T = TypeVar("T")
INCOMPLETE = 10
"""The exit code of a search that could not look into every file."""
LAY_BYTES_MAX = 16 << 20
CHUNK_BYTES = 1 << 16
_ANCHORS = re.compile(r"\\[AzZ]|\(\?[a-zA-Z]*[mRsU]")


class Query(NamedTuple):
    """What is asked of ripgrep, taken apart by what it means for the search."""

    patterns: tuple[str, ...]
    matching: tuple[str, ...] = ()
    """Flags that say which lines match: `-i`, `-w`, `-F`, `-x`, `-S`, `-s`, `-P`, `-a`."""
    printing: tuple[str, ...] = ()
    """Flags that say what is printed: `-n`, `-c`, `-l`, `-A3`, `--json`, …"""
    globs: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()
    """As typed: relative to the working folder, or to the tree."""
    whole: bool = False
    """A flag is given for which every file must be looked into (`-v`, `-U`, `--files-without-match`)."""

    def rg_flags(self) -> list[str]:
        """Return the flags and patterns of the printing run."""
        return [*self.matching, *self.printing, *(f"--glob={glob}" for glob in self.globs), *self._patterns()]

    def rg_matching(self) -> list[str]:
        """Return the flags and patterns of the mirror's run."""
        return [*self.matching, *self._patterns()]

    def _patterns(self) -> Iterator[str]:
        return (f"--regexp={pattern}" for pattern in self.patterns)

    @property
    def needs_all(self) -> bool:
        """Whether the flat mirror cannot say which files match."""
        return self.whole or any(_ANCHORS.search(pattern) for pattern in self.patterns)

    @property
    def as_text(self) -> bool:
        """Whether binary files are searched too."""
        return "--text" in self.matching


class Coverage(NamedTuple):
    """What was searched."""

    corpus_version: int
    files_total: int
    """Below the paths that were asked for: the corpus's and the tree's own."""
    files_searched: int
    not_searched: int
    """Over the budget, or damaged: the corpus holds them, the mirror does not."""
    files_matching: int | None
    """Of the corpus's that are not on disk; None where it was not counted."""
    files_laid: int
    """Of those, brought into the tree by this search."""
    stale: int
    """On disk as an older version than the corpus's; searched as they are on disk."""
    offline: bool
    """The corpus did not answer: the mirror's version was searched."""


class Grepped(NamedTuple):
    """How a search ended, and how much it covers."""

    exit_code: int
    """ripgrep's 0 (found), 1 (nothing) or 2 (error), or INCOMPLETE."""
    said: str
    """ripgrep's messages."""
    coverage: Coverage


class _Local(NamedTuple):
    """What a tree holds, at one moment."""

    root: str
    files: dict[str, str]
    """Path to sha256 of the clean ones as the manifest has it, "" for what is the user's own."""
    deleted: frozenset[str]


def find_rg() -> str:
    """Return the ripgrep to run: beside this Python, or on the PATH.

    Raises:
        ConfigError: there is none.
    """
    import sys

    beside = os.path.join(os.path.dirname(sys.executable), "rg")
    found = beside if os.access(beside, os.X_OK) else shutil.which("rg")
    if found is None:
        raise ConfigError(
            "ripgrep (rg) is not installed", hint="pip install 'agent-memfs[grep]', or apt install ripgrep"
        )
    return found


def grep(
    query: Query,
    mirror: Mirror,
    *,
    rg: str,
    cwd: str,
    tree_root: str,
    open_tree: OpenTree,
    bring: Bring,
    sink: Callable[[bytes], object],
    scratch: str,
    lay: int = 100,
    freshen: Callable[[], bool] = lambda: False,
) -> Grepped:
    """Search the corpus as `mirror` has it, with the tree's own files over it.

    `freshen` brings `mirror` to the corpus's newest version, and returns whether that was out of
    reach; the mirror as it is is searched meanwhile, for mostly nothing has changed.

    `sink` takes what ripgrep prints, as it comes. `bring` returns the bytes of files that the
    mirror does not have as they are. `scratch` is a folder on the local disk for what ripgrep
    reads. At most `lay` of the files that match are laid.

    Raises:
        InputError: no pattern.
        NotFoundError: a path is neither in the corpus nor in the tree.
        RipgrepError: ripgrep refused the pattern.
    """
    if not query.patterns:
        raise InputError("no pattern is given", hint="memfs grep PATTERN, or -e PATTERN")
    local, offline, found = _look_and_search(query, mirror, rg, tree_root, open_tree, freshen)
    stored = mirror.entries
    if local.deleted:
        stored = {path: entry for path, entry in stored.items() if path not in local.deleted}
    view = _View.of(
        cwd, tree_root, query.paths, lambda wanted: any(_lies_at(path, wanted) for path in (*local.files, *stored))
    )
    visible, mine = view.part(stored), view.part(local.files)
    if found is not None and query.as_text:
        found |= mirror.snapshot.altered
    may_match = visible if found is None else {path: visible[path] for path in found if path in visible}
    missing = [entry for path, entry in may_match.items() if path not in mine]
    own = [
        path
        for path, sha256 in mine.items()
        if path in may_match or path not in visible or visible[path].sha256 != sha256
    ]
    with _scratch(scratch) as folder:
        _set_up(folder, view, local.root, own, missing, mirror, bring)
        code, said = _run(rg, query.rg_flags(), view, folder, sink)
        matching = _matching(rg, query, view, folder, missing) if missing and code == 0 else []
    laid = _lay(matching[:lay], mirror, open_tree, bring) if lay and matching else 0
    not_searched = mirror.total_files - len(mirror.entries)
    searched = len(visible) + sum(path not in visible for path in mine)
    coverage = Coverage(
        corpus_version=mirror.version,
        files_total=searched + not_searched,
        files_searched=searched,
        not_searched=not_searched,
        files_matching=len(matching),
        files_laid=laid,
        stale=sum(1 for path, sha256 in mine.items() if sha256 and path in visible and visible[path].sha256 != sha256),
        offline=offline,
    )
    return Grepped(INCOMPLETE if (not_searched or offline) and code < 2 else code, said, coverage)


def _look_and_search(
    query: Query, mirror: Mirror, rg: str, root: str, open_tree: OpenTree, freshen: Callable[[], bool]
) -> tuple[_Local, bool, set[str] | None]:
    """Return the tree's state, whether the corpus did not answer, and which stored files match (None: any may)."""
    mirror.check()
    fresh = Later(freshen)
    if query.needs_all:
        return _look(root, open_tree), fresh.wait(), None
    with mirror.search(rg, query.rg_matching()) as search:
        local, offline = _look(root, open_tree), fresh.wait()
        if search.snapshot is mirror.snapshot:
            return local, offline, search.files()
    with mirror.search(rg, query.rg_matching()) as search:
        return local, offline, search.files()


def _look(root: str, open_tree: OpenTree) -> _Local:
    """Take the tree's state down, and let the tree go: a long search locks nobody out."""
    with open_tree() as tree:
        if tree is None:
            return _Local(root, {}, frozenset())
        laid: dict[str, Laid] = tree.manifest.all()
        found = dict(tree.files())
        files = {
            path: laid[path].sha256 if path in laid and tree.is_clean(laid[path], seen) else ""
            for path, seen in found.items()
        }
        gone = frozenset(path for path, row in laid.items() if path not in found and row.pending is None)
        return _Local(tree.root, files, gone)


class _View(NamedTuple):
    """How the tree is seen from the working folder; the scratch folder has the two lie in the same way."""

    below: str
    """Where the tree lies in the scratch folder."""
    start: str
    """Where in the scratch folder ripgrep runs."""
    arguments: tuple[str, ...]
    """The paths that it is given: what it prints begins with them."""
    wanted: tuple[str, ...]
    """Which files and folders of the corpus are asked for; "" is everything."""

    @classmethod
    def of(cls, cwd: str, root: str, typed: Sequence[str], exists: Callable[[str], bool]) -> _View:
        """Resolve what was typed.

        Raises:
            NotFoundError: a path names nothing, on disk or in the corpus.
        """
        here, tree = os.path.realpath(cwd), os.path.realpath(root)
        there = os.path.relpath(tree, here)
        ups = there.split("/").count("..")
        start = "/".join(here.strip("/").split("/")[-ups:]) if ups else ""
        below = os.path.normpath(os.path.join(start, there))
        inside = _relative(here, tree)
        if not typed:
            return cls(below, start, () if inside is not None else (there,), (inside or "",))
        pairs = [_resolved(name, here, tree, there, exists) for name in typed]
        return cls(below, start, tuple(argument for argument, _ in pairs), tuple(path for _, path in pairs))

    def part(self, files: Mapping[str, T]) -> Mapping[str, T]:
        """Return those of the files that are asked for."""
        if "" in self.wanted:
            return files
        return {path: file for path, file in files.items() if any(_lies_at(path, wanted) for wanted in self.wanted)}


def _resolved(typed: str, here: str, tree: str, there: str, exists: Callable[[str], bool]) -> tuple[str, str]:
    """Return (what ripgrep is given, path in the corpus) of a path on disk, or of one as `memfs ls` prints it."""
    on_disk = _relative(os.path.normpath(os.path.join(here, typed)), tree)
    if on_disk is not None and exists(on_disk):
        return (os.path.relpath(typed, here) if os.path.isabs(typed) else typed), on_disk
    if not os.path.isabs(typed):
        stored = paths.prefix(typed).rstrip("/")
        if exists(stored):
            return os.path.normpath(os.path.join(there, stored)), stored
    raise NotFoundError(f"{typed}: no such file or folder", hint="look around with: memfs ls")


def _relative(path: str, start: str) -> str | None:
    """`path` as seen from the folder `start` if it lies in it ("" for itself), else None."""
    if path == start:
        return ""
    return path[len(start) + 1 :] if path.startswith(start.rstrip("/") + "/") else None


def _lies_at(path: str, wanted: str) -> bool:
    return not wanted or path == wanted or path.startswith(f"{wanted}/")


@contextmanager
def _scratch(folder: str) -> Iterator[str]:
    """A folder of this run's own; those that killed runs left are swept."""
    os.makedirs(folder, mode=0o700, exist_ok=True)
    for name in os.listdir(folder):
        with suppress(OSError):
            _sweep(os.path.join(folder, name))
    made = os.path.join(folder, os.urandom(8).hex())
    os.mkdir(made, 0o700)
    fd = os.open(made, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        inside = os.path.join(made, "tree")
        os.mkdir(inside)
        yield inside
    except BrokenPipeError:
        # The reader of what is printed has enough.
        raise
    except OSError as error:
        raise DiskError(
            f"{made}: {error.strerror}", hint="make room, or set MEMFS_CACHE_DIR to another disk"
        ) from error
    finally:
        shutil.rmtree(made, ignore_errors=True)
        os.close(fd)


def _sweep(folder: str) -> None:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # Made a moment ago, and not locked yet.
        if os.listdir(fd):
            shutil.rmtree(folder, ignore_errors=True)
    finally:
        os.close(fd)


def _set_up(
    folder: str, view: _View, root: str, own: Sequence[str], missing: Sequence[Entry], mirror: Mirror,
    bring: Bring,
) -> None:  # fmt: skip
    base = os.path.join(folder, view.below)
    made: set[str] = set()

    def parent(path: str) -> str:
        file = os.path.join(base, path)
        above = os.path.dirname(file)
        if above not in made:
            os.makedirs(above, exist_ok=True)
            made.add(above)
        return file

    for path in own:
        os.symlink(os.path.join(root, path), parent(path))
    elsewhere: list[Entry] = []
    for entry in missing:
        data = mirror.read(entry)
        if data is None:
            elsewhere.append(entry)
            continue
        with open(parent(entry.path), "wb") as out:
            out.write(data)
    brought = bring(elsewhere) if elsewhere else {}
    for entry in elsewhere:
        if entry.path not in brought:
            raise CorruptError(f"{entry.path} is neither in the mirror nor in the corpus", hint="memfs refresh")
        with open(parent(entry.path), "wb") as out:
            out.write(brought[entry.path])
    # A path that was asked for exists for ripgrep too, whether or not anything in it can match.
    for wanted in view.wanted:
        place = os.path.join(base, wanted) if wanted else base
        if not os.path.lexists(place):
            _stand_in(place, wanted, mirror, root)
    os.makedirs(os.path.join(folder, view.start), exist_ok=True)


def _stand_in(place: str, wanted: str, mirror: Mirror, root: str) -> None:
    os.makedirs(os.path.dirname(place), exist_ok=True)
    if wanted in mirror.entries or os.path.isfile(os.path.join(root, wanted)):
        with open(place, "wb"):
            return
    os.makedirs(place, exist_ok=True)


def _run(
    rg: str, flags: Sequence[str], view: _View, folder: str, sink: Callable[[bytes], object]
) -> tuple[int, str]:  # fmt: skip
    """Run ripgrep over the folder; return its exit code and messages."""
    command = [rg, "--no-config", "--no-ignore", "--hidden", "--follow", "--color=never", *_sorted(flags), *flags, "--"]
    with (
        tempfile.TemporaryFile(dir=os.path.dirname(folder)) as errors,
        subprocess.Popen(
            [*command, *view.arguments],
            cwd=os.path.join(folder, view.start),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
        ) as run,
    ):
        assert run.stdout is not None
        try:
            while chunk := run.stdout.read1(CHUNK_BYTES):  # type: ignore[attr-defined]
                sink(chunk)
        except BaseException:
            run.kill()
            raise
        code = run.wait()
        errors.seek(0)
        return code, errors.read().decode(errors="replace")


def _sorted(flags: Sequence[str]) -> list[str]:
    return [] if any(flag.startswith("--sort") for flag in flags) else ["--sort=path"]


def _matching(rg: str, query: Query, view: _View, folder: str, missing: Sequence[Entry]) -> list[Entry]:
    """Of the files that are not on disk, those that have a match, in path order."""
    flags = [*query.matching, *(f"--glob={glob}" for glob in query.globs), *query._patterns()]
    printed: list[bytes] = []
    _run(rg, ["--files-with-matches", "--null", *flags], view, folder, printed.append)
    base = os.path.join(folder, view.below)
    start = os.path.join(folder, view.start)
    found = {
        os.path.relpath(os.path.normpath(os.path.join(start, os.fsdecode(name))), base)
        for name in b"".join(printed).split(b"\0")
        if name
    }
    return sorted((entry for entry in missing if entry.path in found), key=lambda entry: entry.path)


def _lay(
    entries: Sequence[Entry], mirror: Mirror, open_tree: OpenTree,
    bring: Bring,
) -> int:  # fmt: skip
    chosen: list[Entry] = []
    size = 0
    for entry in entries:
        if size + entry.size <= LAY_BYTES_MAX:
            chosen.append(entry)
            size += entry.size
    with open_tree() as tree:
        if tree is None:
            return 0
        wanted = (Wanted(e.path, e.sha256, e.size, e.mtime_ns, mirror.version, "grep") for e in chosen)
        plan = diff(wanted, tree)
        needed = {want.path for want in plan.needed()}
        contents: dict[str, bytes] = {}
        elsewhere: list[Entry] = []
        for entry in chosen:
            data = mirror.read(entry) if entry.path in needed else None
            if data is not None:
                contents[entry.path] = data
            elif entry.path in needed:
                elsewhere.append(entry)
        if elsewhere:
            contents.update(bring(elsewhere))
        return apply(plan, tree, contents).written
