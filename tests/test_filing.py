"""The graph filled by a model: what it files is found, facts are consolidated, budgets and nonsense cost nothing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import date, datetime, timezone
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from conftest import Ran
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, UserPromptPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.usage import RequestUsage

from memfs.corpus.records import Document
from memfs.corpus.sources.transcript import Session, Turn, render
from memfs.corpus.table import Corpus
from memfs.fetch import fetch, recall
from memfs.graph import build, facts, sizes
from memfs.llm import BudgetError, LanguageModel, NonsenseError
from memfs.recall.graph import Graph

Run = Callable[..., Ran]


def told(day: date, *said: str) -> Document:
    when = datetime(day.year, day.month, day.day, 9, tzinfo=timezone.utc)
    turns = tuple(Turn(("user", "assistant")[n % 2], text, when) for n, text in enumerate(said))
    return render(Session(id=str(day), title=f"Chat of {day}", source="test", turns=turns, started=when), "sessions/")


LIFE = [
    told(date(2026, 1, 5), "The flat in Graz has no lift.", "Good exercise!"),
    told(date(2026, 2, 9), "The boxes are unpacked: Porto is home from this week on.", "Welcome!"),
    told(date(2026, 3, 2), "Rain again, typical of Porto.", "Take an umbrella."),
    told(date(2026, 3, 9), "Jasmine tea is all I need before noon.", "Noted."),
]
FILED: dict[str, dict[str, list[tuple[Any, ...]]]] = {
    "Graz": {"facts": [(1, "user", "home", "Graz", True)], "cues": [(1, "word", "residence", "lives")]},
    "unpacked": {"facts": [(1, "user", "home", "Porto", True)], "cues": [(1, "date", "2026-02-09", "moved")]},
    "Rain": {"facts": [(1, "user", "home", "porto", True)]},
    "Jasmine": {"facts": [(1, "user", "likes", "jasmine tea", False)], "cues": [(1, "word", "beverage", "likes")]},
}
"""By a word of the piece: what a good model would say."""


def answer(prompt: str) -> dict[str, Any]:
    filed = next((each for word, each in FILED.items() if word in prompt), {})
    return {
        "episodes": [{"first": 1, "last": 2, "topic": "daily life"}],
        "cues": [dict(zip(("passage", "kind", "cue", "tag"), each, strict=True)) for each in filed.get("cues", [])],
        "facts": [
            dict(zip(("passage", "subject", "aspect", "value", "single"), each, strict=True))
            for each in filed.get("facts", [])
        ],
    }


class Scripted:
    """A model that answers by `say`, and counts what it was asked."""

    def __init__(self, say: Callable[[str], Any] = answer, tokens: int = 10) -> None:
        self.asked, self.say, self.tokens = 0, say, tokens

    def model(self, **budget: Any) -> LanguageModel:
        return LanguageModel("scripted", FunctionModel(self._reply), **budget)

    def _reply(self, messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        self.asked += 1
        (prompt,) = [part.content for part in messages[0].parts if isinstance(part, UserPromptPart)]
        said = self.say(str(prompt))
        text = said if isinstance(said, str) else json.dumps(said)
        return ModelResponse([TextPart(text)], usage=RequestUsage(input_tokens=self.tokens, output_tokens=1))


@pytest.fixture
def life(corpus: Corpus) -> Corpus:
    corpus.commit(LIFE)
    return corpus


def test_facts(life: Corpus, tmp_path: Path) -> None:
    """Equal values are one fact with all its places; a home replaces the one before, and says until when it held."""
    built = build(life, model=Scripted().model(), state_dir=str(tmp_path))
    assert (built.files, built.by_model, built.refused) == (4, 4, 0)
    by_value = {fact.value: fact for fact in facts(life, "user")}
    graz, porto, tea = by_value["Graz"], by_value["Porto"], by_value["jasmine tea"]
    assert (graz.value, graz.since, graz.until) == ("Graz", date(2026, 1, 5), date(2026, 2, 9))
    assert (porto.value, porto.since, porto.until, len(porto.places)) == ("Porto", date(2026, 2, 9), None, 2)
    assert (tea.aspect, tea.until) == ("like", None)
    assert str(graz) == "user: home Graz, until 2026-02-09"
    # A source that goes takes its facts along: Graz holds again.
    life.commit(delete=[LIFE[1].path, LIFE[2].path])
    build(life)
    assert [fact.until for fact in facts(life, "user") if fact.value == "Graz"] == [None]


def test_found_by_other_words(life: Corpus, tmp_path: Path) -> None:
    """A cue that the passage itself doesn't hold leads to it; what holds no longer comes later, and says so."""
    build(life, model=Scripted().model(), state_dir=str(tmp_path))
    graph = Graph.open(life)
    assert graph is not None
    assert [place.path for _, place in graph.contents({"beverag": None})] == [LIFE[3].path]
    tags = graph.tags(["resid"])
    assert tags == {"resid": {"live": 1}}
    now = recall(life, "which town is home now?", active="always")
    where = [item.path for item in now]
    assert where.index(LIFE[1].path) < where.index(LIFE[0].path)
    (old,) = [item for item in now if item.replaced]
    assert old.replaced == ("user: home Graz, until 2026-02-09",)
    shown = fetch(life, "which town is home now?", tree=None, cache=None, active="always").synthesis
    assert "(no longer: user: home Graz, until 2026-02-09)" in shown


