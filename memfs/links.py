"""memfs links: who links to whom in the Brain, and what leads nowhere."""

from __future__ import annotations

from typing import NamedTuple

from memfs.brain.store import graph_of, page_named
from memfs.corpus.table import Corpus

__all__ = ["Broken", "Links", "links"]


class Broken(NamedTuple):
    """A link that leads nowhere."""

    path: str
    line: int
    target: str
    why: str


class Links(NamedTuple):
    """The links of one page, or what is wrong with those of all."""

    page: str | None
    out: tuple[str, ...]
    into: tuple[str, ...]
    broken: tuple[Broken, ...]
    orphans: tuple[str, ...]
    """Pages that no other links to; only when no page was named."""


def links(corpus: Corpus, name: str | None = None) -> Links:
    """Return a page's links, both ways; without a name, all broken ones and the orphans.

    Raises:
        NotFoundError: there is no such page.
    """
    graph = graph_of(corpus)
    asked = list(graph.pages) if name is None else [page_named(graph, name).path]
    broken = tuple(Broken(path, link.line, link.target, why) for path in asked for link, why in graph.broken(path))
    if name is None:
        return Links(None, (), (), broken, graph.orphans())
    out = tuple(dict.fromkeys(target for _, target in graph.out(asked[0])))
    return Links(asked[0], out, graph.into(asked[0]), broken, ())
