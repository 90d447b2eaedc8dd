"""The host's cache, shared by its sandboxes: bytes by sha256, and the last boot sets. The owner of diskcache.

diskcache keeps pickles by default, and its JSONDisk does not stop a tampered row from
being unpickled (CVE-2025-69872). `_StrictDisk` takes and gives bytes under text keys
only. The folder is 0700 and outside every tree; each hit is hashed before it is used.

Of the blobs, those used longest ago go when all are over the limit. diskcache's own
limit is not used: it evicts ten rows a write, and counts pages that a transaction has
not freed yet, so that one large batch would evict nearly everything, itself included.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from memfs.errors import ConfigError, DiskError
from memfs.workset.space import network_file_system, space

__all__ = ["BootCopy", "CacheCheck", "HostCache"]

MAX_BYTES = 4 << 30
SHRINK_TO = 0.9
"""Of the limit, when it is passed: not every write after that has to shrink it again."""
USE_PRECISION_S = 86_400
"""A blob's last use is written at most once a day, as the kernel does with access times: reading costs no write."""
SWEEP_ROWS = 1_000
SIZE_MAX = 1 << 62
"""diskcache's own limit: out of the way."""
SAMPLE_BLOBS = 200


class BootCopy(NamedTuple):
    """A boot set that this host fetched before."""

    data: bytes
    etag: str


class CacheCheck(NamedTuple):
    """What a look at every blob, or at a sample of them, found."""

    blobs: int
    checked: int
    """Hashed."""
    damaged: tuple[str, ...]
    """Digests whose bytes are not theirs."""
    complaints: tuple[str, ...]
    """What diskcache says of its database and files."""


