"""The Memory Agent without a model: names, fusion, relevance and the printed synthesis."""

from __future__ import annotations

from dataclasses import replace
from datetime import date, datetime, timedelta, timezone
from pathlib import Path

import pytest

from memfs.corpus import split
from memfs.corpus.records import Document
from memfs.corpus.sources.transcript import Session, Turn, render
from memfs.corpus.table import EVERYTHING, Corpus, Scope
from memfs.fetch import recall
from memfs.recall.evidence import Evidence
from memfs.recall.rank import fuse
from memfs.recall.speakers import named, without_names
from memfs.recall.synthesis import extract

NOW = datetime(2026, 5, 17, 8, 0, tzinfo=timezone.utc)


def note(path: str, text: str, when: datetime | None = None) -> Document:
    made = split.passages(text.encode(), markdown=True, event_time=when)
    return Document(path, made, "note", path, "test", NOW)


def talk(session: str, *turns: tuple[str, str], uuid: str = "") -> Document:
    made = tuple(Turn(who, said, NOW, f"{uuid}{n}" if uuid else f"D1:{n}") for n, (who, said) in enumerate(turns, 1))
    return render(Session(session, session, f"test:{session}", made, NOW), "sessions/")


@pytest.fixture
def corpus(tmp_path: Path) -> Corpus:
    return Corpus.create(str(tmp_path / "corpus"))


def test_named_speakers_are_found_by_a_part_of_their_name() -> None:
    """A first name or a possessive is enough; a role such as `user` is no name."""
    known = ["Ann Lee", "Bob", "user", "assistant"]
    assert named("When did Ann's sister visit?", known) == {"Ann Lee"}
    assert named("what did the user and the assistant say to bob", known) == {"Bob"}


def test_names_are_cut_out_of_the_question() -> None:
    """The vector leg asks without names, unless nothing else is left."""
    assert without_names("When did Ann's sister visit Bob?", ["Ann", "Bob"]) == "When did sister visit ?"
    assert without_names("Ann?", ["Ann"]) == "Ann?"


def test_fusion_weighs_words_above_meaning() -> None:
    """The best word hit scores 1, the best vector hit 0.3, a passage that both found their sum."""
    fused = fuse({1: 10.0, 2: 5.0}, {2: 0.9, 3: 0.5}, 0.3)
    assert fused == {1: 1.0, 2: pytest.approx(0.8), 3: 0.0}


def test_fusion_of_nothing_is_nothing() -> None:
    """Two empty legs give no candidates, one vector hit counts fully."""
    assert fuse({}, {}, 0.3) == {}
    assert fuse({}, {7: 0.2}, 0.3) == {7: pytest.approx(0.3)}


def test_a_turn_is_found_by_its_neighbours_words(corpus: Corpus) -> None:
    """The answer's words are in one turn, the question's in the turn before it: both come."""
    filler = [talk(f"other-{n}", ("Ann", f"talk of trains {n}"), ("Bob", "and boats")) for n in range(20)]
    asked = talk("asked", ("Ann", "Which accordion did you buy?"), ("Bob", "The red Weltmeister."))
    corpus.commit([*filler, asked])
    found = recall(corpus, "accordion bought", k=2)
    assert {item.anchor for item in found} == {"t1", "t2"}
    assert all(item.path == asked.path for item in found)


def test_the_named_speaker_comes_first(corpus: Corpus) -> None:
    """Two say the same; asked of one by name, that one's turn is first."""
    corpus.commit([talk("s", ("Ann", "I like green tea most."), ("Bob", "I like green tea most."))])
    assert recall(corpus, "which tea does Bob like?", k=1)[0].speaker == "Bob"
    assert recall(corpus, "which tea does Ann like?", k=1)[0].speaker == "Ann"


def test_the_user_comes_before_the_assistant(corpus: Corpus) -> None:
    """An assistant repeats what it was told: what the one who asks said is the better evidence."""
    corpus.commit([talk("s", ("assistant", "The oven is a Smeg, I see."), ("user", "The oven is a Smeg."))])
    assert recall(corpus, "which oven is it?", k=1)[0].speaker == "user"


def test_a_header_comes_last(corpus: Corpus) -> None:
    """A title holds the name that all questions hold; it comes after what was said, and is found where nothing was."""
    said = ("Ann", "We fixed the pump."), ("Bob", "Which pump?")
    corpus.commit([replace(talk("pump-2000", *said), title="pump 2000"), note("notes/x.md", "# x\n\nboats\n")])
    found = recall(corpus, "pump 2000")
    assert [item.speaker for item in found][:2] != [None, None]
    assert found[0].speaker is not None


def test_a_time_in_the_question(corpus: Corpus) -> None:
    """What was said in the time that is asked about comes first, counted from the day of asking; without it, not."""
    days = [date(2026, 3, day) for day in range(1, 29)]
    said = [
        render(
            Session(str(day), "chat", "test", (Turn("user", "I went running.", when),), when), "sessions/"
        )
        for day in days
        for when in [datetime(day.year, day.month, day.day, 9, tzinfo=timezone.utc)]
    ]  # fmt: skip
    corpus.commit(said)

    def first(question: str, today: date | None = None) -> str:
        (item,) = recall(corpus, question, k=1, today=today)
        assert item.event_time is not None
        return item.event_time.date().isoformat()

    assert first("did I go running on 17 March 2026?") in ("2026-03-17", "2026-03-18", "2026-03-19", "2026-03-20")
    assert "2026-03-06" <= first("did I go running two weeks ago?", date(2026, 3, 23)) <= "2026-03-15"
    assert first("did I go running yesterday?", date(2026, 3, 27)) >= "2026-03-26"
    assert first("did I go running on 0000-99-99 or 9999-12-31?")


