"""The manifest: for each file that memfs laid into a tree, what it was when it was laid.

An SQLite file outside the tree, `<state>/<id>/manifest.sqlite`. `memory/.memfs.toml`
holds the id and the corpus. A row is written *before* the file (`pending`), and
settled after: killed in between, the next run finds on disk either the old bytes or
the pending ones, knows both, and takes neither for an edit. A file that is evicted is
marked in the same way (`pending` is GOING) and its row goes after it: it was not
deleted by the user, whose deletions keep their row.

A file is *clean* when its bytes are those recorded; any other file in the tree is
the user's, and memfs never overwrites, evicts or deletes it.

Three small tables beside it (since format 2): what the corpus was last heard to hold
at a laid path (`heard`), which files are the corpus's side of a conflict (`copies`),
and which are session files that went to the corpus as transcripts (`imported`).
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from enum import IntEnum
from typing import Any, NamedTuple

from memfs.errors import CorruptError, DiskError

__all__ = ["GOING", "Copy", "Imported", "Inspection", "Laid", "Manifest", "Pin", "Seen", "inspect"]

FORMAT = 2
BUSY_TIMEOUT_S = 30
GOING = ""
"""What is `pending` for a file that is being evicted."""

_TABLES = """
CREATE TABLE IF NOT EXISTS meta (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS files (
    path TEXT PRIMARY KEY,
    sha256 TEXT NOT NULL,
    size INTEGER NOT NULL,
    version INTEGER NOT NULL,
    why TEXT NOT NULL,
    pinned INTEGER NOT NULL,
    generated INTEGER NOT NULL,
    used INTEGER NOT NULL,
    inode INTEGER,
    mtime_ns INTEGER,
    ctime_ns INTEGER,
    pending TEXT
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS heard (
    path TEXT PRIMARY KEY, sha256 TEXT NOT NULL, version INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS copies (
    copy TEXT PRIMARY KEY, path TEXT NOT NULL, sha256 TEXT NOT NULL
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS imported (
    path TEXT PRIMARY KEY, sha256 TEXT NOT NULL, size INTEGER NOT NULL,
    inode INTEGER NOT NULL, mtime_ns INTEGER NOT NULL, ctime_ns INTEGER NOT NULL
) WITHOUT ROWID;
"""
_COLUMNS = "path, sha256, size, version, why, pinned, generated, used, inode, mtime_ns, ctime_ns, pending"


class Seen(NamedTuple):
    """What `lstat` said of a file: equal values mean that nobody wrote to it in between."""

    inode: int
    size: int
    mtime_ns: int
    ctime_ns: int


class Pin(IntEnum):
    """Whether a file may be evicted."""

    NO = 0
    MAP = 1
    """Not while it is in the map: the last boot put it there."""
    USER = 2
    """Not until `memfs unpin`."""


class Laid(NamedTuple):
    """A file that memfs laid, or is laying (`pending` is its coming sha256), or is evicting (`pending` is GOING)."""

    path: str
    sha256: str
    size: int
    version: int
    """The corpus version that it was read from."""
    why: str
    """`boot`, `fetch: <question>`, `get`, `grep` or `push`."""
    pinned: Pin = Pin.NO
    generated: bool = False
    """Made by memfs for the tree (an index); no file of the corpus."""
    used: int = 0
    """Last use, seconds since the epoch."""
    seen: Seen | None = None
    pending: str | None = None


class Copy(NamedTuple):
    """A file that holds the corpus's side of a conflict, beside the one that was edited."""

    copy: str
    """Its own path."""
    path: str
    """Of the edited file."""
    sha256: str
    """As it was laid."""


class Imported(NamedTuple):
    """A session file of the user's that went to the corpus as transcripts; it is no file of the corpus itself."""

    path: str
    sha256: str
    seen: Seen


class Manifest:
    """The manifest of one tree. Use as a context manager; `writing()` is one transaction."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.file = os.path.join(folder, "manifest.sqlite")
        try:
            os.makedirs(folder, mode=0o700, exist_ok=True)
            self._db = sqlite3.connect(self.file, timeout=BUSY_TIMEOUT_S, isolation_level=None)
            self._db.execute("PRAGMA journal_mode=WAL")
            self._db.execute("PRAGMA synchronous=NORMAL")
            if int(self.meta("format") or 0) < FORMAT:
                # New, or of format 1, which lacks the small tables only.
                self._db.executescript(f"BEGIN IMMEDIATE; {_TABLES} COMMIT;")
                self.set_meta("format", str(FORMAT))
        except OSError as error:
            raise DiskError(
                f"{folder}: {error.strerror}", hint="set MEMFS_STATE_DIR to a folder you may write"
            ) from error
        except sqlite3.DatabaseError as error:
            raise _explain(error, self.file) from error
        if int(self.meta("format") or FORMAT) > FORMAT:
            raise CorruptError(f"{self.file} was written by a newer memfs", hint="pip install -U agent-memfs")

    def __enter__(self) -> Manifest:
        return self

    def __exit__(self, *_: object) -> None:
        self._db.close()

    @contextmanager
    def writing(self) -> Iterator[None]:
        """One transaction: all of the block's writes, or none."""
        try:
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield
            except BaseException:
                self._db.execute("ROLLBACK")
                raise
            self._db.execute("COMMIT")
        except sqlite3.DatabaseError as error:
            raise _explain(error, self.file) from error

    def meta(self, name: str) -> str | None:
        """Return a stored setting of the tree, or None."""
        try:
            row = self._db.execute("SELECT value FROM meta WHERE name = ?", (name,)).fetchone()
        except sqlite3.OperationalError as error:
            if "no such table" in str(error):
                return None
            raise
        return None if row is None else str(row[0])

    def set_meta(self, name: str, value: str) -> None:
        """Store a setting of the tree."""
        self._db.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (name, value))

    def all(self) -> dict[str, Laid]:
        """Return every laid file by path."""
        rows = self._db.execute(f"SELECT {_COLUMNS} FROM files ORDER BY path")
        return {row[0]: _laid(row) for row in rows}

    def some(self, paths: Iterable[str]) -> dict[str, Laid]:
        """Return those of the paths that were laid, by path."""
        wanted = list(paths)
        if len(wanted) > 100:
            everything = self.all()
            return {path: everything[path] for path in wanted if path in everything}
        one = f"SELECT {_COLUMNS} FROM files WHERE path = ?"
        rows = (self._db.execute(one, (path,)).fetchone() for path in wanted)
        return {row[0]: _laid(row) for row in rows if row is not None}

    def pending(self) -> list[str]:
        """Return the paths that a run announced and did not settle: it was killed."""
        return [row[0] for row in self._db.execute("SELECT path FROM files WHERE pending IS NOT NULL")]

    def pin(self, paths: Iterable[str], how: Pin) -> None:
        """Pin the laid files at `paths`, or unpin them with `Pin.NO`."""
        self._db.executemany("UPDATE files SET pinned = ? WHERE path = ?", ((int(how), path) for path in paths))

    def unpin_older_maps(self, version: int) -> None:
        """Unpin what an earlier boot pinned; the one that lays the map of corpus `version` pins what is in that."""
        self._db.execute("UPDATE files SET pinned = ? WHERE pinned = ? AND version != ?", (Pin.NO, Pin.MAP, version))

    def count(self) -> int:
        """Return how many files of the corpus were laid."""
        return int(self._db.execute("SELECT count(*) FROM files WHERE NOT generated").fetchone()[0])

    def record(self, files: Iterable[Laid]) -> None:
        """Insert or replace the rows of `files`."""
        values = (
            (
                f.path, f.sha256, f.size, f.version, f.why, int(f.pinned), f.generated, f.used,
                f.seen and f.seen.inode, f.seen and f.seen.mtime_ns, f.seen and f.seen.ctime_ns, f.pending,
            )
            for f in files
        )  # fmt: skip
        self._db.executemany(f"INSERT OR REPLACE INTO files ({_COLUMNS}) VALUES (?,?,?,?,?,?,?,?,?,?,?,?)", values)

    def forget(self, paths: Iterable[str]) -> None:
        """Drop the rows of `paths`; the files on disk are not touched."""
        gone = [(path,) for path in paths]
        self._db.executemany("DELETE FROM files WHERE path = ?", gone)
        self._db.executemany("DELETE FROM heard WHERE path = ?", gone)

    def hear(self, found: Iterable[tuple[str, str]], version: int) -> None:
        """Note what the corpus holds at (path, sha256) at `version`; sha256 is "" where the file is gone.

        Of two versions the newer is kept.
        """
        self._db.executemany(
            "INSERT INTO heard VALUES (?,?,?) ON CONFLICT(path) DO UPDATE "
            "SET sha256 = excluded.sha256, version = excluded.version WHERE excluded.version >= version",
            ((path, sha256, version) for path, sha256 in found),
        )

    def stale(self) -> dict[str, str]:
        """Return by path the sha256 that the corpus is known to hold where it is not what was laid; "" if gone."""
        rows = self._db.execute(
            "SELECT heard.path, heard.sha256 FROM heard JOIN files USING (path) "
            "WHERE heard.sha256 != files.sha256 AND heard.version > files.version ORDER BY heard.path"
        )
        return dict(rows.fetchall())

    def copies(self) -> dict[str, Copy]:
        """Return the conflict copies that were laid, by their own path; they may be on disk no longer."""
        return {row[0]: Copy(*row) for row in self._db.execute("SELECT copy, path, sha256 FROM copies ORDER BY copy")}

    def record_copy(self, copy: Copy) -> None:
        """Note that a file is a conflict copy."""
        self._db.execute("INSERT OR REPLACE INTO copies VALUES (?,?,?)", copy)

    def forget_copies(self, copies: Iterable[str]) -> None:
        """Drop the rows of these conflict copies; the files are not touched."""
        self._db.executemany("DELETE FROM copies WHERE copy = ?", ((copy,) for copy in copies))

    def imported(self) -> dict[str, Imported]:
        """Return the session files that went to the corpus, by path."""
        rows = self._db.execute("SELECT path, sha256, inode, size, mtime_ns, ctime_ns FROM imported")
        return {path: Imported(path, sha256, Seen(*seen)) for path, sha256, *seen in rows}

    def record_imported(self, files: Iterable[Imported]) -> None:
        """Note that these session files went to the corpus."""
        values = ((f.path, f.sha256, f.seen.size, f.seen.inode, f.seen.mtime_ns, f.seen.ctime_ns) for f in files)
        self._db.executemany("INSERT OR REPLACE INTO imported VALUES (?,?,?,?,?,?)", values)


def _laid(row: Any) -> Laid:
    path, sha256, size, version, why, pinned, generated, used, inode, mtime_ns, ctime_ns, pending = row
    seen = None if inode is None else Seen(inode, size, mtime_ns, ctime_ns)
    return Laid(path, sha256, size, version, why, Pin(pinned), bool(generated), used, seen, pending)


class Inspection(NamedTuple):
    """A manifest as it was found, without opening it for writing."""

    root: str | None
    """The folder of the tree that it is of."""
    damage: str
    """What SQLite says of it; "" for nothing."""


def inspect(folder: str) -> Inspection | None:
    """Check the manifest in `folder` and write nothing; None if there is none."""
    file = os.path.join(folder, "manifest.sqlite")
    if not os.path.exists(file):
        return None
    from urllib.parse import quote

    try:
        with closing(sqlite3.connect(f"file:{quote(file)}?mode=ro", uri=True, timeout=BUSY_TIMEOUT_S)) as database:
            ((said, *_), *_) = database.execute("PRAGMA integrity_check").fetchall()
            row = database.execute("SELECT value FROM meta WHERE name = 'root'").fetchone()
            database.execute(f"SELECT {_COLUMNS} FROM files LIMIT 1").fetchone()
    except sqlite3.DatabaseError as error:
        return Inspection(None, str(error))
    return Inspection(None if row is None else str(row[0]), "" if said == "ok" else str(said))


def _explain(error: sqlite3.DatabaseError, file: str) -> Exception:
    text = str(error)
    if "full" in text or "readonly" in text or "unable to open" in text or "disk I/O" in text:
        return DiskError(f"{file}: {text}", hint="make room, or set MEMFS_STATE_DIR to a folder you may write")
    if "locked" in text:
        return DiskError(f"{file}: another memfs command has held it for {BUSY_TIMEOUT_S} s", hint="try again")
    return CorruptError(
        f"{file}: {text}", hint="delete that file and boot again: files on disk are kept, and compared anew"
    )
