"""memfs serve: one resident process for one tree, so that a command need not load and open what the last one had.

It holds the open table, the catalogue, the model and the mirror, and runs the command
lines that thin clients (memfs.client) send over a Unix socket, each in a thread, by the
same code that runs them in a process of their own. The socket is in a folder of the
user's own, mode 0600, and a peer of another user is refused.

It ends when the tree is gone or has become another, and when nothing was asked for a
while. A lock beside the socket, which the kernel frees at any death, keeps it single.
"""

from __future__ import annotations

import copy
import fcntl
import io
import os
import signal
import socket
import struct
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from memfs import client
from memfs.commands import Invocation
from memfs.config import Config
from memfs.corpus.location import parse
from memfs.errors import ConfigError, ConflictError, MemfsError
from memfs.workset.mirror import Mirror
from memfs.workset.tree import read_mark

if TYPE_CHECKING:
    from memfs.corpus.table import Corpus
    from memfs.workset.cache import HostCache

__all__ = ["Server", "log_of", "serve", "stop"]

AT_ONCE = 4
"""Commands that run at the same time; more wait."""
CLIENTS_MAX = 100
"""Connections at a time; one more is closed at once, and its command does its own work."""
STUCK_S = 0.2
"""How long a client may read nothing before its command lets another one run."""
GONE_S = 600
"""How long until it is taken for gone."""
ALIVE_EVERY_S = 1.0
"""How often a client is told that its command still runs."""
CHECK_S = 2.0
STOP_S = 5.0
REQUEST_BYTES_MAX = 4 << 20
REQUEST_TIMEOUT_S = 10
WARM_BYTES = 1 << 30
"""A corpus of at most so many bytes is mirrored ahead of the first search."""


