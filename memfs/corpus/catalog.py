"""What is known of every passage but its words, in memory: it turns row ids into places, dates and neighbours.

A search leg returns row ids only; looking up 200 scattered rows in the store would
cost tens of requests, the whole catalogue of 100,000 passages costs five.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property

import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["CATALOG_COLUMNS", "Catalog", "Place"]

_FILE_COLUMNS = ["path", "file_sha256", "file_size", "mtime", "kind", "title"]
_PASSAGE_COLUMNS = ["seq", "start", "anchor", "speaker", "origin", "event_time"]
CATALOG_COLUMNS = _FILE_COLUMNS + _PASSAGE_COLUMNS


@dataclass(frozen=True, slots=True)
class Place:
    """One passage's place: which file, and where in it."""

    row_id: int
    at: int
    """Its position in the catalogue; `at + 1` is the next passage, of the same file or the next."""
    path: str
    sha256: str
    file_size: int
    mtime: datetime
    kind: str
    title: str
    seq: int
    start: int
    """Byte offset in the file, inclusive."""
    end: int
    """Byte offset in the file, exclusive."""
    anchor: str | None
    speaker: str | None
    origin: str | None
    event_time: datetime | None


class Catalog:
    """All passages of one corpus version, in (path, seq) order."""

    def __init__(self, version: int, rows: pa.Table) -> None:
        self.version = version
        ordered = rows.sort_by([("path", "ascending"), ("seq", "ascending")]).combine_chunks()
        first = pc.equal(ordered["seq"], 0)
        self._files = ordered.filter(first).select(_FILE_COLUMNS).combine_chunks()
        self._file_of = pc.subtract(pc.cumulative_sum(first.cast(pa.int32())), 1)
        self._rows = ordered.select([*_PASSAGE_COLUMNS, "_rowid"])
        for name in ("anchor", "speaker"):
            at = self._rows.column_names.index(name)
            self._rows = self._rows.set_column(at, name, pc.dictionary_encode(self._rows[name]))

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def file_count(self) -> int:
        """How many files the corpus holds."""
        return len(self._files)

    @property
    def file_bytes(self) -> int:
        """How many bytes its files are."""
        return int(pc.sum(self._files["file_size"]).as_py() or 0)

    def count(self, under: str = "") -> tuple[int, int]:
        """Return how many files, and passages of them, lie below the folder prefix `under`."""
        if not under:
            return self.file_count, len(self)
        inside = pc.starts_with(self._files["path"], under)
        passages = pc.sum(pc.take(inside, self._file_of).cast(pa.int64())).as_py() or 0
        return int(pc.sum(inside.cast(pa.int64())).as_py() or 0), int(passages)

    def speakers(self, under: str = "") -> frozenset[str]:
        """Return who speaks in the files below the folder prefix `under`."""
        rows = self._rows["speaker"]
        if under:
            inside = pc.starts_with(self._files["path"], under)
            rows = rows.filter(pc.take(inside, self._file_of))
        return frozenset(name for name in pc.unique(pc.cast(rows, pa.string())).to_pylist() if name)

    @cached_property
    def _by_row_id(self) -> tuple[list[int], list[int]]:
        order = pc.sort_indices(self._rows["_rowid"])
        return self._rows["_rowid"].take(order).to_pylist(), order.to_pylist()

    def place(self, row_id: int) -> Place | None:
        """Return the passage with Lance's `row_id`; None if this version does not have it."""
        ids, positions = self._by_row_id
        at = bisect_left(ids, row_id)
        return self.at(positions[at]) if at < len(ids) and ids[at] == row_id else None

    @cached_property
    def _first_at(self) -> tuple[list[str], list[int]]:
        """Each file's path, sorted, and the position of its first passage; the end as a last position."""
        firsts = pc.indices_nonzero(pc.equal(self._rows["seq"], 0)).to_pylist()
        return self._files["path"].to_pylist(), [*firsts, len(self)]

    def file(self, path: str) -> list[Place]:
        """Return the passages of the file at `path`, in order; [] if there is none."""
        paths, firsts = self._first_at
        at = bisect_left(paths, path)
        if at == len(paths) or paths[at] != path:
            return []
        return [self.at(position) for position in range(firsts[at], firsts[at + 1])]

    def neighbour(self, place: Place, step: int) -> Place | None:
        """Return the passage `step` places on in the same file, or None past its ends."""
        at = place.at + step
        if not 0 <= at < len(self) or self._file_of[at] != self._file_of[place.at]:
            return None
        return self.at(at)

    def at(self, at: int) -> Place:
        """Return the passage at position `at`, 0 <= at < len."""
        row = self._rows.slice(at, 1).to_pylist()[0]
        file = self._files.slice(self._file_of[at].as_py(), 1).to_pylist()[0]
        last = at + 1 == len(self) or self._file_of[at + 1] != self._file_of[at]
        return Place(
            row_id=row["_rowid"],
            at=at,
            path=file["path"],
            sha256=file["file_sha256"].hex(),
            file_size=file["file_size"],
            mtime=file["mtime"],
            kind=file["kind"],
            title=file["title"],
            seq=row["seq"],
            start=row["start"],
            end=file["file_size"] if last else self._rows["start"][at + 1].as_py(),
            anchor=row["anchor"],
            speaker=row["speaker"],
            origin=row["origin"],
            event_time=row["event_time"],
        )
