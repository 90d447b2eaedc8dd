"""Read Claude Code session files: one JSON record a line, `<session id>.jsonl`.

A file is read once, line by line; of each record only the text that will be
shown is kept, so memory is bounded by the transcript (plus one line and about
100 bytes a record for the tree), not by the file. No line can fail a file: what
is not taken is counted, one `Skipped` per reason.

**Who speaks.** `user` is only what a person typed (a prompt, a queued prompt, a
slash or `!` command with the note `command`). `assistant` is the model; the
prompt it gives to a subagent is its speech too, noted `prompt`. `tool` is a tool
result, clipped. `summary` is a compaction summary. `system` is the client telling
the model that something happened (interrupted, background task done), noted
`injected`. Left out, and counted: thinking, reminders, hook output, caveats, local
command output, housekeeping commands, API errors, client bookkeeping.

**Turns.** One API message is several lines with one `message.id`, or the same
line again with more text: one turn, at the place of the first line that had
something to show, at its time. A uuid seen again replaces the content in place.
So the n-th turn stays the n-th when the file grows.

**Tree.** `parentUuid` (at a compaction `logicalParentUuid`) is followed through
all records, also those not shown. The active branch ends at the last thing said.
What hangs beside it through something said is `rewound`. Parallel tool results
fork too, and are not. Another root is not: file order is all we know.

**Identity.** Claude Code names a file by its session, so a uuid as the file's
name is the session's id, also when a fork starts with another session's records;
`agent-<id>.jsonl` is `<session id>/agent-<id>`; any other file holds the sessions
that its records name. A session starts, and its slug is made, with its first turn.
"""

from __future__ import annotations

import hashlib
import json
import re
from array import array
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from itertools import count, islice
from pathlib import PurePosixPath
from typing import BinaryIO, NamedTuple

from memfs.corpus.records import Document, Skipped
from memfs.corpus.sources.transcript import Session, Turn, clean, one_line, render

__all__ = ["LINE_BYTES_MAX", "read", "sniff"]

SOURCE = "claude-code"

LINE_BYTES_MAX = 64 << 20
"""A longer line is read past and counted; the longest recorded one is 12.8 MB."""
RESULT_CHARS_MAX = 600
ARGUMENT_CHARS_MAX = 200
REASONS_MAX = 50
"""Type names come from the file; beyond this many reasons they are counted together."""

_CHUNK_BYTES = 1 << 20
_MODELS_MAX = 5
_REWRITE_WINDOW = 32
"""How many blocks back a fuller rewrite of a block is looked for."""

Row = dict[str, object]

_SPOKEN = frozenset({"user", "assistant"})
_ENVELOPED = _SPOKEN | {
    "system", "progress", "attachment", "queue-operation", "ai-title", "custom-title", "agent-name", "last-prompt",
    "permission-mode", "mode", "pr-link", "bridge-session", "worktree-state", "agent-setting",
}  # fmt: skip
_TITLES = {"custom-title": "customTitle", "ai-title": "aiTitle", "agent-name": "agentName"}
"""Row type to its field, the strongest first."""
_DETAILS = {"cwd": "cwd", "gitBranch": "git branch", "version": "client version"}
_NOT_SESSIONS = {
    "history.jsonl": "the prompt history, not a session",
    "sessions-index.json": "an index of sessions, not a session",
}
_FILE_ID = re.compile(r"[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}", re.IGNORECASE)
_AGENT_FILE = re.compile(r"agent-[0-9A-Za-z_-]+")

_CONTINUED = "This session is being continued"
_EVENTS = ("[Request interrupted", "<task-notification>")
_MACHINERY = (
    "<local-command-",
    "Stop hook feedback:",
    "Caveat: The messages below were generated",
    "<system-reminder>",
)
_HOUSEKEEPING = re.compile(
    r"/(?:clear|compact|config|context|cost|doctor|exit|export|fast|help|hooks|ide|login|logout|mcp|memory|model"
    r"|output-style|permissions|plugin|quit|release-notes|rename|resume|rewind|stats|status|statusline|terminal-setup"
    r"|theme|upgrade|usage|vim)?"
)
_ARGUMENTS = (
    "command", "file_path", "notebook_path", "path", "pattern", "query", "url", "description", "plan", "prompt",
    "skill", "subject", "message",
)  # fmt: skip
"""Names of the argument to show of a tool call, the most telling first."""


