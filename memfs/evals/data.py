"""Questions and the sessions that they are asked of: LoCoMo, LongMemEval, personas.

Evidence is a set of citations (`path#t12`). What is wrong in the data is counted, never guessed: malformed and unknown
evidence ids, questions without evidence, category names, ids that give the answer away (`answer_…` sessions
are renamed before anything is stored).
"""

from __future__ import annotations

import hashlib
import io
import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from memfs.corpus.records import Document
from memfs.corpus.sources import locomo
from memfs.corpus.sources.transcript import Session, Turn, render
from memfs.errors import InputError, NotFoundError

__all__ = ["Dataset", "Question", "load", "sampled"]

LOCOMO_CATEGORIES = {1: "multi-hop", 2: "temporal", 3: "open-domain", 4: "single-hop", 5: "adversarial"}
_TURN = re.compile(r"D:?(\d+):(\d+)")


@dataclass(frozen=True)
class Question:
    """One question."""

    id: str
    text: str
    category: str
    under: str
    """Where its answer may be looked for: a folder prefix, "" for everywhere."""
    evidence: frozenset[str]
    """Citations of the turns that answer it; empty if nothing does."""
    answer: str
    answerable: bool = True
    asked_at: datetime | None = None

    @property
    def sessions(self) -> frozenset[str]:
        """The evidence's files."""
        return frozenset(citation.partition("#")[0] for citation in self.evidence)


@dataclass(frozen=True)
class Dataset:
    """Sessions, and questions about them."""

    name: str
    documents: Sequence[Document] = field(repr=False)
    questions: Sequence[Question] = field(repr=False)
    counts: Counter[str] = field(default_factory=Counter)
    """What was met while reading."""

    @property
    def digest(self) -> str:
        """Equal for the same sessions and questions."""
        whole = hashlib.sha256()
        for document in self.documents:
            whole.update(document.path.encode())
            for passage in document.passages:
                whole.update(passage.body)
        whole.update("\n".join(f"{q.id}\t{q.text}\t{sorted(q.evidence)}" for q in self.questions).encode())
        return whole.hexdigest()[:16]


def load(name: str, *, seed: int = 0) -> Dataset:
    """Return the data set at a path, or the generated `personas`.

    Raises:
        NotFoundError: there is no such file.
        InputError: it is none of the formats.
    """
    if name == "personas":
        from memfs.evals.personas import personas

        return personas(seed)
    path = Path(name)
    if path.is_dir():
        return _longmemeval(sorted(path.glob("*.json")))
    if not path.is_file():
        raise NotFoundError(f"{name}: no such data set", hint="a LoCoMo or LongMemEval file or folder, or: personas")
    rows = _json(path)
    if rows and "conversation" in rows[0]:
        return _locomo(path, rows)
    if rows and "haystack_sessions" in rows[0]:
        return _longmemeval([path])
    raise InputError(f"{name} is neither LoCoMo nor LongMemEval", hint="a JSON array of samples or questions")


def sampled(questions: Sequence[Question], limit: int | None, seed: int) -> list[Question]:
    """Return `limit` questions, drawn by `seed`, in their order: of every category its share, and one at least."""
    if limit is None or limit >= len(questions):
        return list(questions)
    order = sorted(range(len(questions)), key=lambda i: hashlib.sha256(f"{seed}:{questions[i].id}".encode()).digest())
    by_category: dict[str, list[int]] = {}
    for i in order:
        by_category.setdefault(questions[i].category, []).append(i)
    exact = {name: limit * len(some) / len(questions) for name, some in by_category.items()}
    share = {name: max(1, int(n)) for name, n in exact.items()}
    # What rounding down leaves goes to the largest remainders; what "one at least" adds, the largest shares give.
    while sum(share.values()) < limit:
        share[max(share, key=lambda name: exact[name] - share[name])] += 1
    while sum(share.values()) > max(limit, len(share)):
        share[max(share, key=lambda name: share[name])] -= 1
    return [questions[i] for i in sorted(i for name, some in by_category.items() for i in some[: share[name]])]


def _json(path: Path) -> list[dict[str, Any]]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise InputError(f"{path}: {error}", hint="a JSON array") from None
    rows = found if isinstance(found, list) else [found]
    if not all(isinstance(row, dict) for row in rows):
        raise InputError(f"{path} is no list of objects", hint="a LoCoMo or LongMemEval file")
    return rows


# -- LoCoMo -------------------------------------------------------------------------------


