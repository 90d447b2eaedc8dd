"""Dates in English text: the days that a passage speaks of, and the time that a question asks about.

`dates_in` files a passage under points (`2023-05-08`, `2023-05`, `2023`), counted from the passage's own date.
`spans_in` reads a question generously: "two weeks ago" is a week around that day, "last month" is all that passed
since it began; "since" and "before" are open at one end; 3/4/2026 is both the days that it may be. Seasons are those
of the northern half of the world, quarters those of the calendar year.
"""

from __future__ import annotations

import calendar
import re
import unicodedata
from collections.abc import Iterator
from contextlib import suppress
from datetime import date, datetime, time, timedelta, timezone
from typing import NamedTuple, TypeVar

__all__ = ["Span", "dates_in", "end_of", "spans_in", "without_times"]

T = TypeVar("T")
_MONTHS = {name.lower(): at for at, name in enumerate(calendar.month_name) if name}
_DAYS = {name.lower(): at for at, name in enumerate(calendar.day_name)}
_SEASONS = {"spring": 3, "summer": 6, "autumn": 9, "fall": 9, "winter": 12}
"""The month that each begins in."""
_UNITS = {"day": 1, "week": 7, "weekend": 7, "month": 30, "year": 365}
_NUMBERS = {
    word: n for n, word in enumerate("zero a two three four five six seven eight nine ten eleven twelve".split())
} | {"one": 1, "an": 1, "couple": 2, "few": 3}  # fmt: skip
DAYS_MAX = 40_000
AROUND = {"day": 1, "week": 3, "month": 15, "year": 183}
"""Days on either side that "N units ago" may mean."""
_MONTH = "|".join(_MONTHS)
_ABSOLUTE = re.compile(
    rf"(?i)\b(?:(?P<d1>\d{{1,2}})(?:st|nd|rd|th)?(?: of)? )?(?P<m>{_MONTH})"
    r"(?: (?P<d2>\d{1,2})(?:st|nd|rd|th)?\b(?!\d))?,?(?: (?P<y>\d{4}))?\b"
)
_NTH = r"(?:st|nd|rd|th)?"
_TO = rf"{_NTH} ?(?:[-–]|to|and|until|till|through) ?"
_DAYS_OF = re.compile(
    rf"(?i)\b(?:(?<![-/.])(?P<a1>\d{{1,2}}){_TO}(?P<a2>\d{{1,2}}){_NTH}(?: of)? (?P<am>{_MONTH})"
    rf"|(?P<bm>{_MONTH}) (?P<b1>\d{{1,2}}){_TO}(?P<b2>\d{{1,2}}){_NTH}\b(?! (?:{_MONTH})))"
    r"(?:,? (?P<y>\d{4}))?\b"
)
_ISO = re.compile(r"\b([0-9]{4})-([0-9]{2})(?:-([0-9]{2})(?=T[0-9]|\b)|\b)")
_YEAR = re.compile(r"\b(?:19|20)\d\d\b")
_DECADE = re.compile(r"(?i)\b((?:19|20)\d)0s\b")
_QUARTER = re.compile(r"(?i)\bq([1-4])(?:,? (?:of )?((?:19|20)\d\d))?\b")
_LAST_QUARTER = re.compile(r"(?i)\b(last|past|previous|this) quarter\b")
_SLASHED = re.compile(r"\b(\d{1,2})[/.](\d{1,2})[/.]((?:19|20)\d\d)\b")
_HALF_A_YEAR = re.compile(r"(?i)\bhalf a year ago\b")
_AGO = re.compile(r"(?i)\b(?<!half )(?:(\d+|[a-z]+)(?: of)? )(day|week|month|year)s? ago\b")
_LAST = re.compile(rf"(?i)\b(last|past|next|this|previous) (week|weekend|month|year|{'|'.join(_DAYS)})\b")
_NEAR = re.compile(r"(?i)\b((?:the )?day before yesterday|yesterday|last night|today|tonight|this morning|tomorrow)\b")
_LAST_FEW = re.compile(r"(?i)\b(?:past|last|previous) (\d+|[a-z]+)(?: of)? (day|week|weekend|month|year)s\b")
_SINCE_START = re.compile(r"(?i)\b(?:start|beginning) of (?:the|this) (week|month|year)\b")
_SEASON = re.compile(rf"(?i)\b(last|past|this|in the|over the|during the) ({'|'.join(_SEASONS)})\b")
_SEASON_OF = re.compile(rf"(?i)\b({'|'.join(_SEASONS)})(?: of)? ((?:19|20)\d\d)\b")
_ON_DAY = re.compile(rf"(?i)\bon ({'|'.join(_DAYS)})\b")
_RANGE = re.compile(r"(?i)\b(?:from|between)\b")
_MONTH_FOLLOWS = re.compile(r"(?i)\b(?:in|since|before|after|until|till|by|last|of|early|late) $")
_OPEN = re.compile(r"(?i)\b(since|after|before|until|till)(?: the)?(?: (?:start|beginning|end) of)? $")


