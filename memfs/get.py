"""memfs get: lay files into the tree by name, or a whole folder of them."""

from __future__ import annotations

from collections.abc import Sequence

from memfs import paths
from memfs.corpus.records import FileInfo, nanoseconds
from memfs.corpus.table import Corpus
from memfs.errors import InputError, NotFoundError
from memfs.workset.apply import Applied, apply
from memfs.workset.cache import HostCache
from memfs.workset.gather import gather
from memfs.workset.mirror import Mirror
from memfs.workset.plan import Plan, Wanted, diff
from memfs.workset.tree import Tree

__all__ = ["get"]


def get(
    corpus: Corpus, names: Sequence[str], *, tree: Tree | None, cache: HostCache | None, mirror: Mirror | None = None,
    dry_run: bool = False,
) -> tuple[Plan, Applied]:  # fmt: skip
    """Materialise the files and folders named; `notes/` and `notes` are a folder, `.` is everything.

    Without a tree, or in a dry run, only the plan is made.

    Raises:
        NotFoundError: a name is neither a file nor a folder of the corpus; nothing is written then.
    """
    if not names:
        raise InputError("no name is given", hint="memfs get notes/today.md, or a folder: memfs get notes/")
    infos = _resolve(corpus, names)
    plan = diff((_wanted(info, corpus.version) for info in infos.values()), tree)
    done = Applied(0, 0, (), ())
    if tree is not None and not dry_run:
        for part in plan.parts():
            contents = gather(corpus, ((w.path, w.sha256) for w in part.needed()), cache, mirror)
            done = _sum(done, apply(part, tree, contents))
    return plan, done


def _resolve(corpus: Corpus, names: Sequence[str]) -> dict[str, FileInfo]:
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


def _wanted(info: FileInfo, version: int) -> Wanted:
    return Wanted(info.path, info.sha256, info.size, nanoseconds(info.mtime), version, "get")


def _sum(one: Applied, two: Applied) -> Applied:
    return Applied(
        one.written + two.written, one.bytes_written + two.bytes_written, one.kept + two.kept, one.refused + two.refused
    )