def sniff(head: bytes) -> bool:
    """Tell whether `head`, a file's first bytes (4 KiB or more), begins a session file."""
    lines = head.removeprefix(b"\xef\xbb\xbf").split(b"\n")
    if any(_is_session_row(_parse(line)) for line in lines[:200]):
        return True
    first = lines[0]  # it alone may be longer than the head: a pasted image
    return len(lines) == 1 and first.startswith(b"{") and all(k in first for k in (b'"sessionId"', b'"parentUuid"'))


def _is_session_row(row: Row | None) -> bool:
    if row is None:
        return False
    kind = row.get("type")
    if kind == "summary":
        return isinstance(row.get("leafUuid"), str)
    if kind == "file-history-snapshot":
        return isinstance(row.get("messageId"), str)
    return isinstance(kind, str) and kind in _ENVELOPED and isinstance(row.get("sessionId"), str)


def read(stream: BinaryIO, *, name: str, under: str) -> Iterator[Document | Skipped]:
    """Yield the sessions in `stream`, then what was not taken.

    `name` is the file's name with or without folders, `under` the folder prefix
    for the transcripts. A fork carries its parent's turns, under the same uuids (`Passage.origin`): both are kept
    whole, so that adding one file alone gives what adding all gave; recall shows such a turn once.

    Raises:
        PathError: `under` breaks a rule of the path gate.
    """
    file = PurePosixPath(name.replace("\\", "/")).name
    if file in _NOT_SESSIONS:
        yield Skipped(name, _NOT_SESSIONS[file])
        return
    reader = _Reader(file)
    for line in _lines(stream, reader.skipped):
        reader.take(line)
    for session in reader.sessions():
        if session.turns:
            yield render(session, under)
    if not reader.builders:
        yield Skipped(name, "no session in it")
    yield from (Skipped(name, f"{count:,} {reason}") for reason, count in reader.skipped.most_common())


class _Tally(Counter[str]):
    """How often each reason to skip applied; bounded, since reasons quote the file."""

    def add(self, reason: str, count: int = 1) -> None:
        if reason not in self and len(self) >= REASONS_MAX:
            reason = "things skipped for still other reasons"
        if count:
            self[reason] += count


def _lines(stream: BinaryIO, skipped: _Tally) -> Iterator[bytes]:
    r"""Yield the non-blank lines, split at `\n` only, without byte order mark; read past those over the cap."""
    first = True
    while line := stream.readline(LINE_BYTES_MAX + 1):
        if len(line) > LINE_BYTES_MAX and not line.endswith(b"\n"):
            _read_past(stream)
            skipped.add(f"lines longer than {LINE_BYTES_MAX >> 20} MiB")
            line = b""
        line = line.removeprefix(b"\xef\xbb\xbf") if first else line
        first = False
        if line.strip():
            yield line


def _read_past(stream: BinaryIO) -> None:
    while (chunk := stream.readline(_CHUNK_BYTES)) and not chunk.endswith(b"\n"):
        pass


def _parse(line: bytes) -> Row | None:
    """Return the JSON object on `line`, or None; invalid UTF-8 in it becomes U+FFFD."""
    try:
        value = json.loads(line.decode("utf-8", "replace"), strict=False)  # raw VT and FF occur
    except (ValueError, RecursionError):  # RecursionError: nested thousands deep
        return None
    return value if isinstance(value, dict) else None


class _Piece(NamedTuple):
    """What one content block gives to show."""

    speaker: str
    note: str
    text: str
    key: str = ""
    """The id of a tool call: a block that comes again under it is a rewrite."""