def serve(config: Config, *, idle_s: float, log: io.TextIOBase) -> None:
    """Serve the tree until it is gone, or nothing was asked for `idle_s` seconds.

    Raises:
        ConfigError: no tree, or no safe folder for the socket.
        ConflictError: it is served already.
    """
    mark = _mark(config)
    file = client.socket_file(mark[1])
    if file is None:
        raise ConfigError(
            "no folder for the socket is safe", hint="set XDG_RUNTIME_DIR to a folder of your own, mode 0700"
        )
    lock = os.open(f"{file}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    with suppress(OSError):
        if os.path.samestat(os.fstat(0), os.fstat(lock)):
            # Started by memfs.client.start, which holds the lock for it: the same open file, so it is its own.
            os.close(lock)
            lock = os.dup(0)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ConflictError(f"{config.tree} is served already", hint="memfs serve --stop ends it") from None
        # So that what is in `finally` is done.
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
        os.ftruncate(lock, 0)
        os.pwrite(lock, f"{os.getpid()}\n".encode(), 0)
        Server(config, mark, file, log).run(idle_s)
    finally:
        os.close(lock)


class Server:
    """The resident process of one tree."""

    def __init__(self, config: Config, mark: tuple[str, str], file: str, log: io.TextIOBase) -> None:
        self._config, self._mark, self._file, self._log = config, mark, file, log
        self._settings = client.settings()
        self._resident = _Resident(config._replace(corpus=config.corpus or mark[0]))
        self._gate = threading.BoundedSemaphore(AT_ONCE)
        self._active = 0
        self._answers: set[_Answer] = set()
        self._used = time.monotonic()
        self._count = threading.Lock()

    def run(self, idle_s: float) -> None:
        """Listen until it is time to end."""
        with suppress(FileNotFoundError):
            os.unlink(self._file)
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        before = os.umask(0o177)
        try:
            listener.bind(self._file)
        finally:
            os.umask(before)
        inode = os.stat(self._file).st_ino
        try:
            listener.listen(64)
            listener.settimeout(CHECK_S)
            threading.Thread(target=self._warm, daemon=True).start()
            threading.Thread(target=self._tell_alive, daemon=True).start()
            self._say(f"serving {self._config.tree}")
            while not self._is_over(idle_s):
                with suppress(TimeoutError):
                    connection, _ = listener.accept()
                    if self._active >= CLIENTS_MAX:
                        connection.close()
                        continue
                    with self._count:
                        self._active += 1
                    threading.Thread(target=self._answer, args=(connection,), daemon=True).start()
        finally:
            listener.close()
            with suppress(FileNotFoundError):
                if os.stat(self._file).st_ino == inode:
                    os.unlink(self._file)

    def _is_over(self, idle_s: float) -> bool:
        try:
            gone = read_mark(self._config.tree) != self._mark
        except (MemfsError, OSError):
            gone = True
        with self._count:
            idle = not self._active and time.monotonic() - self._used > idle_s
        if gone or idle:
            self._say("the tree is gone" if gone else "idle")
        return gone or idle

    def _warm(self) -> None:
        try:
            self._resident.warm()
            self._say("warm")
        except Exception as error:  # noqa: BLE001 - a command will meet it again, and say so to its user
            self._say(f"not warmed: {type(error).__name__}: {error}")

    def _answer(self, connection: socket.socket) -> None:
        try:
            with connection:
                connection.settimeout(REQUEST_TIMEOUT_S)
                request = self._request(connection)
                if request is None:
                    return
                connection.sendall(b"a")
                answer = _Answer(connection, self._gate)
                if request.settings != self._settings or request.argv[0] not in client.SERVED:
                    answer.send(b"d", b"")
                    return
                with self._told(answer), self._gate:
                    code = self._run(request.argv, request.cwd, answer)
                    self._say(f"served {request.argv[0]}: {code}")
                    answer.send(b"x", str(code).encode())
        except OSError:
            # The client has gone; what it asked for ends with it.
            pass
        except Exception as error:  # noqa: BLE001 - one request must not end the others
            self._say(f"{type(error).__name__}: {error}")
        finally:
            with self._count:
                self._active -= 1
                self._used = time.monotonic()

    @contextmanager
    def _told(self, answer: _Answer) -> Iterator[None]:
        """While the block runs, the client hears that its command does, even when it waits for its turn."""
        with self._count:
            self._answers.add(answer)
        try:
            yield
        finally:
            with self._count:
                self._answers.discard(answer)

    def _tell_alive(self) -> None:
        while True:
            time.sleep(ALIVE_EVERY_S)
            with self._count:
                answers = list(self._answers)
            for answer in answers:
                answer.tell_alive()

    def _request(self, connection: socket.socket) -> _Request | None:
        """Read one request of a peer that is this user; None for anything else."""
        if hasattr(socket, "SO_PEERCRED"):
            _, uid, _ = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
            if uid != os.getuid():
                self._say(f"refused user {uid}")
                return None
        stream = connection.makefile("rb")
        size = int.from_bytes(stream.read(4), "big")
        if not 0 < size <= REQUEST_BYTES_MAX:
            return None
        return _Request.parse(stream.read(size))

    def _run(self, argv: list[str], cwd: str, answer: _Answer) -> int:
        from memfs.cli import run

        out, err = _Stream(answer, b"o"), _Stream(answer, b"e")
        code = run(argv, _ResidentInvocation(self._resident, os.environ, cwd, out, err))
        out.flush()
        err.flush()
        return code

    def _say(self, text: str) -> None:
        self._log.write(f"{time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime())} {text}\n")
        self._log.flush()


class _Request(NamedTuple):
    """What a client asks for."""

    settings: list[str]
    cwd: str
    argv: list[str]

    @classmethod
    def parse(cls, data: bytes) -> _Request | None:
        """Read what memfs.client sends; None for anything else."""
        texts = [os.fsdecode(text) for text in data.split(b"\0")]
        if texts.pop() or not texts or not texts[0].isdecimal() or len(texts[0]) > 4:
            return None
        count = int(texts[0])
        settings, rest = texts[1 : 1 + count], texts[1 + count :]
        return cls(settings, rest[0], rest[1:]) if len(rest) > 1 else None


class _Answer:
    """Frames to one client, which may be slow: while it reads nothing, its command's place in `gate` is another's."""

    def __init__(self, connection: socket.socket, gate: threading.BoundedSemaphore) -> None:
        self._connection, self._gate = connection, gate
        self._lock = threading.Lock()
        self._rest = b""

    def send(self, kind: bytes, data: bytes) -> None:
        """Send a frame, from the command's own thread.

        Raises:
            OSError: the client is gone.
        """
        with self._lock:
            frame = memoryview(self._rest + kind + len(data).to_bytes(4, "big") + data)
            self._rest = b""
            self._connection.settimeout(STUCK_S)
            while frame:
                try:
                    frame = frame[self._connection.send(frame) :]
                except TimeoutError:
                    frame = self._send_aside(frame)

    def _send_aside(self, frame: memoryview) -> memoryview:
        self._gate.release()
        try:
            self._connection.settimeout(GONE_S)
            return frame[self._connection.send(frame) :]
        finally:
            self._gate.acquire()
            self._connection.settimeout(STUCK_S)

    def tell_alive(self) -> None:
        """Send an empty frame, without ever waiting: a client that has something to read hears enough."""
        if not self._lock.acquire(blocking=False):
            return
        try:
            frame = self._rest or b"k\0\0\0\0"
            with suppress(OSError):
                self._rest = frame[self._connection.send(frame, socket.MSG_DONTWAIT) :]
        finally:
            self._lock.release()


class _Raw(io.RawIOBase):
    def __init__(self, answer: _Answer, kind: bytes) -> None:
        self._answer, self._kind = answer, kind

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self._answer.send(self._kind, bytes(data))
        return len(data)


class _Stream(io.TextIOWrapper):
    """A text stream whose bytes become frames."""

    def __init__(self, answer: _Answer, kind: bytes) -> None:
        super().__init__(io.BufferedWriter(_Raw(answer, kind), 1 << 16), encoding="utf-8", errors="surrogateescape")


class _Resident:
    """What is kept between commands."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self.uri = parse(config.need_corpus()).uri
        self._lock = threading.Lock()
        self._corpus: Corpus | None = None
        self._mark = ""
        self._mirror: Mirror | None = None
        self._cache: HostCache | None = None

    def warm(self) -> None:
        """Open and load all that a command could want."""
        corpus = self.corpus(_newest(self.uri))
        corpus.warm()
        mirror = self.mirror()
        budget = min(WARM_BYTES, self._config.cache_max_bytes)
        if corpus.catalog().file_bytes <= budget:
            mirror.update(corpus, budget, self._config.min_free_bytes, mark=self._mark)
            self.keep(mirror)
        self.cache().has(["0" * 64])

    def corpus(self, mark: str) -> Corpus:
        """Return the corpus at the version with that mark; "" for as it is, opened if it is not.

        A command keeps the object that it was given: another version is another object.
        """
        from memfs.corpus.table import Corpus

        with self._lock:
            if self._corpus is None or (mark and mark != self._mark):
                self._corpus = Corpus.open(self.uri, embedder=self._config.embedder)
                self._mark = mark
            return self._corpus

    def mirror(self) -> Mirror:
        """Return a mirror for one command; give it back to `keep`."""
        with self._lock:
            if self._mirror is None:
                self._mirror = Mirror(self._config.cache_dir, self.uri)
            return copy.copy(self._mirror)

    def keep(self, mirror: Mirror) -> None:
        """Let later commands have what this one's mirror learned."""
        with self._lock:
            self._mirror = mirror

    def cache(self) -> HostCache:
        """Return the host's cache."""
        from memfs.workset.cache import HostCache

        with self._lock:
            if self._cache is None:
                self._cache = HostCache(
                    self._config.cache_dir,
                    max_bytes=self._config.cache_max_bytes,
                    min_free_bytes=self._config.min_free_bytes,
                )
            return self._cache


def _newest(uri: str) -> str:
    from memfs.corpus.objects import Objects
    from memfs.corpus.schema import TABLE

    found = Objects(parse(uri)).newest(TABLE)
    return found[1] if found else ""


class _ResidentInvocation(Invocation):
    """A command that runs in the server: it finds the nouns made."""

    def __init__(self, resident: _Resident, environ: Mapping[str, str], cwd: str, out: Any, err: Any) -> None:
        super().__init__(environ, cwd, out, err)
        self._resident = resident
        self._newest: str | None = None

    def _is_mine(self, config: Config) -> bool:
        return parse(config.need_corpus()).uri == self._resident.uri

    def open(self, config: Config, version: int | None = None) -> Corpus:
        """See Invocation."""
        if version is not None or not self._is_mine(config):
            return super().open(config, version)
        mark = self._newest if self._newest is not None else self.newest(config)
        # Nothing lies there any more: the error is the same as without a server.
        return self._resident.corpus(mark) if mark else super().open(config)

    def newest(self, config: Config) -> str:
        """See Invocation."""
        found = super().newest(config)
        if self._is_mine(config):
            self._newest = found
        return found

    def mirror(self, config: Config) -> Mirror:
        """See Invocation."""
        return self._resident.mirror() if self._is_mine(config) else super().mirror(config)

    def mirror_at_hand(self, config: Config) -> Mirror | None:
        """See Invocation."""
        return self._resident.mirror() if self._is_mine(config) else None

    def keep_mirror(self, config: Config, mirror: Mirror) -> None:
        """See Invocation."""
        if self._is_mine(config):
            self._resident.keep(mirror)

    def cache(self, config: Config) -> HostCache:
        """See Invocation."""
        return self._resident.cache()


def _mark(config: Config) -> tuple[str, str]:
    mark = read_mark(config.tree)
    if mark is None:
        raise ConfigError(f"{config.tree} is not a memfs tree", hint="make one with: memfs boot")
    return mark


@contextmanager
def log_of(config: Config) -> Iterator[io.TextIOBase]:
    """The server's log, in the tree's state folder; begun anew by each server.

    Raises:
        ConfigError: no tree.
    """
    folder = os.path.join(config.state_dir, "trees", _mark(config)[1])
    os.makedirs(folder, mode=0o700, exist_ok=True)
    with open(os.path.join(folder, "serve.log"), "w", encoding="utf-8") as log:
        yield log


def stop(config: Config) -> bool:
    """End the tree's server; return whether there was one."""
    mark = read_mark(config.tree)
    file = mark and client.socket_file(mark[1])
    if not file:
        return False
    try:
        fd = os.open(f"{file}.lock", os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        with suppress(BlockingIOError):
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # It was killed. Its socket would have the next command start another.
            with suppress(FileNotFoundError):
                os.unlink(file)
            return False
        # The lock is held, so what is written in it, now or in a moment, is the process that holds it.
        end = time.monotonic() + STOP_S
        while not (written := os.pread(fd, 20, 0)) and time.monotonic() < end:
            time.sleep(0.005)
        if not written:
            return False
        pid = int(written)
        for sent in ((signal.SIGTERM, signal.SIGCONT), (signal.SIGKILL,)):
            for number in sent:
                with suppress(ProcessLookupError):
                    os.kill(pid, number)
            if _is_freed(fd, STOP_S):
                break
        end = time.monotonic() + STOP_S
        while _is_alive(pid) and time.monotonic() < end:
            time.sleep(0.02)
        return True
    finally:
        os.close(fd)


def _is_freed(fd: int, wait_s: float) -> bool:
    """Whether the lock on `fd` can be had within `wait_s` seconds."""
    end = time.monotonic() + wait_s
    while time.monotonic() < end:
        with suppress(BlockingIOError):
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        time.sleep(0.02)
    return False


def _is_alive(pid: int) -> bool:
    """Whether the process runs, as far as can be told here; one that has ended and is not waited for does not."""
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as handle:
            return not handle.read().rpartition(")")[2].lstrip().startswith("Z")
    except OSError:
        return False
