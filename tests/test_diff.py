"""memfs diff: what was changed here, as diff and patch know it, without the corpus where the host has the bytes."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from conftest import NOTES, Ran, document, long_text, sha256
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from memfs import diff as module
from memfs.boot import boot
from memfs.corpus.table import Corpus
from memfs.diff import FileDiff, diff
from memfs.errors import NotFoundError
from memfs.workset.cache import HostCache
from memfs.workset.tree import Tree

PLAN = "notes/deploy.md"
Run = Callable[..., Ran]


@pytest.fixture
def root(filled: Corpus, tmp_path: Path) -> Path:
    boot(filled.uri, str(tmp_path / "memory"), cache_dir=str(tmp_path / "cache"), state_dir=str(tmp_path / "state"))
    return tmp_path / "memory"


def run(corpus: Corpus, tmp_path: Path, *names: str, reachable: bool = True) -> tuple[FileDiff, ...]:
    def open_corpus() -> Corpus:
        assert reachable, "the corpus was opened"
        return Corpus.open(corpus.uri)

    with (
        Tree.open(str(tmp_path / "memory"), str(tmp_path / "state")) as tree,
        closing(HostCache(str(tmp_path / "cache"))) as cache,
    ):
        return diff(tree, names, cache=cache, corpus_uri=corpus.uri, open_corpus=open_corpus)


def test_patch_undoes_it(filled: Corpus, root: Path, tmp_path: Path) -> None:
    """Modified, new and deleted files, each as a unified diff that `patch -R` takes back to what was laid."""
    (root / PLAN).write_text(NOTES[PLAN].replace("Friday", "Monday") + "and no newline")
    (root / "notes/new one.md").write_bytes(b"new\r\nlines\x0c\n")
    (root / "notes/people/ana.md").unlink()
    found = run(filled, tmp_path)
    assert [(d.path, d.change) for d in found] == [
        (PLAN, "modified"), ("notes/new one.md", "new"), ("notes/people/ana.md", "deleted"),
    ]  # fmt: skip
    texts = {d.path: d.text for d in found}
    assert texts[PLAN].startswith(f"--- a/{PLAN}\n+++ b/{PLAN}\n@@ ")
    assert texts[PLAN].endswith("+and no newline\n\\ No newline at end of file\n")
    assert texts["notes/new one.md"].startswith("--- /dev/null\n+++ b/notes/new one.md\t\n")
    assert "+++ /dev/null\n" in texts["notes/people/ana.md"]
    done = subprocess.run(
        ["patch", "-R", "-p1", "--binary", "-d", root], input="".join(texts.values()).encode(), capture_output=True
    )
    assert done.returncode == 0, done.stdout
    assert run(filled, tmp_path) == ()


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.text(alphabet="ab\n\r\x0c\u2028é", max_size=30), st.text(alphabet="ab\n\r\x0c\u2028é", max_size=30))
def test_any_text(tmp_path: Path, before: str, after: str) -> None:
    """Whatever the texts, `patch` makes the second of the first: lines end at newlines only, ends are marked."""
    file = tmp_path / "file"
    file.write_bytes(before.encode())
    text = module._text("file", "modified", before.encode(), after.encode())
    if before != after:
        subprocess.run(["patch", "-p1", "--binary", "-s", "-d", tmp_path], input=text.encode(), check=True)
    left = file.read_bytes() if file.exists() else b""
    assert left == after.encode()


def test_no_differences(filled: Corpus, root: Path, tmp_path: Path) -> None:
    """Nothing changed: nothing is said, a touched file included; nothing is opened."""
    os.utime(root / PLAN)
    assert run(filled, tmp_path, reachable=False) == ()


def test_binary(filled: Corpus, root: Path, tmp_path: Path) -> None:
    """Bytes that are no UTF-8 text are said to differ, and not printed."""
    (root / PLAN).write_bytes(b"\x00\x01")
    (root / "notes/latin.txt").write_bytes("déjà\n".encode("latin-1"))
    assert [d.text for d in run(filled, tmp_path)] == [
        f"Binary files a/{PLAN} and b/{PLAN} differ\n",
        "Binary files /dev/null and b/notes/latin.txt differ\n",
    ]


def test_without_the_corpus(filled: Corpus, root: Path, tmp_path: Path) -> None:
    """With the bases in the host's cache, be it as blobs or in the map, the corpus is not needed."""
    (root / PLAN).write_bytes(b"mine\n")
    shutil.move(filled.uri, tmp_path / "away")
    (found,) = run(filled, tmp_path, reachable=False)
    assert "-The deployment runs" in found.text
    shutil.rmtree(tmp_path / "cache/boot")
    with pytest.raises(AssertionError, match="was opened"):
        run(filled, tmp_path, reachable=False)
    with closing(HostCache(str(tmp_path / "cache"))) as cache:
        cache.keep({sha256(NOTES[PLAN].encode()): NOTES[PLAN].encode()})
    assert run(filled, tmp_path, reachable=False) == (found,)


