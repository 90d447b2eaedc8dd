"""What does a question ask of the store? Requests and bytes by way, in a warm process over S3.

LoCoMo's corpus and its graph lie in the store; every way of `memfs eval` is asked the same
questions, in a process that has opened the corpus and called `warm()`. What each needs
before its first question (memfs its indices, a rival every passage, to index it itself) is
counted apart. No passage is read: what `fetch` lays costs every way the same.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench.add import Built
from bench.harness import (
    RTTS_S,
    Result,
    Section,
    Settings,
    Store,
    Target,
    data_dir,
    memfs_command,
    memfs_environ,
    ms,
    run,
    spread,
)

__all__ = ["main"]

QUESTIONS = 150
QUICK_QUESTIONS = 30
REQUESTS = 8
"""At most, of the first search."""
WAYS = ("passive", "active", "always", "bm25", "similarity", "n-hop")


def main(settings: Settings, folder: Path, store: Store, corpora: dict[int, Built]) -> Result:
    """Ask the same questions by each way, at both round trips."""
    from memfs.evals.data import load, sampled

    result = Result("ways")
    file = data_dir() / "locomo" / "locomo5.json"
    if not file.is_file():
        result.sections.append(Section("LoCoMo", ("",), [[f"skipped: {file.name} is not below MEMFS_DATA"]]))
        return result
    questions = [question for question in load(str(file)).questions if question.answerable]
    asked = sampled(questions, QUICK_QUESTIONS if settings.quick else QUESTIONS, seed=0)
    uri = store.corpus("locomo-graph", _build(folder, file))
    rows = []
    for rtt_s in RTTS_S:
        store.round_trip(rtt_s)
        with _environ(store.environ()):
            for name in WAYS:
                found = _ask(store, uri, name, asked)
                result.data[f"{name} at {rtt_s * 1e3:.0f} ms"] = found
                rows.append(_row(rtt_s, name, found))
                if name == "passive":
                    most = max(each["requests"] for each in found["asked"])
                    result.targets.append(
                        Target(f"passive, requests at most, {rtt_s * 1e3:.0f} ms", most, "<=", REQUESTS)
                    )
    headers = (
        "round trip, ms", "way", "to be ready: requests", "MB", "requests a question, median (max)", "KB", "ms, median",
    )  # fmt: skip
    note = f"{len(asked)} questions of LoCoMo, each once, in one process a way."
    result.sections.append(Section("Requests a question, by way", headers, rows, note))
    return result


def _row(rtt_s: float, name: str, found: Mapping[str, Any]) -> list[str]:
    asked, ready = found["asked"], found["ready"]
    requests = spread([each["requests"] for each in asked])
    return [
        f"{rtt_s * 1e3:.0f}",
        name,
        str(ready["requests"]),
        f"{ready['bytes'] / 1e6:,.1f}",
        f"{requests['median']:.0f} ({max(each['requests'] for each in asked)})",
        f"{spread([each['bytes'] for each in asked])['median'] / 1e3:,.0f}",
        ms(spread([each["seconds"] for each in asked])),
    ]


def _ask(store: Store, uri: str, name: str, questions: list[Any]) -> dict[str, Any]:
    """Open the corpus anew, make ready what the way needs, and ask; count both."""
    from memfs.corpus.table import Corpus
    from memfs.evals.ways import Context, way
    from memfs.recall.graph import Graph

    ask = way(name)
    store.proxy.reset()
    corpus = Corpus.open(uri)
    corpus.warm()
    graph = Graph.open(corpus)
    assert graph is not None
    context = Context(corpus, graph, Path())
    ask(context, questions[0])
    ready = _traffic(store)
    asked = []
    for question in questions[1:]:
        store.proxy.reset()
        started = time.perf_counter()
        ask(context, question)
        asked.append({"seconds": time.perf_counter() - started, **_traffic(store)})
    return {"ready": ready, "asked": asked}


def _traffic(store: Store) -> dict[str, int]:
    counted = store.proxy.traffic()
    return {"requests": counted.total, "bytes": counted.bytes_down}


def _build(folder: Path, file: Path) -> Path:
    place, environ = folder / "locomo-graph", memfs_environ(folder)
    run([memfs_command(), "init", str(place)], environ)
    run([memfs_command(), "add", str(file), "--format", "locomo", "--corpus", str(place)], environ)
    run([memfs_command(), "graph", "build", "--corpus", str(place)], environ)
    return place


@contextmanager
def _environ(variables: Mapping[str, str]) -> Iterator[None]:
    before = dict(os.environ)
    os.environ.update(variables)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)