class Span(NamedTuple):
    """From one day to another, both included."""

    first: date
    last: date

    def utc(self) -> tuple[datetime, datetime]:
        """Return when it begins and when it is over, UTC."""
        return datetime.combine(self.first, time.min, timezone.utc), end_of(self.last)

    def __str__(self) -> str:
        if self.first == date.min:
            return f"until {self.last}"
        return str(self.first) if self.first == self.last else f"{self.first} to {self.last}"


def end_of(day: date) -> datetime:
    """Return when a day is over, UTC: the next midnight; of the calendar's last day its last moment."""
    if day == date.max:
        return datetime.max.replace(tzinfo=timezone.utc)
    return datetime.combine(day + timedelta(days=1), time.min, timezone.utc)


def dates_in(text: str, day: date | None) -> list[str]:
    """Return the days (`2023-05-08`) and months (`2023-05`) and years that a text speaks of, counted from `day`."""
    return list(dict.fromkeys(filter(None, _in_calendar(_dates(text, day)))))


def _in_calendar(found: Iterator[T]) -> list[T]:
    """Keep what comes before the calendar ends: the years 1 to 9999."""
    kept = []
    with suppress(OverflowError, ValueError):
        for each in found:
            kept.append(each)
    return kept


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
        yield _near(day, match[1]).isoformat()
    for match in _AGO.finditer(text):
        number = _number(match)
        if number is not None:
            yield _ago(day, number, match[2].lower())
    for match in _LAST.finditer(text):
        yield _relative(day, match[1].lower(), match[2].lower())


def _absolute(match: re.Match[str], day: date | None) -> Iterator[str]:
    year, month, number = _parts(match, day)
    if number:
        yield f"{year:04}-{month:02}-{number:02}"
    if year:
        yield f"{year:04}-{month:02}"


def _parts(match: re.Match[str], day: date | None) -> tuple[int, int, int]:
    """Year, month and day of a written date; 0 for a day that is not said, for a year that cannot be known."""
    # `may` and `march` are months only with a day or a year beside them, or a capital letter within a sentence,
    # or after a word such as "in".
    before = _before_it(match.string, match.start())
    plain = before.rstrip()[-1:] in ("", ".", "!", "?") or (match["m"].islower() and not _MONTH_FOLLOWS.search(before))
    if plain and match["m"].lower() in ("may", "march") and not (match["d1"] or match["d2"] or match["y"]):
        return 0, 0, 0
    month, number = _MONTHS[match["m"].lower()], int(match["d1"] or match["d2"] or 0)
    year = int(match["y"]) if match["y"] else day.year - (month > day.month) if day else 0
    return year, month, number if year and number <= calendar.monthrange(year, month)[1] else 0


def _number(match: re.Match[str]) -> int | None:
    """The number before a unit; None where the word is none, or the calendar too short."""
    number = int(match[1]) if match[1].isdigit() else _NUMBERS.get(match[1].lower())
    return number if number is not None and number * _UNITS[match[2].lower()] < DAYS_MAX else None


def _near(day: date, word: str) -> date:
    if "before" in word.lower():
        return day - timedelta(days=2)
    return day + timedelta(days={"yesterday": -1, "last night": -1, "tomorrow": 1}.get(word.lower(), 0))


def _months_on(day: date, count: int) -> tuple[int, int]:
    """Year and month, so many months on."""
    year, month = divmod(day.year * 12 + day.month - 1 + count, 12)
    return year, month + 1


