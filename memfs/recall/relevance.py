"""Say what does not bear on a question, and when what does is weak: the least bad passages are not an answer.

Two lines. A passage that shares neither a word nor a time with the question and is not near it in meaning is left
out: with none left, nothing relevant was found. What is left is weak where no passage scores 0.22 of the rarest
possible word's weight per question term, nor is close in meaning.

Measured by the second line: of LoCoMo's and LongMemEval's questions that have an answer, 1.2 and 1.7 % are called
weak; of the same questions asked of 949 technical pages that know nothing of them, 48 and 64 %; of the personas' 568
that have one 61 %, of their 72 that have none 96 %. A fifth of the personas' evidence is found among what is
weak, which is why it is shown, and marked, rather than withheld (docs/decisions/017-who-asks-and-when.md).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import date
from typing import NamedTuple

from memfs.corpus.table import Corpus, Scope
from memfs.corpus.terms import STOP_WORDS, query_terms
from memfs.recall.rank import Ranked, looked_for, rank

__all__ = ["Looked", "bearing", "is_weak", "look"]

WORDS_MIN = 0.22
"""BM25 of the best passage, per question term, over ln(1 + passages): the weight of a word that occurs once."""
SIMILARITY_MIN = 0.45
PASSAGE_SIMILARITY_MIN = 0.30
"""Of one passage that shares no word with the question."""
SMALL_CORPUS = 200
"""Below it every word is common, and weights say nothing: any shared word counts."""
LOOKED_AT = 10


class Looked(NamedTuple):
    """What the first search says."""

    ranked: list[Ranked]
    """All candidates, best first: what a walk starts from."""
    bearing: list[Ranked]
    weak: bool
    """That it may well be about something else."""


def look(corpus: Corpus, question: str, scope: Scope, today: date | None) -> Looked:
    """Ask once: rank, leave out what does not bear on the question, and say whether the rest is weak."""
    ranked = rank(corpus, question, scope, today)
    kept = bearing(ranked)
    terms = query_terms(looked_for(question, today))
    return Looked(ranked, kept, bool(kept) and is_weak(ranked, terms, len(corpus.catalog())))


def bearing(ranked: Sequence[Ranked]) -> list[Ranked]:
    """Return those of the ranked that share a word with the question or its time, or are near it in meaning."""
    return [r for r in ranked if r.words > 0 or r.timely or r.similarity >= PASSAGE_SIMILARITY_MIN]


def is_weak(ranked: Sequence[Ranked], terms: Sequence[str], passages: int) -> bool:
    """Whether the best of the ranked may well not be about a question of these `terms`, in a corpus of `passages`."""
    best = ranked[:LOOKED_AT]
    words = max((r.words for r in best), default=0.0)
    if words and (passages < SMALL_CORPUS or STOP_WORDS.issuperset(terms)):
        return False
    weight = words / max(1, len(terms)) / math.log1p(max(1, passages))
    return weight < WORDS_MIN and all(r.similarity < SIMILARITY_MIN for r in best)
