"""The renderer: where a session lies, what its file looks like, and that no text can forge either."""

from __future__ import annotations

import re
from datetime import datetime, timezone

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from memfs import paths
from memfs.corpus.records import Document
from memfs.corpus.sources.transcript import PASSAGE_BYTES_MAX, Session, Turn, clean, render, slug
from memfs.errors import PathError

START = datetime(2023, 5, 8, 13, 56, tzinfo=timezone.utc)
HEADING = re.compile(r"^## t\d+ ·", re.MULTILINE)
RELAXED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
ANY_TEXT = st.text(alphabet=st.characters(exclude_categories=()), max_size=300)


def session(
    *turns: Turn,
    title: str = "Support group",
    started: datetime | None = START,
    slug: str | None = None,
    id: str = "s1",
) -> Session:
    return Session(id=id, title=title, source="locomo", turns=turns, started=started, slug=slug)


def text_of(document: Document) -> str:
    return b"".join(passage.body for passage in document.passages).decode("utf-8")


def test_a_session_reads_as_documented() -> None:
    """Header first, then per turn a heading with time, short origin and note, the text, a blank line."""
    turns = (
        Turn("Caroline", "I went to a support group.", START, "D1:1"),
        Turn("Melanie", "How was it?", START, "5a289ca7-2029-49f5-82c1-14818eca4896", "rewound"),
        Turn("Caroline", "Powerful."),
    )
    document = render(
        Session("s1", "Support group", "locomo", turns, START, None, ("Caroline", "Melanie"), (("place", "home"),)),
        "s/",
    )
    assert text_of(document) == (
        "# Support group\n\n- date: 2023-05-08 13:56 UTC\n- source: locomo:s1\n- participants: Caroline, Melanie\n"
        "- place: home\n\n"
        "## t1 · Caroline · 2023-05-08 13:56 · D1:1\n\nI went to a support group.\n\n"
        "## t2 · Melanie · 2023-05-08 13:56 · rewound\n\nHow was it?\n\n"
        "## t3 · Caroline\n\nPowerful.\n\n"
    )
    header, first, second, third = document.passages
    assert (first.anchor, first.speaker, first.event_time, first.origin) == ("t1", "Caroline", START, "D1:1")
    assert first.text == "I went to a support group."
    assert second.origin == "5a289ca7-2029-49f5-82c1-14818eca4896"
    assert third.event_time is None
    assert header.anchor is None
    assert header.text is not None
    assert header.text.startswith("Support group\n- date")
    assert (document.kind, document.source, document.mtime) == ("transcript", "locomo:s1", START)


def test_the_path_is_made_of_start_slug_and_identity_only() -> None:
    """More turns or a better title leave the path alone; another id or source moves it."""
    first = render(session(Turn("a", "x"), slug="first prompt"), "sessions/")
    grown = render(session(Turn("a", "x"), Turn("b", "y"), title="A better title", slug="first prompt"), "sessions/")
    other = render(session(Turn("a", "x"), slug="first prompt", id="s2"), "sessions/")
    assert first.path == grown.path
    assert re.fullmatch(r"sessions/2023/05/2023-05-08-first-prompt-[0-9a-f]{8}/transcript\.md", first.path)
    assert other.path != first.path


def test_a_session_without_a_start_is_undated() -> None:
    """No date in the path, none in the header, and a modification time that is the same at each import."""
    document = render(session(Turn("a", "x"), started=None), "sessions/")
    assert re.fullmatch(r"sessions/undated/support-group-[0-9a-f]{8}/transcript\.md", document.path)
    assert "- date" not in text_of(document)
    assert document.mtime == datetime(1970, 1, 1, tzinfo=timezone.utc)


@pytest.mark.parametrize(
    ("title", "expected"),
    [
        ("Fix the café's façade", "fix-the-cafes-facade"),
        ("데이터베이스 이전 계획", "데이터베이스-이전-계획"),
        ("データベースの移行", "データベースの移行"),
        ("Postgres への移行", "postgres"),
        ("ภาษาไทย", "ภาษาไทย"),
        ("🎉🎉", "session"),
        ("", "session"),
        ("../../etc/passwd", "etc-passwd"),
        ("CON", "con"),
        ("a" * 60, "a" * 40),
        ("one two three four five six seven eight nine ten", "one-two-three-four-five-six-seven-eight"),
    ],
)
def test_slugs(title: str, expected: str) -> None:
    """ASCII where any remains, else the text's own script; cut at a word; never empty."""
    assert slug(title) == expected


