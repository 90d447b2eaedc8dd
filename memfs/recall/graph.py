"""The Cue-Tag-Content graph: made from the corpus's passages, kept beside them, walked by `reconstruct`.

Contents lie in three layers: episodic (turns, with their time), semantic (passages that state a
lasting fact or a preference, pages, notes), abstraction (what a session is about; summaries).
After MRAgent (arXiv 2606.06036), whose graph a language model writes; here words do, and a model adds to
them where one is given (`filing`).
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timezone
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa

from memfs.corpus.catalog import Place
from memfs.corpus.edges import MODEL_MARK, SCHEMA, Edges
from memfs.corpus.embed import DEFAULT, load
from memfs.corpus.table import EVERYTHING, Corpus, Scope
from memfs.corpus.terms import analyse, plain_words
from memfs.errors import CorruptError
from memfs.recall.cues import Cue, cues_of, is_stable, topics_of
from memfs.recall.dates import Span

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from memfs.recall.filing import Filed, Filer

__all__ = ["Built", "Edge", "Fact", "Graph", "build", "said"]

FILES_AT_ONCE = 500
MODEL_FILES_AT_ONCE, MODEL_FLUSH_S = 20, 30.0
"""Files that a model filed go into the store so many at once, or so often."""
NEAR_MIN = 0.5
"""Cosine of two cues' words from which one stands for the other."""
NEAR_MAX = 64
KINDS = ("transcript", "note", "page", "summary", "file")
TEXT_CHARS_MAX = 8_000
_CITED = re.compile(r"\(\[t\d+\]\(transcript\.md#t\d+\)\)|\[cite:[\d, ]+\]|\bmemfs://\S+|\b[0-9a-f]{64}\b")
"""Of a passage: a pasted log is filed under its beginning."""


class Edge(NamedTuple):
    """From a cue, by a tag, to a passage."""

    cue: str
    label: str
    kind: str
    tag: str
    layer: str
    path: str
    seq: int


class Fact(NamedTuple):
    """What a model found stated of a subject; equal statements are one."""

    subject: str
    aspect: str
    value: str
    since: date | None
    """Of the first passage that states it; None if that has no date."""
    until: date | None
    """When a later value replaced it; None while it holds."""
    places: tuple[Place, ...]

    def __str__(self) -> str:
        held = f", until {self.until}" if self.until else ""
        return f"{self.subject}: {self.aspect} {self.value}{held}"


@dataclass(frozen=True)
class Built:
    """What a build did."""

    files: int
    """Filed, or filed anew."""
    gone: int
    passages: int
    edges: int
    """Made now."""
    seconds: float
    by_model: int = 0
    """Files that the model filed now."""
    refused: int = 0
    """Pieces of them for which it gave no usable answer: their words alone file them."""


def build(
    corpus: Corpus, *, again: bool = False, filer: Filer | None = None, say: Callable[[str], None] = lambda text: None
) -> Built:
    """File what is new or has changed, and take out what is gone; its cost grows with the change.

    With `again`, everything is filed anew. With a `filer` (a model), what it has not filed yet is filed by it too.

    Raises:
        BudgetError: the model's budget is used up; what it filed is kept, and the same call goes on from there.
        UnreachableError, AccessError, ConfigError: the model's endpoint; the same holds.
        NonsenseError: nothing that the model said could be used; nothing counts as filed by it.
        CorruptError: the graph is damaged; `again` makes it anew.
    """
    started = time.monotonic()
    files = passages = edges = 0
    with corpus.writing(publish=False):
        store = _store(corpus, again)
        have = {} if again else store.filed()
        now = {info.path: info for info in corpus.files() if info.kind in KINDS}
        gone = sorted(set(store.filed() if again else have) - set(now))
        changed = sorted(path for path, info in now.items() if have.get(path) != bytes.fromhex(info.sha256))
        store.put(gone, SCHEMA.empty_table())
        for at in range(0, len(changed), FILES_AT_ONCE):
            chunk = changed[at : at + FILES_AT_ONCE]
            made, count = _rows(corpus, chunk)
            store.put(chunk, made)
            files, passages, edges = files + len(chunk), passages + count, edges + len(made)
            say(f"{files:,} of {len(changed):,} files")
        if changed or gone:
            store.fold()
    by_model = _file_by_model(corpus, filer, say) if filer else 0
    took, refused = time.monotonic() - started, filer.refused if filer else 0
    return Built(files, len(gone), passages, edges, took, by_model, refused)


