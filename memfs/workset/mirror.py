"""The host's mirror of a corpus's text: one flat file, which ripgrep searches whole.

`<cache>/mirror/<corpus>/data-<id>` holds the files one after the other, each ended by a
line feed; `index.json` says which bytes are whose, at which corpus version. A line of
a file is a line of the flat file, so what ripgrep finds there is what it would find in
the files: no index of words or trigrams could promise that for every pattern.

Three kinds of file lie there altered, so that what matches the file matches the flat
form too (the form may match more; the caller searches the real files in the end):
UTF-16 with a byte order mark as UTF-8, UTF-8 without its mark, and NUL as a line feed
(ripgrep ends its search of such a file at the NUL).

The data file only grows: a reader with an older index keeps finding its bytes. When
more than half of it is of no use, it is written anew under another name. The index is
replaced whole, after the data is on disk; writers hold a lock. It is only a cache:
deleting it costs a download.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import subprocess
import time
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple

from memfs.errors import DiskError, MemfsError
from memfs.workset.space import space

if TYPE_CHECKING:
    from memfs.corpus.records import FileBytes, StoredFile
    from memfs.corpus.table import Corpus

__all__ = ["Entry", "Mirror", "RipgrepError", "Snapshot"]

FORMAT = 1
BATCH_FILES = 500
BULK_SHARE = 0.2
"""From this share of missing files on, the whole content column is read, not rows."""
HITS_MAX = 200_000
"""Matching lines after which a search stops: then every file is taken for a candidate."""
OLD_S = 600
_DATA_NAME = re.compile(r"data-[0-9a-f]{12}")
_BOMS = (b"\xff\xfe", b"\xfe\xff", b"\xef\xbb\xbf")


class Entry(NamedTuple):
    """One file in the mirror."""

    path: str
    sha256: str
    """Of the file."""
    size: int
    """Of the file, in bytes."""
    mtime_ns: int
    offset: int
    length: int
    """In the flat file, without the line feed that ends it."""
    altered: bool
    """The flat form is not the file."""


@dataclass(frozen=True)
class Snapshot:
    """What the index says: it is replaced as a whole, never changed."""

    version: int
    """Of the corpus; 0 for none."""
    data: str
    """The name of the data file."""
    end: int
    """How many bytes of it are of use."""
    total_files: int
    """Of the corpus at that version; more than there are entries where some are damaged, or were over the budget."""
    entries: dict[str, Entry]
    mark: str = ""
    """What tells the corpus's version from the same one of a corpus made anew; "" where it was not asked for."""

    @cached_property
    def _ordered(self) -> tuple[list[int], list[Entry]]:
        ordered = sorted(self.entries.values(), key=lambda entry: entry.offset)
        return [entry.offset for entry in ordered], ordered

    @cached_property
    def altered(self) -> frozenset[str]:
        """The files whose flat form is not the file."""
        return frozenset(path for path, entry in self.entries.items() if entry.altered)

    def at(self, offset: int) -> Entry | None:
        """Return the file whose bytes lie at `offset`; None for bytes of no use."""
        offsets, ordered = self._ordered
        at = bisect_right(offsets, offset) - 1
        if at < 0:
            return None
        entry = ordered[at]
        return entry if offset <= entry.offset + entry.length else None


