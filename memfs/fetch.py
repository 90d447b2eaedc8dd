"""memfs fetch: ask in words; get a cited synthesis at once and the supporting files in the tree, in one batch."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime, timezone
from types import MappingProxyType
from typing import NamedTuple
from weakref import WeakKeyDictionary

from memfs.corpus.catalog import Place
from memfs.corpus.records import nanoseconds
from memfs.corpus.table import EVERYTHING, Corpus, Scope
from memfs.errors import CorruptError, InputError, NotFoundError, redact
from memfs.recall import synthesis
from memfs.recall.dates import Span, end_of
from memfs.recall.evidence import Evidence
from memfs.recall.graph import Fact, Graph
from memfs.recall.rank import Ranked, times, with_text
from memfs.recall.reconstruct import Budget, Move, Policy, reconstruct, suffices
from memfs.recall.relevance import look
from memfs.workset.apply import Applied, apply
from memfs.workset.cache import HostCache
from memfs.workset.gather import gather
from memfs.workset.mirror import Mirror
from memfs.workset.plan import Action, Step, Wanted, diff
from memfs.workset.room import Going
from memfs.workset.tree import Tree

__all__ = ["Answer", "Coverage", "LaidFile", "Trace", "fetch", "limits", "recall"]

K = 10
BUDGET_TOKENS = 2_000
FILES_MAX = 20
FILE_BYTES_MAX = 4 << 20
"""A larger file is cited, its passages shown, and left for `memfs get`."""
QUESTION_CHARS_MAX = 10_000


@dataclass(frozen=True, slots=True)
class Coverage:
    """How much of the corpus the answer had to look at, and how much of it is on disk now."""

    corpus_version: int
    files_total: int
    """Of the corpus."""
    files_searched: int
    """Those with a passage in the scope."""
    passages_searched: int
    """In the scope: the folder and dates that were asked for."""
    scope: str
    """The folder and dates that were asked for, in words; "" for everything."""
    files_undated: int
    """Left out because a date was asked for and they have none."""
    files_here: int
    """In the tree after this fetch; 0 without a tree."""


@dataclass(frozen=True, slots=True)
class LaidFile:
    """What became of a supporting file.

    `outcome`: `write`, `replace`, `present`, `edited`, `conflict`, `refused`, `no room`, `too large`; `not laid`
    without a tree.
    """

    path: str
    size: int
    outcome: str
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Trace:
    """How evidence was found beyond the first search."""

    active: bool
    """Whether the graph was walked."""
    stopped: str
    """Why it ended, or was not begun."""
    steps: tuple[Move, ...] = ()
    damage: str = ""
    """What mends a graph that can't be read, where that is why it was not walked."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What is known about the question. `synthesis` is "" and `evidence` empty when nothing relevant was found."""

    question: str
    synthesis: str
    evidence: tuple[Evidence, ...]
    shown: int
    """How many of the evidence passages fitted into the synthesis."""
    files: tuple[LaidFile, ...]
    coverage: Coverage
    dry_run: bool = False
    evicted: tuple[Going, ...] = ()
    """What went, or would go, from the tree to make room for `files`."""
    trace: Trace | None = None
    """How the evidence was reconstructed; None where nothing was found or asked for."""
    weak: bool = False
    """The evidence is the nearest that there is, and may have nothing to do with the question: no file was laid."""
    times: tuple[Span, ...] = ()
    """That the question was read to speak of; what was said then counts more."""
    said_then: int = 0
    """Passages that are dated then."""

    @property
    def found(self) -> bool:
        """True if anything relevant was found."""
        return bool(self.evidence)


def recall(
    corpus: Corpus, question: str, *, k: int = K, scope: Scope = EVERYTHING, active: str = "never",
    today: date | None = None,
) -> list[Evidence]:  # fmt: skip
    """Return the `k` best passages, best first; [] when nothing bears on the question. Writes nothing.

    `active` is `never`, `always`, or `auto`: reconstruct along the graph where passive recall does not suffice.
    `last week` is counted from `today` (None: the day it is); what is dated after a `today` that is given is left out.

    Raises:
        InputError: the question is empty, or `k` is not positive.
    """
    found = _found(corpus, question, k, _as_of(scope, today), active, today)
    rows = corpus.read_rows([r.place.row_id for r in found.ranked], ["body"])
    return found.evidence([row["body"] for row in rows])


