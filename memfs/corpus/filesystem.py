"""`memfs://` for fsspec: the corpus as a read-only file system.

    fsspec.open("memfs://notes/today.md", corpus="s3://bucket/team")
    fsspec.filesystem("memfs").find("sessions")

The corpus is the `corpus` option, or what MEMFS_CORPUS and the settings files name. One
instance reads one version; `invalidate_cache()` moves it to the newest.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from functools import cached_property
from io import BytesIO
from typing import Any

from fsspec.spec import AbstractFileSystem

from memfs.config import load
from memfs.corpus.records import FileBytes, FileInfo
from memfs.corpus.table import Corpus
from memfs.errors import MemfsError

__all__ = ["MemfsFileSystem"]


class MemfsFileSystem(AbstractFileSystem):  # type: ignore[misc]
    """Files of a corpus by their path below memory/. Reading checks each file's hash."""

    protocol = "memfs"
    root_marker = ""
    cachable = True

    def __init__(self, corpus: str | None = None, version: int | None = None, **options: Any) -> None:
        super().__init__(**options)
        self._uri = load({"corpus": corpus}).need_corpus()
        self._version = version
        self._listing: dict[str, FileInfo] | None = None

    @cached_property
    def corpus(self) -> Corpus:
        """The corpus, opened when first needed."""
        return Corpus.open(self._uri, version=self._version)

    def invalidate_cache(self, path: str | None = None) -> None:
        """Move to the newest version of the corpus, unless one was asked for."""
        self._listing = None
        if self._version is None:
            self.corpus.refresh()

    def _files(self) -> dict[str, FileInfo]:
        if self._listing is None:
            self._listing = {info.path: info for info in self.corpus.files()}
        return self._listing

    def ls(self, path: str, detail: bool = True, **_: Any) -> list[Any]:
        """List a folder, or the file itself.

        Raises:
            FileNotFoundError: neither a file nor a folder.
        """
        name = self._strip_protocol(path).strip("/")
        files = self._files()
        if name in files:
            found = [_entry(files[name])]
        else:
            found = list(_children(files, f"{name}/" if name else ""))
            if not found and name:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        return found if detail else [entry["name"] for entry in found]

    def info(self, path: str, **_: Any) -> dict[str, Any]:
        """Describe a file or folder; a file has its `sha256`."""
        name = self._strip_protocol(path).strip("/")
        file = self._files().get(name)
        if file is not None:
            return _entry(file)
        if name and not any(known.startswith(f"{name}/") for known in self._files()):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        return {"name": name, "size": 0, "type": "directory"}

    def modified(self, path: str) -> Any:
        """Return the file's modification time, UTC."""
        return self.info(path)["mtime"]

    def ukey(self, path: str) -> str:
        """Return the file's sha256: equal keys mean equal bytes."""
        return str(self.info(path)["sha256"])

    def cat(self, path: Any, recursive: bool = False, on_error: str = "raise", **options: Any) -> Any:
        """Return bytes, or bytes by path; fsspec's own version trips over the folders that a recursive one meets."""
        if recursive:
            path = [name for name in self.expand_path(path, recursive=True) if not self.isdir(name)]
        return super().cat(path, on_error=on_error, **options)

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **_: Any) -> bytes:
        """Return the file's bytes [start, end)."""
        return self._read(path).data[start:end]

    def _open(self, path: str, mode: str = "rb", **_: Any) -> BytesIO:
        if mode != "rb":
            raise OSError(errno.EROFS, "memfs:// is read-only; write with memfs add", path)
        return BytesIO(self._read(path).data)

    def _read(self, path: str) -> FileBytes:
        name = self._strip_protocol(path).strip("/")
        try:
            file = self.corpus.read([name]).get(name)
        except MemfsError as error:
            raise OSError(errno.EIO, str(error), path) from error
        if file is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        return file

    def _read_only(self, *_: Any, **__: Any) -> Any:
        raise OSError(errno.EROFS, "memfs:// is read-only; write with memfs add")

    pipe_file = put_file = cp_file = _rm = rm = rm_file = mkdir = makedirs = rmdir = mv = touch = _read_only


def _entry(info: FileInfo) -> dict[str, Any]:
    return {"name": info.path, "size": info.size, "type": "file", "mtime": info.mtime, "sha256": info.sha256}


def _children(files: dict[str, FileInfo], prefix: str) -> Iterator[dict[str, Any]]:
    """Yield the files and folders right below `prefix`; a folder once."""
    folders: set[str] = set()
    for path, info in files.items():
        if not path.startswith(prefix):
            continue
        head, slash, _ = path[len(prefix) :].partition("/")
        if not slash:
            yield _entry(info)
        elif head not in folders:
            folders.add(head)
            yield {"name": prefix + head, "size": 0, "type": "directory"}
