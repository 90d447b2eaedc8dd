"""The gate: every kind of damage to a valid stage is found, by the rule that is for it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from datetime import date
from pathlib import Path

import pytest
from brain_samples import make_corpus, sample_pages

from memfs.brain.evidence import CorpusEvidence, Verdict, cut, judge
from memfs.brain.gate import RULES, Budgets, review, validate
from memfs.brain.index import finish
from memfs.brain.page import CHANGELOG, INDEX, INSTRUCTIONS, Source, parse
from memfs.corpus.table import Corpus
from memfs.errors import UnreachableError

INES, FORNO, DB = (
    "knowledge/entities/ines-duarte.md",
    "knowledge/projects/forno-pipeline.md",
    "knowledge/concepts/database.md",
)
Files = dict[str, bytes]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    return make_corpus(tmp_path_factory.mktemp("brain") / "corpus")


def put(path: str, old: bytes, new: bytes) -> Callable[[Files], None]:
    def damage(files: Files) -> None:
        assert old in files[path], (path, old)
        files[path] = files[path].replace(old, new, 1)

    return damage


def made(path: str, data: bytes) -> Callable[[Files], None]:
    return lambda files: files.update({path: data})


def gone(*paths: str) -> Callable[[Files], None]:
    def damage(files: Files) -> None:
        for path in paths:
            del files[path]

    return damage


def page_like(path: str, **changes: bytes) -> Callable[[Files], None]:
    def damage(files: Files) -> None:
        data = files[FORNO]
        for old, new in changes.items():
            data = re.sub(rb"(?m)^%s: .*$" % old.encode(), b"%s: %s" % (old.encode(), new), data)
        files[path] = data

    return damage


DAMAGES: list[tuple[str, str, Callable[[Files], None]]] = [
    ("name", "a slug with capitals", page_like("knowledge/projects/Forno.md", title=b"X")),
    ("name", "a hostile name", made("knowledge/../x.md", b"x")),
    ("stray", "a file elsewhere", made("knowledge/readme.md", b"x")),
    ("stray", "no Markdown", made("knowledge/entities/x.py", b"x")),
    ("front-matter", "no front matter", put(INES, b"---\n", b"")),
    ("front-matter", "no title", put(INES, b"title: Ines Duarte\n", b"")),
    ("front-matter", "a key of another tool", put(INES, b"status:", b"tags: [x]\nstatus:")),
    ("front-matter", "no UTF-8", put(INES, b"deputy", b"dep\xff")),
    ("type", "a page in the wrong folder", put(INES, b"type: entity", b"type: project")),
    ("status", "a status of its own", put(INES, b"status: active", b"status: great")),
    ("dates", "updated before created", put(INES, b"updated: 2026", b"updated: 2025")),
    ("summary", "two sentences", put(INES, b"from Coimbra", b"from Coimbra. Likes tea")),
    ("title", "another heading", put(INES, b"\n# Ines Duarte", b"\n# Ines")),
    ("size", "a page of 30 kB", put(INES, b"See also", b"words " * 5_000 + b". [cite:1]\n\nSee also")),
    ("cite-form", "a citation of another form", put(INES, b"[cite:2]", b"[cite 2]")),
    ("cite-form", "a citation with two numbers", put(INES, b"[cite:2]", b"[cite:1,2]")),
    ("cite-unknown", "a number without a source", put(INES, b"[cite:2]", b"[cite:99]")),
    ("cite-unused", "a source that nothing cites", put(INES, b" [cite:2]", b" [cite:1]")),
    ("source-form", "a place that is none", put(INES, b"memfs://sessions/", b"file:///sessions/")),
    ("source-form", "a path that leads out", put(INES, b"memfs://sessions/", b"memfs://../sessions/")),
    ("source-form", "no hash", put(INES, b'sha256: "', b'sha256: "x')),
    ("source-form", "an empty quote", put(INES, b'"Marta will be my deputy"', b'" "')),
    ("source-form", "a page as evidence", put(INES, b"memfs://sessions/", b"memfs://knowledge/sessions/")),
    ("evidence-gone", "an invented session", put(INES, b"memfs://sessions/2026/04", b"memfs://sessions/2020/04")),
    ("evidence-gone", "an invented turn", put(INES, b'transcript.md#t3"', b'transcript.md#t399"')),
    ("evidence-changed", "the hash of something else", put(INES, b'sha256: "', b'sha256: "' + b"0" * 64 + b'", x: "')),
    ("evidence-quote", "a quote that nobody said", put(INES, b"Marta will be my deputy", b"Marta will be my boss")),
    ("uncited", "a sentence without a citation", put(INES, b"Marta is", b"She likes tea. Marta is")),
    ("uncited", "a list item without one", put(INES, b"\nSee also", b"\n- Owns a cat\n\nSee also")),
    ("unsupported", "another date", put(INES, b"2026-03-28. [cite:3]", b"2026-03-29. [cite:3]")),
    ("unsupported", "another figure", put(FORNO, b"18:20. [cite:2]", b"18:45. [cite:2]")),
    ("unsupported", "another name", put(INES, b"Marta is her deputy", b"It is Gloria, her deputy")),
    ("unsupported", "something else altogether", put(INES, b"Is allergic to walnuts", b"Plays the violin at night")),
    ("link-broken", "a link to nothing", put(INES, b"[[projects/forno-", b"[[projects/no-")),
    ("link-broken", "a heading that is not there", put(DB, b"forno-pipeline|", b"forno-pipeline#none|")),
    ("link-form", "an unclosed link", put(INES, b"pipeline]].", b"pipeline].")),
    ("names", "an alias of two", put(FORNO, b"aliases: [Forno]", b"aliases: [Forno, Ines]")),
    ("orphan", "a page that nothing links to", page_like("knowledge/projects/x.md", title=b"Lonely", aliases=b"[]")),
    ("index", "an index that lacks a page", put(INDEX, b"- [[entities/ines-duarte", b"- [[entities/ines")),
    ("index", "no index", gone(INDEX)),
    ("changelog", "a change that it does not say", put(DB, b"5.7 before", b"5.7 till then")),
    ("changelog", "lines that are gone", gone(CHANGELOG)),
    ("changelog", "a line without a date", put(CHANGELOG, b"- 2026-06-05: new page [[e", b"- new page [[e")),
    ("secret", "a key", put(INES, b"deputy.", b"deputy with AKIAABCDEFGHIJKLMNOP.")),
    ("secret", "a token in the changelog", put(CHANGELOG, b"new page", b"ghp_" + b"a1B2" * 9 + b" new page")),
    ("human", "a person's block that changed", put(DB, b"Mine.", b"Yours.")),
    ("human", "a person's block that is gone", put(DB, b"<!-- human -->\nMine.\n<!-- /human -->\n", b"")),
    ("human", "standing instructions", put(INSTRUCTIONS, b"short", b"long")),
    ("deletions", "two of three pages", gone(INES, DB)),
]  # fmt: skip


def before() -> Files:
    files = sample_pages()
    files[DB] += b"\n<!-- human -->\nMine.\n<!-- /human -->\n"
    files[INSTRUCTIONS] = b"Keep it short.\n"
    return files


def rules(problems: Iterable[object]) -> set[str]:
    return {problem.rule for problem in problems}  # type: ignore[attr-defined]


def test_the_sample_passes(corpus: Corpus) -> None:
    """With a person's block and standing instructions too."""
    found = review(before(), before(), CorpusEvidence(corpus))
    assert found.problems == ()
    assert (found.pages, found.claims, found.supported) == (3, 14, 14)


