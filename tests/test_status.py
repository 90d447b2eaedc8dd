"""memfs status: what lies in the tree and what of it is the user's, without network or database."""

from __future__ import annotations

import os
from pathlib import Path

from memfs.boot import boot
from memfs.corpus.table import Corpus
from memfs.status import Status, status
from memfs.workset.tree import Tree


def look(tmp_path: Path) -> Status:
    with Tree.open(str(tmp_path / "memory"), str(tmp_path / "state")) as tree:
        return status(tree, "")


def test_status(filled: Corpus, tmp_path: Path) -> None:
    """Clean after a boot; then modified, new and deleted files by name; a touched file stays clean."""
    boot(filled.uri, str(tmp_path / "memory"), cache_dir=str(tmp_path / "cache"), state_dir=str(tmp_path / "state"))
    found = look(tmp_path)
    assert (found.modified, found.new, found.deleted) == ((), (), ())
    assert found.clean == 6
    assert found.files_total == 6
    assert found.corpus_version > 0
    root = tmp_path / "memory"
    (root / "notes/deploy.md").write_text("mine\n")
    (root / "notes/new").mkdir()
    (root / "notes/new/own.md").write_text("own\n")
    (root / "notes/people/ana.md").unlink()
    os.utime(root / "knowledge/index.md")
    (root / "link").symlink_to("/etc")
    found = look(tmp_path)
    assert found.modified == ("notes/deploy.md",)
    assert found.new == ("notes/new/own.md",)
    assert found.deleted == ("notes/people/ana.md",)
    assert found.clean == 4


def test_needs_no_corpus(filled: Corpus, tmp_path: Path) -> None:
    """The corpus may be gone."""
    import shutil

    boot(filled.uri, str(tmp_path / "memory"), cache_dir=str(tmp_path / "cache"), state_dir=str(tmp_path / "state"))
    shutil.rmtree(filled.uri)
    assert look(tmp_path).clean == 6