class Mirror:
    """A corpus's mirror in a host's cache folder. Constructing it reads the index, if there is one."""

    def __init__(self, cache_dir: str, uri: str) -> None:
        self.folder = os.path.join(cache_dir, "mirror", hashlib.sha256(uri.encode()).hexdigest()[:32])
        self.snapshot = _read_index(self.folder)

    @property
    def version(self) -> int:
        """The corpus version that it mirrors; 0 for none yet."""
        return self.snapshot.version

    @property
    def total_files(self) -> int:
        """How many files the corpus holds at that version."""
        return self.snapshot.total_files

    @property
    def entries(self) -> dict[str, Entry]:
        """What is here, by path."""
        return self.snapshot.entries

    def check(self) -> None:
        """Forget what is known of the data file if it has become shorter than that: ripgrep would miss lines in it."""
        try:
            size = os.path.getsize(os.path.join(self.folder, self.snapshot.data))
        except OSError:
            size = -1
        if self.snapshot.end > size:
            self.snapshot = _read_index(self.folder)

    def is_at(self, mark: str) -> bool:
        """Whether it mirrors the corpus's version with that mark, whole."""
        return bool(mark) and self.snapshot.mark == mark and len(self.entries) == self.total_files

    def update(self, corpus: Corpus, budget_bytes: int, min_free_bytes: int | None = None, *, mark: str = "") -> None:
        """Bring the mirror to the version that `corpus` reads, with at most `budget_bytes` of files.

        What does not fit is left out: there are fewer entries than `total_files` then.

        Raises:
            DiskError: the cache cannot be written, or its disk would be left with less than the floor.
            UnreachableError: the corpus cannot be read; the mirror stays as it was.
        """
        try:
            with self._locked():
                self.snapshot = _read_index(self.folder)
                # A newer version may have come since the mark was read: then the next search asks once more.
                if not self.is_at(mark):
                    self._bring(corpus, budget_bytes, min_free_bytes, mark)
        except OSError as error:
            raise DiskError(
                f"{self.folder}: {error.strerror}", hint="make room, or set MEMFS_CACHE_DIR to another disk"
            ) from error

    @contextmanager
    def _locked(self) -> Iterator[None]:
        os.makedirs(self.folder, mode=0o700, exist_ok=True)
        fd = os.open(os.path.join(self.folder, "lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            yield
        finally:
            os.close(fd)

    def _bring(self, corpus: Corpus, budget_bytes: int, min_free_bytes: int | None, mark: str) -> None:
        stored = corpus.stored()
        total, chosen = len(stored), _within(stored, budget_bytes)
        kept = {path: e for path, e in self.entries.items() if path in chosen and chosen[path].sha256 == e.sha256}
        used = sum(entry.length + 1 for entry in kept.values())
        anew = not self.snapshot.data or self.snapshot.end > 2 * used + (1 << 20)
        wanted = chosen if anew else {path: file for path, file in chosen.items() if path not in kept}
        need, disk = sum(file.size + 1 for file in wanted.values()), space(self.folder, min_free_bytes)
        if need > disk.usable_bytes:
            raise DiskError(
                f"{self.folder}: {need:,} bytes of text do not fit above the floor of {disk.floor_bytes:,} bytes",
                hint="make room, set MEMFS_CACHE_DIR to another disk, or give a smaller --budget",
            )
        name = f"data-{os.urandom(6).hex()}" if anew else self.snapshot.data
        start = 0 if anew else self.snapshot.end
        entries = {} if anew else kept
        with open(os.path.join(self.folder, name), "r+b" if not anew else "xb") as out:
            # What a killed writer left after the end that its index names.
            out.truncate(start)
            out.seek(start)
            for file in _contents(corpus, wanted, len(wanted) >= BULK_SHARE * max(total, 1)):
                flat, altered = _flat(file.data)
                mtime_ns = wanted[file.path].mtime_ns
                entries[file.path] = Entry(
                    file.path, file.sha256, len(file.data), mtime_ns, out.tell(), len(flat), altered
                )
                out.write(flat + b"\n")
            end = out.tell()
            out.flush()
            os.fdatasync(out.fileno())
        self._write_index(Snapshot(corpus.version, name, end, total, entries, mark))

    def _write_index(self, index: Snapshot) -> None:
        head = {
            "format": FORMAT,
            "version": index.version,
            "data": index.data,
            "end": index.end,
            "total_files": index.total_files,
            "mark": index.mark,
            "entries": list(index.entries.values()),
        }
        temporary = os.path.join(self.folder, f"index-{os.urandom(6).hex()}.tmp")
        try:
            with open(temporary, "x", encoding="utf-8") as handle:
                json.dump(head, handle, ensure_ascii=True, separators=(",", ":"))
            os.replace(temporary, os.path.join(self.folder, "index.json"))
        finally:
            with suppress(FileNotFoundError):
                os.unlink(temporary)
        self.snapshot = index
        for name in os.listdir(self.folder):
            file = os.path.join(self.folder, name)
            with suppress(OSError):
                # A search that began a moment ago still reads the old one.
                if name not in (index.data, "index.json", "lock") and time.time() - os.stat(file).st_mtime > OLD_S:
                    os.unlink(file)

    # -- reading -------------------------------------------------------------------------

    def read(self, entry: Entry) -> bytes | None:
        """Return the file's bytes, hash-checked; None where they are damaged, or the flat form is not the file."""
        if entry.altered:
            return None
        try:
            with open(os.path.join(self.folder, self.snapshot.data), "rb", buffering=0) as handle:
                data = os.pread(handle.fileno(), entry.length, entry.offset)
        except OSError:
            return None
        return data if hashlib.sha256(data).hexdigest() == entry.sha256 else None

    def damaged(self) -> list[str]:
        """Return the files whose flat form is not what was written, all of them read and hashed."""
        if not self.version:
            return []
        with open(os.path.join(self.folder, self.snapshot.data), "rb") as handle:
            return [path for path, entry in self.entries.items() if not _is_whole(handle, entry)]

    def mend(self, contents: Mapping[str, FileBytes]) -> None:
        """Write the files again, in place: a running server reads the same file.

        A file that the corpus has in another version by now is left to the next update.
        """
        with self._locked(), open(os.path.join(self.folder, self.snapshot.data), "r+b") as out:
            for path, file in contents.items():
                entry = self.entries[path]
                if file.sha256 == entry.sha256:
                    out.seek(entry.offset)
                    out.write(_flat(file.data)[0] + b"\n")

    @contextmanager
    def search(self, rg: str, arguments: Sequence[str]) -> Iterator[Search]:
        """Begin to search for the files with a line that ripgrep finds with `arguments` (flags and patterns).

        ripgrep runs while the caller does something else, and is ended with the block.
        """
        snapshot = self.snapshot
        if not snapshot.end:
            yield Search(snapshot, None)
            return
        # -M 1 leaves the lines themselves out of the answer: "offset:[Omitted …]".
        command = [
            rg, "--no-config", "--text", "--encoding=none", "--no-heading", "--no-filename", "--no-line-number",
            "--byte-offset", "--color=never", "--max-columns=1", "--no-max-columns-preview",
            *arguments, "--", os.path.join(self.folder, snapshot.data),
        ]  # fmt: skip
        with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as run:
            try:
                yield Search(snapshot, run)
            finally:
                run.kill()


class Search:
    """A search of one snapshot that has begun."""

    def __init__(self, snapshot: Snapshot, run: subprocess.Popen[bytes] | None) -> None:
        self.snapshot = snapshot
        self._run = run

    def files(self) -> set[str] | None:
        """Return the paths of the files that match, once; None where there are too many matches to tell.

        Raises:
            RipgrepError: ripgrep refused the pattern, in its own words.
        """
        if self._run is None:
            return set()
        assert self._run.stdout is not None
        assert self._run.stderr is not None
        found: set[str] = set()
        for count, line in enumerate(self._run.stdout):
            if count >= HITS_MAX:
                return None
            offset, colon, _ = line.partition(b":")
            entry = self.snapshot.at(int(offset)) if colon and offset.isdigit() else None
            if entry is not None:
                found.add(entry.path)
        said = self._run.stderr.read().decode(errors="replace").strip()
        if self._run.wait() not in (0, 1):
            raise RipgrepError(said.removeprefix("rg: "))
        return found


class RipgrepError(MemfsError):
    """ripgrep refused the pattern or a flag; the message is its own."""

    exit_code = 2


def _within(stored: dict[str, StoredFile], budget_bytes: int) -> dict[str, StoredFile]:
    """The newest files first, as many as fit."""
    if sum(file.size for file in stored.values()) <= budget_bytes:
        return stored
    chosen: dict[str, StoredFile] = {}
    room = budget_bytes
    for path, file in sorted(stored.items(), key=lambda item: item[1].mtime_ns, reverse=True):
        if file.size <= room:
            chosen[path] = file
            room -= file.size
    return chosen


def _contents(corpus: Corpus, wanted: dict[str, StoredFile], bulk: bool) -> Iterator[FileBytes]:
    if bulk:
        yield from (file for file in corpus.read_all() if file.path in wanted)
        return
    names = list(wanted)
    for at in range(0, len(names), BATCH_FILES):
        yield from corpus.read_whole(names[at : at + BATCH_FILES]).values()


def _is_whole(data: BinaryIO, entry: Entry) -> bool:
    """Whether the flat form of a file is as it was written; of an altered one, whether its end is in its place."""
    data.seek(entry.offset)
    found = data.read(entry.length + 1)
    if found[entry.length :] != b"\n":
        return False
    return entry.altered or hashlib.sha256(found[: entry.length]).hexdigest() == entry.sha256


def _flat(data: bytes) -> tuple[bytes, bool]:
    """Return the form that is searched, and whether it differs from the file."""
    flat = data
    if data.startswith(_BOMS):
        utf16 = data[:2] != b"\xef\xbb"
        flat = data.decode("utf-16", errors="replace").encode("utf-8", errors="replace") if utf16 else data[3:]
    if b"\0" in flat:
        flat = flat.replace(b"\0", b"\n")
    return flat, flat is not data


def _read_index(folder: str) -> Snapshot:
    nothing = Snapshot(0, "", 0, 0, {})
    try:
        status = os.lstat(folder)
        if status.st_uid != os.getuid():
            return nothing
        with open(os.path.join(folder, "index.json"), encoding="utf-8") as handle:
            head: dict[str, Any] = json.load(handle)
        if head["format"] != FORMAT or not _DATA_NAME.fullmatch(head["data"]):
            return nothing
        if os.path.getsize(os.path.join(folder, head["data"])) < head["end"]:
            return nothing
        entries = {row[0]: Entry(*row) for row in head["entries"]}
        return Snapshot(
            version=int(head["version"]),
            data=str(head["data"]),
            end=int(head["end"]),
            total_files=int(head["total_files"]),
            entries=entries,
            mark=str(head["mark"]),
        )
    except (OSError, ValueError, KeyError, TypeError):
        return nothing