@pytest.mark.parametrize(("rule", "what", "damage"), DAMAGES, ids=[f"{rule}: {what}" for rule, what, _ in DAMAGES])
def test_each_damage(rule: str, what: str, damage: Callable[[Files], None], corpus: Corpus) -> None:
    """It is refused, the rule that is for it is among those that say so, and each says what would mend it."""
    files = before()
    damage(files)
    found = review(files, before(), CorpusEvidence(corpus))
    # A source with another key is no source at all.
    rule = "front-matter" if what == "the hash of something else" else rule
    assert rule in rules(found.problems)
    assert not found.passes
    assert all(problem.fix and problem.rule in RULES for problem in found.problems)


def test_every_rule_has_a_damage() -> None:
    """Thirty ways and more; no rule is never tried (the two of changed evidence are below)."""
    assert len(DAMAGES) >= 30
    assert {rule for rule, _, _ in DAMAGES} | {"evidence-unknown"} == set(RULES)


def test_evidence_that_changes(corpus: Corpus, tmp_path: Path) -> None:
    """The same turn with other words: found, with the hash that it has now."""
    source = parse(INES, sample_pages()[INES]).sources[2]
    path = source.at.removeprefix("memfs://").partition("#")[0]
    data = CorpusEvidence(corpus).files([path])[path]

    class Changed:
        def files(self, wanted: Iterable[str]) -> Mapping[str, bytes]:
            return {path: data.replace(b"Marta will be", b"Marta shall be")}

    verdict, span = judge(source, Changed())
    assert verdict is Verdict.CHANGED
    assert span is not None
    (problem,) = [
        p for p in validate(before(), before(), Changed()) if p.message.startswith(f"source 2: {source.at} is")
    ]
    assert problem.rule == "evidence-changed"
    assert span.sha256 in problem.fix


