"""The Cue-Tag-Content graph: what a passage is filed under, how it follows the corpus, and what walking it finds."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from datetime import date, datetime, timezone
from pathlib import Path
from typing import Any

import pytest
from conftest import Ran, Store, document
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from memfs.corpus.edges import Edges
from memfs.corpus.records import Document
from memfs.corpus.sources.transcript import Session, Turn, render
from memfs.corpus.table import EVERYTHING, Corpus, Scope
from memfs.errors import NotFoundError
from memfs.fetch import fetch, recall
from memfs.llm import LanguageModel
from memfs.recall.choose import ByModel
from memfs.recall.cues import cues_of, is_stable, topics_of
from memfs.recall.dates import dates_in, spans_in
from memfs.recall.graph import Graph, build
from memfs.recall.rank import rank
from memfs.recall.reconstruct import Budget, reconstruct, suffices

Run = Callable[..., Ran]
DAY = date(2023, 5, 8)
"""A Monday."""


@pytest.mark.parametrize(
    ("text", "days"),
    [
        ("I went yesterday.", ["2023-05-07"]),
        ("We met last Friday, and last night again.", ["2023-05-07", "2023-05-05"]),
        ("two weeks ago, and 3 days ago", ["2023-04-24", "2023-05-05"]),
        ("a couple of months ago", ["2023-03"]),
        ("last year, next month", ["2022", "2023-06"]),
        ("on 3 July 2022", ["2022-07-03", "2022-07"]),
        ("July 3rd, 2022 was hot", ["2022-07-03", "2022-07"]),
        ("in December", ["2022-12"]),
        ("since 2019", ["2019"]),
        ("on 2024-02-29", ["2024-02-29"]),
        ("you may march on", []),
        ("31 February 2023", ["2023-02"]),
        ("nine hundred weeks ago, 99999999 years ago", []),
        ("next Monday", ["2023-05-15"]),
        ("this weekend", ["2023-05-13"]),
        ("in march", ["2023-03"]),
    ],
)
def test_dates(text: str, days: list[str]) -> None:
    """What a text speaks of, counted from the day it was said."""
    assert dates_in(text, DAY) == days


@pytest.mark.parametrize(
    ("question", "spans"),
    [
        ("what happened yesterday?", ["2023-05-07/2023-05-07"]),
        ("two weeks ago", ["2023-04-21/2023-04-27"]),
        ("in the past three months", ["2023-02-07/2023-05-08"]),
        ("last month", ["2023-04-01/2023-05-08"]),
        ("this year, since the start of the year", ["2023-01-01/2023-05-08"]),
        ("last week", ["2023-05-01/2023-05-08"]),
        ("on Monday", ["2023-05-01/2023-05-01"]),
        ("last spring", ["2022-03-01/2022-05-31"]),
        ("this spring", ["2023-03-01/2023-05-08"]),
        ("over the winter", ["2022-12-01/2023-02-28"]),
        ("from July to October", ["2022-07-01/2022-10-31"]),
        ("between August 11 and August 15 2022", ["2022-08-11/2022-08-15"]),
        ("on 3 May, 2022 or in June 2021", ["2022-05-03/2022-05-03", "2021-06-01/2021-06-30"]),
        ("in 2022", ["2022-01-01/2022-12-31"]),
        ("from 2020 to 2022", ["2020-01-01/2022-12-31"]),
        ("the day before yesterday, not yesterday", ["2023-05-06/2023-05-06", "2023-05-07/2023-05-07"]),
        ("in the winter of 2021", ["2021-12-01/2022-02-28"]),
        ("half a year ago", ["2022-10-23/2022-11-22"]),
        ("eleven days ago", ["2023-04-26/2023-04-28"]),
        ("on 3/4/2022", ["2022-04-03/2022-04-03", "2022-03-04/2022-03-04"]),
        ("on 31.12.2022, on 13/13/2022", ["2022-12-31/2022-12-31"]),
        ("on February 30", []),
        ("at 2022-02-03T10:30Z, 2022-02-03T10", ["2022-02-03/2022-02-03"]),
        ("between 2022-05-09 and 1 May 2022", ["2022-05-01/2022-05-09"]),
        ("in May\n\n 2022", ["2022-05-01/2022-05-31"]),
        ("\uff12\uff10\uff12\uff12-02-03", ["2022-02-03/2022-02-03"]),
        ("2022-02-30, 2022-13, 0000-00-00", []),
        ("99999999 years ago, next week, may I march?", []),
        ("on 3-5 May 2022, or June 1st to 4th, 2022", ["2022-05-03/2022-05-05", "2022-06-01/2022-06-04"]),
        ("between the 3rd and 5th of May 2022", ["2022-05-03/2022-05-05"]),
        ("from May 30 to June 2 2022", ["2022-05-30/2022-06-02"]),
        ("from 30 to 32 May 2022", ["2022-01-01/2022-12-31"]),
        ("in the 1990s, not 1890s", ["1990-01-01/1999-12-31"]),
        ("in Q3 2022", ["2022-07-01/2022-09-30"]),
        ("in Q2, or in Q4", ["2023-04-01/2023-05-08", "2022-10-01/2022-12-31"]),
        ("last quarter", ["2023-01-01/2023-05-08"]),
        ("this quarter", ["2023-04-01/2023-05-08"]),
        ("in march? they march, you may, in may", ["2023-03-01/2023-03-31", "2023-05-01/2023-05-31"]),
        ("May I ask? March on. What was it in May?", ["2023-05-01/2023-05-31"]),
    ],
)
def test_spans(question: str, spans: list[str]) -> None:
    """The time that a question asks about, counted from the day it is asked; without that day, written dates alone."""
    assert [f"{span.first}/{span.last}" for span in spans_in(question, DAY)] == spans
    written = {f"{span.first}/{span.last}" for span in spans_in(question, None)}
    assert written <= set(spans)


@pytest.mark.parametrize(
    ("question", "span"),
    [
        ("since July 2022", "2022-07-01/2023-05-08"),
        ("after 2022-05-01", "2022-05-01/2023-05-08"),
        ("since 2020", "2020-01-01/2023-05-08"),
        ("before July 2022", "0001-01-01/2022-06-30"),
        ("until the end of 2021", "0001-01-01/2021-12-31"),
        ("before the summer of 2022", "0001-01-01/2022-05-31"),
        ("before the 2010s", "0001-01-01/2009-12-31"),
        ("since Q3 2022", "2022-07-01/2023-05-08"),
    ],
)
def test_open_spans(question: str, span: str) -> None:
    """A time that is open at one end reaches to the day of asking, or to the beginning."""
    assert [f"{each.first}/{each.last}" for each in spans_in(question, DAY)] == [span]
    assert len(spans_in(question, None)) == 1
    assert spans_in("since 2030", DAY) == []
    assert str(spans_in("before July 2022", DAY)[0]) == "until 2022-06-30"


@pytest.mark.parametrize("day", [date.min, date.max])
def test_the_calendar_ends(day: date) -> None:
    """Neither a passage nor a question of the first or last day of the calendar is an error."""
    text = "yesterday, tomorrow, last month, last year, last winter, two weeks ago, last Monday, next Monday, this week"
    for part in (text, *text.split(", ")):
        assert all(span.first <= span.last for span in spans_in(part, day))
        assert isinstance(dates_in(part, day), list)


def test_cues() -> None:
    """Names, days, the speaker, content words with the word beside them; stop words are none."""
    found = cues_of("I finally met Ana Duarte in Porto yesterday, and we bought a kayak.", "Bo", DAY)
    by_kind = {kind: [cue.cue for cue in found if cue.kind == kind] for kind in ("person", "name", "date", "word")}
    assert by_kind["person"] == ["bo"]
    assert by_kind["name"] == ["ana duarte", "porto"]
    assert by_kind["date"] == ["2023-05-07"]
    assert {"kayak", "bought"} <= set(by_kind["word"])
    assert not {"i", "and", "we", "in", "a"} & set(by_kind["word"])
    assert {cue.cue: cue.tag for cue in found}["bought"] == "kayak"
    assert cues_of("", None, None) == []
    assert [cue.cue for cue in cues_of("会議は金曜日です", None, None)] == []
    assert is_stable("I love walnuts, always have.")
    assert not is_stable("What a day!")
    assert [cue.cue for cue in topics_of(["the kayak trip", "our kayak", "a boat"])] == ["kayak"]


def talk(number: int, *said: str) -> Document:
    turns = tuple(Turn(("Ana", "Bo")[n % 2], text) for n, text in enumerate(said))
    return render(Session(id=f"s{number}", title=f"Talk {number}", source="test", turns=turns), "sessions/")


@pytest.fixture
def talks(corpus: Corpus) -> Corpus:
    corpus.commit(
        [
            talk(1, "I started pottery classes in spring.", "How lovely, what do you make?", "Mostly bowls and cups."),
            talk(2, "We went swimming in the lake with the kids.", "Was the water cold?", "Freezing, but fun."),
            talk(3, "The printer is out of ink again.", "Order some more then.", "Done, arrives Tuesday."),
            talk(4, "I painted a sunrise on Sunday.", "Show me!", "It hangs in the hall."),
            document("notes/plan.md", "# Plan\n\nMove the server on Friday.\n"),
        ]
    )
    return corpus


def test_build(talks: Corpus) -> None:
    """Every passage is filed; again costs nothing; each edge leads to a passage that is there."""
    built = build(talks)
    assert built.files == 5
    assert built.edges > 40
    again = build(talks)
    assert (again.files, again.edges, again.gone) == (0, 0, 0)
    graph = Graph.open(talks)
    assert graph is not None
    places = {place.anchor for _, place in graph.contents({"potteri": None})}
    assert places == {"t1", "s1"} or places == {"t1"} or "t1" in places
    assert graph.tags(["potteri"])["potteri"]
    (edges,) = [graph.filed_under(place) for _, place in graph.contents({"sunris": None})][:1]
    assert {"sunris", "sunday"} <= {edge.cue for edge in edges}


def test_follows_the_corpus(talks: Corpus) -> None:
    """A change files that file alone; stale edges count for nothing; a file that is gone takes its edges along."""
    build(talks)
    changed = talk(1, "I gave up ceramics for juggling.", "Oh no.", "It is fine.")
    talks.commit([changed])
    graph = Graph.open(talks)
    assert graph is not None
    assert graph.contents({"potteri": None}) == []
    built = build(talks)
    assert built.files == 1
    graph = Graph.open(talks)
    assert graph is not None
    assert graph.contents({"juggl": None})
    talks.commit(delete=[changed.path])
    assert build(talks).gone == 1
    edges = Edges.open(talks)
    assert edges is not None
    assert changed.path not in edges.filed()


def test_killed_between_out_and_in(talks: Corpus) -> None:
    """Edges taken out and not yet put in again: nothing wrong is found, and the next build mends it."""
    build(talks)
    talks.commit([talk(1, "I gave up ceramics for juggling.", "Oh no.", "It is fine.")])
    killer = (
        "import os, signal, sys\n"
        "from memfs.corpus.table import Corpus\nfrom memfs.corpus import edges\nfrom memfs.recall.graph import build\n"
        "put = edges.Edges.put\n"
        "def killed(self, gone, rows):\n"
        "    put(self, gone, rows.slice(0, 0))\n"
        "    if len(rows): os.kill(os.getpid(), signal.SIGKILL)\n"
        "edges.Edges.put = killed\nbuild(Corpus.open(sys.argv[1]))\n"
    )
    done = subprocess.run([sys.executable, "-c", killer, talks.uri], capture_output=True, text=True, timeout=60)
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert build(Corpus.open(talks.uri)).files == 1
    graph = Graph.open(Corpus.open(talks.uri))
    assert graph is not None
    assert graph.contents({"juggl": None})


def test_what_is_shown(corpus: Corpus, memfs: Run) -> None:
    """Words as they were written, not their stems; the citations of a page or a summary are nothing to file under."""
    where = "sessions/2026/05/2026-05-08-x-1/summary.md"
    said = "- Ana: Adopting agencies need patience. ([t4](transcript.md#t4))\n"
    summary = document(where, f"# Talk\n\n- date: 2026-05-08\n\n{said}")
    corpus.commit([summary, document("notes/a.md", "Adopting agencies were called.")])
    build(corpus)
    shown = memfs("graph", "cue", "agency", "--corpus", corpus.uri)
    assert shown.out.startswith("agencies: 2 passages"), shown.out
    assert "t4" not in memfs("graph", "content", where, "--corpus", corpus.uri).out
    assert memfs("graph", "cue", "transcript", "--corpus", corpus.uri).code == 4
    (info,) = [info for info in corpus.files() if info.path == where]
    assert info.event_time == datetime(2026, 5, 8, tzinfo=timezone.utc)


def test_nothing_to_file_under(corpus: Corpus, memfs: Run) -> None:
    """A binary file and an empty one are looked at once; names with an apostrophe are found as people write them."""
    corpus.commit(
        [document("notes/a.bin", b"x\0y"), document("notes/b.md", ""), document("notes/c.md", "Ask O'Brien.")]
    )
    assert build(corpus).files == 3
    assert build(corpus).files == 0
    assert memfs("graph", "--corpus", corpus.uri, "--json").json["unfiled"] == 0
    assert memfs("graph", "cue", "O'Brien", "--corpus", corpus.uri).out.startswith("O'Brien: 1 passages")
    assert memfs("graph", "cue", "", "--corpus", corpus.uri).code == 3


def test_over_s3(store: Store) -> None:
    """The graph lies beside the passages, wherever those lie."""
    made = Corpus.create(store.uri("graph"))
    made.commit([talk(1, "I started pottery classes in spring.", "Nice.")])
    assert Graph.open(made) is None
    build(made)
    graph = Graph.open(Corpus.open(made.uri))
    assert graph is not None
    assert graph.contents({"potteri": None})


def test_walk(talks: Corpus) -> None:
    """Cues of like meaning reach what shares no word with the question; every step is in the trace; scope holds."""
    build(talks)
    graph = Graph.open(talks)
    assert graph is not None
    question = "Ana began a hobby with ceramics, which?"
    seeds = rank(talks, question, EVERYTHING)
    made = reconstruct(talks, graph, question, EVERYTHING, seeds)
    assert [move.action for move in made.steps] == ["cue", "topic"]
    assert made.stopped
    assert any("pottery classes" in e.text for e in recall(talks, question, k=3, active="always"))
    only = Scope(under="notes/")
    there = reconstruct(talks, graph, "the server", only, rank(talks, "the server", only))
    assert {r.place.path for r in there.ranked} == {"notes/plan.md"}
    one = reconstruct(talks, graph, question, EVERYTHING, seeds, budget=Budget(rounds=1))
    assert (one.rounds, one.stopped) == (1, "the budget of 1 rounds")
    none = reconstruct(talks, graph, question, EVERYTHING, seeds, budget=Budget(seconds=-1.0))
    assert (none.rounds, "seconds" in none.stopped) == (0, True)
    assert [r.place for r in none.ranked] == [r.place for r in seeds]


def test_fetch(talks: Corpus) -> None:
    """`auto` without a graph says so and answers; `always` needs one; what suffices is not walked for."""
    answer = fetch(talks, "pottery classes", tree=None, cache=None)
    assert answer.found
    assert answer.trace is not None
    assert not answer.trace.active
    with pytest.raises(NotFoundError, match="no graph"):
        fetch(talks, "pottery classes", tree=None, cache=None, active="always")
    assert fetch(talks, "pottery classes", tree=None, cache=None, active="never").trace is None
    build(talks)
    talks.commit([document("notes/new.md", "# New\n\nA new version of the corpus.\n")])
    walked = fetch(talks, "pottery classes", tree=None, cache=None, active="always")
    assert walked.trace is not None
    assert walked.trace.active
    near = replace(rank(talks, "pottery", EVERYTHING)[0], similarity=0.9)
    assert "0.90" in suffices([near])
    assert suffices([replace(near, similarity=0.1)]) == ""
    nothing = fetch(talks, "quantum chromodynamics lagrangian", tree=None, cache=None)
    assert not nothing.found


def test_commands(talks: Corpus, memfs: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sizes, build, a cue, a passage, a trace file; what is not there is exit 4 with a hint."""
    monkeypatch.setenv("MEMFS_CORPUS", talks.uri)
    assert memfs("graph").code == 4
    assert "memfs graph build" in memfs("graph").err
    assert "5 files filed" in memfs("graph", "build").out
    assert "nothing to file" in memfs("graph", "build").out
    assert memfs("graph", "--json").json["unfiled"] == 0
    assert "t1" in memfs("graph", "cue", "pottery").out
    assert memfs("graph", "cue", "zeppelin").code == 4
    assert memfs("graph", "cue").code == 3
    path = next(info.path for info in talks.files() if info.path.startswith("sessions/"))
    assert "word" in memfs("graph", "content", f"{path}#t1").out
    assert memfs("graph", "content", "sessions/nowhere.md").code == 4
    ran = memfs("fetch", "pottery", "--active", "always", "--trace", str(tmp_path / "trace.md"), "--json")
    assert ran.code == 0, ran.err
    assert ran.json["trace"]["steps"][0]["action"] == "cue"
    assert "## Round 1: cue" in (tmp_path / "trace.md").read_text()
    assert memfs("fetch", "pottery", "--rounds", "0").code == 3
    for beyond in ("0001-01-01T00:00+05:00", "9999-12-31T23:59-05:00", "soon"):
        assert memfs("fetch", "pottery", "--since", beyond).code == 3
    for no_day in ("2026-05-08T13:00Z", "0001-01-00", "soon"):
        assert memfs("fetch", "pottery", "--today", no_day).code == 3
    assert memfs("fetch", "what did Ana do last month?", "--today", "0001-01-01").code == 0
    ran = memfs("fetch", "pottery", "--tree", str(tmp_path), "--trace", str(tmp_path / "notes.md"))
    assert (ran.code, (tmp_path / "notes.md").exists()) == (3, False)
    ran = memfs("fetch", "pottery", "--trace", str(tmp_path / "none/trace.md"))
    assert (ran.code, "pottery" in ran.out) == (9, True)


