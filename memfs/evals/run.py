"""One evaluation: build the corpus, ask by every way, with and without a model; hold the ways against each other."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import platform
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timezone
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from memfs.brain.page import INDEX
from memfs.corpus.embed import DEFAULT
from memfs.corpus.table import Corpus
from memfs.errors import ConfigError, ConflictError
from memfs.evals import metrics
from memfs.evals.data import Dataset, Question, load, sampled
from memfs.evals.metrics import Found, Interval, Paired, Scores, f1, interval, paired, score
from memfs.evals.peers import Peer
from memfs.evals.ways import ABLATIONS, WAYS, Context, Way, way
from memfs.graph import build
from memfs.llm import BudgetError, LanguageModel, NonsenseError
from memfs.recall.graph import Built, Graph

if TYPE_CHECKING:
    from memfs.brain.history import History

__all__ = ["METRICS", "Result", "evaluate"]

BUDGET_TOKENS = 2_000
BATCH = 100
DIGITS = 5
"""Of a share, in a ledger."""
ANSWER_TOKENS = 2_000
"""Of an answer of a few words: what a model thinks before it is among them."""
METRICS = ("turn_r10", "session_r5", "session_any5", "touched", "recall_in_budget", "precision_in_budget", "turn_r5")

ANSWER = """\
Answer the question from the passages alone, in as few words as answer it: a name, a date, a list. Dates are absolute:
count "yesterday" from the passage's date. If the passages do not answer it, answerable is false and answer ""."""
JUDGE = """\
You grade an answer to a question about a conversation. correct is true if the answer says the same as the gold answer,
in whatever words; a date in another form is the same date; a longer answer is correct if it holds the gold answer and
contradicts nothing of it. why: a few words."""


@dataclass
class Answered:
    """A model's answer."""

    answerable: bool
    answer: str


@dataclass
class Graded:
    """A judge's verdict."""

    correct: bool
    why: str


@dataclass(frozen=True)
class Result:
    """What an evaluation found; `scores` has each way's questions in the order of `questions`."""

    dataset: str
    digest: str
    seed: int
    embedder: str
    wiki: bool
    budget_tokens: int
    questions: tuple[str, ...]
    categories: tuple[str, ...]
    answerable: tuple[bool, ...]
    scores: Mapping[str, Sequence[Scores]]
    answers: Mapping[str, Sequence[Mapping[str, Any]]]
    """With a model: answer, F1, grade of each question."""
    curves: Mapping[str, Sequence[float]]
    """Of the ways that walk: mean turn R@10 of the first search, and after each round."""
    graph: Built
    add_seconds: float
    counts: Mapping[str, int]
    versions: Mapping[str, str]
    when: str
    spent: str = ""

    def values(self, way: str, metric: str, category: str | None = None) -> list[float]:
        """One metric of one way's answerable questions, of one category or all."""
        return [
            getattr(each, metric)
            for each, name, answerable in zip(self.scores[way], self.categories, self.answerable, strict=True)
            if answerable and category in (None, name)
        ]

    def interval(self, way: str, metric: str, category: str | None = None) -> Interval:
        """Mean and bootstrap interval."""
        return interval(self.values(way, metric, category), self.seed)

    def versus(self, first: str, second: str, metric: str, category: str | None = None) -> Paired:
        """How the second way differs from the first."""
        return paired(self.values(first, metric, category), self.values(second, metric, category), self.seed)

    def ms(self, way: str) -> float:
        """Median milliseconds a question."""
        return statistics.median(each.ms for each in self.scores[way]) if self.scores[way] else 0.0

    def doubted(self, way: str, *, answerable: bool) -> tuple[int, int]:
        """Of the questions that have an answer, or have none: how many the way doubted, and how many there are."""
        mine = [s.doubted for s, ok in zip(self.scores[way], self.answerable, strict=True) if ok is answerable]
        return int(sum(mine)), len(mine)

    def entry(self) -> dict[str, Any]:
        """As a line of the ledger (memfs.evals.ledger)."""
        means = {
            name: {metric: round(self.interval(name, metric).mean, DIGITS) for metric in METRICS}
            for name in self.scores
        }
        body = {
            "when": self.when, "dataset": self.dataset, "digest": self.digest, "seed": self.seed,
            "embedder": self.embedder, "wiki": self.wiki, "budget_tokens": self.budget_tokens,
            "versions": dict(self.versions), "ms": {name: round(self.ms(name), 2) for name in self.scores},
            "spent": self.spent, "means": means, "questions": list(self.questions),
            "scores": {
                name: {metric: [round(getattr(s, metric), DIGITS) for s in some] for metric in METRICS}
                for name, some in self.scores.items()
            },
            "answerable": list(self.answerable),
        }  # fmt: skip
        return {"id": hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()[:12], **body}


