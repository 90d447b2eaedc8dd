"""memfs eval: data read without its traps, figures that can be checked by hand, and a floor under recall."""

from __future__ import annotations

import dataclasses
import errno
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import Ran
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from memfs.corpus.table import Corpus
from memfs.errors import ConfigError, ConflictError, InputError, NotFoundError
from memfs.evals import run
from memfs.evals.data import Question, load, sampled
from memfs.evals.ledger import Ledger
from memfs.evals.metrics import Found, f1, interval, paired, score
from memfs.evals.peers import Peer
from memfs.evals.personas import Shape, personas
from memfs.evals.report import result_text
from memfs.evals.ways import Context
from memfs.graph import build
from memfs.llm import LanguageModel
from memfs.recall.graph import Graph

Run = Callable[..., Ran]
DATA = Path(os.environ.get("MEMFS_DATA") or Path(__file__).parents[2] / "shared" / "data")
SMALL = Shape(accounts=4, questions=40, sessions=16, turns=8)


def locomo(tmp_path: Path) -> Path:
    """Two conversations of a few turns, with the data's traps."""
    turns = {
        "session_1_date_time": "1:56 pm on 8 May, 2023",
        "session_1": [
            {"speaker": "Ana", "dia_id": "D1:1", "text": "I adopted a greyhound called Miso."},
            {"speaker": "Bo", "dia_id": "D1:2", "text": "Congratulations, where do you walk?"},
            {"speaker": "Ana", "dia_id": "D1:3", "text": "Along the river, every morning."},
        ],
        "session_2_date_time": "1:56 pm on 9 June, 2023",
        "session_2": [
            {"speaker": "Bo", "dia_id": "D2:1", "text": "I fly to Oslo next week."},
            {"speaker": "Ana", "dia_id": "D2:2", "text": "Miso will miss you."},
        ],
        "session_3_date_time": "1:56 pm on 9 July, 2023",
        "speaker_a": "Ana",
        "speaker_b": "Bo",
    }
    asked = [
        {"question": "Which dog did Ana adopt?", "answer": "a greyhound", "category": 4, "evidence": ["D1:1"]},
        {"question": "Where does Ana walk Miso?", "answer": "river", "category": 1, "evidence": ["D1:01; D1:3"]},
        {"question": "When does Bo fly to Oslo?", "answer": 2023, "category": 2, "evidence": ["D:2:1"]},
        {"question": "Would Ana like a park?", "answer": "yes; she walks", "category": 3, "evidence": []},
        {"question": "Which cat did Bo adopt?", "adversarial_answer": "Miso", "category": 5, "evidence": ["D1:1"]},
        {"question": "What is past the end?", "answer": "x", "category": 4, "evidence": ["D9:1 D1:2"]},
    ]
    file = tmp_path / "locomo.json"
    file.write_text(json.dumps([{"sample_id": "conv-1", "conversation": turns, "qa": asked}]))
    return file


def test_locomo(tmp_path: Path) -> None:
    """Malformed evidence is mended or counted, ints are text, category 5 has no answer, empty sessions are none."""
    data = load(str(locomo(tmp_path)))
    assert len(data.documents) == 2
    by_text = {question.text: question for question in data.questions}
    assert Counter(len(q.evidence) for q in data.questions) == {1: 3, 2: 1, 0: 1}
    assert len(by_text["Where does Ana walk Miso?"].evidence) == 2
    assert {c.partition("#")[2] for c in by_text["Where does Ana walk Miso?"].evidence} == {"t1", "t3"}
    assert by_text["When does Bo fly to Oslo?"].answer == "2023"
    adversarial = by_text["Which cat did Bo adopt?"]
    assert (adversarial.answerable, adversarial.answer, adversarial.evidence) == (False, "", frozenset())
    assert data.counts == {
        "questions without usable evidence, left out": 1, "evidence ids that name no turn, dropped": 1,
    }  # fmt: skip