@dataclass(slots=True)
class _Slot:
    """A turn in the making."""

    speaker: str
    note: str
    sidechain: bool
    node: int
    """Index of its first record in the tree, or -1."""
    origin: str | None
    time: datetime | None
    rows: dict[int, list[_Piece]] = field(default_factory=dict)
    """By record, so that a repeated record replaces its own content only."""

    def put(self, row: int, pieces: list[_Piece]) -> None:
        """Take what record `row` shows, less what another record of the turn has already shown."""
        fresh = [piece for piece in pieces if not self._rewrites(row, piece)]
        if fresh:
            self.rows[row] = fresh

    def _rewrites(self, row: int, piece: _Piece) -> bool:
        """Tell whether `piece` is an earlier one again, and keep the fuller (of a tool call: the later) of the two."""
        for key, held in islice(reversed(self.rows.items()), _REWRITE_WINDOW):
            for index in range(max(0, len(held) - _REWRITE_WINDOW), len(held) if key != row else 0):
                if _same_block(held[index], piece):
                    if piece.key or len(piece.text) > len(held[index].text):
                        held[index] = piece
                    return True
        return False

    def text(self) -> str:
        return "\n\n".join(piece.text for pieces in self.rows.values() for piece in pieces)


def _same_block(old: _Piece, new: _Piece) -> bool:
    if old.key or new.key:
        return old.key == new.key
    return old.text.startswith(new.text) or new.text.startswith(old.text)


class _Tree:
    """The parent links of all records, and which branches were left."""

    _UNKNOWN, _WALKING, _ACTIVE, _BESIDE, _REWOUND, _ELSEWHERE = range(6)

    def __init__(self) -> None:
        self._index: dict[int, int] = {}
        self._parents = array("Q")
        self._groups: list[int | None] = []
        self._leaf = -1

    def __contains__(self, uuid: str) -> bool:
        return _hash(uuid) in self._index

    def add(self, uuid: str, parent: str | None) -> int:
        """Return the record's index; a uuid seen again keeps its first parent."""
        index = self._index.setdefault(_hash(uuid), len(self._parents))
        if index == len(self._parents):
            self._parents.append(_hash(parent) if parent else 0)
            self._groups.append(None)
        return index

    def say(self, index: int, group: int) -> None:
        """Note that record `index` is speech of the main conversation; lines of one message share a group."""
        self._groups[index] = group
        self._leaf = index

    def rewound(self) -> bytearray:
        """Return a flag per record: it, or something said on its way to the active branch, was left behind."""
        state = bytearray(len(self._parents))
        active = list(self._active())
        for index in active:
            state[index] = self._ACTIVE
        groups = {self._groups[index] for index in active}
        for index in range(len(state)):
            self._settle(index, state, groups)
        return bytearray(value == self._REWOUND for value in state)

    def _parent(self, index: int) -> int:
        return self._index.get(self._parents[index], -1)

    def _active(self) -> Iterator[int]:
        visited = set()
        index = self._leaf
        while index >= 0 and index not in visited:
            visited.add(index)
            yield index
            index = self._parent(index)

    def _settle(self, index: int, state: bytearray, active_groups: set[int | None]) -> None:
        trail = []
        while index >= 0 and state[index] == self._UNKNOWN:
            state[index] = self._WALKING
            trail.append(index)
            index = self._parent(index)
        ended = index < 0 or state[index] == self._WALKING  # a root of its own, or a cycle
        below = self._ELSEWHERE if ended else state[index]
        for index in reversed(trail):
            said = self._groups[index] is not None and self._groups[index] not in active_groups
            if said and below != self._ELSEWHERE:
                below = self._REWOUND
            elif below == self._ACTIVE:
                below = self._BESIDE
            state[index] = below