def fetch(
    corpus: Corpus,
    question: str,
    *,
    tree: Tree | None,
    cache: HostCache | None,
    mirror: Mirror | None = None,
    k: int = K,
    budget_tokens: int = BUDGET_TOKENS,
    scope: Scope = EVERYTHING,
    active: str = "auto",
    policy: Policy | None = None,
    budget: Budget | None = None,
    today: date | None = None,
    dry_run: bool = False,
) -> Answer:
    """Answer from the corpus, and lay the files that hold the evidence into `tree` (None: only answer).

    Weak evidence is shown, and its files are not laid. `last week` is counted from `today` (None: the day it is); what
    is dated after a `today` that is given is left out.

    Raises:
        InputError: the question is empty, or `k` or the budget is not positive.
    """
    if budget_tokens < 1:
        raise InputError("the token budget must be positive", hint="leave --budget-tokens out for 2,000")
    scope = _as_of(scope, today)
    found = _found(corpus, question, k, scope, active, today, policy, budget)
    ranked = found.ranked
    small = _files(r.place for r in ranked if r.place.file_size <= FILE_BYTES_MAX)
    # Of weak evidence the passages are read, not their files.
    contents = {} if found.weak else gather(corpus, ((p.path, p.sha256) for p in small), cache, mirror)
    evidence = found.evidence(_bodies(corpus, ranked, contents))
    text, shown = synthesis.extract(evidence, budget_tokens)
    laid, evicted = _lay(corpus, question, small[:FILES_MAX], contents, None if found.weak else tree, dry_run)
    large = _files(r.place for r in ranked if r.place.file_size > FILE_BYTES_MAX)
    laid += [
        LaidFile(p.path, p.file_size, "too large", f"over {FILE_BYTES_MAX >> 20} MiB: memfs get it by name")
        for p in large
    ]
    coverage = _coverage(corpus, scope, tree)
    # A time that is given outranks one that the question names.
    stated = scope.since is not None or scope.until is not None
    asked = () if stated else tuple(times(question, today or _today()))
    said_then = sum(corpus.catalog().count(since=start, until=end)[1] for start, end in map(Span.utc, asked))
    return Answer(
        question, text, tuple(evidence), shown, tuple(laid), coverage, dry_run, evicted, found.trace, found.weak,
        asked, said_then,
    )  # fmt: skip


def limits(rounds: int | None, seconds: float | None) -> Budget:
    """Return a walk's budget; None for the usual."""
    usual = Budget()
    return Budget(rounds or usual.rounds, seconds or usual.seconds)


def _as_of(scope: Scope, today: date | None) -> Scope:
    """The memory as it was at the end of a day."""
    return scope if today is None else replace(scope, as_of=end_of(today))


def _today() -> date:
    return datetime.now(timezone.utc).date()


class _Found(NamedTuple):
    ranked: list[Ranked]
    weak: bool = False
    trace: Trace | None = None
    replaced: Mapping[int, Sequence[Fact]] = MappingProxyType({})
    """By row id."""

    def evidence(self, bodies: Sequence[bytes]) -> list[Evidence]:
        made = with_text(self.ranked, bodies)
        return [
            replace(each, weak=self.weak, replaced=tuple(map(str, self.replaced.get(r.place.row_id, ()))))
            for r, each in zip(self.ranked, made, strict=True)
        ]


def _found(
    corpus: Corpus, question: str, k: int, scope: Scope, active: str, today: date | None,
    policy: Policy | None = None, budget: Budget | None = None,
) -> _Found:  # fmt: skip
    _check(corpus, question, k, scope)
    passive, kept, weak = look(corpus, question, scope, today or _today())
    if active == "never" or not kept:
        return _Found(kept[:k], weak)
    enough = suffices(passive) if active == "auto" else ""
    if enough:
        return _Found(kept[:k], weak, Trace(False, enough))
    try:
        graph = _graph(corpus)
        if graph is None:
            if active == "always":
                raise NotFoundError("the corpus has no graph", hint="memfs graph build makes one")
            return _Found(kept[:k], weak, Trace(False, "the corpus has no graph: memfs graph build makes one"))
        made = reconstruct(corpus, graph, question, scope, passive, policy=policy, budget=budget)
        return _Found(made.ranked[:k], weak, Trace(True, made.stopped, made.steps), graph.replaced)
    except CorruptError as error:
        _graphs.pop(corpus, None)
        if active == "always":
            raise
        return _Found(kept[:k], weak, Trace(False, error.message, damage=error.hint or ""))