def _ago(day: date, number: int, unit: str) -> str:
    if unit == "year":
        return f"{day.year - number:04}"
    if unit == "month":
        return "{:04}-{:02}".format(*_months_on(day, -number))
    return (day - timedelta(days=number * _UNITS[unit])).isoformat()


def _relative(day: date, which: str, unit: str) -> str:
    step = {"last": -1, "past": -1, "previous": -1, "next": 1}.get(which, 0)
    if unit == "year":
        return f"{day.year + step:04}"
    if unit == "month":
        return "{:04}-{:02}".format(*_months_on(day, step))
    if unit in ("week", "weekend"):
        monday = day - timedelta(days=day.weekday())
        return (monday + timedelta(days=7 * step + (5 if unit == "weekend" else 0))).isoformat()
    back = (day.weekday() - _DAYS[unit]) % 7
    if step > 0:
        return (day + timedelta(days=(_DAYS[unit] - day.weekday()) % 7 or 7)).isoformat()
    return (day - timedelta(days=back or 7 * (step < 0))).isoformat()


# -- questions ----------------------------------------------------------------------------


def spans_in(question: str, today: date | None) -> list[Span]:
    """Return the times that a question asks about, counted from `today`; without it only written dates count."""
    question = " ".join(unicodedata.normalize("NFKC", question).split())
    found = _in_calendar(_written(question, today))
    if today is not None:
        found += _in_calendar(_counted(question, today))
    return list(dict.fromkeys(span for span in found if span.first <= span.last))


def _written(question: str, today: date | None) -> Iterator[Span]:
    found: list[tuple[int, Span]] = []
    for match in _ISO.finditer(question):
        with suppress(ValueError):
            year, month = int(match[1]), int(match[2])
            iso = _on(date(year, month, int(match[3]))) if match[3] else _month(year, month)
            found.append((match.start(), iso))
    for match in _DAYS_OF.finditer(question):
        with suppress(ValueError):
            found.append((match.start(), _days_of(match, today)))
    for match in _DECADE.finditer(question):
        found.append((match.start(), Span(date(int(match[1]) * 10, 1, 1), date(int(match[1]) * 10 + 9, 12, 31))))
    for match in _QUARTER.finditer(question):
        if match[2]:
            found.append((match.start(), _quarter(int(match[2]), int(match[1]))))
    written = list(_ABSOLUTE.finditer(_DAYS_OF.sub(_blank, question)))
    # "between August 11 and August 15 2023": the year is said once.
    stated = next((date(int(match["y"]), 12, 31) for match in written if match["y"] and int(match["y"])), today)
    for match in written:
        year, month, number = _parts(match, stated)
        if year and (number or not (match["d1"] or match["d2"])):
            day = _on(date(year, month, number)) if number else _month(year, month)
            found.append((match.start(), day))
    for match in _SEASON_OF.finditer(question):
        found.append((match.start(), _season_from(date(int(match[2]), _SEASONS[match[1].lower()], 1))))
    slashed = [span for match in _SLASHED.finditer(question) for span in _either(match)]
    if not found and not slashed:
        found += [
            (match.start(), Span(date(int(match[0]), 1, 1), date(int(match[0]), 12, 31)))
            for match in _YEAR.finditer(_SLASHED.sub(_blank, _ISO.sub(_blank, question)))
        ]
    if len(found) == 2 and _RANGE.search(question):
        yield Span(min(s.first for _, s in found), max(s.last for _, s in found))
    else:
        yield from (_opened(span, _before_it(question, at), today) for at, span in found)
    yield from slashed


def _days_of(match: re.Match[str], today: date | None) -> Span:
    """The days of "3-5 May 2023" or "May 3 to 5"; without a year, the latest such month that has begun.

    Raises:
        ValueError: the year cannot be known, or the month has no such day.
    """
    month = _MONTHS[(match["am"] or match["bm"]).lower()]
    first, last = int(match["a1"] or match["b1"]), int(match["a2"] or match["b2"])
    year = int(match["y"]) if match["y"] else today.year - (month > today.month) if today else 0
    return Span(date(year, month, first), date(year, month, last))


def _quarter(year: int, number: int) -> Span:
    return _season_from(date(year, 3 * number - 2, 1))


