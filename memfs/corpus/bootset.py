"""The boot set: the initial map of a corpus as one object, so that a boot opens no database.

`boot/current.tar.zst` is a tar that any tar reads. Its first member is `boot.json`;
the others are the files, most wanted first. boot.json says where each file's bytes lie
(offsets from the end of its own member), so that we read the archive by slicing: no
tar parser, hence no link, device or `..` in a tar header can do anything.

    {"format": 1, "corpus_version": 12, "made": "2026-11-30T12:00:00Z",
     "total": {"files": 18450, "bytes": 81234567},
     "files": [[path, size, sha256, mtime_us, offset, why, generated], ...],
     "left_out": [[surface, files, bytes, reason], ...],
     "index": [[path, title, date or null, size], ...],
     "history": [[name, size, offset], ...]}

`history` is the Brain's Git history (memfs.brain.history), where it is small; it is no file of the tree.

It is derived: losing it costs a rebuild, never data. It imports neither lancedb nor pyarrow.
"""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from typing import Any, NamedTuple

from memfs.errors import CorruptError, printable

__all__ = [
    "HISTORY_FOLDER",
    "KEY",
    "BootFile",
    "BootSet",
    "IndexLine",
    "LeftOut",
    "index_text",
    "load",
    "pack",
    "unpack",
]

KEY = "boot/current.tar.zst"
HISTORY_FOLDER = ".memfs-history"
"""Where the names of the Brain's history begin: the path gate lets no file have such a one."""
FORMAT = 1
BLOCK = 512
UNPACKED_BYTES_MAX = 1 << 30
LEVEL = 6
MTIME_US_MAX = 1 << 53
"""In the year 2255: more would not fit into a file system's nanoseconds."""
PUBLISHED_BYTES = 2 << 20
"""The size of the map that every publish makes: of files, before compression."""
NOT_INDEXED = "not listed in the index"


class BootFile(NamedTuple):
    """One file of the initial map."""

    path: str
    data: bytes
    sha256: str
    mtime_us: int
    """Microseconds since the epoch."""
    why: str
    generated: bool = False


class LeftOut(NamedTuple):
    """How much of a surface (`knowledge`, `notes`, `sessions`, other) is not in the map, and why."""

    surface: str
    files: int
    bytes: int
    reason: str


class IndexLine(NamedTuple):
    """One line of the compact index: a file that exists, whether or not it is in the map."""

    path: str
    title: str
    date: str | None
    """YYYY-MM-DD of what it says, if dated."""
    size: int


class BootSet(NamedTuple):
    """The initial map of one corpus version."""

    corpus_version: int
    made: str
    """ISO 8601, UTC."""
    total_files: int
    total_bytes: int
    files: tuple[BootFile, ...]
    """Most wanted first: a smaller budget takes a prefix."""
    left_out: tuple[LeftOut, ...]
    index_lines: tuple[IndexLine, ...]
    """Knowledge, then notes, then sessions; newest first in each."""
    history: tuple[tuple[str, bytes], ...] = ()
    """The Brain's history by name; empty where there is none, or it is too large for a map."""


