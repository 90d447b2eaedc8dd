"""From a run's JSON to the Markdown that people read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from statistics import median
from typing import Any

from bench.harness import Section, ms, ratio
from bench.latency.jobs import JOBS

__all__ = ["break_even", "markdown", "median_of", "rows_of"]

Row = Mapping[str, Any]


def markdown(whole: Mapping[str, Any]) -> str:
    """Return the whole page."""
    where = whole["environment"]
    calibration = "; ".join(f"{rtt} ms: {ms(found)} ms" for rtt, found in whole["calibration"].items())
    dropped = "dropped before each cold trial" if where["page_cache_dropped"] else "not dropped: that takes root"
    head = [
        "# The latency benchmark", "",
        f"{where['cpus']} CPUs, {where['kernel']}, Python {where['python']}, {where['when']}, "
        f"{whole['seconds'] / 60:.0f} minutes: `{whole.get('command', '')}`.", "",
        f"One GET of a byte through the proxy, by the round trip that it adds: {calibration}. "
        f"All answers share {whole['bytes_per_s'] * 8 / 1e9:g} Gbit/s. The page cache is {dropped}.", "",
    ]  # fmt: skip
    return "\n".join(head) + "\n".join(section.markdown() for section in _sections(whole))


def _sections(whole: Mapping[str, Any]) -> Iterator[Section]:
    rows = whole["rows"]
    for job, about in JOBS.items():
        if job == "e":
            continue
        for files in sorted({row["files"] for row in rows if row["job"] == job}):
            for rtt_s in sorted({row["rtt_s"] for row in rows_of(rows, job, files=files)}):
                yield _section(
                    f"({job}) {about}: {files:,} files, {rtt_s * 1e3:g} ms", rows_of(rows, job, files, rtt_s)
                )
    boots = rows_of(rows, "e")
    if boots:
        table = [[f"{r['rtt_s'] * 1e3:g}", f"{r['files']:,}", *_figures(r)] for r in boots]
        headers = ("round trip, ms", "files in the corpus", "ms, median [quartiles]", "requests", "MB", "in flight")
        yield Section(f"(e) {JOBS['e']}", headers, table)
    even = break_even(rows)
    if even:
        columns = ("files", "round trip, ms", "beside it", "greps until memfs has paid")
        yield Section("Break-even: boot and complete grep against the others, job (b)", columns, even)
    yield Section(
        "What memfs costs",
        ("files", "raw MB", "add, s", "passages/s", "peak memory, MB", "stored MB", "stored/raw"),
        [
            [
                f"{made['files']:,}", f"{made['raw_bytes'] / 1e6:,.1f}", f"{made['seconds']:,.1f}",
                f"{made['passages_per_s']:,.0f}", f"{made['rss_bytes'] / 1e6:,.0f}",
                f"{made['stored_bytes'] / 1e6:,.1f}", f"{made['stored_bytes'] / made['raw_bytes']:.2f}",
            ]
            for made in whole["corpora"]
        ],
    )  # fmt: skip


def _section(title: str, rows: Sequence[Row]) -> Section:
    base = next((median_of(row) for row in reversed(rows) if row["way"].startswith("local")), None)
    base = base or next((median_of(row) for row in rows if row["way"].startswith("memfs")), None)
    table = []
    for row in rows:
        took = median_of(row)
        over = ratio(took / base) if took and base and not row["void"] else "–"
        table.append([row["way"], row["state"], *_figures(row), over])
    first = "of the local folder" if any(row["way"].startswith("local") for row in rows) else "of the first memfs row"
    return Section(title, ("way", "", "ms, median [quartiles]", "requests", "MB", "in flight", first), table)


def _figures(row: Row) -> list[str]:
    if row["missing"]:
        return [f"– ({row['missing']})", "–", "–", "–"]
    if row["over_s"]:
        return [f"over {row['over_s']:g} s, ended", "–", "–", "–"]
    if not row["seconds"]:
        return ["–", "–", "–", "–"]
    void = f" **void: {row['void']}**" if row["void"] else ""
    return [
        ms(row["spread"]) + void, f"{median(row['requests']):,.0f}", f"{median(row['bytes_down']) / 1e6:,.1f}",
        f"{max(row['in_flight'])}",
    ]  # fmt: skip


def rows_of(
    rows: Sequence[Row], job: str, files: int | None = None, rtt_s: float | None = None, state: str | None = None
) -> list[Row]:
    """Return the rows of a job."""
    return [
        row
        for row in rows
        if row["job"] == job
        and files in (None, row["files"])
        and rtt_s in (None, row["rtt_s"])
        and state in (None, row["state"])
    ]


def median_of(row: Row | None) -> float | None:
    """Return a row's median in seconds; None where it has none, or is void."""
    return None if row is None or row["void"] or row["over_s"] or not row["seconds"] else median(row["seconds"])


def break_even(rows: Sequence[Row]) -> list[list[str]]:
    """Return after how many greps a cold memfs has cost no more in all than each other way."""
    table = []
    for files in sorted({row["files"] for row in rows_of(rows, "b")}):
        for rtt_s in sorted({row["rtt_s"] for row in rows_of(rows, "b", files)}):
            found = {(row["way"], row["state"]): median_of(row) for row in rows_of(rows, "b", files, rtt_s)}
            boot = median_of(next(iter(rows_of(rows, "e", rtt_s=rtt_s)), None))
            ours, again = found.get(("memfs grep", "cold")), found.get(("memfs grep, server warm", "warm"))
            if boot is None or ours is None or again is None:
                continue
            for way in dict.fromkeys(way for way, _ in found):
                cold, warm = found.get((way, "cold")), found.get((way, "warm"))
                if way.startswith(("memfs", "local")) or cold is None:
                    continue
                table.append([f"{files:,}", f"{rtt_s * 1e3:g}", way, _greps(boot + ours, again, cold, warm or cold)])
    return table


def _greps(ours: float, ours_again: float, theirs: float, theirs_again: float) -> str:
    """Each way's cost of n greps is its first plus n-1 more; return the first n at which ours is no dearer."""
    if ours <= theirs:
        return "1 (from the first)"
    if theirs_again <= ours_again:
        return "never"
    return f"{1 + -(-(ours - theirs) // (theirs_again - ours_again)):,.0f}"
