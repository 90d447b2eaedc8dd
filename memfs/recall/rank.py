"""Passive recall: words and meaning, fused, then re-scored by who speaks. No model.

    score = bm25 / max(bm25) + w · (cos - min cos) / (max cos - min cos)

over the 200 best of each leg; a passage that one leg did not bring has 0 there. w is 0.3
for the static embedder's means of word vectors, 0.5 for a transformer's. If the
question names exactly one known speaker, that speaker's turns count 1.4 times; so do
the user's beside an assistant's, which are longer and say less of the one who asks.

A question that speaks of a time ("last month", "on 3 May") is asked within that time as
well, and what was said then or within three days after counts

    1.5 · score + 2 · ln(candidates / those of the time) / ln(candidates)

as if the time were a word, which weighs more the fewer have it. The words that count
back from the day of the question are not looked for.

On LoCoMo, the weighted sum beats reciprocal rank fusion at every weight tried, by 1.4
points of turn recall@10 (docs/decisions/003-recall-without-a-model.md; the user's turns,
times and headers: 017-who-asks-and-when.md; w and the weight of a time:
019-a-time-is-evidence.md).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import date, timedelta
from math import log

from memfs.corpus.catalog import Place
from memfs.corpus.embed import StaticEmbedder
from memfs.corpus.table import Corpus, Scope
from memfs.corpus.terms import STOP_WORDS, plain_words, query_terms
from memfs.recall.dates import Span, spans_in, without_times
from memfs.recall.evidence import Evidence
from memfs.recall.speakers import ASKERS, named, without_names

__all__ = ["Ranked", "fuse", "looked_for", "rank", "times", "weight", "with_text"]

CANDIDATES = 200
"""Of each leg."""
STATIC_WEIGHT = 0.3
VECTOR_WEIGHT = 0.5
SPEAKER_BOOST = 1.4
TIME_BOOST = 1.5
TIME_WEIGHT = 2.0
"""More than the best that words, meaning and speaker can give (1.82), where a single candidate is of the time."""
DAYS_AFTER = 3
"""An event is spoken of within days: so long after the time that is asked about a passage still counts as of it."""
SPANS_MAX = 3
HEADER_WEIGHT = 0.05
"""Of a transcript's title and details: after everything that was said, unless nothing else answers."""
UNIQUE_ID_CHARS = 16
"""An id as long as this (a uuid) names one message everywhere; a short one (`D1:3`) only in its session."""


@dataclass(frozen=True, slots=True)
class Ranked:
    """A passage and how well it answers."""

    place: Place
    score: float
    words: float
    """Its BM25 score, 0 where no word matched."""
    similarity: float
    """Its cosine similarity, 0 where the vector leg did not bring it."""
    timely: bool = False
    """Of a time that the question speaks of."""


def rank(corpus: Corpus, question: str, scope: Scope, today: date | None = None) -> list[Ranked]:
    """Return the passages that bear on the question, best first; `last week` is counted from `today`, if given."""
    catalog = corpus.catalog()
    names = named(question, catalog.speakers(scope.under))
    spans = [Span(s.first, _later(s.last)) for s in times(question, today)]
    asked = looked_for(question, today)
    (vector,) = corpus.embedder.embed([without_names(asked, names)])
    scopes = [scope, *filter(None, (_within(scope, span) for span in spans))]
    with ThreadPoolExecutor(2 * len(scopes)) as pool:
        terms = query_terms(asked)
        words_legs = [pool.submit(corpus.search_words, terms, CANDIDATES, each) for each in scopes]
        vector_legs = [pool.submit(corpus.search_vector, vector, CANDIDATES, each) for each in scopes if vector.any()]
        words = {hit.row_id: hit.score for leg in words_legs for hit in leg.result()}
        near = {hit.row_id: hit.score for leg in vector_legs for hit in leg.result()}
    fused = fuse(words, near, STATIC_WEIGHT if isinstance(corpus.embedder, StaticEmbedder) else VECTOR_WEIGHT)
    places = catalog.places(fused)
    timely = {row_id for row_id, place in places.items() if _is_of(place, spans)}
    bonus = TIME_WEIGHT * log(len(places) / len(timely)) / log(len(places)) if 0 < len(timely) < len(places) else 0.0
    ranked = []
    for row_id, place in places.items():
        counts = weight(place, names)
        score = fused[row_id] * counts
        if row_id in timely:
            score = TIME_BOOST * score + bonus * min(1.0, counts)
        ranked.append(Ranked(place, score, words.get(row_id, 0.0), near.get(row_id, 0.0), row_id in timely))
    return list(_once(sorted(ranked, key=lambda r: (-r.score, r.place.path, r.place.seq))))


def looked_for(question: str, today: date | None) -> str:
    """Return the words that a question looks for: not "last month", which was said in every month."""
    bare = without_times(question) if today is not None and times(question, today) else ""
    return bare if any(word not in STOP_WORDS for word in plain_words(bare)) else question


def times(question: str, today: date | None) -> list[Span]:
    """Return the times that a question speaks of, as far as they count."""
    return spans_in(question, today)[:SPANS_MAX]


def _later(day: date) -> date:
    return day + timedelta(days=DAYS_AFTER) if (date.max - day).days > DAYS_AFTER + 1 else day


def _within(scope: Scope, span: Span) -> Scope | None:
    """The part of a scope that lies in a span; None if there is none."""
    first, end = span.utc()
    since, until = max(scope.since or first, first), min(scope.until or end, end)
    return replace(scope, since=since, until=until) if since < until else None


def _is_of(place: Place, spans: Sequence[Span]) -> bool:
    when = place.event_time
    return when is not None and any(span.first <= when.date() <= span.last for span in spans)


def _once(ranked: Iterable[Ranked]) -> Iterator[Ranked]:
    """Leave out copies: a resumed or forked session repeats its history under the same message ids."""
    seen: set[tuple[str, int]] = set()
    for item in ranked:
        origin, length = item.place.origin, item.place.end - item.place.start
        if origin is not None and len(origin) >= UNIQUE_ID_CHARS:
            if (origin, length) in seen:
                continue
            seen.add((origin, length))
        yield item


def weight(place: Place, names: frozenset[str]) -> float:
    """Return what a passage's score is multiplied by: more if the one asked about speaks, less for headers."""
    if place.kind == "transcript" and place.speaker is None:
        return HEADER_WEIGHT
    speaks = (len(names) == 1 and place.speaker in names) or place.speaker in ASKERS
    return SPEAKER_BOOST if speaks else 1.0


def fuse(words: Mapping[int, float], near: Mapping[int, float], vector_weight: float) -> dict[int, float]:
    """Return the fused score of every row id of either leg; the best word match counts 1."""
    top = max(words.values(), default=0.0)
    fused = {row_id: score / top if top > 0 else 0.0 for row_id, score in words.items()}
    low, high = min(near.values(), default=0.0), max(near.values(), default=0.0)
    for row_id, score in near.items():
        share = (score - low) / (high - low) if high > low else 1.0
        fused[row_id] = fused.get(row_id, 0.0) + vector_weight * share
    return fused


def with_text(ranked: Sequence[Ranked], bodies: Sequence[bytes]) -> list[Evidence]:
    """Return the evidence of the ranked passages, whose bytes are `bodies`."""
    return [
        Evidence(
            path=r.place.path,
            anchor=r.place.anchor,
            origin=r.place.origin,
            score=r.score,
            event_time=r.place.event_time,
            speaker=r.place.speaker,
            title=r.place.title,
            text=body.decode("utf-8", errors="replace"),
        )
        for r, body in zip(ranked, bodies, strict=True)
    ]
