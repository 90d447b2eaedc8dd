"""Names in a question: who is asked about, as far as the corpus knows them as speakers."""

from __future__ import annotations

import re
from collections.abc import Iterable

from memfs.corpus.terms import plain_words

__all__ = ["named", "without_names"]

ASKERS = frozenset(("user", "human"))
"""Whose memory it is."""
ROLES = ASKERS | {"assistant", "system", "tool", "summary", "ai"}
"""Not names."""


def named(question: str, speakers: Iterable[str]) -> frozenset[str]:
    """Return the speakers whose name, or a part of it, is in the question."""
    asked = set(plain_words(question))
    return frozenset(s for s in speakers if s.casefold() not in ROLES and asked.intersection(_parts(s)))


def without_names(question: str, names: Iterable[str]) -> str:
    """Return the question with the names cut out: they are matched as words, and would only blur its meaning.

    The whole question if nothing is left.
    """
    parts = sorted({part for name in names for part in _parts(name)})
    if not parts:
        return question
    cut = re.sub(rf"\b(?:{'|'.join(map(re.escape, parts))})(?:['’]s)?\b", " ", question, flags=re.IGNORECASE)
    return " ".join(cut.split()) if re.search(r"\w", cut) else question


def _parts(name: str) -> list[str]:
    return [word for word in plain_words(name) if len(word) > 1]
