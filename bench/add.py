"""How fast and in how much memory `memfs add` stores files, and what a later small add costs.

Each size is a corpus of its own in a local folder (the server would take one of the
two cores), by the console command in a fresh process: everything counts, from the
interpreter's start to the published boot set. Corpora are left in `folder` for others.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench import generate
from bench.harness import Result, Section, Settings, Store, Target, folder_bytes, memfs_command, memfs_environ, run

__all__ = ["Built", "add", "build", "main"]

PASSAGES_PER_S = 3_000
FLAT_RSS = 1.5
SMALL_FILES = 10


@dataclass(frozen=True, slots=True)
class Built:
    """A corpus in a local folder, made from generated files."""

    files: int
    source: Path
    corpus: Path
    figures: dict[str, Any]


def build(folder: Path, files: int, topic_files: int = generate.TOPIC_FILES) -> Built:
    """Generate `files` files and add them to a new corpus below `folder`."""
    source = folder / f"source-{files}"
    generate.write(source, files, topic_files)
    return add(folder, source, files)


def add(folder: Path, source: Path, files: int) -> Built:
    """Add the `files` files of `source` to a new corpus below `folder`."""
    corpus, raw_bytes = folder / f"corpus-{files}", folder_bytes(source)
    environ = memfs_environ(folder)
    run([memfs_command(), "init", str(corpus)], environ)
    first = _add(source, str(corpus), environ)
    return Built(
        files, source, corpus, {"files": files, "raw_bytes": raw_bytes, **first, "stored_bytes": folder_bytes(corpus)}
    )


def _add(source: Path, corpus: str, environ: dict[str, str]) -> dict[str, Any]:
    child = run([memfs_command(), "add", str(source), "--corpus", corpus, "--json"], environ)
    said = json.loads(child.stdout)
    return {
        "seconds": child.seconds,
        "cpu_seconds": child.cpu_seconds,
        "rss_bytes": child.rss_bytes,
        "passages": said["passages"],
        "added": said["added"],
        "unchanged": said["unchanged"],
        "passages_per_s": said["passages"] / child.seconds,
    }


def main(settings: Settings, folder: Path, store: Store, corpora: dict[int, Built]) -> Result:
    """Measure all sizes; corpora built already (by another benchmark of this run) are used as they are."""
    result = Result("add")
    environ = memfs_environ(folder)
    rows = []
    for files in settings.sizes:
        built = corpora.get(files) or corpora.setdefault(files, build(folder, files))
        again = _add(built.source, str(built.corpus), environ)
        if again["added"] or again["unchanged"] != files:
            raise RuntimeError(f"adding {files} files again was not without effect: {again}")
        small = _small_add(built, folder, store)
        result.data[str(files)] = {"first": built.figures, "again": again, "small": small}
        rows.append(_row(built.figures, again))
    result.sections.append(
        Section(
            "memfs add, static embedder, local folder",
            (
                "files",
                "raw MB",
                "passages",
                "s",
                "passages/s",
                "CPU s",
                "peak RSS MB",
                "stored MB",
                "stored/raw",
                "again, s",
                "again, files/s",
            ),
            rows,
            "End to end: interpreter start, reading, splitting, embedding, commits, indices, compaction, boot set. "
            "Stored is everything in the corpus folder, versions that compaction left behind included.",
        )
    )
    result.sections.append(_small_section(result.data))
    largest, smallest = str(max(settings.sizes)), str(min(settings.sizes))
    slowest = min(found["first"]["passages_per_s"] for size, found in result.data.items() if size != smallest)
    result.targets += [
        Target("add, passages a second, end to end (slowest size from 20,000 files)", slowest, ">=", PASSAGES_PER_S),
        Target(
            f"add, peak RSS at {int(largest):,} files over that at 20,000",
            result.data[largest]["first"]["rss_bytes"] / result.data["20000"]["first"]["rss_bytes"],
            "<=",
            FLAT_RSS,
        ),
    ]
    return result


def _row(first: dict[str, Any], again: dict[str, Any]) -> list[str]:
    return [
        f"{first['files']:,}",
        f"{first['raw_bytes'] / 1e6:,.1f}",
        f"{first['passages']:,}",
        f"{first['seconds']:,.1f}",
        f"{first['passages_per_s']:,.0f}",
        f"{first['cpu_seconds']:,.1f}",
        f"{first['rss_bytes'] / 1e6:,.0f}",
        f"{first['stored_bytes'] / 1e6:,.1f}",
        f"{first['stored_bytes'] / first['raw_bytes']:.2f}",
        f"{again['seconds']:,.1f}",
        f"{again['unchanged'] / again['seconds']:,.0f}",
    ]


def _small_add(built: Built, folder: Path, store: Store) -> list[dict[str, Any]]:
    """Add 10 new files to the corpus, copied to the S3 server, at each round trip; requests by method."""
    uri = store.corpus(f"corpus-{built.files}", built.corpus)
    found = []
    for turn, rtt_s in enumerate((0.0, 0.02)):
        source = folder / f"small-{built.files}-{turn}"
        source.mkdir()
        for number in range(SMALL_FILES):
            (source / f"new-{turn}-{number}.md").write_text(f"# New {number}\n\nWritten at {time.time()}.\n")
        store.round_trip(rtt_s)
        store.proxy.reset()
        figures = _add(source, uri, memfs_environ(folder, store.environ()))
        traffic = store.proxy.traffic()
        found.append(
            {
                "files": built.files,
                "rtt_s": rtt_s,
                **figures,
                "requests": dict(traffic.requests),
                "bytes_down": traffic.bytes_down,
            }
        )
    return found


def _small_section(data: dict[str, Any]) -> Section:
    rows = [
        [
            f"{small['files']:,}",
            f"{small['rtt_s'] * 1e3:.0f}",
            f"{small['seconds']:.2f}",
            ", ".join(f"{count} {method}" for method, count in sorted(small["requests"].items())),
            f"{small['bytes_down'] / 1e6:.1f}",
            f"{small['rss_bytes'] / 1e6:,.0f}",
        ]
        for found in data.values()
        for small in found["small"]
    ]
    note = "A fresh process on SeaweedFS; the publishing of the boot set is in it."
    headers = ("files in the corpus", "round trip, ms", "s", "requests", "MB read", "peak RSS MB")
    return Section(f"{SMALL_FILES} more files, on S3", headers, rows, note)
