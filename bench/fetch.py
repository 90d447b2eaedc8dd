"""What `memfs fetch` costs: in a warm process, from the host's cache, and as a cold command line.

The corpus has 20,000 files of about 4 KB on S3. Each question is about a topic of which
24 files speak; 20 passages are asked for, and the files that were really laid are
counted. The warm process is a child that opened the corpus, called `warm()` and brought
the files into a cache of the host, as `Memory.warm` does; each question is asked in a new
tree, first with an empty cache of its own, then with that one.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from bench import add, generate
from bench.add import Built
from bench.harness import (
    RTTS_S,
    Result,
    Section,
    Settings,
    Store,
    Target,
    memfs_command,
    memfs_environ,
    ms,
    run,
    spread,
)

__all__ = ["main"]

FILES = 20_000
K = 20
REQUESTS, P50_S = 8, 0.2
ROOT = Path(__file__).resolve().parents[1]


def main(settings: Settings, folder: Path, store: Store, corpora: dict[int, Built]) -> Result:
    """Measure the warm process at both round trips, then the command line."""
    result = Result("fetch")
    built = corpora.get(FILES) or corpora.setdefault(FILES, add.build(folder, FILES))
    uri = store.corpus(f"corpus-{FILES}", built.corpus)
    questions = [generate.question(topic) for topic in range(7, 7 + (15 if settings.quick else 50))]
    rows: list[list[str]] = []
    for rtt_s in RTTS_S:
        store.round_trip(rtt_s)
        with _Warm(folder / f"warm-{rtt_s}", store, uri) as warm:
            cold = [warm.ask(question, str(at), str(at)) for at, question in enumerate(questions)]
            again = [warm.ask(question, f"again-{at}", "") for at, question in enumerate(questions)]
        result.data[f"warm process at {rtt_s * 1e3:.0f} ms"] = {
            "open_and_warm": warm.ready,
            "cache empty": cold,
            "files prefetched": again,
        }
        for name, asked in (
            ("warm process, host cache empty", cold),
            ("warm process, files prefetched (Memory.warm)", again),
        ):
            rows.append(_row(rtt_s, name, asked))
        if rtt_s:
            for name, asked in (("files prefetched", again), ("host cache empty", cold)):
                p50 = spread([a["seconds"] for a in asked])["median"]
                result.targets += [
                    Target(
                        f"fetch, requests at most, 20 ms, {name}", max(a["requests"] for a in asked), "<=", REQUESTS
                    ),
                    Target(f"fetch, p50 in s, 20 ms, {name}", p50, "<=", P50_S),
                ]
    _command_line(result, rows, settings, folder, store, uri, questions)
    result.sections.insert(
        0,
        Section(
            f"memfs fetch, {K} passages, {FILES:,} files, SeaweedFS",
            (
                "round trip, ms",
                "how",
                "ms, median [quartiles]",
                "p90, ms",
                "files laid",
                "requests, median (max)",
                "KB read",
                "in flight",
            ),
            rows,
            f"{len(questions)} questions, each once; files laid is smallest-largest.",
        ),
    )
    return result


def _row(rtt_s: float, name: str, asked: list[dict[str, Any]]) -> list[str]:
    times = spread([a["seconds"] for a in asked])
    requests = spread([a["requests"] for a in asked])
    laid = [a["files"] for a in asked]
    return [
        f"{rtt_s * 1e3:.0f}",
        name,
        ms(times),
        f"{times['p90'] * 1e3:,.0f}",
        f"{min(laid)}-{max(laid)}",
        f"{requests['median']:.0f} ({max(a['requests'] for a in asked)})",
        f"{spread([a['bytes'] for a in asked])['median'] / 1e3:,.0f}",
        str(max(a["in_flight"] for a in asked)),
    ]


class _Warm:
    """The child that keeps the corpus open; one JSON line each way a question."""

    def __init__(self, folder: Path, store: Store, uri: str) -> None:
        self._folder, self._store, self._uri = folder, store, uri
        self.ready: dict[str, Any] = {}

    def __enter__(self) -> _Warm:
        self._folder.mkdir()
        self._store.proxy.reset()
        self._child = subprocess.Popen(
            [sys.executable, "-m", "bench.fetch", self._uri],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=memfs_environ(self._folder, self._store.environ()),
            cwd=ROOT,
        )
        self.ready = {**self._answer(), **self._traffic()}
        return self

    def __exit__(self, *error: object) -> None:
        self._child.kill()
        self._child.communicate()

    def ask(self, question: str, tree: str, cache: str) -> dict[str, Any]:
        """Return seconds, files laid and traffic of one fetch into a new tree."""
        assert self._child.stdin is not None
        self._store.proxy.reset()
        order = {
            "question": question,
            "tree": str(self._folder / "trees" / tree),
            "cache": str(self._folder / "caches" / cache) if cache else "",
        }
        print(json.dumps(order), file=self._child.stdin, flush=True)
        return {**self._answer(), **self._traffic()}

    def _answer(self) -> dict[str, Any]:
        assert self._child.stdout is not None
        line = self._child.stdout.readline()
        if not line:
            raise RuntimeError(f"the warm process ended with {self._child.wait()}")
        return dict(json.loads(line))

    def _traffic(self) -> dict[str, Any]:
        counted = self._store.proxy.traffic()
        return {
            "requests": counted.total,
            "bytes": counted.bytes_down,
            "in_flight": counted.in_flight_max,
        }


def _serve(uri: str) -> None:
    """The child's side."""
    import os

    from memfs.corpus.table import Corpus
    from memfs.fetch import fetch
    from memfs.workset.cache import HostCache
    from memfs.workset.mirror import Mirror
    from memfs.workset.tree import Tree

    started = time.perf_counter()
    corpus = Corpus.open(uri)
    opened = time.perf_counter()
    corpus.warm()
    warm = time.perf_counter()
    mirror = Mirror(os.environ["MEMFS_CACHE_DIR"], uri)
    mirror.update(corpus, 256 << 20)
    ready = {
        "open_s": opened - started,
        "warm_s": warm - opened,
        "prefetch_s": time.perf_counter() - warm,
        "prefetched_files": len(mirror.entries),
    }
    print(json.dumps(ready), flush=True)
    for line in sys.stdin:
        order = json.loads(line)
        os.makedirs(os.path.dirname(order["tree"]), exist_ok=True)
        cache = HostCache(order["cache"] or os.environ["MEMFS_CACHE_DIR"])
        at_hand = None if order["cache"] else mirror
        started = time.perf_counter()
        corpus.refresh()
        with Tree.open(order["tree"], os.environ["MEMFS_STATE_DIR"], corpus=uri) as tree:
            answer = fetch(corpus, order["question"], tree=tree, cache=cache, mirror=at_hand, k=K, budget_tokens=4_000)
        seconds = time.perf_counter() - started
        cache.close()
        laid = sum(file.outcome == "write" for file in answer.files)
        print(json.dumps({"seconds": seconds, "files": laid, "evidence": len(answer.evidence)}), flush=True)