def test_longmemeval(tmp_path: Path) -> None:
    """Ids that give the answer away are not stored; abstention has no evidence; empty turns are passed over."""
    rows = [
        {
            "question_id": name, "question_type": "single-session-user", "question": "Where?", "answer": "Oslo",
            "question_date": "2023/05/30 (Tue) 23:40", "haystack_dates": ["2023/05/20 (Sat) 02:21"] * 2,
            "haystack_session_ids": ["answer_1", "ultrachat_2"], "answer_session_ids": ["answer_1"],
            "haystack_sessions": [
                [{"role": "user", "content": " "}, {"role": "user", "content": "I moved to Oslo.", "has_answer": True}],
                [{"role": "assistant", "content": f"Hello {name}."}],
            ],
        }
        for name in ("q1", "q2_abs")
    ]  # fmt: skip
    (tmp_path / "s.json").write_text(json.dumps(rows))
    data = load(str(tmp_path))
    first, second = data.questions
    assert len(first.evidence) == 1
    assert next(iter(first.evidence)).endswith("#t1")
    assert (second.answerable, second.category) == (False, "abstention")
    stored = (
        b"".join(p.body for d in data.documents for p in d.passages) + "".join(d.path for d in data.documents).encode()
    )
    assert b"answer_" not in stored
    assert b"_abs" not in stored.replace(b"Hello q2_abs.", b"")
    assert first.asked_at is not None


def test_not_a_data_set(tmp_path: Path) -> None:
    """Each kind of wrong file says what it should be."""
    (tmp_path / "x.json").write_text("[1]")
    (tmp_path / "y.json").write_text('[{"a": 1}]')
    (tmp_path / "z.json").write_text("{")
    for name, error in (("x", InputError), ("y", InputError), ("z", InputError), ("none", NotFoundError)):
        with pytest.raises(error):
            load(str(tmp_path / f"{name}.json"))


def test_personas() -> None:
    """44 accounts, 640 questions of six kinds, the same from the same seed; each answer stands in its evidence."""
    data = personas(3)
    assert len({d.path.split("/")[1] for d in data.documents}) == 44
    assert len(data.questions) == 640
    kinds = Counter(q.category for q in data.questions)
    assert set(kinds) == {"preference", "temporal", "detail", "update", "join", "abstention"}
    assert min(kinds.values()) >= 40
    assert data.digest == personas(3).digest != personas(4).digest
    said = {f"{d.path}#{p.anchor}": p.body.decode() for d in data.documents for p in d.passages}
    for question in data.questions:
        assert question.answerable == bool(question.evidence)
        text = " ".join(said[citation] for citation in question.evidence)
        if question.category in ("preference", "detail", "update"):
            assert question.answer in text, question
        if question.category == "join":
            assert all(part in text for part in question.answer.split(" and ")), question
            assert len(question.evidence) == 2
        assert all(citation.startswith(question.under) for citation in question.evidence)


def test_sampled() -> None:
    """As many as were asked for, one of each category at least; the same seed draws the same, another another."""
    questions = personas(0).questions
    drawn = sampled(questions, 60, 1)
    assert [len(sampled(questions, n, 1)) for n in (1, 6, 7, 40, 60, 639)] == [6, 6, 7, 40, 60, 639]
    assert len({q.category for q in drawn}) == 6
    assert drawn == sampled(questions, 60, 1) != sampled(questions, 60, 2)
    assert sampled(questions, None, 0) == list(questions)


def test_scores() -> None:
    """By hand: two gold turns of two sessions, one at place 2, one at place 12; a budget of 25 tokens."""
    gold = frozenset(("sessions/a#t1", "sessions/b#t9"))
    question = Question("q", "?", "multi-hop", "", gold, "x")
    others = [Found((f"sessions/c#t{n}",), 40) for n in range(11)]
    ranked = [others[0], Found(("sessions/a#t1",), 40), *others[1:], Found(("sessions/b#t9",), 40)]
    found = score(question, ranked, 1.0, 25)
    assert (found.turn_r5, found.turn_r10, found.session_r5) == (0.5, 0.5, 1.0)
    assert (found.touched, found.recall_in_budget, found.precision_in_budget, found.tokens) == (1.0, 0.5, 0.5, 20)
    page = score(question, [Found(("knowledge/x.md", "sessions/a#t1", "sessions/b#t9"), 40)], 1.0, 25)
    assert page.turn_r10 == 1.0
    nothing = score(question, [], 1.0, 25)
    assert (nothing.turn_r10, nothing.doubted) == (0.0, 1.0)