def test_once(life: Corpus, tmp_path: Path) -> None:
    """What a model filed is not asked again, not after a new session, nor for `again`; another model is asked."""
    first = Scripted()
    build(life, model=first.model(), state_dir=str(tmp_path))
    assert first.asked == 4
    assert build(life, model=first.model(), state_dir=str(tmp_path)).by_model == 0
    life.commit([told(date(2026, 4, 1), "The kayak arrived.", "Enjoy!")])
    assert build(life, model=first.model(), state_dir=str(tmp_path)).by_model == 1
    assert first.asked == 5
    assert build(life, again=True, model=first.model(), state_dir=str(tmp_path)).by_model == 5
    assert first.asked == 5
    # What lies in the folder is checked like an answer.
    for file in (tmp_path / "filings").iterdir():
        file.write_text(file.read_text().replace('"first": 1', '"first": "one"'))
    assert build(life, again=True, model=first.model(), state_dir=str(tmp_path)).by_model == 5
    assert first.asked == 10
    # Without a model the next build leaves what it filed.
    build(life)
    assert len(facts(life, "user")) == 3


def test_budget(life: Corpus, tmp_path: Path) -> None:
    """A budget ends the build with what is filed kept; the same call goes on from there, and asks for nothing twice."""
    script = Scripted(tokens=1_000)
    with pytest.raises(BudgetError):
        build(life, model=script.model(max_tokens=2_500), state_dir=str(tmp_path))
    asked = script.asked
    assert 1 <= asked < 4
    assert sizes(life)["unfiled"] == 0
    known = len(facts(life, ""))
    assert known >= 1
    built = build(life, model=script.model(), state_dir=str(tmp_path))
    assert script.asked <= asked + 4
    assert built.by_model == 4 - known
    assert len(facts(life, "user")) == 3


@pytest.mark.parametrize(
    "lie",
    [
        "I would rather write a poem.",
        {
            "episodes": [],
            "cues": [],
            "facts": [{"passage": 99, "subject": "a", "aspect": "b", "value": "c", "single": True}],
        },
        {"episodes": [{"first": 2, "last": 1, "topic": "x"}], "cues": [], "facts": []},
        {"episodes": [], "cues": [{"passage": 1, "kind": "date", "cue": "soon", "tag": ""}], "facts": []},
        {"episodes": [], "cues": [{"passage": 1, "kind": "word", "cue": "x" * 500, "tag": ""}], "facts": []},
        {"episodes": [], "cues": [{"passage": 1, "kind": "path", "cue": "../x", "tag": ""}], "facts": []},
        {"episodes": [{"first": 1, "last": 1, "topic": "x " * 1000}], "cues": [], "facts": []},
        {"episodes": [{"first": 1, "last": 1, "topic": "x"}] * 101, "cues": [], "facts": []},
    ],
)
def test_nonsense(life: Corpus, tmp_path: Path, lie: Any) -> None:
    """What can't be used is told to the model, then given up, counted, and asked anew only `again`; words file it."""
    script = Scripted(lambda prompt: answer(prompt) if "Graz" in prompt else lie)
    built = build(life, model=script.model(), state_dir=str(tmp_path))
    assert (built.by_model, built.refused) == (4, 3)
    assert len(facts(life, "")) == 1
    assert Graph.open(life).contents({"lift": None})  # type: ignore[union-attr]
    asked = script.asked
    build(life, model=script.model(), state_dir=str(tmp_path))
    assert script.asked == asked
    good = Scripted()
    assert build(life, again=True, model=good.model(), state_dir=str(tmp_path)).refused == 0
    assert good.asked == 3


