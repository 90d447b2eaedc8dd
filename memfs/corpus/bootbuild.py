"""Choose the initial map of a corpus version, and publish it as its boot set.

What is wanted most: the indices; then knowledge pages, notes and sessions, each newest
first and each with a share of the budget, so that a thousand transcripts never crowd
out the wiki. What a surface does not use goes to the others.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from datetime import datetime, timezone
from typing import TYPE_CHECKING

from memfs.corpus import bootset
from memfs.corpus.bootset import NOT_INDEXED, BootFile, BootSet, IndexLine, LeftOut
from memfs.corpus.records import MTIME_MAX, FileInfo
from memfs.corpus.rows import file_infos
from memfs.errors import CorruptError, NotFoundError

if TYPE_CHECKING:
    import pyarrow as pa

    from memfs.corpus.table import Corpus

__all__ = ["build", "is_current", "publish"]

SHARES = {"knowledge": 0.4, "notes": 0.25, "sessions": 0.35}
"""Of the budget; any other top folder shares what is left."""
FILES_MAX = 2_000
ONE_FILE_SHARE = 0.25
"""A file larger than this share of the budget is left for `memfs get`."""
INDEX_LINES_MAX = 400
"""Per surface, in the compact index."""
SESSION_LINES_MAX = 500
SESSION_INDEX = "sessions/index.md"
HISTORY_BYTES_MAX = 1 << 20
"""A longer history is left to the commands that need it."""
OVER_BUDGET = "over the boot budget"
DAMAGED = "damaged: memfs doctor says more"
TOO_LARGE = "larger than a quarter of the boot budget"


def publish(corpus: Corpus, budget_bytes: int) -> BootSet:
    """Build the boot set of the corpus's version and store it. The caller holds the lease."""
    made = build(corpus, budget_bytes)
    corpus.objects.write(bootset.KEY, bootset.pack(made))
    return made


def is_current(corpus: Corpus) -> bool:
    """Return whether the published boot set is of the version that the corpus reads; one GET."""
    try:
        fetched = corpus.objects.read(bootset.KEY)
        return fetched is not None and bootset.unpack(fetched.data).corpus_version == corpus.version
    except (NotFoundError, CorruptError):
        return False


def build(corpus: Corpus, budget_bytes: int) -> BootSet:
    """Return the initial map, of at most `budget_bytes` of files."""
    rows = corpus.file_rows()
    surfaces = {name: _newest(rows, name) for name in _surface_names(rows)}
    session_index = _session_index(corpus.version, surfaces)
    chosen, left_out = _choose(surfaces, budget_bytes - (session_index.size if session_index else 0))
    stored = corpus.read_whole([info.path for info in chosen])
    left_out += _damaged([info for info in chosen if info.path not in stored])
    files = [
        BootFile(info.path, stored[info.path].data, info.sha256, _micros(info.mtime), "boot")
        for info in chosen
        if info.path in stored
    ]
    if session_index:
        files.insert(0, session_index.file)
    return BootSet(
        corpus_version=corpus.version,
        made=datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
        total_files=len(rows),
        total_bytes=_sum(rows),
        files=tuple(files),
        left_out=tuple(left_out),
        index_lines=tuple(line for surface in surfaces.values() for line in _index_lines(surface)),
        history=_history(corpus) if "knowledge" in surfaces else (),
    )


def _history(corpus: Corpus) -> tuple[tuple[str, bytes], ...]:
    found = {name: file.data for name, file in sorted(corpus.history().items())}
    return tuple(found.items()) if sum(map(len, found.values())) <= HISTORY_BYTES_MAX else ()


class _Surface:
    """One top folder: its newest files as values, the rest as numbers."""

    def __init__(self, name: str, rows: pa.Table, newest: pa.Table) -> None:
        self.name, self.count, self.bytes = name, len(rows), _sum(rows)
        self.newest = list(file_infos(newest))


class _Generated:
    def __init__(self, file: BootFile) -> None:
        self.file, self.size = file, len(file.data)


def _surface_names(rows: pa.Table) -> list[str]:
    import pyarrow.compute as pc

    tops = (
        pc.unique(pc.list_element(pc.split_pattern(rows["path"], "/", max_splits=1), 0)).to_pylist()
        if len(rows)
        else []
    )
    return [name for name in SHARES if name in tops] + sorted(name for name in tops if name not in SHARES)


def _newest(rows: pa.Table, name: str) -> _Surface:
    """A surface's files, index files first, then by what they say (event time), then by when they were written."""
    import pyarrow as pa
    import pyarrow.compute as pc

    inside = pc.or_(pc.equal(rows["path"], name), pc.starts_with(rows["path"], f"{name}/"))
    mine = rows.filter(inside)
    depth = pc.count_substring(mine["path"], "/")
    is_index = pc.ends_with(mine["path"], "index.md")
    first = pc.if_else(is_index, depth, 99)
    when = pc.coalesce(mine["event_time"], mine["mtime"])
    order = [("first", "ascending"), ("when", "descending"), ("path", "ascending")]
    ranked = pa.table({"first": first, "when": when, "path": mine["path"]})
    # The newest few only: sorting copies all columns of all files.
    best = pc.select_k_unstable(ranked, min(FILES_MAX, len(mine)), order)
    return _Surface(name, mine, mine.take(best))


