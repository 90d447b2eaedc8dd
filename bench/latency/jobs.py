"""What is done over each way: timed, counted, and checked against ripgrep over the local folder."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from bench.harness import spread
from bench.latency.lab import Lab, drop_page_cache, names, rg
from bench.latency.ways import CLIENTS, COPIES, MOUNTS, Client, Copy, Mount, NotUsable, memfs, mounted, served

__all__ = ["JOBS", "Row", "boots", "evidence", "explore", "greps"]

JOBS = {
    "a": "grep -r of a rare word",
    "b": "rg -j16 of a rare word",
    "c": "an agent explores: index, grep, three pages, two links, a transcript",
    "d": "cold sandbox to evidence on disk: the files that answer a question are there, and grepped",
    "e": "boot alone",
}


CLIENT_FILES_MAX = 1_000


@dataclass
class Row:
    """One way at one job: its trials, or why there are none."""

    job: str
    way: str
    state: str
    """`cold`: empty caches, and a dropped page cache where that is allowed; `warm`: once more in the same place."""
    files: int
    rtt_s: float
    seconds: list[float] = field(default_factory=list)
    requests: list[int] = field(default_factory=list)
    bytes_down: list[int] = field(default_factory=list)
    in_flight: list[int] = field(default_factory=list)
    missing: str = ""
    """Why it cannot run here."""
    void: str = ""
    """It gave other files than the local folder has."""
    over_s: float | None = None
    """A trial was ended at so many seconds: the way takes longer, and no other trial was made."""

    @property
    def usable(self) -> bool:
        """Whether more trials make sense."""
        return not (self.missing or self.void or self.over_s)

    def as_json(self) -> dict[str, Any]:
        """Return the row with its spread."""
        return {**asdict(self), **({"spread": spread(self.seconds)} if self.seconds else {})}


@contextmanager
def _timed(row: Row, lab: Lab, limit_s: float) -> Iterator[None]:
    lab.store.proxy.reset()
    started = time.perf_counter()
    try:
        yield
    except subprocess.TimeoutExpired:
        row.over_s = limit_s
        return
    row.seconds.append(time.perf_counter() - started)
    traffic = lab.store.proxy.traffic()
    row.requests.append(traffic.total)
    row.bytes_down.append(traffic.bytes_down)
    row.in_flight.append(traffic.in_flight_max)


def _check(row: Row, found: frozenset[str], lab: Lab, word: str) -> None:
    expected = lab.expected(word)
    if row.usable and found != expected:
        row.void = f"{len(found & expected)} of {len(expected)} files, and {len(found - expected)} others"


def _grep_r(folder: Path, word: str, timeout_s: float | None = None) -> frozenset[str]:
    done = subprocess.run(
        ["grep", "-r", "-l", "-F", "--exclude-dir=.juicefs*", "--exclude=.*", word, "."], cwd=folder, check=False,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=timeout_s,
    )  # fmt: skip
    return names(done.stdout)


def _rg16(folder: Path, word: str, timeout_s: float | None = None) -> frozenset[str]:
    return rg(folder, word, "-j16", "-F", "--glob=!.*", timeout_s=timeout_s)


# -- (a) and (b) --------------------------------------------------------------------------


Trial = Callable[[], None]


def greps(lab: Lab, job: str, rtt_s: float, limit_s: float, ways: set[str]) -> list[tuple[list[Row], Trial]]:
    """Return each way's rows (cold, then warm) and what makes one trial of it."""
    search = _grep_r if job == "a" else _rg16
    label = "grep -r" if job == "a" else "rg -j16"
    found: list[tuple[list[Row], Trial]] = []

    def add(way: str, trial: Callable[[Row, Row], None]) -> None:
        if not _wanted(way, ways):
            return
        cold, warm = (Row(job, way, state, lab.built.files, rtt_s) for state in ("cold", "warm"))

        def run() -> None:
            try:
                trial(cold, warm)
            except NotUsable as error:
                cold.missing = warm.missing = str(error)
            except subprocess.TimeoutExpired:
                cold.over_s = limit_s

        found.append(([cold, warm], run))

    def local(cold: Row, warm: Row) -> None:
        word, _ = lab.next()
        drop_page_cache()
        for row in (cold, warm):
            with _timed(row, lab, limit_s):
                hits = search(lab.built.source, word, limit_s)
            _check(row, hits, lab, word)

    def mount_of(mount: Mount) -> Callable[[Row, Row], None]:
        def trial(cold: Row, warm: Row) -> None:
            word, _ = lab.next()
            drop_page_cache()
            with mounted(mount, lab) as point:
                for row in (cold, warm):
                    hits: frozenset[str] = frozenset()
                    with _timed(row, lab, limit_s):
                        hits = search(point, word, limit_s)
                    _check(row, hits, lab, word)
                    if not cold.usable:
                        warm.over_s = warm.over_s or cold.over_s
                        return

        return trial

    def complete(cold: Row, warm: Row) -> None:
        word, _ = lab.next()
        home = lab.fresh("memfs")
        drop_page_cache()
        memfs(lab, home, "boot", "--budget", "0")
        for row in (cold, warm):
            with _timed(row, lab, limit_s):
                done = memfs(lab, home, "grep", "-l", "--lay", "0", word)
            _check(row, names(done.stdout), lab, word)

    def resident(cold: Row, warm: Row) -> None:
        home = lab.fresh("memfs")
        with served(lab, home):
            for row in (cold, warm):
                word, _ = lab.next()
                with _timed(row, lab, limit_s):
                    done = memfs(lab, home, "grep", "-l", "--lay", "0", word)
                _check(row, names(done.stdout), lab, word)

    def pull(cold: Row, warm: Row) -> None:
        word, _ = lab.next()
        home = lab.fresh("memfs")
        with _timed(cold, lab, limit_s):
            memfs(lab, home, "get", ".", timeout_s=limit_s)
            hits = search(home / "work" / "memory", word, limit_s)
        _check(cold, hits, lab, word)
        with _timed(warm, lab, limit_s):
            hits = search(home / "work" / "memory", word, limit_s)
        _check(warm, hits, lab, word)

    def copy_of(copy: Copy) -> Callable[[Row, Row], None]:
        def trial(cold: Row, warm: Row) -> None:
            word, _ = lab.next()
            target = lab.fresh("copy")
            command = copy.command(lab, target)
            with _timed(cold, lab, limit_s):
                subprocess.run(command, env=lab.tools, check=True, capture_output=True, timeout=limit_s)
                hits = search(target, word, limit_s)
            if cold.over_s:
                return
            _check(cold, hits, lab, word)
            with _timed(warm, lab, limit_s):
                hits = search(target, word, limit_s)
            _check(warm, hits, lab, word)

        return trial

    def client_of(client: Client) -> Callable[[Row, Row], None]:
        def trial(cold: Row, warm: Row) -> None:
            word, _ = lab.next()
            hits: frozenset[str] = frozenset()
            with _timed(cold, lab, limit_s):
                hits = _client(client, lab, word, limit_s)
            _check(cold, hits, lab, word)
            warm.missing = "it keeps nothing: each search is a cold one"

        return trial

    add(f"local folder, {label}", local)
    add("memfs grep", complete)
    add("memfs grep, server warm", resident)
    add(f"memfs get ., then {label}", pull)
    for mount in MOUNTS:
        add(mount.name, mount_of(mount))
    for copy in COPIES:
        add(f"{copy.name}, then {label}", copy_of(copy))
    if job == "a":
        for client in CLIENTS:
            add(client.name, client_of(client))
    return found


