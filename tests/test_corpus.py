"""The corpus contract, held on a local folder, on moto and on SeaweedFS."""

from __future__ import annotations

import hashlib
import threading
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from conftest import WHEN, Store, document, long_text, sha256

from memfs.corpus.records import Document, Passage, nanoseconds
from memfs.corpus.schema import ANALYZER_KEY, FORMAT, FORMAT_KEY, TABLE
from memfs.corpus.table import Corpus, Scope
from memfs.corpus.terms import query_terms
from memfs.errors import (
    AccessError,
    ConfigError,
    ConflictError,
    CorruptError,
    NotACorpusError,
    NotFoundError,
    PathError,
)
from memfs.fetch import recall


def ids(corpus: Corpus) -> list[str]:
    """Every row id that the table holds, tombstones included, past the code under test."""
    return [str(i) for i in corpus._table.to_arrow().column("id").to_pylist()]


def found_paths(corpus: Corpus, question: str, scope: Scope | None = None) -> list[str]:
    """Paths of the word leg's hits, best first."""
    hits = corpus.search_words(query_terms(question), 10, scope or Scope())
    catalog = corpus.catalog()
    places = [catalog.place(hit.row_id) for hit in hits]
    return [place.path for place in places if place is not None]


class TestContract:
    """What every store must hold."""

    @pytest.fixture
    def corpus(self, store: Store) -> Corpus:
        return Corpus.create(store.uri())

    def test_empty(self, corpus: Corpus, store: Store) -> None:
        """An empty corpus lists nothing, reads nothing, finds nothing, and none of it is an error."""
        opened = Corpus.open(store.uri())
        assert list(opened.files()) == []
        assert opened.read(["notes/a.md"]) == {}
        assert opened.find(["notes/a.md"]) == {}
        assert opened.search_words(["anything"], 5, Scope()) == []
        assert opened.search_vector(np.ones(256, dtype=np.float32) / 16, 5, Scope()) == []
        assert opened.catalog().file_count == 0
        opened.warm()
        opened.maintain()

    def test_created_once(self, corpus: Corpus, store: Store) -> None:
        """A second `create` at the same place is a conflict and harms nothing."""
        corpus.commit([document("notes/a.md", "one\n")])
        with pytest.raises(ConflictError, match="already is a corpus"):
            Corpus.create(store.uri())
        assert Corpus.open(store.uri()).read(["notes/a.md"])["notes/a.md"].data == b"one\n"

    def test_life_of_a_file(self, corpus: Corpus, store: Store) -> None:
        """Put, grow, shrink, delete and put again: each is what a reader sees next, byte for byte."""
        for text in ("short\n", long_text("grown", 400), long_text("shrunk", 90), "tiny\n"):
            done = corpus.commit([document("notes/a.md", text), document("notes/b.md", "other\n")])
            assert done.version == corpus.version
            found = Corpus.open(store.uri()).read(["notes/a.md", "notes/b.md"])
            assert found["notes/a.md"].data == text.encode()
            assert found["notes/a.md"].sha256 == sha256(text.encode())
            assert found["notes/b.md"].data == b"other\n"
            (info,) = Corpus.open(store.uri()).find(["notes/a.md"]).values()
            assert (info.size, info.sha256) == (len(text), sha256(text.encode()))
        assert corpus.commit(delete=["notes/a.md"]).deleted == 1
        assert corpus.read(["notes/a.md"]) == {}
        assert [info.path for info in corpus.files()] == ["notes/b.md"]
        assert corpus.commit(delete=["notes/a.md"]).deleted == 0
        assert corpus.commit([document("notes/a.md", "again\n")]).added == 1
        assert corpus.read(["notes/a.md"])["notes/a.md"].data == b"again\n"
        assert len(ids(corpus)) == len(set(ids(corpus)))

    def test_idempotent(self, corpus: Corpus) -> None:
        """Committing what is there already makes no version and says so."""
        documents = [document(f"notes/{n}.md", f"text {n}\n") for n in range(5)]
        first = corpus.commit(documents)
        assert (first.added, first.replaced, first.unchanged, first.passages) == (5, 0, 0, 5)
        version = corpus.version
        second = corpus.commit(documents)
        assert (second.added, second.replaced, second.unchanged, second.passages) == (0, 0, 5, 0)
        assert second.version == version == corpus.version
        third = corpus.commit([*documents[1:], document("notes/0.md", "new text\n")])
        assert (third.added, third.replaced, third.unchanged) == (0, 1, 4)

    def test_preview_tells_what_commit_does(self, corpus: Corpus) -> None:
        """A preview counts as the commit does, and makes no version."""
        corpus.commit([document("notes/a.md", "a\n"), document("notes/b.md", "b\n")])
        batch = [
            document("notes/a.md", "a\n"),
            document("notes/b.md", "b2\n"),
            document("notes/c.md", "c\n"),
            document("a\\b", ""),
        ]
        version = corpus.version
        said = corpus.preview(batch)
        assert corpus.refresh() == version
        did = corpus.commit(batch, skip_refused=True)
        assert (said.added, said.replaced, said.unchanged, said.refused) == (
            did.added,
            did.replaced,
            did.unchanged,
            did.refused,
        )

    def test_past_version(self, corpus: Corpus, store: Store) -> None:
        """A version number names a whole corpus: content, listing and search as they were."""
        corpus.commit([document("notes/a.md", "the quokka is old\n"), document("notes/gone.md", "gone\n")])
        before = corpus.version
        corpus.commit(
            [document("notes/a.md", "the walrus is new\n"), document("notes/b.md", "b\n")], delete=["notes/gone.md"]
        )
        past = Corpus.open(store.uri(), version=before)
        assert past.version == before
        assert [info.path for info in past.files()] == ["notes/a.md", "notes/gone.md"]
        assert past.read(["notes/a.md"])["notes/a.md"].data == b"the quokka is old\n"
        assert found_paths(past, "quokka") == ["notes/a.md"]
        assert [info.path for info in corpus.files()] == ["notes/a.md", "notes/b.md"]
        with pytest.raises(NotFoundError, match="no version"):
            corpus.at(9_999)

    def test_reader_stays_at_its_version(self, corpus: Corpus, store: Store) -> None:
        """A reader sees the version it opened until it refreshes."""
        corpus.commit([document("notes/a.md", "one\n")])
        reader = Corpus.open(store.uri())
        corpus.commit([document("notes/a.md", "two\n")])
        assert reader.read(["notes/a.md"])["notes/a.md"].data == b"one\n"
        reader.refresh()
        assert reader.read(["notes/a.md"])["notes/a.md"].data == b"two\n"

    def test_listing(self, corpus: Corpus) -> None:
        """`files` is sorted by path, and a prefix is a folder, not a start of a name."""
        names = ["notes/b.md", "notes/a.md", "notesy/x.md", "notes/sub/c.md", "sessions/s.md"]
        corpus.commit([document(name, f"{name}\n") for name in names])
        assert [info.path for info in corpus.files()] == sorted(names)
        assert [info.path for info in corpus.files("notes/")] == ["notes/a.md", "notes/b.md", "notes/sub/c.md"]
        assert set(corpus.find(["notes/a.md", "notes/none.md"])) == {"notes/a.md"}
        assert list(corpus.read(["sessions/s.md", "nope", "notes/a.md"])) == ["sessions/s.md", "notes/a.md"]

    def test_metadata_comes_back(self, corpus: Corpus) -> None:
        """What a document says of itself is what a reader is told."""
        when = datetime(2026, 1, 2, 3, 4, 5, 678_901, tzinfo=timezone.utc)
        corpus.commit([document("notes/a.md", "---\ntitle: A title\ndate: 2025-12-24\n---\nbody\n", when=when)])
        (info,) = corpus.files()
        assert (info.title, info.kind, info.source, info.mtime) == ("A title", "note", "file:notes/a.md", when)
        assert info.event_time == datetime(2025, 12, 24, tzinfo=timezone.utc)

    def test_rows_not_yet_indexed_are_found(self, corpus: Corpus) -> None:
        """A file is found by words and by meaning right after its commit, indices or not; a deleted one is not."""
        corpus.commit([document("notes/first.md", "a heron stands in the water\n")])
        for n in range(3):
            corpus.commit([document(f"notes/later{n}.md", f"the pangolin number{n} curls up\n")])
        assert set(found_paths(corpus, "pangolin")) == {f"notes/later{n}.md" for n in range(3)}
        assert found_paths(corpus, "number1")[0] == "notes/later1.md"
        assert found_paths(corpus, "heron") == ["notes/first.md"]
        (vector,) = corpus.embedder.embed(["later1.md\nthe pangolin number1 curls up\n"])
        best = corpus.search_vector(vector, 1, Scope())[0]
        place = corpus.catalog().place(best.row_id)
        assert place is not None
        assert place.path == "notes/later1.md"
        assert best.score == pytest.approx(1.0, abs=1e-4)
        corpus.commit(delete=["notes/later1.md"])
        assert "notes/later1.md" not in found_paths(corpus, "number1")

    def test_replaced_words_are_gone(self, corpus: Corpus) -> None:
        """After a replacement the old words find nothing, the new ones do."""
        corpus.commit([document("notes/a.md", "an armadillo\n")])
        corpus.commit([document("notes/a.md", "a chinchilla\n")])
        assert found_paths(corpus, "armadillo") == []
        assert found_paths(corpus, "chinchilla") == ["notes/a.md"]

    def test_scope(self, corpus: Corpus) -> None:
        """`under`, `since` (inclusive) and `until` (exclusive) bound both legs."""
        day = datetime(2026, 5, 8, tzinfo=timezone.utc)
        corpus.commit(
            [
                document("notes/a.md", "---\ndate: 2026-05-08\n---\nmeerkat alpha\n"),
                document("notes/b.md", "---\ndate: 2026-05-09\n---\nmeerkat beta\n"),
                document("sessions/it's.md", "meerkat gamma\n"),
            ]
        )
        next_day = day + timedelta(days=1)
        assert set(found_paths(corpus, "meerkat", Scope("notes/"))) == {"notes/a.md", "notes/b.md"}
        assert found_paths(corpus, "meerkat", Scope(since=day, until=next_day)) == ["notes/a.md"]
        assert found_paths(corpus, "meerkat", Scope(since=next_day)) == ["notes/b.md"]
        assert found_paths(corpus, "meerkat", Scope("it's/")) == []
        (vector,) = corpus.embedder.embed(["meerkat"])
        assert len(corpus.search_vector(vector, 9, Scope("notes/", since=day, until=next_day))) == 1

    def test_binary_empty_and_odd_files(self, corpus: Corpus) -> None:
        """Empty, binary, UTF-16, CRLF, one-line files come back byte for byte; without words, no vector."""
        files = {
            "notes/empty.md": b"",
            "notes/zeros.bin": b"\x00\x01\x02" * 700_000,
            "notes/utf16.txt": "lynx é\r\n".encode("utf-16"),
            "notes/crlf.md": b"one\r\ntwo\r\n\r\nthree",
            "notes/latin1.txt": "caf\xe9 r\xe9union\n".encode("latin-1"),
            "notes/one-line.txt": b"x" * 50_000,
            "notes/marks.md": b"\n\n---\n***\n",
        }
        corpus.commit([document(path, data) for path, data in files.items()])
        assert {path: file.data for path, file in corpus.read(list(files)).items()} == files
        rows = corpus._table.to_arrow().select(["path", "text", "vector"]).to_pylist()
        assert all(row["vector"] is None for row in rows if row["text"] is None)
        assert any(row["vector"] is None for row in rows)
        assert all(row["vector"] is None or np.linalg.norm(row["vector"]) == pytest.approx(1, abs=1e-4) for row in rows)
        assert found_paths(corpus, "lynx") == ["notes/utf16.txt"]
        corpus.commit([document(path, data + b"!") for path, data in files.items()])
        assert {path: file.data for path, file in corpus.read(list(files)).items()} == {
            p: d + b"!" for p, d in files.items()
        }

    def test_tampering_is_detected(self, corpus: Corpus) -> None:
        """Bytes that were changed under the hash are an error, never a file."""
        corpus.commit([document("notes/a.md", "true\n"), document("notes/b.md", "b\n")])
        corpus._table.update(where="path = 'notes/a.md'", values={"body": b"false"})
        with pytest.raises(CorruptError, match="do not match"):
            corpus.read(["notes/a.md"])
        assert corpus.read(["notes/b.md"])["notes/b.md"].data == b"b\n"

    def test_maintenance_keeps_all(self, corpus: Corpus) -> None:
        """Folding indices and sweeping tombstones changes no file and no finding."""
        corpus.commit([document(f"notes/{n}.md", long_text(f"okapi{n}", 60)) for n in range(4)])
        corpus.commit([document("notes/0.md", "okapi0 small\n")], delete=["notes/1.md"])
        before = {path: file.data for path, file in corpus.read([f"notes/{n}.md" for n in range(4)]).items()}
        corpus.maintain()
        assert {path: file.data for path, file in corpus.read(list(before)).items()} == before
        assert sorted(before) == ["notes/0.md", "notes/2.md", "notes/3.md"]
        assert found_paths(corpus, "okapi0") == ["notes/0.md"]
        assert len(ids(corpus)) == len(set(ids(corpus)))

    def test_publish_makes_the_boot_set(self, corpus: Corpus) -> None:
        """`writing()` ends with a boot set of its version; one without a change makes none."""
        with corpus.writing():
            corpus.commit([document("notes/a.md", "a\n")])
        first = corpus.objects.read("boot/current.tar.zst")
        assert first is not None
        with corpus.writing():
            corpus.commit([document("notes/a.md", "a\n")])
        assert corpus.objects.read("boot/current.tar.zst", unless_etag=first.etag) is None


