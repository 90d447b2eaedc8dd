"""Any file, byte for byte: one document, cut into passages at line ends."""

from __future__ import annotations

import os

from memfs.corpus import split
from memfs.corpus.records import Document, Skipped
from memfs.corpus.sources.discover import SourceFile

__all__ = ["FILE_BYTES_MAX", "read"]

FILE_BYTES_MAX = 256 << 20
"""A file is held whole while it is stored, so that it is stored atomically."""

_KINDS = {"notes": "note", "knowledge": "page"}
_MARKDOWN = (".md", ".markdown", ".mdx")


def read(file: SourceFile, path: str) -> Document | Skipped:
    """Return the document at corpus path `path`, or why it was not taken."""
    if file.size > FILE_BYTES_MAX:
        return Skipped(file.name, f"larger than {FILE_BYTES_MAX >> 20} MiB")
    with file.open() as handle:
        data = handle.read(FILE_BYTES_MAX + 1)
    if len(data) > FILE_BYTES_MAX:
        return Skipped(file.name, f"larger than {FILE_BYTES_MAX >> 20} MiB")
    markdown = path.lower().endswith(_MARKDOWN)
    title, event_time = split.front_matter(data) if markdown else (None, None)
    return Document(
        path=path,
        passages=split.passages(data, markdown=markdown, event_time=event_time),
        kind=_kind(path),
        title=title or os.path.basename(path),
        source=f"file:{file.label}",
        mtime=file.mtime,
    )


def _kind(path: str) -> str:
    if path.startswith("sessions/") and path.endswith("/summary.md"):
        return "summary"
    return _KINDS.get(path.split("/", 1)[0], "file")