def _client(client: Client, lab: Lab, word: str, limit_s: float) -> frozenset[str]:
    done = subprocess.run(
        client.command(lab, word), env=lab.tools, stdin=subprocess.DEVNULL, capture_output=True, check=True,
        timeout=limit_s,
    )  # fmt: skip
    return names(done.stdout)


# -- (c) ------------------------------------------------------------------------------------


def explore(lab: Lab, rtt_s: float, limit_s: float, ways: set[str]) -> list[tuple[list[Row], Trial]]:
    """Return the trials of an agent's first look, from a cold start: what it reads is the same in every way."""
    found: list[tuple[list[Row], Trial]] = []

    def add(way: str, trial: Callable[[Row], None]) -> None:
        if _wanted(way, ways):
            row = Row("c", way, "cold", lab.built.files, rtt_s)
            found.append(([row], _guarded(row, trial, limit_s)))

    def walk(row: Row, word: str, root: Path) -> None:
        hits = _rg16(root, word, limit_s)
        _read(root, [*_pages(lab, word), *_others(lab)], limit_s)
        _check(row, hits, lab, word)

    def local(row: Row) -> None:
        word, _ = lab.next()
        drop_page_cache()
        with _timed(row, lab, limit_s):
            walk(row, word, lab.built.source)

    def ours(row: Row) -> None:
        word, _ = lab.next()
        home = lab.fresh("memfs")
        drop_page_cache()
        with _timed(row, lab, limit_s):
            memfs(lab, home, "boot", "--serve", timeout_s=limit_s)
            _read(home / "work" / "memory", ["sessions/index.md"], limit_s, may_lack=True)
            done = memfs(lab, home, "grep", "-l", word, timeout_s=limit_s)
            memfs(lab, home, "get", *(f"notes/{path}" for path in _others(lab)), timeout_s=limit_s)
            _read(home / "work" / "memory" / "notes", [*_pages(lab, word), *_others(lab)], limit_s)
        _check(row, names(done.stdout), lab, word)
        memfs(lab, home, "serve", "--stop")

    def mount_of(mount: Mount) -> Callable[[Row], None]:
        def trial(row: Row) -> None:
            word, _ = lab.next()
            drop_page_cache()
            with _timed(row, lab, limit_s), mounted(mount, lab) as point:
                walk(row, word, point)

        return trial

    def copy_of(copy: Copy) -> Callable[[Row], None]:
        def trial(row: Row) -> None:
            word, _ = lab.next()
            target = lab.fresh("copy")
            command = copy.command(lab, target)
            with _timed(row, lab, limit_s):
                subprocess.run(command, env=lab.tools, check=True, capture_output=True, timeout=limit_s)
                walk(row, word, target)

        return trial

    add("local folder", local)
    add("memfs boot --serve, grep, get", ours)
    for mount in MOUNTS:
        add(mount.name, mount_of(mount))
    for copy in COPIES:
        add(copy.name, copy_of(copy))
    return found