class TestNames:
    """Which names a commit takes."""

    @pytest.mark.parametrize(
        "bad", ["../x", "/x", "a//b", "a/./b", "a\\b", "CON", "a/nul.txt", "a.", "x" * 256, "a\x00b", ".memfs.toml", ""]
    )
    def test_refused(self, corpus: Corpus, bad: str) -> None:
        """A name that memory/ cannot hold raises, or is listed with its reason; its neighbours are stored."""
        with pytest.raises(PathError):
            corpus.commit([document(bad, "x")])
        done = corpus.commit([document(bad, "x"), document("notes/good.md", "good\n")], skip_refused=True)
        assert done.added == 1
        assert len(done.refused) == 1
        assert done.refused[0].reason
        assert [info.path for info in corpus.files()] == ["notes/good.md"]

    @pytest.mark.parametrize("twin", ["NOTES/a.md", "notes/A.md", "notes/cafe\u0301.md", "notes/STRASSE.md"])
    def test_twins(self, corpus: Corpus, twin: str) -> None:
        """Of names equal but for case or Unicode form, the first stays: within a commit and across commits."""
        firsts = ["notes/a.md", "notes/Caf\u00e9.md", "notes/stra\u00dfe.md"]
        corpus.commit([document(name, "first\n") for name in firsts])
        done = corpus.commit([document(twin, "second\n")], skip_refused=True)
        assert (done.added, done.replaced, len(done.refused)) == (0, 0, 1)
        assert "differs only in case" in done.refused[0].reason
        assert {file.data for file in corpus.read(firsts).values()} == {b"first\n"}

    def test_nfd_is_mapped(self, corpus: Corpus) -> None:
        """A name in NFD is stored under its NFC form: the one mapping of the gate."""
        corpus.commit([document("notes/cafe\u0301.md", "x\n")])
        assert [info.path for info in corpus.files()] == ["notes/caf\u00e9.md"]
        assert corpus.commit([document("notes/caf\u00e9.md", "x\n")]).unchanged == 1

    def test_file_that_is_a_folder(self, corpus: Corpus) -> None:
        """A path below a file is refused, in one commit and across commits; case and form do not hide it."""
        corpus.commit([document("notes/a", "file\n")])
        for below in ("notes/a/b.md", "notes/A/b/c.md"):
            with pytest.raises(PathError, match="is a file"):
                corpus.commit([document(below, "b\n")])
        done = corpus.commit([document("notes/d/x.md", "x\n"), document("notes/D", "file\n")], skip_refused=True)
        assert [refused.name for refused in done.refused] == ["notes/d/x.md"]
        assert [info.path for info in corpus.files()] == ["notes/D", "notes/a"]

    def test_case_may_change_with_a_deletion(self, corpus: Corpus) -> None:
        """After a deletion the name is free again, in any case; the new file is whole and alone."""
        corpus.commit([document("notes/a.md", long_text("lower", 200))])
        corpus.commit(delete=["notes/a.md"])
        corpus.commit([document("notes/A.md", "upper\n")])
        assert [info.path for info in corpus.files()] == ["notes/A.md"]
        assert corpus.read(["notes/A.md"])["notes/A.md"].data == b"upper\n"
        corpus.commit([document("notes/A.md", "upper two\n")])
        assert corpus.read(["notes/A.md"])["notes/A.md"].data == b"upper two\n"
        assert len(ids(corpus)) == len(set(ids(corpus)))

    def test_delete_and_put_in_one_commit(self, corpus: Corpus) -> None:
        """A renaming in one commit (delete the old, put the new, only the case differs) leaves the new file only."""
        corpus.commit([document("notes/a.md", "text\n")])
        try:
            corpus.commit([document("notes/A.md", "text\n")], delete=["notes/a.md"])
        except PathError:
            assert [info.path for info in corpus.files()] == ["notes/a.md"]
        else:
            assert [info.path for info in corpus.files()] == ["notes/A.md"]
            assert corpus.read(["notes/A.md"])["notes/A.md"].data == b"text\n"

    def test_put_wins_over_delete_of_the_same(self, corpus: Corpus) -> None:
        """The same path put and deleted in one commit never ends as a torn or duplicated file."""
        corpus.commit([document("notes/a.md", "old\n")])
        corpus.commit([document("notes/a.md", "new\n")], delete=["notes/a.md"])
        assert len(ids(corpus)) == len(set(ids(corpus)))
        assert {f.data for f in corpus.read(["notes/a.md"]).values()} <= {b"new\n"}

    def test_history_outlives_an_emptied_corpus(self, corpus: Corpus) -> None:
        """Deleting every file, sweeping and loading anew loses no past version."""
        corpus.commit([document("notes/a.md", "precious\n")])
        before = corpus.version
        with corpus.writing(publish=False):
            corpus.commit(delete=["notes/a.md"])
            corpus.maintain()
        with corpus.writing(publish=False):
            corpus.commit([document(f"notes/{n}.md", f"{n}\n") for n in range(5)])
            corpus.commit([document("notes/z.md", "z\n")])
            corpus.maintain()
        assert corpus.at(before).read(["notes/a.md"])["notes/a.md"].data == b"precious\n"

    def test_quotes_and_percent(self, corpus: Corpus) -> None:
        """Names with marks that a filter expression could trip over are ordinary names."""
        names = [
            "notes/it's.md",
            "notes/100%.md",
            "notes/a_b.md",
            "notes/x' OR '1'='1.md",
            "notes/日本.md",
            "notes/ü #1.md",
        ]
        corpus.commit([document(name, f"{name}\n") for name in names])
        assert {path: f.data.decode() for path, f in corpus.read(names).items()} == {n: f"{n}\n" for n in names}
        assert corpus.commit(delete=["notes/x' OR '1'='1.md"]).deleted == 1
        assert len(list(corpus.files())) == len(names) - 1


