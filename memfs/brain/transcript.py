"""A transcript's turns, as a dream reads them."""

from __future__ import annotations

import hashlib
import re
from datetime import date
from typing import NamedTuple

__all__ = ["Transcript", "Turn", "read"]

_TURN = re.compile(rb"^## (t\d+) \xc2\xb7 (.+?)(?: \xc2\xb7 (\d{4}-\d{2}-\d{2})[^\n]*)?$", re.M)
_DATE = re.compile(rb"^- date: (\d{4}-\d{2}-\d{2})", re.M)
_TITLE = re.compile(rb"^# (.+)$", re.M)


class Turn(NamedTuple):
    """What one said at once."""

    anchor: str
    speaker: str
    day: date | None
    text: str
    sha256: str
    """Of the span that a citation of it stands on."""


class Transcript(NamedTuple):
    """One session."""

    path: str
    title: str
    day: date | None
    turns: tuple[Turn, ...]
    sha256: str
    """Of the whole file."""


def read(path: str, data: bytes) -> Transcript:
    """Read a transcript as `memfs add` writes it."""
    head = data[: m.start() if (m := _TURN.search(data)) else len(data)]
    day = _day(found[1]) if (found := _DATE.search(head)) else None
    marks = list(_TURN.finditer(data))
    turns = []
    for mark, after in zip(marks, [*(m.start() for m in marks[1:]), len(data)], strict=True):
        span = data[mark.start() : after]
        text = data[mark.end() : after].decode("utf-8", errors="replace").strip()
        said = _day(mark[3]) if mark[3] else day
        speaker = mark[2].decode("utf-8", errors="replace").strip()
        turns.append(Turn(mark[1].decode(), speaker, said, text, hashlib.sha256(span).hexdigest()))
    title = found[1].decode("utf-8", errors="replace") if (found := _TITLE.search(head)) else path
    return Transcript(path, title, day, tuple(turns), hashlib.sha256(data).hexdigest())


def _day(text: bytes) -> date | None:
    try:
        return date.fromisoformat(text.decode())
    except ValueError:
        return None