def test_what_cannot_be_read_is_unknown() -> None:
    """An outage is a warning: nothing is gone, and nothing is refused for it."""

    class Away:
        def files(self, wanted: Iterable[str]) -> Mapping[str, bytes]:
            raise UnreachableError("the object store did not answer")

    found = review(before(), before(), Away())
    assert rules(found.problems) == {"evidence-unknown"}
    assert found.passes
    assert found.supported == 0


def test_a_turn_ends_where_the_next_begins() -> None:
    """A heading inside of a turn ends none; a note is cut at its headings."""
    data = "# T\n\n## t1 · Ana · 2026-01-01 10:00\n\nOne.\n\n## Not a turn\n\nTwo.\n\n## t2 · Bo\n\nThree.\n".encode()
    span = cut(data, "t1")
    assert span is not None
    assert span.text.endswith("Two.\n\n")
    assert cut(data, "t3") is None
    note = b"# A\n\none\n\n## B c\n\ntwo\n\n### D\n\nthree\n"
    assert [s.data if (s := cut(note, a)) else None for a in ("b-c", "", "e")] == [b"## B c\n\ntwo\n\n", note, None]


@pytest.mark.parametrize(
    ("claim", "evidence", "holds"),
    [
        ("Moved on 2026-03-28.", "I moved on 28 March 2026", True),
        ("Moved on 2026-03-28.", "Mudei no dia 28 de março de 2026", False),
        ("Mudo no dia 2026-03-28.", "Mudo no dia 28 de março de 2026", True),
        ("Moved on 2026-03-28.", "I moved on March 28th, 2026", True),
        ("Paid 1,200 euros.", "I paid 1,200 euros", True),
        ("Paid 1,300 euros.", "I paid 1,200 euros", False),
        ("She met Gloria.", "she met somebody", False),
        ("Did not lose the job as a banker.", "I lost my job as a banker", False),
        ("Didn't lose the job as a banker.", "I didn't lose my job as a banker", True),
        ("Lives in Porto, no longer in Braga.", "From Braga I moved: I live in Porto", True),
        ("Was in Paris the day before 2023-01-29.", "On 2023-01-29: I was in Paris yesterday", True),
        ("Until 2026-02-04 still searching for a place.", "On 2026-02-04 I am searching for a place", True),
        ("Drinks green tea every day.", "every day she drinks green tea", True),
        ("Drinks black coffee at night.", "every day she drinks green tea", False),
    ],
)
def test_support_by_words(claim: str, evidence: str, holds: bool) -> None:
    """Figures, dates and names have to be there, and half of the words."""
    from memfs.brain.evidence import Span
    from memfs.brain.page import Claim
    from memfs.brain.support import support

    assert support(Claim(claim, 1, (1,)), [Span(evidence.encode(), 0, 1)]).holds is holds


def test_budgets(corpus: Corpus) -> None:
    """The index and the deletions have budgets that can be set."""
    files = before()
    del files[FORNO]
    files = finish(files, date(2026, 7, 1), ["less"])
    strict = validate(files, before(), CorpusEvidence(corpus), Budgets(free_pages=0))
    assert "deletions" in rules(strict)
    assert "deletions" not in rules(validate(files, before(), CorpusEvidence(corpus), Budgets(free_pages=1)))
    assert "index" in rules(validate(before(), before(), CorpusEvidence(corpus), Budgets(index_tokens=100)))


def test_source_of_a_connector(corpus: Corpus) -> None:
    """A place outside of the corpus is taken at its word, and its claims are not judged."""
    files = before()
    old = parse(DB, files[DB]).sources[3]
    files[DB] = files[DB].replace(old.at.encode(), b"connector://mail/42")
    found = review(files, files, CorpusEvidence(corpus))
    assert not any(problem.path == DB and problem.rule.startswith("evidence") for problem in found.problems)
    assert Source("connector://mail/42", old.sha256, old.quote) in parse(DB, files[DB]).sources.values()