class _Builder:
    """One session in the making."""

    def __init__(self, session_id: str, slug_hint: str | None) -> None:
        self.id = session_id
        self.slug_hint = slug_hint
        self.tree = _Tree()
        self.slots: dict[tuple[int, str, str], _Slot] = {}
        self.titles: dict[str, str] = {}
        self.details: dict[str, str] = {}
        self.models: dict[str, None] = {}
        self.prompt: str | None = None
        self.first: tuple[str, datetime | None] | None = None
        """Text and time of the first turn as first read: they make the path."""
        self._clock: datetime | None = None
        self._unnamed = count(1)

    def link(self, row: Row) -> int:
        """Take in where `row` hangs; return its index in the tree, or -1 when it has no uuid."""
        self._clock = _time(row.get("timestamp")) or self._clock
        uuid = _text(row, "uuid")
        return self.tree.add(uuid, _text(row, "parentUuid") or _text(row, "logicalParentUuid")) if uuid else -1

    def take(self, row: Row, group: str, pieces: list[_Piece]) -> None:
        """Add what `row` shows to the turns of its `group`: its message id, or its own uuid."""
        node = self.link(row)
        self._note_details(row)
        row_key = node if node >= 0 else -next(self._unnamed)
        group_key = _hash(group) if group else row_key
        for speaker, note in dict.fromkeys((piece.speaker, piece.note) for piece in pieces):
            slot = self._slot(row, node, (group_key, speaker, note))
            slot.put(row_key, [piece for piece in pieces if (piece.speaker, piece.note) == (speaker, note)])
        if node >= 0 and not _sidechain(row) and any(piece.speaker in _SPOKEN for piece in pieces):
            self.tree.say(node, group_key)
        self._note_first(pieces)

    def _slot(self, row: Row, node: int, key: tuple[int, str, str]) -> _Slot:
        slot = self.slots.get(key)
        if slot is None:
            slot = _Slot(key[1], key[2], _sidechain(row), node, _text(row, "uuid"), _time(row.get("timestamp")))
            self.slots[key] = slot
        return slot

    def _note_details(self, row: Row) -> None:
        for key, shown in _DETAILS.items():
            if value := _text(row, key):
                self.details.setdefault(shown, one_line(value))
        message = row.get("message")
        model = _text(message, "model") if isinstance(message, dict) else None
        if model and model != "<synthetic>" and len(self.models) < _MODELS_MAX:
            self.models[one_line(model)] = None

    def _note_first(self, pieces: list[_Piece]) -> None:
        if pieces and self.first is None:
            self.first = (_slug_text(pieces[0]), self._clock)
        if self.prompt is None:
            self.prompt = next((p.text[:2000] for p in pieces if p.speaker == "user" and not p.note), None)

    def session(self, summaries: dict[str, str]) -> Session:
        slug_text, started = self.first or (None, None)
        rewound = self.tree.rewound()
        turns = tuple(_turn(slot, rewound) for slot in self.slots.values())
        return Session(
            id=self.id,
            title=self._title(summaries),
            source=SOURCE,
            turns=turns,
            started=started,
            slug=" ".join(filter(None, (self.slug_hint, slug_text))),
            participants=tuple(sorted({turn.speaker for turn in turns} & _SPOKEN, reverse=True)),
            details=tuple(self._details()),
        )

    def _title(self, summaries: dict[str, str]) -> str:
        for kind in _TITLES:
            if kind in self.titles:
                return self.titles[kind]
        own = [text for leaf, text in summaries.items() if leaf in self.tree]
        return own[-1] if own else self.prompt or self._first_text()

    def _first_text(self) -> str:
        return next(iter(self.slots.values())).text() if self.slots else ""

    def _details(self) -> Iterator[tuple[str, str]]:
        yield from self.details.items()
        if self.models:
            yield "model", ", ".join(self.models)


def _slug_text(piece: _Piece) -> str:
    return "continued" if piece.speaker == "summary" else piece.text[:200]


def _turn(slot: _Slot, rewound: bytearray) -> Turn:
    left = slot.node >= 0 and not slot.sidechain and rewound[slot.node]
    notes = (slot.note, "sidechain" if slot.sidechain else "", "rewound" if left else "")
    note = ", ".join(filter(None, notes)) or None
    return Turn(slot.speaker, slot.text(), slot.time, slot.origin, note)