def test_statistics() -> None:
    """Intervals hold the mean; a clear difference is told, noise is not; the same seed gives the same."""
    some = [0.0, 1.0] * 50
    found = interval(some)
    assert found.low < found.mean == 0.5 < found.high
    assert interval(some) == found
    assert paired([0.0] * 60, [0.0] * 40 + [1.0] * 20).verdict == "better"
    assert paired([1.0] * 20 + [0.0] * 40, [0.0] * 60).verdict == "worse"
    same = paired(some, some)
    assert (same.verdict, same.p) == ("can't tell", 1.0)
    assert f1("The Greyhounds", "a greyhound") == 1.0
    assert f1("in Oslo", "Oslo") == pytest.approx(2 / 3)
    assert (f1("", ""), f1("x", "")) == (1.0, 0.0)


def test_every_way(tmp_path: Path) -> None:
    """All eight ways and the ablations over one small set; a rival that finds nothing is not made up for."""
    file = locomo(tmp_path)
    result = run.evaluate(str(file), tmp_path / "eval", ablations=True)
    text = result_text(result)
    assert set(result.scores) >= {"grep", "bm25", "similarity", "n-hop", "full", "passive", "active", "always"}
    for name in result.scores:
        assert name in text
        assert result.interval(name, "touched").mean > 0.5, name
    assert result.interval("full", "recall_in_budget").mean == 1.0
    assert set(result.curves) >= {"always"}
    for name, curve in result.curves.items():
        assert curve[-1] == pytest.approx(result.interval(name, "turn_r10").mean), name
    assert "better" in text or "can't tell" in text
    with pytest.raises(ConflictError):
        run.evaluate(str(file), tmp_path / "eval")


def test_ledger(tmp_path: Path, memfs: Run) -> None:
    """A line a run; against itself it can't tell; other data, another ledger, a damaged line are refused."""
    file, ledger = locomo(tmp_path), tmp_path / "evals/ledger.jsonl"
    first = memfs("eval", str(file), "--ways", "bm25,passive", "--ledger", str(ledger))
    assert first.code == 0, first.err
    again = memfs("eval", str(file), "--ways", "passive", "--ledger", str(ledger), "--against", "last")
    assert "passive: turn R@10" in again.out
    assert "can't tell" in again.out
    values = memfs("eval", str(file), "--ways", "passive", "--ledger", str(ledger), "--against", "last", "--json")
    assert [(each["way"], each["before"]) for each in values.json["compared"]] == [
        ("passive", values.json["compared"][0]["now"])
    ]
    assert "set otherwise" not in again.err
    asked = ["--ways", "passive", "--ledger", str(ledger), "--against", "last", "--seed", "3", "--wiki", "on"]
    unlike = memfs("eval", str(file), *asked)
    assert "set otherwise in that entry: seed 0 -> 3" in unlike.err
    assert "set otherwise in that entry: wiki False -> True" in unlike.err
    ledger.write_text("".join(ledger.read_text().splitlines(keepends=True)[:2]))
    assert len(ledger.read_text().splitlines()) == 2
    assert memfs("eval", str(file), "--ways", "nonsense").code == 2
    assert memfs("eval", str(file), "--against", "last").code == 3
    assert memfs("eval", str(file), "--ways", "bm25", "--ledger", str(ledger), "--against", "nothing").code == 4
    assert memfs("eval", str(tmp_path / "none.json")).code == 4
    text = file.read_text().replace("greyhound", "whippet")
    file.write_text(text)
    # There is no last of this data: the first has nothing to be compared with, and is kept.
    alone = memfs("eval", str(file), "--ways", "bm25", "--ledger", str(ledger), "--against", "last", "--json")
    assert (alone.code, alone.json["compared"]) == (0, None)
    assert "nothing to compare with yet" in alone.err
    kept = [json.loads(line) for line in ledger.read_text().splitlines()]
    assert len(kept) == 3
    other = memfs("eval", str(file), "--ways", "bm25", "--ledger", str(ledger), "--against", kept[0]["id"])
    assert other.code == 2
    assert "of other data" in other.err
    ledger.write_text(ledger.read_text() + "{\n")
    assert memfs("eval", str(file), "--ways", "bm25", "--ledger", str(ledger), "--against", "last").code == 3


def test_thirds_in_a_ledger(tmp_path: Path) -> None:
    """A ledger rounds; a result beside itself is still the same to the last digit."""
    result = run.evaluate(str(locomo(tmp_path)), tmp_path / "eval", ways=("bm25",))
    thirds = [dataclasses.replace(each, turn_r10=1 / 3) for each in result.scores["bm25"]]
    result = dataclasses.replace(result, scores={"bm25": thirds})
    ledger = Ledger(tmp_path / "ledger.jsonl")
    ledger.append(result)
    beside = ledger.against(result, "last")
    assert beside is not None
    assert [(each.test.mean, each.test.verdict) for each in beside] == [(0.0, "can't tell")]


