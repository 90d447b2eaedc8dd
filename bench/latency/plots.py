"""From a run's JSON to pictures; needs matplotlib (the dependency group `bench`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import matplotlib as mpl

from bench.latency.report import Row, median_of, rows_of

mpl.use("svg")
from matplotlib import pyplot as plt

__all__ = ["draw"]

BAND = (400, 500)
"""Times slower than local: what was reported of grep over a remote FUSE path."""


def draw(whole: Mapping[str, Any], out: Path) -> None:
    """Write the pictures that the run has figures for."""
    plt.rcParams.update({"svg.hashsalt": "memfs", "font.size": 9, "axes.grid": True, "grid.alpha": 0.3})
    _over_rtt(whole["rows"], out)
    _over_files(whole["rows"], out)
    _evidence(whole["rows"], out)
    _requests(whole["rows"], out)


def _save(figure: Any, file: Path) -> None:
    figure.tight_layout()
    figure.savefig(file, metadata={"Date": None})
    plt.close(figure)


def _over_rtt(rows: Sequence[Row], out: Path) -> None:
    """`grep -r`, cold, over the round trip, and the band of 400 to 500 times local."""
    found = rows_of(rows, "a", state="cold")
    if len({row["rtt_s"] for row in found}) < 2:
        return
    files = min(row["files"] for row in found)
    local = [median_of(row) for row in rows_of(rows, "a", files, state="warm") if row["way"].startswith("local")]
    base = median([took for took in local if took])
    figure, axes = plt.subplots(figsize=(8, 5))
    for way in dict.fromkeys(row["way"] for row in found):
        points = [
            (r["rtt_s"] * 1e3, t) for r in found if r["way"] == way and r["files"] == files if (t := median_of(r))
        ]
        if points:
            axes.plot(*zip(*points, strict=True), marker="o", ms=3, label=way, lw=2 if "memfs" in way else 1)
    axes.axhspan(BAND[0] * base, BAND[1] * base, color="red", alpha=0.15, label="400 to 500 times local")
    axes.set(
        yscale="log", xlabel="round trip, ms", ylabel="seconds", title=f"grep -r of a rare word, {files:,} files, cold"
    )
    axes.legend(fontsize=6.5, loc="center left", bbox_to_anchor=(1, 0.5))
    _save(figure, out / "grep-over-rtt.svg")


def _over_files(rows: Sequence[Row], out: Path) -> None:
    """Cold sandbox to evidence, and boot, over the number of files."""
    found = [row for row in (*rows_of(rows, "d", rtt_s=0.02), *rows_of(rows, "e", rtt_s=0.02)) if median_of(row)]
    figure, axes = plt.subplots(figsize=(8, 5))
    for way in dict.fromkeys(row["way"] for row in found):
        points = sorted((row["files"], median_of(row)) for row in found if row["way"] == way)
        if len(points) > 1:
            axes.plot(*zip(*points, strict=True), marker="o", ms=3, label=way, lw=2 if "memfs" in way else 1)
    if axes.lines:
        axes.set(xscale="log", yscale="log", xlabel="files in the corpus", ylabel="seconds", title="20 ms, cold")
        axes.legend(fontsize=6.5, loc="center left", bbox_to_anchor=(1, 0.5))
        _save(figure, out / "over-files.svg")
    plt.close(figure)


def _bars(found: Sequence[tuple[str, float, str]], title: str, label: str, file: Path) -> None:
    figure, axes = plt.subplots(figsize=(8, 0.32 * len(found) + 1.2))
    names, values, texts = zip(*found, strict=True)
    bars = axes.barh(names, values, color=["tab:orange" if "memfs" in name else "tab:blue" for name in names])
    axes.bar_label(bars, texts, padding=3, fontsize=7)
    axes.set(xscale="log", xlabel=label, title=title, xlim=(min(values) / 2, max(values) * 6))
    axes.invert_yaxis()
    _save(figure, file)


def _evidence(rows: Sequence[Row], out: Path) -> None:
    """Job (d) at the largest size."""
    found = rows_of(rows, "d", rtt_s=0.02)
    if not found:
        return
    files = max(row["files"] for row in found)
    bars = []
    for row in rows_of(found, "d", files):
        took = median_of(row)
        if took:
            bars.append((row["way"], took, f"{took:,.1f} s"))
        elif row["over_s"]:
            bars.append((row["way"], row["over_s"], f"over {row['over_s']:g} s"))
    if bars:
        title = f"Empty sandbox to evidence on disk: {files:,} files, 20 ms"
        _bars(sorted(bars, key=lambda bar: bar[1]), title, "seconds", out / "evidence.svg")


def _requests(rows: Sequence[Row], out: Path) -> None:
    """Requests of job (d) at the largest size."""
    found = [row for row in rows_of(rows, "d", rtt_s=0.02) if median_of(row)]
    if not found:
        return
    files = max(row["files"] for row in found)
    bars = [
        (r["way"], max(1.0, median(r["requests"])), f"{median(r['requests']):,.0f}")
        for r in found
        if r["files"] == files
    ]
    _bars(sorted(bars, key=lambda bar: bar[1]), f"Requests, {files:,} files", "requests", out / "requests.svg")
