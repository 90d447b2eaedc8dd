"""memfs status: what lies in the tree, what of it is yours, and what the corpus is known to have since.

Touches neither network nor database: what the corpus has is what this tree last heard of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from memfs.workset.changes import compare
from memfs.workset.conflict import Conflict
from memfs.workset.tree import Tree

if TYPE_CHECKING:
    from memfs.corpus.records import FileInfo

__all__ = ["Status", "Unreadable", "status"]

COPY_THERE = "merge the two, delete or rename the copy, and push"
CHANGED = "changed here and in the corpus: memfs refresh lays its version beside yours"
MADE_TWICE = "made here and in the corpus: memfs push lays its version beside yours"
GONE = "edited here, and gone from the corpus: rename it to send it as a new file, or delete it"


class Unreadable(NamedTuple):
    """Something in the tree that is no plain file, or cannot be read."""

    path: str
    reason: str


class Status(NamedTuple):
    """A tree's state. Paths are sorted; `clean` is a count. A file stands under one heading; a stale one is clean."""

    tree: str
    corpus: str
    corpus_version: int
    """Of the last boot."""
    heard_version: int
    """The newest that this tree has heard of."""
    files_here: int
    """Of the corpus, on disk, edited or not."""
    files_total: int
    """Of the corpus, as this tree last heard."""
    clean: int
    """Of `files_here`, those as they were laid."""
    modified: tuple[str, ...]
    new: tuple[str, ...]
    deleted: tuple[str, ...]
    """Laid by memfs, and no longer on disk."""
    conflicting: tuple[Conflict, ...]
    """Changed here and in the corpus; not counted as modified."""
    stale: tuple[str, ...]
    """Unedited, and another, or gone, in the corpus."""
    imported: int
    """Session files of yours that were sent, and became transcripts."""
    unreadable: tuple[Unreadable, ...]


def status(tree: Tree, corpus: str, stored: Mapping[str, FileInfo] = MappingProxyType({})) -> Status:
    """Compare the disk with the manifest; new files with those of the corpus, `stored`, too."""
    local, laid, stale = compare(tree), tree.manifest.all(), tree.manifest.stale()
    conflicts = {path: Conflict(path, "", CHANGED if stale[path] else GONE) for path in local.modified if path in stale}
    conflicts |= {
        path: Conflict(path, "", MADE_TWICE)
        for path in local.new
        if path in stored and tree.sha256(path) != stored[path].sha256
    }
    conflicts |= {path: Conflict(path, copies[-1], COPY_THERE) for path, copies in local.copies.items()}
    of_corpus = [path for path in (*local.clean, *local.modified) if not laid[path].generated]
    boot_version = int(tree.manifest.meta("boot_version") or 0)
    return Status(
        tree=tree.root,
        corpus=corpus,
        corpus_version=boot_version,
        heard_version=max(boot_version, int(tree.manifest.meta("heard_version") or 0)),
        files_here=len(of_corpus),
        files_total=int(tree.manifest.meta("total_files") or 0),
        clean=sum(path in local.clean for path in of_corpus),
        modified=tuple(path for path in local.modified if path not in conflicts),
        new=tuple(path for path in local.new if path not in conflicts),
        deleted=local.deleted,
        conflicting=tuple(conflicts[path] for path in sorted(conflicts)),
        stale=tuple(path for path in local.clean if path in stale),
        imported=len(local.imported),
        unreadable=tuple(Unreadable(path, reason) for path, reason in local.unreadable.items()),
    )