def evaluate(
    dataset: str,
    folder: Path,
    *,
    ways: Sequence[str] = tuple(WAYS),
    ablations: bool = False,
    limit: int | None = None,
    seed: int = 0,
    embedder: str = DEFAULT,
    wiki: bool = False,
    index: bool = False,
    peers: Sequence[Peer] = (),
    model: LanguageModel | None = None,
    judge: LanguageModel | None = None,
    active_model: LanguageModel | None = None,
    graph_model: LanguageModel | None = None,
    budget_tokens: int = BUDGET_TOKENS,
    say: Callable[[str], None] = lambda text: None,
) -> Result:
    """Build a corpus of the data set in `folder` and ask its questions by each way, and of each peer.

    `index` puts the wiki's index before the passages that `model` answers from, within the same budget.
    `graph_model` fills the graph beside the words.

    Raises:
        NotFoundError, InputError: the data set.
        ConfigError: there is no such way, or a peer does not keep to the protocol.
        ConflictError: `folder` holds something.
    """
    names = [*ways, *(ABLATIONS if ablations else ()), *(peer.name for peer in peers)]
    asks: dict[str, Way] = {name: way(name) for name in names[: len(names) - len(peers)]}
    asks |= {peer.name: peer for peer in peers}
    if len(asks) < len(names):
        raise ConfigError("two ways have the same name", hint="give each peer a name of its own")
    if folder.exists() and any(folder.iterdir()):
        raise ConflictError(f"{folder} is not empty", hint="give a new folder: the corpus is built there")
    data = load(dataset, seed=seed)
    questions = sampled(data.questions, limit, seed)
    say(f"{data.name}: {len(data.documents):,} sessions, {len(questions):,} of {len(data.questions):,} questions")
    corpus, added, built = _build(data, folder, embedder, wiki, graph_model, say)
    context = Context(corpus, _graph(corpus), folder / "files", _policy(active_model))
    _export(corpus, context.folder)
    for peer in peers:
        # Before the others are asked: one that is broken costs no more than it must.
        say(f"{peer.name}: reads all of it")
        peer.start(context)
    scores, curves = {}, {}
    for name in names:
        context.walks.clear()
        scores[name] = _ask(context, asks[name], questions, budget_tokens, name, say)
        if context.walks:
            curves[name] = _curve(context, questions, scores[name])
    answers: dict[str, list[dict[str, Any]]] = {}
    if model is not None:
        front = _front(corpus, budget_tokens) if index else ""
        for name in (*ways, *(peer.name for peer in peers)):
            say(f"{name}: {model.name} answers")
            answers[name] = []
            try:
                for question in questions:
                    found = asks[name](context, question)
                    answers[name].append(_answer(context, found, question, model, judge, budget_tokens, front))
            except BudgetError as error:
                # What was found, and what was answered so far, is worth its table.
                say(f"{name}: {error.message}; {len(answers[name]):,} of {len(questions):,} questions answered")
    models = (model, judge, active_model, graph_model)
    return Result(
        dataset=data.name, digest=data.digest, seed=seed, embedder=embedder, wiki=wiki, budget_tokens=budget_tokens,
        questions=tuple(q.id for q in questions), categories=tuple(q.category for q in questions),
        answerable=tuple(q.answerable for q in questions), scores=scores, answers=answers, curves=curves, graph=built,
        add_seconds=added, counts=data.counts,
        versions={**_versions(), **{peer.name: peer.version for peer in peers}},
        when=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        spent="; ".join(f"{m.name}: {m.spent}" for m in {id(m): m for m in models if m}.values()),
    )  # fmt: skip


def _build(
    data: Dataset, folder: Path, embedder: str, wiki: bool, model: LanguageModel | None, say: Callable[[str], None]
) -> tuple[Corpus, float, Built]:
    folder.mkdir(parents=True, exist_ok=True)
    corpus = Corpus.create(str(folder / "corpus"), embedder=embedder)
    started = time.monotonic()
    batches = [data.documents[at : at + BATCH] for at in range(0, len(data.documents), BATCH)]
    with corpus.writing():
        for _ in corpus.commit_batches(batches):
            pass
        corpus.maintain()
    added = time.monotonic() - started
    if wiki:
        say("dreaming, without a model")
        _dream(corpus, folder)
    built = build(corpus, model=model, state_dir=str(folder))
    corpus.warm()
    return corpus, added, built


