"""What the tests share: a home of their own, three real stores, and the command line run for real."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest

from memfs import client
from memfs.corpus import split
from memfs.corpus.records import Document
from memfs.corpus.table import Corpus
from memfs.testing import Moto, Proxy, S3Server, SeaweedFS

WHEN = datetime(2026, 5, 8, 12, 30, 15, 250_000, tzinfo=timezone.utc)
STORES = ("local", "moto", "seaweedfs")


def document(path: str, text: str | bytes, *, kind: str = "note", when: datetime = WHEN) -> Document:
    """A document as `memfs add` makes it of a Markdown file."""
    data = text.encode() if isinstance(text, str) else text
    title, event_time = split.front_matter(data)
    passages = split.passages(data, markdown=True, event_time=event_time)
    return Document(path, passages, kind, title or os.path.basename(path), f"file:{path}", when)


def long_text(seed: str, lines: int) -> str:
    """Text of some passages: 60 bytes a line, each line differs."""
    return "".join(f"{seed} line {n:05d} {'words of no weight ' * 2}\n" for n in range(lines))


def tree_of(root: Path | str) -> dict[str, bytes]:
    """Every plain file below `root` but memfs's own mark, by relative path."""
    base = Path(root)
    return {
        str(file.relative_to(base)): file.read_bytes()
        for file in sorted(base.rglob("*"))
        if file.is_file() and not file.is_symlink() and file.name != ".memfs.toml"
    }


def leftovers(root: Path | str) -> list[str]:
    """Temporary files that memfs left below `root`."""
    return [str(file) for file in Path(root).rglob("*.tmp")]


def sha256(data: bytes) -> str:
    """Hex digest, computed apart from the code under test."""
    return hashlib.sha256(data).hexdigest()


@dataclass(frozen=True)
class Store:
    """A place for corpora: `uri(name)` for a new one, `environ` to reach it, `server` unless it is a folder."""

    kind: str
    folder: Path
    server: S3Server | None = None
    environ: Mapping[str, str] = field(default_factory=dict)

    def uri(self, name: str = "corpus") -> str:
        if self.server is None:
            return str(self.folder / name)
        return self.server.uri(f"{sha256(str(self.folder).encode())[:12]}/{name}")


@dataclass(frozen=True)
class Ran:
    """What a command printed and returned."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home, a cache, a state folder and a working folder of this test's own; nothing of the machine's is seen."""
    for name in list(os.environ):
        if name.startswith(("MEMFS_", "AWS_", "XDG_")):
            monkeypatch.delenv(name)
    made = tmp_path / "home"
    made.mkdir()
    monkeypatch.setenv("HOME", str(made))
    monkeypatch.setenv("LANCE_LOG", "error")
    monkeypatch.setenv("MEMFS_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("MEMFS_STATE_DIR", str(tmp_path / "state"))
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    return made


@pytest.fixture(scope="session", autouse=True)
def trees_servers() -> Iterator[None]:
    """The trees' servers that this process started end with it."""
    yield
    for child in client._started:
        child.terminate()
    for child in client._started:
        child.wait(timeout=30)


@pytest.fixture(scope="session")
def moto_server() -> Iterator[Moto]:
    with Moto() as server:
        yield server


@pytest.fixture(scope="session")
def seaweed_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SeaweedFS]:
    with SeaweedFS(tmp_path_factory.mktemp("seaweedfs")) as server:
        yield server


def _server(kind: str, request: pytest.FixtureRequest) -> S3Server:
    server: S3Server = request.getfixturevalue("moto_server" if kind == "moto" else "seaweed_server")
    return server


@pytest.fixture(params=STORES)
def store(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    """Each store in turn, its credentials in the environment."""
    if request.param == "local":
        return Store("local", tmp_path)
    return _remote(_server(request.param, request), request.param, tmp_path, monkeypatch)


@pytest.fixture
def s3(seaweed_server: SeaweedFS, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    """SeaweedFS, for tests that need one S3 only."""
    return _remote(seaweed_server, "seaweedfs", tmp_path, monkeypatch)


def _remote(server: S3Server, kind: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    environ = server.environ()
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    return Store(kind, folder, server, environ)


@pytest.fixture
def proxy(s3: Store, monkeypatch: pytest.MonkeyPatch) -> Iterator[Proxy]:
    """A proxy before SeaweedFS; the environment leads through it."""
    assert s3.server is not None
    with Proxy(s3.server.port) as between:
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{between.port}")
        yield between


@pytest.fixture
def memfs(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Ran]:
    """Run the command line in this process, through its real `main`."""

    def run(*args: str) -> Ran:
        from memfs.cli import main

        monkeypatch.setattr(sys, "argv", ["memfs", *map(str, args)])
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), pytest.raises(SystemExit) as ended:
            main()
        return Ran(int(ended.value.code or 0), out.getvalue(), err.getvalue())

    return run


def spawn_memfs(*args: str, timeout_s: float = 60, **environ: str) -> Ran:
    """Run the command line in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-m", "memfs.cli", *map(str, args)],
        capture_output=True, text=True, timeout=timeout_s, env={**os.environ, **environ},
    )  # fmt: skip
    return Ran(done.returncode, done.stdout, done.stderr)


@pytest.fixture
def corpus(tmp_path: Path) -> Corpus:
    """An empty corpus in a folder."""
    return Corpus.create(str(tmp_path / "corpus"))


NOTES = {
    "knowledge/index.md": "# Index\n\nWhat is known: [[database]].\n",
    "knowledge/entities/database.md": "# Database\n\nWe moved from MySQL to PostgreSQL in March.\n",
    "notes/deploy.md": "# Deploy\n\nThe deployment runs on Friday at noon, never later.\n",
    "notes/people/ana.md": "# Ana\n\nAna likes green tea and lives in Lisbon.\n",
    "sessions/2026/05/one/summary.md": "---\ntitle: First session\ndate: 2026-05-08\n---\nWe chose the colour blue.\n",
    "sessions/2026/05/two/summary.md": "---\ntitle: Second session\ndate: 2026-05-09\n---\nWe chose the zebra logo.\n",
}


@pytest.fixture
def filled(corpus: Corpus) -> Corpus:
    """A published corpus of a few notes, pages and sessions."""
    with corpus.writing():
        corpus.commit([document(path, text) for path, text in NOTES.items()])
    return corpus
