"""memfs validate: the gate over a stage, or over the Brain as it is."""

from __future__ import annotations

from memfs.brain.evidence import CorpusEvidence
from memfs.brain.gate import Review, review
from memfs.brain.stage import Stage
from memfs.brain.sync import pages_of
from memfs.corpus.table import Corpus

__all__ = ["validate"]


def validate(corpus: Corpus, stage: str | None = None) -> Review:
    """Check a stage against where it began; without one, the corpus's Brain as it is.

    Raises:
        NotFoundError: there is no such stage.
        InputError: something lies in it that no Brain can hold.
    """
    evidence = CorpusEvidence(corpus)
    if stage is None:
        files = pages_of(corpus)
        return review(files, {}, evidence)
    opened = Stage.open(stage)
    return review(opened.files(), opened.base().files, evidence)
