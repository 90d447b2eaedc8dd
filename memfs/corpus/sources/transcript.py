"""Render a conversation, from whatever source, as one `transcript.md`.

A source turns its own format into a `Session`; `render` alone decides what the
file looks like and where it lies:

    <under>YYYY/MM/<YYYY-MM-DD>-<slug>-<id8>/transcript.md      with a start
    <under>undated/<slug>-<id8>/transcript.md                   without one

The path must be the same each time the session is imported, also when it has
grown. So the date is the session's start, the slug is made of `Session.slug`
(which a source takes from something that appended turns cannot change, never
from a title that arrives later), and id8 is the first 8 hex digits of
sha256("<source>:<session id>"), which keeps equal slugs apart.

The file, one passage per header or turn:

    # <title>

    - date: 2023-05-08 13:56 UTC
    - source: locomo:conv-26/session_1
    - participants: Caroline, Melanie

    ## t1 · Caroline · 2023-05-08 13:56 · D1:1

    <text>

Turn n has the anchor `tn`. A line of a turn's text that would read as a turn
heading gets a leading backslash, so no text can forge a turn; the first line of
the file is ours, so no text can forge the title. Times are UTC.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timezone

from memfs import paths
from memfs.corpus.records import Document, Passage

__all__ = ["PASSAGE_BYTES_MAX", "Session", "Turn", "clean", "one_line", "render", "slug"]

PASSAGE_BYTES_MAX = 4000
"""A turn above this is split at line ends into passages that share its anchor.

A line is never cut, and a heading keeps the first line of its text."""
ORIGIN_SHOWN_CHARS_MAX = 16
"""A `dia_id` is for people too; a uuid is not."""
SLUG_CHARS_MAX = 40
TITLE_CHARS_MAX = 120
FIELD_CHARS_MAX = 300

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)

_ANSI = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]"  # CSI: colours, cursor
    r"|(?:\x1b\]|\x9d)[^\x07\x1b\x9c\n]*(?:\x07|\x1b\\|\x9c)"  # OSC: window titles, links
    r"|\x1b[ -/]*[0-Z\\^-~]"  # two-byte escapes
)
_UNCLEAN = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
_LINE_END = re.compile(r"\r\n|[\r\x0b\x0c\x85\u2028\u2029]")
_CONTROL = re.compile(r"[\x00-\x08\x0e-\x1f\x7f-\x9f]")
_SURROGATE = re.compile(r"[\ud800-\udfff]")
_APOSTROPHE = re.compile("['\u2019]")
_FORGED_TURN = re.compile(r"^(?=\\*## t\d+ ·)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Turn:
    """One contribution to a session."""

    speaker: str
    text: str
    time: datetime | None = None
    """UTC."""
    origin: str | None = None
    """The source's own id of this turn."""
    note: str | None = None
    """What a reader must know before believing it: `rewound`, `sidechain`, `injected`."""


@dataclass(frozen=True, slots=True)
class Session:
    """One conversation, ready to render."""

    id: str
    title: str
    source: str
    """The format's name: `claude-code`, `locomo`."""
    turns: tuple[Turn, ...]
    started: datetime | None = None
    """UTC; dates the path, so it must not change when turns are appended."""
    slug: str | None = None
    """Text for the path's slug, as unchanging as `started`; None takes the title."""
    participants: tuple[str, ...] = ()
    details: tuple[tuple[str, str], ...] = ()
    """Further (name, value) lines of the header."""


def render(session: Session, under: str) -> Document:
    """Render `session` below the folder prefix `under` (empty, or ending in `/`).

    Raises:
        PathError: `under` breaks a rule of the path gate.
    """
    times = [turn.time for turn in session.turns if turn.time]
    return Document(
        path=_path(session, under),
        passages=(_header(session), *_passages(session.turns)),
        kind="transcript",
        title=_title(session),
        source=_source(session),
        mtime=max(times, default=session.started or _EPOCH),
    )


def clean(text: str) -> str:
    """Return `text` as any terminal, file system and UTF-8 reader takes it.

    ANSI escapes go, every kind of line end becomes a newline, controls except
    newline and tab go, a lone surrogate becomes U+FFFD.
    """
    if not _UNCLEAN.search(text):
        return text
    text = _LINE_END.sub("\n", _ANSI.sub("", text))
    return _SURROGATE.sub("\ufffd", _CONTROL.sub("", text))


def one_line(text: str, chars_max: int = FIELD_CHARS_MAX) -> str:
    """Return `text` cleaned, on one line, cut to `chars_max` with an ellipsis; no `·`, which parts heading fields."""
    line = " ".join(clean(text[: 8 * chars_max]).replace("·", "-").split())
    return line if len(line) <= chars_max else line[: chars_max - 1].rstrip() + "…"


