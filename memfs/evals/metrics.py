"""What a ranking is worth, and whether two differ: recall of evidence, bootstrap intervals, paired tests."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from memfs.corpus.terms import analyse

if TYPE_CHECKING:
    from memfs.evals.data import Question

__all__ = ["Interval", "Paired", "Scores", "f1", "interval", "paired", "score"]

RESAMPLES = 2_000
CHARS_PER_TOKEN = 4
P_MAX = 0.05
"""From here on a difference is taken for chance."""


class Interval(NamedTuple):
    """A mean and its 95 % bootstrap interval (percentile)."""

    mean: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{100 * self.mean:.1f} [{100 * self.low:.1f}, {100 * self.high:.1f}]"


class Paired(NamedTuple):
    """The difference of two ways over the same questions: b - a."""

    mean: float
    low: float
    high: float
    p: float
    """Of a sign-flip permutation test, two-sided."""

    @property
    def verdict(self) -> str:
        """`better`, `worse`, or `can't tell`: the interval has to leave zero out, and p to be below 0.05."""
        if self.p >= P_MAX:
            return "can't tell"
        return "better" if self.low > 0 else "worse" if self.high < 0 else "can't tell"

    def __str__(self) -> str:
        p = "p < 0.001" if self.p < 0.001 else f"p = {self.p:.3f}"
        return f"{100 * self.mean:+.1f} [{100 * self.low:+.1f}, {100 * self.high:+.1f}], {p}: {self.verdict}"


@dataclass(frozen=True)
class Scores:
    """Of one question, by one way."""

    turn_r5: float
    turn_r10: float
    session_r5: float
    session_any5: float
    """1 if any of the evidence's sessions is among the first five: LongMemEval's recall_any@5."""
    touched: float
    """1 if any of the evidence lies within the token budget."""
    recall_in_budget: float
    precision_in_budget: float
    """Of the passages within the token budget, the share that is evidence."""
    tokens: float
    """Of what is within it."""
    ms: float
    doubted: float
    """1 if the way said that nothing bears on the question, or that what it gives may not."""


class Found(NamedTuple):
    """One ranked passage: its citations (a page's passage stands for the turns that it cites too) and its size."""

    citations: tuple[str, ...]
    chars: int
    weak: bool = False
    """Given with the word that it may have nothing to do with the question."""


def score(question: Question, ranked: Sequence[Found], ms: float, budget_tokens: int) -> Scores:
    """Hold what was found, best first, against the evidence."""
    gold = question.evidence

    def recall(count: int) -> float:
        seen = {citation for found in ranked[:count] for citation in found.citations}
        return len(gold & seen) / len(gold) if gold else 0.0

    files = dict.fromkeys(citation.partition("#")[0] for found in ranked for citation in found.citations)
    first = [file for file in files if file.startswith("sessions/")][:5]
    sessions = question.sessions
    used, held = 0, 0
    for found in ranked:
        size = -(-found.chars // CHARS_PER_TOKEN)
        if used + size > budget_tokens:
            break
        used, held = used + size, held + 1
    inside = [set(found.citations) for found in ranked[:held]]
    hits = gold & set().union(*inside)
    return Scores(
        recall(5), recall(10), len(sessions.intersection(first)) / len(sessions) if sessions else 0.0,
        float(not sessions.isdisjoint(first)),
        float(bool(hits)), len(hits) / len(gold) if gold else 0.0,
        sum(bool(each & gold) for each in inside) / held if held else 0.0, used, ms,
        float(not ranked or ranked[0].weak),
    )  # fmt: skip


def interval(values: Sequence[float], seed: int = 0) -> Interval:
    """Return the mean with its bootstrap interval over questions."""
    import numpy as np

    if not values:
        return Interval(0.0, 0.0, 0.0)
    data = np.asarray(values, float)
    drawn = np.random.default_rng(seed).integers(0, len(data), (RESAMPLES, len(data)))
    means = data[drawn].mean(axis=1)
    return Interval(float(data.mean()), *(float(np.quantile(means, q)) for q in (0.025, 0.975)))


def paired(first: Sequence[float], second: Sequence[float], seed: int = 0) -> Paired:
    """Return how the second differs from the first, question by question."""
    import numpy as np

    difference = np.asarray(second, float) - np.asarray(first, float)
    mean, low, high = interval(difference.tolist(), seed)
    signs = np.random.default_rng(seed + 1).choice((-1.0, 1.0), (RESAMPLES, len(difference)))
    flipped = np.abs((signs * difference).mean(axis=1))
    p = float((1 + (flipped >= abs(mean) - 1e-12).sum()) / (RESAMPLES + 1)) if len(difference) else 1.0
    return Paired(mean, low, high, p)


def f1(said: str, gold: str) -> float:
    """Return the token F1 of an answer, over stems, without articles (as LoCoMo's and SQuAD's)."""
    mine, theirs = _tokens(said), _tokens(gold)
    if not mine or not theirs:
        return float(mine == theirs)
    left = list(theirs)
    same = 0
    for token in mine:
        if token in left:
            left.remove(token)
            same += 1
    if not same:
        return 0.0
    precision, recall = same / len(mine), same / len(theirs)
    return 2 * precision * recall / (precision + recall)


def _tokens(text: str) -> list[str]:
    return [stem for stem in analyse(re.sub(r"\b(?:a|an|the|and)\b", " ", text.lower())).split() if stem]
