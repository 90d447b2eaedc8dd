"""Several real processes write at once: nothing is lost, doubled or torn."""

from __future__ import annotations

import multiprocessing
import os
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from conftest import Store, document, sha256

from memfs.corpus.table import Corpus

WRITERS = 4
COMMITS = int(os.environ.get("MEMFS_TEST_COMMITS", "50"))
MOTO_COMMITS = int(os.environ.get("MEMFS_TEST_COMMITS", "10"))
"""moto answers in one Python thread: 50 commits take 200 s there, and hold (MEMFS_TEST_COMMITS=50)."""
SHARED = 6
"""Paths that all writers fight over."""


def body(writer: int, commit: int, lines: int) -> str:
    """A file of several passages whose every line names its writer and commit."""
    return "".join(f"writer {writer} commit {commit} line {n:04d} {'x' * 60}\n" for n in range(lines))


def write(uri: str, environ: Mapping[str, str], writer: int, mode: str, commits: int, barrier: object) -> None:
    """One writer's process: its commits, over shared paths, over its own, or both in one commit."""
    os.environ.update(environ)
    corpus = Corpus.open(uri)
    barrier.wait()  # type: ignore[attr-defined]
    for n in range(commits):
        documents = []
        if mode in ("shared", "both"):
            # The size changes from commit to commit, so that files grow and shrink under each other's hands.
            documents.append(document(f"notes/shared{n % SHARED}.md", body(writer, n, 5 + (7 * n + 31 * writer) % 90)))
        if mode in ("own", "both"):
            documents.append(document(f"notes/own-{writer}-{n}.md", body(writer, n, 3)))
        with corpus.writing(publish=False):
            corpus.commit(documents)


def run_writers(store: Store, uri: str, mode: str, commits: int) -> None:
    """Run the writers and wait; each must end well."""
    context = multiprocessing.get_context("spawn")
    barrier = context.Barrier(WRITERS)
    environ = {**store.environ, "LANCE_LOG": "error", "PYTHONPATH": os.pathsep.join(sys.path)}
    writers = [context.Process(target=write, args=(uri, environ, n, mode, commits, barrier)) for n in range(WRITERS)]
    for process in writers:
        process.start()
    for process in writers:
        process.join()
    assert [process.exitcode for process in writers] == [0] * WRITERS


def check(uri: str, mode: str, commits: int) -> None:
    """No doubled id, no lost file, and each file wholly one writer's one commit."""
    corpus = Corpus.open(uri)
    rows = corpus._table.to_arrow().column("id").to_pylist()
    assert len(rows) == len(set(rows))
    expected = [f"notes/own-{w}-{n}.md" for w in range(WRITERS) for n in range(commits)] if mode != "shared" else []
    expected += [f"notes/shared{n}.md" for n in range(SHARED)] if mode != "own" else []
    infos = {info.path: info for info in corpus.files()}
    assert sorted(infos) == sorted(expected)
    for path, file in corpus.read(expected).items():
        assert sha256(file.data) == file.sha256 == infos[path].sha256
        _, writer, _, commit, *_ = file.data.decode().split(" ", 4)
        lines = file.data.decode().count("\n")
        assert file.data.decode() == body(int(writer), int(commit), lines)
        if path.startswith("notes/own"):
            assert path == f"notes/own-{writer}-{commit}.md"
        else:
            assert lines == 5 + (7 * int(commit) + 31 * int(writer)) % 90
            assert int(commit) % SHARED == int(path.removeprefix("notes/shared").removesuffix(".md"))


@pytest.mark.timeout(280)
def test_writers(store: Store) -> None:
    """4 processes x 50 commits, each over a path that all fight over and one of its own, on every store."""
    uri, commits = store.uri(), MOTO_COMMITS if store.kind == "moto" else COMMITS
    Corpus.create(uri)
    run_writers(store, uri, "both", commits)
    check(uri, "both", commits)


@pytest.mark.parametrize("mode", ["shared", "own"])
def test_writers_of_one_kind(tmp_path: Path, mode: str) -> None:
    """The same over shared paths only, and over own paths only."""
    uri = str(tmp_path / "corpus")
    Corpus.create(uri)
    run_writers(Store("local", tmp_path), uri, mode, 10)
    check(uri, mode, 10)