def _store(corpus: Corpus, again: bool) -> Edges:
    """The edges to write to; `again` mends what is damaged, by an empty table."""
    try:
        store = Edges.make(corpus)
        if again:
            store.check()
    except CorruptError:
        if not again:
            raise
        store = Edges.make(corpus, anew=True)
    return store


def _file_by_model(corpus: Corpus, filer: Filer, say: Callable[[str], None]) -> int:
    """Have the model file what it has not filed yet; nobody else's writing waits while it thinks."""
    store = Edges.open(corpus)
    assert store is not None
    have = store.marked(filer.name)
    wanted = sorted(
        info.path for info in corpus.files()
        if info.kind in KINDS and have.get(info.path) != bytes.fromhex(info.sha256)
    )  # fmt: skip
    ready: dict[str, tuple[str, list[Filed]]] = {}
    count, since = 0, time.monotonic()
    try:
        for number, path in enumerate(wanted, 1):
            places, texts = _texts(corpus, path)
            if places and not any("\0" in text for text in texts):
                say(f"{number:,} of {len(wanted):,}: {path}")
                ready[path] = places[0].sha256, filer.file(places, texts)
            full = len(ready) >= MODEL_FILES_AT_ONCE or time.monotonic() - since > MODEL_FLUSH_S
            if full and filer.usable:
                count, since, ready = count + _put_filed(corpus, store, filer.name, ready), time.monotonic(), {}
    finally:
        # What is filed is paid for, whatever ended the run. What got no answer at all is asked again by the next.
        if filer.usable:
            count += _put_filed(corpus, store, filer.name, ready)
    if filer.failure and not filer.usable:
        raise filer.failure
    return count


def _put_filed(corpus: Corpus, store: Edges, model: str, ready: Mapping[str, tuple[str, list[Filed]]]) -> int:
    """Put in the edges of each file that is still what the model read: those by words, the model's, and its mark."""
    if not ready:
        return 0
    with corpus.writing(publish=False):
        store.refresh()
        first = {path: places[0] for path in ready if (places := corpus.catalog().file(path))}
        same = [path for path, (sha256, _) in ready.items() if path in first and first[path].sha256 == sha256]
        words, _ = _rows(corpus, same)
        rows = [
            _row(each.place, each.cue, each.layer, corpus.version) for path in same for each in ready[path][1]
        ] + [_row(first[path], Cue("none", "", model, MODEL_MARK), "", corpus.version) for path in same]  # fmt: skip
        store.put(same, pa.concat_tables([words, pa.Table.from_pylist(rows, schema=SCHEMA)]))
        store.fold()
    return len(same)


def _texts(corpus: Corpus, path: str) -> tuple[list[Place], list[str]]:
    data = corpus.read([path]).get(path)
    places = corpus.catalog().file(path) if data else []
    return places, [data.data[p.start : p.end].decode("utf-8", errors="replace") for p in places] if data else []


def _rows(corpus: Corpus, names: Sequence[str]) -> tuple[pa.Table, int]:
    catalog, version = corpus.catalog(), corpus.version
    found: list[dict[str, Any]] = []
    count = 0
    for path, data in corpus.read(names).items():
        places = catalog.file(path)
        count += len(places)
        texts = [data.data[p.start : p.end][:TEXT_CHARS_MAX].decode("utf-8", errors="replace") for p in places]
        before = len(found)
        if not any("\0" in text for text in texts):
            for place, text in zip(places, texts, strict=True):
                found += [_row(place, cue, _layer(place, text), version) for cue in _cues(place, text)]
            turns = [said(place, text) for place, text in zip(places, texts, strict=True) if place.speaker is not None]
            found += [_row(places[0], cue, "abstraction", version) for cue in topics_of(turns)] if turns else []
        if len(found) == before:
            # Looked at, and nothing to file it under (a binary file): not to be looked at again.
            found.append(_row(places[0], Cue("none", "", "", ""), "", version))
    return pa.Table.from_pylist(found, schema=SCHEMA), count


def _cues(place: Place, text: str) -> list[Cue]:
    return cues_of(said(place, text), place.speaker, _day(place))


def said(place: Place, text: str) -> str:
    """Return the text of a passage: of a turn, what was said, without its heading; of a page, without its citations."""
    if place.speaker and text.startswith("## t"):
        return text.partition("\n")[2]
    return text if place.kind == "transcript" else _CITED.sub("", text)


