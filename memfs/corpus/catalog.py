"""What is known of every passage but its words, in memory: it turns row ids into places, dates and neighbours.

A search leg returns row ids only; looking up 200 scattered rows in the store would
cost tens of requests, the whole catalogue of 100,000 passages costs five.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
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

    @property
    def citation(self) -> str:
        """`path#anchor`, or the path."""
        return f"{self.path}#{self.anchor}" if self.anchor else self.path


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

    def count(
        self, under: str = "", *, since: datetime | None = None, until: datetime | None = None,
        as_of: datetime | None = None,
    ) -> tuple[int, int]:  # fmt: skip
        """Return how many files, and passages of them, there are in a scope (see `Scope`)."""
        if not (under or since or until or as_of):
            return self.file_count, len(self)
        files = self._file_of.filter(self._inside(under, since, until, as_of))
        return len(files.unique()), len(files)

    def undated(self, under: str = "") -> int:
        """Return how many files below the folder prefix `under` have no passage with a date."""
        dated = self._file_of.filter(pc.and_(self._inside(under), pc.is_valid(self._rows["event_time"])))
        return self.count(under)[0] - len(dated.unique())

    def _inside(
        self, under: str = "", since: datetime | None = None, until: datetime | None = None,
        as_of: datetime | None = None,
    ) -> pa.Array:  # fmt: skip
        """Which passages there are in a scope: a mask."""
        when = self._rows["event_time"]
        files = self._file_of
        inside = pc.take(pc.starts_with(self._files["path"], under), files) if under else pc.is_valid(files)
        for bound, undated, is_inside in (
            (since, False, pc.greater_equal), (until, False, pc.less), (as_of, True, pc.less)
        ):  # fmt: skip
            if bound is not None:
                inside = pc.and_(inside, pc.fill_null(is_inside(when, pa.scalar(bound, when.type)), undated))
        return inside

    def speakers(self, under: str = "") -> frozenset[str]:
        """Return who speaks in the files below the folder prefix `under`."""
        rows = self._rows["speaker"]
        if under:
            rows = rows.filter(self._inside(under))
        return frozenset(name for name in pc.unique(pc.cast(rows, pa.string())).to_pylist() if name)

    @cached_property
    def _by_row_id(self) -> tuple[list[int], list[int]]:
        order = pc.sort_indices(self._rows["_rowid"])
        return self._rows["_rowid"].take(order).to_pylist(), order.to_pylist()

    def places(self, row_ids: Iterable[int]) -> dict[int, Place]:
        """Return the passages with Lance's `row_ids`, by id; those that this version does not have are left out."""
        ids, positions = self._by_row_id
        found = ((row_id, bisect_left(ids, row_id)) for row_id in row_ids)
        known = [positions[at] for row_id, at in found if at < len(ids) and ids[at] == row_id]
        return {place.row_id: place for place in self.at_all(known)}

    def place(self, row_id: int) -> Place | None:
        """Return the passage with Lance's `row_id`; None if this version does not have it."""
        return self.places([row_id]).get(row_id)

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
        return self.at_all(range(firsts[at], firsts[at + 1]))

    def within(self, start: datetime, end: datetime) -> list[Place]:
        """Return the passages of what happened from `start` until before `end`, both UTC."""
        return self.at_all(pc.indices_nonzero(self._inside(since=start, until=end)).to_pylist())

    def neighbour(self, place: Place, step: int) -> Place | None:
        """Return the passage `step` places on in the same file, or None past its ends."""
        at = place.at + step
        if not 0 <= at < len(self) or self._file_of[at] != self._file_of[place.at]:
            return None
        return self.at(at)

    def at(self, at: int) -> Place:
        """Return the passage at position `at`, 0 <= at < len."""
        return self.at_all([at])[0]

    def at_all(self, positions: Sequence[int]) -> list[Place]:
        """Return the passages at `positions`, in their order; one look at each column, not one a passage."""
        if not positions:
            return []
        at = pa.array(positions, pa.int64())
        after = pc.min_element_wise(pc.add(at, 1), len(self) - 1)
        file_of = self._file_of.take(at)
        ends_file = pc.or_(pc.equal(at, len(self) - 1), pc.not_equal(file_of, self._file_of.take(after))).to_pylist()
        next_start = self._rows["start"].take(after).to_pylist()
        rows = self._rows.take(at).to_pylist()
        files = self._files.take(file_of).to_pylist()
        return [
            Place(
                row_id=row["_rowid"],
                at=position,
                path=file["path"],
                sha256=file["file_sha256"].hex(),
                file_size=file["file_size"],
                mtime=file["mtime"],
                kind=file["kind"],
                title=file["title"],
                seq=row["seq"],
                start=row["start"],
                end=file["file_size"] if last else end,
                anchor=row["anchor"],
                speaker=row["speaker"],
                origin=row["origin"],
                event_time=row["event_time"],
            )
            for position, row, file, last, end in zip(positions, rows, files, ends_file, next_start, strict=True)
        ]