class HostCache:
    """The cache in a folder. Constructing it touches nothing; a cache that cannot be used is a miss, never an error.

    `max_bytes` is of the blobs. Nothing is kept that would leave the disk with less than its
    free-space floor (`min_free_bytes`; None for the default).
    """

    def __init__(self, folder: str, *, max_bytes: int = MAX_BYTES, min_free_bytes: int | None = None) -> None:
        self.folder, self.max_bytes, self.min_free_bytes = folder, max_bytes, min_free_bytes
        self._blobs: Any = None

    # -- boot sets: plain files, so that a boot need not load diskcache (50 ms) --------

    def boot_copy(self, uri: str) -> BootCopy | None:
        """Return the copy of the corpus's boot set, if it is whole."""
        try:
            if os.lstat(self.folder).st_uid != os.getuid():
                return None
        except OSError:
            return None
        return _read_boot(self._boot_file(uri))

    def keep_boot(self, uri: str, copy: BootCopy) -> None:
        """Keep the boot set for the next sandbox; an old copy is replaced whole, or stays."""
        file = self._boot_file(uri)
        head = json.dumps({"etag": copy.etag, "sha256": hashlib.sha256(copy.data).hexdigest()}).encode() + b"\n"
        temporary = f"{file}.{os.urandom(6).hex()}.tmp"
        try:
            self._make(os.path.dirname(file))
            if self._usable_bytes() < len(copy.data):
                return
            with open(temporary, "xb") as handle:
                handle.write(head + copy.data)
            os.replace(temporary, file)
        except (OSError, DiskError):
            # A full or read-only cache costs the next boot a download, nothing else.
            _remove(temporary)

    def damaged_boot_copies(self, *, fix: bool) -> tuple[str, ...]:
        """Return the names of boot copies that are not whole; with `fix` delete them."""
        folder = os.path.join(self.folder, "boot")
        try:
            files = [os.path.join(folder, name) for name in sorted(os.listdir(folder))]
        except OSError:
            return ()
        damaged = tuple(file for file in files if _read_boot(file) is None)
        for file in damaged if fix else ():
            _remove(file)
        return tuple(map(os.path.basename, damaged))

    def _boot_file(self, uri: str) -> str:
        return os.path.join(self.folder, "boot", hashlib.sha256(uri.encode()).hexdigest()[:32])

    # -- blobs ---------------------------------------------------------------------------

    def read(self, hashes: Sequence[str]) -> dict[str, bytes]:
        """Return those of the sha256 digests that are here, each checked; a damaged one is dropped and is a miss."""
        blobs = self._usable()
        found: dict[str, bytes] = {}
        for sha256 in hashes if blobs is not None else ():
            data = _read_blob(blobs, sha256)
            if data is not None:
                found[sha256] = data
        if found:
            _mark_used(blobs, list(found))
        return found

    def has(self, hashes: Sequence[str]) -> frozenset[str]:
        """Return those of the digests that are here, by name only."""
        blobs = self._usable()
        return frozenset() if blobs is None else frozenset(sha256 for sha256 in hashes if sha256 in blobs)

    def keep(self, contents: Mapping[str, bytes]) -> None:
        """Keep bytes under their sha256 digest, in one transaction; what has no room is not kept."""
        import sqlite3

        import diskcache

        blobs = self._usable()
        if blobs is None:
            return
        try:
            with blobs.transact():
                for sha256 in self._with_room(contents):
                    blobs.set(sha256, contents[sha256])
            self._shrink(blobs, self.max_bytes)
        except (OSError, sqlite3.DatabaseError, diskcache.Timeout):
            # As above: a cache that cannot take it is only a slower next time.
            return

    def _with_room(self, contents: Mapping[str, bytes]) -> Iterator[str]:
        """Yield what fits below the limit by itself and above the disk's floor."""
        room = min(self.max_bytes, self._usable_bytes())
        for sha256, data in contents.items():
            if len(data) <= room:
                room -= len(data)
                yield sha256

    def _usable_bytes(self) -> int:
        return space(self.folder, self.min_free_bytes).usable_bytes

    def _shrink(self, blobs: Any, max_bytes: int) -> None:
        """Drop what was used longest ago until the blobs are well below the limit."""
        if blobs.volume() <= max_bytes:
            return
        while (excess := blobs.volume() - int(max_bytes * SHRINK_TO)) > 0:
            going = list(_least_recent(blobs, excess))
            if not going:
                return
            # The pages are free only after the transaction.
            with blobs.transact():
                blobs._sql(f"DELETE FROM Cache WHERE rowid IN ({','.join(str(rowid) for rowid, _ in going)})")
            for _, filename in going:
                _remove_value(blobs, filename)

    def blob_bytes(self) -> int:
        """Return what the blobs take on disk, their database included; 0 if there are none. Makes nothing."""
        if not os.path.exists(os.path.join(self.folder, "blobs", "cache.db")):
            return 0
        blobs = self._usable()
        return 0 if blobs is None else int(blobs.volume())

    def check(self, *, deep: bool, fix: bool) -> CacheCheck | None:
        """Hash every blob, or without `deep` a sample; with `fix` drop the damaged. None if there are no blobs yet.

        Raises:
            DiskError: the store cannot be opened.
            ConfigError: the folder is another user's, or on a network file system.
        """
        import sqlite3
        import warnings

        import diskcache

        if not os.path.exists(os.path.join(self.folder, "blobs", "cache.db")):
            return None
        blobs = self._open()
        try:
            count = int(blobs._sql("SELECT count(*) FROM Cache").fetchone()[0])
            some = "" if deep else f" ORDER BY random() LIMIT {SAMPLE_BLOBS}"
            keys = [key for (key,) in blobs._sql(f"SELECT key FROM Cache{some}")]
            damaged = [key for key in keys if not _is_sound(blobs, key)]
            for key in damaged if fix else ():
                for (filename,) in blobs._sql("SELECT filename FROM Cache WHERE key = ?", (key,)).fetchall():
                    _remove_value(blobs, filename)
                blobs._sql("DELETE FROM Cache WHERE key = ?", (key,))
            with warnings.catch_warnings():
                # diskcache reports by warnings, which the process's filters would raise or keep to the first.
                warnings.simplefilter("always")
                complaints = tuple(str(warning.message) for warning in blobs.check(fix=fix))
        except (OSError, sqlite3.DatabaseError, diskcache.Timeout) as error:
            raise DiskError(
                f"the cache in {self.folder}: {error}", hint=f"delete {self.folder}/blobs; it is only a cache"
            ) from error
        return CacheCheck(count, len(keys), tuple(map(str, damaged)), complaints)

    def _usable(self) -> Any:
        """Return the blob store, or None where the disk is full or the store damaged."""
        try:
            return self._open()
        except DiskError:
            return None

    def _open(self) -> Any:
        if self._blobs is None:
            self._blobs = _open_blobs(self._make(os.path.join(self.folder, "blobs")))
        return self._blobs

    def _make(self, folder: str) -> str:
        try:
            os.makedirs(self.folder, mode=0o700, exist_ok=True)
            os.makedirs(folder, mode=0o700, exist_ok=True)
            status = os.lstat(self.folder)
        except OSError as error:
            raise DiskError(
                f"the cache folder {self.folder}: {error.strerror}",
                hint="set MEMFS_CACHE_DIR to a folder you may write",
            ) from error
        if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid():
            raise ConfigError(
                f"the cache folder {self.folder} belongs to another user",
                hint="set MEMFS_CACHE_DIR to a folder of your own",
            )
        if status.st_mode & 0o077:
            os.chmod(self.folder, 0o700)
        return folder

    def close(self) -> None:
        """Close the blob store, if it was opened."""
        if self._blobs is not None:
            self._blobs.close()
            self._blobs = None