def test_ledger_that_cannot_be_kept(tmp_path: Path, memfs: Run) -> None:
    """It is said before anything is asked; what was measured is shown whatever becomes of it; nothing torn stays."""
    file = locomo(tmp_path)
    plain = tmp_path / "ledger.jsonl"
    asked = ["eval", str(file), "--ways", "bm25", "--ledger"]
    assert memfs(*asked, str(plain)).code == 0
    os.mkfifo(tmp_path / "pipe")
    for place, code in {
        tmp_path: 9, plain / "x": 9, Path("/proc/nothing/x"): 9, tmp_path / "pipe": 3, Path("/dev/full"): 3
    }.items():  # fmt: skip
        ran = memfs(*asked, str(place))
        assert (ran.code, ran.out) == (code, ""), place
        assert "questions" not in ran.err
    for empty in ("--ledger", "--against", "--out", "--model"):
        assert memfs("eval", str(file), empty, "").code == 2
    whole = json.loads(plain.read_text())
    for damaged in (
        b"[[[" * 9_000, b"\xff\xfe", b"[]", b'{"id": 1}',
        json.dumps({**whole, "scores": {"bm25": {"turn_r10": [1.0]}}}).encode(),
        json.dumps({**whole, "scores": {"bm25": {"turn_r10": ["x"] * len(whole["questions"])}}}).encode(),
        json.dumps({**whole, "scores": {"bm25": []}}).encode(),
        json.dumps({**whole, "scores": {"bm25": {"turn_r10": [10**400] * len(whole["questions"])}}}).encode(),
    ):  # fmt: skip
        plain.write_bytes(json.dumps(whole).encode() + b"\n" + damaged + b"\n")
        ran = memfs(*asked, str(plain), "--against", "last")
        assert ran.code == 3, damaged
        assert f"{plain}:2 is no entry" in ran.err
    # An older memfs measured less: what it lacks is not compared.
    older = {**whole, "scores": {"bm25": {"touched": whole["scores"]["bm25"]["touched"]}}}
    plain.write_text(json.dumps(older) + "\n" + '{"id": "cut o')
    assert memfs(*asked, str(plain)).code == 0
    lines = plain.read_text().splitlines()
    assert (lines[1], json.loads(lines[2])["scores"]) == ('{"id": "cut o', whole["scores"])
    plain.write_text(json.dumps(older) + "\n\n")
    assert memfs(*asked, str(plain), "--against", "last").code == 0


def test_what_a_ledger_says_steers_no_terminal(tmp_path: Path, memfs: Run) -> None:
    """An entry's words in an error are printed without their control characters."""
    file, ledger = locomo(tmp_path), tmp_path / "ledger.jsonl"
    entry = {"id": "e\x1b[31mx", "digest": "d", "dataset": "\x1b[2J", "questions": [], "scores": {}}
    ledger.write_text(json.dumps(entry) + "\n")
    ran = memfs("eval", str(file), "--ways", "bm25", "--ledger", str(ledger), "--against", "e")
    assert (ran.code, "\x1b" in ran.err) == (2, False)


