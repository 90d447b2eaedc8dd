"""One writer at a time: the corpus lease.

On a local folder it is an `flock` on `.memfs-lease`: the kernel frees it when its
holder dies. On an object store it is `lease.json`, written with conditional PUTs:

    {"fence": 7, "owner": "host/pid/…", "held": true, "nonce": "…"}

A holder rewrites it every TTL_S / 3. No clock is compared between machines: a waiter
takes an unreleased lease over only after it has seen the same etag for TTL_S on
its own monotonic clock. The fence grows by one at each taking, so a holder that
was paused finds out (`check`) that it lost the lease, and then verifies its ids.
"""

from __future__ import annotations

import json
import os
import random
import secrets
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from memfs.corpus.location import Location
from memfs.corpus.objects import Objects
from memfs.errors import ConflictError, CorruptError, DiskError, MemfsError, NotFoundError

__all__ = ["TTL_S", "Lease", "hold", "holder"]

TTL_S = 15.0
WAIT_S = 120.0
KEY = "lease.json"
LOCK_FILE = ".memfs-lease"


class Lease:
    """A lease that is held; `still_held()` says whether nobody took it over meanwhile."""

    def still_held(self) -> bool:
        """Return True if no other writer can have committed since the lease was taken."""
        return True


@dataclass(frozen=True, slots=True)
class _Record:
    fence: int
    owner: str
    held: bool

    def encode(self) -> bytes:
        # The nonce makes every write's etag differ: an S3 etag is a hash of the content.
        fields = {"fence": self.fence, "owner": self.owner, "held": self.held, "nonce": secrets.token_hex(8)}
        return json.dumps(fields).encode()


def _decode(data: bytes) -> _Record:
    try:
        fields = json.loads(data)
        return _Record(int(fields["fence"]), str(fields["owner"]), bool(fields["held"]))
    except (ValueError, KeyError, TypeError) as error:
        raise CorruptError(
            "lease.json is not readable", hint="if no writer is running, delete lease.json from the corpus"
        ) from error


@contextmanager
def hold(location: Location, objects: Objects, *, wait_s: float = WAIT_S) -> Iterator[Lease]:
    """Hold the corpus's lease for the `with` block.

    Raises:
        ConflictError: another writer held it for all of `wait_s`.
    """
    if location.is_local:
        with _hold_flock(os.path.join(location.uri, LOCK_FILE), wait_s):
            yield Lease()
        return
    lease = _RemoteLease(objects, wait_s)
    try:
        yield lease
    finally:
        lease.release()


def holder(location: Location, objects: Objects) -> str | None:
    """Return who holds the corpus's lease now, without taking it; None for nobody.

    Raises:
        CorruptError: the lease object is not readable.
    """
    if not location.is_local:
        try:
            fetched = objects.read(KEY)
        except NotFoundError:
            return None
        assert fetched is not None
        record = _decode(fetched.data)
        return record.owner if record.held else None
    import fcntl

    try:
        fd = os.open(os.path.join(location.uri, LOCK_FILE), os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return None
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return "a process on this machine"
    finally:
        os.close(fd)
    return None


@contextmanager
def _hold_flock(path: str, wait_s: float) -> Iterator[None]:
    import fcntl

    try:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666)
    except OSError as error:
        raise DiskError(
            f"{path}: {error.strerror}", hint="check the corpus folder's owner, mode and free space"
        ) from error
    try:
        deadline = time.monotonic() + wait_s
        while True:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise _busy(wait_s, "a process on this machine") from None
                time.sleep(random.uniform(0.002, 0.02))
        yield
    finally:
        os.close(fd)


def _busy(wait_s: float, owner: str) -> ConflictError:
    return ConflictError(
        f"another writer ({owner}) held the corpus for {wait_s:.0f} s",
        hint="wait for it to finish, then run this again",
    )


class _RemoteLease(Lease):
    def __init__(self, objects: Objects, wait_s: float) -> None:
        self._objects = objects
        self._owner = f"{socket.gethostname()}/{os.getpid()}/{secrets.token_hex(4)}"
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._lost = False
        self._etag, self._fence = self._take(wait_s)
        self._heart = threading.Thread(target=self._beat, name="memfs-lease", daemon=True)
        self._heart.start()

    def _take(self, wait_s: float) -> tuple[str, int]:
        deadline = time.monotonic() + wait_s
        seen_etag, seen_at = "", 0.0
        while True:
            current = self._read()
            if current is None:
                etag, record = None, _Record(0, "", False)
            else:
                etag, record = current
            if etag != seen_etag:
                seen_etag, seen_at = etag or "", time.monotonic()
            if not record.held or time.monotonic() - seen_at > TTL_S:
                taken = self._try_write(_Record(record.fence + 1, self._owner, True), etag)
                if taken:
                    return taken, record.fence + 1
            if time.monotonic() > deadline:
                raise _busy(wait_s, record.owner)
            time.sleep(random.uniform(0.01, 0.12))

    def _read(self) -> tuple[str, _Record] | None:
        try:
            fetched = self._objects.read(KEY)
        except NotFoundError:
            return None
        assert fetched is not None
        return fetched.etag, _decode(fetched.data)

    def _try_write(self, record: _Record, etag: str | None) -> str | None:
        """Return the new etag, or None if another writer was faster."""
        try:
            return self._objects.write(KEY, record.encode(), if_etag=etag, if_absent=etag is None)
        except ConflictError:
            # A retried PUT whose first try did arrive conflicts with itself: look who owns it.
            current = self._read()
            mine = current is not None and current[1].owner == self._owner and current[1].fence == record.fence
            return current[0] if current is not None and mine else None

    def _beat(self) -> None:
        while not self._stop.wait(TTL_S / 3):
            # Whatever goes wrong here, `still_held` finds out after the commit.
            with self._lock, suppress(MemfsError):
                if self._stop.is_set():
                    return
                renewed = self._try_write(_Record(self._fence, self._owner, True), self._etag)
                if renewed is None:
                    self._lost = True
                    return
                self._etag = renewed

    def still_held(self) -> bool:
        with self._lock:
            if self._lost:
                return False
            current = self._read()
            return current is not None and current[1].owner == self._owner and current[1].fence == self._fence

    def release(self) -> None:
        self._stop.set()
        with self._lock, suppress(MemfsError):
            # If this fails, the next writer waits TTL_S and takes it over.
            if not self._lost:
                self._objects.write(KEY, _Record(self._fence, self._owner, False).encode(), if_etag=self._etag)