def _read_boot(file: str) -> BootCopy | None:
    try:
        with open(file, "rb") as handle:
            head = json.loads(handle.readline(4096))
            data = handle.read()
        if hashlib.sha256(data).hexdigest() == head["sha256"]:
            return BootCopy(data, str(head["etag"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return None


def _read_blob(blobs: Any, sha256: str) -> bytes | None:
    import sqlite3

    try:
        data = blobs.get(sha256)
    except (OSError, ValueError, sqlite3.DatabaseError):
        data = b""
    if data is None:
        return None
    if not isinstance(data, bytes) or hashlib.sha256(data).hexdigest() != sha256:
        with suppress(OSError, sqlite3.DatabaseError):
            blobs.delete(sha256)
        return None
    return data


def _is_sound(blobs: Any, key: Any) -> bool:
    try:
        data = blobs.get(key) if isinstance(key, str) else None
    except (OSError, ValueError):
        return False
    return isinstance(data, bytes) and hashlib.sha256(data).hexdigest() == key


def _mark_used(blobs: Any, hashes: Sequence[str]) -> None:
    """Note today's use of the blobs, in one write; those that were used today already cost none."""
    import sqlite3
    import time

    now = time.time()
    try:
        for at in range(0, len(hashes), 500):
            some = hashes[at : at + 500]
            stale = f"key IN ({','.join('?' * len(some))}) AND access_time < ?"
            values = (*some, now - USE_PRECISION_S)
            if blobs._sql(f"SELECT 1 FROM Cache WHERE {stale} LIMIT 1", values).fetchone():
                blobs._sql(f"UPDATE Cache SET access_time = ? WHERE {stale}", (now, *values))
    except sqlite3.DatabaseError:
        # Somebody else is writing, or the disk is full: the blob only looks older than it is.
        return


def _least_recent(blobs: Any, need_bytes: int) -> Iterator[tuple[int, str | None]]:
    """Yield (rowid, file name) of what was used longest ago, `need_bytes` of it or SWEEP_ROWS."""
    size = "CASE WHEN filename IS NULL THEN length(value) ELSE size END"
    oldest = f"SELECT rowid, filename, {size} FROM Cache ORDER BY access_time, rowid LIMIT {SWEEP_ROWS}"
    for rowid, filename, bytes_ in blobs._sql(oldest).fetchall():
        if need_bytes <= 0:
            return
        yield rowid, filename
        need_bytes -= int(bytes_ or 0)


def _remove_value(blobs: Any, filename: str | None) -> None:
    if filename is not None:
        with suppress(OSError):
            blobs.disk.remove(filename)


def _open_blobs(folder: str) -> Any:
    import fcntl
    import sqlite3

    import diskcache
    from diskcache.core import MODE_PICKLE, UNKNOWN

    class _StrictDisk(diskcache.Disk):  # type: ignore[misc]
        """Bytes under text keys; whatever else a row claims to be is refused before it is opened."""

        def put(self, key: Any) -> tuple[str, bool]:
            if not isinstance(key, str):
                raise TypeError("the cache takes text keys only")
            return key, True

        def get(self, key: Any, raw: bool) -> str:
            if not raw or not isinstance(key, str):
                raise ValueError("a cache row with a foreign key")
            return key

        def store(self, value: Any, read: bool, key: Any = UNKNOWN) -> Any:
            if read or not isinstance(value, bytes):
                raise TypeError("the cache takes bytes only")
            return super().store(value, read, key)

        def fetch(self, mode: int, filename: Any, value: Any, read: bool) -> Any:
            if mode == MODE_PICKLE:
                raise ValueError("a cache row that memfs did not write")
            if filename is not None and _leads_outside(filename):
                raise ValueError("a cache row that points outside the cache")
            return super().fetch(mode, filename, value, read)

        def remove(self, file_path: Any) -> None:
            # diskcache deletes the file that a row names, whatever it names.
            if not _leads_outside(file_path):
                super().remove(file_path)

    if network_file_system(folder):
        raise ConfigError(
            f"the cache folder {folder} is on a network file system", hint="set MEMFS_CACHE_DIR to a local folder"
        )
    # Two first uses at once end in "database is locked" (diskcache #85).
    # Beside the folder: diskcache's own check deletes files in it that it does not know.
    lock = os.open(f"{folder}.opening", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        # All settings that matter: diskcache keeps what an earlier opening was given.
        return diskcache.Cache(
            folder, disk=_StrictDisk, size_limit=SIZE_MAX, cull_limit=0, eviction_policy="none", timeout=10
        )
    except (sqlite3.DatabaseError, OSError, TypeError, ValueError, KeyError, AttributeError) as error:
        # The last four: a settings table that diskcache did not write.
        raise DiskError(
            f"the cache in {folder} cannot be opened: {error}", hint=f"delete {folder}; it is only a cache"
        ) from error
    finally:
        os.close(lock)


def _leads_outside(filename: str) -> bool:
    return os.path.isabs(filename) or ".." in filename.split("/")


def _remove(file: str) -> None:
    with suppress(OSError):
        os.unlink(file)
