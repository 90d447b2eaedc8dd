"""The corpus: one Lance table of passages. The owner of lancedb.

A commit publishes files in one Lance commit; a version number names a whole corpus.
Writers take the lease (memfs.corpus.lease), so the indexed upsert is safe; a lease
found lost afterwards leads to a check of the ids that were written. A `Corpus` reads
the version it opened until `refresh`.
"""

from __future__ import annotations

import itertools
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import cached_property
from typing import Any, TypeVar

import lancedb
import pyarrow as pa
import pyarrow.compute as pc
from lancedb.index import FTS, BTree, IvfSq
from lancedb.query import MatchQuery

from memfs import paths
from memfs.corpus import bootbuild, bootset
from memfs.corpus import lease as leases
from memfs.corpus import rows as rows_module
from memfs.corpus.catalog import CATALOG_COLUMNS, Catalog
from memfs.corpus.embed import DEFAULT, Embedder, load
from memfs.corpus.location import Location, parse
from memfs.corpus.objects import Objects, explain
from memfs.corpus.records import (
    MTIME_MAX,
    Commit,
    Document,
    FileBytes,
    FileInfo,
    Skipped,
    StoredFile,
    nanoseconds,
)
from memfs.corpus.rows import FILE_COLUMNS, Known
from memfs.corpus.schema import (
    ANALYZER_KEY,
    EMBEDDER_KEY,
    FORMAT,
    FORMAT_KEY,
    HISTORY,
    LIVE,
    TABLE,
    TOMBSTONE,
    is_live,
    schema,
)  # fmt: skip
from memfs.corpus.terms import ANALYZER
from memfs.corpus.workers import RowWorkers, useful_count
from memfs.errors import ConfigError, ConflictError, CorruptError, NotACorpusError, NotFoundError, PathError

__all__ = ["EVERYTHING", "Corpus", "Hit", "Scope"]

T = TypeVar("T")

VECTOR_INDEX_ROWS = 5_000
"""Below it a query reads all vectors (5 MB at 256 dimensions); above, an IVF index is made."""
TAIL_ROWS_MAX = 1_000
"""More rows than this outside the indices, and the next maintenance folds them in."""
COMMITS_PER_CHECK = 32
BATCHES_PER_COMMIT = 8
"""A commit of 32 MB at a time leaves few fragments, and loses little to a kill."""
IN_LIST_MAX = 500
KEEP_VERSIONS = timedelta(days=7)
"""Longer than a sandbox lives: a reader pinned to an old version must not lose it."""
CACHE_BYTES = 512 << 20
"""LanceDB's own default index cache is 6 GiB a connection."""
MERGE_COLUMNS = ["path", "path_key", "seq", "file_sha256", "kind"]


@dataclass(frozen=True, slots=True)
class Scope:
    """Which passages a search considers. `since` is inclusive, the others exclusive, all on event time (UTC)."""

    under: str = ""
    """A folder prefix ending in `/`, or "" for all."""
    since: datetime | None = None
    until: datetime | None = None
    as_of: datetime | None = None
    """As `until`, but what has no date is considered too: the memory as it was then."""

    def where(self) -> str | None:
        """Return the scope as a filter expression, None for all."""
        clauses = []
        if self.under:
            clauses += [f"starts_with(path_key, {_quoted(paths.fold(self.under))})"]
        if self.since:
            clauses += [f"event_time >= {_timestamp(self.since)}"]
        if self.until:
            clauses += [f"event_time < {_timestamp(self.until)}"]
        if self.as_of:
            clauses += [f"(event_time IS NULL OR event_time < {_timestamp(self.as_of)})"]
        return " AND ".join(clauses) or None

    def holds(self, path: str, when: datetime | None) -> bool:
        """Whether it holds a passage of `path` whose event time is `when`."""
        if self.under and not paths.fold(path).startswith(paths.fold(self.under)):
            return False
        if when is None:
            return self.since is None and self.until is None
        return (self.since is None or when >= self.since) and all(
            end is None or when < end for end in (self.until, self.as_of)
        )

    def __str__(self) -> str:
        parts = [
            f"below {self.under}" if self.under else "",
            f"since {_minutes(self.since)}" if self.since else "",
            f"before {_minutes(self.until)}" if self.until else "",
            f"as it was before {_minutes(self.as_of)}" if self.as_of else "",
        ]
        return ", ".join(part for part in parts if part)


