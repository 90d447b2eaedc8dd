"""A full disk: a clear error, and what was there stays whole."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from conftest import Ran, document, leftovers, long_text, sha256, tree_of

from memfs.corpus.table import Corpus

DISK_BYTES = 1 << 20
Run = Callable[..., Ran]


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 1 MiB."""
    if os.getuid() != 0:
        pytest.skip("mounting a small disk needs root")
    folder = tmp_path / "disk"
    folder.mkdir()
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", folder], capture_output=True, text=True
    )
    if done.returncode:
        pytest.skip(f"mount is not permitted: {done.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", folder], check=True)


@pytest.fixture
def corpus(tmp_path: Path) -> Corpus:
    """1.9 MB of notes, all of them in the map."""
    made = Corpus.create(str(tmp_path / "corpus"))
    with made.writing():
        made.commit([document(f"notes/{n:03d}.md", long_text(f"n{n}", 90)) for n in range(300)])
    return made


def check(ran: Ran, root: Path, corpus: Corpus) -> None:
    """An error of the disk's kind with a hint, whole files only, no temporary file."""
    assert (ran.code, ran.out) == (9, "")
    assert "no space left" in ran.err.lower()
    assert "hint: " in ran.err
    whole = {info.path: info.sha256 for info in corpus.files()}
    assert all(sha256(data) == whole[path] for path, data in tree_of(root).items())
    assert leftovers(root) == []


def test_boot(disk: Path, corpus: Corpus, memfs: Run) -> None:
    """A boot onto a full disk fails clearly; with room it completes."""
    root = disk / "memory"
    check(memfs("boot", str(root), "--corpus", corpus.uri), root, corpus)
    assert 10 < len(tree_of(root)) < 300
    assert memfs("status", "--tree", str(root), "--json").json["modified"] == []
    subprocess.run(["mount", "-o", "remount,size=8m", disk], check=True)
    assert memfs("boot", str(root), "--corpus", corpus.uri).code == 0
    assert len(tree_of(root)) == 300


def test_get(disk: Path, corpus: Corpus, memfs: Run) -> None:
    """So does a get."""
    root = disk / "memory"
    assert memfs("boot", str(root), "--budget", "0", "--corpus", corpus.uri).code == 0
    check(memfs("get", ".", "--tree", str(root), "--corpus", corpus.uri), root, corpus)


def test_refresh(disk: Path, corpus: Corpus, memfs: Run) -> None:
    """A refresh that does not fit leaves each file at its old or its new version, and edits as they were."""
    root = disk / "memory"
    assert memfs("boot", str(root), "--budget", "400k", "--corpus", corpus.uri).code == 0
    (root / "notes/mine.md").write_text("mine\n")
    check_before = tree_of(root)
    with corpus.writing():
        corpus.commit(
            [document(path, long_text("new" + path, 300)) for path in check_before if path != "notes/mine.md"]
        )
    ran = memfs("boot", str(root), "--corpus", corpus.uri)
    assert ran.code == 9
    after = tree_of(root)
    new = {info.path: info.sha256 for info in corpus.files()}
    assert after.pop("notes/mine.md") == b"mine\n"
    assert all(sha256(data) == new[path] or data == check_before[path] for path, data in after.items())
    assert leftovers(root) == []


def test_export(disk: Path, corpus: Corpus, memfs: Run) -> None:
    """An export that does not fit fails clearly."""
    ran = memfs("export", str(disk / "out"), "--corpus", corpus.uri)
    check(ran, disk / "out", corpus)


def test_add(disk: Path, tmp_path: Path, memfs: Run) -> None:
    """An add onto a full disk fails clearly; the corpus stays as it was, and takes more once there is room."""
    uri, source = str(disk / "corpus"), tmp_path / "source"
    source.mkdir()
    (source / "first.md").write_text("first\n")
    assert memfs("init", uri).code == 0
    assert memfs("add", str(source), "--corpus", uri).code == 0
    (source / "second.bin").write_bytes(os.urandom(2 << 20))
    ran = memfs("add", str(source), "--corpus", uri)
    assert (ran.code, ran.out) == (9, "")
    assert "hint: " in ran.err
    reader = Corpus.open(uri)
    assert {path: file.data for path, file in reader.read([info.path for info in reader.files()]).items()} == {
        "notes/first.md": b"first\n"
    }
    subprocess.run(["mount", "-o", "remount,size=32m", disk], check=True)
    assert memfs("add", str(source), "--corpus", uri).code == 0
    assert len(list(Corpus.open(uri).files())) == 2


