"""The ways to find evidence, all over the same corpus and scope; each returns ranked passages, best first.

    grep         the question's words, by ripgrep over the files; turns by how many of them they hold
    bm25         Okapi BM25 (k1 1.2, b 0.75) over single turns
    similarity   cosine of single turns, by the corpus's own embedder: the retrieval of RAG, and of Mem0
    n-hop        the five nearest turns, then what lies one step beside them and shares a name with them, nearest
                 first: the fixed neighbourhood of A-Mem and Zep
    passive      memfs, its first search
    active       memfs, along the graph where the first search does not suffice (`always`: for every question)
    full         everything, newest first: what fits the window

What is built for the rivals (an index of single turns) is built once, and is not in their milliseconds.
"""

from __future__ import annotations

import math
import re
import subprocess
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, time, timezone
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from memfs.brain.page import Page, PageError, parse
from memfs.corpus.catalog import Place
from memfs.corpus.table import Corpus, Scope
from memfs.corpus.terms import STOP_WORDS, analyse, plain_words, query_terms
from memfs.errors import ConfigError
from memfs.evals.metrics import Found
from memfs.recall.cues import cues_of
from memfs.recall.graph import Graph
from memfs.recall.rank import Ranked
from memfs.recall.reconstruct import (
    LOOKED_AT,
    ByGain,
    Policy,
    Reconstruction,
    State,
    reconstruct,
    suffices,
)
from memfs.recall.relevance import look

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from memfs.evals.data import Question

__all__ = ["ABLATIONS", "WAYS", "Context", "Way", "way"]

DEPTH = 100
SEEDS = 5
K1, B = 1.2, 0.75


@dataclass
class Context:
    """What the ways search: a corpus, its graph, and the rivals' own index over its passages."""

    corpus: Corpus
    graph: Graph
    folder: Path
    """Every file of the corpus, exported, for ripgrep."""
    policy: Policy | None = None
    """Of the active way; None for the deterministic one."""
    walks: dict[str, list[frozenset[str]]] = field(default_factory=dict)
    """By question: the ten best citations before the walk, and after each round."""

    @cached_property
    def places(self) -> list[Place]:
        """All passages, in order."""
        catalog = self.corpus.catalog()
        return catalog.at_all(range(len(catalog)))

    @cached_property
    def bodies(self) -> dict[int, str]:
        """Text by row id."""
        rows = self.corpus.read_rows([place.row_id for place in self.places], ["body"])
        return {
            place.row_id: row["body"].decode("utf-8", errors="replace")
            for place, row in zip(self.places, rows, strict=True)
        }

    def inside(self, scope: Scope) -> list[int]:
        """Positions of the passages in a scope."""
        if scope not in self._inside:
            places = enumerate(self.places)
            self._inside[scope] = [i for i, place in places if scope.holds(place.path, place.event_time)]
        return self._inside[scope]

    @cached_property
    def _inside(self) -> dict[Scope, list[int]]:
        return {}

    @cached_property
    def turns(self) -> list[str]:
        """Each passage as it stands alone, for the rivals: with its speaker and date, which they are given too."""
        return [
            f"{place.speaker or ''} {place.event_time:%d %B %Y} {self.bodies[place.row_id].partition(chr(10))[2]}"
            if place.speaker and place.event_time
            else self.bodies[place.row_id]
            for place in self.places
        ]

    @cached_property
    def words(self) -> list[Counter[str]]:
        """Terms of the single turns."""
        return [Counter(analyse(text).split()) for text in self.turns]

    @cached_property
    def vectors(self) -> NDArray[np.float32]:
        """Vectors of the single turns, float32[n, d]."""
        found: NDArray[np.float32] = self.corpus.embedder.embed(self.turns)
        return found

    @cached_property
    def names(self) -> list[frozenset[str]]:
        """The names in each turn."""
        return [
            frozenset(cue.cue for cue in cues_of(self.bodies[p.row_id], None, None) if cue.kind == "name")
            for p in self.places
        ]

    @cached_property
    def cited(self) -> dict[int, tuple[str, ...]]:
        """Of each page's passage: the turns that it cites."""
        found: dict[int, tuple[str, ...]] = {}
        pages: dict[str, Page | None] = {}
        for place in self.places:
            if place.kind != "page":
                continue
            if place.path not in pages:
                data = self.corpus.read([place.path])[place.path].data
                try:
                    pages[place.path] = parse(place.path, data)
                except PageError:
                    pages[place.path] = None
            page = pages[place.path]
            numbers = {int(n) for n in re.findall(r"\[cite:(\d+)\]", self.bodies[place.row_id])}
            if page is not None:
                found[place.row_id] = tuple(
                    page.sources[n].at.removeprefix("memfs://") for n in sorted(numbers) if n in page.sources
                )
        return found

    def found(self, place: Place) -> Found:
        """A passage as the metrics see it."""
        return Found((place.citation, *self.cited.get(place.row_id, ())), place.end - place.start)


