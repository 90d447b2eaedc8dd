"""memfs:// through fsspec: listing, reading, and nothing written."""

from __future__ import annotations

from datetime import datetime, timezone
from pathlib import Path

import fsspec
import pytest

from memfs.corpus import split
from memfs.corpus.records import Document
from memfs.corpus.table import Corpus

NOW = datetime(2026, 5, 17, tzinfo=timezone.utc)
FILES = {"notes/a.md": b"# A\n\none\n", "notes/deep/b c.txt": b"two", "sessions/x/transcript.md": b""}


@pytest.fixture
def uri(tmp_path: Path) -> str:
    corpus = Corpus.create(str(tmp_path / "corpus"))
    corpus.commit(
        Document(path, split.passages(data, markdown=True), "file", path, "test", NOW) for path, data in FILES.items()
    )
    return corpus.uri


def test_open_reads_a_file_by_url(uri: str) -> None:
    """`fsspec.open("memfs://…")` works without importing memfs first: the protocol is an entry point."""
    with fsspec.open("memfs://notes/deep/b c.txt", corpus=uri) as handle:
        assert handle.read() == b"two"


def test_ls_find_and_cat(uri: str) -> None:
    """Folders are listed one level, find is the whole tree, cat gives the bytes."""
    files = fsspec.filesystem("memfs", corpus=uri)
    assert sorted(files.ls("", detail=False)) == ["notes", "sessions"]
    assert sorted(files.ls("memfs://notes", detail=False)) == ["notes/a.md", "notes/deep"]
    assert sorted(files.find("")) == sorted(FILES)
    assert files.cat("notes", recursive=True) == {p: d for p, d in FILES.items() if p.startswith("notes/")}
    assert files.cat_file("notes/a.md", start=2, end=3) == b"A"
    assert files.isdir("notes/deep")
    assert files.size("notes/a.md") == 9
    assert files.glob("notes/*.md") == ["notes/a.md"]


def test_missing_is_file_not_found(uri: str) -> None:
    """What does not exist raises what open() would raise."""
    files = fsspec.filesystem("memfs", corpus=uri)
    for ask in (files.ls, files.info, files.cat_file):
        with pytest.raises(FileNotFoundError):
            ask("notes/none.md")
    assert not files.exists("notes/none.md")


def test_writing_is_refused(uri: str) -> None:
    """Read-only for now: every way of writing says so."""
    files = fsspec.filesystem("memfs", corpus=uri)
    for write in (
        lambda: files.pipe("notes/n.md", b"1"),
        lambda: files.rm("notes/a.md"),
        lambda: files.mkdir("new"),
        lambda: files.open("notes/a.md", "wb"),
    ):
        with pytest.raises(OSError, match="read-only"):
            write()  # type: ignore[no-untyped-call]


def test_a_new_version_is_seen_after_invalidate(uri: str) -> None:
    """An instance reads one version until it is told to look again."""
    files = fsspec.filesystem("memfs", corpus=uri, skip_instance_cache=True)
    assert not files.exists("notes/new.md")
    Corpus.open(uri).commit([Document("notes/new.md", split.passages(b"x", markdown=True), "note", "new", "t", NOW)])
    assert not files.exists("notes/new.md")
    files.invalidate_cache()
    assert files.cat_file("notes/new.md") == b"x"
