"""Rows prepared in child processes are the rows that this process would make."""

from __future__ import annotations

from datetime import datetime, timezone
from pathlib import Path

import pytest

from memfs import add as adding
from memfs.corpus import records, rows, split, workers
from memfs.corpus.embed import load
from memfs.corpus.records import Document
from memfs.corpus.schema import schema
from memfs.corpus.table import Corpus
from memfs.errors import MemfsError

NOW = datetime(2026, 5, 17, tzinfo=timezone.utc)


def documents(count: int) -> list[Document]:
    texts = [f"# Note {n}\n\nÜber den Ofen, {n} mal. 오븐 {n}\n".encode() for n in range(count)]
    return [
        Document(f"notes/{n:04}.md", split.passages(text, markdown=True), "note", f"Note {n}", "test", NOW)
        for n, text in enumerate(texts)
    ]


def test_a_child_makes_the_same_rows() -> None:
    """Columns, order and vectors are those of the in-process path."""
    embedder = load("static")
    here = rows.documents_to_rows(documents(20), embedder, schema(embedder.dimensions, embedder.name))
    with workers.RowWorkers(1) as pool:
        there = pool.submit(documents(20)).result()
    assert there.drop_columns(["vector"]).equals(here.drop_columns(["vector"]))
    assert there["vector"].to_pylist() == [pytest.approx(v) for v in here["vector"].to_pylist()]


def test_a_child_that_dies_is_a_clear_error() -> None:
    """A killed child ends the add with a hint, and does not hang it."""
    with workers.RowWorkers(1) as pool:
        pool._all[0].kill()
        answer = pool.submit(documents(1))
        with pytest.raises(MemfsError, match="worker process"):
            answer.result()


def test_a_large_add_through_children_is_complete(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Enough batches to use children: every file is stored, in order, and adding again changes nothing."""
    monkeypatch.setattr(records, "BATCH_FILES", 10)
    source = tmp_path / "source"
    source.mkdir()
    for n, document in enumerate(documents(75)):
        (source / f"{n:04}.md").write_bytes(b"".join(p.body for p in document.passages))
    corpus = Corpus.create(str(tmp_path / "corpus"))
    added = adding.add(corpus, [str(source)])
    assert (added.added, added.unchanged) == (75, 0)
    assert [info.path for info in corpus.files()] == [f"notes/{n:04}.md" for n in range(75)]
    again = adding.add(corpus, [str(source)])
    assert (again.added, again.replaced, again.unchanged) == (0, 0, 75)
