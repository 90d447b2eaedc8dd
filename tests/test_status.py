"""memfs status: what lies in the tree and what of it is the user's, without network or database."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from conftest import document

from memfs.boot import boot
from memfs.corpus.table import Corpus
from memfs.get import get
from memfs.status import Status, status
from memfs.workset.learn import learn
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
    assert [(x.path, x.reason) for x in found.unreadable] == [("link", "a symlink lies there")]


def test_needs_no_corpus(filled: Corpus, tmp_path: Path) -> None:
    """The corpus may be gone."""
    import shutil

    boot(filled.uri, str(tmp_path / "memory"), cache_dir=str(tmp_path / "cache"), state_dir=str(tmp_path / "state"))
    shutil.rmtree(filled.uri)
    assert look(tmp_path).clean == 6


def test_stale_and_conflicting(filled: Corpus, tmp_path: Path) -> None:
    """What a boot, a get or a push heard of the corpus stays known: unedited files are stale, edited ones conflict."""
    for name in ("memory", "other"):
        boot(filled.uri, str(tmp_path / name), cache_dir=str(tmp_path / "cache"), state_dir=str(tmp_path / "state"))
    (tmp_path / "memory/notes/deploy.md").write_text("mine\n")
    with filled.writing():
        filled.commit([document("notes/deploy.md", "theirs\n"), document("notes/people/ana.md", "theirs\n")])
    assert (look(tmp_path).conflicting, look(tmp_path).modified) == ((), ("notes/deploy.md",))
    with Tree.open(str(tmp_path / "memory"), str(tmp_path / "state")) as tree:
        get(filled, ["notes/deploy.md"], tree=tree, cache=None)
    found = look(tmp_path)
    assert ([c.path for c in found.conflicting], found.modified, found.stale) == (["notes/deploy.md"], (), ())
    with Tree.open(str(tmp_path / "memory"), str(tmp_path / "state")) as tree:
        learn(filled, tree)
    found = look(tmp_path)
    assert found.stale == ("notes/people/ana.md",)
    assert found.clean == 5
    assert found.heard_version == filled.version > found.corpus_version
    boot(filled.uri, str(tmp_path / "memory"), cache_dir=str(tmp_path / "cache"), state_dir=str(tmp_path / "state"))
    assert look(tmp_path).stale == ()


def test_what_was_heard_last_counts(filled: Corpus, tmp_path: Path) -> None:
    """A file that changed in the corpus and changed back is not stale; news of an older version change nothing."""
    boot(filled.uri, str(tmp_path / "memory"), cache_dir=str(tmp_path / "cache"), state_dir=str(tmp_path / "state"))
    with Tree.open(str(tmp_path / "memory"), str(tmp_path / "state")) as tree:
        base = tree.manifest.all()["notes/deploy.md"]
        for version, sha256, stale in (
            (base.version + 5, "f" * 64, True),
            (base.version + 3, base.sha256, True),
            (base.version + 6, base.sha256, False),
            (base.version + 7, "", True),
            (base.version - 1, "e" * 64, True),
        ):
            with tree.manifest.writing():
                tree.manifest.hear([("notes/deploy.md", sha256)], version)
            assert (status(tree, "").stale == ("notes/deploy.md",)) is stale, version


def test_unreadable_file(filled: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that cannot be read is said to be so, and is neither clean, modified nor deleted."""
    boot(filled.uri, str(tmp_path / "memory"), cache_dir=str(tmp_path / "cache"), state_dir=str(tmp_path / "state"))
    os.utime(tmp_path / "memory/notes/deploy.md")

    def fail(self: Tree, path: str) -> str:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Tree, "sha256", fail)
    found = look(tmp_path)
    assert [(x.path, x.reason) for x in found.unreadable] == [("notes/deploy.md", "cannot be read: Permission denied")]
    assert (found.clean, found.modified, found.deleted) == (5, (), ())