def _minutes(when: datetime) -> str:
    return when.replace(tzinfo=None).isoformat(" ", "minutes")


EVERYTHING = Scope()


@dataclass(frozen=True, slots=True)
class Hit:
    """One row that a search leg found: Lance's row id, and that leg's score (larger is better)."""

    row_id: int
    score: float


@dataclass(frozen=True, slots=True)
class _Decision:
    """What a commit will do."""

    documents: int
    """Accepted, whether or not they changed."""
    changed: Sequence[Document]
    buried: Sequence[Known]
    known: dict[str, Known]
    refused: list[Skipped]

    def known_as(self, document: Document) -> Known | None:
        """Return what the table holds at the document's path, tombstones included."""
        return self.known.get(paths.fold(document.path))

    def outcome(self, version: int, passages: int) -> Commit:
        """Return the commit's report."""
        replaced = sum(1 for d in self.changed if (known := self.known_as(d)) is not None and known.live)
        return Commit(
            version=version,
            added=len(self.changed) - replaced,
            replaced=replaced,
            deleted=len(self.buried),
            unchanged=self.documents - len(self.changed),
            passages=passages,
            refused=tuple(self.refused),
        )


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _timestamp(when: datetime) -> str:
    return f"timestamp '{when.replace(tzinfo=None).isoformat(' ', 'microseconds')}'"