class _Reader:
    """One file's records, shared out to its sessions."""

    def __init__(self, file: str) -> None:
        stem = file.rpartition(".")[0] or file
        self._stem = stem
        self._agent = stem if _AGENT_FILE.fullmatch(stem) else None
        self._current = stem.lower() if _FILE_ID.fullmatch(stem) else None
        self._fixed = self._current is not None
        self.builders: dict[str, _Builder] = {}
        self.summaries: dict[str, str] = {}
        self.titles: dict[str, str] = {}
        self.skipped = _Tally()

    def take(self, line: bytes) -> None:
        """Take in one line, or count why not."""
        row = _parse(line)
        if row is None:
            self.skipped.add("lines that are not a JSON object (garbage, or cut off)")
            return
        kind = _text(row, "type") or ""
        if kind == "summary":
            self._summary(row)
        elif kind in _TITLES:
            self._title(row, kind)
        else:
            self._record(row, kind)

    def sessions(self) -> Iterator[Session]:
        """Yield the sessions in which something is said."""
        for builder in self.builders.values():
            for kind, title in self.titles.items():
                builder.titles.setdefault(kind, title)
            if builder.slots:
                yield builder.session(self.summaries)
            else:
                self.skipped.add("sessions in which nothing is said")
        foreign = [leaf for leaf in self.summaries if not any(leaf in b.tree for b in self.builders.values())]
        self.skipped.add("summaries of other sessions", len(foreign))

    def _summary(self, row: Row) -> None:
        leaf, text = _text(row, "leafUuid"), _text(row, "summary")
        if leaf and text:
            self.summaries.pop(leaf, None)
            self.summaries[leaf] = one_line(text)

    def _title(self, row: Row, kind: str) -> None:
        if text := one_line(_text(row, _TITLES[kind]) or ""):
            titles = self._builder(row).titles if self._fixed or _text(row, "sessionId") else self.titles
            titles[kind] = text

    def _record(self, row: Row, kind: str) -> None:
        if kind not in _SPOKEN and not _text(row, "sessionId"):
            self.skipped.add(_row_reason(row))
            return
        builder, pieces = self._builder(row), list(_pieces(row, self.skipped))
        if pieces:
            builder.take(row, _group(row), pieces)
        else:
            builder.link(row)
        if not pieces and kind not in _SPOKEN:
            self.skipped.add(_row_reason(row))

    def _builder(self, row: Row) -> _Builder:
        key = self._session_id(row)
        if key not in self.builders:
            self.builders[key] = _Builder(key, "agent" if self._agent else None)
        return self.builders[key]

    def _session_id(self, row: Row) -> str:
        named = row.get("sessionId")
        if not self._fixed and named != self._current and isinstance(named, str):
            self._current = one_line(named) or self._current
        current = self._current or self._stem
        return f"{current}/{self._agent}" if self._agent else current


def _row_reason(row: Row) -> str:
    kind, subtype = row.get("type"), row.get("subtype")
    if not isinstance(kind, str):
        return "rows without a type"
    return f"rows of type {one_line(kind, 40)}" + (f"/{one_line(subtype, 40)}" if isinstance(subtype, str) else "")


def _group(row: Row) -> str:
    """Return what the lines of one turn share: an assistant's message id, or the record's own uuid."""
    message = row.get("message")
    shared = _text(message, "id") if row.get("type") == "assistant" and isinstance(message, dict) else None
    attachment = row.get("attachment")
    queued = _text(attachment, "source_uuid") if isinstance(attachment, dict) else None
    return f"message {shared}" if shared else queued or _text(row, "uuid") or ""


def _pieces(row: Row, skipped: _Tally) -> Iterator[_Piece]:
    """Yield what `row` shows, in order."""
    message = row.get("message")
    content = message.get("content") if isinstance(message, dict) else None
    if row.get("type") == "assistant":
        yield from _assistant(row, content, skipped)
    elif row.get("type") == "user":
        yield from _user(row, content, skipped)
    elif row.get("type") == "attachment":
        yield from _queued(row, skipped)


def _blocks(content: object, skipped: _Tally) -> Iterator[Row]:
    if isinstance(content, str):
        content = [content]
    if not isinstance(content, list):
        skipped.add("messages without content")
        return
    for block in content:
        if isinstance(block, str):
            yield {"type": "text", "text": block}
        elif isinstance(block, dict):
            yield block
        else:
            skipped.add("content blocks of a wrong type")


def _assistant(row: Row, content: object, skipped: _Tally) -> Iterator[_Piece]:
    message = row.get("message")
    if row.get("isApiErrorMessage") or (isinstance(message, dict) and message.get("model") == "<synthetic>"):
        skipped.add("messages made by the client (API errors and the like)")
        return
    for block in _blocks(content, skipped):
        kind = block.get("type")
        text, key = _shown(block), ""
        if kind in ("tool_use", "server_tool_use"):
            text, key = _tool_use(block), _text(block, "id") or ""
        if text is None:
            skipped.add(_block_reason(kind))
        elif text := _trimmed(text):
            yield _Piece("assistant", "", text, key)
        else:
            skipped.add("empty texts")