Way = Callable[[Context, "Question"], list[Found]]


def _scope(question: Question) -> Scope:
    """Its folder, and nothing that was said after the day on which it is asked: the same for every way."""
    if question.asked_at is None:
        return Scope(question.under)
    return Scope(question.under, until=datetime.combine(question.asked_at, time.max, timezone.utc))


def _today(question: Question) -> date | None:
    return question.asked_at.date() if question.asked_at else None


def _content(question: str) -> list[str]:
    return [word for word in dict.fromkeys(plain_words(question)) if word not in STOP_WORDS and len(word) > 1]


def grep(context: Context, question: Question) -> list[Found]:
    """ripgrep itself, over the exported files."""
    words = _content(question.text)
    if not words:
        return []
    from memfs.grep import find_rg

    target = context.folder / question.under if question.under else context.folder
    command = [find_rg(), "--no-config", "-n", "-o", "-i", "-w", "--no-heading", "--with-filename", "--sort=path"]
    command += [part for word in words for part in ("-e", re.escape(word))]
    done = subprocess.run([*command, str(target)], capture_output=True, text=True, errors="replace", check=False)
    if done.returncode > 1:
        raise ConfigError(f"ripgrep: {done.stderr[:200]}", hint="pip install 'agent-memfs[grep]'")
    held: dict[int, set[str]] = defaultdict(set)
    for line in done.stdout.splitlines():
        name, number, word = line.split(":", 2)
        at = context_line(context, name, int(number))
        if at is not None:
            held[at].add(word.casefold())
    inside = set(context.inside(_scope(question)))
    best = sorted(inside.intersection(held), key=lambda at: (-len(held[at]), at))[:DEPTH]
    return [context.found(context.places[at]) for at in best]


def context_line(context: Context, name: str, line: int) -> int | None:
    """Return the passage that a line of an exported file stands in."""
    path = str(Path(name).relative_to(context.folder))
    lines = _lines(context)
    starts = lines.get(path)
    if starts is None:
        return None
    import bisect

    at = bisect.bisect_right([first for first, _ in starts], line) - 1
    return starts[at][1] if at >= 0 else None


def _lines(context: Context) -> dict[str, list[tuple[int, int]]]:
    found: dict[str, list[tuple[int, int]]] | None = context.__dict__.get("_lines_of")
    if found is None:
        found = {}
        for at, place in enumerate(context.places):
            starts = found.setdefault(place.path, [])
            if starts:
                last, before = starts[-1]
                first = last + context.bodies[context.places[before].row_id].count("\n")
            else:
                first = 1
            starts.append((first, at))
        context.__dict__["_lines_of"] = found
    return found


def bm25(context: Context, question: Question) -> list[Found]:
    """Over single turns, within the scope: its own counts, its own lengths."""
    scope = _scope(question)
    inside = context.inside(scope)
    index: dict[Scope, Any] = context.__dict__.setdefault("_bm25", {})
    if scope not in index:
        df: Counter[str] = Counter()
        for i in inside:
            df.update(context.words[i].keys())
        lengths = [sum(context.words[i].values()) for i in inside]
        index[scope] = (df, lengths, sum(lengths) / max(1, len(lengths)))
    df, lengths, mean = index[scope]
    terms = query_terms(question.text)
    scores = []
    for i, length in zip(inside, lengths, strict=True):
        total = 0.0
        for term in terms:
            times = context.words[i].get(term, 0)
            if times:
                idf = math.log(1 + (len(inside) - df[term] + 0.5) / (df[term] + 0.5))
                total += idf * times * (K1 + 1) / (times + K1 * (1 - B + B * length / mean))
        if total > 0:
            scores.append((-total, i))
    return [context.found(context.places[i]) for _, i in sorted(scores)[:DEPTH]]


def _nearest(context: Context, question: Question) -> list[int]:
    import numpy as np

    inside = context.inside(_scope(question))
    (asked,) = context.corpus.embedder.embed([question.text])
    similar = context.vectors[inside] @ asked
    return [inside[i] for i in np.argsort(-similar, kind="stable")[:DEPTH]]


def similarity(context: Context, question: Question) -> list[Found]:
    """Nearest single turns."""
    return [context.found(context.places[i]) for i in _nearest(context, question)]


