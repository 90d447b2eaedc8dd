"""The path gate: each rule, and what holds for every name that passes."""

from __future__ import annotations

import os
import unicodedata

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from memfs import paths
from memfs.errors import PathError

HOSTILE = st.text(
    alphabet=st.sampled_from(list("ab.AÉé\u0301ßſ/ \\:*?\x00\x1b\x85~$-_日한\u202e\ud800CONnul1")), max_size=40
)
ANY = st.one_of(st.text(max_size=60), HOSTILE)


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        ("", "empty"),
        ("a\x00b", "control"),
        ("a\nb", "control"),
        ("a\x1b[31m", "control"),
        ("a\x85b", "control"),
        ("a\ud800", "surrogate"),
        ("a\\b", "backslash"),
        ("..\\..\\x", "backslash"),
        ("/etc/passwd", "absolute"),
        ("C:/x", "absolute"),
        ("c:x", "absolute"),
        ("a//b", "empty segment"),
        ("a/", "empty segment"),
        ("a/../b", "would leave"),
        ("..", "would leave"),
        ("./a", "would leave"),
        ("ab:b", "Windows refuses"),
        ("what?", "Windows refuses"),
        ("a*", "Windows refuses"),
        ('a"b', "Windows refuses"),
        ("a|b", "Windows refuses"),
        ("<a>", "Windows refuses"),
        ("a.", "ending in a dot"),
        ("a /b", "ending in a dot or space"),
        ("...", "ending in a dot"),
        ("CON", "device"),
        ("con.txt", "device"),
        ("a/Nul.tar.gz", "device"),
        ("COM1", "device"),
        ("lpt9.md", "device"),
        ("com¹", "device"),
        ("AUX .txt", "device"),
        ("x" * 256, "255 bytes"),
        ("é" * 128, "255 bytes"),
        ("/".join(["d" * 200] * 6), "1024 bytes"),
        (".memfs.toml", "reserved"),
        (".MEMFS.TOML", "reserved"),
        (".memfs-abc.tmp", "reserved"),
        (".memfs-x/y", "reserved"),
    ],
)
def test_refused(bad: str, reason: str) -> None:
    """Each rule refuses its names, says which rule, and prints without raw controls."""
    with pytest.raises(PathError) as caught:
        paths.check(bad)
    assert reason in caught.value.reason
    assert caught.value.message.isprintable()


@pytest.mark.parametrize(
    "good",
    ["a", "a/b.md", ".hidden", ".git/config", "..a", "con1", "console.md", "nullable", "日本語/メモ.md", "한국어.md",
     "x" * 255, "é" * 127, "a b/c d", "it's", "100%", "#1", "notes/.memfs.toml", "com", "comx", "a\u200db"],
)  # fmt: skip
def test_taken(good: str) -> None:
    """Ordinary names pass unchanged."""
    assert paths.check(good) == good


@given(ANY)
@example("a/../../b")
@example("\u212b/x")
@example("e\u0301" * 85)
def test_what_passes_stays_inside(name: str) -> None:
    """A checked path never leaves its root, is in NFC, passes again unchanged, and has a place that a disk can hold."""
    try:
        path = paths.check(name)
    except PathError:
        return
    assert paths.check(path) == path == unicodedata.normalize("NFC", path)
    place = paths.joined("/root", path)
    assert os.path.normpath(place) == place
    assert place.startswith("/root/")
    assert all(len(segment.encode()) <= 255 for segment in path.split("/"))


@given(ANY)
def test_fold_is_stable(name: str) -> None:
    """Folding twice is folding once, and neither case nor Unicode form changes it."""
    folded = paths.fold(name)
    assert paths.fold(folded) == folded
    assert paths.fold(unicodedata.normalize("NFD", name)) == folded
    assert paths.fold(unicodedata.normalize("NFC", name)) == folded


@given(st.text(alphabet=st.characters(codec="utf-8", exclude_categories=["Cs"]), max_size=30))
def test_fold_ignores_ascii_case(name: str) -> None:
    """Names that differ only in the case of ASCII letters are one."""
    swapped = "".join(c.swapcase() if c.isascii() else c for c in name)
    assert paths.fold(swapped) == paths.fold(name)


@pytest.mark.parametrize(
    ("given_", "expected"),
    [("", ""), (".", ""), ("/", ""), ("memory", ""), ("memory/", ""), ("./memory/notes", "notes/"), ("notes", "notes/"),
     ("notes/", "notes/"), ("/notes//", "notes/"), ("memory/notes/a", "notes/a/"), ("cafe\u0301", "caf\u00e9/")],
)  # fmt: skip
def test_prefix(given_: str, expected: str) -> None:
    """However a folder is written, its prefix is one string that ends in one slash; the whole tree is the empty one."""
    assert paths.prefix(given_) == expected


@pytest.mark.parametrize("bad", ["../x", "a/../b", "a\\b", "con/x"])
def test_prefix_is_gated(bad: str) -> None:
    """A folder prefix is held to the same rules."""
    with pytest.raises(PathError):
        paths.prefix(bad)


def test_ancestors() -> None:
    """Folders above a path, nearest first."""
    assert list(paths.ancestors("a/b/c")) == ["a/b", "a"]
    assert list(paths.ancestors("a")) == []