def test_nothing_but_nonsense(life: Corpus, tmp_path: Path) -> None:
    """A model that can't do it is asked no further, is an error, and has filed nothing; the words file everything."""
    script = Scripted(lambda prompt: "I would rather write a poem.")
    asked = 0
    for _ in range(2):
        with pytest.raises(NonsenseError):
            build(life, model=script.model(), state_dir=str(tmp_path))
        assert sizes(life)["unfiled"] == 0
        assert 0 < script.asked - asked <= 9
        asked = script.asked
    built = build(life, model=Scripted().model(), state_dir=str(tmp_path))
    assert (built.by_model, built.refused) == (4, 0)
    # What was filed before, and one more that it can't file.
    life.commit([told(date(2026, 4, 1), "The kayak arrived.", "Enjoy!")])
    with pytest.raises(NonsenseError):
        build(life, model=script.model(), state_dir=str(tmp_path))
    assert build(life, model=Scripted().model(), state_dir=str(tmp_path)).by_model == 1


NO_CHOICE = json.dumps({"id": "1", "object": "chat.completion", "created": 1, "model": "x", "choices": []})


@pytest.mark.parametrize("said", ["{}", NO_CHOICE, "<html>Welcome</html>", '{"id": "1", "choices": []}', "", "[]"])
def test_no_language_model(life: Corpus, memfs: Run, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Something that answers 200, but with no completion, is no endpoint: said so, and nothing counts as filed."""

    class Other(Endpoint):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(said)))
            self.end_headers()
            self.wfile.write(said.encode())

    monkeypatch.setenv("MEMFS_CORPUS", life.uri)
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    with ThreadingHTTPServer(("127.0.0.1", 0), Other) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        monkeypatch.setenv("OPENAI_BASE_URL", f"http://127.0.0.1:{server.server_port}/v1")
        ran = memfs("graph", "build", "--model", "openai-chat:x")
        server.shutdown()
    assert ran.code == 6, ran.err
    assert "no language model" in ran.err or "Failed to decode response as JSON" in ran.err
    assert build(life, model=Scripted().model(), state_dir=os.environ["MEMFS_STATE_DIR"]).by_model == 4


def test_commands(life: Corpus, memfs: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """`facts` without any says how to get them; options without their model are refused."""
    monkeypatch.setenv("MEMFS_CORPUS", life.uri)
    assert memfs("graph", "build").code == 0
    assert "memfs graph build --model" in memfs("graph", "facts").out
    assert memfs("graph", "facts", "user").code == 0
    for wrong in (("--max-tokens", "5"), ("--again", "sizes"), ("facts", "--model", "openai-chat:x")):
        assert memfs("graph", *wrong).code == 3
    assert memfs("graph", "build", "--model", "nonsense").code == 2


def test_others_write_meanwhile(life: Corpus, tmp_path: Path) -> None:
    """While the model thinks others write: nobody waits, and what changed since is not filed by what it was."""
    other = Corpus.open(life.uri)
    changed = told(date(2026, 1, 5), "The flat in Graz has a lift now.", "At last!")

    def meanwhile(prompt: str) -> dict[str, Any]:
        if "no lift" in prompt:
            other.commit([changed])
        return answer(prompt)

    built = build(life, model=Scripted(meanwhile).model(), state_dir=str(tmp_path))
    assert built.by_model == 3
    assert [fact.value for fact in facts(life, "user") if fact.value == "Graz"] == []
    assert build(life, model=Scripted().model(), state_dir=str(tmp_path)).by_model == 1
    assert [fact.value for fact in facts(life, "user") if fact.value == "Graz"] == ["Graz"]


def test_endpoint_gone(life: Corpus, memfs: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """A dead endpoint is named, with its exit code; the graph by words is there."""
    monkeypatch.setenv("MEMFS_CORPUS", life.uri)
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9/v1")
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    ran = memfs("graph", "build", "--model", "openai-chat:x")
    assert ran.code == 6
    assert "openai-chat:x" in ran.err
    assert sizes(life)["unfiled"] == 0


def test_trickling_endpoint(life: Corpus, memfs: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """A byte now and then keeps no one waiting longer than a request may take."""

    class Trickle(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.send_response(200)
            self.end_headers()
            with suppress(OSError):
                for _ in range(300):
                    self.wfile.write(b" ")
                    self.wfile.flush()
                    time.sleep(0.1)

        def log_message(self, format: str, *arguments: Any) -> None:
            pass

    monkeypatch.setattr("memfs.llm.TIMEOUT_S", 1.0)
    monkeypatch.setenv("MEMFS_CORPUS", life.uri)
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    with ThreadingHTTPServer(("127.0.0.1", 0), Trickle) as server:
        server.daemon_threads = True
        server.block_on_close = False
        threading.Thread(target=server.serve_forever, daemon=True).start()
        monkeypatch.setenv("OPENAI_BASE_URL", f"http://127.0.0.1:{server.server_port}/v1")
        before = time.monotonic()
        ran = memfs("graph", "build", "--model", "openai-chat:x")
        assert time.monotonic() - before < 20
        server.shutdown()
    assert (ran.code, "no whole answer within 1 second" in ran.err) == (6, True)


class Endpoint(BaseHTTPRequestHandler):
    """The OpenAI protocol, as far as it is asked here: a good answer after a moment, counted."""

    asked = 0
    moment_s = 0.0

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        type(self).asked += 1
        time.sleep(self.moment_s)
        said = json.dumps(answer(json.dumps(body["messages"])))
        call = {"id": "1", "type": "function", "function": {"name": "write", "arguments": said}}
        message = {"role": "assistant", "content": None, "tool_calls": [call]} if "tools" in body else {
            "role": "assistant", "content": said,
        }  # fmt: skip
        reply = json.dumps(
            {
                "id": "1", "object": "chat.completion", "created": 1, "model": "x",
                "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
                "usage": {"prompt_tokens": 9, "completion_tokens": 9, "total_tokens": 18},
            }
        ).encode()  # fmt: skip
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(reply)))
        self.end_headers()
        # A client that was killed reads no answer.
        with suppress(OSError):
            self.wfile.write(reply)

    def log_message(self, format: str, *arguments: Any) -> None:
        pass


@pytest.fixture
def endpoint() -> Iterator[str]:
    Endpoint.asked, Endpoint.moment_s = 0, 0.0
    with ThreadingHTTPServer(("127.0.0.1", 0), Endpoint) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/v1"
        server.shutdown()


def test_killed(life: Corpus, endpoint: str, tmp_path: Path) -> None:
    """kill -9 while the model is asked: the graph by words is whole; the next build pays for what is missing."""
    environ = {
        **os.environ, "MEMFS_CORPUS": life.uri, "OPENAI_BASE_URL": endpoint,
        "OPENAI_API_KEY": "none", "HOME": str(tmp_path),
    }  # fmt: skip
    command = [sys.executable, "-m", "memfs.cli", "graph", "build", "--model", "openai-chat:x"]
    Endpoint.moment_s = 0.5
    child = subprocess.Popen(command, env=environ, cwd=tmp_path, stderr=subprocess.PIPE)
    try:
        end = time.monotonic() + 60
        while Endpoint.asked < 3:
            assert child.poll() is None, child.stderr.read() if child.stderr else b""
            assert time.monotonic() < end
            time.sleep(0.01)
    finally:
        child.kill()
        child.communicate()
    assert sizes(life)["unfiled"] == 0
    assert Graph.open(life).contents({"lift": None})  # type: ignore[union-attr]
    asked, Endpoint.moment_s = Endpoint.asked, 0.0
    done = subprocess.run(command, env=environ, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "4 files filed by the model" in done.stdout
    # Two were answered and kept; the third was under way.
    assert Endpoint.asked - asked == 2
    assert len(facts(life, "user")) == 3
