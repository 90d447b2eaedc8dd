"""memfs log: the Brain's history, newest first."""

from __future__ import annotations

from memfs.brain.history import Entry, History
from memfs.brain.sync import base_of
from memfs.corpus.table import Corpus

__all__ = ["log"]


def log(corpus: Corpus, history: History, limit: int | None = None) -> list[Entry]:
    """Return the commits of the corpus's Brain, at most `limit`."""
    base_of(corpus, history)
    return history.log(limit)
