"""memfs why: from a claim to the words that it stands on, and whether they still are what was cited."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from memfs.brain.evidence import QUOTE_CHARS_MAX, CorpusEvidence, cut, holds_quote, judge, place_of
from memfs.brain.page import Source
from memfs.brain.store import graph_of, page_named
from memfs.corpus.table import Corpus
from memfs.errors import InputError, NotFoundError

__all__ = ["Reason", "cite", "why"]

AROUND_BYTES = 600
"""Of the surroundings that are shown on each side."""


class Reason(NamedTuple):
    """One citation of a page."""

    number: int
    claims: tuple[str, ...]
    at: str
    quote: str
    verdict: str
    """`holds`, `changed`, `gone` or `unknown`."""
    span: str
    """What stands there now; "" where nothing was found."""
    before: str
    after: str


def why(corpus: Corpus, name: str, number: int | None = None) -> tuple[str, list[Reason]]:
    """Return the page's path, and each of its citations, or the one of that number.

    Raises:
        NotFoundError: there is no such page, or no such citation.
    """
    page = page_named(graph_of(corpus), name)
    if number is not None and number not in page.sources:
        raise NotFoundError(
            f"{page.path}: no source {number}", hint=f"it has {', '.join(map(str, page.sources)) or 'none'}"
        )
    evidence = CorpusEvidence(corpus)
    found = []
    for n, source in page.sources.items():
        if number in (None, n):
            claims = tuple(claim.text for claim in page.claims if n in claim.cites)
            found.append(_reason(n, claims, source, evidence))
    return page.path, found


def _reason(number: int, claims: tuple[str, ...], source: Source, evidence: CorpusEvidence) -> Reason:
    verdict, span = judge(source, evidence)
    before = after = ""
    place = place_of(source.at)
    if span is not None and place is not None:
        data = evidence.files([place.path])[place.path]
        before = data[max(0, span.start - AROUND_BYTES) : span.start].decode(errors="ignore")
        after = data[span.end : span.end + AROUND_BYTES].decode(errors="ignore")
        if span.start > AROUND_BYTES:
            # Whole lines, where there are any.
            before = before.partition("\n")[2] or before
        if span.end + AROUND_BYTES < len(data):
            after = after.rpartition("\n")[0] or after
    return Reason(number, claims, source.at, source.quote, verdict.value, span.text if span else "", before, after)


def cite(corpus: Corpus, places: Sequence[str], quote: str = "") -> list[Source]:
    """Return the source that a page needs to cite each place: its hash as it is now, and a quote that stands there.

    Raises:
        InputError: one is no place, the quote does not stand there, or it is to be that of several.
        NotFoundError: a file or an anchor does not exist.
    """
    if quote and len(places) > 1:
        raise InputError("--quote is of one place", hint="one command a place with a quote of your choosing")
    evidence = CorpusEvidence(corpus)
    return [_source(evidence, at, quote) for at in places]


def _source(evidence: CorpusEvidence, at: str, quote: str) -> Source:
    full = at if "://" in at else f"memfs://{at.removeprefix('memory/')}"
    place = place_of(full)
    if place is None:
        raise InputError(f"{at!r} is no place", hint="sessions/…/transcript.md#t12, or notes/x.md#heading")
    data = evidence.files([place.path]).get(place.path)
    span = None if data is None else cut(data, place.anchor)
    if span is None:
        raise NotFoundError(
            f"{at}: no such {'file' if data is None else 'anchor'}", hint="memfs ls, or look into the file"
        )
    body = "\n".join(line for line in span.text.split("\n") if line.strip() and not line.startswith("#"))
    words = " ".join((quote or body).split())[:QUOTE_CHARS_MAX]
    if quote and not holds_quote(span, quote):
        raise InputError(f"{at} does not say {quote[:60]!r}", hint="quote its own words")
    return Source(full, span.sha256, words)
