"""A page: read, written, taken apart."""

from __future__ import annotations

from dataclasses import replace
from datetime import date

import pytest
from brain_samples import sample_pages
from hypothesis import given
from hypothesis import strategies as st

from memfs.brain.index import changelog, index
from memfs.brain.links import Graph
from memfs.brain.page import Claim, Page, PageError, Source, page_path, parse, render
from memfs.brain.store import pages_in

PATH = "knowledge/entities/ana.md"
HASH = "0" * 64
CHARACTERS = st.characters(blacklist_categories=("Cs", "Cc"), blacklist_characters="\x85\u2028\u2029")
LINES = st.text(CHARACTERS, min_size=1).map(
    lambda text: " ".join(text.split())
).filter(bool)  # fmt: skip


def page(body: str = "# Ana\n", **more: object) -> Page:
    values: dict[str, object] = {
        "title": "Ana", "type": "entity", "summary": "She is Ana", "created": date(2026, 1, 2),
        "updated": date(2026, 1, 3),
    }  # fmt: skip
    return Page(path=PATH, body=body, **{**values, **more})  # type: ignore[arg-type]


def test_the_samples_round_trip() -> None:
    """What is canonical is written as it was read, also when it is taken apart first."""
    pages = pages_in(sample_pages())
    assert len(pages) == 3
    for each in pages.values():
        assert render(each) == each.raw
        assert render(Page(**{**each.__dict__, "raw": b"", "body_line": 0})) == each.raw


@given(title=LINES, aliases=st.lists(LINES, max_size=3), summary=LINES, quote=LINES, at=LINES)
def test_any_text_comes_back(title: str, aliases: list[str], summary: str, quote: str, at: str) -> None:
    """YAML's marks, quotes, colons, numbers and `yes` in any field are only text."""
    made = page(title=title, aliases=tuple(aliases), summary=summary, sources={1: Source(at, HASH, quote)})
    assert parse(PATH, render(made)) == made


def test_another_style_keeps_its_bytes() -> None:
    """A page that a person or another tool wrote is read, and stays as it is while nothing changes."""
    data = (
        b"---\nstatus: 'active'\ntitle: >-\n  Ana\ntype: entity\nsummary: She is Ana  # really\ncreated: 2026-01-02\n"
        b"updated: 2026-01-03\n---\n\n\n# Ana\n\ntext"
    )
    read = parse(PATH, data)
    assert (read.title, read.summary, read.aliases, read.sources) == ("Ana", "She is Ana", (), {})
    assert render(read) == data


@pytest.mark.parametrize(
    ("damage", "line", "says"),
    [
        ((b"---\n", b""), 1, "no front matter"),
        ((b"title: Ana\n", b""), 2, "title is missing"),
        ((b"created: 2026-01-02", b"created: soon"), 6, "no date"),
        ((b"aliases: []", b"aliases: Ana"), 4, "no list"),
        ((b"sources: {}", b"sources: {x: 1}"), 10, "no number"),
        ((b"sources: {}", b'sources: {1: {at: "a"}}'), 10, "not just at, sha256 and quote"),
        ((b"status: active", b"state: active"), 8, "no key of a page"),
        ((b"title: Ana", b"title: [Ana"), 3, "no YAML"),
        ((b"# Ana", b"# \xff"), 11, "not UTF-8"),
        ((b"# Ana", b"# Ana\r"), 11, "carriage return"),
    ],
)
def test_what_is_no_page(damage: tuple[bytes, bytes], line: int, says: str) -> None:
    """Each fault with its line."""
    with pytest.raises(PageError, match=says) as caught:
        parse(PATH, render(page()).replace(*damage, 1))
    assert caught.value.line == line


def test_links_cites_and_claims() -> None:
    """In prose, lists and tables; not in code, not in HTML."""
    read = parse(
        PATH,
        render(
            page(
                "# Ana\n\nLives in [[entities/lisbon|Lisbon]] since 2026. [cite:1] Works at [[Forno#People]]. "
                "[cite:2] [cite:3]\n\n- Likes tea. [cite:1]\n- See also: [[x]], [[y]].\n\n```\n[[no]] [cite:9] No.\n"
                "```\n\n`[[no]]` stays.\n\n"
                "<!-- human -->\nMine alone.\n<!-- /human -->\n\n## Later\n\nHe said 3.5 kg. [cite:4]\n"
            )
        ),
    )
    assert [(link.target, link.heading, link.label) for link in read.links] == [
        ("entities/lisbon", "", "Lisbon"), ("Forno", "People", "Forno"), ("x", "", "x"), ("y", "", "y"),
    ]  # fmt: skip
    assert [number for number, _ in read.cites] == [1, 2, 3, 1, 4]
    assert read.claims == (
        Claim("Lives in Lisbon since 2026.", 13, (1,)),
        Claim("Works at Forno.", 13, (2, 3)),
        Claim("Likes tea.", 15, (1,)),
        Claim("stays.", 22, ()),
        Claim("He said 3.5 kg.", 30, (4,)),
    )
    assert read.headings == ("ana", "later")


@pytest.mark.parametrize("bad", ["Ana.md", "a--b.md", "-a.md", "a_b.md", "a.txt", "ä.md", "../a.md", "x/a.md"])
def test_names(bad: str) -> None:
    """A slug and nothing else."""
    assert page_path(PATH)
    assert not page_path(f"knowledge/entities/{bad}")
    assert not page_path(f"knowledge/{bad}")


def test_graph() -> None:
    """Names of any case and Unicode form; what is ambiguous, broken, or linked from nowhere."""
    other = {"path": "knowledge/projects/forno.md", "type": "project", "title": "Forno"}
    one = Page(**{**page("# Ana\n\n[[FORNO]], [[nobody]], [[both]], [[forno#none]]\n", aliases=("Both",)).__dict__})
    two = Page(**{**page("# Forno\n", aliases=("both", "Pão")).__dict__, **other})
    graph = Graph([one, two])
    assert graph.resolve("PA\u0303O") == (two.path,)
    assert graph.resolve("knowledge/projects/forno.md") == (two.path,)
    assert graph.resolve("both") == (one.path, two.path)
    assert [path for _, path in graph.out(one.path)] == [two.path, two.path]
    assert graph.into(two.path) == (one.path,)
    assert [(link.target, why.split()[0]) for link, why in graph.broken(one.path)] == [
        ("nobody", "leads"), ("both", "may"), ("forno", two.path),
    ]  # fmt: skip
    assert graph.orphans() == (one.path,)
    assert set(graph.shared_names()) == {"both"}


def test_index_counts_what_does_not_fit() -> None:
    """Never over its budget, never silent."""
    pages = [
        replace(page(), path=f"knowledge/entities/p{n}.md", title=f"Page {n}", updated=date(2026, 1, 1 + n))
        for n in range(20)
    ]
    assert index(pages).count("- [[") == 20
    small = index(pages, 250)
    assert len(small) <= 1000
    assert small.index("Page 19") < small.index("Page 18")
    assert f"- … {20 - small.count('- [[')} more" in small


def test_changelog_newest_first() -> None:
    """New lines go on top; a changelog in another style keeps what it says."""
    once = changelog("", date(2026, 1, 1), ["one"])
    twice = changelog(once, date(2026, 1, 2), ["two"])
    assert [line for line in twice.splitlines() if line.startswith("-")] == ["- 2026-01-02: two", "- 2026-01-01: one"]
    assert changelog("- mine\n", date(2026, 1, 2), ["two"]).endswith("- 2026-01-02: two\n- mine\n")