def _user(row: Row, content: object, skipped: _Tally) -> Iterator[_Piece]:
    for block in _blocks(content, skipped):
        if block.get("type") == "tool_result":
            yield _Piece("tool", "", _tool_result(block), _text(block, "tool_use_id") or "")
        elif (text := _shown(block)) is None:
            skipped.add(_block_reason(block.get("type")))
        else:
            yield from _speech(row, text, skipped)


def _queued(row: Row, skipped: _Tally) -> Iterator[_Piece]:
    """Yield a prompt typed while the model worked; the client keeps it as an attachment."""
    attachment = row.get("attachment")
    if not isinstance(attachment, dict) or attachment.get("type") != "queued_command":
        return
    marks = {**row, **{key: attachment[key] for key in ("isMeta", "origin") if key in attachment}}
    if attachment.get("commandMode") not in (None, "prompt"):
        marks["origin"] = {"kind": attachment.get("commandMode")}
    for block in _blocks(attachment.get("prompt"), skipped):
        yield from _speech(marks, _shown(block) or "", skipped)


def _speech(row: Row, raw: str, skipped: _Tally) -> Iterator[_Piece]:
    """Yield the text of a `user` record by who really says it."""
    text = _trimmed(raw)
    if row.get("isCompactSummary") or text.startswith(_CONTINUED):
        yield _Piece("summary", "compaction", text)
        return
    if row.get("isMeta") or row.get("isVisibleInTranscriptOnly") or text.startswith(_MACHINERY):
        skipped.add("texts that the client gave to the model (reminders, hooks, caveats, command output)")
        return
    text = _without_reminders(text).strip()
    if not text:
        skipped.add("empty texts")
    elif text.startswith(_EVENTS) or not _from_person(row):
        yield _Piece("system", "injected", _clip(text, RESULT_CHARS_MAX))
    elif text.startswith(("<command-name>", "<command-message>", "<bash-input>")):
        yield from _command(text, skipped)
    elif text.startswith(("<bash-stdout>", "<bash-stderr>")):
        yield _Piece("tool", "", _clip(_trimmed(re.sub(r"</?bash-std(?:out|err)>", "", text)), RESULT_CHARS_MAX))
    elif _sidechain(row):
        yield _Piece("assistant", "prompt", text)
    else:
        yield _Piece("user", "", text)


def _sidechain(row: Row) -> bool:
    return row.get("isSidechain") is True


def _from_person(row: Row) -> bool:
    origin = row.get("origin")
    return not isinstance(origin, dict) or origin.get("kind") in (None, "human", "prompt")


def _command(text: str, skipped: _Tally) -> Iterator[_Piece]:
    """Yield `/name args` or `! command` out of the client's tags."""
    if text.startswith("<bash-input>"):
        yield _Piece("user", "command", f"! {_tagged(text, 'bash-input')}")
        return
    name, args = _tagged(text, "command-name"), _tagged(text, "command-args")
    name = name if name.startswith("/") else f"/{name}"
    if _HOUSEKEEPING.fullmatch(name):
        skipped.add("housekeeping commands (/clear and the like)")
        return
    yield _Piece("user", "command", f"{name} {args}".strip())


def _tagged(text: str, tag: str) -> str:
    return text.partition(f"<{tag}>")[2].partition(f"</{tag}>")[0].strip()


def _without_reminders(text: str) -> str:
    """Cut out the `<system-reminder>` spans that the client puts into messages and tool results."""
    kept, start = [], 0
    while (opened := text.find("<system-reminder>", start)) >= 0:
        closed = text.find("</system-reminder>", opened)
        if closed < 0:
            break
        kept.append(text[start:opened])
        start = closed + len("</system-reminder>")
    return "".join([*kept, text[start:]])


def _shown(block: Row) -> str | None:
    """Return the text of a text block or the marker of a payload; None for a kind that is not shown."""
    kind = block.get("type")
    if kind == "text":
        return _text(block, "text") or ""
    if kind in ("image", "document"):
        return _payload(block, str(kind))
    return None