def _pages(lab: Lab, word: str) -> list[str]:
    return sorted(lab.expected(word))[:3]


def _others(lab: Lab) -> list[str]:
    """Two linked pages and a transcript: any three that the word does not lead to."""
    files = sorted(str(file.relative_to(lab.built.source)) for file in _some(lab.built.source))
    return files[:3]


def _some(folder: Path) -> list[Path]:
    """The files of the first folder that has three."""
    for root, folders, files in os.walk(folder):
        folders.sort()
        if len(files) >= 3:
            return [Path(root, name) for name in sorted(files)[:3]]
    raise RuntimeError(f"{folder}: no folder of three files")


def _read(root: Path, paths: list[str], timeout_s: float, may_lack: bool = False) -> None:
    """Read files as an agent does: one `cat` each."""
    for path in paths:
        subprocess.run(
            ["cat", path], cwd=root, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=not may_lack,
            timeout=timeout_s,
        )  # fmt: skip


# -- (d) ------------------------------------------------------------------------------------


def evidence(lab: Lab, rtt_s: float, limit_s: float, ways: set[str]) -> list[tuple[list[Row], Trial]]:
    """Return the trials from an empty folder to the files of an answer, on local disk and grepped; mounting counts."""
    found: list[tuple[list[Row], Trial]] = []

    def add(way: str, trial: Callable[[Row], None]) -> None:
        if _wanted(way, ways):
            row = Row("d", way, "cold", lab.built.files, rtt_s)
            found.append(([row], _guarded(row, trial, limit_s)))

    def fetched(row: Row) -> None:
        word, question = lab.next()
        home, hits = lab.fresh("memfs"), frozenset[str]()
        drop_page_cache()
        with _timed(row, lab, limit_s):
            memfs(lab, home, "boot", timeout_s=limit_s)
            memfs(lab, home, "fetch", question, "-k", "40", timeout_s=limit_s)
            hits = _rg16(home / "work" / "memory", word)
        _check(row, hits, lab, word)

    def searched(row: Row) -> None:
        word, _ = lab.next()
        home, hits = lab.fresh("memfs"), frozenset[str]()
        drop_page_cache()
        with _timed(row, lab, limit_s):
            memfs(lab, home, "boot", timeout_s=limit_s)
            memfs(lab, home, "grep", "-l", word, timeout_s=limit_s)
            hits = _rg16(home / "work" / "memory", word)
        _check(row, hits, lab, word)

    def mount_of(mount: Mount) -> Callable[[Row], None]:
        def trial(row: Row) -> None:
            word, _ = lab.next()
            target, hits = lab.fresh("evidence"), frozenset[str]()
            drop_page_cache()
            with _timed(row, lab, limit_s), mounted(mount, lab) as point:
                for path in _rg16(point, word, limit_s):
                    (target / path).parent.mkdir(parents=True, exist_ok=True)
                    (target / path).write_bytes((point / path).read_bytes())
                hits = _rg16(target, word)
            _check(row, hits, lab, word)

        return trial

    def copy_of(copy: Copy) -> Callable[[Row], None]:
        def trial(row: Row) -> None:
            word, _ = lab.next()
            target, hits = lab.fresh("copy"), frozenset[str]()
            command = copy.command(lab, target)
            with _timed(row, lab, limit_s):
                subprocess.run(command, env=lab.tools, check=True, capture_output=True, timeout=limit_s)
                hits = _rg16(target, word)
            _check(row, hits, lab, word)

        return trial

    def client_of(client: Client) -> Callable[[Row], None]:
        def trial(row: Row) -> None:
            word, _ = lab.next()
            hits: frozenset[str] = frozenset()
            with _timed(row, lab, limit_s):
                hits = _client(client, lab, word, limit_s)
            _check(row, hits, lab, word)

        return trial

    add("memfs boot, fetch, rg", fetched)
    add("memfs boot, grep, rg", searched)
    for mount in MOUNTS:
        add(mount.name, mount_of(mount))
    for copy in COPIES:
        add(copy.name, copy_of(copy))
    # They take minutes for more.
    for client in CLIENTS if lab.built.files <= CLIENT_FILES_MAX else ():
        add(f"{client.name} (names only, nothing on disk)", client_of(client))
    return found


# -- (e) ------------------------------------------------------------------------------------


def boots(lab: Lab, rtt_s: float, limit_s: float, ways: set[str]) -> list[tuple[list[Row], Trial]]:
    """Return the trials of a boot of the default map into an empty folder."""
    row = Row("e", "memfs boot", "cold", lab.built.files, rtt_s)

    def trial(row: Row) -> None:
        home = lab.fresh("memfs")
        drop_page_cache()
        with _timed(row, lab, limit_s):
            done = memfs(lab, home, "boot", "--json", timeout_s=limit_s)
        if json.loads(done.stdout)["total_files"] != lab.built.files:
            row.void = "the map is of another corpus"

    return [([row], _guarded(row, trial, limit_s))] if _wanted("memfs boot", ways) else []


def _guarded(row: Row, trial: Callable[[Row], None], limit_s: float) -> Trial:
    def run() -> None:
        try:
            trial(row)
        except NotUsable as error:
            row.missing = str(error)
        except subprocess.TimeoutExpired:
            row.over_s = limit_s

    return run


def _wanted(way: str, ways: set[str]) -> bool:
    return not ways or any(way.startswith(name) for name in ways)