def _chunks(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    for at in range(0, len(items), size):
        yield items[at : at + size]


class Corpus:
    """A corpus at a URI, read at one version. Make it with `Corpus.create` or `Corpus.open`."""

    def __init__(self, location: Location, table: Any, objects: Objects) -> None:
        self.location, self.objects = location, objects
        self._table = table
        self._writer = threading.RLock()
        self._lease: leases.Lease | None = None
        self._pinned = False
        self._version: int | None = None
        self._commits_unchecked = 0
        self._catalog: Catalog | None = None
        metadata = table.schema.metadata or {}
        self.embedder_name = metadata[EMBEDDER_KEY].decode()
        self.dimensions = table.schema.field("vector").type.list_size

    # -- opening -----------------------------------------------------------------

    @classmethod
    def create(cls, uri: str, *, embedder: str = DEFAULT) -> Corpus:
        """Make an empty corpus at `uri` and return it.

        Raises:
            ConflictError: there already is one.
            ConfigError: the embedder is unknown, or the store ignores conditional writes.
        """
        location = parse(uri)
        made_by = load(embedder)
        if location.is_local:
            _make_folder(location)
        objects = Objects(location)
        _probe_conditional_writes(objects)
        database = _connect(location)
        try:
            table = database.create_table(TABLE, schema=schema(made_by.dimensions, made_by.name))
        except (RuntimeError, OSError, ValueError) as error:
            if "already exists" in str(error):
                raise ConflictError(
                    f"{location.uri} already is a corpus", hint="use it as it is: memfs add …"
                ) from error
            raise explain(error, location.uri) from error
        corpus = cls(location, table, objects)
        corpus.__dict__["embedder"] = made_by
        return corpus

    @classmethod
    def open(cls, uri: str, *, version: int | None = None, embedder: str | None = None) -> Corpus:
        """Open the corpus at `uri`, at its newest version or at `version`.

        Raises:
            NotACorpusError: nothing, or something else, lies there.
            ConfigError: `embedder` is given and is not the one that made the corpus's vectors.
            CorruptError: it was written by a newer memfs.
            AccessError, UnreachableError: the store refused, or did not answer.
        """
        location = parse(uri)
        objects = Objects(location)
        # One cheap request with errors that can be told apart; Lance says "not found" to all of them.
        if not objects.any_below(f"{TABLE}.lance/_versions"):
            raise NotACorpusError(
                f"{location.uri} is not a memfs corpus", hint=f"make one with: memfs init {location.uri}"
            )
        try:
            table = _connect(location).open_table(TABLE)
            _check_format(table.schema, location.uri)
            corpus = cls(location, table, objects)
        except (RuntimeError, OSError, ValueError) as error:
            raise explain(error, location.uri) from error
        corpus._check_embedder(embedder)
        return corpus if version is None else corpus.at(version)

    def at(self, version: int) -> Corpus:
        """Return a reader of an older version of this corpus.

        Raises:
            NotFoundError: that version was never made, or was cleaned up.
        """
        table = _connect(self.location).open_table(TABLE)
        try:
            table.checkout(version)
        except (RuntimeError, OSError, ValueError) as error:
            raise NotFoundError(
                f"{self.location.uri}: no version {version}",
                hint=f"the newest is {self.version}; older than 7 days may be gone",
            ) from error
        reader = Corpus(self.location, table, self.objects)
        reader._pinned = True
        return reader

    def _check_embedder(self, wanted: str | None) -> None:
        if wanted is not None and wanted != self.embedder_name:
            raise ConfigError(
                f"{self.location.uri} was made with the embedder {self.embedder_name!r}, not {wanted!r}",
                hint="leave the embedder setting out, or make a new corpus with it and add the sources again",
            )

    @property
    def uri(self) -> str:
        """Where it lies, without credentials."""
        return self.location.uri

    @property
    def version(self) -> int:
        """The version that this object reads."""
        # Asking the table costs 2 ms. Only a writer's version moves by itself.
        if self._version is None or self._lease is not None:
            self._version = int(self._table.version)
        return self._version

    @cached_property
    def embedder(self) -> Embedder:
        """The model that made this corpus's vectors, loaded at first use.

        Raises:
            ConfigError: it is not installed, or makes vectors of another length.
        """
        embedder = load(self.embedder_name)
        if embedder.dimensions != self.dimensions:
            raise ConfigError(
                f"the embedder {self.embedder_name!r} makes {embedder.dimensions} dimensions, not {self.dimensions}",
                hint="install the model version that made the corpus",
            )
        return embedder

    def refresh(self) -> int:
        """Move to the newest version and return its number; a reader made by `at` stays where it is."""
        if self._pinned:
            return self.version
        self._call(lambda: self._table.checkout_latest())
        self._version = None
        return self.version

    def _call(self, read: Callable[[], T]) -> T:
        """Run a read; if its version was cleaned up meanwhile, move to the newest and run it once more."""
        try:
            return read()
        except (RuntimeError, OSError, ValueError) as error:
            if "not found" not in str(error).lower():
                raise explain(error, self.uri) from error
            if self._pinned:
                raise NotFoundError(
                    f"{self.uri}: version {self.version} was cleaned up", hint="versions are kept for seven days"
                ) from error
        try:
            self._table.checkout_latest()
            self._catalog = self._version = None
            return read()
        except (RuntimeError, OSError, ValueError) as error:
            raise explain(error, self.uri) from error

    # -- reading -----------------------------------------------------------------

    def _select(self, where: str | None, columns: list[str], *, row_ids: bool = False) -> pa.Table:
        query = self._table.search().select(columns)
        if where:
            query = query.where(where)
        return self._call(lambda: query.with_row_id(row_ids).to_arrow())

    def _scan(self, columns: list[str], *, row_ids: bool = False) -> pa.Table:
        """Return all rows but tombstones. Given a filter, Lance reads columns row by row: 267 requests, not 13."""
        rows = self._select(None, columns, row_ids=row_ids)
        return rows.filter(is_live(rows["kind"]))

    def every_row(self, columns: list[str], *, path: str | None = None) -> pa.Table:
        """Return all rows, or those of one path, tombstones included, with Lance's `_rowid`."""
        where = None if path is None else f"path_key = {_quoted(paths.fold(path))}"
        return self._select(where, columns, row_ids=True)

    def catalog(self) -> Catalog:
        """Return what is known of every passage but its text, in memory; loaded once a version."""
        if self._catalog is None or self._catalog.version != self.version:
            self._catalog = Catalog(self.version, self._scan(CATALOG_COLUMNS, row_ids=True))
        return self._catalog

    def file_rows(self, under: str = "") -> pa.Table:
        """Return the first row of every file below the folder prefix `under`, with FILE_COLUMNS, sorted by path."""
        kept = []
        for batch in self._batches(self._table.search().select([*FILE_COLUMNS])):
            # Of a batch at a time: all passages of a large corpus together would take a gigabyte.
            wanted = pc.and_(pc.equal(batch["seq"], 0), is_live(batch["kind"]))
            if under:
                wanted = pc.and_(wanted, pc.starts_with(batch["path"], under))
            kept.append(batch.filter(wanted))
        rows = pa.Table.from_batches(kept) if kept else self._scan(FILE_COLUMNS)
        return rows.sort_by("path")

    def files(self, under: str = "") -> Iterator[FileInfo]:
        """Yield every file below the folder prefix `under`, sorted by path."""
        for batch in self.file_rows(under).to_batches(max_chunksize=10_000):
            yield from rows_module.file_infos(pa.Table.from_batches([batch]))

    def stored(self) -> dict[str, StoredFile]:
        """Return what is needed to tell whether a file changed, for every file, by path."""
        rows = self.file_rows()
        sha256 = (digest.hex() for digest in rows["file_sha256"].to_pylist())
        last = nanoseconds(MTIME_MAX)
        mtime_ns = (min(micros * 1_000, last) for micros in rows["mtime"].cast(pa.int64()).to_pylist())
        files = map(StoredFile, sha256, rows["file_size"].to_pylist(), mtime_ns)
        return dict(zip(rows["path"].to_pylist(), files, strict=True))

    def find(self, wanted: Sequence[str]) -> dict[str, FileInfo]:
        """Return those of the paths that exist, by path."""
        found: dict[str, FileInfo] = {}
        for chunk in _chunks(list(wanted), IN_LIST_MAX):
            where = f"seq = 0 AND {LIVE} AND path IN ({', '.join(map(_quoted, chunk))})"
            keyed = f"path_key IN ({', '.join(_quoted(paths.fold(p)) for p in chunk)})"
            found |= {
                info.path: info for info in rows_module.file_infos(self._select(f"{keyed} AND {where}", FILE_COLUMNS))
            }
        return found

    def read(self, wanted: Sequence[str]) -> dict[str, FileBytes]:
        """Return the whole files at the paths, hash-checked, in one batch; paths that do not exist are left out.

        Raises:
            CorruptError: a file's bytes do not match its hash.
        """
        if self._catalog is not None and self._catalog.version == self.version:
            return self._read_by_row(self._catalog, wanted)
        found: dict[str, FileBytes] = {}
        columns = ["path", "seq", "body", "file_sha256", "mtime"]
        for chunk in _chunks(list(wanted), IN_LIST_MAX):
            keyed = f"path_key IN ({', '.join(_quoted(paths.fold(p)) for p in chunk)})"
            rows = self._select(f"{keyed} AND {LIVE}", columns)
            found |= rows_module.rows_to_files(rows)
        return {path: found[path] for path in wanted if path in found}

    def history(self) -> dict[str, FileBytes]:
        """Return the Brain's history, whole files by name: memfs.brain.history says what they are.

        Raises:
            CorruptError: a file's bytes do not match its hash.
        """
        folder = _quoted(f"{bootset.HISTORY_FOLDER}/")
        where = f"path_key >= {folder} AND path_key < {_quoted(bootset.HISTORY_FOLDER + '0')} AND kind = '{HISTORY}'"
        return rows_module.rows_to_files(self._select(where, ["path", "seq", "body", "file_sha256", "mtime"]))

    def read_whole(self, wanted: Sequence[str]) -> dict[str, FileBytes]:
        """As `read`, but without the files that are damaged: one of them must not keep the others away."""
        try:
            return self.read(wanted)
        except CorruptError:
            if len(wanted) == 1:
                return {}
        half = len(wanted) // 2
        return {**self.read_whole(wanted[:half]), **self.read_whole(wanted[half:])}

    def read_all(self) -> Iterator[FileBytes]:
        """Yield every file that is not damaged, in the order of storage: the content column once, not row by row."""
        query = self._table.search().select(rows_module.CONTENT_COLUMNS)
        yield from rows_module.whole_files(self._batches(query))

    def _batches(self, query: Any) -> Iterator[pa.RecordBatch]:
        batches = self._call(query.to_batches)
        try:
            yield from batches
        except (RuntimeError, OSError, ValueError) as error:
            raise explain(error, self.uri) from error

    def _read_by_row(self, catalog: Catalog, wanted: Sequence[str]) -> dict[str, FileBytes]:
        """As `read`, with the one column that the catalogue does not have: half the requests."""
        places = {path: found for path in wanted if (found := catalog.file(path))}
        bodies = iter(self.read_rows([place.row_id for found in places.values() for place in found], ["body"]))
        files: dict[str, FileBytes] = {}
        for path, found in places.items():
            data = b"".join(next(bodies)["body"] for _ in found)
            files[path] = rows_module.checked(path, data, found[0].sha256, found[0].mtime)
        return files

    def read_rows(self, row_ids: Sequence[int], columns: list[str]) -> list[dict[str, Any]]:
        """Return the rows with Lance's `row_ids` at this version, in their order.

        Raises:
            ConflictError: they are no more, because the version was cleaned up meanwhile.
        """
        if not row_ids:
            return []
        # Lance gives them in an order of its own.
        query = self._table.take_row_ids(list(row_ids)).select(columns).with_row_id()
        found = {row["_rowid"]: row for row in self._call(query.to_arrow).to_pylist()}
        if not found.keys() >= set(row_ids):
            raise ConflictError(f"{self.uri} changed while it was being read", hint="run the command again")
        return [found[row_id] for row_id in row_ids]

    def search_words(self, terms: Sequence[str], limit: int, scope: Scope) -> list[Hit]:
        """Return the best rows by BM25 over `terms`, best first."""
        if not terms or not self._call(self._table.count_rows):
            return []
        match = MatchQuery(" ".join(terms), "terms")  # type: ignore[call-arg]  # pydantic fills the defaults
        query = self._table.search(match).select(["_score"]).with_row_id(True)
        rows = self._call(_scoped(query, scope).limit(limit).to_arrow)
        return [Hit(i, s) for i, s in zip(rows["_rowid"].to_pylist(), rows["_score"].to_pylist(), strict=True)]

    def search_vector(self, vector: Any, limit: int, scope: Scope) -> list[Hit]:
        """Return the nearest rows to the unit vector float32[d] by cosine similarity, best first."""
        if not self._call(self._table.count_rows):
            return []
        query = self._table.search(vector, vector_column_name="vector").distance_type("dot").nprobes(20)
        rows = self._call(_scoped(query.select(["_distance"]).with_row_id(True), scope).limit(limit).to_arrow)
        return [Hit(i, 1.0 - d) for i, d in zip(rows["_rowid"].to_pylist(), rows["_distance"].to_pylist(), strict=True)]

    def warm(self) -> None:
        """Load the indices and the catalogue, so that the next question costs few requests."""
        self.catalog()
        for index in self._call(self._table.list_indices):
            self._call(lambda name=index.name: self._table.prewarm_index(name))  # type: ignore[misc]
        _ = self.embedder

    # -- writing -----------------------------------------------------------------

    @contextmanager
    def writing(self, *, publish: bool = True) -> Iterator[None]:
        """Hold the lease for several commits; then fold the indices and, with `publish`, make the boot set."""
        # Threads that share this object take turns; one thread may nest.
        with self._writer:
            if self._lease is not None:
                yield
                return
            with leases.hold(self.location, self.objects) as lease:
                self._lease = lease
                try:
                    self.refresh()
                    before = self.version
                    yield
                    self._maintain_when_due()
                    # Nothing changed: then only a publish that was cut short is made up for.
                    if publish and (self.version != before or not bootbuild.is_current(self)):
                        bootbuild.publish(self, bootset.PUBLISHED_BYTES)
                finally:
                    self._lease = self._version = None

    def commit(self, put: Iterable[Document] = (), delete: Iterable[str] = (), *, skip_refused: bool = False) -> Commit:
        """Publish all of it in one atomic commit: new files, replacements, deletions. What is already so is left alone.

        With `skip_refused`, documents whose names cannot be held are left out and listed; else they raise.

        Raises:
            PathError: a name breaks the path gate, or differs only in case from another file, or is a folder too.
            ConflictError: another writer held the lease too long.
        """
        with self.writing():
            decision = self._decide(put, delete, skip_refused)
            (outcome,) = self._publish([(decision, self._prepare(decision.changed))])
        # Folding indices at the end made further versions of the same files.
        return replace(outcome, version=self.version)

    def commit_batches(self, batches: Iterable[Sequence[Document]]) -> Iterator[Commit]:
        """Commit the batches in order, some at a time, with `skip_refused`; rows of a large load are made in children.

        No two batches may hold the same path. Call it inside `writing`.
        """
        # Version 1 is the creation. Nothing is there yet, and no batch holds another's path: nothing to look up.
        fresh = self.version == 1
        incoming = iter(batches)
        first = list(itertools.islice(incoming, 2))
        # Children take a second to start: a single batch is made here.
        count = useful_count(self.embedder_name) if len(first) == 2 else 0
        decisions = (self._decide(b, (), skip=True, fresh=fresh) for b in itertools.chain(first, incoming))
        group: list[tuple[_Decision, pa.Table]] = []
        for ready in self._prepared(decisions, count):
            group.append(ready)
            if len(group) >= BATCHES_PER_COMMIT:
                yield from self._publish(group)
                group = []
        if group:
            yield from self._publish(group)

    def _prepared(self, decisions: Iterable[_Decision], count: int) -> Iterator[tuple[_Decision, pa.Table]]:
        """Yield each decision with its rows, in order, made in `count` children, or here for 0."""
        if not count:
            yield from ((decision, self._prepare(decision.changed)) for decision in decisions)
            return
        coming: deque[tuple[_Decision, Future[pa.Table]]] = deque()
        with RowWorkers(count) as workers:
            for decision in decisions:
                coming.append((decision, workers.submit(decision.changed)))
                if len(coming) > count:
                    ready, rows = coming.popleft()
                    yield ready, rows.result()
            for ready, rows in coming:
                yield ready, rows.result()

    def preview(self, put: Iterable[Document]) -> Commit:
        """Return what `commit(put, skip_refused=True)` would do, without doing it; `passages` is 0."""
        return self._decide(put, (), skip=True).outcome(self.version, 0)

    def _decide(self, put: Iterable[Document], delete: Iterable[str], skip: bool, *, fresh: bool = False) -> _Decision:
        documents, refused = _gate(put, skip)
        doomed = [paths.check(path) for path in delete]
        known = {} if fresh else self._known([*documents, *doomed])
        documents = _drop_collisions(documents, known, frozenset(doomed), refused, skip)
        changed = [d for d in documents.values() if not _is_same(known.get(paths.fold(d.path)), d)]
        stored = {paths.fold(path) for path in documents}
        # A path that is put and deleted in one commit is put.
        gone = {paths.fold(path): path for path in doomed if paths.fold(path) not in stored}
        buried = [file for key, path in gone.items() if (file := known.get(key)) and file.live and file.path == path]
        return _Decision(len(documents), changed, buried, known, refused)

    def _prepare(self, changed: Sequence[Document]) -> pa.Table:
        return rows_module.documents_to_rows(changed, self.embedder, self._table.schema)

    def _known(self, wanted: Iterable[str]) -> dict[str, Known]:
        keys = {paths.fold(p) for path in wanted for p in (path, *paths.ancestors(path))}
        found: dict[str, Known] = {}
        for chunk in _chunks(sorted(keys), IN_LIST_MAX):
            rows = self._select(f"path_key IN ({', '.join(map(_quoted, chunk))})", MERGE_COLUMNS)
            found |= rows_module.known_files(rows)
        return found

    def _publish(self, ready: Sequence[tuple[_Decision, pa.Table]]) -> list[Commit]:
        """Send all the decisions' rows, and tombstones of what they replace, in one Lance commit."""
        parts: list[pa.Table] = []
        append = True
        for decision, rows in ready:
            replaced = [
                (known, len(d.passages) if known.path == d.path else 0)
                for d in decision.changed
                if (known := decision.known_as(d))
            ]
            graves = [*replaced, *((known, 0) for known in decision.buried)]
            parts += [rows.cast(self._table.schema), rows_module.tombstones(graves, self._table.schema)]
            append = append and not graves
        data = pa.concat_tables(parts)
        if len(data):
            self._send(data, append=append)
            if self._lease is not None and not self._lease.still_held():
                self._repair(data)
            self._commits_unchecked += 1
        return [decision.outcome(self.version, len(rows)) for decision, rows in ready]

    def _send(self, data: pa.Table, *, append: bool) -> None:
        merge = self._table.merge_insert("id").when_matched_update_all().when_not_matched_insert_all()
        try:
            if append:
                self._table.add(data)
            else:
                # LanceDB takes a null vector for a bad one, in merges only.
                merge.execute(data, on_bad_vectors="null")
        except (RuntimeError, OSError, ValueError) as error:
            raise explain(error, self.uri) from error

    def _repair(self, data: pa.Table) -> None:
        """The lease was lost while committing: a file that two writers mixed becomes wholly the one of `data`."""
        self._lease = None
        with self.writing(publish=False):
            for chunk in _chunks(pc.unique(data["path_key"]).to_pylist(), IN_LIST_MAX):
                stored = self._select(f"path_key IN ({', '.join(map(_quoted, chunk))})", MERGE_COLUMNS)
                mixed = sorted(rows_module.mixed_files(stored))
                if mixed:
                    self._table.delete(f"path_key IN ({', '.join(map(_quoted, mixed))})")
                    self._send(data.filter(pc.is_in(data["path_key"], pa.array(mixed))), append=True)

    def drop_rows(self, row_ids: Sequence[int]) -> None:
        """Delete the rows with Lance's `row_ids` at this version, in one commit. Call it inside `writing`."""
        try:
            self._table.delete(f"_rowid IN ({', '.join(map(str, row_ids))})")
        except (RuntimeError, OSError, ValueError) as error:
            raise explain(error, self.uri) from error

    def put_rows(self, rows: pa.Table) -> None:
        """Insert or replace whole rows by id, in one commit. Call it inside `writing`."""
        self._send(rows.cast(self._table.schema), append=False)

    def side_table(self, name: str, made_of: pa.Schema | None = None) -> Any:
        """Return another Lance table of this corpus, with the same credentials; made if a schema is given.

        None where there is none.
        """
        database = _connect(self.location)
        try:
            if made_of is not None:
                return database.create_table(name, schema=made_of, exist_ok=True)
            return database.open_table(name)
        except (RuntimeError, OSError, ValueError) as error:
            if made_of is None and "not found" in str(error).lower():
                return None
            raise explain(error, self.uri) from error

    def drop_side_table(self, name: str) -> None:
        """Take another table of this corpus away, damaged or not."""
        try:
            _connect(self.location).drop_table(name, ignore_missing=True)
        except (RuntimeError, OSError, ValueError) as error:
            raise explain(error, self.uri) from error

    def columns(self) -> list[str]:
        """Return the names of all columns."""
        return list(self._table.schema.names)

    def older_versions(self) -> list[int]:
        """Return the versions before this one that are still kept, newest first."""
        kept = (int(each["version"]) for each in self._call(self._table.list_versions))
        return sorted((version for version in kept if 1 < version < self.version), reverse=True)

    # -- indices -----------------------------------------------------------------

    def tail_rows(self) -> int:
        """Return how many rows the word or vector index has not seen yet; all of them where there is no index."""
        indexed = self._indexed_columns()
        if "terms" not in indexed:
            return int(self._call(self._table.count_rows))
        return _tail_rows(indexed.values())

    def _indexed_columns(self) -> dict[str, Any]:
        return {index.columns[0]: index for index in self._call(self._table.list_indices)}

    def _maintain_when_due(self) -> None:
        """Until it runs, rows outside the indices are scanned: none is missed."""
        if not self._commits_unchecked:
            return
        indexed = self._indexed_columns()
        if (
            "terms" not in indexed
            or self._commits_unchecked >= COMMITS_PER_CHECK
            or _tail_rows(indexed.values()) > TAIL_ROWS_MAX
        ):
            self.maintain()

    def maintain(self) -> None:
        """Make missing indices, fold new rows into them, compact, sweep tombstones, drop versions older than 7 days."""
        with self.writing():
            self._commits_unchecked = 0
            row_count = self._call(self._table.count_rows)
            if not row_count:
                return
            try:
                self._make_indices(row_count)
                if _tail_rows(self._indexed_columns().values()):
                    if self._table.count_rows(f"kind = '{TOMBSTONE}'"):
                        self._table.delete(f"kind = '{TOMBSTONE}'")
                    self._table.optimize(cleanup_older_than=KEEP_VERSIONS)
            except (RuntimeError, OSError, ValueError) as error:
                raise explain(error, self.uri) from error

    def _make_indices(self, row_count: int) -> None:
        """Make those that are missing; the vector index anew when its partitions were made for half the rows."""
        words = FTS(
            base_tokenizer="whitespace",
            lower_case=False,
            stem=False,
            remove_stop_words=False,
            ascii_folding=False,
            max_token_length=None,
        )
        wanted: dict[str, Any] = {"id": BTree(), "path_key": BTree(), "terms": words}
        if row_count >= VECTOR_INDEX_ROWS:
            # A quarter of the default sample and a fifth of its rounds: a third of the time, and the leg weighs 0.3.
            wanted["vector"] = IvfSq(distance_type="dot", max_iterations=10, sample_rate=64)
        have = self._indexed_columns()
        for column, config in wanted.items():
            made = have.get(column)
            outgrown = column == "vector" and made is not None and made.num_unindexed_rows >= made.num_indexed_rows
            if made is None or outgrown:
                self._table.create_index(column, config=config, replace=True)


def _tail_rows(indices: Iterable[Any]) -> int:
    """Return how many rows the index that is furthest behind has not seen."""
    return max((index.num_unindexed_rows or 0 for index in indices), default=0)


def _connect(location: Location) -> Any:
    session = lancedb.Session(index_cache_size_bytes=CACHE_BYTES, metadata_cache_size_bytes=CACHE_BYTES // 4)
    try:
        return lancedb.connect(location.uri, storage_options=location.lance_options() or None, session=session)
    except (RuntimeError, OSError, ValueError) as error:
        raise explain(error, location.uri) from error


def _scoped(query: Any, scope: Scope) -> Any:
    where = scope.where()
    return query.where(where) if where else query


def _make_folder(location: Location) -> None:
    import os

    try:
        os.makedirs(location.uri, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"{location.uri}: {error.strerror}", hint="choose a folder that you may write") from error


def _probe_conditional_writes(objects: Objects) -> None:
    """A store that ignores `If-None-Match` loses commits in silence: find out before the first one."""
    key = ".memfs-probe"
    objects.write(key, b"1")
    try:
        objects.write(key, b"2", if_absent=True)
    except ConflictError:
        return
    finally:
        objects.delete(key)
    raise ConfigError(
        f"{objects.uri}: this store ignores conditional writes (If-None-Match), so two writers would lose data",
        hint="use a store that honours them: AWS S3, Cloudflare R2, MinIO, SeaweedFS, GCS, Azure",
    )


def _check_format(found: pa.Schema, uri: str) -> None:
    metadata = found.metadata or {}
    if FORMAT_KEY not in metadata:
        raise NotACorpusError(
            f"{uri} holds a Lance table that memfs did not make", hint="give another URI to memfs init"
        )
    newer = int(metadata[FORMAT_KEY]) > FORMAT or int(metadata.get(ANALYZER_KEY, b"0")) > ANALYZER
    if newer:
        raise CorruptError(f"{uri} was written by a newer memfs", hint="pip install -U agent-memfs")


def _gate(put: Iterable[Document], skip: bool) -> tuple[dict[str, Document], list[Skipped]]:
    """Return the documents by checked path, NFC, and those refused; two names that fold alike: the first stays."""
    kept: dict[str, Document] = {}
    folded: dict[str, str] = {}
    refused: list[Skipped] = []
    for document in put:
        try:
            # The history's names are reserved: the gate keeps everybody else out.
            path = document.path if document.kind == HISTORY else paths.check(document.path)
            other = folded.setdefault(paths.fold(path), path)
            if other != path:
                raise PathError(path, f"differs only in case or Unicode form from {other!r}")
        except PathError as error:
            if not skip:
                raise
            refused.append(Skipped(error.path, error.reason))
            continue
        kept[path] = document if path == document.path else replace(document, path=path)
    return kept, refused


def _drop_collisions(
    documents: dict[str, Document],
    known: dict[str, Known],
    doomed: frozenset[str],
    refused: list[Skipped],
    skip: bool,
) -> dict[str, Document]:
    # What the same commit deletes makes room: for a folder of that name, or for another case.
    live = {key: file.path for key, file in known.items() if file.live and file.path not in doomed}
    names = live | {paths.fold(path): path for path in documents}
    kept: dict[str, Document] = {}
    for path, document in documents.items():
        stored = live.get(paths.fold(path), path)
        parent = next((names[key] for folder in paths.ancestors(path) if (key := paths.fold(folder)) in names), None)
        reason = (
            f"differs only in case or Unicode form from {stored!r}"
            if stored != path
            else f"its folder {parent!r} is a file"
            if parent
            else None
        )
        if reason is None:
            kept[path] = document
        elif skip:
            refused.append(Skipped(path, reason))
        else:
            raise PathError(path, reason)
    return kept


def _is_same(known: Known | None, document: Document) -> bool:
    return known is not None and known.live and known.path == document.path and known.sha256 == document.sha256()
