"""The host's cache, shared by its sandboxes: bytes by sha256, and the last boot sets. The owner of diskcache.

diskcache keeps pickles by default, and its JSONDisk does not stop a tampered row from
being unpickled (CVE-2025-69872). `_StrictDisk` takes and gives bytes under text keys
only. The folder is 0700 and outside every tree; each hit is hashed before it is used.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from memfs.errors import ConfigError, DiskError

__all__ = ["BootCopy", "HostCache"]

SIZE_LIMIT_BYTES = 4 << 30
NETWORK_FILE_SYSTEMS = frozenset(("nfs", "nfs4", "cifs", "smb3", "fuse.sshfs", "9p", "afs", "lustre", "glusterfs"))
"""SQLite's locks do not hold there."""


class BootCopy(NamedTuple):
    """A boot set that this host fetched before."""

    data: bytes
    etag: str


class HostCache:
    """The cache in a folder. Constructing it touches nothing; a cache that cannot be used is a miss, never an error."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self._blobs: Any = None

    # -- boot sets: plain files, so that a boot need not load diskcache (50 ms) --------

    def boot_copy(self, uri: str) -> BootCopy | None:
        """Return the copy of the corpus's boot set, if it is whole."""
        try:
            if os.lstat(self.folder).st_uid != os.getuid():
                return None
            with open(self._boot_file(uri), "rb") as handle:
                head = json.loads(handle.readline(4096))
                data = handle.read()
            if hashlib.sha256(data).hexdigest() == head["sha256"]:
                return BootCopy(data, str(head["etag"]))
        except (OSError, ValueError, KeyError, TypeError):
            return None
        return None

    def keep_boot(self, uri: str, copy: BootCopy) -> None:
        """Keep the boot set for the next sandbox; an old copy is replaced whole, or stays."""
        file = self._boot_file(uri)
        head = json.dumps({"etag": copy.etag, "sha256": hashlib.sha256(copy.data).hexdigest()}).encode() + b"\n"
        temporary = f"{file}.{os.urandom(6).hex()}.tmp"
        try:
            self._make(os.path.dirname(file))
            with open(temporary, "xb") as handle:
                handle.write(head + copy.data)
            os.replace(temporary, file)
        except (OSError, DiskError):
            # A full or read-only cache costs the next boot a download, nothing else.
            _remove(temporary)

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
        return found

    def has(self, hashes: Sequence[str]) -> frozenset[str]:
        """Return those of the digests that are here, by name only."""
        blobs = self._usable()
        return frozenset() if blobs is None else frozenset(sha256 for sha256 in hashes if sha256 in blobs)

    def keep(self, contents: Mapping[str, bytes]) -> None:
        """Keep bytes under their sha256 digest, in one transaction."""
        import sqlite3

        import diskcache

        blobs = self._usable()
        if blobs is None:
            return
        try:
            with blobs.transact():
                for sha256, data in contents.items():
                    blobs.set(sha256, data)
        except (OSError, sqlite3.DatabaseError, diskcache.Timeout):
            # As above: a cache that cannot take it is only a slower next time.
            return

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

    if _is_network(folder):
        raise ConfigError(
            f"the cache folder {folder} is on a network file system", hint="set MEMFS_CACHE_DIR to a local folder"
        )
    # Two first uses at once end in "database is locked" (diskcache #85).
    lock = os.open(os.path.join(folder, ".opening"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return diskcache.Cache(
            folder, disk=_StrictDisk, size_limit=SIZE_LIMIT_BYTES, eviction_policy="least-recently-stored", timeout=10
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


def _is_network(folder: str) -> bool:
    """Look the folder's mount up in /proc/mounts; where there is none, say no."""
    try:
        with open("/proc/mounts", encoding="utf-8", errors="replace") as handle:
            mounts = [line.split(" ")[1:3] for line in handle]
    except OSError:
        return False
    real = os.path.realpath(folder) + "/"
    inside = [(len(point), kind) for point, kind in mounts if real.startswith(point.rstrip("/") + "/")]
    return bool(inside) and max(inside)[1] in NETWORK_FILE_SYSTEMS


def _remove(file: str) -> None:
    with suppress(OSError):
        os.unlink(file)
