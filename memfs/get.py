"""memfs get: lay files into the tree by name, or a whole folder of them."""

from __future__ import annotations

from collections.abc import Sequence

from memfs.corpus.table import Corpus
from memfs.workset import named
from memfs.workset.apply import Applied
from memfs.workset.cache import HostCache
from memfs.workset.mirror import Mirror
from memfs.workset.plan import Plan
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
    infos = named.stored(corpus, names)
    return named.lay(corpus, infos.values(), tree, cache, mirror, why="get", dry_run=dry_run)
