"""A file's bytes to passages: cut at line ends only, so that a line-based grep can be planned per passage."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from datetime import datetime, timezone

from memfs.corpus.records import Passage

__all__ = ["FrontMatter", "front_matter", "passages", "slug"]

PASSAGE_BYTES_SOFT = 900
"""From here on a passage ends at the next heading or blank line."""
PASSAGE_BYTES_MAX = 4_000
"""From here on at the next line end; one longer line is a passage of its own."""
BINARY_BYTES = 1 << 20

_HEADING = re.compile(rb"^#{1,6} +(.+?)\s*#*\s*$")
_SOURCED = re.compile(rb"---\n(?P<said>(?:(?!---)[^\n]*\n)*?)sources:[^\n]*\n(?:[ \t][^\n]*\n)*---\n")
_FENCE = re.compile(rb"^\s{0,3}(```|~~~)")
_LISTED_DATE = re.compile(r"^- date: (.+)$", re.M)
_FIELD = re.compile(r"^(title|date|event_time|created|updated)\s*:\s*(.+?)\s*$", re.I)
_DATE = re.compile(r"(\d{4})-(\d{2})-(\d{2})(?:[T ](\d{2}):(\d{2})(?::(\d{2}))?)?")

FrontMatter = tuple[str | None, datetime | None]
"""(title, event time): what a page's front matter says of the whole page."""


def passages(data: bytes, *, markdown: bool, event_time: datetime | None = None) -> tuple[Passage, ...]:
    """Return the passages whose bodies concatenate to `data`; at least one, also for an empty file."""
    if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        # UTF-16: a byte-wise cut could fall inside a character.
        return (Passage(data, data.decode("utf-16", errors="replace").replace("\0", ""), None, event_time),)
    if b"\0" in data:
        cuts = range(0, len(data), BINARY_BYTES)
        return tuple(Passage(data[at : at + BINARY_BYTES], None) for at in cuts)
    sourced = _SOURCED.match(data) if markdown else None
    if sourced:
        # A page of the Brain: what its sources are, hashes and all, is not what it says.
        head = Passage(sourced[0], sourced["said"].decode("utf-8", errors="replace"), None, event_time)
        return (head, *_text_passages(data[sourced.end() :], markdown, event_time))
    made = tuple(_text_passages(data, markdown, event_time))
    return made or (Passage(b"", None, None, event_time),)


def _text_passages(data: bytes, markdown: bool, event_time: datetime | None) -> Iterator[Passage]:
    # Only LF ends a line (`bytes.splitlines` also cuts at VT, FF and lone CR).
    start = at = 0
    anchor: str | None = None
    fenced = False
    has_fences = markdown and (b"```" in data or b"~~~" in data)
    lines = data.split(b"\n")
    for number, line in enumerate(lines, 1):
        length = len(line) + (number < len(lines))
        heading = _HEADING.match(line) if markdown and not fenced and line.startswith(b"#") else None
        if has_fences and _FENCE.match(line):
            fenced = not fenced
        size = at - start
        if size and (
            size + length > PASSAGE_BYTES_MAX or (size >= PASSAGE_BYTES_SOFT and (heading or not line.strip()))
        ):
            yield _passage(data[start:at], anchor, event_time)
            start = at
        if heading and (start == at or anchor is None):
            anchor = slug(heading.group(1).decode("utf-8", errors="replace"))
        at += length
    if at > start:
        yield _passage(data[start:at], anchor, event_time)


def _passage(body: bytes, anchor: str | None, event_time: datetime | None) -> Passage:
    return Passage(body, body.decode("utf-8", errors="replace"), anchor, event_time)


def slug(heading: str) -> str:
    """Return the anchor that GitHub gives a heading: lower case, spaces to hyphens, punctuation dropped."""
    text = unicodedata.normalize("NFC", heading).strip().lower()
    return re.sub(r"[^\w\- ]", "", text).replace(" ", "-")


def front_matter(data: bytes) -> FrontMatter:
    """Return the title and date that a Markdown file states: front matter first, else its first heading."""
    head = data[:4096].decode("utf-8", errors="replace")
    title, when = None, None
    if head.startswith("---\n") or head.startswith("---\r\n"):
        block = head.split("\n---", 1)[0]
        found = {m[1].lower(): m[2].strip("\"'") for line in block.split("\n") if (m := _FIELD.match(line.strip()))}
        title = found.get("title")
        named = next((found[k] for k in ("event_time", "date", "updated", "created") if k in found), None)
        when = _parse_date(named) if named else None
    if when is None:
        # As the summaries of sessions have it, below the title.
        stated = _LISTED_DATE.search(head.partition("\n## ")[0])
        when = _parse_date(stated[1]) if stated else None
    if title is None:
        first = re.search(r"^# +(.+?)\s*$", head, re.M)
        title = first[1] if first else None
    return title, when


def _parse_date(text: str) -> datetime | None:
    match = _DATE.search(text)
    if not match:
        return None
    try:
        return datetime(*(int(part or 0) for part in match.groups()), tzinfo=timezone.utc)  # type: ignore[misc,arg-type]
    except ValueError:
        return None