class TestOpening:
    """What else may lie at a URI."""

    def test_not_a_corpus(self, tmp_path: Path) -> None:
        """An empty folder, no folder, or a foreign Lance table is not a corpus; the hint says how to make one."""
        (tmp_path / "empty").mkdir()
        with pytest.raises(NotACorpusError) as caught:
            Corpus.open(str(tmp_path / "empty"))
        assert "memfs init" in str(caught.value.hint)
        with pytest.raises(NotFoundError) as missing:
            Corpus.open(str(tmp_path / "none"))
        assert "memfs init" in str(missing.value.hint)
        import lancedb

        lancedb.connect(str(tmp_path / "foreign")).create_table(TABLE, pa.table({"x": [1]}))
        with pytest.raises(NotACorpusError, match="did not make"):
            Corpus.open(str(tmp_path / "foreign"))

    def test_not_a_corpus_on_s3(self, s3: Store) -> None:
        """A bucket without a corpus is NotACorpus, a missing bucket is NotFound, wrong keys are Access."""
        with pytest.raises(NotACorpusError):
            Corpus.open(s3.uri("nothing"))
        with pytest.raises(NotFoundError, match="bucket"):
            Corpus.open("s3://memfs-no-such-bucket/x")

    def test_denied(self, s3: Store, monkeypatch: pytest.MonkeyPatch) -> None:
        """A wrong key is an access error that names no key."""
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong-and-secret")
        with pytest.raises(AccessError) as caught:
            Corpus.open(s3.uri())
        assert "wrong-and-secret" not in str(caught.value)
        with pytest.raises(AccessError):
            Corpus.create(s3.uri())

    @pytest.mark.parametrize("key", [FORMAT_KEY, ANALYZER_KEY])
    def test_newer_format(self, filled: Corpus, key: bytes) -> None:
        """A corpus of a newer format or analyser is refused with the way out."""
        schema = filled._table.schema
        metadata = {**schema.metadata, key: b"%d" % (FORMAT + 41)}
        import lancedb

        folder = str(Path(filled.uri).parent / "newer")
        lancedb.connect(folder).create_table(TABLE, schema=schema.with_metadata(metadata))
        with pytest.raises(CorruptError, match="newer memfs") as caught:
            Corpus.open(folder)
        assert "pip install -U" in str(caught.value.hint)

    def test_embedder_mismatch(self, filled: Corpus) -> None:
        """Another embedder than the corpus's is refused; its own, or none, opens."""
        with pytest.raises(ConfigError, match="static"):
            Corpus.open(filled.uri, embedder="sentence-transformers:all-MiniLM-L6-v2")
        assert Corpus.open(filled.uri, embedder="static").embedder_name == "static"

    def test_unknown_embedder(self, tmp_path: Path) -> None:
        """An unknown embedder is refused before anything is made."""
        with pytest.raises(ConfigError, match="unknown embedder"):
            Corpus.create(str(tmp_path / "c"), embedder="magic")
        assert not (tmp_path / "c").exists()

    def test_missing_model(self, filled: Corpus) -> None:
        """A corpus made by a model that is not there still lists and reads; only meaning needs the model."""
        import lancedb

        schema = filled._table.schema
        folder = str(Path(filled.uri).parent / "other")
        metadata = {**schema.metadata, b"memfs.embedder": b"sentence-transformers:/no/such/model"}
        lancedb.connect(folder).create_table(TABLE, filled._table.to_arrow().replace_schema_metadata(metadata))
        opened = Corpus.open(folder)
        assert opened.read(["notes/deploy.md"])
        with pytest.raises(ConfigError):
            _ = opened.embedder


