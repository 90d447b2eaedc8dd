"""Is every file of a corpus whole? Found from the columns beside the bodies, which are a hundredth of the bytes.

A file is whole when its live rows are `seq` 0 to n-1, once each, all of one version.
A last passage that is missing shows only in the bodies: they no longer hash to the file.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from memfs.corpus.records import FileInfo
from memfs.corpus.schema import TOMBSTONE, is_live
from memfs.corpus.table import Corpus
from memfs.errors import CorruptError

__all__ = ["Audit", "Broken", "audit", "mend", "restore"]

COLUMNS = ["id", "path", "path_key", "seq", "start", "kind", "file_sha256", "file_size"]
READ_ANYWAY_BYTES = 32 << 20
"""So small a corpus is read whole without being asked."""
BATCH_BYTES = 64 << 20
VERSIONS_MAX = 50


@dataclass(frozen=True, slots=True)
class Broken:
    """A file that is not whole, and why."""

    path: str
    reason: str


@dataclass(frozen=True, slots=True)
class Audit:
    """What one version of a corpus looks like."""

    version: int
    files: int
    passages: int
    bytes: int
    """Of the files."""
    bytes_read: int
    """Of their bodies, hashed; 0 where only the other columns were read."""
    tombstones: int
    doubled: tuple[str, ...]
    """Paths with an id that is there twice."""
    broken: tuple[Broken, ...]
    """Of the rest, those that are not whole."""


def audit(corpus: Corpus, *, deep: bool) -> Audit:
    """Check every file; the bodies too with `deep`, or where they are few."""
    rows = corpus.every_row(COLUMNS)
    live = rows.filter(pc.not_equal(rows["kind"], TOMBSTONE))
    doubled = _doubled(rows)
    shown = live.filter(is_live(live["kind"]))
    first = shown.filter(pc.equal(shown["seq"], 0))
    size = int(pc.sum(first["file_size"]).as_py() or 0)
    broken = {path: reason for path, reason in _not_whole(live) if path not in doubled}
    read = 0
    if deep or size <= READ_ANYWAY_BYTES:
        whole = [info for info in corpus.files() if info.path not in doubled and info.path not in broken]
        read = sum(info.size for info in whole)
        broken |= dict(_unlike_hash(corpus, whole))
    return Audit(
        version=corpus.version,
        files=pc.count_distinct(shown["path"]).as_py(),
        passages=len(shown),
        bytes=size,
        bytes_read=read,
        tombstones=len(rows) - len(live),
        doubled=tuple(sorted(doubled)),
        broken=tuple(Broken(path, broken[path]) for path in sorted(broken)),
    )


def _doubled(rows: pa.Table) -> set[str]:
    counts = pc.value_counts(rows["id"].combine_chunks())
    twice = counts.filter(pc.greater(counts.field("counts"), 1)).field("values")
    return set(rows.filter(pc.is_in(rows["id"], twice))["path"].to_pylist())


def _not_whole(live: pa.Table) -> Iterator[tuple[str, str]]:
    """Yield (path, reason); two paths under one key are one broken file."""
    about = [("seq", "count"), ("seq", "min"), ("seq", "max"), ("start", "min"), ("start", "max"), ("path", "min")]
    alike = [(name, "count_distinct") for name in ("file_sha256", "file_size", "path")]
    for row in live.group_by("path_key").aggregate([*about, ("file_size", "max"), *alike]).to_pylist():
        reason = _reason(row)
        if reason:
            yield row["path_min"], reason


def _reason(row: dict[str, Any]) -> str:
    if row["path_count_distinct"] > 1:
        return "another file has the same name but for case or Unicode form"
    if row["file_sha256_count_distinct"] > 1 or row["file_size_count_distinct"] > 1:
        return "its passages are of two versions"
    if row["seq_min"] != 0 or row["seq_count"] != row["seq_max"] + 1:
        return f"{row['seq_max'] + 1 - row['seq_count']:,} of its passages are missing"
    if row["start_min"] != 0 or row["start_max"] > row["file_size_max"]:
        return "its passages do not start where they should"
    return ""


def _unlike_hash(corpus: Corpus, infos: Sequence[FileInfo]) -> Iterator[tuple[str, str]]:
    batch: list[str] = []
    size = 0
    for info in infos:
        batch.append(info.path)
        size += info.size
        if size >= BATCH_BYTES:
            yield from _unlike(corpus, batch)
            batch, size = [], 0
    yield from _unlike(corpus, batch)


def _unlike(corpus: Corpus, paths: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Read the files; where one does not match its hash, half of them at a time until it is found."""
    if not paths:
        return
    try:
        corpus.read(paths)
    except CorruptError:
        if len(paths) == 1:
            yield paths[0], "its bytes do not match its hash: a passage is missing at its end, or damaged"
            return
        half = len(paths) // 2
        yield from _unlike(corpus, paths[:half])
        yield from _unlike(corpus, paths[half:])


