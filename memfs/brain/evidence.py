"""The evidence edge: from a citation to the bytes that it stands on, and whether they still are what was cited."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from enum import Enum
from typing import NamedTuple, Protocol

from memfs import paths
from memfs.brain.page import Source
from memfs.corpus.split import slug
from memfs.corpus.table import Corpus
from memfs.errors import CorruptError, PathError, UnreachableError

__all__ = [
    "QUOTE_CHARS_MAX",
    "CorpusEvidence",
    "Evidence",
    "Place",
    "Span",
    "Verdict",
    "cut",
    "holds_quote",
    "judge",
    "place_of",
]

SCHEME = "memfs://"
QUOTE_CHARS_MAX = 200
_AT = re.compile(r"memfs://([^#]+)(?:#([\w-]+))?")
_TURN = re.compile(rb"^## (t\d+) \xc2\xb7 ", re.M)
_HEADING = re.compile(rb"^#{1,6} +(.+?)\s*#*\s*$", re.M)


class Verdict(str, Enum):
    """What became of a cited span."""

    HOLDS = "holds"
    CHANGED = "changed"
    GONE = "gone"
    UNKNOWN = "unknown"
    """It could not be read: nothing follows from that."""


class Place(NamedTuple):
    """What a `memfs://` citation points to: a file of the corpus, and an anchor in it ("" for all of it)."""

    path: str
    anchor: str


class Span(NamedTuple):
    """The bytes of a place, and where they lie in their file."""

    data: bytes
    start: int
    end: int

    @property
    def sha256(self) -> str:
        """As a citation has it."""
        return hashlib.sha256(self.data).hexdigest()

    @property
    def text(self) -> str:
        """As text."""
        return self.data.decode("utf-8", errors="replace")


class Evidence(Protocol):
    """Where cited files are read."""

    def files(self, wanted: Iterable[str]) -> Mapping[str, bytes]:
        """Return the files that exist.

        Raises:
            UnreachableError: it is not known whether they do.
        """
        ...


class CorpusEvidence:
    """The files of a corpus version; each is read once."""

    def __init__(self, corpus: Corpus) -> None:
        self._corpus = corpus
        self._known: dict[str, bytes | None] = {}

    def files(self, wanted: Iterable[str]) -> Mapping[str, bytes]:
        """See Evidence."""
        asked = list(dict.fromkeys(wanted))
        new = [path for path in asked if path not in self._known]
        if new:
            try:
                found = self._corpus.read(new)
            except CorruptError as error:
                raise UnreachableError(error.message, hint=error.hint) from error
            self._known |= {path: found[path].data if path in found else None for path in new}
        return {path: data for path in asked if (data := self._known[path]) is not None}


def place_of(at: str) -> Place | None:
    """Return what a citation points to; None if it is no `memfs://` one of a name that the corpus can hold."""
    match = _AT.fullmatch(at)
    if match is None:
        return None
    try:
        return Place(paths.check(match[1]), match[2] or "")
    except PathError:
        return None


def cut(data: bytes, anchor: str) -> Span | None:
    """Return the stretch from an anchor to the next: a turn of a transcript, or what is below a heading of a note."""
    if not anchor:
        return Span(data, 0, len(data))
    if re.fullmatch(r"t\d+", anchor):
        marks = [(m[1].decode(), m.start()) for m in _TURN.finditer(data)]
        if marks:
            return _between(data, marks, anchor)
    return _between(data, [(slug(m[1].decode(errors="replace")), m.start()) for m in _HEADING.finditer(data)], anchor)


def _between(data: bytes, marks: list[tuple[str, int]], anchor: str) -> Span | None:
    ends = [start for _, start in marks[1:]] + [len(data)]
    for (name, start), end in zip(marks, ends, strict=True):
        if name == anchor:
            return Span(data[start:end], start, end)
    return None


def holds_quote(span: Span, quote: str) -> bool:
    """Whether the quote's words stand in the span, spaces aside."""
    return " ".join(quote.split()) in " ".join(span.text.split())


def judge(source: Source, evidence: Evidence) -> tuple[Verdict, Span | None]:
    """Return what became of a citation, and its span as it is now."""
    place = place_of(source.at)
    if place is None:
        return Verdict.GONE, None
    try:
        data = evidence.files([place.path]).get(place.path)
    except UnreachableError:
        return Verdict.UNKNOWN, None
    span = None if data is None else cut(data, place.anchor)
    if span is None:
        return Verdict.GONE, None
    return Verdict.HOLDS if span.sha256 == source.sha256 else Verdict.CHANGED, span
