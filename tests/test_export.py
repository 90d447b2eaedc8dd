"""memfs export: the corpus as an ordinary folder, byte for byte."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from conftest import NOTES, document, leftovers, long_text, tree_of

from memfs.corpus.table import Corpus
from memfs.errors import CorruptError, InputError
from memfs.export import export


def test_whole(filled: Corpus, tmp_path: Path) -> None:
    """All files, their bytes and times; nothing of memfs's own."""
    done = export(filled, str(tmp_path / "out"))
    assert tree_of(tmp_path / "out") == {path: text.encode() for path, text in NOTES.items()}
    assert (done.files, done.bytes) == (len(NOTES), sum(len(t.encode()) for t in NOTES.values()))
    assert done.refused == ()
    assert sorted(os.listdir(tmp_path / "out")) == ["knowledge", "notes", "sessions"]


def test_under(filled: Corpus, tmp_path: Path) -> None:
    """A part of the corpus is exported relative to its folder."""
    export(filled, str(tmp_path / "out"), under="notes/people")
    assert set(tree_of(tmp_path / "out")) == {"ana.md"}


def test_past_version(filled: Corpus, tmp_path: Path) -> None:
    """An older version comes out as it was."""
    before = filled.version
    filled.commit([document("notes/deploy.md", "new\n")], delete=["notes/people/ana.md"])
    export(filled.at(before), str(tmp_path / "out"))
    assert tree_of(tmp_path / "out") == {path: text.encode() for path, text in NOTES.items()}


def test_target_must_be_empty(filled: Corpus, tmp_path: Path) -> None:
    """A folder with something in it, or a file, is refused and untouched; an empty folder is taken."""
    (tmp_path / "full").mkdir()
    (tmp_path / "full/x").write_text("x")
    for target in (tmp_path / "full", tmp_path / "full/x"):
        with pytest.raises(InputError, match="not an empty folder"):
            export(filled, str(target))
    assert tree_of(tmp_path / "full") == {"x": b"x"}
    (tmp_path / "empty").mkdir()
    assert export(filled, str(tmp_path / "empty")).files == len(NOTES)


def test_dry_run(filled: Corpus, tmp_path: Path) -> None:
    """A dry run counts and writes nothing."""
    assert export(filled, str(tmp_path / "out"), dry_run=True).files == len(NOTES)
    assert not (tmp_path / "out").exists()


def test_file_that_is_a_folder(corpus: Corpus, tmp_path: Path) -> None:
    """A file and a folder of one name cannot both be written: one is, the other is reported, the rest is there."""
    corpus.commit([document("notes/dir/x.md", "x\n"), document("notes/z.md", "z\n")])
    corpus.commit([document("notes/dir", "file\n")], skip_refused=True)
    done = export(corpus, str(tmp_path / "out"))
    found = tree_of(tmp_path / "out")
    assert len(found) + len(done.refused) == len(list(corpus.files()))
    assert done.files == len(found)
    assert found["notes/z.md"] == b"z\n"
    assert leftovers(tmp_path / "out") == []


def test_longest_names(corpus: Corpus, tmp_path: Path) -> None:
    """Names of 255 bytes, and paths of 1,000, are written."""
    names = ["notes/" + "x" * 255, "notes/" + "é" * 127, "/".join(["d" * 199] * 5)]
    corpus.commit([document(name, f"{name}\n") for name in names])
    export(corpus, str(tmp_path / "out"))
    assert tree_of(tmp_path / "out") == {name: f"{name}\n".encode() for name in names}


def test_tampered(corpus: Corpus, tmp_path: Path) -> None:
    """A file whose bytes do not match its hash is an error, not an exported file."""
    corpus.commit([document("notes/a.md", long_text("a", 10))])
    corpus._table.update(where="path = 'notes/a.md'", values={"body": b"false"})
    with pytest.raises(CorruptError):
        export(corpus, str(tmp_path / "out"))
    assert not (tmp_path / "out/notes/a.md").exists()
