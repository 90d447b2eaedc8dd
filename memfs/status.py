"""memfs status: what lies in the tree, and what of it is yours. Touches neither network nor database."""

from __future__ import annotations

from dataclasses import dataclass

from memfs.workset.plan import is_clean
from memfs.workset.tree import Tree

__all__ = ["Status", "status"]


@dataclass(frozen=True, slots=True)
class Status:
    """A tree's state. Paths are sorted; `clean` is a count."""

    tree: str
    corpus: str
    corpus_version: int
    """Of the last boot."""
    files_here: int
    """Of the corpus, on disk, edited or not."""
    files_total: int
    """Of the corpus, as the last boot said."""
    clean: int
    """Of `files_here`, those as they were laid."""
    modified: tuple[str, ...]
    new: tuple[str, ...]
    deleted: tuple[str, ...]
    """Laid by memfs, and no longer on disk."""


def status(tree: Tree, corpus: str) -> Status:
    """Compare the disk with the manifest."""
    laid = tree.manifest.all()
    found = dict(tree.files())
    stored = [p for p in found if p in laid and not laid[p].generated]
    modified = tuple(p for p in found if p in laid and not is_clean(tree, laid[p], found[p]))
    new = tuple(p for p in found if p not in laid)
    deleted = tuple(p for p, row in laid.items() if p not in found and row.pending is None)
    return Status(
        tree=tree.root,
        corpus=corpus,
        corpus_version=int(tree.manifest.meta("boot_version") or 0),
        files_here=len(stored),
        files_total=int(tree.manifest.meta("total_files") or 0),
        clean=sum(p not in modified for p in stored),
        modified=modified,
        new=new,
        deleted=deleted,
    )
