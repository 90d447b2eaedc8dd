"""Read LoCoMo conversations: a JSON array of samples, or one sample.

Each session becomes a transcript below `<under><sample_id>/`, so that a prefix
scopes one conversation. Taken are speaker, text, image caption and `dia_id`
(the turn's origin: evidence names it). The questions, event summaries,
observations and session summaries are never read: they hold the answers.

Session times carry no zone (`1:56 pm on 8 May, 2023`); they are taken as UTC
and stand on every turn of the session, since "yesterday" counts from there.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import PurePosixPath
from typing import BinaryIO

from memfs.corpus.records import Document, Skipped
from memfs.corpus.sources.transcript import Session, Turn, one_line, render, slug

__all__ = ["FILE_BYTES_MAX", "folder", "read", "sniff"]

SOURCE = "locomo"

FILE_BYTES_MAX = 256 << 20
"""The file is parsed as a whole; all ten conversations are 2.8 MB."""

_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_TIME = re.compile(
    r"\s*(1[0-2]|0?[1-9]):(\d{2})\s*([ap])m\s+on\s+(\d{1,2})\s+([a-z]{3})[a-z]*,?\s+(\d{4})\s*", re.IGNORECASE
)
_SESSION = re.compile(r"session_([0-9]{1,6})")
_MARKS = ((b'"dia_id"',), (b'"conversation"', b'"speaker_a"'), (b'"qa"', b'"evidence"', b'"category"'))

Node = dict[str, object]


def sniff(head: bytes) -> bool:
    """Tell whether `head`, a file's first bytes (4 KiB or more), begins LoCoMo JSON, or its questions."""
    text = head.removeprefix(b"\xef\xbb\xbf").lstrip()
    return text[:1] in (b"[", b"{") and any(all(mark in text for mark in marks) for marks in _MARKS)


def read(stream: BinaryIO, *, name: str, under: str) -> Iterator[Document | Skipped]:
    """Yield one transcript per session, samples in file order, sessions by number; then what was not taken.

    Raises:
        PathError: `under` breaks a rule of the path gate.
    """
    skipped: Counter[str] = Counter()
    taken: set[str] = set()
    for index, sample in enumerate(_samples(stream, skipped), 1):
        for session, below in _sessions(sample, f"{PurePosixPath(name).stem}-{index}", skipped):
            if session.id in taken:
                skipped["sessions that came twice"] += 1
                continue
            taken.add(session.id)
            yield render(session, f"{under}{below}/")
    if not taken:
        yield Skipped(name, "no session in it")
    yield from (Skipped(name, f"{count:,} {reason}") for reason, count in skipped.most_common())


def _samples(stream: BinaryIO, skipped: Counter[str]) -> Iterator[Node]:
    data = stream.read(FILE_BYTES_MAX + 1)
    if len(data) > FILE_BYTES_MAX:
        skipped[f"files larger than {FILE_BYTES_MAX >> 20} MiB"] += 1
        return
    try:
        value = json.loads(data.decode("utf-8-sig", "replace"), strict=False)
    except (ValueError, RecursionError):  # RecursionError: nested thousands deep
        skipped["files that are not JSON"] += 1
        return
    yield from _objects(value if isinstance(value, list) else [value], "samples", skipped)


def _objects(values: list[object], what: str, skipped: Counter[str]) -> Iterator[Node]:
    for value in values:
        if isinstance(value, dict):
            yield value
        else:
            skipped[f"{what} of a wrong type"] += 1


def _sessions(sample: Node, fallback_id: str, skipped: Counter[str]) -> Iterator[tuple[Session, str]]:
    """Yield the sample's sessions, each with its folder name."""
    talk = sample.get("conversation")
    if not isinstance(talk, dict):
        skipped["samples without a conversation"] += 1
        return
    sample_id = one_line(_text(sample, "sample_id") or fallback_id, 100)
    for number, key in sorted((int(match[1]), match[0]) for match in map(_SESSION.fullmatch, talk) if match):
        if session := _session(talk, key, f"{sample_id}/session_{number}", skipped):
            yield session, folder(sample_id)


def folder(sample_id: str) -> str:
    """Return a folder name; a short one might be a Windows device (`con`), which the path gate refuses."""
    name = slug(sample_id)
    return name if len(name) > 4 else f"sample-{name}"


def _session(talk: Node, key: str, session_id: str, skipped: Counter[str]) -> Session | None:
    rows = talk[key]
    if not isinstance(rows, list):
        skipped["sessions of a wrong type"] += 1
        return None
    stated = _text(talk, f"{key}_date_time")
    started = _time(stated)
    turns = tuple(filter(None, (_turn(row, started, skipped) for row in _objects(rows, "turns", skipped))))
    if not turns:
        skipped["sessions without turns"] += 1
        return None
    speakers = tuple(dict.fromkeys(turn.speaker for turn in turns))
    return Session(
        id=session_id,
        title=f"{' and '.join(_hosts(talk) or speakers[:2])}, {key.replace('_', ' ')}",
        source=SOURCE,
        turns=turns,
        started=started,
        slug=key,
        participants=speakers,
        details=tuple(_details(stated, started)),
    )


def _hosts(talk: Node) -> tuple[str, ...]:
    names = (_text(talk, key) for key in ("speaker_a", "speaker_b"))
    return tuple(one_line(name, 40) for name in names if name)


def _details(stated: str | None, started: datetime | None) -> Iterator[tuple[str, str]]:
    if stated and started:
        yield "time zone", f"not given in the source ({one_line(stated)}), taken as UTC"
    elif stated:
        yield "date as given", one_line(stated)


def _turn(row: Node, started: datetime | None, skipped: Counter[str]) -> Turn | None:
    text = "\n".join(filter(None, (_text(row, "text"), _image(row))))
    if not text.strip():
        skipped["turns without text"] += 1
        return None
    return Turn(one_line(_text(row, "speaker") or "", 80) or "unknown", text, started, _text(row, "dia_id"))


def _image(row: Node) -> str | None:
    """Return the image's caption as text: some questions can be answered from it alone."""
    if caption := one_line(_text(row, "blip_caption") or "", 2000):
        return f"[image: {caption}]"
    return "[image]" if row.get("img_url") else None


def _time(stated: str | None) -> datetime | None:
    """Parse `1:56 pm on 8 May, 2023` as UTC, whatever the locale."""
    match = _TIME.fullmatch(stated or "")
    if not match or match[5].lower() not in _MONTHS:
        return None
    hour, minute = int(match[1]) % 12 + (12 if match[3] in "pP" else 0), int(match[2])
    month = _MONTHS.index(match[5].lower()) + 1
    try:
        return datetime(int(match[6]), month, int(match[4]), hour, minute, tzinfo=timezone.utc)
    except ValueError:
        return None


def _text(row: Node, key: str) -> str | None:
    value = row.get(key)
    return value if isinstance(value, str) and value else None