def _dream(corpus: Corpus, folder: Path) -> None:
    from memfs.brain.store import history_of
    from memfs.dream import dream

    history: History = history_of(str(folder / "state"), corpus.uri)
    dream(corpus, history)
    corpus.refresh()


def _graph(corpus: Corpus) -> Graph:
    found = Graph.open(corpus)
    assert found is not None
    found.near(["warm"])
    return found


def _front(corpus: Corpus, budget_tokens: int) -> str:
    """The wiki's index, as an agent has it in its first message: at most a quarter of the budget."""
    found = corpus.read([INDEX]).get(INDEX)
    text = found.data.decode(errors="replace") if found else ""
    return text[: budget_tokens * metrics.CHARS_PER_TOKEN // 4]


def _policy(model: LanguageModel | None) -> Any:
    if model is None:
        return None
    from memfs.recall.choose import ByModel

    return ByModel(model)


def _export(corpus: Corpus, folder: Path) -> None:
    for file in corpus.read_all():
        target = folder / file.path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(file.data)


def _ask(
    context: Context, ask: Callable[[Context, Question], list[Found]], questions: Sequence[Question], budget: int,
    name: str, say: Callable[[str], None],
) -> list[Scores]:  # fmt: skip
    made: list[Scores] = []
    if questions:
        # What a way builds once is not in its milliseconds.
        ask(context, questions[0])
    started = time.monotonic()
    for question in questions:
        before = time.perf_counter()
        found = ask(context, question)
        made.append(score(question, found, (time.perf_counter() - before) * 1e3, budget))
    say(f"{name}: {time.monotonic() - started:.1f} s")
    return made


def _curve(context: Context, questions: Sequence[Question], scores: Sequence[Scores]) -> list[float]:
    """Mean turn R@10 of the answerable questions before the walk and after each round; without a walk it stays."""
    rows = []
    for question, each in zip(questions, scores, strict=True):
        if question.answerable:
            rounds = context.walks.get(question.id)
            shares = [len(question.evidence & held) / len(question.evidence) for held in rounds or ()]
            rows.append(shares or [each.turn_r10])
    deepest = max(map(len, rows), default=0)
    return [statistics.fmean(row[min(at, len(row) - 1)] for row in rows) for at in range(deepest)]


def _answer(
    context: Context, found: Sequence[Found], question: Question, model: LanguageModel, judge: LanguageModel | None,
    budget_tokens: int, front: str = "",
) -> dict[str, Any]:  # fmt: skip
    """Have a model answer from what lies within the budget, `front` included, and grade it."""
    texts = {place.citation: context.bodies[place.row_id] for place in context.places}
    shown, used = [], -(-len(front) // metrics.CHARS_PER_TOKEN)
    for each in found:
        used += -(-each.chars // metrics.CHARS_PER_TOKEN)
        if used > budget_tokens:
            break
        shown.append(texts.get(each.citations[0], ""))
    row: dict[str, Any]
    asked = f"Today: {question.asked_at:%Y-%m-%d}\n" if question.asked_at else ""
    before = f"What the memory knows of:\n{front}\n\n" if front else ""
    prompt = f"{before}{asked}Question: {question.text}\n\nPassages:\n" + "\n".join(shown)
    try:
        said = model.ask(ANSWER, prompt, Answered, answer_tokens=ANSWER_TOKENS)
    except NonsenseError as error:
        row = {"id": question.id, "answer": "", "answerable": False, "f1": 0.0, "correct": False}
        return {**row, "nonsense": error.message}
    if not question.answerable:
        silent = not said.answerable
        return {"id": question.id, **dataclasses.asdict(said), "f1": float(silent), "correct": silent}
    row = {"id": question.id, **dataclasses.asdict(said), "f1": f1(said.answer, question.answer)}
    if judge is not None:
        graded = f"Question: {question.text}\nGold answer: {question.answer}\nAnswer: {said.answer or '(none)'}"
        with suppress(NonsenseError):
            row["correct"] = judge.ask(JUDGE, graded, Graded, answer_tokens=ANSWER_TOKENS).correct
    return row


def _versions() -> dict[str, str]:
    found = {"python": platform.python_version(), "machine": f"{platform.machine()}, {os.cpu_count()} cores"}
    for name in ("agent-memfs", "lancedb", "wordllama", "pydantic-ai-slim", "sentence-transformers"):
        with suppress(metadata.PackageNotFoundError):
            found[name] = metadata.version(name)
    return found