def test_a_time_is_evidence(corpus: Corpus) -> None:
    """What was said in the time asked about is found by that alone, where others share all of the question's words."""

    def on(day: date, text: str) -> Document:
        when = datetime(day.year, day.month, day.day, 9, tzinfo=timezone.utc)
        return render(Session(str(day), "chat", "test", (Turn("user", text, when),), when), "sessions/")

    talked = [date(2025, 6, 1) + timedelta(days=n) for n in range(250)]
    corpus.commit([on(day, "A gardening activity that I like: gardening activities with friends.") for day in talked])
    corpus.commit([on(date(2026, 3, 9), "Twelve saplings are in the ground.")])
    today = date(2026, 3, 23)
    found = recall(corpus, "What gardening activity did I do two weeks ago?", k=3, today=today)
    assert "Twelve saplings" in found[0].text
    assert len(found) == 3
    assert "Twelve saplings" not in recall(corpus, "What gardening activity did I do?", k=3, today=today)[0].text


def test_evidence_says_where_when_who_and_what(corpus: Corpus) -> None:
    """Path, anchor, origin id, event time, speaker and the passage as it stands in the file."""
    corpus.commit([talk("s", ("Ann", "The kiln fires at 1,280 degrees."))])
    (item,) = recall(corpus, "kiln degrees", k=1)
    assert (item.anchor, item.origin, item.event_time, item.speaker) == ("t1", "D1:1", NOW, "Ann")
    assert "The kiln fires at 1,280 degrees." in item.text
    assert item.citation == f"{item.path}#t1"


def test_nothing_relevant_is_nothing(corpus: Corpus) -> None:
    """A question about nothing in the corpus gives no evidence, not the least bad passage."""
    corpus.commit([note(f"notes/{n}.md", f"# {n}\n\nThe harbour crane number {n} was painted.\n") for n in range(300)])
    assert recall(corpus, "zorblax frobnication") == []
    assert not any(item.weak for item in recall(corpus, "harbour crane"))


def test_what_may_be_about_something_else_is_marked(corpus: Corpus) -> None:
    """One common word of many: the nearest passages are given, each marked weak."""
    corpus.commit([note(f"notes/{n}.md", f"# {n}\n\nThe harbour crane number {n} was painted.\n") for n in range(300)])
    found = recall(corpus, "which number of moons does the planet zorblax have in frobnication?")
    assert found
    assert all(item.weak for item in found)


def test_an_empty_corpus_answers_nothing(corpus: Corpus) -> None:
    """Before anything is added, a question is answered by nothing, without an error."""
    assert recall(corpus, "anything?") == []


def test_scope_by_folder_and_date(corpus: Corpus) -> None:
    """`under` and the dates keep everything else out; `since` is inclusive, `until` exclusive."""
    march, may = (datetime(2026, month, 1, tzinfo=timezone.utc) for month in (3, 5))
    corpus.commit(
        [
            note("notes/a/x.md", "the oven broke", march),
            note("notes/b/x.md", "the oven broke", may),
            note("notes/c.md", "the oven broke"),
        ]
    )

    def paths(scope: Scope) -> set[str]:
        return {item.path for item in recall(corpus, "oven", scope=scope)}

    assert paths(EVERYTHING) == {"notes/a/x.md", "notes/b/x.md", "notes/c.md"}
    assert paths(Scope(under="notes/a/")) == {"notes/a/x.md"}
    assert paths(Scope(since=may)) == {"notes/b/x.md"}
    assert paths(Scope(until=may)) == {"notes/a/x.md"}


def test_a_forked_session_is_not_shown_twice(corpus: Corpus) -> None:
    """A fork carries its parent's turns under the same message ids: one of them is evidence enough."""
    said = ("user", "the invoice template lives in the blue folder")
    corpus.commit([talk("one", said, uuid="0a3f3a2e-7816-4b71-"), talk("two", said, uuid="0a3f3a2e-7816-4b71-")])
    assert len(recall(corpus, "invoice template")) == 1


def test_short_ids_repeat_in_every_session(corpus: Corpus) -> None:
    """`D1:1` is in every conversation: equal ids there are different turns."""
    corpus.commit([talk("one", ("Ann", "my invoice template")), talk("two", ("Bob", "his invoice template"))])
    assert {item.speaker for item in recall(corpus, "invoice template")} == {"Ann", "Bob"}


def evidence(text: str, **changes: object) -> Evidence:
    values: dict[str, object] = {
        "path": "sessions/x/transcript.md", "anchor": "t3", "origin": None, "score": 1.0, "event_time": NOW,
        "speaker": "Ann", "title": "A talk", "text": text,
    }  # fmt: skip
    return Evidence(**{**values, **changes})  # type: ignore[arg-type]


def test_synthesis_cites_dates_and_names() -> None:
    """A block says when, who and where before what is said; the turn's own heading is not repeated."""
    text, shown = extract([evidence("## t3 · Ann · 2026-05-17 08:00\n\nIt moved.\n\n")], 500)
    assert shown == 1
    assert text.splitlines() == ["[1] 2026-05-17 · Ann · A talk", "    sessions/x/transcript.md#t3", "    It moved."]


def test_synthesis_keeps_its_budget_and_says_what_it_cut() -> None:
    """The budget holds at 4 characters a token; what is cut is counted, never silent."""
    text, shown = extract([evidence("word " * 1_000), evidence("more " * 10)], 100)
    assert shown == 1
    assert len(text) <= 100 * 4
    assert "more characters]" in text
