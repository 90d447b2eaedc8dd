"""Say when nothing relevant was found, rather than show the least bad passages.

Measured: of 760 LoCoMo questions asked of their own conversation, 0.7 % are wrongly
refused; of 190 asked of 949 technical pages that know nothing of them, 78 % rightly. To
refuse an answer that is there is the worse mistake. A passage that a question is about
scores at least 0.22 of the rarest possible word's weight per question term, or is
close in meaning without sharing a word.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from memfs.corpus.terms import STOP_WORDS
from memfs.recall.rank import Ranked

__all__ = ["relevant"]

WORDS_MIN = 0.22
"""BM25 of the best passage, per question term, over ln(1 + passages): the weight of a word that occurs once."""
SIMILARITY_MIN = 0.45
PASSAGE_SIMILARITY_MIN = 0.30
"""Of one passage that shares no word with the question."""
SMALL_CORPUS = 200
"""Below it every word is common, and weights say nothing: any shared word counts."""
LOOKED_AT = 10


def relevant(ranked: Sequence[Ranked], terms: Sequence[str], passages: int) -> list[Ranked]:
    """Return those of the ranked that bear on a question of these `terms`, in a corpus of `passages`; maybe none."""
    if not _any(ranked[:LOOKED_AT], terms, passages):
        return []
    return [r for r in ranked if r.words > 0 or r.similarity >= PASSAGE_SIMILARITY_MIN]


def _any(best: Sequence[Ranked], terms: Sequence[str], passages: int) -> bool:
    words = max((r.words for r in best), default=0.0)
    if words and (passages < SMALL_CORPUS or STOP_WORDS.issuperset(terms)):
        return True
    weight = words / max(1, len(terms)) / math.log1p(max(1, passages))
    return weight >= WORDS_MIN or any(r.similarity >= SIMILARITY_MIN for r in best)