def n_hop(context: Context, question: Question) -> list[Found]:
    """Nearest turns, their neighbours in the session, and turns that share a name with them."""
    near = _nearest(context, question)
    seeds = near[:SEEDS]
    names = frozenset().union(*(context.names[i] for i in seeds)) if seeds else frozenset()
    inside = set(context.inside(_scope(question)))
    beside = {
        j for i in seeds for j in (i - 1, i + 1) if j in inside and context.places[j].path == context.places[i].path
    }
    linked = {i for i in near if names & context.names[i]}
    hop = [i for i in near if i in beside | linked and i not in seeds]
    hop += sorted(beside - set(hop) - set(seeds))
    rest = [i for i in near if i not in {*seeds, *hop}]
    return [context.found(context.places[i]) for i in [*seeds, *hop, *rest][:DEPTH]]


def full(context: Context, question: Question) -> list[Found]:
    """Everything, newest session first."""
    inside = context.inside(_scope(question))
    order = sorted(inside, key=lambda i: (-(context.places[i].event_time or context.places[i].mtime).timestamp(), i))
    return [context.found(context.places[i]) for i in order]


def passive(context: Context, question: Question) -> list[Found]:
    """What memfs's first search says, "nothing" included."""
    _, kept, weak = look(context.corpus, question.text, _scope(question), _today(question))
    return _shown(context, kept, weak)


def _shown(context: Context, ranked: Sequence[Ranked], weak: bool) -> list[Found]:
    return [context.found(r.place)._replace(weak=weak) for r in ranked[:DEPTH]]


def walked(context: Context, question: Question, policy: Policy | None, *, always: bool) -> list[Found]:
    """The first search, and the walk where it does not suffice."""
    ranked, kept, weak = look(context.corpus, question.text, _scope(question), _today(question))
    if not kept or (not always and suffices(ranked)):
        return _shown(context, kept, weak)
    made: Reconstruction = reconstruct(
        context.corpus, context.graph, question.text, _scope(question), ranked, policy=policy
    )
    held = frozenset(r.place.citation for r in ranked[:LOOKED_AT])
    context.walks[question.id] = [held]
    for step in made.steps:
        held = held - frozenset(step.dropped) | frozenset(step.entered)
        context.walks[question.id].append(held)
    return _shown(context, made.ranked, weak)


def active(context: Context, question: Question) -> list[Found]:
    """As `memfs fetch`."""
    return walked(context, question, context.policy, always=False)


def always(context: Context, question: Question) -> list[Found]:
    """As `memfs fetch --active always`."""
    return walked(context, question, context.policy, always=True)


class _Only(ByGain):
    """The deterministic policy with parts left out."""

    def __init__(self, *actions: str, near: bool = True) -> None:
        self._actions, self._near = actions, near

    def next(self, state: State, graph: Graph) -> tuple[str, dict[str, Any]] | str:
        done = {step.action for step in state.steps}
        for action in self._actions:
            if action not in done:
                arguments = super().next(State(state.question, state.scope, state.names, {}, {}), graph)[1]
                words = dict(arguments) if isinstance(arguments, dict) else {}
                return action, {**words, "near": self._near} if action == "cue" else {}
        return "that is all of this ablation"


def _without_layer(layer: str) -> Way:
    def without(context: Context, question: Question) -> list[Found]:
        key = f"_without_{layer}"
        if key not in context.__dict__:
            context.__dict__[key] = Context(context.corpus, context.graph.without(layer), context.folder)
        return walked(context.__dict__[key], question, None, always=True)

    return without


WAYS: dict[str, Way] = {
    "grep": grep, "bm25": bm25, "similarity": similarity, "n-hop": n_hop, "full": full, "passive": passive,
    "active": active, "always": always,
}  # fmt: skip
ABLATIONS: dict[str, Way] = {
    "CE: exact cues": lambda c, q: walked(c, q, _Only("cue", near=False), always=True),
    "CTC: cues of like meaning": lambda c, q: walked(c, q, _Only("cue"), always=True),
    "topic alone": lambda c, q: walked(c, q, _Only("topic"), always=True),
    "without the episodic layer": _without_layer("episodic"),
    "without the semantic layer": _without_layer("semantic"),
    "without the abstraction layer": _without_layer("abstraction"),
}
"""All of them walk for every question: beside `always`."""


def way(name: str) -> Way:
    """Return a way by its name.

    Raises:
        ConfigError: there is none.
    """
    found = {**WAYS, **ABLATIONS}.get(name)
    if found is None:
        raise ConfigError(f"no way {name!r}", hint=f"one of {', '.join(WAYS)}; or --ablations")
    return found
