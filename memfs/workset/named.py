"""Files by name: what a name means in the corpus and in the tree, and laying what it means."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from memfs import paths
from memfs.corpus.records import FileInfo, nanoseconds
from memfs.errors import InputError, NotFoundError
from memfs.workset.apply import Applied, apply
from memfs.workset.gather import gather
from memfs.workset.plan import PART_BYTES, Plan, Wanted, diff

if TYPE_CHECKING:
    from memfs.corpus.table import Corpus
    from memfs.workset.cache import HostCache
    from memfs.workset.mirror import Mirror
    from memfs.workset.tree import Tree

__all__ = ["lay", "local", "stored"]

BATCH_BYTES = PART_BYTES


def stored(corpus: Corpus, names: Sequence[str]) -> dict[str, FileInfo]:
    """Return the files of the corpus that `names` mean; `notes/` and `notes` are a folder, `.` is everything.

    Raises:
        NotFoundError: a name is neither a file nor a folder of the corpus.
    """
    if not names:
        raise InputError("no name is given", hint="memfs get notes/today.md, or a folder: memfs get notes/")
    cleaned = [paths.prefix(name) for name in names]
    exact = corpus.find([name.rstrip("/") for name in cleaned if name])
    infos: dict[str, FileInfo] = {}
    for asked, folder in zip(names, cleaned, strict=True):
        if folder.rstrip("/") in exact and not asked.endswith("/"):
            infos[folder.rstrip("/")] = exact[folder.rstrip("/")]
            continue
        below = {info.path: info for info in corpus.files(folder)}
        if not below:
            raise NotFoundError(f"{asked}: no such file or folder in the corpus", hint="look with: memfs ls --remote")
        infos |= below
    return infos


def local(known: Iterable[str], names: Sequence[str]) -> list[str]:
    """Return those of the `known` paths that `names` mean, sorted.

    Raises:
        NotFoundError: a name means none of them.
    """
    everything = sorted(known)
    found: set[str] = set()
    for asked in names:
        folder = paths.prefix(asked)
        mine = {p for p in everything if p.startswith(folder) or (p == folder[:-1] and not asked.endswith("/"))}
        if not mine:
            raise NotFoundError(f"{asked}: no such file or folder here", hint="look with: memfs ls --local")
        found |= mine
    return sorted(found)


def lay(
    corpus: Corpus, infos: Iterable[FileInfo], tree: Tree | None, cache: HostCache | None,
    mirror: Mirror | None = None, *, why: str, dry_run: bool,
) -> tuple[Plan, Applied]:  # fmt: skip
    """Plan and lay the files, so many at a time that their bytes fit in memory; without a tree only plan."""
    plan = diff((_wanted(info, corpus.version, why) for info in infos), tree)
    done = Applied(0, 0, (), ())
    if tree is not None and not dry_run:
        for part in plan.parts(BATCH_BYTES):
            contents = gather(corpus, ((w.path, w.sha256) for w in part.needed()), cache, mirror)
            done = _sum(done, apply(part, tree, contents))
    return plan, done


def _wanted(info: FileInfo, version: int, why: str) -> Wanted:
    return Wanted(info.path, info.sha256, info.size, nanoseconds(info.mtime), version, why)


def _sum(one: Applied, two: Applied) -> Applied:
    return Applied(
        one.written + two.written,
        one.bytes_written + two.bytes_written,
        one.kept + two.kept,
        one.refused + two.refused,
        one.evicted + two.evicted,
    )