def _before_it(text: str, at: int) -> str:
    """As much of the words before a date as may bear on it, so that a long text takes no longer for it."""
    return text[max(0, at - 40) : at]


def _blank(match: re.Match[str]) -> str:
    return " " * len(match[0])


def _either(match: re.Match[str]) -> list[Span]:
    """The days that 3/4/2026 may be: the third of April, or the fourth of March."""
    first, second, year = map(int, match.groups())
    days = []
    for month, number in ((second, first), (first, second)):
        with suppress(ValueError):
            days.append(_on(date(year, month, number)))
    return days


def _opened(span: Span, before: str, today: date | None) -> Span:
    """The time that "since July" or "before July" leaves open at one end."""
    word = _OPEN.search(before)
    if word is None:
        return span
    if word[1].lower() in ("since", "after"):
        return Span(span.first, today or date.max)
    return Span(date.min, span.last if word[1].lower() != "before" else span.first - timedelta(days=1))


def _counted(question: str, today: date) -> Iterator[Span]:
    for match in _NEAR.finditer(question):
        yield _on(_near(today, match[1]))
    for match in _AGO.finditer(question):
        number, unit = _number(match), match[2].lower()
        if number is not None:
            yield _around(today - timedelta(days=number * _UNITS[unit]), AROUND[unit])
    if _HALF_A_YEAR.search(question):
        yield _around(today - timedelta(days=_UNITS["year"] // 2), AROUND["month"])
    for match in _LAST_FEW.finditer(question):
        number = _number(match)
        if number is not None:
            yield Span(today - timedelta(days=number * _UNITS[match[2].lower()]), today)
    for match in _LAST.finditer(question):
        which, unit = match[1].lower(), match[2].lower()
        if which == "next":
            continue
        if unit in _DAYS:
            yield _on(_before(today, _DAYS[unit]))
        else:
            yield Span(_start(today, unit, back=which != "this"), today)
    for match in _SINCE_START.finditer(question):
        yield Span(_start(today, match[1].lower(), back=False), today)
    for match in _LAST_QUARTER.finditer(question):
        begun = _quarter(today.year, (today.month + 2) // 3).first
        yield Span(begun if match[1].lower() == "this" else date(*_months_on(begun, -3), 1), today)
    for match in _QUARTER.finditer(question):
        if not match[2]:
            month = 3 * int(match[1]) - 2
            span = _season_from(date(today.year - (month > today.month), month, 1))
            yield Span(span.first, min(span.last, today))
    for match in _ON_DAY.finditer(question):
        yield _on(_before(today, _DAYS[match[1].lower()]))
    for match in _SEASON.finditer(_SEASON_OF.sub(" ", question)):
        yield _season(today, _SEASONS[match[2].lower()], last=match[1].lower() == "last")


def without_times(question: str) -> str:
    """Return a question without the words that count back from the day it is asked ("last month", "two days ago")."""
    for pattern in (_LAST_QUARTER, _HALF_A_YEAR, _AGO, _LAST_FEW, _LAST, _SINCE_START, _NEAR):
        question = pattern.sub(" ", question)
    return " ".join(question.split())


def _on(day: date) -> Span:
    return Span(day, day)


def _around(day: date, days: int) -> Span:
    return Span(day - timedelta(days=days), day + timedelta(days=days))


def _month(year: int, month: int) -> Span:
    return Span(date(year, month, 1), date(year, month, calendar.monthrange(year, month)[1]))


def _before(today: date, weekday: int) -> date:
    return today - timedelta(days=(today.weekday() - weekday) % 7 or 7)


def _start(today: date, unit: str, *, back: bool) -> date:
    """The first day of this week, month or year, or of the one before."""
    if unit == "year":
        return date(today.year - back, 1, 1)
    if unit == "month":
        return date(*_months_on(today, -back), 1)
    return today - timedelta(days=today.weekday() + 7 * back)


def _season(today: date, month: int, *, last: bool) -> Span:
    """The latest that has begun; of a `last` one, the latest that is over."""
    year = today.year - (today.month < month)
    span = _season_from(date(year, month, 1))
    if last and span.last >= today:
        span = _season_from(date(year - 1, month, 1))
    return Span(span.first, min(span.last, today))


def _season_from(first: date) -> Span:
    return Span(first, date(*_months_on(first, 3), 1) - timedelta(days=1))