LOOK_AGAIN_S = 30.0
_graphs: WeakKeyDictionary[Corpus, tuple[Graph | None, int, float]] = WeakKeyDictionary()
"""Of each open corpus: its graph, the corpus version that it was opened at, and when."""


def _graph(corpus: Corpus) -> Graph | None:
    """The graph of a corpus; a warm process looks for a newer one with each version, and twice a minute."""
    graph, version, looked = _graphs.get(corpus, (None, -1, 0.0))
    now = time.monotonic()
    if version != corpus.version or now - looked > LOOK_AGAIN_S:
        opened = Graph.open(corpus)
        if graph is None or opened is None or version != corpus.version or not graph.same(opened):
            graph = opened
        _graphs[corpus] = (graph, corpus.version, now)
    return graph


def _check(corpus: Corpus, question: str, k: int, scope: Scope) -> None:
    if not question.strip():
        raise InputError("the question is empty", hint='ask in words: memfs fetch "which database do we use?"')
    if len(question) > QUESTION_CHARS_MAX:
        raise InputError(
            f"the question is longer than {QUESTION_CHARS_MAX:,} characters", hint="ask in a sentence or two"
        )
    if k < 1:
        raise InputError("k must be positive", hint="leave -k out for 10")
    if any(0xD800 <= ord(char) < 0xE000 for char in question):
        raise InputError("the question is not valid Unicode", hint="ask in ordinary text")
    if scope.since and scope.until and scope.since >= scope.until:
        raise InputError("--since is not before --until", hint="swap them")
    if scope.under and not corpus.catalog().count(scope.under)[0]:
        raise NotFoundError(f"{scope.under}: no such folder in the corpus", hint="look with: memfs ls --remote")


def _files(places: object) -> list[Place]:
    """One place a file, in rank order."""
    return list({place.path: place for place in reversed(list(places))}.values())[::-1]  # type: ignore[call-overload]


def _bodies(corpus: Corpus, ranked: Sequence[Ranked], contents: dict[str, bytes]) -> list[bytes]:
    """Cut the passages out of the files at hand; those of files too large to bring are read by row."""
    away = [r.place.row_id for r in ranked if r.place.path not in contents]
    read = {i: row["body"] for i, row in zip(away, corpus.read_rows(away, ["body"]), strict=True)}
    return [
        read[r.place.row_id] if r.place.row_id in read else contents[r.place.path][r.place.start : r.place.end]
        for r in ranked
    ]


def _lay(
    corpus: Corpus, question: str, places: Sequence[Place], contents: dict[str, bytes], tree: Tree | None, dry_run: bool
) -> tuple[list[LaidFile], tuple[Going, ...]]:
    if tree is None:
        return [LaidFile(place.path, place.file_size, "not laid") for place in places], ()
    why = f"fetch: {redact(' '.join(question.split()))[:200]}"
    plan = diff((_wanted(place, corpus.version, why, rank) for rank, place in enumerate(places)), tree)
    evicted = plan.evict
    outcomes = {step.wanted.path: _outcome(step) for step in plan.steps}
    if not dry_run:
        done: Applied = apply(plan, tree, contents)
        evicted = done.evicted
        outcomes |= {step.wanted.path: _outcome(step) for step in (*done.kept, *done.refused)}
    return [outcomes[place.path] for place in places], evicted


def _outcome(step: Step) -> LaidFile:
    name = "present" if step.action is Action.ADOPT else step.action.value
    return LaidFile(step.wanted.path, step.wanted.size, name, step.reason)


def _wanted(place: Place, version: int, why: str, rank: int) -> Wanted:
    return Wanted(place.path, place.sha256, place.file_size, nanoseconds(place.mtime), version, why, rank=rank)


def _coverage(corpus: Corpus, scope: Scope, tree: Tree | None) -> Coverage:
    catalog = corpus.catalog()
    here = 0 if tree is None else tree.manifest.count()
    found = catalog.count(scope.under, since=scope.since, until=scope.until, as_of=scope.as_of)
    undated = catalog.undated(scope.under) if scope.since or scope.until else 0
    return Coverage(corpus.version, catalog.file_count, *found, str(scope), undated, here)
