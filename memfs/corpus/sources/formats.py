"""Which format a source file has, and the documents that it holds: the road that `add` and `push` share."""

from __future__ import annotations

from collections.abc import Iterator

from memfs import paths
from memfs.corpus.records import Document, Skipped
from memfs.corpus.sources import claude_code, files, locomo
from memfs.corpus.sources.discover import SourceFile

__all__ = ["FORMATS", "SURFACES", "read", "sniff", "target"]

FORMATS = ("auto", "files", "claude-code", "locomo")
SURFACES = ("sessions", "notes", "knowledge")
HEAD_BYTES = 64 << 10


def read(file: SourceFile, format: str, surface: str | None, under: str) -> Iterator[Document | Skipped]:
    """Yield the documents in `file`: itself below `notes/`, or the transcripts in it below `sessions/`.

    `surface` is another top folder, `under` a folder in it.

    Raises:
        OSError: it cannot be read.
        PathError: `under` breaks a rule of the gate.
    """
    chosen = sniff(file) if format == "auto" else format
    if chosen == "files":
        yield files.read(file, target("notes", surface, under) + file.name)
        return
    prefix = target("sessions", surface, under)
    with file.open() as stream:
        yield from (claude_code if chosen == "claude-code" else locomo).read(stream, name=file.name, under=prefix)


def sniff(file: SourceFile) -> str:
    """Return the format's name: a .jsonl or .json is looked into, everything else is `files`."""
    name = file.name.lower()
    if not name.endswith((".jsonl", ".json")):
        return "files"
    with file.open() as stream:
        head = stream.read(HEAD_BYTES)
    if name.endswith(".jsonl"):
        return "claude-code" if claude_code.sniff(head) else "files"
    return "locomo" if locomo.sniff(head) else "files"


def target(default_surface: str, surface: str | None, under: str) -> str:
    """Return the folder prefix that files go below: `under` inside the surface, or by itself a whole path."""
    inside = paths.prefix(under)
    if surface is None:
        return inside or f"{default_surface}/"
    return inside if inside.startswith(f"{surface}/") else f"{surface}/{inside}"