def test_full_cache_and_state(
    disk: Path, corpus: Corpus, tmp_path: Path, memfs: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full cache costs nothing but time; a full state folder is a clear error."""
    filler = disk / "filler"
    filler.write_bytes(bytes(DISK_BYTES - 4096 * 8))
    monkeypatch.setenv("MEMFS_CACHE_DIR", str(disk / "cache"))
    assert memfs("boot", str(tmp_path / "memory"), "--corpus", corpus.uri, "--budget", "1k").code == 0
    assert memfs("get", ".", "--tree", str(tmp_path / "memory"), "--corpus", corpus.uri).code == 0
    assert len(tree_of(tmp_path / "memory")) == 300
    monkeypatch.setenv("MEMFS_STATE_DIR", str(disk / "state"))
    ran = memfs("boot", str(tmp_path / "second"), "--corpus", corpus.uri)
    assert ran.code == 9
    assert "hint: " in ran.err


def test_evicts_before_it_is_full(disk: Path, corpus: Corpus, memfs: Run) -> None:
    """On a disk near its floor, what was fetched before makes room for what is asked for now."""
    root = disk / "memory"
    assert memfs("boot", str(root), "--budget", "0", "--corpus", corpus.uri).code == 0
    names = sorted(info.path for info in corpus.files())
    first, second = names[:50], names[50:100]
    assert memfs("get", *first, "--tree", str(root), "--corpus", corpus.uri).code == 0
    with corpus.writing():
        corpus.commit([document(path, long_text("large" + path, 180)) for path in second])
    for at in range(0, 50, 10):
        ran = memfs("get", *second[at : at + 10], "--tree", str(root), "--corpus", corpus.uri)
        assert ran.code == 0, ran.err
    here = set(tree_of(root))
    assert set(second) <= here
    assert len(here & set(first)) < 50
    assert memfs("status", "--tree", str(root), "--json").json["deleted"] == []


def test_floor(disk: Path, corpus: Corpus, memfs: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """A floor that is set is left free, and the error says which it was."""
    monkeypatch.setenv("MEMFS_MIN_FREE", "300KiB")
    root = disk / "memory"
    ran = memfs("boot", str(root), "--corpus", corpus.uri)
    check(ran, root, corpus)
    assert "above the floor of 307,200 bytes" in ran.err
    assert "MEMFS_MIN_FREE" in ran.err
    status = os.statvfs(disk)
    assert status.f_bavail * status.f_frsize >= 300 << 10
    assert len(tree_of(root)) > 10


def test_grep(disk: Path, corpus: Corpus, memfs: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A search whose text does not fit into the cache fails clearly; the tree is as it was; with room it works."""
    root = tmp_path / "memory"
    assert memfs("boot", str(root), "--budget", "100k", "--corpus", corpus.uri).code == 0
    before = tree_of(root)
    monkeypatch.setenv("MEMFS_CACHE_DIR", str(disk / "cache"))
    for floor in ("0", "64k"):
        monkeypatch.setenv("MEMFS_MIN_FREE", floor)
        ran = memfs("grep", "-l", "line 00007", "--tree", str(root), "--corpus", corpus.uri)
        assert (ran.code, ran.out) == (9, "")
        assert "hint: " in ran.err
        assert tree_of(root) == before
        assert sum(file.stat().st_size for file in disk.rglob("*") if file.is_file()) < DISK_BYTES
    subprocess.run(["mount", "-o", "remount,size=16m", disk], check=True)
    ran = memfs("grep", "-l", "line 00007", "--tree", str(root), "--corpus", corpus.uri)
    assert ran.code == 0
    assert len(ran.out.splitlines()) == 300


@pytest.mark.parametrize("room_kb", [4, 64, 256, 600])
def test_dream(room_kb: int, disk: Path, tmp_path: Path, memfs: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """A dream whose commit, or whose history, does not fit: the old Brain or the new one, whole; the next works."""
    from brain_samples import make_corpus

    from memfs.brain.sync import pages_of

    subprocess.run(["mount", "-o", "remount,size=16m", disk], check=True)
    made = make_corpus(disk / "corpus")
    monkeypatch.setenv("MEMFS_CORPUS", made.uri)
    monkeypatch.setenv("MEMFS_STATE_DIR", str(disk / "state"))
    found = os.statvfs(disk)
    (disk / "filler").write_bytes(bytes(max(0, found.f_bavail * found.f_frsize - room_kb * 1024)))
    ran = memfs("dream")
    assert ran.code in (0, 9), ran.err
    assert ran.code == 0 or "hint: " in ran.err
    assert room_kb > 64 or ran.code == 9
    (disk / "filler").unlink()
    made.refresh()
    pages = pages_of(made)
    assert bool(pages) == ("knowledge/index.md" in pages)
    assert memfs("validate").code == 0
    assert memfs("dream").code == 0
    made.refresh()
    assert "knowledge/entities/user.md" in pages_of(made)
    assert memfs("doctor").code == 0
