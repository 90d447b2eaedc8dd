"""memfs fetch: a cited answer, the files behind it, and an honest "nothing"."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
from conftest import NOTES, Ran, Store, document, long_text, tree_of

from memfs.corpus.table import Corpus, Scope
from memfs.errors import InputError, NotFoundError
from memfs.fetch import FILE_BYTES_MAX, fetch, recall
from memfs.report import answer_text
from memfs.testing import Proxy
from memfs.workset.cache import HostCache
from memfs.workset.tree import Tree

Run = Callable[..., Ran]


@pytest.fixture
def cache(tmp_path: Path) -> Iterator[HostCache]:
    with closing(HostCache(str(tmp_path / "cache"))) as made:
        yield made


@pytest.fixture
def tree(tmp_path: Path, filled: Corpus) -> Iterator[Tree]:
    with Tree.open(str(tmp_path / "memory"), str(tmp_path / "state"), corpus=filled.uri) as opened:
        yield opened


def test_answer(filled: Corpus, tree: Tree, cache: HostCache) -> None:
    """The best passage first, cited; its file is in the tree, whole; the coverage says what was searched."""
    answer = fetch(filled, "when does the deployment run?", tree=tree, cache=cache, k=2)
    assert answer.found
    assert answer.evidence[0].path == "notes/deploy.md"
    assert "Friday at noon" in answer.evidence[0].text
    assert "Friday at noon" in answer.synthesis
    assert answer.evidence[0].citation in answer.synthesis
    assert tree_of(tree.root)["notes/deploy.md"] == NOTES["notes/deploy.md"].encode()
    assert {file.path for file in answer.files} == set(tree_of(tree.root))
    assert {file.outcome for file in answer.files} == {"write"}
    assert (answer.coverage.files_total, answer.coverage.corpus_version) == (len(NOTES), filled.version)
    again = fetch(filled, "when does the deployment run?", tree=tree, cache=cache, k=2)
    assert {file.outcome for file in again.files} == {"present"}


def test_nothing(filled: Corpus, tree: Tree, cache: HostCache, corpus: Corpus) -> None:
    """A question about nothing here finds nothing, lays nothing, and says what it searched."""
    answer = fetch(filled, "xylophone zeppelin qqqq", tree=tree, cache=cache)
    assert (answer.found, answer.synthesis, answer.evidence, answer.files) == (False, "", (), ())
    assert answer.coverage.files_total == len(NOTES)
    assert tree_of(tree.root) == {}


def test_weak(corpus: Corpus, tmp_path: Path) -> None:
    """What may be about something else is shown, said to be so, walked for, and lays no file."""
    corpus.commit([document(f"notes/{n}.md", f"# {n}\n\nThe crane number {n} was painted.\n") for n in range(300)])
    with Tree.open(str(tmp_path / "memory"), str(tmp_path / "state"), corpus=corpus.uri) as tree:
        question = "which number of moons does the planet zorblax have in frobnication?"
        answer = fetch(corpus, question, tree=tree, cache=None)
        assert (answer.found, answer.weak) == (True, True)
        assert {file.outcome for file in answer.files} == {"not laid"}
        assert tree_of(tree.root) == {}
    said = answer_text(answer)
    assert said.startswith("Nothing here answers this for sure.")
    assert "memfs get" in said


def test_empty_corpus(corpus: Corpus) -> None:
    """An empty corpus answers nothing."""
    assert not fetch(corpus, "anything at all?", tree=None, cache=None).found
    assert recall(corpus, "anything at all?") == []


def test_scope(filled: Corpus) -> None:
    """`under`, `since` and `until` bound what is found."""
    assert {e.path for e in recall(filled, "we chose", scope=Scope("sessions/"))} == {
        "sessions/2026/05/one/summary.md",
        "sessions/2026/05/two/summary.md",
    }
    day = datetime(2026, 5, 9, tzinfo=timezone.utc)
    assert {e.path for e in recall(filled, "we chose", scope=Scope(since=day))} == {"sessions/2026/05/two/summary.md"}
    assert {e.path for e in recall(filled, "we chose", scope=Scope("sessions/", until=day))} == {
        "sessions/2026/05/one/summary.md"
    }
    with pytest.raises(NotFoundError):
        recall(filled, "we chose", scope=Scope("nothing/"))


def test_as_of(filled: Corpus, memfs: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """As of a day, what is dated later is left out and what has no date is not; the answer says how it read a time."""
    days = [info.event_time for info in filled.files() if info.event_time]
    assert len(days) >= 2
    first = min(days).date()
    found = recall(filled, "we chose", today=first)
    assert "sessions/2026/05/two/summary.md" not in {e.path for e in found}
    assert "sessions/2026/05/one/summary.md" in {e.path for e in found}
    assert recall(filled, "green tea", today=first)[0].path == "notes/people/ana.md"
    answer = fetch(filled, "what did we choose yesterday?", tree=None, cache=None, today=first)
    assert [str(span) for span in answer.times] == [str(first - timedelta(days=1))]
    within = answer.coverage
    assert within.files_searched == within.files_total - len([day for day in days if day.date() > first])
    monkeypatch.setenv("MEMFS_CORPUS", filled.uri)
    ran = memfs("fetch", "what did we choose yesterday?", "--today", str(first))
    assert f"time read as {first - timedelta(days=1)}: nothing is dated then" in ran.out
    # What is given outranks what the question says.
    ran = memfs("fetch", "what did we choose yesterday?", "--today", str(first), "--until", str(first))
    assert "time read as" not in ran.out
    there = memfs("fetch", "what was chosen today?", "--today", str(first), "--json").json
    assert (there["times"], there["said_then"]) == ([{"first": str(first), "last": str(first)}], 1)
    # A day is until its end; a time is itself.
    for until, found_it in ((f"{first}", True), (f"{first}T00:00", False), ("9999-12-31", True)):
        ran = memfs("fetch", "we chose", "--under", "sessions/", "--until", until)
        assert ("sessions/2026/05/one/summary.md" in ran.out) is found_it, until
    ran = memfs("fetch", "we chose", "--since", "0001-01-01", "--until", str(first), "--json")
    cover = json.loads(ran.out)["coverage"]
    assert cover["scope"].startswith("since 0001-01-01 00:00, before")
    assert 0 < cover["files_searched"] < cover["files_total"]
    assert cover["files_undated"] == cover["files_total"] - len(days)


def test_the_last_day_of_the_calendar(corpus: Corpus, memfs: Run) -> None:
    """A day that has no next one is included too."""
    corpus.commit([document("notes/a.md", "---\ndate: 9999-12-31\n---\nThe zebra waits.\n")])
    ran = memfs("fetch", "zebra", "--until", "9999-12-31", "--corpus", corpus.uri)
    assert "The zebra waits" in ran.out, ran.out


def test_edits_are_kept(filled: Corpus, tree: Tree, cache: HostCache) -> None:
    """A local edit is not fetched over, and the answer says so."""
    fetch(filled, "when does the deployment run?", tree=tree, cache=cache, k=1)
    (Path(tree.root) / "notes/deploy.md").write_text("mine\n")
    answer = fetch(filled, "when does the deployment run?", tree=tree, cache=cache, k=1)
    assert [(file.path, file.outcome) for file in answer.files] == [("notes/deploy.md", "edited")]
    assert (Path(tree.root) / "notes/deploy.md").read_text() == "mine\n"


def test_dry_run_and_no_tree(filled: Corpus, tree: Tree, cache: HostCache) -> None:
    """A dry run writes nothing; without a tree there is an answer all the same."""
    assert fetch(filled, "green tea", tree=tree, cache=cache, dry_run=True).found
    assert tree_of(tree.root) == {}
    assert fetch(filled, "green tea", tree=None, cache=None).evidence[0].path == "notes/people/ana.md"


def test_budget(corpus: Corpus) -> None:
    """The synthesis keeps its token budget; what did not fit is in the evidence, and counted."""
    corpus.commit([document(f"notes/{n}.md", f"# Marmot {n}\n\n" + long_text("marmot", 30)) for n in range(8)])
    answer = fetch(corpus, "marmot", tree=None, cache=None, k=8, budget_tokens=700)
    assert 0 < answer.shown < len(answer.evidence) == 8
    assert len(answer.synthesis) <= 700 * 4
    small = fetch(corpus, "marmot", tree=None, cache=None, budget_tokens=1)
    assert small.shown == 1


def test_large_file_is_cited(corpus: Corpus, tree: Tree, cache: HostCache) -> None:
    """A file too large to bring is cited with its passage, and left for `memfs get`."""
    text = long_text("filler", FILE_BYTES_MAX // 50) + "\nthe axolotl regrows its limbs\n"
    corpus.commit([document("notes/large.md", text)])
    answer = fetch(corpus, "axolotl limbs", tree=tree, cache=cache, k=1)
    assert "axolotl" in answer.evidence[0].text
    assert [(file.path, file.outcome) for file in answer.files] == [("notes/large.md", "too large")]
    assert tree_of(tree.root) == {}


@pytest.mark.parametrize("question", ["", "  \n", "x" * 10_001])
def test_bad_questions(filled: Corpus, question: str) -> None:
    """An empty or endless question is an error with a hint."""
    with pytest.raises(InputError) as caught:
        fetch(filled, question, tree=None, cache=None)
    assert caught.value.hint


@pytest.mark.parametrize("options", [{"k": 0}, {"k": -1}, {"budget_tokens": 0}])
def test_bad_numbers(filled: Corpus, options: dict[str, int]) -> None:
    """So is a count that is not positive."""
    with pytest.raises(InputError):
        fetch(filled, "x", tree=None, cache=None, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "question",
    ["'); DROP TABLE passages; --", 'a AND b OR NOT "c', "* ? ~2 ^3 [a TO b]", "\\ \x00 \n", "😀", "(((", "title:x"],
)
def test_any_question(filled: Corpus, question: str) -> None:
    """No mark in a question is syntax."""
    fetch(filled, question, tree=None, cache=None)


@pytest.mark.parametrize(
    ("question", "path"),
    [
        ("quando é a reuniao", "notes/pt.md"),
        ("회의", "notes/ko.md"),
        ("数据库", "notes/zh.md"),
        ("会議はいつ", "notes/ja.md"),
        ("get_user_name", "notes/code.md"),
        ("q" * 55, "notes/long.md"),
    ],
)
def test_languages(corpus: Corpus, question: str, path: str) -> None:
    """Questions in other languages, in code, in long tokens find their file first."""
    texts = {
        "notes/pt.md": "A reunião foi marcada para quinta.\n", "notes/ko.md": "회의에서 새로운 로고를 결정했다.\n",
        "notes/zh.md": "我们上周迁移了数据库到云端。\n", "notes/ja.md": "明日の会議は中止になりました。\n",
        "notes/code.md": "def get_user_name(self): return self.name\n", "notes/long.md": f"token {'q' * 55} end\n",
        "notes/en.md": "A meeting about the database was held by the user.\n",
    }  # fmt: skip
    corpus.commit([document(name, text) for name, text in texts.items()])
    assert recall(corpus, question)[0].path == path


def test_requests(proxy: Proxy, s3: Store, tmp_path: Path, cache: HostCache) -> None:
    """A warm process answers with at most 8 requests, files included."""
    corpus = Corpus.create(s3.uri())
    with corpus.writing():
        corpus.commit(
            [document(f"notes/{n:04d}.md", f"# Note {n}\n\nsubject{n % 40} of the matter {n}\n") for n in range(2_000)]
        )
        corpus.maintain()
    opened = Corpus.open(s3.uri())
    opened.warm()
    fetch(opened, "subject3", tree=None, cache=None)
    with Tree.open(str(tmp_path / "memory"), str(tmp_path / "state"), corpus=corpus.uri) as tree:
        proxy.reset()
        answer = fetch(opened, "subject7 of the matter", tree=tree, cache=cache, k=20)
        traffic = proxy.traffic()
    assert len(answer.files) == 20
    assert traffic.total <= 8, traffic.lines
