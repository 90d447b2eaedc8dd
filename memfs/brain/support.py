"""Whether a claim's evidence says what it says, judged without a model: by words, numbers, dates and names.

Coarse on purpose in one direction only: a figure, a date or a name that the evidence does
not hold is refused; a claim in other words than its evidence may be refused too, and can
be written closer to it. A claim that denies what its evidence does not deny is refused (in English). What it cannot
see is a claim that otherwise turns the same words around, or says of one speaker what another said.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from datetime import date
from typing import NamedTuple

from memfs.brain.evidence import Span
from memfs.brain.page import Claim
from memfs.corpus.terms import query_terms

__all__ = ["Support", "support"]

SHARE_MIN = 0.6
"""Of a claim's words that its evidence must hold."""
_TIME_WORD = re.compile(
    r"(?i)\b((?:day|night|week|weekend|month|year)s? (?:before|after)|"
    r"since|until|till|still|before|after|then|now|currently|formerly|no longer|already|yet)\b"
)
"""The format asks for them (valid from, until), and the evidence need not have them."""
_NEGATION = re.compile(r"(?i)\b(?:not|no|never|none|nothing|nobody|neither|nor|without|cannot)\b|n['’]t\b")
_NUMBER = re.compile(r"\d+(?:[.,]\d+)*")
_ISO = re.compile(r"\b(\d{4})-(\d{2})(?:-(\d{2}))?\b")
_MONTHS = {
    name: at % 12 + 1
    for at, name in enumerate(
        "january february march april may june july august september october november december "
        "janeiro fevereiro março abril maio junho julho agosto setembro outubro novembro dezembro "
        "enero febrero marzo abril mayo junio julio agosto septiembre octubre noviembre diciembre "
        "janvier février mars avril mai juin juillet août septembre octobre novembre décembre "
        "januar februar märz april mai juni juli august september oktober november dezember".split()
    )
}
"""In English, Portuguese, Spanish, French and German."""
_DATE = re.compile(
    rf"(?i)\b(?:(\d{{1,2}})(?:st|nd|rd|th|\.)?(?: of| de)? )?({'|'.join(_MONTHS)})"
    r"(?: (\d{1,2})(?:st|nd|rd|th)?(?!\d),?)?(?:(?: de)? (\d{4}))?\b"
)
_NAME = re.compile(r"(?<![.!?] )(?<!^)\b[A-ZÀ-Þ][\w'-]+")


class Support(NamedTuple):
    """A verdict that can be kept on record."""

    holds: bool
    why: str


def support(claim: Claim, spans: Sequence[Span], context: str = "", *, share_min: float = SHARE_MIN) -> Support:
    """Judge a claim against the spans that it cites; `context` is what a reader of the page knows: its title, say.

    With `share_min` 0 only figures, dates and names are held against the evidence: somebody else judges the words.
    """
    text = "\n".join(span.text for span in spans)
    evidence = f"{text}\n{context}"
    missing = [
        number for number in _numbers(claim.text) if number not in set(_numbers(evidence)) | set(_of_dates(evidence))
    ]
    if missing:
        return Support(False, f"the evidence has no {missing[0]}")
    names = [name for name in _NAME.findall(claim.text) if name.casefold() not in evidence.casefold()]
    if names:
        return Support(False, f"the evidence does not name {names[0]}")
    plain = _TIME_WORD.sub("", _ISO.sub("", claim.text))
    denied = _NEGATION.search(plain)
    if denied and not _NEGATION.search(text):
        return Support(False, f"the claim says {denied.group()}, the evidence denies nothing")
    words = set(query_terms(plain))
    if not words:
        return Support(True, "nothing but figures and names, all of them there")
    held = words & set(query_terms(evidence))
    share = len(held) / len(words)
    if share < share_min:
        lacking = ", ".join(sorted(words - held)[:5])
        return Support(False, f"the evidence has {len(held)} of {len(words)} words; not: {lacking}")
    return Support(True, f"the evidence has {len(held)} of {len(words)} words, and all figures and names")


def _numbers(text: str) -> list[str]:
    """The numbers of a text, those of its dates apart: `17 May 2026` and `2026-05-17` say the same."""
    plain = _ISO.sub(" ", text)
    days = [f"{m[1]}-{m[2]}-{m[3] or ''}".rstrip("-") for m in _ISO.finditer(text)]
    return [*days, *(number.rstrip(".,").lstrip("0") or "0" for number in _NUMBER.findall(plain))]


def _of_dates(text: str) -> Iterator[str]:
    """All ways to write, in figures, the dates that a text names, the day before and after for relative ones aside."""
    years = {m[1] for m in _ISO.finditer(text)} | set(re.findall(r"\b(?:19|20)\d\d\b", text))
    for match in _ISO.finditer(text):
        yield f"{match[1]}-{match[2]}"
        yield from (match[1], match[2].lstrip("0"))
        if match[3]:
            yield match[3].lstrip("0")
    for match in _DATE.finditer(text):
        month, day = _MONTHS[match[2].lower()], match[1] or match[3]
        for year in [match[4]] if match[4] else sorted(years):
            yield f"{year}-{month:02}"
            if day and 1 <= int(day) <= 31:
                yield f"{year}-{month:02}-{int(day):02}"


def mentions(text: str, day: date) -> bool:
    """Whether a text names a day, in any of the forms that are understood."""
    return day.isoformat() in {*_numbers(text), *_of_dates(text)}
