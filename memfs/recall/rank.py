"""Passive recall: words and meaning, fused, then re-scored by who speaks. No model.

    score = bm25 / max(bm25) + 0.3 · (cos - min cos) / (max cos - min cos)

over the 200 best of each leg; a passage that one leg did not bring has 0 there. If the
question names exactly one known speaker, that speaker's turns count 1.4 times. On
LoCoMo, the weighted sum beats reciprocal rank fusion at every weight tried, by 1.4
points of turn recall@10 (docs/decisions/003-recall-without-a-model.md).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from memfs.corpus.catalog import Place
from memfs.corpus.table import Corpus, Hit, Scope
from memfs.corpus.terms import query_terms
from memfs.recall.evidence import Evidence
from memfs.recall.speakers import named, without_names

__all__ = ["Ranked", "fuse", "rank", "weight", "with_text"]

CANDIDATES = 200
"""Of each leg."""
VECTOR_WEIGHT = 0.3
SPEAKER_BOOST = 1.4
HEADER_WEIGHT = 0.5
"""Of a transcript's title and details: what is said in the session is better evidence."""
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


def rank(corpus: Corpus, question: str, scope: Scope) -> list[Ranked]:
    """Return the passages that bear on the question, best first."""
    catalog = corpus.catalog()
    names = named(question, catalog.speakers(scope.under))
    with ThreadPoolExecutor(2) as pool:
        words_leg = pool.submit(corpus.search_words, query_terms(question), CANDIDATES, scope)
        vector_leg = pool.submit(_search_meaning, corpus, without_names(question, names), scope)
        words, near = _scores(words_leg.result()), _scores(vector_leg.result())
    fused = fuse(words, near)
    ranked = [
        Ranked(place, fused[row_id] * weight(place, names), words.get(row_id, 0.0), near.get(row_id, 0.0))
        for row_id, place in catalog.places(fused).items()
    ]
    return list(_once(sorted(ranked, key=lambda r: (-r.score, r.place.path, r.place.seq))))


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
    return SPEAKER_BOOST if len(names) == 1 and place.speaker in names else 1.0


def _search_meaning(corpus: Corpus, question: str, scope: Scope) -> list[Hit]:
    (vector,) = corpus.embedder.embed([question])
    return corpus.search_vector(vector, CANDIDATES, scope) if vector.any() else []


def _scores(hits: Sequence[Hit]) -> dict[int, float]:
    return {hit.row_id: hit.score for hit in hits}


def fuse(words: Mapping[int, float], near: Mapping[int, float]) -> dict[int, float]:
    """Return the fused score of every row id of either leg."""
    top = max(words.values(), default=0.0)
    fused = {row_id: score / top if top > 0 else 0.0 for row_id, score in words.items()}
    low, high = min(near.values(), default=0.0), max(near.values(), default=0.0)
    for row_id, score in near.items():
        share = (score - low) / (high - low) if high > low else 1.0
        fused[row_id] = fused.get(row_id, 0.0) + VECTOR_WEIGHT * share
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
