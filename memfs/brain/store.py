"""A Brain from its corpus and on this host: its pages, its repository, its stages' documents."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from datetime import datetime, timezone

from memfs.brain.evidence import CorpusEvidence
from memfs.brain.gate import BUDGETS, Budgets, Judge, review
from memfs.brain.history import History
from memfs.brain.links import Graph
from memfs.brain.page import Page, PageError, page_path, parse
from memfs.brain.stage import Stage
from memfs.brain.sync import Gate, document, pages_of
from memfs.corpus.records import Document
from memfs.corpus.table import Corpus
from memfs.errors import NotFoundError

__all__ = ["documents_of", "gate_of", "graph_of", "history_of", "page_named", "pages_in"]


def history_of(state_dir: str, uri: str) -> History:
    """Return this host's repository of a corpus's Brain; it is made when it is first brought up to date."""
    name = hashlib.sha256(uri.encode()).hexdigest()[:16]
    return History(os.path.join(state_dir, "brain", f"{name}.git"))


def pages_in(files: Mapping[str, bytes]) -> dict[str, Page]:
    """Return the pages among files; what cannot be read as one is left out: the gate says what is wrong with it."""
    found: dict[str, Page] = {}
    for path, data in files.items():
        if page_path(path):
            try:
                found[path] = parse(path, data)
            except PageError:
                continue
    return found


def graph_of(corpus: Corpus) -> Graph:
    """Return the links among the corpus's pages."""
    return Graph(pages_in(pages_of(corpus)).values())


def page_named(graph: Graph, name: str) -> Page:
    """Return the page that a path, slug, title or alias means.

    Raises:
        NotFoundError: none, or more than one.
    """
    found = graph.resolve(name.removeprefix("memory/"))
    if not found:
        raise NotFoundError(f"{name}: no page of that name", hint="memfs index lists the pages")
    if len(found) > 1:
        raise NotFoundError(f"{name}: more than one page", hint=f"it may be {' or '.join(found)}")
    return graph.pages[found[0]]


def gate_of(corpus: Corpus, budgets: Budgets = BUDGETS, judge: Judge | None = None) -> Gate:
    """Return the gate over a corpus's evidence."""
    return lambda files, before: review(files, before, CorpusEvidence(corpus), budgets, judge).problems


def documents_of(stage: Stage) -> list[Document]:
    """Return what a stage brings besides pages: the sessions' summaries."""
    now = datetime.now(timezone.utc)
    return [document(path, data, now) for path, data in stage.also().items()]
