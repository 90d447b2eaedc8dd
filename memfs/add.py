"""memfs add: bring files, trees and session transcripts into the corpus. Adding again changes nothing, and says so."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from memfs import paths
from memfs.corpus.records import Commit, Document, Skipped, batches
from memfs.corpus.sources.discover import discover
from memfs.corpus.sources.formats import FORMATS, SURFACES, read
from memfs.corpus.table import Corpus
from memfs.errors import InputError

__all__ = ["Added", "add"]

SKIPPED_KEPT_MAX = 1_000


@dataclass(frozen=True, slots=True)
class Added:
    """What an add did. Counts are of files in the corpus, but `sources`, of files read."""

    sources: int
    added: int
    replaced: int
    unchanged: int
    passages: int
    bytes: int
    """Of all files that were read and taken, unchanged ones included."""
    skipped: tuple[Skipped, ...]
    """The first 1,000; `skipped_count` counts all."""
    skipped_count: int
    version: int
    seconds: float
    dry_run: bool = False


@dataclass(slots=True)
class _Tally:
    sources: int = 0
    bytes: int = 0
    commits: list[Commit] = field(default_factory=list)
    skipped: list[Skipped] = field(default_factory=list)
    skipped_count: int = 0

    def skip(self, item: Skipped) -> None:
        self.skipped_count += 1
        if len(self.skipped) < SKIPPED_KEPT_MAX:
            self.skipped.append(item)

    def sum(self, name: str) -> int:
        return sum(getattr(commit, name) for commit in self.commits)


def add(
    corpus: Corpus,
    sources: Sequence[str],
    *,
    format: str = "auto",
    surface: str | None = None,
    under: str = "",
    dry_run: bool = False,
    progress: Callable[[int, int], None] = lambda files, bytes: None,
) -> Added:
    """Store what the sources hold, in atomic batches; a bad line or file is skipped and counted, never the end.

    `surface` is the top folder (default: `sessions` for transcripts, `notes` for files), `under` a folder in it.
    `progress` is called with the files and bytes taken so far.

    Raises:
        InputError: an unknown format or surface, or no source.
        NotFoundError, UnreachableError: a source cannot be listed.
    """
    if format not in FORMATS:
        raise InputError(f"unknown format {format!r}", hint=f"use one of: {', '.join(FORMATS)}")
    if surface is not None and surface not in SURFACES:
        raise InputError(f"unknown surface {surface!r}", hint=f"use one of: {', '.join(SURFACES)}")
    paths.prefix(under)
    started, tally = time.monotonic(), _Tally()
    documents = _taken(_documents(sources, format, surface, under, tally), tally, progress)
    if dry_run:
        tally.commits = [corpus.preview(batch) for batch in batches(documents)]
    else:
        with corpus.writing():
            tally.commits = list(corpus.commit_batches(batches(documents)))
    for commit in tally.commits:
        for refused in commit.refused:
            tally.skip(refused)
    return Added(
        sources=tally.sources,
        added=tally.sum("added"),
        replaced=tally.sum("replaced"),
        unchanged=tally.sum("unchanged"),
        passages=tally.sum("passages"),
        bytes=tally.bytes,
        skipped=tuple(tally.skipped),
        skipped_count=tally.skipped_count,
        version=corpus.version,
        seconds=time.monotonic() - started,
        dry_run=dry_run,
    )


def _documents(
    sources: Sequence[str], format: str, surface: str | None, under: str, tally: _Tally
) -> Iterator[Document | Skipped]:
    for source in sources:
        for found in discover(source):
            if isinstance(found, Skipped):
                yield found
                continue
            tally.sources += 1
            try:
                yield from read(found, format, surface, under)
            except OSError as error:
                yield Skipped(found.name, f"cannot be read: {error.strerror or error}")


def _taken(
    found: Iterable[Document | Skipped], tally: _Tally, progress: Callable[[int, int], None]
) -> Iterator[Document]:
    """Count, and keep the first of two documents of this run that would be the same file."""
    seen: set[int] = set()
    for item in found:
        if isinstance(item, Skipped):
            tally.skip(item)
            continue
        key = hash(paths.fold(item.path))
        if key in seen:
            tally.skip(Skipped(item.path, "another file of this run has the same name (case and Unicode form aside)"))
            continue
        seen.add(key)
        tally.bytes += item.size
        progress(len(seen), tally.bytes)
        yield item
