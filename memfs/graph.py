"""memfs graph: make the Cue-Tag-Content graph, and look into it."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from memfs import paths
from memfs.corpus.edges import Edges
from memfs.corpus.table import Corpus
from memfs.corpus.terms import plain_words
from memfs.errors import InputError, NotFoundError
from memfs.recall.graph import Built, Fact, Graph
from memfs.recall.graph import build as make

if TYPE_CHECKING:
    from memfs.llm import LanguageModel

__all__ = ["Content", "Cue", "build", "content", "cue", "facts", "sizes"]

SHOWN = 20


class Cue(NamedTuple):
    """A cue's neighbourhood."""

    cue: str
    near: tuple[str, ...]
    """Cues that mean nearly the same, nearest first."""
    tags: tuple[tuple[str, int], ...]
    """With how many passages each, most first."""
    contents: tuple[str, ...]
    """Citations; the first 20."""
    passages: int
    """All of them, shown or not."""


class Content(NamedTuple):
    """What a passage is filed under."""

    citation: str
    filed: tuple[tuple[str, str, str, str], ...]
    """(kind, cue, tag, layer)"""


def build(
    corpus: Corpus, *, again: bool = False, model: LanguageModel | None = None, state_dir: str = "",
    say: Callable[[str], None] = lambda text: None,
) -> Built:  # fmt: skip
    """File what is new or has changed; with a model, what it has not filed yet, its answers kept below `state_dir`.

    Raises:
        BudgetError: the model's budget is used up; what it filed is kept, and the same call goes on from there.
        NonsenseError: nothing that the model said could be used; the graph by words is whole.
    """
    filer = None
    if model is not None:
        from memfs.recall.filing import Filer

        filer = Filer(model, os.path.join(state_dir, "filings"))
    return make(corpus, again=again, filer=filer, say=say)


def facts(corpus: Corpus, subject: str) -> list[Fact]:
    """Return what a model found stated of a subject, or of all ("")."""
    return Graph(corpus, _edges(corpus)).facts(subject)


def sizes(corpus: Corpus) -> dict[str, int]:
    """Return how many edges, cues, tags and files there are, by layer and kind; `unfiled` files are not in it yet."""
    edges = _edges(corpus)
    now = {info.path: bytes.fromhex(info.sha256) for info in corpus.files()}
    filed = edges.filed()
    return {**edges.sizes(), "unfiled": sum(filed.get(path) != sha256 for path, sha256 in now.items())}


def cue(corpus: Corpus, word: str) -> Cue:
    """Return the neighbourhood of a cue: a word in any form, a name, a person, a date."""
    if not word.strip():
        raise InputError("the cue is empty", hint="memfs graph cue WORD")
    graph = Graph(corpus, _edges(corpus))
    keys = (graph.key(word), " ".join(plain_words(word)), word.casefold())
    wanted = next((key for key in keys if key and graph.counts.get(key)), None)
    if wanted is None:
        raise NotFoundError(f"{word[:80]}: no such cue", hint="memfs fetch asks by meaning")
    found = graph.contents({wanted: None})
    (near,) = graph.near([word])
    tags = Counter(edge.tag for edge, _ in found if edge.tag)
    places = {place.row_id: place.citation for _, place in found}
    shown = tuple(places.values())[:SHOWN]
    labels = graph.labels
    return Cue(
        labels.get(wanted, wanted),
        tuple(labels.get(each, each) for each in near if each != wanted)[:SHOWN],
        tuple((labels.get(tag, tag), count) for tag, count in tags.most_common(SHOWN)),
        shown,
        len(places),
    )


def content(corpus: Corpus, where: str) -> Content:
    """Return what a passage is filed under."""
    graph = Graph(corpus, _edges(corpus))
    path, _, anchor = where.partition("#")
    places = corpus.catalog().file(paths.check(path))
    place = next((p for p in places if not anchor or p.anchor == anchor), None)
    if place is None:
        raise NotFoundError(f"{where}: no such passage", hint="memfs ls --remote lists the files")
    labels = graph.labels
    return Content(
        place.citation,
        tuple((e.kind, e.label or e.cue, labels.get(e.tag, e.tag), e.layer) for e in graph.filed_under(place)),
    )


def _edges(corpus: Corpus) -> Edges:
    found = Edges.open(corpus)
    if found is None:
        raise NotFoundError("the corpus has no graph", hint="memfs graph build makes one")
    return found
