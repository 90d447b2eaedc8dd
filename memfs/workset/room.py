"""Decide what makes room in a tree, and what finds none. Data only: nothing is removed here.

What goes is what was used longest ago, and only what memfs laid, nobody edited and
nobody pinned. Its bytes are in the corpus version that it came from; where the corpus
has another version by now, that is what comes back. Everything in the tree counts,
the user's files too, though they never go.

Last use is the later of two times: when memfs laid the file or a command last asked
for it (`used` in the manifest), and the file's access time, which the kernel keeps
(with `relatime`: the first read after it was laid, then once a day). No read costs a
write of ours; on a `noatime` mount the first time has to do.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

from memfs.workset.manifest import Laid, Seen
from memfs.workset.space import Limits
from memfs.workset.tree import Tree

__all__ = ["Asked", "Going", "Holdings", "Room", "holdings", "least_recent", "make_room"]


class Asked(NamedTuple):
    """A file that is to be written."""

    path: str
    size: int
    replaces: int
    """Bytes of the older version that goes when it comes; 0 if nothing lies there."""
    rank: int
    """The smaller, the sooner it gets room."""


class Going(NamedTuple):
    """A file to evict; `seen` is what must still lie there."""

    path: str
    size: int
    used: int
    """Last use, seconds since the epoch."""
    seen: Seen


class Holdings(NamedTuple):
    """What lies in a tree."""

    bytes_here: int
    """Of all plain files, the user's too."""
    files_here: int
    evictable: tuple[Going, ...]
    """Least recently used first."""


class Room(NamedTuple):
    """What goes, and which of the files that were asked for find no room, each with the reason."""

    evict: tuple[Going, ...]
    without: dict[str, str]


def make_room(asked: Sequence[Asked], tree: Tree | None, in_use: Collection[str], limits: Limits) -> Room:
    """Decide what to evict so that `asked` fits below the tree's limit and above its disk's floor.

    Files `in_use` stay, and so do those that are replaced. A file that has no room even
    when all else has gone is in `without`; what the floor forbids is not: writing stops there.
    `limits` count for a folder that is no tree yet (`tree` is None); a tree has its own.
    """
    if tree is None:
        return Room((), {} if limits.max_bytes is None else _without(asked, 0, limits.max_bytes))
    limit, disk = tree.max_bytes, tree.space()
    short = sum(disk.on_disk(a.size) for a in asked) - disk.usable_bytes if asked else 0
    if limit is None and short <= 0:
        return Room((), {})
    have = holdings(tree, spare={*in_use, *(a.path for a in asked)})
    if limit is None:
        return Room(least_recent(have.evictable, short), {})
    without = _without(asked, have.bytes_here - sum(going.size for going in have.evictable), limit)
    coming = sum(a.size - a.replaces for a in asked if a.path not in without)
    short -= sum(disk.on_disk(a.size) for a in asked if a.path in without)
    return Room(least_recent(have.evictable, max(have.bytes_here + coming - limit, short)), without)


def _without(asked: Sequence[Asked], taken: int, limit: int) -> dict[str, str]:
    """Return which of `asked` do not fit beside the `taken` bytes that stay, each with the reason."""
    without: dict[str, str] = {}
    for one in sorted(asked, key=lambda a: (a.rank, a.path)):
        more = one.size - one.replaces
        if more > 0 and taken + more > limit:
            without[one.path] = _reason(limit, taken, one)
        else:
            taken += more
    return without


def _reason(limit: int, taken: int, one: Asked) -> str:
    older = "the older version stays: " if one.replaces else ""
    return (
        f"{older}its {one.size:,} bytes go over the limit of {limit:,} (--max-size); "
        f"{taken:,} are pinned, yours or wanted more"
    )


def holdings(tree: Tree, spare: Collection[str] = ()) -> Holdings:
    """Look at every file of the tree; those in `spare` count, and are not evictable."""
    rows = tree.manifest.all()
    count = total = 0
    found: list[Going] = []
    for path, seen in tree.files():
        count, total = count + 1, total + seen.size
        row = rows.get(path)
        if row is not None and path not in spare and not row.pinned and tree.is_clean(row, seen):
            found.append(Going(path, seen.size, _last_use(tree, row), seen))
    return Holdings(total, count, tuple(sorted(found, key=lambda going: (going.used, going.path))))


def _last_use(tree: Tree, row: Laid) -> int:
    return max(row.used, tree.accessed(row.path))


def least_recent(evictable: Iterable[Going], need_bytes: int) -> tuple[Going, ...]:
    """Return the first of `evictable` that free `need_bytes` together; all of them if that is not enough."""
    going: list[Going] = []
    for one in evictable:
        if need_bytes <= 0:
            break
        going.append(one)
        need_bytes -= one.size
    return tuple(going)