def _payload(block: Row, kind: str) -> str:
    source = block.get("source")
    source = source if isinstance(source, dict) else {}
    subtype = (_text(source, "media_type") or "").rpartition("/")[2]
    data = _text(source, "data")
    size = _size(len(data.rstrip("=")) * 3 // 4) if data and source.get("type") == "base64" else ""
    return "[" + " ".join(filter(None, (kind, one_line(subtype, 20)))) + (f", {size}]" if size else "]")


def _size(count_bytes: int) -> str:
    return f"{count_bytes} B" if count_bytes < 1000 else f"{round(count_bytes / 1000):,} kB"


def _block_reason(kind: object) -> str:
    if kind in ("thinking", "redacted_thinking"):
        return "thinking blocks"
    return f"content blocks of type {one_line(kind, 40)}" if isinstance(kind, str) else "content blocks of a wrong type"


def _tool_use(block: Row) -> str:
    """Return one line: `→ Bash: git status`."""
    name = one_line(_text(block, "name") or "tool", 80)
    argument = _argument(block.get("input"))
    return f"→ {name}: {argument}" if argument else f"→ {name}"


def _argument(given: object) -> str:
    """Return the argument that tells most: a known one, else the first text, else the names with their sizes."""
    if not isinstance(given, dict):
        return ""
    texts = {key: value for key, value in given.items() if isinstance(value, str) and value.strip()}
    key = next((key for key in _ARGUMENTS if key in texts), next(iter(texts), None))
    if key is None:
        return one_line(", ".join(f"{name}={_scalar(value)}" for name, value in list(given.items())[:5]))
    return _clip(" ".join(texts[key].split()), ARGUMENT_CHARS_MAX)


def _scalar(value: object) -> str:
    return f"[{len(value)}]" if isinstance(value, (list, dict)) else str(value)[:40]


def _tool_result(block: Row) -> str:
    """Return a tool's output, clipped, an error marked as such."""
    content = block.get("content")
    parts = content if isinstance(content, list) else [content]
    output = _without_reminders("\n".join(filter(None, map(_result_part, parts))))
    text = _clip(output.strip("\r\n").rstrip(), RESULT_CHARS_MAX) or "[no output]"
    return f"[error]\n{text}" if block.get("is_error") is True else text


def _result_part(part: object) -> str:
    if isinstance(part, str):
        return part
    if not isinstance(part, dict):
        return ""
    shown = _shown(part)
    return shown if shown is not None else f"[{one_line(_text(part, 'type') or 'unknown', 40)}]"


def _clip(text: str, chars_max: int) -> str:
    """Return the first `chars_max` characters of `text`, cleaned, and how many more there are; the rest is not."""
    room = 8 * chars_max
    head = clean(text[:room])
    left = len(head) + max(0, len(text) - room) - chars_max
    return head if left <= 0 else f"{head[:chars_max].rstrip()}… [{left:,} more characters left out]"


def _trimmed(text: str) -> str:
    return clean(text).strip()


def _text(row: Row, key: str) -> str | None:
    value = row.get(key)
    return value if isinstance(value, str) and value else None


def _hash(text: str) -> int:
    """Return 8 bytes of hash, as a number above 0."""
    digest = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "big") or 1


def _time(value: object) -> datetime | None:
    """Return a time in UTC: ISO with or without zone, or epoch in seconds or (above 1e11) milliseconds."""
    if isinstance(value, str):
        return _iso(value)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < 1e14:
        return None
    seconds = value / 1000 if value > 1e11 else value
    return datetime(1970, 1, 1, tzinfo=timezone.utc) + timedelta(seconds=seconds)


_FRACTION = re.compile(r"\.(\d{1,6})\d*")


def _iso(value: str) -> datetime | None:
    """Parse an ISO time also where Python 3.10 would not: `Z`, any number of decimals."""
    text = _FRACTION.sub(lambda match: "." + match[1].ljust(6, "0"), value[:60].strip(), count=1)
    try:
        time = datetime.fromisoformat(re.sub("[Zz]$", "+00:00", text))
        return (time if time.tzinfo else time.replace(tzinfo=timezone.utc)).astimezone(timezone.utc)
    except (ValueError, OverflowError):
        return None
