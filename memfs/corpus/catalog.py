"""What is known of every passage but its words, in memory: it turns row ids into places, dates and neighbours.

A search leg returns row ids only; looking up 200 scattered rows in the store would
cost tens of requests, the whole catalogue of 100,000 passages costs five.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from functools import cached_property

import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["CATALOG_COLUMNS", "Catalog", "Place"]

CATALOG_COLUMNS = ["path", "seq", "anchor", "speaker", "event_time", "kind", "title"]


@dataclass(frozen=True, slots=True)
class Place:
    """One passage's place in the corpus."""

    row_id: int
    path: str
    seq: int
    anchor: str | None
    speaker: str | None
    event_time: datetime | None
    kind: str
    title: str


class Catalog:
    """All passages of one corpus version. Rows are (path, seq)-sorted."""

    def __init__(self, version: int, rows: pa.Table) -> None:
        self.version = version
        self._rows = rows.sort_by([("path", "ascending"), ("seq", "ascending")]).combine_chunks()

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def file_count(self) -> int:
        """How many files the corpus holds."""
        return int(pc.count_distinct(self._rows["path"]).as_py()) if len(self) else 0

    @cached_property
    def _position(self) -> dict[int, int]:
        return {row_id: at for at, row_id in enumerate(self._rows["_rowid"].to_pylist())}

    def place(self, row_id: int) -> Place | None:
        """Return the passage with Lance's `row_id`; None if this version does not have it."""
        at = self._position.get(row_id)
        return None if at is None else self._at(at)

    def neighbour(self, place: Place, step: int) -> Place | None:
        """Return the passage `step` places on in the same file, or None past its ends."""
        at = self._position[place.row_id] + step
        if not 0 <= at < len(self):
            return None
        other = self._at(at)
        return other if other.path == place.path else None

    def _at(self, at: int) -> Place:
        row = self._rows.slice(at, 1).to_pylist()[0]
        return Place(
            row_id=row["_rowid"],
            path=row["path"],
            seq=row["seq"],
            anchor=row["anchor"],
            speaker=row["speaker"],
            event_time=row["event_time"],
            kind=row["kind"],
            title=row["title"],
        )
