"""What search sees of a passage: its context header, its terms, and the text that is embedded."""

from __future__ import annotations

from dataclasses import dataclass

from memfs.corpus.records import Document, Passage
from memfs.corpus.terms import analyse

__all__ = ["Searchable", "of"]

NEIGHBOUR_CHARS = 600
"""How much of each neighbour is seen with a turn: most turns whole, a pasted log not."""


@dataclass(frozen=True, slots=True)
class Searchable:
    """`text` is stored and shown; `terms` feeds the word index; `embedded` is what the vector is made of."""

    text: str
    terms: str
    embedded: str


def of(document: Document, at: int) -> Searchable | None:
    """Return what search sees of passage `at`; None if it has no text."""
    passage = document.passages[at]
    if passage.text is None:
        return None
    body = passage.text.replace("\0", "")
    header = _header(document, passage)
    window = _window(document, at)
    own = analyse(body)
    terms = " ".join((analyse(header), own, own, analyse(window)) if window else (analyse(header), own))
    embedded = f"{passage.speaker}: {body}" if passage.speaker else f"{document.title}\n{body}"
    return Searchable(f"{header}\n{body}", terms, embedded)


def _header(document: Document, passage: Passage) -> str:
    """`2023-05-08 · Caroline and Melanie, session 1 · Caroline`: the date's month is spelt so that words find it."""
    when = passage.event_time.strftime("%Y-%m-%d (%d %B %Y)") if passage.event_time else ""
    return " · ".join(part for part in (when, document.title, passage.speaker or "") if part)


def _window(document: Document, at: int) -> str:
    """The turns before and after, for a transcript: what is asked is often said in one and answered in the next."""
    if document.kind != "transcript":
        return ""
    around = [document.passages[i] for i in (at - 1, at + 1) if 0 < i < len(document.passages)]
    return "\n".join(p.text[:NEIGHBOUR_CHARS] for p in around if p.text)