def _command_line(
    result: Result,
    rows: list[list[str]],
    settings: Settings,
    folder: Path,
    store: Store,
    uri: str,
    questions: list[str],
) -> None:
    parts: list[list[str]] = []
    for rtt_s in RTTS_S:
        store.round_trip(rtt_s)
        asked, stages = [], []
        for at in range(settings.trials):
            place = folder / f"cli-{rtt_s}-{at}"
            place.mkdir()
            environ = memfs_environ(place, store.environ())
            run([memfs_command(), "boot", str(place / "memory"), "--corpus", uri], environ, place)
            store.proxy.reset()
            argv = [
                memfs_command(),
                "fetch",
                questions[at],
                "-k",
                str(K),
                "--corpus",
                uri,
                "--tree",
                str(place / "memory"),
                "--json",
            ]
            child = run(argv, environ, place)
            counted = store.proxy.traffic()
            laid = sum(file["outcome"] == "write" for file in json.loads(child.stdout)["files"])
            asked.append(
                {
                    "seconds": child.seconds,
                    "files": laid,
                    "requests": counted.total,
                    "bytes": counted.bytes_down,
                    "in_flight": counted.in_flight_max,
                    "rss_bytes": child.rss_bytes,
                }
            )
            staged = run([sys.executable, "-c", STAGES, uri, questions[-1 - at]], environ, place)
            stages.append(json.loads(staged.stdout.splitlines()[-1]))
        python = spread([run([sys.executable, "-c", "pass"], environ).seconds for _ in range(settings.trials)])
        rows.append(_row(rtt_s, "command line, everything cold", asked))
        found = {name: spread([s[name] for s in stages]) for name in stages[0]}
        result.data[f"command line at {rtt_s * 1e3:.0f} ms"] = {"asked": asked, "stages": found, "python": python}
        parts += [[f"{rtt_s * 1e3:.0f}", name, ms(times)] for name, times in {"interpreter": python, **found}.items()]
    top = _imports(memfs_environ(folder))
    result.data["imports_us"] = top
    note = (
        "Slowest imports, with all they import (ms): " + ", ".join(f"{name} {us / 1e3:.0f}" for name, us in top) + "."
    )
    headers = ("round trip, ms", "stage", "ms, median [quartiles]")
    result.sections.append(Section("What a cold command line consists of", headers, parts, note))


STAGES = """
import json, sys, time
uri, question = sys.argv[1:]
found, last = {}, time.perf_counter()
def stage(name):
    global last
    now = time.perf_counter()
    found[name], last = now - last, now
from memfs.unneeded import leave_out
leave_out()
import memfs.cli, memfs.fetch
from memfs.corpus.table import Corpus, Scope
from memfs.corpus.terms import query_terms
stage("imports")
corpus = Corpus.open(uri)
stage("open")
catalog = corpus.catalog()
stage("catalogue")
corpus.embedder
stage("embedder")
words = corpus.search_words(query_terms(question), 200, Scope())
stage("word index")
(vector,) = corpus.embedder.embed([question])
corpus.search_vector(vector, 200, Scope())
stage("vector index")
paths = list(dict.fromkeys(catalog.place(hit.row_id).path for hit in words))[:20]
stage("rank")
corpus.read(paths)
stage("content of 20 files")
print(json.dumps(found))
"""


def _imports(environ: dict[str, str]) -> list[tuple[str, int]]:
    """Return the ten slowest top-level imports of a fetch, microseconds with all they import."""
    code = "import memfs.unneeded; memfs.unneeded.leave_out(); import memfs.cli, memfs.fetch, memfs.corpus.table"
    child = run([sys.executable, "-X", "importtime", "-c", code], environ)
    found = re.findall(r"^import time:\s*\d+ \|\s*(\d+) \| *(\w[\w.]*)$", child.stderr, re.M)
    top: dict[str, int] = {}
    for us, name in found:
        package = name.split(".")[0] if not name.startswith("memfs") else name
        top[package] = max(top.get(package, 0), int(us))
    return sorted(top.items(), key=lambda item: -item[1])[:10]


if __name__ == "__main__":
    _serve(sys.argv[1])
