"""Seeded corpora: Markdown files of about 4 KB in deep and dated folders, cheap to make by the 100,000.

Sizes are log-normal, words are drawn from 20,000 English ones by Zipf's law (rank^-1).
`TOPIC_FILES` files, spread over the whole corpus, each state one fact about the same
topic, so that a question about a topic has that many files for an answer.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from datetime import date, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["TOPIC_FILES", "corpus", "question", "topic_count", "write"]

SEED = 20_261_130
VOCABULARY = 20_000
CHUNK_FILES = 1_000
MEAN_BYTES = 3_900
"""Of a file: 500 of them are a boot map of just under 2 MiB."""
SIGMA = 0.45
WORD_BYTES = 5.35
"""With the space, as often as they are drawn."""
WORDS_PER_PARAGRAPH = 80
TOPIC_FILES = 24
FIRST_DAY = date(2024, 1, 1)
DAYS = 1_000
FACTS = (
    "the budget is",
    "the owner is",
    "we agreed on",
    "the deadline moved to",
    "the blocker was",
    "the next step is",
)


def corpus(files: int, topic_files: int = TOPIC_FILES) -> Iterator[tuple[str, bytes]]:
    """Yield (path, bytes) of `files` files, the same ones every time; `topic_files` of them state a topic's fact."""
    import numpy as np

    rng = np.random.default_rng(SEED)
    words = _vocabulary()
    quantile = _quantiles(len(words))
    topics = topic_count(files, topic_files)
    for first in range(0, files, CHUNK_FILES):
        count = min(CHUNK_FILES, files - first)
        sizes = rng.lognormal(np.log(MEAN_BYTES) - SIGMA**2 / 2, SIGMA, count).clip(600, 40_000)
        lengths = (sizes / WORD_BYTES).astype(int)
        ids = quantile[rng.integers(0, len(quantile), int(lengths.sum()))]
        at = 0
        for offset, length in enumerate(lengths.tolist()):
            text = [words[i] for i in ids[at : at + length].tolist()]
            at += length
            number = first + offset
            yield _path(number), _page(number, text, topics)


def write(folder: Path, files: int, topic_files: int = TOPIC_FILES) -> int:
    """Write the corpus below `folder` and return its bytes."""
    total = 0
    made: set[str] = set()
    for path, data in corpus(files, topic_files):
        file = os.path.join(folder, path)
        parent = os.path.dirname(file)
        if parent not in made:
            os.makedirs(parent, exist_ok=True)
            made.add(parent)
        with open(file, "wb") as handle:
            handle.write(data)
        total += len(data)
    return total


def topic_count(files: int, topic_files: int = TOPIC_FILES) -> int:
    """Return how many topics a corpus of `files` files has."""
    return max(1, files // topic_files)


def question(topic: int) -> str:
    """Return a question whose answer lies in TOPIC_FILES files."""
    return f"What do we know about the {_topic_name(topic)} project?"


def _topic_name(topic: int) -> str:
    """Two words that stand nowhere else."""
    return f"Zyx{_letters(topic)} Qov{_letters(topic * 7 + 3)}"


def _letters(number: int) -> str:
    text = ""
    for _ in range(4):
        number, digit = divmod(number, 20)
        text += "bcdfghjklmnpqrstvwxz"[digit] + "aeiou"[digit % 5]
    return text


def _day(number: int) -> date:
    return FIRST_DAY + timedelta(days=number * 7_919 % DAYS)


def _path(number: int) -> str:
    """Two in five files are a dated session's pair, the others notes, 30 a folder, three folders deep."""
    if number % 5 < 2:
        session = number // 5
        name = "transcript.md" if number % 5 else "summary.md"
        day = _day(session)
        return f"log/{day:%Y/%m}/{day.isoformat()}-talk-{session:08x}/{name}"
    folder = number // 50
    return f"area-{folder % 7}/team-{folder // 7 % 5}/project-{folder // 35}/n{number:06d}.md"


def _page(number: int, words: list[str], topics: int) -> bytes:
    title = f"{words[0].capitalize()} {words[1]} {words[2]}"
    paragraphs = [_sentences(words[i : i + WORDS_PER_PARAGRAPH]) for i in range(0, len(words), WORDS_PER_PARAGRAPH)]
    fact = f"About the {_topic_name(number % topics)} project: {FACTS[number % len(FACTS)]} {words[-1]} {words[-2]}."
    paragraphs.insert(number * 31 % (len(paragraphs) + 1), fact)
    body = "\n\n".join(paragraphs)
    return f"---\ntitle: {title}\ndate: {_day(number // 5).isoformat()}\n---\n\n# {title}\n\n{body}\n".encode()


def _sentences(words: list[str]) -> str:
    lines = [words[i : i + 12] for i in range(0, len(words), 12)]
    return "\n".join(f"{' '.join(line).capitalize()}." for line in lines)


def _vocabulary() -> list[str]:
    """Return the words that wordllama's tokenizer holds whole, most frequent first, then compounds of two."""
    from importlib.util import find_spec

    spec = find_spec("wordllama")
    if spec is None or not spec.submodule_search_locations:
        raise RuntimeError("the package wordllama is not installed")
    file = Path(next(iter(spec.submodule_search_locations)), "tokenizers", "l2_supercat_tokenizer_config.json")
    tokens = json.loads(file.read_text(encoding="utf-8"))["model"]["vocab"]
    in_order = sorted(tokens, key=lambda token: int(tokens[token]))
    words = [token[1:] for token in in_order if re.fullmatch("\u2581[a-z]{2,}", token)]
    compounds = (words[i * 37 % 3_000] + words[i * 101 % 7_001] for i in range(VOCABULARY * 2))
    return list(dict.fromkeys([*words, *compounds]))[:VOCABULARY]


def _quantiles(words: int) -> NDArray[np.int64]:
    """Return a table of 2^20 word numbers in which each is as frequent as Zipf's law has it."""
    import numpy as np

    share = 1 / np.arange(1, words + 1)
    edges = np.cumsum(share) / share.sum()
    return np.searchsorted(edges, (np.arange(1 << 20) + 0.5) / (1 << 20))