def slug(text: str) -> str:
    """Return a path segment for `text`: ASCII-folded, or its own script if nothing ASCII remains, or `session`."""
    text = _APOSTROPHE.sub("", clean(text[:1000]))
    folded = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode()
    words = re.findall(r"[a-z0-9]+", folded.lower()) or _own_script(text)
    return _joined_words(words) or "session"


def _own_script(text: str) -> list[str]:
    """Return runs of letters, marks and digits: `\\w` would break at the vowel signs of Thai or Devanagari."""
    kept = (c if unicodedata.category(c)[0] in "LMN" else " " for c in unicodedata.normalize("NFKC", text).casefold())
    return unicodedata.normalize("NFC", "".join(kept)).split()


def _joined_words(words: list[str]) -> str:
    """Join whole words by `-` up to the limit; a first word above it is cut."""
    joined = "-".join(words[:SLUG_CHARS_MAX])
    if len(joined) <= SLUG_CHARS_MAX:
        return joined
    whole, _, _ = joined[: SLUG_CHARS_MAX + 1].rpartition("-")
    return whole or joined[:SLUG_CHARS_MAX]


def _path(session: Session, under: str) -> str:
    folder = "undated/"
    if session.started:
        date = session.started.date().isoformat()
        folder = f"{date[:4]}/{date[5:7]}/{date}-"
    return paths.check(f"{under}{folder}{slug(session.slug or session.title)}-{_id8(session)}/transcript.md")


def _id8(session: Session) -> str:
    identity = f"{session.source}:{session.id}".encode("utf-8", "surrogatepass")
    return hashlib.sha256(identity).hexdigest()[:8]


def _title(session: Session) -> str:
    return one_line(session.title, TITLE_CHARS_MAX) or "Untitled session"


def _source(session: Session) -> str:
    return one_line(f"{session.source}:{session.id}")


def _header(session: Session) -> Passage:
    title = _title(session)
    lines = "".join(f"- {name}: {value}\n" for name, value in _header_fields(session))
    return Passage(
        body=f"# {title}\n\n{lines}\n".encode(),
        text=f"{title}\n{lines}".rstrip("\n"),
        event_time=session.started,
    )


def _header_fields(session: Session) -> Iterator[tuple[str, str]]:
    if session.started:
        yield "date", f"{_minute(session.started)} UTC"
    yield "source", _source(session)
    if session.participants:
        yield "participants", one_line(", ".join(session.participants))
    for name, value in session.details:
        yield one_line(name), one_line(value)


def _minute(time: datetime) -> str:
    return time.isoformat(" ", "minutes")[:16]


def _passages(turns: tuple[Turn, ...]) -> Iterator[Passage]:
    for number, turn in enumerate(turns, 1):
        yield from _turn_passages(turn, f"t{number}")


def _turn_passages(turn: Turn, anchor: str) -> Iterator[Passage]:
    text = _FORGED_TURN.sub(r"\\", clean(turn.text).strip("\n").rstrip())
    lead = f"{_heading(turn, anchor)}\n\n"
    room = PASSAGE_BYTES_MAX - len(lead.encode())
    for part in _split(text, room):
        yield Passage(
            body=f"{lead}{part}".encode(),
            text=part.rstrip("\n") or None,
            anchor=anchor,
            event_time=turn.time,
            speaker=one_line(turn.speaker),
            origin=one_line(turn.origin or "") or None,
        )
        lead = ""


def _heading(turn: Turn, anchor: str) -> str:
    fields = [anchor, one_line(turn.speaker, 80) or "unknown"]
    if turn.time:
        fields.append(_minute(turn.time))
    if turn.origin and len(turn.origin) <= ORIGIN_SHOWN_CHARS_MAX:
        fields.append(one_line(turn.origin))
    if turn.note:
        fields.append(one_line(turn.note))
    return "## " + " · ".join(field for field in fields if field)


def _split(text: str, room: int) -> Iterator[str]:
    """Yield `text` and the blank line after it, in parts that end at line ends; `room` is bytes for the first part."""
    part: list[str] = []
    size = 0
    for line in f"{text}\n".split("\n")[:-1] if text else ():
        length = len(line.encode()) + 1
        if part and size + length > room:
            yield "".join(part)
            part, size, room = [], 0, PASSAGE_BYTES_MAX
        part.append(f"{line}\n")
        size += length
    yield "".join([*part, "\n" if part else ""])