def test_long_documents_are_cut_and_joined(corpus: Corpus) -> None:
    """A document of many passages keeps its order past ten passages and past a hundred."""
    text = long_text("numbered", 9_000)
    corpus.commit([document("notes/long.md", text)])
    assert len(corpus.catalog()) > 100
    assert corpus.read(["notes/long.md"])["notes/long.md"].data == text.encode()


def test_transcript_rows(corpus: Corpus) -> None:
    """Turns keep anchor, speaker, origin and time; the catalogue gives their offsets and neighbours."""
    turns = tuple(
        Passage(
            f"turn {n} by all\n".encode(), f"turn {n}", f"t{n}", WHEN + timedelta(minutes=n), f"S{n % 2}", f"D1:{n}"
        )
        for n in range(1, 13)
    )
    corpus.commit([Document("sessions/s.md", turns, "transcript", "Talk", "test", WHEN)])
    catalog = corpus.catalog()
    places = [catalog.at(n) for n in range(len(catalog))]
    assert [(p.anchor, p.speaker, p.origin) for p in places] == [
        (f"t{n}", f"S{n % 2}", f"D1:{n}") for n in range(1, 13)
    ]
    data = corpus.read(["sessions/s.md"])["sessions/s.md"].data
    assert [data[p.start : p.end] for p in places] == [t.body for t in turns]
    after = catalog.neighbour(places[3], 1)
    assert after is not None
    assert after.anchor == "t5"
    assert catalog.neighbour(places[0], -1) is None
    assert catalog.neighbour(places[-1], 1) is None
    assert catalog.speakers() == {"S0", "S1"}


