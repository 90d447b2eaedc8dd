"""What search sees of a document's passages: text, index terms and vectors.

A turn of a conversation is seldom clear by itself, so it is found by what stands
around it too. Its terms are its own four times, its speaker four times, its date
twice, and up to 48 terms of each neighbour: twice at one turn's distance, once at two.
Its vector is mixed with its neighbours' in the same ratios, 1 : 1/2 : 1/4. On
LoCoMo this moved turn recall@10 from 0.58 (single turns) to 0.78 by words alone
(docs/decisions/003-recall-without-a-model.md). Long pages are cut so that each
passage stands alone: a passage's terms are its title, its date and its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from memfs.corpus.records import Document, Passage
from memfs.corpus.terms import analyse, analyse_all

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["embedded", "first_turn", "mix", "terms", "text"]

OWN_TIMES, SPEAKER_TIMES, DATE_TIMES = 4, 4, 2
NEIGHBOUR_TIMES = (2, 1)
"""At one turn's distance, at two."""
NEIGHBOUR_TERMS = 48
NEIGHBOUR_CHARS = 2_000
MIX = (0.5, 0.25)


def text(document: Document, passage: Passage) -> str | None:
    """Return the stored text: a context header (date, title, speaker), then the body; None where there is no text."""
    if passage.text is None:
        return None
    when = passage.event_time.strftime("%Y-%m-%d") if passage.event_time else ""
    header = " · ".join(part for part in (when, document.title, passage.speaker or "") if part)
    return f"{header}\n{passage.text}".replace("\0", "")


def terms(documents: Sequence[Document]) -> Iterator[str | None]:
    """Yield the index terms, joined by spaces, of each passage of each document; None where there is no text."""
    texts = [passage.text for document in documents for passage in document.passages]
    analysed = iter(analyse_all([text for text in texts if text is not None]))
    for document in documents:
        own = [None if passage.text is None else next(analysed) for passage in document.passages]
        title, first = analyse(document.title), first_turn(document)
        for passage, mine in zip(document.passages[:first], own, strict=False):
            yield None if mine is None else _joined((title, 1), (_date_terms(passage), 1), (mine, 1))
        yield from _turn_terms(document.passages[first:], own[first:])


def first_turn(document: Document) -> int:
    """Return the position of a transcript's first turn, after its header; in other files all passages stand alone."""
    if document.kind != "transcript":
        return len(document.passages)
    return next((at for at, p in enumerate(document.passages) if p.speaker is not None), len(document.passages))


def _turn_terms(turns: Sequence[Passage], own: Sequence[str | None]) -> Iterator[str | None]:
    short = [_first_terms(mine or "") for mine in own]
    for at, (passage, mine) in enumerate(zip(turns, own, strict=True)):
        if mine is None:
            yield None
            continue
        near = [
            (short[beside], times)
            for distance, times in enumerate(NEIGHBOUR_TIMES, 1)
            for beside in (at - distance, at + distance)
            if 0 <= beside < len(turns)
        ]
        speaker = (analyse(passage.speaker or ""), SPEAKER_TIMES)
        yield _joined((mine, OWN_TIMES), speaker, (_date_terms(passage), DATE_TIMES), *near)


def _first_terms(joined: str) -> str:
    """Return the first terms of a neighbour; a pasted log is not split to its end for 48 of them."""
    return " ".join(joined[:NEIGHBOUR_CHARS].split(" ")[:NEIGHBOUR_TERMS])


def _date_terms(passage: Passage) -> str:
    """`8 May 2023 Monday`, as people ask for it."""
    when = passage.event_time
    return analyse(f"{when.day} {when:%B %Y %A}") if when else ""


def _joined(*parts: tuple[str, int]) -> str:
    return " ".join(part for part, times in parts if part for _ in range(times))


def embedded(document: Document) -> list[str | None]:
    """Return what each passage's vector is made of: a turn's bare text, another passage with its file's title."""
    first = first_turn(document)
    alone = [None if p.text is None else f"{document.title}\n{p.text}" for p in document.passages[:first]]
    return [*alone, *(p.text for p in document.passages[first:])]


def mix(vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the unit vectors float32[n, d] of one conversation's turns, each mixed with its neighbours'."""
    import numpy as np

    mixed = vectors.copy()
    for distance, weight in enumerate(MIX, 1):
        if distance < len(vectors):
            mixed[distance:] += weight * vectors[:-distance]
            mixed[:-distance] += weight * vectors[distance:]
    norms = np.linalg.norm(mixed, axis=1, keepdims=True)
    np.divide(mixed, norms, out=mixed, where=norms > 0)
    return mixed
