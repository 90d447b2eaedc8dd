"""`scripts/bench`: the latency benchmark, from a look of three minutes to the figures in docs/benchmarks.md."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.harness import Store, environment, quiet, scratch
from bench.latency import jobs, report
from bench.latency.jobs import Row
from bench.latency.lab import Lab, drop_page_cache
from bench.latency.ways import MOUNTS, NotUsable, unmount

CURVE_FILES = 200
"""For the curves over the round trip: a serial grep over a mount takes that many round trips, and more."""
BYTES_PER_S = 125e6
"""1 Gbit/s, shared by all that a sandbox reads."""


@dataclass(frozen=True)
class Plan:
    """What to run: (job, files, round trips, trials) in turn, and how long one trial may take."""

    parts: tuple[tuple[str, int, tuple[float, ...], int], ...]
    limit_s: float


def quick(files: int, rtts: tuple[float, ...]) -> Plan:
    """A look: every job and way once, in a minute and a half after the build."""
    parts = [(job, files, rtts, 2 if job == "e" else 1) for job in "abcde"]
    return Plan(tuple(parts), limit_s=6)


def full(files: int, rtts: tuple[float, ...]) -> Plan:
    """All that docs/benchmarks.md shows: about an hour on two cores."""
    sizes = sorted({1_000, files, 200_000})
    return Plan(
        (
            ("a", CURVE_FILES, rtts, 5),
            ("b", CURVE_FILES, rtts, 5),
            ("b", 1_000, (0.02,), 5),
            ("c", 1_000, (0.02,), 5),
            *(("d", size, (0.02,), 5) for size in (1_000, files)),
            *(("e", size, (0.0, 0.02), 9) for size in sizes),
        ),
        limit_s=60,
    )


def main() -> int:
    """Run, and write latency.json, latency.md and the pictures into --out."""
    parser = argparse.ArgumentParser(prog="scripts/bench", description=__doc__)
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--quick", action="store_true", help="a look: 100 files, 20 ms, under three minutes [default]")
    size.add_argument("--full", action="store_true", help="about an hour, 10 GB of disk")
    parser.add_argument("--files", type=int, help="files in the corpus [100, or 10,000]")
    parser.add_argument("--rtt", help="round trips in ms [20, or 0,5,20,50]")
    parser.add_argument(
        "--jobs", default="abcde", help="some of: " + "; ".join(f"{k} {v}" for k, v in jobs.JOBS.items())
    )
    parser.add_argument("--ways", default="", help="names begin with one of these, separated by commas")
    parser.add_argument("--tree", type=Path, help="a real tree instead of generated files")
    parser.add_argument("--limit", type=float, help="seconds that one trial may take")
    parser.add_argument("--out", type=Path, default=Path("bench/results/latency"), help="[%(default)s]")
    parser.add_argument("--from-json", type=Path, help="only make tables and pictures of an earlier run")
    said = parser.parse_args()
    if said.from_json:
        return _write(json.loads(said.from_json.read_text()), said.out)
    rtts = tuple(float(ms) / 1e3 for ms in (said.rtt or ("0,5,20,50" if said.full else "20")).split(","))
    files = said.files or (10_000 if said.full else 100)
    plan = full(files, rtts) if said.full else quick(files, rtts)
    plan = Plan(tuple(part for part in plan.parts if part[0] in said.jobs), said.limit or plan.limit_s)
    ways = {way for way in said.ways.split(",") if way}
    with ExitStack() as stack:
        folder = stack.enter_context(scratch())
        place = quiet(folder)
        stack.callback(_unmount_all, place)
        store = stack.enter_context(Store(folder))
        whole = _run(plan, ways, folder, place, store, said.tree)
    whole["command"] = " ".join(["scripts/bench", *sys.argv[1:]])
    return _write(whole, said.out)


def _run(plan: Plan, ways: set[str], folder: Path, place: Path, store: Store, tree: Path | None) -> dict[str, Any]:
    started = time.monotonic()
    labs: dict[int, Lab] = {}
    rows: list[Row] = []
    calibration: dict[str, Any] = {}
    prepared: set[tuple[str, int]] = set()
    store.proxy.bytes_per_s = BYTES_PER_S
    for job, files, rtts, trials in plan.parts:
        lab = labs.get(files) or labs.setdefault(files, _lab(folder, place, store, files, tree))
        if job != "e":
            _prepare(lab, ways, prepared)
        for rtt_s in rtts:
            if f"{rtt_s * 1e3:g}" not in calibration:
                calibration[f"{rtt_s * 1e3:g}"] = store.calibration_s(rtt_s)
            store.round_trip(rtt_s)
            made = _trials(job)(lab, rtt_s, plan.limit_s, ways)
            _say(f"job {job}, {lab.built.files:,} files, {rtt_s * 1e3:g} ms: {len(made)} ways, {trials} trials")
            for _ in range(trials):
                for found, trial in made:
                    if found[0].usable:
                        trial()
            rows += [row for found, _ in made for row in found]
    return {
        "bench": "latency",
        "environment": environment() | {"root": os.geteuid() == 0, "page_cache_dropped": drop_page_cache()},
        "seconds": time.monotonic() - started,
        "calibration": calibration,
        "bytes_per_s": BYTES_PER_S,
        "limit_s": plan.limit_s,
        "corpora": [lab.built.figures for lab in labs.values()],
        "tree": tree.name if tree else None,
        "rows": [row.as_json() for row in rows],
    }


def _trials(job: str) -> Callable[[Lab, float, float, set[str]], list[tuple[list[Row], Callable[[], None]]]]:
    if job in "ab":
        return lambda lab, rtt_s, limit_s, ways: jobs.greps(lab, job, rtt_s, limit_s, ways)
    return {"c": jobs.explore, "d": jobs.evidence, "e": jobs.boots}[job]


def _lab(folder: Path, place: Path, store: Store, files: int, tree: Path | None) -> Lab:
    store.round_trip(0.0)
    _say(f"building a corpus of {tree or f'{files:,} files'}")
    return Lab.of_tree(folder, place, store, tree) if tree else Lab.generated(folder, place, store, files)


def _prepare(lab: Lab, ways: set[str], prepared: set[tuple[str, int]]) -> None:
    for mount in MOUNTS:
        key = (mount.name, lab.built.files)
        if key in prepared or (ways and not any(mount.name.startswith(way) for way in ways)):
            continue
        prepared.add(key)
        try:
            mount.prepare(lab)
        except NotUsable:
            # Its trials say so, in its row.
            continue


def _mount_points(place: Path) -> Iterator[Path]:
    for line in Path("/proc/mounts").read_text().splitlines():
        point = Path(line.split(" ")[1])
        if place in point.parents:
            yield point


def _unmount_all(place: Path) -> None:
    for point in list(_mount_points(place)):
        unmount(point)


def _write(whole: dict[str, Any], out: Path) -> int:
    out.mkdir(parents=True, exist_ok=True)
    (out / "latency.json").write_text(json.dumps(whole, indent=1, default=str) + "\n")
    (out / "latency.md").write_text(report.markdown(whole))
    try:
        from bench.latency import plots
    except ModuleNotFoundError:
        _say("no pictures: matplotlib is not installed")
    else:
        plots.draw(whole, out)
    print(report.markdown(whole))
    _say(f"written: {out}")
    return 0


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
