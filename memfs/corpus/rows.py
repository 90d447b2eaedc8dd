"""Documents to Arrow rows, and back: the only place that knows both."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone

import pyarrow as pa

from memfs import paths
from memfs.corpus import searchable
from memfs.corpus.embed import Embedder
from memfs.corpus.records import MTIME_MAX, Document, FileBytes, FileInfo
from memfs.corpus.schema import HISTORY, TOMBSTONE
from memfs.errors import CorruptError

__all__ = [
    "CONTENT_COLUMNS",
    "FILE_COLUMNS",
    "Known",
    "checked",
    "documents_to_rows",
    "file_infos",
    "known_files",
    "mixed_files",
    "rows_to_files",
    "tombstones",
    "whole_files",
]

_EPOCH = datetime.fromtimestamp(0, tz=timezone.utc)
FILE_COLUMNS = ["path", "seq", "file_sha256", "file_size", "mtime", "kind", "title", "source", "event_time"]

CONTENT_COLUMNS = ["path", "seq", "body", "file_sha256", "file_size", "mtime", "kind"]


@dataclass(frozen=True, slots=True)
class Known:
    """What the table holds under one path key, before a commit."""

    path: str
    sha256: str
    rows: int
    """Tombstones included: the rows that a replacement has to cover."""
    live: bool


def documents_to_rows(documents: Sequence[Document], embedder: Embedder, schema: pa.Schema) -> pa.Table:
    """Return the rows of `documents`, embedded, in path order then `seq`."""
    ordered = sorted(documents, key=lambda d: d.path)
    columns: dict[str, list[object]] = {field.name: [] for field in schema if field.name != "vector"}
    terms = searchable.terms(ordered)
    for document in ordered:
        _append(columns, document, terms)
    vectors = _vectors(ordered, embedder)
    arrays = [pa.array(columns[field.name], field.type) for field in schema if field.name != "vector"]
    return pa.Table.from_arrays([*arrays, vectors], schema=schema)


def _append(columns: dict[str, list[object]], document: Document, terms: Iterator[str | None]) -> None:
    sha256, size, key = bytes.fromhex(document.sha256()), document.size, paths.fold(document.path)
    start = 0
    for seq, passage in enumerate(document.passages):
        row: dict[str, object] = {
            "id": f"{document.path}#{seq}",
            "path": document.path,
            "path_key": key,
            "seq": seq,
            "start": start,
            "body": passage.body,
            "text": searchable.text(document, passage),
            "terms": next(terms),
            "anchor": passage.anchor,
            "speaker": passage.speaker,
            "origin": passage.origin,
            "event_time": passage.event_time,
            "kind": document.kind,
            "title": document.title,
            "source": document.source,
            "mtime": min(max(document.mtime, _EPOCH), MTIME_MAX),
            "file_sha256": sha256,
            "file_size": size,
        }
        for name, value in row.items():
            columns[name].append(value)
        start += len(passage.body)


def _vectors(documents: Sequence[Document], embedder: Embedder) -> pa.Array:
    """Embed all documents' passages in one call; a conversation's turns are mixed with their neighbours."""
    import numpy as np

    texts = [text for document in documents for text in searchable.embedded(document)]
    mask = np.asarray([text is not None for text in texts], dtype=bool)
    full = np.zeros((len(texts), embedder.dimensions), dtype=np.float32)
    full[mask] = embedder.embed([text for text in texts if text is not None])
    at = 0
    for document in documents:
        end = at + len(document.passages)
        turns = at + searchable.first_turn(document)
        full[turns:end] = searchable.mix(full[turns:end])
        at = end
    # A text without a known token has no direction: no vector, rather than one that is nearest to everything.
    mask &= full.any(axis=1)
    return pa.FixedSizeListArray.from_arrays(pa.array(full.ravel()), embedder.dimensions, mask=pa.array(~mask))


def tombstones(known: Iterable[tuple[Known, int]], schema: pa.Schema) -> pa.Table:
    """Return a tombstone for each row of the known files from `seq` on: the pairs are (file, first seq to bury)."""
    now = datetime.now(timezone.utc)
    buried = [(file, seq) for file, first in known for seq in range(first, file.rows)]
    blank: dict[str, list[object]] = {
        "id": [f"{file.path}#{seq}" for file, seq in buried],
        "path": [file.path for file, _ in buried],
        "path_key": [paths.fold(file.path) for file, _ in buried],
        "seq": [seq for _, seq in buried],
        "start": [0] * len(buried),
        "body": [b""] * len(buried),
        "kind": [TOMBSTONE] * len(buried),
        "title": [""] * len(buried),
        "source": [""] * len(buried),
        "mtime": [now] * len(buried),
        "file_sha256": [bytes(32)] * len(buried),
        "file_size": [0] * len(buried),
    }
    nothing = [None] * len(buried)
    return pa.Table.from_arrays([pa.array(blank.get(f.name, nothing), f.type) for f in schema], schema=schema)


def known_files(rows: pa.Table) -> dict[str, Known]:
    """Group rows (path, path_key, seq, file_sha256, kind) into one `Known` per path key.

    A file that is not whole has no hash: adding it again replaces it.
    """
    found: dict[str, Known] = {}
    for row in rows.to_pylist():
        key, live = row["path_key"], row["kind"] != TOMBSTONE
        before = found.get(key)
        if before is None:
            found[key] = Known(row["path"], row["file_sha256"].hex(), row["seq"] + 1, live)
        else:
            sha256 = row["file_sha256"].hex() if live else before.sha256
            path = row["path"] if live else before.path
            found[key] = Known(path, sha256, max(before.rows, row["seq"] + 1), live or before.live)
    return found | {key: replace(found[key], sha256="") for key in mixed_files(rows)}


def mixed_files(rows: pa.Table) -> set[str]:
    """Return the path keys, of rows (path_key, seq, file_sha256, kind), that two writers left as no one's file.

    A row is doubled, or the live ones are of two versions, or do not count from 0 up.
    """
    found: dict[str, list[tuple[int, bytes, bool]]] = {}
    for row in rows.to_pylist():
        found.setdefault(row["path_key"], []).append((row["seq"], row["file_sha256"], row["kind"] != TOMBSTONE))
    return {key for key, parts in found.items() if _is_mixed(parts)}


def _is_mixed(parts: list[tuple[int, bytes, bool]]) -> bool:
    live = sorted((seq, sha256) for seq, sha256, is_live in parts if is_live)
    doubled = len({seq for seq, _, _ in parts}) < len(parts)
    return doubled or len({sha256 for _, sha256 in live}) > 1 or [seq for seq, _ in live] != list(range(len(live)))


def rows_to_files(rows: pa.Table) -> dict[str, FileBytes]:
    """Join rows (path, seq, body, file_sha256, mtime) into whole files, each checked against its hash.

    Raises:
        CorruptError: a file's bodies do not hash to its `file_sha256`.
    """
    bodies: dict[str, list[tuple[int, bytes, bytes, datetime]]] = {}
    columns = (rows.column(name).to_pylist() for name in ("path", "seq", "body", "file_sha256", "mtime"))
    for path, seq, body, sha256, mtime in zip(*columns, strict=True):
        bodies.setdefault(path, []).append((seq, body, sha256, mtime))
    return {path: _join(path, parts) for path, parts in bodies.items()}


def whole_files(batches: Iterable[pa.RecordBatch]) -> Iterator[FileBytes]:
    """Join rows with CONTENT_COLUMNS into whole files, each yielded when its last byte has come, hash-checked.

    A damaged file, or one of which a passage is missing, is left out. A file's rows lie
    together, but for files that were replaced: only those wait in memory.
    """
    open_files: dict[str, dict[int, bytes]] = {}
    received: dict[str, int] = {}
    for batch in batches:
        columns = (batch.column(name).to_pylist() for name in CONTENT_COLUMNS)
        for path, seq, body, sha256, size, mtime, kind in zip(*columns, strict=True):
            if kind in (TOMBSTONE, HISTORY):
                continue
            open_files.setdefault(path, {})[seq] = body
            received[path] = received.get(path, 0) + len(body)
            if received[path] == size:
                parts = open_files.pop(path)
                data = b"".join(parts[at] for at in sorted(parts))
                if hashlib.sha256(data).digest() == sha256:
                    yield FileBytes(path, data, sha256.hex(), mtime)


def _join(path: str, parts: list[tuple[int, bytes, bytes, datetime]]) -> FileBytes:
    parts.sort(key=lambda part: part[0])
    return checked(path, b"".join(body for _, body, _, _ in parts), parts[0][2].hex(), parts[0][3])


def checked(path: str, data: bytes, sha256: str, mtime: datetime) -> FileBytes:
    """Return the file if `data` hashes to `sha256`.

    Raises:
        CorruptError: it does not.
    """
    if hashlib.sha256(data).hexdigest() != sha256:
        raise CorruptError(
            f"{path}: its stored bytes do not match its hash",
            hint="read an older version (memfs export --at N), or add the file again from its source",
        )
    return FileBytes(path, data, sha256, mtime)


def file_infos(rows: pa.Table) -> Iterator[FileInfo]:
    """Yield a `FileInfo` per row; rows are the first passages of files, with FILE_COLUMNS."""
    for row in rows.to_pylist():
        yield FileInfo(
            path=row["path"],
            size=row["file_size"],
            sha256=row["file_sha256"].hex(),
            mtime=row["mtime"],
            kind=row["kind"],
            title=row["title"],
            source=row["source"],
            event_time=row["event_time"],
        )
