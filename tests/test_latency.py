"""The latency benchmark, as a smoke test: every way gives the same hits or is void, and nothing is left behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from bench.latency.jobs import JOBS, Row
from bench.latency.report import break_even, markdown

ROOT = Path(__file__).parents[1]


def bench(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "bench.latency", "--files", "24", "--rtt", "5", *arguments]


def mounts() -> set[str]:
    return {line.split(" ")[1] for line in Path("/proc/mounts").read_text().splitlines() if "memfs-bench" in line}


def processes() -> str:
    return subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout


def test_every_way_gives_the_same(tmp_path: Path) -> None:
    """Jobs a, d and e over the ways that need no kernel; what is not installed is a row that says so."""
    before = set(Path("/dev/shm").glob("memfs-bench-*"))
    done = subprocess.run(
        bench("--jobs", "ade", "--out", str(tmp_path)),
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads((tmp_path / "latency.json").read_text())
    rows = [Row(**{k: v for k, v in row.items() if k != "spread"}) for row in found["rows"]]
    assert {row.job for row in rows} == set("ade")
    ran = {row.way for row in rows if row.seconds}
    assert {"memfs grep", "memfs boot, fetch, rg", "memfs boot, grep, rg", "memfs boot", "obstore, 64 threads"} <= ran
    assert [row.way for row in rows if row.void] == []
    assert all(row.seconds or row.missing or row.over_s for row in rows)
    for row in rows:
        if row.way.startswith("local") and row.seconds:
            assert row.requests == [0]
        if row.way.startswith(("obstore", "s5cmd", "rclone copy")) and row.state == "cold" and row.seconds:
            assert row.requests[0] >= 24
    assert found["calibration"]["5"]["median"] > 0.005
    assert (tmp_path / "latency.md").read_text() == markdown(found)
    assert mounts() == set()
    assert set(Path("/dev/shm").glob("memfs-bench-*")) <= before


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted(number: signal.Signals, tmp_path: Path) -> None:
    """Its servers, mounts and folders go with it."""
    environ, shared = {**os.environ, "TMPDIR": str(tmp_path)}, Path("/dev/shm")
    before = set(shared.glob("memfs-bench-*"))
    out = tmp_path / "out.txt"
    with out.open("w") as stream:
        child = subprocess.Popen(
            bench("--out", str(tmp_path / "out")), cwd=ROOT, env=environ, stdout=stream, stderr=stream
        )
        try:
            end = time.monotonic() + 60
            while "job a" not in out.read_text():
                assert child.poll() is None, out.read_text()
                assert time.monotonic() < end
                time.sleep(0.1)
            time.sleep(1.5)
            child.send_signal(number)
            assert child.wait(60) != 0
        finally:
            child.kill()
            child.wait()
    assert mounts() == set()
    assert [file.name for file in tmp_path.iterdir() if file.name.startswith("memfs-bench")] == []
    assert set(shared.glob("memfs-bench-*")) <= before
    assert str(tmp_path) not in processes()


def row(way: str, state: str, seconds: float, job: str = "b") -> dict[str, object]:
    made = Row(job, way, state, 100, 0.02, [seconds], [1], [1], [1])
    return made.as_json()


def test_break_even() -> None:
    """After how many greps a cold memfs has cost no more: the first is dear, each later one is not."""
    rows = [
        row("memfs boot", "cold", 0.2, "e"), row("memfs grep", "cold", 1.8),
        row("memfs grep, server warm", "warm", 0.1),
        row("mount", "cold", 1.0), row("mount", "warm", 0.6), row("copy", "cold", 1.5), row("copy", "warm", 0.01),
        row("slow mount", "cold", 5.0), row("slow mount", "warm", 5.0),
    ]  # fmt: skip
    found = {way: greps for _, _, way, greps in break_even(rows)}
    assert found == {"mount": "3", "copy": "never", "slow mount": "1 (from the first)"}


def test_jobs_are_named() -> None:
    """The five jobs of the benchmark."""
    assert list(JOBS) == list("abcde")
