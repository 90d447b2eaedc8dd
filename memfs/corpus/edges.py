"""The `edges` table beside `passages`: from a cue, by a tag, to a passage. Contents are named, never copied.

An edge carries the hash of the file that it was made from: one of an older file counts for
nothing, whatever a crash left behind. Files are filed anew as a whole, in two Lance commits
(out, in): between them they are unfiled, and the next build sees that.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
from lancedb.index import BTree

from memfs.corpus.objects import explain
from memfs.errors import CorruptError, MemfsError

if TYPE_CHECKING:
    from memfs.corpus.table import Corpus

__all__ = ["MODEL_MARK", "SCHEMA", "Edges"]

TABLE = "edges"
MODEL_MARK = "model"
"""The tag of the row that says, as its label, by which model a file was filed."""
IN_LIST_MAX = 500
KEEP_VERSIONS = timedelta(days=7)
INDEX_ROWS = 20_000
"""Below it a scan is as fast as an index."""
SCHEMA = pa.schema(
    [
        pa.field("cue", pa.string(), nullable=False),  # folded: a stem, a name, a person, 2023-05 or 2023-05-08. BTREE
        pa.field("label", pa.string(), nullable=False),  # as it stands in the text
        pa.field("kind", pa.string(), nullable=False),  # word, name, person, date, topic, fact, state; none: a mark
        pa.field("tag", pa.string(), nullable=False),  # what associates the two: the word beside the cue; may be ""
        pa.field("layer", pa.string(), nullable=False),  # episodic, semantic, abstraction
        pa.field("path", pa.string(), nullable=False),  # BTREE
        pa.field("seq", pa.int32(), nullable=False),
        pa.field("sha256", pa.binary(32), nullable=False),  # of the file that it was made from
        pa.field("version", pa.int64(), nullable=False),  # of the corpus, then
    ]
)


class Edges:
    """The edges of a corpus."""

    def __init__(self, corpus: Corpus, table: Any) -> None:
        self._corpus, self._table = corpus, table

    @classmethod
    def open(cls, corpus: Corpus) -> Edges | None:
        """Return the corpus's edges; None where none were made.

        Raises:
            CorruptError: the table is damaged; so does everything that reads it.
        """
        table = cls._table_of(corpus)
        return None if table is None else cls(corpus, table)

    @classmethod
    def make(cls, corpus: Corpus, *, anew: bool = False) -> Edges:
        """Return the corpus's edges, made where there are none; `anew` throws away what is there, damaged or not.

        Call it inside the corpus's `writing`. Raises as `open` does.
        """
        if anew:
            corpus.drop_side_table(TABLE)
        return cls(corpus, cls._table_of(corpus, SCHEMA))

    @staticmethod
    def _table_of(corpus: Corpus, made_of: pa.Schema | None = None) -> Any:
        try:
            return corpus.side_table(TABLE, made_of)
        except MemfsError as error:
            raise _damage(error) from error

    def check(self) -> int:
        """Read every edge; return how many there are.

        Raises:
            CorruptError: some can't be read.
        """
        rows = self._select(None, SCHEMA.names)
        for column in ("cue", "path"):
            # By the index, if there is one.
            self._select(f"{column} = ''", [column])
        return len(rows)

    @property
    def version(self) -> int:
        """Of the edges table: it moves when edges do."""
        return int(self._call(lambda: self._table.version))

    def refresh(self) -> None:
        """Move to the newest edges."""
        self._call(self._table.checkout_latest)

    def filed(self) -> dict[str, bytes]:
        """Return the files that have edges, and the hash each was filed by."""
        rows = self._select(None, ["path", "sha256"])
        return dict(zip(rows["path"].to_pylist(), rows["sha256"].to_pylist(), strict=True))

    def marked(self, label: str) -> dict[str, bytes]:
        """Return the files that the model of this name filed, and the hash each was filed by."""
        rows = self._select(
            f"kind = 'none' AND tag = {_quoted(MODEL_MARK)} AND label = {_quoted(label)}", ["path", "sha256"]
        )
        return dict(zip(rows["path"].to_pylist(), rows["sha256"].to_pylist(), strict=True))

    def put(self, gone: Iterable[str], rows: pa.Table) -> None:
        """Take out the edges of the files `gone`, then add `rows`. Call it inside the corpus's `writing`."""
        paths = sorted(set(gone))
        for at in range(0, len(paths), IN_LIST_MAX):
            chunk = ", ".join(map(_quoted, paths[at : at + IN_LIST_MAX]))
            self._call(lambda chunk=chunk: self._table.delete(f"path IN ({chunk})"))
        if len(rows):
            self._call(lambda: self._table.add(rows.cast(SCHEMA)))

    def fold(self) -> None:
        """Make the indices once there is enough to index, fold new rows in, and drop versions older than 7 days."""
        if self._call(self._table.count_rows) >= INDEX_ROWS:
            have = {index.columns[0] for index in self._call(self._table.list_indices)}
            for column in {"cue", "path"} - have:
                self._call(lambda column=column: self._table.create_index(column, config=BTree()))
        self._call(lambda: self._table.optimize(cleanup_older_than=KEEP_VERSIONS))

    def of_cues(self, cues: Sequence[str], under: str = "") -> pa.Table:
        """Return the edges of these cues, below a prefix."""
        where = f"cue IN ({', '.join(map(_quoted, cues))})"
        if under:
            where += f" AND path >= {_quoted(under)} AND path < {_quoted(under + chr(0x10FFFF))}"
        return self._select(where, SCHEMA.names)

    def of_file(self, path: str) -> pa.Table:
        """Return what a file's passages are filed under."""
        return self._select(f"path = {_quoted(path)}", SCHEMA.names)

    def of_kinds(self, kinds: Sequence[str]) -> pa.Table:
        """Return the edges of these kinds."""
        return self._select(f"kind IN ({', '.join(map(_quoted, kinds))})", SCHEMA.names)

    def cues(self) -> pa.Table:
        """Return every cue once, with a label, its kind and how many edges it has, as `cue label kind edges`."""
        rows = self._select("kind != 'none'", ["cue", "label", "kind"])
        table = rows.group_by(["cue", "kind"], use_threads=False).aggregate([("label", "first"), ("cue", "count")])
        return table.rename_columns({"label_first": "label", "cue_count": "edges"})

    def sizes(self) -> dict[str, int]:
        """Return the edges by layer and by kind, the cues, the tags and the files."""
        rows = self._select("kind != 'none'", ["cue", "tag", "kind", "layer", "path"])
        found = {"edges": len(rows)}
        for name in ("cue", "tag", "path"):
            found[f"{name}s"] = len(pc.unique(rows[name]))
        for name in ("layer", "kind"):
            found |= {f"{name} {value}": count for value, count in _counts(rows[name])}
        return found

    def _select(self, where: str | None, columns: list[str]) -> pa.Table:
        query = self._table.search().select(columns)
        if where:
            query = query.where(where)
        return self._call(query.to_arrow)

    def _call(self, work: Any) -> Any:
        try:
            return work()
        except (RuntimeError, OSError, ValueError) as error:
            raise _damage(explain(error, self._corpus.uri)) from error


def _damage(error: MemfsError) -> MemfsError:
    """An error of no known kind is a damaged table: what is in it can be made again."""
    if type(error) is not MemfsError:
        return error
    return CorruptError(
        f"the graph is damaged: {error.message}",
        hint="memfs graph build --again makes it anew, from what is in the corpus",
    )


def _counts(column: Any) -> list[tuple[str, int]]:
    return [(each["values"], each["counts"]) for each in pc.value_counts(column).to_pylist()]


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
