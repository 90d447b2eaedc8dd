"""Find the files that a source names: a local path, or any URL that fsspec takes. The owner of fsspec on the way in.

Names are relative to the source, `/`-separated, in order. Symlinks are not followed
(one that points out of the tree would carry strangers' files into memory), `.git`
folders are passed over, and so are memfs corpora and trees; all are reported.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any, BinaryIO
from urllib.parse import urlsplit

from memfs.corpus.records import MTIME_MAX, Skipped
from memfs.errors import ConfigError, InputError, MemfsError, NotFoundError, UnreachableError, redact
from memfs.project import MARK

__all__ = ["SourceFile", "discover"]


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A file that can be read. `size` is in bytes, `mtime` UTC."""

    name: str
    """Relative to the source."""
    label: str
    """For people: where it is, without credentials."""
    size: int
    mtime: datetime
    open: Callable[[], BinaryIO]


def discover(source: str) -> Iterator[SourceFile | Skipped]:
    """Yield every file below `source`, in name order, and what is passed over.

    Raises:
        NotFoundError: nothing is there.
        InputError: it is a memfs corpus, or a tree that memfs laid.
        ConfigError: the URL's scheme needs a package that is not installed.
        UnreachableError: the listing failed; nothing is taken for empty.
    """
    if "://" in source and not source.startswith("file://"):
        yield from _remote(source)
        return
    path = source.removeprefix("file://")
    try:
        status = os.stat(path)
    except OSError as error:
        raise NotFoundError(f"{source}: {error.strerror}", hint="check the path") from error
    if stat.S_ISDIR(status.st_mode) and (ours := _ours(path)):
        raise InputError(f"{source} is {ours}", hint="add a folder of it by name: memfs add memory/notes --as notes")
    if stat.S_ISDIR(status.st_mode):
        yield from _walk(path, "")
    elif stat.S_ISREG(status.st_mode):
        yield _local(path, os.path.basename(path), status)
    else:
        yield Skipped(path, "not a plain file")


def _walk(root: str, folder: str) -> Iterator[SourceFile | Skipped]:
    try:
        entries = sorted(os.scandir(os.path.join(root, folder)), key=lambda entry: os.fsencode(entry.name))
    except OSError as error:
        if not folder:
            raise NotFoundError(f"{root}: {error.strerror}", hint="check the folder's mode") from error
        yield Skipped(folder, f"the folder cannot be listed: {error.strerror}")
        return
    for entry in entries:
        name = f"{folder}/{entry.name}" if folder else entry.name
        try:
            status = entry.stat(follow_symlinks=False)
        except OSError as error:
            yield Skipped(name, f"cannot be read: {error.strerror}")
            continue
        if stat.S_ISDIR(status.st_mode) and entry.name == ".git":
            yield Skipped(name, "a Git repository's own data")
        elif stat.S_ISDIR(status.st_mode) and (ours := _ours(entry.path)):
            yield Skipped(name, ours)
        elif stat.S_ISDIR(status.st_mode):
            yield from _walk(root, name)
        elif stat.S_ISREG(status.st_mode):
            yield _local(entry.path, name, status)
        else:
            yield Skipped(name, "a symlink" if stat.S_ISLNK(status.st_mode) else "not a plain file")


def _ours(folder: str) -> str | None:
    """Why a folder must not be added: memory that holds itself would grow with every add."""
    if os.path.isdir(os.path.join(folder, "passages.lance", "_versions")):
        return "a memfs corpus"
    return "a tree that memfs laid" if os.path.isfile(os.path.join(folder, MARK)) else None


def _local(path: str, name: str, status: os.stat_result) -> SourceFile:
    mtime = _moment(status.st_mtime)
    return SourceFile(name, name, status.st_size, mtime, lambda: open(path, "rb"))


def _remote(url: str) -> Iterator[SourceFile | Skipped]:
    import fsspec

    label = _label(url)
    try:
        # A private instance: fsspec shares instances, and with them listings that never expire.
        filesystem, root = fsspec.core.url_to_fs(url, skip_instance_cache=True)
        found = filesystem.find(root, detail=True)
        if not found and filesystem.exists(root):
            found = {root: filesystem.info(root)}
    except (ImportError, ValueError) as error:
        raise ConfigError(
            f"{label}: {_plain(error, url)}", hint="install the fsspec package for this kind of URL"
        ) from error
    except FileNotFoundError as error:
        raise NotFoundError(f"{label}: not found", hint="check the bucket and prefix") from error
    except Exception as error:
        raise _explain(error, label, url) from error
    if not found:
        raise NotFoundError(f"{label}: nothing there", hint="check the bucket and prefix")
    for path in sorted(found):
        info = found[path]
        if info.get("type", "file") == "file":
            yield _remote_file(filesystem, root, path, info, label)


def _remote_file(filesystem: Any, root: str, path: str, info: dict[str, Any], label: str) -> SourceFile:
    name = path[len(root) :].lstrip("/") if path != root else path.rsplit("/", 1)[-1]
    when = next((info[k] for k in ("LastModified", "mtime", "modified", "updated") if info.get(k)), None)
    return SourceFile(
        name=name,
        label=f"{label.rstrip('/')}/{name}" if path != root else label,
        size=int(info.get("size") or 0),
        mtime=_utc(when),
        open=lambda: filesystem.open(
            path, "rb", cache_type="none" if (info.get("size") or 0) < 1 << 16 else "readahead"
        ),
    )


def _utc(when: object) -> datetime:
    if isinstance(when, datetime):
        return when.astimezone(timezone.utc)
    return _moment(float(when)) if isinstance(when, (int, float)) else _moment(0)


def _moment(seconds: float) -> datetime:
    """A file's time, whatever a broken clock or `touch` made of it."""
    return datetime.fromtimestamp(min(max(seconds, 0.0), MTIME_MAX.timestamp()), tz=timezone.utc)


def _label(url: str) -> str:
    """The URL without user, password or query, which may hold secrets."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def _explain(error: Exception, label: str, url: str) -> MemfsError:
    text = _plain(error, url) or type(error).__name__
    return UnreachableError(f"{label}: {text[:300]}", hint="check the URL, the credentials and the network")


def _plain(error: Exception, url: str) -> str:
    """The error's text without what the URL holds of users, passwords and queries: libraries quote parts of it."""
    parts, text = urlsplit(url), str(error)
    for secret in (parts.netloc.rpartition("@")[0], parts.password, parts.username, parts.query):
        text = text.replace(secret, "***") if secret else text
    return redact(text)
