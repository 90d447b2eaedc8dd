"""memfs export: every file of the corpus, byte for byte, into an ordinary folder that memfs then forgets about."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from memfs import paths
from memfs.corpus.records import FileBytes, FileInfo, Skipped, nanoseconds
from memfs.corpus.table import Corpus
from memfs.errors import DiskError, InputError, NotFoundError

__all__ = ["Exported", "export"]

BATCH_BYTES = 32 << 20


@dataclass(frozen=True, slots=True)
class Exported:
    """What was written."""

    files: int
    bytes: int
    folder: str
    version: int
    refused: tuple[Skipped, ...] = ()
    """Files that cannot lie beside another one: its folder is a file, or it is a folder."""


def export(
    corpus: Corpus, folder: str, *, under: str = "", dry_run: bool = False,
    progress: Callable[[int, int], None] = lambda files, bytes: None,
) -> Exported:  # fmt: skip
    """Write all files below `under` into `folder`, which must be empty or absent, under the same relative paths.

    Raises:
        InputError: `folder` exists and is not empty.
        DiskError: the disk is full or refuses.
    """
    if os.path.exists(folder) and (not os.path.isdir(folder) or os.listdir(folder)):
        raise InputError(f"{folder} is not an empty folder", hint="export into a new folder; nothing there is touched")
    prefix = paths.prefix(under)
    files = size = 0
    refused: list[Skipped] = []
    for batch in _batches(corpus.files(prefix)):
        files, size = files + len(batch), size + sum(info.size for info in batch)
        if not dry_run:
            for file in corpus.read([info.path for info in batch]).values():
                if not _write(folder, file.path[len(prefix) :], file):
                    refused.append(Skipped(file.path, "another file is its folder, or lies in it"))
                    files, size = files - 1, size - len(file.data)
        progress(files, size)
    if under and not files and not refused:
        raise NotFoundError(f"{under}: no such folder in the corpus", hint="look with: memfs ls --remote")
    if not dry_run:
        os.makedirs(folder, exist_ok=True)
    return Exported(files, size, folder, corpus.version, tuple(refused))


def _batches(infos: Iterator[FileInfo]) -> Iterator[list[FileInfo]]:
    batch: list[FileInfo] = []
    size = 0
    for info in infos:
        batch.append(info)
        size += info.size
        if size >= BATCH_BYTES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _write(folder: str, relative: str, file: FileBytes) -> bool:
    """Write the file whole, or not at all; False if a file and a folder would need the same name."""
    place = paths.joined(folder, relative)
    temporary = os.path.join(folder, f".memfs-{secrets.token_hex(4)}.tmp")
    try:
        os.makedirs(os.path.dirname(place), exist_ok=True)
        with open(temporary, "xb") as handle:
            handle.write(file.data)
        mtime_ns = nanoseconds(file.mtime)
        os.utime(temporary, ns=(mtime_ns, mtime_ns))
        os.replace(temporary, place)
    except (FileExistsError, NotADirectoryError, IsADirectoryError):
        _remove(temporary)
        return False
    except OSError as error:
        _remove(temporary)
        raise DiskError(
            f"{folder}: {error.strerror}", hint="make room or choose another folder, and export again"
        ) from error
    return True


def _remove(file: str) -> None:
    if os.path.exists(file):
        os.unlink(file)