def _layer(place: Place, text: str) -> str:
    if place.kind == "transcript":
        return "semantic" if place.speaker and is_stable(said(place, text)) else "episodic"
    return "abstraction" if place.kind == "summary" else "semantic"


def _row(place: Place, cue: Cue, layer: str, version: int) -> dict[str, Any]:
    return {
        "cue": cue.cue, "label": cue.label, "kind": cue.kind, "tag": cue.tag, "layer": layer, "path": place.path,
        "seq": place.seq, "sha256": bytes.fromhex(place.sha256), "version": version,
    }  # fmt: skip


class Graph:
    """The graph of a corpus, read; edges of files that changed since are passed over."""

    def __init__(self, corpus: Corpus, edges: Edges) -> None:
        self.corpus, self.edges = corpus, edges
        self._known: dict[tuple[str, str], list[tuple[Edge, Place]]] = {}
        self._version = (corpus.version, edges.version)
        self._without = ""

    @classmethod
    def open(cls, corpus: Corpus) -> Graph | None:
        """Return the graph; None where none was built."""
        edges = Edges.open(corpus)
        return None if edges is None else cls(corpus, edges)

    def without(self, layer: str) -> Graph:
        """Return the same graph, one layer passed over."""
        other = Graph(self.corpus, self.edges)
        other._without = layer
        other.__dict__ |= {
            name: self.__dict__[name] for name in ("_cue_rows", "_vocabulary", "_embedder") if name in self.__dict__
        }
        return other

    def same(self, other: Graph) -> bool:
        """Whether the other is of the same corpus version and the same edges."""
        return self._version == other._version

    @staticmethod
    def key(word: str) -> str:
        """Return the cue that a word is filed under."""
        return analyse(word) or word.casefold()

    def facts(self, subject: str = "", scope: Scope = EVERYTHING) -> list[Fact]:
        """Return what a model found stated, of one subject or of all: equal statements merged, replaced ones dated."""
        key = " ".join(plain_words(subject))
        stated: dict[tuple[str, str, str], list[tuple[str, Place]]] = {}
        for kind, cue, aspect, value, place in self._stated:
            if (not key or cue == key) and scope.holds(place.path, place.event_time):
                stated.setdefault((cue, aspect, kind), []).append((value, place))
        return [
            fact for (cue, aspect, kind), some in sorted(stated.items())
            for fact in _consolidated(cue, aspect, some, replaces=kind == "state")
        ]  # fmt: skip

    @cached_property
    def _stated(self) -> list[tuple[str, str, str, str, Place]]:
        # Without a model's facts, which the list of cues tells, nothing more is read.
        known = {row["kind"] for row in self._cue_rows} & {"fact", "state"}
        rows = self.edges.of_kinds(sorted(known)).to_pylist() if known else []
        found = ((row, self._place(row["path"], row["seq"])) for row in rows)
        return [
            (row["kind"], row["cue"], row["tag"], row["label"], place)
            for row, place in found if place is not None and row["sha256"].hex() == place.sha256
        ]  # fmt: skip

    @cached_property
    def replaced(self) -> dict[int, tuple[Fact, ...]]:
        """Of each passage, by row id: what it states that holds no longer."""
        found: dict[int, tuple[Fact, ...]] = {}
        for fact in self.facts():
            for place in fact.places if fact.until else ():
                found[place.row_id] = (*found.get(place.row_id, ()), fact)
        return found

    # -- the moves --------------------------------------------------------------------

    def tags(self, cues: Iterable[str], scope: Scope = EVERYTHING) -> dict[str, dict[str, int]]:
        """cue -> tags: each with the number of passages below it."""
        found: dict[str, dict[str, int]] = {}
        for edge, _ in self._of_cues(cues, scope):
            of_cue = found.setdefault(edge.cue, {})
            of_cue[edge.tag] = of_cue.get(edge.tag, 0) + 1
        return found

    def contents(
        self, cues: Mapping[str, frozenset[str] | None], scope: Scope = EVERYTHING
    ) -> list[tuple[Edge, Place]]:
        """(cue, tags) -> passages; None for every tag of a cue."""
        return [
            (edge, place) for edge, place in self._of_cues(cues, scope)
            if (tags := cues[edge.cue]) is None or edge.tag in tags
        ]  # fmt: skip

    def filed_under(self, place: Place) -> list[Edge]:
        """content -> (cue, tag): what a passage is filed under."""
        rows = self.edges.of_file(place.path).to_pylist()
        return [_edge(row) for row in rows if row["seq"] == place.seq and row["sha256"].hex() == place.sha256]

    def near(self, words: Sequence[str]) -> list[dict[str, float]]:
        """Return for each word the cues that mean nearly the same, with their cosine; without itself."""
        import numpy as np

        vectors, cues = self._vocabulary
        if not cues or not words:
            return [{} for _ in words]
        found = []
        for word, similar in zip(words, self._embed(words) @ vectors.T, strict=True):
            best = np.argsort(-similar)[:NEAR_MAX]
            found.append({cues[i]: float(similar[i]) for i in best if similar[i] >= NEAR_MIN and cues[i] != word})
        return found

    def _of_cues(self, cues: Iterable[str], scope: Scope) -> list[tuple[Edge, Place]]:
        asked = list(dict.fromkeys(cues))
        new = [cue for cue in asked if (cue, scope.under) not in self._known]
        if new:
            for cue in new:
                self._known[cue, scope.under] = []
            for row in self.edges.of_cues(new, scope.under).to_pylist():
                place = self._place(row["path"], row["seq"])
                if place is not None and row["layer"] != self._without and row["sha256"].hex() == place.sha256:
                    self._known[row["cue"], scope.under].append((_edge(row), place))
        found = (each for cue in asked for each in self._known[cue, scope.under])
        return [each for each in found if scope.holds(each[1].path, each[1].event_time)]

    def _place(self, path: str, seq: int) -> Place | None:
        places = self._places(path)
        return places[seq] if seq < len(places) else None

    def _places(self, path: str) -> list[Place]:
        if path not in self._files:
            self._files[path] = self.corpus.catalog().file(path)
        return self._files[path]

    @cached_property
    def _files(self) -> dict[str, list[Place]]:
        return {}

    @cached_property
    def _embedder(self) -> Any:
        """Always the static one: single words, in microseconds, whatever made the corpus's vectors."""
        return self.corpus.embedder if self.corpus.embedder_name == DEFAULT else load(DEFAULT)

    def _embed(self, words: Sequence[str]) -> NDArray[np.float32]:
        found: NDArray[np.float32] = self._embedder.embed(list(words))
        return found

    @cached_property
    def _cue_rows(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.edges.cues().to_pylist()
        return found

    @cached_property
    def _vocabulary(self) -> tuple[NDArray[np.float32], list[str]]:
        words = [row for row in self._cue_rows if row["kind"] == "word"]
        return self._embed([row["label"] for row in words]), [row["cue"] for row in words]

    @cached_property
    def labels(self) -> dict[str, str]:
        """Of each cue, the word or name that it was made of; the usual one."""
        rows = sorted(self._cue_rows, key=lambda row: row["edges"])
        return {row["cue"]: row["label"] for row in rows if row["label"]}

    @cached_property
    def counts(self) -> dict[str, int]:
        """How many edges each cue has, of any kind."""
        found: dict[str, int] = {}
        for row in self._cue_rows:
            found[row["cue"]] = found.get(row["cue"], 0) + row["edges"]
        return found

    def days(self, first: date, last: date, scope: Scope = EVERYTHING) -> list[Place]:
        """time -> passages: those that were said from one day to another, both included."""
        found = self.corpus.catalog().within(*Span(first, last).utc())
        return [place for place in found if scope.holds(place.path, place.event_time)]


def _consolidated(subject: str, aspect: str, stated: Sequence[tuple[str, Place]], *, replaces: bool) -> Iterator[Fact]:
    """Merge equal values; where a value replaces the one before, in the order of their passages' dates."""
    undated = datetime.min.replace(tzinfo=timezone.utc)
    order = sorted(stated, key=lambda each: (each[1].event_time or undated, each[1].path, each[1].seq))
    runs: list[tuple[str, list[Place]]] = []
    for value, place in order:
        known = runs[-1:] if replaces else runs
        same = next((places for text, places in known if text.casefold() == value.casefold()), None)
        if same is None:
            runs.append((value, [place]))
        else:
            same.append(place)
    for at, (value, places) in enumerate(runs):
        after = runs[at + 1][1][0].event_time if replaces and at + 1 < len(runs) else None
        yield Fact(subject, aspect, value, _day(places[0]), after.date() if after else None, tuple(places))


def _day(place: Place) -> date | None:
    return place.event_time.date() if place.event_time else None


def _edge(row: Mapping[str, Any]) -> Edge:
    return Edge(*(row[name] for name in Edge._fields))
