"""What a passage is filed under, without a model: words, names, the speaker, the days it speaks of.

Words and their stems are those of the index, in every language that it knows. Names are
found by their capital letters, hence in scripts that have them, and in German too many of
them. Relative dates (`yesterday`, `last Friday`, `two weeks ago`) are English; they are counted
from the passage's own date.
"""

from __future__ import annotations

import calendar
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import date, timedelta
from typing import NamedTuple

from memfs.corpus.terms import STOP_WORDS, analyse, plain_words

__all__ = ["Cue", "cues_of", "dates_in", "is_stable", "topics_of"]

CUES_MAX = 96
TOPICS_MAX = 12
_WORD = re.compile(r"[^\W_]+(?:['’][^\W_]+)?")
_NAME = re.compile(r"(?<![.!?\n] )(?<!^)\b([A-ZÀ-Þ][\w'’-]+(?: (?:of |de |da |the )?[A-ZÀ-Þ][\w'’-]+)*)", re.M)
_MONTHS = {name.lower(): at for at, name in enumerate(calendar.month_name) if name}
_DAYS = {name.lower(): at for at, name in enumerate(calendar.day_name)}
_UNITS = {"day": 1, "week": 7, "month": 30, "year": 365}
_NUMBERS = {
    word: n for n, word in enumerate("zero a two three four five six seven eight nine ten".split())
} | {"one": 1, "an": 1, "couple": 2, "few": 3}  # fmt: skip
_MONTH = "|".join(_MONTHS)
_ABSOLUTE = re.compile(
    rf"(?i)\b(?:(?P<d1>\d{{1,2}})(?:st|nd|rd|th)?(?: of)? )?(?P<m>{_MONTH})"
    r"(?: (?P<d2>\d{1,2})(?:st|nd|rd|th)?\b(?!\d))?,?(?: (?P<y>\d{4}))?\b"
)
_ISO = re.compile(r"\b(\d{4})-(\d{2})(?:-(\d{2}))?\b")
_YEAR = re.compile(r"\b(?:19|20)\d\d\b")
_AGO = re.compile(r"(?i)\b(?:(\d+|[a-z]+)(?: of)? )(day|week|month|year)s? ago\b")
_LAST = re.compile(rf"(?i)\b(last|past|next|this|previous) (week|weekend|month|year|{'|'.join(_DAYS)})\b")
_NEAR = re.compile(r"(?i)\b(yesterday|last night|today|tonight|this morning|tomorrow)\b")
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


def dates_in(text: str, day: date | None) -> list[str]:
    """Return the days (`2023-05-08`) and months (`2023-05`) and years that a text speaks of, counted from `day`."""
    return list(dict.fromkeys(filter(None, _dates(text, day))))


def _dates(text: str, day: date | None) -> Iterator[str]:
    for match in _ISO.finditer(text):
        yield match.group()
    for match in _ABSOLUTE.finditer(text):
        yield from _absolute(match, day)
    if not _ABSOLUTE.search(text):
        yield from (match.group() for match in _YEAR.finditer(_ISO.sub(" ", text)))
    if day is None:
        return
    for match in _NEAR.finditer(text):
        word = match[1].lower()
        shift = -1 if word in ("yesterday", "last night") else 1 if word == "tomorrow" else 0
        yield (day + timedelta(days=shift)).isoformat()
    for match in _AGO.finditer(text):
        number = int(match[1]) if match[1].isdigit() else _NUMBERS.get(match[1].lower())
        if number is not None and number * _UNITS[match[2].lower()] < 40_000:
            yield _ago(day, number, match[2].lower())
    for match in _LAST.finditer(text):
        yield _relative(day, match[1].lower(), match[2].lower())


def _absolute(match: re.Match[str], day: date | None) -> Iterator[str]:
    # `may` and `march` are months only with a day or a year beside them, or a capital letter.
    if match["m"].islower() and match["m"] in ("may", "march") and not (match["d1"] or match["d2"] or match["y"]):
        return
    month, number = _MONTHS[match["m"].lower()], match["d1"] or match["d2"]
    year = int(match["y"]) if match["y"] else day.year - (month > day.month) if day else None
    if year is None:
        return
    if number and 1 <= int(number) <= calendar.monthrange(year, month)[1]:
        yield f"{year:04}-{month:02}-{int(number):02}"
    yield f"{year:04}-{month:02}"


def _ago(day: date, number: int, unit: str) -> str:
    if unit == "year":
        return f"{day.year - number:04}"
    if unit == "month":
        at = day.year * 12 + day.month - 1 - number
        return f"{at // 12:04}-{at % 12 + 1:02}"
    return (day - timedelta(days=number * _UNITS[unit])).isoformat()


def _relative(day: date, which: str, unit: str) -> str:
    step = {"last": -1, "past": -1, "previous": -1, "next": 1}.get(which, 0)
    if unit == "year":
        return f"{day.year + step:04}"
    if unit == "month":
        at = day.year * 12 + day.month - 1 + step
        return f"{at // 12:04}-{at % 12 + 1:02}"
    if unit in ("week", "weekend"):
        monday = day - timedelta(days=day.weekday())
        return (monday + timedelta(days=7 * step + (5 if unit == "weekend" else 0))).isoformat()
    back = (day.weekday() - _DAYS[unit]) % 7
    if step > 0:
        return (day + timedelta(days=(_DAYS[unit] - day.weekday()) % 7 or 7)).isoformat()
    return (day - timedelta(days=back or 7 * (step < 0))).isoformat()
