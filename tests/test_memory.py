"""The Python surface, as the README shows it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import memfs
from memfs.workset.cache import HostCache

README = Path(__file__).parents[1] / "README.md"
SAMPLES = Path(memfs.__file__).parent / "samples"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder of its own, with cache and state in it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MEMFS_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("MEMFS_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.delenv("MEMFS_CORPUS", raising=False)
    return tmp_path


def test_the_readme_s_python_runs(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The README's ten lines, as they stand, against the sample that ships with memfs."""
    (block,) = re.findall(r"```python\n(import memfs\n.*?)```", README.read_text(encoding="utf-8"), re.S)
    (home / "my-sessions").symlink_to(SAMPLES / "claude-code")
    exec(compile(block, "README.md", "exec"), {})
    printed = capsys.readouterr().out
    assert "Postgres 17" in printed
    assert (home / "memory" / "sessions" / "index.md").exists()


def test_connect_says_at_once_that_nothing_is_there(home: Path) -> None:
    """Asking a folder that is no corpus is a NotACorpusError with the command that makes one."""
    (home / "empty").mkdir()
    with pytest.raises(memfs.MemfsError) as caught:
        memfs.connect(str(home / "empty")).recall("anything")
    assert "memfs init" in str(caught.value.hint)


def test_a_memory_sees_what_others_add(home: Path) -> None:
    """A long-lived process asks the newest version, without being told."""
    first = memfs.create(str(home / "corpus"))
    second = memfs.connect(str(home / "corpus"))
    assert second.recall("flour") == []
    first.add(str(SAMPLES / "notes"), surface="notes")
    assert second.recall("flour forecast")


def test_warm_brings_the_files_to_this_host(home: Path) -> None:
    """After `warm` the files are on this host, and a fetch takes them from there."""
    memory = memfs.create(str(home / "corpus"))
    memory.add(str(SAMPLES / "notes"), surface="notes")
    assert memory.warm(mirror_bytes=0) == 0
    assert memory.warm() == len(list(memory.files()))
    assert memory.fetch("which database?", directory=str(home / "memory")).files
    hashes = [info.sha256 for info in memory.files()]
    assert not HostCache(memory.config.cache_dir).has(hashes)


def test_public_names_resolve() -> None:
    """Everything in `memfs.__all__` exists; nothing else does."""
    assert all(getattr(memfs, name) is not None for name in memfs.__all__)
    with pytest.raises(AttributeError):
        memfs.nonsense  # noqa: B018