def mend(corpus: Corpus, doubled: Sequence[str]) -> tuple[str, ...]:
    """Drop the surplus rows of the doubled files in one commit; return those that are whole now.

    Of rows that two writers mixed, those of one whole version stay, the one with the
    newest file time; a file of which no version is whole is left as it is.
    """
    columns = ["path", "seq", "kind", "file_sha256", "mtime", "body"]
    mended: list[str] = []
    surplus: list[int] = []
    # No map is made here: one file that cannot be mended would keep all from being mended.
    with corpus.writing(publish=False):
        for path in doubled:
            rows = corpus.every_row(columns, path=path).to_pylist()
            keep = _whole_version(rows)
            if keep is None:
                continue
            mended.append(path)
            surplus += [row["_rowid"] for row in rows if row["_rowid"] not in keep]
        if surplus:
            corpus.drop_rows(surplus)
    return tuple(mended)


def restore(corpus: Corpus, broken: Sequence[str]) -> tuple[str, ...]:
    """Put back the rows of broken files from older versions that have the same file whole; return the paths.

    A version is kept for seven days. What is in none of the newest VERSIONS_MAX stays broken.
    """
    left = dict.fromkeys(broken)
    found: dict[str, pa.Table] = {}
    with corpus.writing(publish=False):
        wanted = {path: _hashes(corpus.every_row(["kind", "file_sha256"], path=path)) for path in left}
        for version in corpus.older_versions()[:VERSIONS_MAX]:
            older = corpus.at(version)
            for path in [path for path in left if path not in found]:
                rows = older.every_row(corpus.columns(), path=path)
                keep = _whole_version(rows.to_pylist())
                if keep and _hashes(rows) == wanted[path]:
                    whole = rows.filter(pc.is_in(rows["_rowid"], pa.array(sorted(keep), rows["_rowid"].type)))
                    found[path] = whole.drop_columns(["_rowid"])
            if len(found) == len(left):
                break
        if found:
            corpus.put_rows(pa.concat_tables(found.values()))
    return tuple(found)


def _hashes(rows: pa.Table) -> set[bytes]:
    """Of the live rows' file."""
    return set(rows.filter(pc.not_equal(rows["kind"], TOMBSTONE))["file_sha256"].to_pylist())


def _whole_version(rows: Sequence[dict[str, Any]]) -> set[int] | None:
    """Return the row ids of one whole version; the empty set for a file that was deleted; None if none is whole."""
    live = [row for row in rows if row["kind"] != TOMBSTONE]
    if not live:
        return set()
    versions: dict[bytes, dict[int, dict[str, Any]]] = {}
    for row in sorted(live, key=lambda row: row["mtime"], reverse=True):
        versions.setdefault(row["file_sha256"], {}).setdefault(row["seq"], row)
    for sha256, by_seq in versions.items():
        parts = [by_seq[seq] for seq in sorted(by_seq)]
        if hashlib.sha256(b"".join(row["body"] for row in parts)).digest() == sha256:
            return {row["_rowid"] for row in parts}
    return None