def test_ledger_on_a_full_disk(tmp_path: Path, memfs: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """The result is shown, the ledger as it was."""
    file, ledger = locomo(tmp_path), tmp_path / "ledger.jsonl"
    asked = ["eval", str(file), "--ways", "bm25", "--ledger", str(ledger)]
    assert memfs(*asked).code == 0
    before, write, wrote = ledger.read_bytes(), os.write, []

    def full(fd: int, data: bytes) -> int:
        wrote.append(fd)
        if len(wrote) > 1:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(fd, data[:40])

    with monkeypatch.context() as patched:
        patched.setattr("memfs.evals.ledger.os.write", full)
        ran = memfs(*asked)
    assert ran.code == 9
    assert "No space left" in ran.err
    assert "| bm25 |" in ran.out
    assert ledger.read_bytes() == before


def test_answers(tmp_path: Path) -> None:
    """With a model: F1, grades, abstention counted as right; nonsense is an answer that is wrong."""

    def say(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        prompt = str(messages[0].parts[0].content)
        if "You grade" in (info.instructions or ""):
            return ModelResponse([TextPart(json.dumps({"correct": "greyhound" in prompt, "why": ""}))])
        if "cat" in prompt.splitlines()[0]:
            return ModelResponse([TextPart(json.dumps({"answerable": False, "answer": ""}))])
        if "Oslo" in prompt.splitlines()[0]:
            return ModelResponse([TextPart("I am a teapot")])
        return ModelResponse([TextPart(json.dumps({"answerable": True, "answer": "a greyhound"}))])

    model = LanguageModel("scripted", FunctionModel(say))
    result = run.evaluate(str(locomo(tmp_path)), tmp_path / "e", ways=["passive"], model=model, judge=model)
    rows: dict[str, Any] = {row["id"]: row for row in result.answers["passive"]}
    assert (rows["conv-1/1"]["f1"], rows["conv-1/1"]["correct"]) == (1.0, True)
    assert "nonsense" in rows["conv-1/3"]
    assert rows["conv-1/5"]["correct"]
    assert "scripted" in result_text(result)
    short = LanguageModel("scripted", FunctionModel(say), max_tokens=400)
    said: list[str] = []
    result = run.evaluate(str(locomo(tmp_path)), tmp_path / "f", ways=["passive", "bm25"], model=short, say=said.append)
    # A budget ends the answers, not the tables.
    answered = sum(map(len, result.answers.values()))
    assert 0 < answered < 2 * len(result.questions)
    assert any("the budget of 400 tokens is used up" in line for line in said)
    assert result.interval("bm25", "touched").mean > 0.5
    assert f"{len(result.answers['passive'])} of {len(result.questions)}" in result_text(result)


FLOORS = {
    "personas": {"passive": 0.37, "active": 0.46},
    "locomo/locomo5.json": {"passive": 0.71, "active": 0.69},
    "longmemeval": {"passive": 0.81, "active": 0.81},
}
"""The lower ends of turn R@10 as measured on these very samples: 46.2, 55.7; 79.3, 77.4; 87.4 and 87.4 %."""


@pytest.mark.parametrize("name", FLOORS)
def test_recall_does_not_fall(name: str, tmp_path: Path) -> None:
    """The regression gate: a seeded sample, without a model."""
    file = name if name == "personas" else str(DATA / name)
    if file != name and not Path(file).exists():
        pytest.skip(f"{name} is not below MEMFS_DATA")
    result = run.evaluate(file, tmp_path / "e", ways=("passive", "active"), limit=120)
    for way, floor in FLOORS[name].items():
        assert result.interval(way, "turn_r10").mean >= floor, way


PEER = """
import json, sys
documents = json.loads(sys.stdin.readline())["documents"]
passages = [(set(p["text"].lower().split()), p["citation"], d["path"]) for d in documents for p in d["passages"]]
print(json.dumps({"ready": "words 1.0"}), flush=True)
for line in sys.stdin:
    asked = json.loads(line)
    words = set(asked["question"].lower().strip("?").split())
    near = sorted((p for p in passages if p[2].startswith(asked["under"])), key=lambda p: -len(words & p[0]))
    print(json.dumps({"found": [p[1] for p in near[:20]]}), flush=True)
"""


def test_peers(tmp_path: Path, memfs: Run) -> None:
    """Another system is a way like the others, with its version; one that breaks the protocol is named, with why."""
    data = locomo(tmp_path)
    good = tmp_path / "good.py"
    good.write_text(PEER)
    ran = memfs("eval", str(data), "--ways", "passive", "--peer", f"words={sys.executable} {good}", "--json")
    assert ran.code == 0, ran.err
    result = json.loads(ran.out)
    assert result["means"]["words"]["turn_r10"] == 1.0
    assert result["versions"]["words"] == "words 1.0"
    ready = (
        "import json,sys; sys.stdin.readline(); print(json.dumps({'ready': 'x'}), flush=True); sys.stdin.readline(); "
    )
    for code, said in {
        "raise SystemExit('no licence')": "it ended; its last words: no licence",
        "print('hello', flush=True)": "no JSON object",
        "print('{}', flush=True)": "did not say that it is ready",
        ready + "print(json.dumps({'found': ['../x#t1']}), flush=True)": "which it was not given",
        ready + "print(json.dumps({'found': 'all'}), flush=True)": "not found: a list of citations",
    }.items():
        bad = tmp_path / "bad.py"
        bad.write_text(code)
        ran = memfs("eval", str(data), "--ways", "passive", "--peer", f"bad={sys.executable} {bad}")
        assert ran.code == 2, code
        assert said in ran.err, ran.err
    for command in ("cat", "yes", "sh -c 'exec sleep 60 >&-'"):
        ran = memfs("eval", str(data), "--ways", "passive", "--peer", f"bad={command}")
        assert ran.code == 2, command
        assert "passive:" not in ran.err
    assert memfs("eval", str(data), "--peer", "nameless").code == 3
    assert memfs("eval", str(data), "--peer", "\x1b[31mred=cat").code == 3
    ran = memfs("eval", str(data), "--peer", "x=/no/such/command")
    assert (ran.code, "questions" in ran.err) == (2, False)
    assert memfs("eval", str(data), "--ways", "passive", "--peer", f"passive={sys.executable} {good}").code == 2


def test_ended_by_sigterm(tmp_path: Path) -> None:
    """`timeout` leaves nothing behind: no folder, and no peer."""
    left, pid = tmp_path / "tmp", tmp_path / "pid"
    left.mkdir()
    peer = f"sh -c 'echo $$ > {pid}; sleep 61.25'"
    command = [sys.executable, "-m", "memfs.client", "eval", str(locomo(tmp_path)), "--peer", f"slow={peer}"]
    child = subprocess.Popen(command, env=os.environ | {"TMPDIR": str(left)}, stderr=subprocess.DEVNULL)
    end = time.monotonic() + 60
    while not (pid.exists() and pid.read_text()):
        assert child.poll() is None
        assert time.monotonic() < end
        time.sleep(0.05)
    child.send_signal(signal.SIGTERM)
    time.sleep(0.01)
    child.send_signal(signal.SIGTERM)
    assert child.wait(timeout=30) == 128 + signal.SIGTERM
    assert list(left.iterdir()) == []
    _gone(int(pid.read_text()))


def test_a_peer_that_hangs(tmp_path: Path) -> None:
    """It is ended when its time is over, and so it is when it has more to read and to say than a pipe holds."""
    data = load(str(locomo(tmp_path)))
    corpus = Corpus.create(str(tmp_path / "corpus"))
    corpus.commit(data.documents)
    build(corpus)
    graph = Graph.open(corpus)
    assert graph is not None
    context = Context(corpus, graph, tmp_path)
    before = time.monotonic()
    with pytest.raises(ConfigError, match="said nothing for"), Peer("slow", "sleep 60", ready_s=0.2) as peer:
        peer.start(context)
    loud = f"{sys.executable} -c \"import sys; print(repr('x' * 900000), flush=True); print(len(sys.stdin.read()))\""
    context.bodies.update({at: text * 20_000 for at, text in context.bodies.items()})
    with pytest.raises(ConfigError, match="no JSON object"), Peer("loud", loud, ready_s=20) as peer:
        peer.start(context)
    # One that reads nothing, with more to read than a pipe holds, and a process of its own that outlives it.
    deaf = f"sh -c 'echo hello; sleep 61.5 & echo $! > {tmp_path}/pid; wait'"
    with pytest.raises(ConfigError, match="no JSON object"), Peer("deaf", deaf) as peer:
        peer.start(context)
    assert time.monotonic() - before < 40
    _gone(int((tmp_path / "pid").read_text()))


def _gone(pid: int) -> None:
    left = Path("/proc", str(pid), "cmdline")
    end = time.monotonic() + 10
    while left.exists() and left.read_bytes():
        assert time.monotonic() < end, "it outlived the peer"
        time.sleep(0.1)


def test_first_message(tmp_path: Path) -> None:
    """With the index, what the model reads begins with it; without, it doesn't."""
    seen: list[str] = []

    def say(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        seen.append(str(messages[0].parts[0].content))
        return ModelResponse([TextPart(json.dumps({"answerable": True, "answer": "a greyhound"}))])

    for index in (False, True):
        model = LanguageModel("scripted", FunctionModel(say))
        folder = tmp_path / str(index)
        run.evaluate(str(locomo(tmp_path)), folder, ways=["passive"], limit=1, wiki=True, index=index, model=model)
    half = len(seen) // 2
    assert half
    assert ["What the memory knows of:" in prompt for prompt in seen] == [False] * half + [True] * half