def _choose(surfaces: dict[str, _Surface], budget_bytes: int) -> tuple[list[FileInfo], list[LeftOut]]:
    room = {name: int(budget_bytes * SHARES.get(name, 0)) for name in surfaces}
    spare = budget_bytes - sum(room.values())
    picked: dict[str, list[FileInfo]] = {}
    for name, surface in surfaces.items():
        picked[name], used = _fill(surface.newest, room[name], budget_bytes)
        spare += room[name] - used
    # Second round: what the surfaces left over, newest first across them.
    for name, surface in surfaces.items():
        have = {info.path for info in picked[name]}
        more, used = _fill([i for i in surface.newest if i.path not in have], spare, budget_bytes)
        picked[name] += more
        spare -= used
    ordered = list(_interleave([picked[name] for name in surfaces]))[:FILES_MAX]
    return ordered, list(_left_out(surfaces, ordered, budget_bytes))


def _fill(files: Sequence[FileInfo], room: int, budget_bytes: int) -> tuple[list[FileInfo], int]:
    taken, used = [], 0
    for info in files:
        if used + info.size <= room and info.size <= max(budget_bytes * ONE_FILE_SHARE, 4096):
            taken.append(info)
            used += info.size
    return taken, used


def _interleave(groups: Sequence[Sequence[FileInfo]]) -> Iterator[FileInfo]:
    """Take the groups' files in turn: any prefix of the result holds the newest of each."""
    for at in range(max(map(len, groups), default=0)):
        yield from (group[at] for group in groups if at < len(group))


def _left_out(surfaces: dict[str, _Surface], chosen: Sequence[FileInfo], budget_bytes: int) -> Iterator[LeftOut]:
    here = {info.path for info in chosen}
    for name, surface in surfaces.items():
        inside = [info for info in surface.newest if info.path in here]
        large = [i for i in surface.newest if i.path not in here and i.size > budget_bytes * ONE_FILE_SHARE]
        if large:
            yield LeftOut(name, len(large), sum(i.size for i in large), TOO_LARGE)
        files = surface.count - len(inside) - len(large)
        if files:
            known = sum(i.size for i in inside) + sum(i.size for i in large)
            yield LeftOut(name, files, surface.bytes - known, OVER_BUDGET)
        unlisted = surface.count - min(surface.count, INDEX_LINES_MAX)
        if unlisted:
            yield LeftOut(name, unlisted, 0, NOT_INDEXED)


def _damaged(files: Sequence[FileInfo]) -> Iterator[LeftOut]:
    for name in sorted({info.path.split("/", 1)[0] for info in files}):
        sizes = [info.size for info in files if info.path.split("/", 1)[0] == name]
        yield LeftOut(name, len(sizes), sum(sizes), DAMAGED)


def _index_lines(surface: _Surface) -> Iterator[IndexLine]:
    for info in surface.newest[:INDEX_LINES_MAX]:
        yield IndexLine(info.path, info.title, _date(info), info.size)


def _session_index(version: int, surfaces: dict[str, _Surface]) -> _Generated | None:
    """`sessions/index.md`, newest first, unless the corpus holds one of its own."""
    sessions = surfaces.get("sessions")
    if sessions is None or any(info.path == SESSION_INDEX for info in sessions.newest):
        return None
    lines = [
        f"- {_date(info) or 'undated'} [{_plain(info.title)}]({_href(info.path)})\n"
        for info in sessions.newest[:SESSION_LINES_MAX]
    ]
    rest = sessions.count - len(lines)
    more = f"\n{rest:,} older sessions are not listed here: memfs ls sessions/\n" if rest else ""
    text = f"# Sessions\n\nMade by memfs at corpus version {version}, newest first.\n\n{''.join(lines)}{more}"
    data = text.encode()
    newest = max(_micros(info.mtime) for info in sessions.newest)
    return _Generated(BootFile(SESSION_INDEX, data, hashlib.sha256(data).hexdigest(), newest, "boot", generated=True))


def _plain(title: str) -> str:
    return " ".join(title.split()).replace("[", "(").replace("]", ")")


def _href(path: str) -> str:
    relative = path.removeprefix("sessions/")
    return f"<{relative}>" if " " in relative or "(" in relative else relative


def _date(info: FileInfo) -> str | None:
    return info.event_time.strftime("%Y-%m-%d") if info.event_time else None


def _micros(when: datetime) -> int:
    return int(min(when, MTIME_MAX).timestamp() * 1_000_000)


def _sum(rows: pa.Table) -> int:
    import pyarrow.compute as pc

    return int(pc.sum(rows["file_size"]).as_py() or 0) if len(rows) else 0