def pack(boot_set: BootSet) -> bytes:
    """Return the archive's bytes."""
    import tarfile

    import zstandard

    payload = io.BytesIO()
    rows = []
    with tarfile.open(fileobj=payload, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for file in boot_set.files:
            info = tarfile.TarInfo(file.path)
            info.size, info.mtime = len(file.data), file.mtime_us // 1_000_000
            tar.addfile(info, io.BytesIO(file.data))
            at = payload.tell() - -(-len(file.data) // BLOCK) * BLOCK
            rows.append([file.path, len(file.data), file.sha256, file.mtime_us, at, file.why, int(file.generated)])
        history = []
        for name, data in boot_set.history:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
            history.append([name, len(data), payload.tell() - -(-len(data) // BLOCK) * BLOCK])
    head = {
        "format": FORMAT,
        "corpus_version": boot_set.corpus_version,
        "made": boot_set.made,
        "total": {"files": boot_set.total_files, "bytes": boot_set.total_bytes},
        "files": rows,
        "left_out": [[x.surface, x.files, x.bytes, x.reason] for x in boot_set.left_out],
        "index": [[x.path, x.title, x.date, x.size] for x in boot_set.index_lines],
        "history": history,
    }
    text = json.dumps(head, ensure_ascii=False, separators=(",", ":")).encode()
    first = tarfile.TarInfo("boot.json")
    first.size = len(text)
    whole = first.tobuf(tarfile.USTAR_FORMAT) + text + bytes(-len(text) % BLOCK) + payload.getvalue()
    return zstandard.ZstdCompressor(level=LEVEL, write_checksum=True).compress(whole)


def load() -> None:
    """Load what `unpack` needs, ahead of time."""
    import zstandard  # noqa: F401


def unpack(archive: bytes) -> BootSet:
    """Return the boot set in `archive`. File hashes are for the writer of the files to check, once.

    Raises:
        CorruptError: damaged, or made by a newer memfs.
    """
    import zstandard

    try:
        # Told first: where a frame states its size, zstandard believes it, whatever the limit.
        if not 0 <= zstandard.frame_content_size(archive) <= UNPACKED_BYTES_MAX:
            raise ValueError("too large, or of unknown size")
        whole = zstandard.ZstdDecompressor().decompress(archive)
        json_bytes = int(whole[124:135], 8)
        head = json.loads(whole[BLOCK : BLOCK + json_bytes])
        if head["format"] > FORMAT:
            raise CorruptError("the boot set was made by a newer memfs", hint="pip install -U agent-memfs")
        payload = memoryview(whole)[BLOCK + -(-json_bytes // BLOCK) * BLOCK :]
        return _from_head(head, payload)
    except (
        zstandard.ZstdError,
        ArithmeticError,
        AttributeError,
        LookupError,
        RecursionError,
        TypeError,
        ValueError,
    ) as error:
        raise CorruptError(
            "the boot set is damaged", hint="rebuild it with: memfs boot --rebuild (no data is lost)"
        ) from error


def _from_head(head: dict[str, Any], payload: memoryview) -> BootSet:
    return BootSet(
        corpus_version=int(head["corpus_version"]),
        made=str(head["made"]),
        total_files=int(head["total"]["files"]),
        total_bytes=int(head["total"]["bytes"]),
        files=tuple(_file(row, payload) for row in head["files"]),
        left_out=tuple(
            LeftOut(str(name), int(files), int(size), str(why)) for name, files, size, why in head["left_out"]
        ),
        index_lines=tuple(
            IndexLine(printable(path), printable(title), date and printable(date), int(size))
            for path, title, date, size in head["index"]
        ),
        history=tuple((str(name), _slice(payload, size, at)) for name, size, at in head.get("history", ())),
    )


def _file(row: list[Any], payload: memoryview) -> BootFile:
    path, size, sha256, mtime_us, at, why, generated = row
    path.encode()
    if not 0 <= mtime_us < MTIME_US_MAX:
        raise ValueError("a file has an impossible time")
    return BootFile(path, _slice(payload, size, at), str(sha256), int(mtime_us), str(why), bool(generated))


def _slice(payload: memoryview, size: int, at: int) -> bytes:
    if not 0 <= at <= at + size <= len(payload):
        raise ValueError("a file lies outside the archive")
    return bytes(payload[at : at + size])


def index_text(boot_set: BootSet, budget_tokens: int, tree: str = "memory") -> str:
    """Return the compact index that a platform puts in front of the first user message.

    Lines are taken in turn from knowledge, notes and sessions, newest first, until
    `budget_tokens` (4 characters a token); what is not listed is counted, per surface.
    """
    head = (
        f"# Memory index ({boot_set.made[:10]}, corpus version {boot_set.corpus_version})\n"
        f"{boot_set.total_files:,} files are remembered; the newest lie under {tree}/. "
        f'Missing something? Run: memfs fetch "question"\n'
    )
    surfaces = _by_surface(boot_set.index_lines)
    chosen = _choose(surfaces, budget_tokens * 4 - len(head) - 60 * len(surfaces))
    parts = [head]
    for surface, lines in surfaces.items():
        parts.append(f"\n## {surface}\n")
        parts += [_line(x) for x in lines[: chosen[surface]]]
        rest = len(lines) - chosen[surface] + _unlisted(boot_set, surface)
        if rest:
            parts.append(f"- … {rest:,} more, older: memfs ls {surface}\n")
    return "".join(parts)


def _by_surface(index: Sequence[IndexLine]) -> dict[str, list[IndexLine]]:
    surfaces: dict[str, list[IndexLine]] = {}
    for line in index:
        surfaces.setdefault(line.path.split("/", 1)[0], []).append(line)
    return surfaces


def _line(line: IndexLine) -> str:
    return f"- {line.date + ' ' if line.date else ''}{line.title} — {line.path}\n"


def _choose(surfaces: dict[str, list[IndexLine]], chars: int) -> dict[str, int]:
    """Deal lines out in rounds, so that one long surface cannot crowd the others out."""
    chosen = dict.fromkeys(surfaces, 0)
    open_surfaces = list(surfaces)
    while open_surfaces:
        for surface in list(open_surfaces):
            lines = surfaces[surface]
            size = len(_line(lines[chosen[surface]])) if chosen[surface] < len(lines) else chars + 1
            if size > chars:
                open_surfaces.remove(surface)
                continue
            chosen[surface] += 1
            chars -= size
    return chosen


def _unlisted(boot_set: BootSet, surface: str) -> int:
    """Files of a surface that did not even get an index line when the boot set was made."""
    return next((x.files for x in boot_set.left_out if x.surface == surface and x.reason == NOT_INDEXED), 0)
