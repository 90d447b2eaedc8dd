"""memfs evict: give room back. What goes can be fetched again; nothing of the user's goes. Needs no network."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from memfs import paths
from memfs.errors import InputError
from memfs.workset import named
from memfs.workset.apply import apply
from memfs.workset.manifest import Laid
from memfs.workset.plan import Plan
from memfs.workset.room import Going, Holdings, holdings, least_recent
from memfs.workset.tree import Tree

__all__ = ["Evicted", "Kept", "evict"]


@dataclass(frozen=True, slots=True)
class Kept:
    """A file that was asked for and stays."""

    path: str
    size: int
    reason: str


@dataclass(frozen=True, slots=True)
class Evicted:
    """What went, what stays and why. Paths are sorted."""

    evicted: tuple[str, ...]
    bytes_freed: int
    kept: tuple[Kept, ...]
    """Of what was asked for; nothing where `to_bytes` was reached."""
    refused: bool
    """True if a file named by itself stays, or `to_bytes` was not reached."""
    files_here: int
    """After this, the user's own included."""
    bytes_here: int
    to_bytes: int | None
    dry_run: bool


def evict(
    tree: Tree, names: Sequence[str] = (), *, to_bytes: int | None = None, everything: bool = False,
    dry_run: bool = False,
) -> Evicted:  # fmt: skip
    """Remove files that memfs laid, nobody edited and nobody pinned.

    `names` are files and folders; `everything` means all of the tree; `to_bytes` takes, of
    those or of all, what was used longest ago until no more than that lies in the tree.

    Raises:
        InputError: nothing says what to evict, or `everything` comes with something else.
        NotFoundError: nothing lies here under a name; nothing is evicted then.
    """
    if everything and (names or to_bytes is not None):
        raise InputError("--all stands alone", hint="leave out the paths and --to")
    if not everything and not names and to_bytes is None:
        raise InputError("nothing says what to evict", hint="memfs evict PATH…, memfs evict --to 50MB, or --all")
    have = holdings(tree)
    seen = {path: found.size for path, found in tree.files()}
    asked = named.local(seen, names) if names else sorted(seen)
    wanted = set(asked)
    going = tuple(one for one in have.evictable if one.path in wanted)
    if to_bytes is not None:
        going = least_recent(going, have.bytes_here - to_bytes)
    gone = going if dry_run else apply(Plan((), going), tree, {}).evicted
    freed = sum(one.size for one in gone)
    missed = to_bytes is not None and have.bytes_here - freed > to_bytes
    reached = to_bytes is not None and not missed
    kept = () if reached else tuple(_kept(tree, asked, seen, gone, have))
    named_alone = {paths.prefix(name).rstrip("/") for name in names}
    return Evicted(
        evicted=tuple(sorted(one.path for one in gone)),
        bytes_freed=freed,
        kept=kept,
        refused=missed or any(one.path in named_alone for one in kept),
        files_here=have.files_here - len(gone),
        bytes_here=have.bytes_here - freed,
        to_bytes=to_bytes,
        dry_run=dry_run,
    )


def _kept(
    tree: Tree, asked: Sequence[str], seen: dict[str, int], gone: Sequence[Going], have: Holdings
) -> Iterator[Kept]:
    rows = tree.manifest.all()
    away = {one.path for one in gone}
    could = {one.path for one in have.evictable}
    for path in asked:
        if path not in away:
            yield Kept(path, seen[path], _reason(rows.get(path), path in could))


def _reason(row: Laid | None, could: bool) -> str:
    if row is None:
        return "yours: memfs did not lay it"
    if could:
        return "written to while it was being evicted"
    return "pinned: memfs unpin it first" if row.pinned else "edited here"