def test_vector_index_when_large(corpus: Corpus) -> None:
    """From 5,000 passages on there is a vector index, and both indexed and newer rows are found by meaning."""
    words = [hashlib.md5(str(n).encode()).hexdigest() for n in range(5_200)]
    with corpus.writing(publish=False):
        corpus.commit([document(f"notes/{n}.md", f"{word}\n") for n, word in enumerate(words)])
        corpus.maintain()
    columns = [index.columns[0] for index in corpus._table.list_indices()]
    assert "vector" in columns
    corpus.commit([document("notes/late.md", "hippopotamus bathing in the river\n")])
    (vector,) = corpus.embedder.embed(["late.md\nhippopotamus bathing in the river\n"])
    hits: list[Any] = corpus.search_vector(vector, 3, Scope())
    place = corpus.catalog().place(hits[0].row_id)
    assert place is not None
    assert place.path == "notes/late.md"


def test_rows_come_in_the_order_asked(tmp_path: Path) -> None:
    """Lance returns taken rows in an order of its own; a passage must never be shown under another's citation."""
    corpus = Corpus.create(str(tmp_path / "corpus"))
    for batch in range(3):
        corpus.commit(document(f"notes/{batch}-{n}.md", long_text(f"kiln {batch} {n}", 60)) for n in range(20))
    catalog = corpus.catalog()
    places = [catalog.at(at) for at in range(len(catalog))][::-7]
    rows = corpus.read_rows([place.row_id for place in places], ["path", "seq"])
    assert [(row["path"], row["seq"]) for row in rows] == [(place.path, place.seq) for place in places]
    for text in ("kiln 0 3", "kiln 2 11"):
        assert all(item.text in corpus.read([item.path])[item.path].data.decode() for item in recall(corpus, text))


