"""The values that pass in and out of the corpus: a document is its passages in order.

The concatenation of a document's passage bodies IS the file, byte for byte.
Sources produce `Document`s; the table stores one row per passage; readers get
`FileInfo` (what exists) and `FileBytes` (what it holds).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import NamedTuple

__all__ = [
    "MTIME_MAX",
    "Commit",
    "Document",
    "FileBytes",
    "FileInfo",
    "Passage",
    "Skipped",
    "StoredFile",
    "batches",
    "nanoseconds",
]

BATCH_BYTES = 4 << 20
BATCH_FILES = 2_000

MTIME_MAX = datetime(2250, 1, 1, tzinfo=timezone.utc)
"""From 2262 on, a time does not fit into 64 bits of nanoseconds, which file systems and the manifest count in."""


def nanoseconds(mtime: datetime) -> int:
    """Return a file time as file systems count it, whole microseconds."""
    return int(min(mtime, MTIME_MAX).timestamp() * 1_000_000) * 1_000


@dataclass(frozen=True, slots=True)
class Passage:
    """One stretch of a file that ends at a line end, and what search sees of it."""

    body: bytes
    """The file's bytes [start, end) of this passage."""
    text: str | None
    """The body as searchable text, without header; None where there is nothing to search (binary, markup only)."""
    anchor: str | None = None
    """`t12` for turn 12 of a transcript, a heading slug in a page."""
    event_time: datetime | None = None
    """UTC; when what it says happened, not when it was stored."""
    speaker: str | None = None
    """Who says it, in a transcript."""
    origin: str | None = None
    """The source's own id of this record: a `dia_id`, a message uuid."""


@dataclass(frozen=True, slots=True)
class Document:
    """One file to store. `passages` is not empty: an empty file has one passage with an empty body."""

    path: str
    passages: tuple[Passage, ...]
    kind: str
    """`file`, `transcript`, `note`, `page` or `summary`."""
    title: str
    source: str
    """Where it came from, for people: `claude-code:<session id>`, `file:notes/a.md`; never with credentials."""
    mtime: datetime
    """UTC; becomes the materialised file's modification time. Stored as at least 1970 and at most MTIME_MAX."""

    @property
    def size(self) -> int:
        """Bytes of the whole file."""
        return sum(len(p.body) for p in self.passages)

    def sha256(self) -> str:
        """Hex digest of the whole file."""
        digest = hashlib.sha256()
        for passage in self.passages:
            digest.update(passage.body)
        return digest.hexdigest()


@dataclass(frozen=True, slots=True)
class FileInfo:
    """A file that exists in a corpus version; its bytes may be elsewhere."""

    path: str
    size: int
    sha256: str
    mtime: datetime
    kind: str
    title: str
    source: str
    event_time: datetime | None
    """Of its first passage that has one."""


class StoredFile(NamedTuple):
    """The little that is to be known of every file of a large corpus: twenty times as fast to make as a `FileInfo`."""

    sha256: str
    size: int
    mtime_ns: int


@dataclass(frozen=True, slots=True)
class FileBytes:
    """A whole file, its hash already checked."""

    path: str
    data: bytes
    sha256: str
    mtime: datetime


@dataclass(frozen=True, slots=True)
class Skipped:
    """Something that was not taken, and why: never dropped in silence."""

    name: str
    reason: str


@dataclass(frozen=True, slots=True)
class Commit:
    """What one commit did. `version` is the corpus version that readers now see."""

    version: int
    added: int
    replaced: int
    deleted: int
    unchanged: int
    passages: int
    """Rows written."""
    refused: tuple[Skipped, ...] = ()


def batches(documents: Iterable[Document]) -> Iterator[list[Document]]:
    """Yield the documents in lists of at most some 4 MB, in order: one at a time is prepared and committed."""
    batch: list[Document] = []
    size = 0
    for document in documents:
        batch.append(document)
        size += document.size
        if size >= BATCH_BYTES or len(batch) >= BATCH_FILES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch
