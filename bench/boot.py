"""How long `memfs boot` takes, against a bare Python process, rclone, and larger corpora.

The map is 500 files of 2 MB. The bare process GETs the same object with obstore and
unpacks it with zstandard and tarfile: no hash, no manifest, no cache. It is run in two
forms, tarfile's own `extractall` and the fastest loop we know of.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench import add
from bench.add import Built
from bench.harness import (
    RTTS_S,
    Result,
    Section,
    Settings,
    Store,
    Target,
    interleaved,
    memfs_command,
    memfs_environ,
    ms,
    quiet,
    ratio,
    run,
    spread,
    tool,
)

__all__ = ["main"]

MAP_FILES = 500
HEAVY = ("lancedb", "torch", "s3fs", "pyarrow", "numpy", "fsspec", "sentence_transformers", "diskcache")
_BARE = """
import io, os, sys, tarfile
import obstore, zstandard
from obstore.store import from_url

uri, folder = sys.argv[1:]
store = from_url(uri, client_options={"allow_http": True})
data = obstore.get(store, "boot/current.tar.zst").bytes()
archive = tarfile.open(fileobj=io.BytesIO(zstandard.ZstdDecompressor().decompress(data)))
"""
BARE_EXTRACTALL = _BARE + 'archive.extractall(folder, filter="data")\n'
BARE_LOOP = (
    _BARE
    + """
made = set()
for member in archive:
    file = f"{folder}/{member.name}"
    parent = os.path.dirname(file)
    if parent not in made:
        os.makedirs(parent, exist_ok=True)
        made.add(parent)
    with open(file, "wb") as handle:
        handle.write(archive.extractfile(member).read())
"""
)
MODULES = """
import atexit, json, sys
atexit.register(lambda: print(json.dumps(sorted({m.split(".")[0] for m in sys.modules})), file=sys.stderr))
sys.argv = ["memfs", *sys.argv[1:]]
from memfs.cli import main
main()
"""


def main(settings: Settings, folder: Path, store: Store, corpora: dict[int, Built]) -> Result:
    """Measure against the peers, then over corpus sizes."""
    result = Result("boot")
    result.data["calibration_get"] = {f"{rtt_s * 1e3:.0f} ms": store.calibration_s(rtt_s) for rtt_s in RTTS_S}
    _peers(result, settings, folder, store)
    _sizes(result, settings, folder, store, corpora)
    return result


class _Cases:
    """Commands that lay the map at `uri` into a new folder, each with all of its state empty."""

    def __init__(self, folder: Path, store: Store, uri: str, plain: str) -> None:
        self._folder, self._store, self._uri, self._plain = quiet(folder) / "trials", store, uri, plain
        self._number = 0

    def _fresh(self) -> Path:
        shutil.rmtree(self._folder, ignore_errors=True)
        self._number += 1
        place = self._folder / str(self._number)
        place.mkdir(parents=True)
        return place

    def boot(self) -> float:
        """Empty cache, empty folder."""
        place = self._fresh()
        seconds = self._boot(place, "memory")
        self.check(place / "memory")
        return seconds

    def boot_warm(self) -> float:
        """A second sandbox on the same host: the cache has the map, the folder is empty."""
        place = self._fresh()
        self._boot(place, "first")
        return self._boot(place, "second")

    def boot_again(self) -> float:
        """A refresh of a tree that is up to date."""
        place = self._fresh()
        self._boot(place, "memory")
        return self._boot(place, "memory")

    def _boot(self, place: Path, tree: str) -> float:
        self._store.proxy.reset()
        argv = [memfs_command(), "boot", str(place / tree), "--corpus", self._uri]
        return run(argv, memfs_environ(place, self._store.environ()), place).seconds

    def bare(self, script: str) -> float:
        """The bare process."""
        place = self._fresh()
        self._store.proxy.reset()
        seconds = run(
            [sys.executable, "-c", script, self._uri, str(place / "out")], self._environ(place), place
        ).seconds
        self.check(place / "out", extra=1)
        return seconds

    def python(self) -> float:
        """An interpreter that does nothing."""
        place = self._fresh()
        return run([sys.executable, "-c", "pass"], self._environ(place), place).seconds

    def rclone(self, *options: str) -> float:
        """rclone copy of the same files as single objects."""
        place = self._fresh()
        endpoint = self._store.environ()["AWS_ENDPOINT_URL"]
        remote = f":s3,provider=SeaweedFS,env_auth=true,endpoint='{endpoint}':{self._plain.removeprefix('s3://')}"
        self._store.proxy.reset()
        argv = [str(tool("rclone")), "copy", remote, str(place / "out"), *options]
        seconds = run(argv, self._environ(place), place).seconds
        self.check(place / "out")
        return seconds

    def _environ(self, place: Path) -> dict[str, str]:
        return memfs_environ(place, self._store.environ(), {"RCLONE_CONFIG": ""})

    @staticmethod
    def check(folder: Path, extra: int = 0) -> None:
        """Hold every method to the same files."""
        found = sum(1 for path in folder.rglob("*.md") if path.is_file())
        if found != MAP_FILES:
            raise RuntimeError(f"{found} files were laid, not {MAP_FILES}: the trial is void")

    def modules(self) -> list[str]:
        """Return the top-level modules that a boot has loaded when it ends."""
        place = self._fresh()
        argv = [sys.executable, "-c", MODULES, "boot", str(place / "memory"), "--corpus", self._uri]
        child = run(argv, memfs_environ(place, self._store.environ()), place)
        return list(json.loads(child.stderr.strip().splitlines()[-1]))


def _peers(result: Result, settings: Settings, folder: Path, store: Store) -> None:
    built = add.build(folder, MAP_FILES)
    uri, plain = store.uri("boot-500"), store.uri("plain-500")
    store.upload(built.corpus, uri)
    store.upload(built.source, plain)
    cases = _Cases(folder, store, uri, plain)
    named: dict[str, Callable[[], float]] = {
        "memfs boot": cases.boot,
        "memfs boot, map in the host's cache": cases.boot_warm,
        "memfs boot again over the tree": cases.boot_again,
        "bare Python, extractall": lambda: cases.bare(BARE_EXTRACTALL),
        "bare Python, fastest loop": lambda: cases.bare(BARE_LOOP),
        "python -c pass": cases.python,
    }
    if tool("rclone"):
        named["rclone copy"] = cases.rclone
        named["rclone copy --transfers 64"] = lambda: cases.rclone("--transfers", "64")
    modules = cases.modules()
    heavy = [name for name in HEAVY if name in modules]
    result.data["modules"] = {"count": len(modules), "heavy": heavy, "all": modules}
    result.data["map"] = {
        "files": MAP_FILES,
        "bytes": built.figures["raw_bytes"],
        "object_bytes": (built.corpus / "boot" / "current.tar.zst").stat().st_size,
    }
    rows = []
    for rtt_s in RTTS_S:
        store.round_trip(rtt_s)
        seconds = interleaved(named, settings.trials)
        found = {name: spread(times) for name, times in seconds.items()}
        traffic: dict[str, dict[str, Any]] = {}
        for name, case in named.items():
            case()
            counted = store.proxy.traffic()
            traffic[name] = {
                "requests": dict(counted.requests),
                "bytes": counted.bytes_down,
                "in_flight": counted.in_flight_max,
                "lines": counted.lines[:4],
            }
        result.data[f"peers at {rtt_s * 1e3:.0f} ms"] = {"seconds": found, "trials": seconds, "traffic": traffic}
        base = found["memfs boot"]["median"]
        for name, times in found.items():
            counts: dict[str, int] = traffic[name]["requests"]
            requests = ", ".join(f"{n} {m}" for m, n in sorted(counts.items())) if name != "python -c pass" else "–"
            rows.append([f"{rtt_s * 1e3:.0f}", name, ms(times), ratio(times["median"] / base), requests or "none"])
        _peer_targets(result, found, traffic, rtt_s)
    note = (
        f"Fresh process, empty cache, empty folder (on tmpfs where there is one: a disk's own waits drown the "
        f"difference), {settings.trials} trials each, interleaved. "
        f"{len(modules)} top-level modules are loaded at the end of a boot; "
        f"of the heavy ones: {', '.join(heavy) or 'none'}."
    )
    result.sections.append(
        Section(
            f"The initial map: {MAP_FILES} files, {built.figures['raw_bytes'] / 1e6:.1f} MB, SeaweedFS",
            ("round trip, ms", "command", "ms, median [quartiles]", "of memfs boot", "requests"),
            rows,
            note,
        )
    )
    forbidden = sum(name in heavy for name in ("lancedb", "torch", "s3fs", "pyarrow"))
    result.targets.append(Target("boot, modules among lancedb, torch, s3fs, pyarrow", forbidden, "<=", 0))


def _peer_targets(result: Result, found: dict[str, Any], traffic: dict[str, Any], rtt_s: float) -> None:
    at = f"at {rtt_s * 1e3:.0f} ms"
    boot = found["memfs boot"]["median"]
    requests = sum(traffic["memfs boot"]["requests"].values())
    result.targets += [
        Target(f"boot, requests {at}", requests, "<=", 2),
        Target(
            f"boot over bare Python (extractall) {at}", boot / found["bare Python, extractall"]["median"], "<=", 1.5
        ),
    ]
    if rtt_s and "rclone copy" in found:
        result.targets.append(Target(f"rclone copy over boot {at}", found["rclone copy"]["median"] / boot, ">=", 15))


def _sizes(result: Result, settings: Settings, folder: Path, store: Store, corpora: dict[int, Built]) -> None:
    """Boot from corpora of all sizes: the published map is as large for each."""
    places = {}
    for files in settings.sizes:
        built = corpora.get(files) or corpora.setdefault(files, add.build(folder, files))
        places[files] = store.corpus(f"corpus-{files}", built.corpus)
    named = {str(files): _sized(folder, store, uri) for files, uri in places.items()}
    rows = []
    for rtt_s in RTTS_S:
        store.round_trip(rtt_s)
        seconds = interleaved(named, settings.trials * 2)
        found = {name: spread(times) for name, times in seconds.items()}
        result.data[f"sizes at {rtt_s * 1e3:.0f} ms"] = {"seconds": found, "trials": seconds}
        smallest = found[str(min(places))]["median"]
        for name, times in found.items():
            rows.append([f"{rtt_s * 1e3:.0f}", f"{int(name):,}", ms(times), ratio(times["median"] / smallest)])
        largest = max(places)
        value = found[str(largest)]["median"] / smallest
        result.targets.append(Target(f"boot of {largest:,} files over 1,000 at {rtt_s * 1e3:.0f} ms", value, "<=", 1.1))
    headers = ("round trip, ms", "files in the corpus", "ms, median [quartiles]", "of 1,000 files")
    result.sections.append(
        Section("Boot by corpus size", headers, rows, f"{settings.trials * 2} trials each, interleaved.")
    )


def _sized(folder: Path, store: Store, uri: str) -> Callable[[], float]:
    number = iter(range(10_000))

    def boot() -> float:
        place = quiet(folder) / "sized"
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir()
        argv = [memfs_command(), "boot", str(place / f"memory-{next(number)}"), "--corpus", uri]
        return run(argv, memfs_environ(place, store.environ()), place).seconds

    return boot