def test_threads_share_one_corpus(tmp_path: Path) -> None:
    """Threads that commit through one object take turns: nothing is doubled, torn or lost."""
    corpus = Corpus.create(str(tmp_path / "corpus"))

    def writer(name: int) -> None:
        for turn in range(6):
            text = long_text(f"{name}-{turn}", 40 * (1 + (name + turn) % 3))
            corpus.commit([document("notes/shared.md", text), document(f"notes/{name}-{turn}.md", "own\n")])

    threads = [threading.Thread(target=writer, args=(name,)) for name in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    opened = Corpus.open(corpus.uri)
    assert len(ids(opened)) == len(set(ids(opened)))
    assert len(opened.read([info.path for info in opened.files()])) == 3 * 6 + 1


@pytest.mark.parametrize("year", [1, 1969, 2300, 9999])
def test_wild_file_times(tmp_path: Path, year: int) -> None:
    """A time that a file system cannot hold is stored as the nearest that all can: no boot breaks on it."""
    corpus = Corpus.create(str(tmp_path / "corpus"))
    corpus.commit([document("notes/a.md", "one\n", when=datetime(year, 7, 1, tzinfo=timezone.utc))])
    (info,) = corpus.files()
    assert 0 <= nanoseconds(info.mtime) < 1 << 63


def test_a_pinned_reader_never_moves(tmp_path: Path) -> None:
    """A reader of an old version says so when that is cleaned up; it never answers from another."""
    corpus = Corpus.create(str(tmp_path / "corpus"))
    corpus.commit([document("notes/a.md", "one\n")])
    old = corpus.at(corpus.version)
    corpus.commit([document("notes/a.md", "two\n")])
    assert old.refresh() == old.version < corpus.version
    with pytest.warns(UserWarning, match="cleanup_older_than=0"):
        corpus._table.optimize(cleanup_older_than=timedelta(0), delete_unverified=True)
    fresh = Corpus.open(corpus.uri)
    with pytest.raises(NotFoundError):
        fresh.at(old.version).read(["notes/a.md"])
    try:
        assert old.read(["notes/a.md"])["notes/a.md"].data == b"one\n"
    except NotFoundError:
        assert fresh.read(["notes/a.md"])["notes/a.md"].data == b"two\n"


def test_a_deletion_makes_room(tmp_path: Path) -> None:
    """In one commit, a deleted file makes room for a folder of its name, or for another case of it."""
    corpus = Corpus.create(str(tmp_path / "corpus"))
    corpus.commit([document("notes/a", "file\n"), document("notes/README.md", long_text("old", 200))])
    corpus.commit([document("notes/a/b.md", "below\n")], delete=["notes/a"])
    corpus.commit([document("notes/readme.md", "new\n")], delete=["notes/README.md"])
    assert [info.path for info in corpus.files()] == ["notes/a/b.md", "notes/readme.md"]
    assert corpus.read(["notes/readme.md"])["notes/readme.md"].data == b"new\n"


def test_delete_is_exact(tmp_path: Path) -> None:
    """Deleting a name in another case deletes nothing."""
    corpus = Corpus.create(str(tmp_path / "corpus"))
    corpus.commit([document("notes/README.md", "one\n")])
    assert corpus.commit(delete=["notes/readme.md"]).deleted == 0
    assert len(list(corpus.files())) == 1
