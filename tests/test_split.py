"""Cutting files into passages: nothing is lost, lines stay whole."""

from __future__ import annotations

from datetime import datetime, timezone

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from memfs.corpus.split import PASSAGE_BYTES_MAX, front_matter, passages, slug

LINES = st.lists(
    st.sampled_from(
        [
            b"# A heading\n",
            b"\n",
            b"```\n",
            b"word " * 60 + b"\n",
            b"x" * 5_000,
            b"\r\n",
            b"\x0b\x0c\r",
            "é日\n".encode(),
        ]
    ),
    max_size=60,
)
ANY = st.one_of(
    st.binary(max_size=3_000), LINES.map(b"".join), st.binary(max_size=2_000).map(lambda b: b"\xff\xfe" + b)
)


@given(ANY, st.booleans())
@example(b"", True)
@example(b"\x00", False)
@example(b"\n" * 10_000, True)
@example(b"no end of line", True)
def test_nothing_is_lost(data: bytes, markdown: bool) -> None:
    """The bodies concatenate to the bytes, for any bytes; there is always at least one passage."""
    made = passages(data, markdown=markdown)
    assert b"".join(p.body for p in made) == data
    assert made


@given(LINES.map(b"".join), st.booleans())
def test_cut_after_line_ends_only(data: bytes, markdown: bool) -> None:
    """Every passage but the last ends in LF, none is empty, none is large unless it is one line."""
    made = passages(data, markdown=markdown)
    if b"\x00" in data:
        return
    assert all(p.body.endswith(b"\n") for p in made[:-1])
    assert all(p.body for p in made) or data == b""
    assert all(len(p.body) <= PASSAGE_BYTES_MAX or p.body[:-1].count(b"\n") == 0 for p in made)


@given(ANY)
def test_no_nul_in_text(data: bytes) -> None:
    """What search sees holds no NUL; a binary file has no text."""
    made = passages(data, markdown=False)
    assert all(p.text is None or "\x00" not in p.text for p in made)
    if b"\x00" in data and data[:2] not in (b"\xff\xfe", b"\xfe\xff"):
        assert all(p.text is None for p in made)


def test_anchors() -> None:
    """A passage's anchor is the heading that it starts with or stands under; headings in code are not headings."""
    filler = "words of filler here\n" * 80
    data = f"# One\n{filler}## Two things!\n{filler}```\n# not a heading\n{filler}```\n".encode()
    anchors = [p.anchor for p in passages(data, markdown=True)]
    assert anchors[0] == "one"
    assert "two-things" in anchors
    assert "not-a-heading" not in anchors
    assert all(p.anchor is None for p in passages(data, markdown=False))


@pytest.mark.parametrize(
    ("heading", "anchor"),
    [
        ("Hello, World!", "hello-world"),
        ("A_b c-d", "a_b-c-d"),
        ("Café 日本", "café-日本"),
        ("`code` & more", "code--more"),
    ],
)
def test_slug(heading: str, anchor: str) -> None:
    """Slugs are as GitHub makes them."""
    assert slug(heading) == anchor


@pytest.mark.parametrize(
    ("text", "title", "when"),
    [
        ("---\ntitle: T\ndate: 2026-05-08\n---\n# H\n", "T", datetime(2026, 5, 8, tzinfo=timezone.utc)),
        (
            "---\r\ntitle: 'T'\r\nevent_time: 2026-05-08T09:10:11Z\r\n---\r\n",
            "T",
            datetime(2026, 5, 8, 9, 10, 11, tzinfo=timezone.utc),
        ),
        ("text\n# Heading\n", "Heading", None),
        ("---\ndate: 2026-99-99\n---\n", None, None),
        ("no heading", None, None),
        ("", None, None),
    ],
)
def test_front_matter(text: str, title: str | None, when: datetime | None) -> None:
    """Title and date come from the front matter, else the title from the first heading; nonsense gives None."""
    assert front_matter(text.encode()) == (title, when)


@given(st.binary(max_size=500))
def test_front_matter_never_fails(data: bytes) -> None:
    """Any bytes have a front matter, perhaps an empty one."""
    front_matter(b"---\n" + data)
