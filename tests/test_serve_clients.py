"""Clients of the resident server that do not behave, and a server that does not: nobody else waits for them."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path

import pytest
from conftest import document
from test_serve import Run, log, ready, run_client, served, socket_of, until  # noqa: F401 - fixtures

from memfs import client
from memfs.config import load
from memfs.corpus.table import Corpus
from memfs.serve import _is_alive
from memfs.workset.tree import Tree

pytestmark = pytest.mark.usefixtures("served")
LINES = 40_000


def request(*argv: str) -> bytes:
    mine = client.settings()
    texts = [str(len(mine)), *mine, os.getcwd(), *argv]
    data = b"".join(os.fsencode(text) + b"\0" for text in texts)
    return len(data).to_bytes(4, "big") + data


def ask(stack: ExitStack, data: bytes) -> socket.socket:
    connection = stack.enter_context(socket.socket(socket.AF_UNIX))
    connection.connect(str(socket_of()))
    connection.sendall(data)
    return connection


@pytest.fixture
def long(served: Corpus) -> None:  # noqa: F811
    """A file whose every line matches: more than a socket holds."""
    served.commit(put=[document("notes/long.md", "".join(f"needle {n}\n" for n in range(LINES)).encode())])


@pytest.mark.usefixtures("long")
def test_clients_that_read_nothing(memfs: Run) -> None:
    """More of them than commands run at once; the next one is answered, and they get all when they read at last."""
    with ExitStack() as stack:
        stuck = [ask(stack, request("grep", "needle")) for _ in range(6)]
        time.sleep(0.5)
        before = log().count("served")
        assert run_client("grep", "-c", "needle").out.strip().endswith(f":{LINES}")
        assert log().count("served") == before + 1
        for connection in stuck:
            connection.settimeout(30)
            answer = connection.makefile("rb")
            assert answer.read(1) == b"a"
            out = b""
            while (head := answer.read(5))[:1] != b"x":
                data = answer.read(int.from_bytes(head[1:], "big"))
                out += data if head[:1] == b"o" else b""
            assert out.count(b"\n") == LINES


def test_clients_that_say_nothing() -> None:
    """Half requests, more than are let in: the next command does its own work, with the same output."""
    with ExitStack() as stack:
        for _ in range(120):
            try:
                ask(stack, request("ls")[:7])
            except OSError:
                break
        assert run_client("grep", "-l", "zebra").out == "memory/sessions/2026/05/two/summary.md\n"
    until(lambda: run_client("ls").code == 0)


def test_a_server_that_stops_at_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """The client gives up after a while, and `serve --stop` ends even that server."""
    server = int(Path(f"{socket_of()}.lock").read_text())
    code = (
        "import os, signal, sys; from memfs import client; client.SILENT_S = 1\n"
        "relay = client._relay\n"
        f"def stopped(read):\n    os.kill({server}, signal.SIGSTOP)\n    return relay(read)\n"
        "client._relay = stopped\nsys.argv = ['memfs', 'fetch', 'deployment']\nclient.main()"
    )
    try:
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30, check=False)
        # It may have answered before it was stopped.
        assert done.returncode == client.LOST or "coverage" in done.stderr + done.stdout
        if done.returncode == client.LOST:
            assert "memfs serve --stop" in done.stderr
    finally:
        assert run_client("serve", "--stop").out == "stopped\n"
    assert not _is_alive(server)


def test_told_that_it_is_at_work() -> None:
    """A command that waits, here for the tree, is not given up: the client hears of it, and is answered in the end."""
    with ExitStack() as stack:
        with Tree.open("memory", load({}).state_dir):
            connection = ask(stack, request("get", "."))
            connection.settimeout(10)
            answer = connection.makefile("rb")
            assert answer.read(6) == b"ak\0\0\0\0"
        while (head := answer.read(5))[:1] != b"x":
            answer.read(int.from_bytes(head[1:], "big"))
        assert answer.read() == b"0"


def test_the_mirror_is_cut(served: Corpus, memfs: Run) -> None:  # noqa: F811
    """A data file that lost its end is brought anew; no line is missed."""
    assert run_client("grep", "-l", "zebra").code == 0
    (data,) = Path(os.environ["MEMFS_CACHE_DIR"], "mirror").glob("*/data-*")
    os.truncate(data, 10)
    assert run_client("grep", "-l", "zebra").out == "memory/sessions/2026/05/two/summary.md\n"


@pytest.mark.parametrize("argv", [("grep", "."), ("ls",), ("fetch", "deployment"), ("status",), ("config",)])
@pytest.mark.parametrize("alone", ["", "1"])
def test_a_full_device(argv: tuple[str, ...], alone: str) -> None:
    """What cannot be printed is an error of the disk, by the server and without it."""
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "memfs.client", *argv], stdout=full, stderr=subprocess.PIPE, text=True, timeout=60,
            env={**os.environ, "MEMFS_NO_SERVER": alone}, check=False,
        )  # fmt: skip
    assert done.returncode == 9
    assert "the output cannot be written: No space left on device" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_reader_that_has_enough(long: None) -> None:
    """`memfs grep … | head -1` says nothing of a broken pipe."""
    for alone in ("", "1"):
        done = subprocess.run(
            f"{sys.executable} -m memfs.client grep needle | head -1", shell=True, capture_output=True, text=True,
            timeout=60, env={**os.environ, "MEMFS_NO_SERVER": alone}, check=False,
        )  # fmt: skip
        assert done.stdout.endswith("needle 0\n")
        assert "error" not in done.stderr