@pytest.mark.parametrize("damage", ["short", "garbage", "gone", "manifests"])
def test_damaged(talks: Corpus, memfs: Run, damage: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first search answers and says so; a build says what mends it; `build --again` and the doctor do."""
    monkeypatch.setenv("MEMFS_CORPUS", talks.uri)
    build(talks)
    edges = Path(talks.uri, "edges.lance")

    def hurt() -> None:
        for file in sorted((edges / ("_versions" if damage == "manifests" else "data")).iterdir()):
            if damage == "gone":
                file.unlink()
            else:
                file.write_bytes(b"?" * 5000 if damage == "garbage" else file.read_bytes()[:10])

    hurt()
    question = ("fetch", "Ana began a hobby with ceramics, which?")
    ran = memfs(*question)
    assert (ran.code, "pottery" in ran.out) == (0, True), ran.err
    assert "found by the first search alone, the graph is damaged" in ran.out
    assert "memfs graph build --again" in ran.out
    assert memfs(*question, "--active", "always").code == 8
    ran = memfs("graph")
    assert (ran.code, "memfs graph build --again" in ran.err) == (8, True)
    ran = memfs("graph", "build")
    assert (ran.code, "memfs graph build --again" in ran.err) == (8, True)
    assert memfs("graph", "build", "--again").code == 0
    walked = memfs(*question, "--active", "always")
    assert (walked.code, "walked the graph" in walked.out) == (0, True)
    hurt()
    ran = memfs("doctor")
    assert (ran.code, "the graph is damaged" in ran.out) == (8, True)
    assert "the graph is damaged" in memfs("doctor", "--fix").out
    assert memfs("doctor").code == 0
    assert memfs(*question, "--active", "always").code == 0


def choosing(*choices: dict[str, Any]) -> LanguageModel:
    left = list(choices)
    empty: dict[str, Any] = {
        "enough": False, "action": "topic", "words": [], "tags": [], "citation": "", "person": "", "first": "",
        "last": "", "drop": [], "why": "",
    }  # fmt: skip

    def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        return ModelResponse([TextPart(json.dumps(empty | (left.pop(0) if len(left) > 1 else left[0])))])

    return LanguageModel("scripted", FunctionModel(answer))


def test_a_model_chooses(talks: Corpus) -> None:
    """Its words, its tags, a passage, a person, a day; what it drops stays away; it says when it is enough."""
    build(talks)
    graph = Graph.open(talks)
    assert graph is not None
    question = "What are Ana's hobbies?"
    seeds = rank(talks, question, EVERYTHING)
    path = next(place.path for _, place in graph.contents({"sunris": None}))
    model = choosing(
        {"action": "cue", "words": ["pottery", "swimming"]},
        {"action": "tag", "words": ["painted"], "tags": ["sunrise"]},
        {"action": "content", "citation": f"{path}#t1", "drop": [f"{path}#t2"]},
        {"action": "person", "person": "Ana", "words": ["lake"]},
        {"enough": True, "why": "three hobbies"},
    )
    made = reconstruct(talks, graph, question, EVERYTHING, seeds, policy=ByModel(model), budget=Budget(rounds=9))
    assert [move.action for move in made.steps] == ["cue", "tag", "content", "person"]
    assert all(move.found for move in made.steps)
    assert made.stopped == "the model: it is enough. three hobbies"
    assert f"{path}#t2" not in {f"{r.place.path}#{r.place.anchor}" for r in made.ranked}


def test_a_model_that_talks_nonsense(talks: Corpus) -> None:
    """An action that cannot be walked ends the search, with what was found so far, and says so."""
    build(talks)
    graph = Graph.open(talks)
    assert graph is not None
    seeds = rank(talks, "Ana", EVERYTHING)
    for bad in (
        {"action": "content", "citation": "nowhere#t1"},
        {"action": "time", "first": "soon", "last": "later"},
        {"action": "cue", "words": [" "]},
        {"action": "person"},
    ):
        made = reconstruct(talks, graph, "Ana", EVERYTHING, seeds, policy=ByModel(choosing(bad)))
        assert made.steps == ()
        assert made.stopped.startswith("the model: ")
        assert [r.place for r in made.ranked] == [r.place for r in seeds]
