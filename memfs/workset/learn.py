"""What a tree hears of its corpus: which of its files are another there by now, and which are gone."""

from __future__ import annotations

from collections.abc import Mapping

from memfs.corpus.records import FileInfo
from memfs.corpus.table import Corpus
from memfs.errors import CorruptError
from memfs.workset.changes import Changes, check_version
from memfs.workset.manifest import Laid
from memfs.workset.tree import Tree

__all__ = ["check_listing", "laid_files", "learn", "made_on_both_sides"]


def learn(corpus: Corpus, tree: Tree) -> dict[str, FileInfo]:
    """Note in the manifest what the corpus now holds of the laid files; return all its files by path.

    Raises:
        CorruptError: it lists no file though the tree has some of it, contradicts itself, or is older than the tree.
    """
    corpus.refresh()
    stored = {info.path: info for info in corpus.files()}
    laid = laid_files(tree)
    check_listing(corpus, tree, stored)
    with tree.manifest.writing():
        tree.manifest.hear(((path, stored[path].sha256 if path in stored else "") for path in laid), corpus.version)
        tree.manifest.set_meta("heard_version", str(corpus.version))
        tree.manifest.set_meta("total_files", str(len(stored)))
        tree.manifest.set_meta("total_bytes", str(sum(info.size for info in stored.values())))
    return stored


def laid_files(tree: Tree) -> dict[str, Laid]:
    """Return what was laid from the corpus, by path; what memfs makes itself is not."""
    return {path: row for path, row in tree.manifest.all().items() if not row.generated}


def check_listing(corpus: Corpus, tree: Tree, stored: Mapping[str, FileInfo]) -> None:
    """Refuse a listing that cannot be right.

    Raises:
        CorruptError: it is empty though the tree has some of it, contradicts itself, or is older than the tree.
    """
    laid = laid_files(tree)
    check_version(tree, corpus.uri, corpus.version)
    gone = [path for path in laid if path not in stored]
    if gone and not stored:
        raise CorruptError(
            f"{corpus.uri} lists no file, and {len(laid):,} of it lie here: not taken for deleted",
            hint=f"nothing was changed; if the corpus is meant to be empty, delete {tree.root} and boot again",
        )
    contradicted = corpus.find(gone)
    if contradicted:
        raise CorruptError(
            f"{corpus.uri}: {min(contradicted)} is found, but not listed", hint="nothing was changed; try again"
        )


def made_on_both_sides(tree: Tree, local: Changes, stored: Mapping[str, FileInfo]) -> list[str]:
    """Return the files that are new here, and that the corpus has by now with other bytes."""
    return [path for path in local.new if path in stored and tree.sha256(path) != stored[path].sha256]
