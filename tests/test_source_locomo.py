"""LoCoMo: each session a transcript, the answers never read, no input a crash."""

from __future__ import annotations

import io
import json
import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from memfs.corpus.records import Document, Skipped
from memfs.corpus.sources import locomo

DATA = Path(os.environ.get("MEMFS_DATA") or Path(__file__).parents[2] / "shared" / "data")

SAMPLE = {
    "qa": [{"question": "Where did Ana go?", "answer": "SECRET-ANSWER", "category": 4, "evidence": ["D1:1"]}],
    "conversation": {
        "speaker_a": "Ana",
        "speaker_b": "Bo",
        "session_10_date_time": "12:05 am on 1 January, 2024",
        "session_10": [{"speaker": "Bo", "dia_id": "D10:1", "text": "Happy new year!"}],
        "session_2_date_time": "1:56 pm on 8 May, 2023",
        "session_2": [
            {"speaker": "Ana", "dia_id": "D2:1", "text": "I went to the sea yesterday."},
            {"speaker": "Bo", "dia_id": "D2:2", "text": "Show me!", "img_url": ["u"], "blip_caption": "grey\nsea"},
            {"speaker": "Ana", "dia_id": "D2:3", "text": "", "img_url": ["u"]},
        ],
        "session_3_date_time": "2:00 pm on 9 May, 2023",
        "session_3": [],
        "session_4_date_time": "no session for this date",
    },
    "event_summary": {"events_session_2": {"Ana": ["SECRET-EVENT"]}},
    "observation": {"session_2_observation": {"Ana": [["SECRET-OBSERVATION", "D2:1"]]}},
    "session_summary": {"session_2_summary": "SECRET-SUMMARY"},
    "sample_id": "conv-1",
}


def read(value: object) -> tuple[list[Document], list[str]]:
    data = value if isinstance(value, bytes) else json.dumps(value).encode()
    found = list(locomo.read(io.BytesIO(data), name="l.json", under="sessions/"))
    return [x for x in found if isinstance(x, Document)], [x.reason for x in found if isinstance(x, Skipped)]


def body(document: Document) -> str:
    return b"".join(passage.body for passage in document.passages).decode()


def test_sessions_come_in_numeric_order_below_their_conversation() -> None:
    """Session 2 before session 10, one folder per conversation, empty sessions counted, lone dates ignored."""
    documents, reasons = read([SAMPLE])
    assert [document.source for document in documents] == ["locomo:conv-1/session_2", "locomo:conv-1/session_10"]
    assert documents[0].path.startswith("sessions/conv-1/2023/05/2023-05-08-session-2-")
    assert documents[1].path.startswith("sessions/conv-1/2024/01/2024-01-01-session-10-")
    assert reasons == ["1 sessions without turns"]


def test_turns_carry_speaker_dia_id_date_and_caption() -> None:
    """The session's time stands on each turn, the caption is part of the text, the missing zone is said."""
    text = body(read([SAMPLE])[0][0])
    assert "## t1 · Ana · 2023-05-08 13:56 · D2:1\n\nI went to the sea yesterday.\n" in text
    assert "Show me!\n[image: grey sea]\n" in text
    assert "## t3 · Ana · 2023-05-08 13:56 · D2:3\n\n[image]\n" in text
    assert "not given in the source (1:56 pm on 8 May, 2023), taken as UTC" in text
    passage = read([SAMPLE])[0][0].passages[2]
    assert (passage.origin, passage.speaker) == ("D2:2", "Bo")


def test_nothing_that_holds_an_answer_is_read() -> None:
    """Questions, events, observations and summaries leave no trace in any file."""
    assert all("SECRET" not in body(document) for document in read([SAMPLE])[0])


def test_one_sample_is_read_like_an_array_of_one() -> None:
    """A bare sample object gives the same documents."""
    assert read(SAMPLE)[0] == read([SAMPLE])[0]


@pytest.mark.parametrize(
    ("stated", "expected"),
    [
        ("1:56 pm on 8 May, 2023", "2023-05-08 13:56"),
        ("12:00 pm on 1 June, 2023", "2023-06-01 12:00"),
        ("12:09 am on 13 September, 2023", "2023-09-13 00:09"),
    ],
)
def test_times_are_read_in_any_locale(stated: str, expected: str) -> None:
    """12-hour times, noon and midnight included, without asking the locale for month names."""
    talk = {"session_1": [{"speaker": "A", "text": "x"}], "session_1_date_time": stated}
    assert f"- date: {expected} UTC" in body(read({"conversation": talk})[0][0])


