"""The `passages` table: one row per passage. A file is its passages in order of `seq`."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from memfs.corpus.terms import ANALYZER

__all__ = [
    "EMBEDDER_KEY",
    "FORMAT",
    "FORMAT_KEY",
    "HISTORY",
    "LIVE",
    "TABLE",
    "TOMBSTONE",
    "is_live",
    "schema",
]

TABLE = "passages"
FORMAT = 1
FORMAT_KEY = b"memfs.format"
EMBEDDER_KEY = b"memfs.embedder"
ANALYZER_KEY = b"memfs.analyzer"

TOMBSTONE = "tombstone"
"""The `kind` of a row that is no more: of a deleted file, or the old tail of one that shrank. `maintain` sweeps it."""

HISTORY = "history"
"""The `kind` of the Brain's Git history: it travels in the same commits as the pages, and is no file for readers."""
LIVE = f"kind NOT IN ('{TOMBSTONE}', '{HISTORY}')"
"""The rows of the files that exist, as a filter."""

_PRIMARY_KEY = {b"lance-schema:unenforced-primary-key": b"true"}
"""Declared at creation: without it, concurrent upserts of the same new ids duplicate them in silence."""


def is_live(kinds: Any) -> Any:
    """Return which rows are of files that exist, for an Arrow column of kinds."""
    return pc.invert(pc.is_in(kinds, pa.array([TOMBSTONE, HISTORY])))


def schema(dimensions: int, embedder: str) -> pa.Schema:
    """Return the Arrow schema of a corpus whose vectors are float32[`dimensions`] made by `embedder`."""
    utc = pa.timestamp("us", tz="UTC")
    fields = [
        pa.field("id", pa.string(), nullable=False, metadata=_PRIMARY_KEY),  # path#seq. BTREE
        pa.field("path", pa.string(), nullable=False),  # below memory/, NFC, has passed the path gate
        pa.field("path_key", pa.string(), nullable=False),  # paths.fold(path): equal means the same file. BTREE
        pa.field("seq", pa.int32(), nullable=False),  # 0-based order in the file
        pa.field("start", pa.int64(), nullable=False),  # offset of the passage's first byte in the file
        pa.field("body", pa.large_binary(), nullable=False),  # the file's bytes of this passage
        pa.field("text", pa.large_string()),  # context header + body as text, no NUL; null for binary
        pa.field("terms", pa.large_string()),  # memfs.corpus.terms of it, joined by spaces. FTS
        pa.field("anchor", pa.string()),  # t12 in a transcript, a heading slug in a page
        pa.field("speaker", pa.string()),  # in a transcript
        pa.field("origin", pa.string()),  # the source's own id: dia_id, message uuid
        pa.field("event_time", utc),  # when what it says happened
        pa.field("kind", pa.string(), nullable=False),  # file, transcript, note, page, summary, tombstone, history
        pa.field("title", pa.string(), nullable=False),
        pa.field("source", pa.string(), nullable=False),
        pa.field("mtime", utc, nullable=False),
        pa.field("file_sha256", pa.binary(32), nullable=False),
        pa.field("file_size", pa.int64(), nullable=False),
        pa.field("vector", pa.list_(pa.float32(), dimensions)),  # unit norm; null where text is null
    ]
    metadata = {FORMAT_KEY: b"%d" % FORMAT, EMBEDDER_KEY: embedder.encode(), ANALYZER_KEY: b"%d" % ANALYZER}
    return pa.schema(fields, metadata=metadata)
