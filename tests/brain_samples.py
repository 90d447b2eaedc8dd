"""What the tests of the Brain share: the sample's sessions in a corpus, and its pages."""

from __future__ import annotations

from pathlib import Path

import memfs
from memfs.add import add
from memfs.corpus.table import Corpus

SAMPLES = Path(memfs.__file__).parent / "samples"


def make_corpus(folder: Path) -> Corpus:
    """The sample persona's sessions in a new corpus."""
    corpus = Corpus.create(str(folder))
    add(corpus, [str(SAMPLES / "claude-code")])
    return corpus


def sample_pages() -> dict[str, bytes]:
    """The sample persona's Brain."""
    root = SAMPLES / "knowledge"
    files = [file for file in root.rglob("*") if file.is_file()]
    return {f"knowledge/{file.relative_to(root).as_posix()}": file.read_bytes() for file in files}
