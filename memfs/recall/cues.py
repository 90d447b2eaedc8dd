"""What a passage is filed under, without a model: words, names, the speaker, the days it speaks of.

Words and their stems are those of the index, in every language that it knows. Names are
found by their capital letters, hence in scripts that have them, and in German too many of
them. Relative dates (`yesterday`, `last Friday`, `two weeks ago`) are English; they are counted
from the passage's own date.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from datetime import date
from typing import NamedTuple

from memfs.corpus.terms import STOP_WORDS, analyse, plain_words
from memfs.recall.dates import dates_in

__all__ = ["Cue", "cues_of", "is_stable", "topics_of"]

CUES_MAX = 96
TOPICS_MAX = 12
_WORD = re.compile(r"[^\W_]+(?:['’][^\W_]+)?")
_NAME = re.compile(r"(?<![.!?\n] )(?<!^)\b([A-ZÀ-Þ][\w'’-]+(?: (?:of |de |da |the )?[A-ZÀ-Þ][\w'’-]+)*)", re.M)
_STABLE = re.compile(
    r"(?i)\b(i|i'm|i've|my|we|our)\b.*\b(love|loves|like|likes|prefer|prefers|hate|favou?rite|always|never|live|work|am|'m|"
    r"have|own|allergic|believe|want|enjoy|married|born|from)\b"
)


class Cue(NamedTuple):
    """One handle by which a passage can be found."""

    kind: str
    """word, name, person, date, topic"""
    cue: str
    label: str
    tag: str
    """The word that stands beside it; what the passage says of the cue, as far as words tell."""


def cues_of(text: str, speaker: str | None, day: date | None) -> list[Cue]:
    """Return a passage's cues; at most 96, names and dates first."""
    words = [(m.group(), analyse(m.group())) for m in _WORD.finditer(text)]
    content = [(word, stem) for word, stem in words if _is_content(word, stem)]
    stems = [stem for _, stem in content]
    made: dict[tuple[str, str], Cue] = {}
    main = Counter(stems).most_common(1)[0][0] if stems else ""
    if speaker:
        made["person", speaker.casefold()] = Cue("person", speaker.casefold(), speaker, main)
    for name in dict.fromkeys(m[1].removesuffix("'s").removesuffix("’s") for m in _NAME.finditer(text)):
        key = " ".join(plain_words(name))
        if key and key not in STOP_WORDS:
            made.setdefault(("name", key), Cue("name", key, name, _beside(stems, analyse(name).split(" ")[-1])))
    for stated in dates_in(text, day):
        made.setdefault(("date", stated), Cue("date", stated, stated, main))
    for at, (word, stem) in enumerate(content):
        tag = stems[at + 1] if at + 1 < len(stems) else stems[at - 1] if at else ""
        made.setdefault(("word", stem), Cue("word", stem, word.lower(), tag))
    return list(made.values())[:CUES_MAX]


def _is_content(word: str, stem: str) -> bool:
    return len(word) > 1 and bool(stem) and " " not in stem and not ({word.lower(), *plain_words(word)} & STOP_WORDS)


def _beside(stems: Sequence[str], stem: str) -> str:
    """The content word after a name, or before it."""
    at = stems.index(stem) if stem in stems else -1
    return stems[at + 1] if 0 <= at < len(stems) - 1 else stems[at - 1] if at > 0 else ""


def topics_of(texts: Sequence[str]) -> list[Cue]:
    """Return what a session is about: the words that several of its passages hold, most shared first."""
    count: Counter[str] = Counter()
    label: dict[str, str] = {}
    for text in texts:
        found = {analyse(m.group()): m.group().lower() for m in _WORD.finditer(text)}
        kept = {stem: word for stem, word in found.items() if _is_content(word, stem) and len(word) > 3}
        count.update(kept.keys())
        label |= kept
    best = [(stem, n) for stem, n in count.most_common(TOPICS_MAX) if n > 1]
    return [Cue("topic", stem, label[stem], str(n)) for stem, n in best]


def is_stable(text: str) -> bool:
    """Whether a passage states a lasting fact or a preference of who speaks, as far as English words tell."""
    return _STABLE.search(text) is not None