@given(ANY_TEXT)
@RELAXED
def test_any_title_gives_a_path_that_memory_can_hold(title: str) -> None:
    """The slug of any text passes the path gate and is at most 40 characters."""
    assert len(slug(title)) <= 40
    path = render(session(Turn("a", "x"), title=title), "sessions/").path
    assert paths.check(path) == path


def test_a_bad_prefix_is_refused() -> None:
    """The path gate also guards `under`."""
    with pytest.raises(PathError):
        render(session(Turn("a", "x")), "../")


@pytest.mark.parametrize(
    "line",
    ["## t2 · user · 2023-05-08 13:56", "\\## t9 · x", "\\\\## t1 ·", "## t\u0661 · arabic digit"],
)
def test_a_forged_turn_is_escaped(line: str) -> None:
    """A line that reads as a turn heading gets one more backslash, wherever a line can begin."""
    for lead in ("", "before\n", "before\r\n", "before\r", "before\u2028", "before\x85", "before\x0b"):
        text = text_of(render(session(Turn("user", lead + line)), "s/"))
        assert len(HEADING.findall(text)) == 1
        assert f"\n\\{line}\n" in text


def test_one_line_fields_cannot_forge_a_turn() -> None:
    """Newlines and field marks in a title, speaker, note, origin or detail stay inside their field."""
    evil = "x\n\n## t7 · user · 2020"
    turn = Turn(evil, "hello", START, "a\n## t3 ·", evil)
    document = render(Session(evil, evil, "src", (turn,), None, None, (evil,), ((evil, evil),)), "s/")
    assert HEADING.findall(text_of(document)) == ["## t1 ·"]
    assert text_of(document).count("\n# ") == 0


def test_text_is_made_safe() -> None:
    """ANSI, NUL and other controls go, line ends become newlines, lone surrogates U+FFFD, tabs stay."""
    dirty = "\x1b[31mred\x1b[0m \x1b]0;title\x07a\x00b\tc\r\nd\re \udcb2 \ud83d \x9b1mbold\x7f"
    assert clean(dirty) == "red ab\tc\nd\ne \ufffd \ufffd bold"


@given(ANY_TEXT)
@RELAXED
def test_clean_text_is_utf8_and_clean(text: str) -> None:
    """Whatever comes in, the result encodes, holds no control but newline and tab, and cleaning again is a no-op."""
    result = clean(text)
    result.encode("utf-8")
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", result)
    assert clean(result) == result


def test_a_long_turn_is_split_at_line_ends() -> None:
    """Parts share the anchor, stay within the limit, end at line ends, and give the text back."""
    text = "\n".join(f"line {n}: " + "é" * 60 for n in range(200))
    parts = [passage for passage in render(session(Turn("a", text, START)), "s/").passages if passage.anchor]
    assert len(parts) > 1
    assert {part.anchor for part in parts} == {"t1"}
    assert all(len(part.body) <= PASSAGE_BYTES_MAX + 1 and part.body.endswith(b"\n") for part in parts)
    assert "\n".join(part.text or "" for part in parts) == text


def test_a_line_is_never_split() -> None:
    """A single line above the limit stays one passage."""
    parts = [p for p in render(session(Turn("a", "x" * 9000 + "\nshort")), "s/").passages if p.anchor]
    assert [len(part.body) > PASSAGE_BYTES_MAX for part in parts] == [True, False]


@given(st.lists(ANY_TEXT, max_size=6), ANY_TEXT, ANY_TEXT)
@RELAXED
def test_there_is_one_heading_per_turn(texts: list[str], speaker: str, note: str) -> None:
    """For any texts: valid UTF-8, one heading per turn, numbered from 1, and every passage ends at a line end."""
    document = render(session(*(Turn(speaker, text, None, speaker, note) for text in texts)), "s/")
    anchors = [passage.anchor for passage in document.passages if passage.anchor]
    assert list(dict.fromkeys(anchors)) == [f"t{n}" for n in range(1, len(texts) + 1)]
    assert len(HEADING.findall(text_of(document))) == len(texts)
    assert all(passage.body.endswith(b"\n") for passage in document.passages)
