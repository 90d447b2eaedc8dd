"""Say when nothing relevant was found, rather than show the least bad passages."""

from __future__ import annotations

from collections.abc import Sequence

from memfs.recall.rank import Ranked

__all__ = ["is_relevant"]

SIMILARITY_MIN = 0.30


def is_relevant(ranked: Sequence[Ranked]) -> bool:
    """Return whether the best passages bear on the question at all."""
    return any(r.words > 0 or r.similarity >= SIMILARITY_MIN for r in ranked[:10])
