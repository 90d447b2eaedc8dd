"""Prepare rows in child processes: for a large add, which is bound by analysis and embedding, not by the store.

Not multiprocessing: its spawn runs the caller's main module again, which breaks a plain
script that calls memfs without a `__main__` guard. A child is `python -c "… serve()"`;
frames on its pipes are an 8-byte length and a pickle (in) or an Arrow stream (out).
Both ends are this program: nothing from outside is unpickled.
"""

from __future__ import annotations

import os
import pickle
import queue
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import IO

import pyarrow as pa

from memfs.corpus import rows
from memfs.corpus.embed import DEFAULT, load
from memfs.corpus.records import Document
from memfs.corpus.schema import schema
from memfs.errors import MemfsError

__all__ = ["RowWorkers", "serve", "useful_count"]

WORKERS_MAX = 4
_SERVE = "from memfs.corpus.workers import serve; serve()"


def useful_count(embedder: str) -> int:
    """Return how many children pay: none on one core, none for a model that uses all cores by itself."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(cores, WORKERS_MAX) if cores > 1 and embedder == DEFAULT else 0


class RowWorkers:
    """`count` children; `submit` returns at once, results may be taken in any order. Use as a context manager."""

    def __init__(self, count: int) -> None:
        self._children: queue.SimpleQueue[subprocess.Popen[bytes]] = queue.SimpleQueue()
        self._all = [_start() for _ in range(count)]
        for child in self._all:
            self._children.put(child)
        self._threads = ThreadPoolExecutor(count, thread_name_prefix="memfs-rows")

    def __enter__(self) -> RowWorkers:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._threads.shutdown(wait=error is None, cancel_futures=True)
        for child in self._all:
            child.kill()
            child.communicate()

    def submit(self, documents: Sequence[Document]) -> Future[pa.Table]:
        """Prepare the documents' rows in a child."""
        return self._threads.submit(self._prepare, documents)

    def _prepare(self, documents: Sequence[Document]) -> pa.Table:
        child = self._children.get()
        try:
            assert child.stdin is not None
            assert child.stdout is not None
            _write(child.stdin, pickle.dumps(list(documents), protocol=5))
            return pa.ipc.open_stream(_read(child.stdout)).read_all()
        except (OSError, EOFError) as error:
            raise MemfsError(
                f"a worker process ended with {child.poll()}",
                hint="if memory is short, add smaller parts; what was committed stays, adding again goes on",
            ) from error
        finally:
            self._children.put(child)


def _start() -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", _SERVE], stdin=subprocess.PIPE, stdout=subprocess.PIPE)


def serve() -> None:
    """Be a child: answer frames of documents with their rows until the pipe closes."""
    embedder = load(DEFAULT)
    made_by = schema(embedder.dimensions, embedder.name)
    while True:
        try:
            frame = _read(sys.stdin.buffer)
        except EOFError:
            return
        table = rows.documents_to_rows(pickle.loads(frame), embedder, made_by)
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
        _write(sys.stdout.buffer, sink.getvalue())


def _write(pipe: IO[bytes], frame: bytes | pa.Buffer) -> None:
    pipe.write(len(frame).to_bytes(8, "little"))
    pipe.write(frame)
    pipe.flush()


def _read(pipe: IO[bytes]) -> bytes:
    size = int.from_bytes(_exactly(pipe, 8), "little")
    return _exactly(pipe, size)


def _exactly(pipe: IO[bytes], size: int) -> bytes:
    data = pipe.read(size)
    if len(data) < size:
        raise EOFError("the pipe closed")
    return data