def test_an_older_version(filled: Corpus, root: Path, tmp_path: Path) -> None:
    """The corpus moved on and the host's cache is empty: the base is read from the version that it was laid from."""
    (root / PLAN).write_bytes(b"mine\n")
    with filled.writing():
        filled.commit([document(PLAN, "theirs\n")])
    shutil.rmtree(tmp_path / "cache")
    (found,) = run(filled, tmp_path)
    assert "-The deployment runs" in found.text
    assert "theirs" not in found.text


def test_a_base_that_is_gone(filled: Corpus, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where nobody has the base any longer, that is said; the other files are shown."""
    (root / PLAN).write_bytes(b"mine\n")
    (root / "notes/new.md").write_bytes(b"new\n")
    with filled.writing():
        filled.commit([document(PLAN, "theirs\n")])
    shutil.rmtree(tmp_path / "cache")

    def cleaned_up(self: Corpus, version: int) -> Corpus:
        raise NotFoundError("no version")

    monkeypatch.setattr(Corpus, "at", cleaned_up)
    one, two = run(filled, tmp_path)
    assert "kept nowhere any longer" in one.text
    assert "+new\n" in two.text


def test_large(filled: Corpus, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file of too many lines is said to differ, with how many; it does not hang the command."""
    monkeypatch.setattr(module, "LINES_MAX", 1_000)
    (root / PLAN).write_text(long_text("x", 1_001))
    (found,) = run(filled, tmp_path)
    assert "1,001 lines are too many" in found.text


@pytest.mark.parametrize(
    ("name", "shown"),
    [(b"a\x1b[31m.md", r'"b/notes/a\033[31m.md"'), (b"\xff.md", r'"b/notes/\377.md"'), (b"a\nb", r'"b/notes/a\012b"')],
)
def test_names(name: bytes, shown: str, filled: Corpus, root: Path, memfs: Run) -> None:
    """A name with control characters or stray bytes is quoted as git quotes it, in text; JSON keeps it exact."""
    with open(os.path.join(os.fsencode(root), b"notes", name), "wb") as handle:
        handle.write(b"x\n")
    said = memfs("diff", "--tree", str(root), "--corpus", filled.uri)
    assert (said.code, said.out) == (1, f"--- /dev/null\n+++ {shown}\n@@ -0,0 +1 @@\n+x\n")
    assert os.fsencode(memfs("diff", "--tree", str(root), "--json").json[0]["path"]) == b"notes/" + name
    for command, code in (("status", 0), ("ls --local", 0), (f"push --dry-run --corpus {filled.uri}", 3)):
        ran = memfs(*command.split(), "--tree", str(root))
        assert ran.code == code, ran.err
        assert "\x1b" not in ran.out
        ran.out.encode()


def test_by_name(filled: Corpus, root: Path, tmp_path: Path, memfs: Run) -> None:
    """Only what is named; exit code 1 with differences, 0 without, 4 for a name that is nothing."""
    (root / PLAN).write_bytes(b"mine\n")
    (root / "knowledge/index.md").write_bytes(b"mine\n")
    assert [d.path for d in run(filled, tmp_path, "notes")] == [PLAN]
    tree = ("--tree", str(root), "--corpus", filled.uri)
    assert memfs("diff", "notes/people", *tree).code == 0
    assert memfs("diff", *tree).code == 1
    ran = memfs("diff", "notes/none", *tree)
    assert (ran.code, "hint: " in ran.err) == (4, True)