def _locomo(path: Path, rows: Sequence[dict[str, Any]]) -> Dataset:
    counts: Counter[str] = Counter()
    read = locomo.read(io.BytesIO(path.read_bytes()), name=path.name, under="sessions/")
    documents = [each for each in read if isinstance(each, Document)]
    turns = {
        (document.path.split("/")[1], passage.origin): f"{document.path}#{passage.anchor}"
        for document in documents
        for passage in document.passages
        if passage.origin
    }
    questions = []
    for sample in rows:
        folder = locomo.folder(str(sample["sample_id"]))
        for number, asked in enumerate(sample["qa"], 1):
            category = int(asked["category"])
            stated = [part for item in asked.get("evidence") or [] for part in re.split(r"[;,\s]+", item) if part]
            ids = [f"D{int(m[1])}:{int(m[2])}" if (m := _TURN.fullmatch(part)) else part for part in stated]
            found = frozenset(turns[folder, i] for i in ids if (folder, i) in turns)
            counts["evidence ids that name no turn, dropped"] += sum((folder, i) not in turns for i in ids)
            answerable = category != 5
            if answerable and not found:
                counts["questions without usable evidence, left out"] += 1
                continue
            answer = str(asked.get("answer", "")) if answerable else ""
            answer = answer.partition(";")[0] if category == 3 else answer
            questions.append(
                Question(
                    f"{sample['sample_id']}/{number}", str(asked["question"]), LOCOMO_CATEGORIES[category],
                    f"sessions/{folder}/", found if answerable else frozenset(), answer, answerable,
                )
            )  # fmt: skip
    return Dataset("LoCoMo", documents, questions, counts)


# -- LongMemEval --------------------------------------------------------------------------


def _longmemeval(files: Sequence[Path]) -> Dataset:
    """Pool the sessions of all questions; a question that comes with its whole haystack is taken from there."""
    rows: dict[str, dict[str, Any]] = {}
    for file in files:
        for row in _json(file):
            if "haystack_sessions" not in row:
                raise InputError(f"{file} is not LongMemEval", hint="its questions have haystack_sessions")
            kept = rows.get(str(row["question_id"]))
            if kept is None or len(row["haystack_sessions"]) > len(kept["haystack_sessions"]):
                rows[str(row["question_id"])] = row
    if not rows:
        raise NotFoundError("no LongMemEval file there", hint="a folder with its JSON files")
    counts: Counter[str] = Counter()
    documents, questions = {}, []
    for row in rows.values():
        evidence: set[str] = set()
        for at, turns in enumerate(row["haystack_sessions"]):
            document, gold = _haystack(row, at, turns)
            if document is None:
                counts["sessions without a turn that says something, left out"] += 1
                continue
            documents[document.path] = document
            evidence |= {f"{document.path}#{anchor}" for anchor in gold}
        answerable = not str(row["question_id"]).endswith("_abs")
        if answerable and not evidence:
            counts["questions without usable evidence, left out"] += 1
            continue
        questions.append(
            Question(
                str(row["question_id"]), str(row["question"]),
                str(row["question_type"]) if answerable else "abstention", "",
                frozenset(evidence) if answerable else frozenset(), str(row["answer"]), answerable,
                _when(row.get("question_date")),
            )
        )  # fmt: skip
    return Dataset("LongMemEval", list(documents.values()), questions, counts)


def _haystack(row: dict[str, Any], at: int, turns: Sequence[dict[str, Any]]) -> tuple[Document | None, list[str]]:
    when = _when(row["haystack_dates"][at])
    said = [turn for turn in turns if str(turn.get("content") or "").strip()]
    if not said:
        return None, []
    # The id of a session says whether it holds the answer: it is not stored.
    blind = hashlib.sha256(f"{row['question_id']}/{at}".encode()).hexdigest()[:12]
    session = Session(
        id=blind, title=f"Session {blind[:6]}", source="longmemeval", slug="chat", started=when,
        turns=tuple(Turn(str(turn.get("role") or "unknown"), str(turn["content"]), when) for turn in said),
        participants=("user", "assistant"),
    )  # fmt: skip
    gold = [f"t{n}" for n, turn in enumerate(said, 1) if turn.get("has_answer")]
    return render(session, "sessions/"), gold


def _when(stated: Any) -> datetime | None:
    match = re.match(r"(\d{4})/(\d{2})/(\d{2}) \(\w+\) (\d{2}):(\d{2})", str(stated or ""))
    return datetime(*map(int, match.groups()), tzinfo=timezone.utc) if match else None  # type: ignore[arg-type,misc]


def narrowed(dataset: Dataset, keep: Callable[[Question], bool]) -> Dataset:
    """Return the data set with those questions only."""
    return replace(dataset, questions=list(_kept(dataset.questions, keep)))


def _kept(questions: Sequence[Question], keep: Callable[[Question], bool]) -> Iterator[Question]:
    return (question for question in questions if keep(question))