@pytest.mark.parametrize("stated", ["31:00 pm on 8 May, 2023", "1:00 pm on 31 February, 2023", "soon", 5, None])
def test_an_unreadable_time_leaves_the_session_undated(stated: object) -> None:
    """The session is kept, under `undated/`, with what was written in its header."""
    talk = {"session_1": [{"speaker": "A", "text": "x"}], "session_1_date_time": stated}
    (document,) = read({"conversation": talk, "sample_id": "conv-9"})[0]
    assert document.path.startswith("sessions/conv-9/undated/session-1-")


def test_wrong_types_are_counted() -> None:
    """Each wrong thing is skipped with a reason, the rest is read."""
    talk = {"session_1": [7, {"speaker": 3, "text": "kept"}, {"text": 4}], "session_2": "no", "speaker_a": []}
    documents, reasons = read([1, {"sample_id": "x"}, {"conversation": talk, "sample_id": "CON"}])
    assert len(documents) == 1
    assert "## t1 · unknown\n\nkept\n" in body(documents[0])
    assert documents[0].path.startswith("sessions/sample-con/")
    assert sorted(reasons) == [
        "1 samples of a wrong type",
        "1 samples without a conversation",
        "1 sessions of a wrong type",
        "1 turns of a wrong type",
        "1 turns without text",
    ]


def test_a_session_that_comes_twice_is_taken_once() -> None:
    """Two samples under one id cannot write one path twice."""
    documents, reasons = read([SAMPLE, SAMPLE])
    assert len(documents) == 2
    assert "2 sessions that came twice" in reasons


def test_sniff_knows_its_own() -> None:
    """LoCoMo is known by its head, also when that holds only questions; other JSON is not taken."""
    head = json.dumps([SAMPLE]).encode()
    assert locomo.sniff(head)
    assert locomo.sniff(head[:110])
    assert locomo.sniff(b"\xef\xbb\xbf" + head)
    assert not locomo.sniff(b'[{"mapping": {}, "title": "x"}]')
    assert not locomo.sniff(b'{"type":"user","sessionId":"x"}\n')
    assert not locomo.sniff(b"")


RELAXED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["conversation", "session_1", "session_2", "session_1_date_time", "speaker", "text", "dia_id"]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=20,
)


@given(JSON | st.binary())
@RELAXED
def test_no_input_raises(value: object) -> None:
    """Any JSON and any bytes give documents of valid UTF-8 and reasons, never an exception."""
    documents, reasons = read(value)
    assert documents or reasons
    for document in documents:
        body(document)


def test_deep_nesting_is_refused_softly() -> None:
    """JSON nested beyond the parser's depth is a reason, not a crash."""
    assert read(b"[" * 200_000)[1] == ["no session in it", "1 files that are not JSON"]


def test_the_recorded_conversations() -> None:
    """128 sessions, 2,760 turns, 602 captions, every dia_id an origin: as counted apart from the reader."""
    path = DATA / "locomo" / "locomo5.json"
    if not path.exists():
        pytest.skip(f"LoCoMo is not at {path}; set MEMFS_DATA to the folder that holds locomo/")
    with path.open("rb") as stream:
        found = list(locomo.read(stream, name=path.name, under="sessions/"))
    documents = [x for x in found if isinstance(x, Document)]
    assert len(documents) == len(found) == 128
    expected = [
        turn
        for sample in json.loads(path.read_bytes())
        for key, turns in sample["conversation"].items()
        if key.startswith("session_") and not key.endswith("_date_time")
        for turn in turns
    ]
    passages = [passage for document in documents for passage in document.passages if passage.anchor]
    assert len(passages) == len(expected) == 2760
    assert sorted(p.origin or "" for p in passages) == sorted(turn["dia_id"] for turn in expected)
    assert sum("[image" in (p.text or "") for p in passages) == sum("blip_caption" in turn for turn in expected) == 602
    assert all(p.event_time for p in passages)
    assert len({document.path for document in documents}) == 128
