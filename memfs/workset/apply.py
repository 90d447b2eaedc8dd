"""Carry out a plan: the only code that writes files into a tree.

Order: the manifest learns what is coming and what goes, what goes is removed, the files
are put in place one by one (each whole, or not at all), the manifest settles. Killed at
any point, every file in the tree is a whole one, and the manifest knows it; what a
killed run left unsettled, the next one settles.
"""

from __future__ import annotations

import errno
import hashlib
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

from memfs.errors import CorruptError, DiskError
from memfs.workset.manifest import GOING, Laid, Manifest, Pin, Seen
from memfs.workset.plan import Action, Plan, Step, Wanted
from memfs.workset.room import Going
from memfs.workset.space import Space
from memfs.workset.tree import Tree

__all__ = ["Applied", "Unsettled", "apply", "recover", "unsettled"]


class Applied(NamedTuple):
    """What became of a plan."""

    written: int
    bytes_written: int
    kept: tuple[Step, ...]
    """Local edits and conflicts: left as they are."""
    refused: tuple[Step, ...]
    """Not laid, for lack of room too; `reason` says why."""
    evicted: tuple[Going, ...] = ()
    """What went to make room."""


def apply(plan: Plan, tree: Tree, contents: Mapping[str, bytes]) -> Applied:
    """Lay the plan's files; `contents` gives the bytes of `plan.needed()` by path.

    Raises:
        CorruptError: bytes do not match their hash; nothing of that file is written.
        DiskError: the disk is full, at its floor, or refuses; files laid so far stay, and are known.
    """
    steps = plan.having(Action.WRITE, Action.REPLACE)
    for step in steps:
        _verify(step.wanted, contents[step.wanted.path])
    now = int(time.time())
    known_steps = plan.having(Action.ADOPT, Action.PRESENT)
    before = _announce(tree, steps, known_steps, plan.evict, now)
    settled: list[Laid] = []
    evicted: list[Going] = []
    kept = list(plan.having(Action.EDITED, Action.CONFLICT))
    refused = list(plan.having(Action.REFUSED, Action.NO_ROOM))
    try:
        for going in plan.evict:
            _evict(going, tree, evicted)
        disk = tree.space()
        whole = _lay_new_folders(steps, tree, disk, contents, now, before, settled)
        for step in steps:
            if step.wanted.path in whole:
                continue
            disk = _above_floor(disk, step, tree)
            _lay(step, tree, contents, now, before.get(step.wanted.path), settled, kept, refused)
    finally:
        known = [_known(step, before.get(step.wanted.path), now) for step in known_steps]
        gone = {going.path for going in evicted}
        unevicted = [before[g.path] for g in plan.evict if g.path in before and g.path not in gone]
        _settle(tree.manifest, before, steps, [*settled, *known, *unevicted], evicted)
        _hear(tree.manifest, plan.having(Action.CONFLICT))
    tree.prune({going.path.rpartition("/")[0] for going in evicted})
    return Applied(len(settled), sum(f.size for f in settled), tuple(kept), tuple(refused), tuple(evicted))


class Unsettled(NamedTuple):
    """A row that a killed run announced, and what it has to become: `row` is None where it goes."""

    path: str
    was: str
    row: Laid | None


def unsettled(tree: Tree, spare: Collection[str] = ()) -> Iterator[Unsettled]:
    """Yield what a killed run left in the manifest, `spare` left out, and what is so now."""
    waiting = [path for path in tree.manifest.pending() if path not in spare]
    for path, row in tree.manifest.some(waiting).items():
        what = "was being removed" if row.pending == GOING else "was being written"
        yield Unsettled(path, what, _as_found(tree, row))


def _as_found(tree: Tree, row: Laid) -> Laid | None:
    found = tree.look(row.path)
    was_here = row.seen is not None
    if not isinstance(found, Seen):
        # Evicted, or never written; a file that lay there before and is gone was deleted by the user.
        return None if row.pending == GOING or not was_here else row._replace(pending=None)
    on_disk = tree.sha256(row.path)
    if on_disk == row.pending:
        return row._replace(sha256=on_disk, size=found.size, seen=found, pending=None)
    if on_disk == row.sha256:
        return row._replace(seen=found, pending=None)
    # The user's: an edit of what was laid, or a file of their own.
    return row._replace(pending=None) if was_here else None


def recover(tree: Tree, spare: Collection[str] = ()) -> int:
    """Settle what a killed run left in the manifest, `spare` left out; return how many rows. Inside `writing()`."""
    found = list(unsettled(tree, spare))
    tree.manifest.record(left.row for left in found if left.row is not None)
    tree.manifest.forget(left.path for left in found if left.row is None)
    return len(found)


def _evict(going: Going, tree: Tree, evicted: list[Going]) -> None:
    try:
        tree.remove(going.path, going.seen)
    except FileNotFoundError:
        return
    except (FileExistsError, NotADirectoryError):
        # Written to since the plan was made: it is the user's now.
        return
    except OSError as error:
        raise _disk_error(error, tree.root) from error
    evicted.append(going)


def _above_floor(disk: Space, step: Step, tree: Tree) -> Space:
    """Return what is left once the step's file is written; the disk is asked anew only when it looks full.

    Raises:
        DiskError: the file would leave less than the floor.
    """
    need = disk.on_disk(step.wanted.size)
    if need > disk.usable_bytes:
        disk = tree.space()
        if need > disk.usable_bytes:
            raise DiskError(
                f"{tree.root}: no space left on the device above the floor of {disk.floor_bytes:,} bytes "
                f"({disk.free_bytes:,} are free)",
                hint="make room (memfs evict --all drops what can be fetched again), or lower MEMFS_MIN_FREE",
            )
    return Space(disk.free_bytes - need, *disk[1:])


def _verify(wanted: Wanted, data: bytes) -> None:
    if hashlib.sha256(data).hexdigest() != wanted.sha256:
        raise CorruptError(
            f"{wanted.path}: the bytes that arrived do not match their hash", hint="run the command again"
        )


def _announce(
    tree: Tree, steps: tuple[Step, ...], known_steps: tuple[Step, ...], evict: tuple[Going, ...], now: int
) -> dict[str, Laid]:
    """Write the pending rows, and settle what a killed run left; return the rows as they were."""
    planned = {*(step.wanted.path for step in (*steps, *known_steps)), *(going.path for going in evict)}
    before = tree.manifest.some(planned)
    left = tree.manifest.pending()
    coming = []
    for step in steps:
        old = before.get(step.wanted.path)
        coming.append(
            old._replace(pending=step.wanted.sha256)
            if old
            else _laid(step.wanted, now, None)._replace(pending=step.wanted.sha256)
        )
    coming += [before[going.path]._replace(pending=GOING) for going in evict if going.path in before]
    if coming or left:
        with tree.manifest.writing():
            recover(tree, planned)
            tree.manifest.record(coming)
    return before


def _lay_new_folders(
    steps: tuple[Step, ...], tree: Tree, disk: Space, contents: Mapping[str, bytes], now: int,
    before: Mapping[str, Laid], settled: list[Laid],
) -> set[str]:  # fmt: skip
    """Lay each top folder that is not there yet as a whole; return the paths laid. All others go one by one."""
    by_top: dict[str, list[Wanted]] = {}
    for step in steps:
        top, slash, _ = step.wanted.path.partition("/")
        if slash and step.seen is None:
            by_top.setdefault(top, []).append(step.wanted)
    laid: set[str] = set()
    for top, wanted in by_top.items():
        need = sum(disk.on_disk(want.size) for want in wanted)
        if need > disk.usable_bytes or tree.look(top) is not None:
            continue
        try:
            seen = tree.write_folder(top, ((w.path[len(top) + 1 :], contents[w.path], w.mtime_ns) for w in wanted))
        except OSError:
            # Somebody made it meanwhile, or the disk refuses: one by one, it is known which.
            continue
        disk = Space(disk.free_bytes - need, *disk[1:])
        for want, found in zip(wanted, seen, strict=True):
            row = _laid(want, now, found)
            settled.append(row._replace(pinned=_pin(before.get(want.path), row)))
            laid.add(want.path)
    return laid


def _lay(
    step: Step, tree: Tree, contents: Mapping[str, bytes], now: int, old: Laid | None,
    settled: list[Laid], kept: list[Step], refused: list[Step],
) -> None:  # fmt: skip
    wanted = step.wanted
    folder, _, name = wanted.path.rpartition("/")
    try:
        if step.seen is None:
            seen = tree.write(folder, name, contents[wanted.path], wanted.mtime_ns)
        else:
            seen = tree.replace(folder, name, contents[wanted.path], wanted.mtime_ns, step.seen)
    except FileExistsError:
        kept.append(Step(wanted, Action.CONFLICT, reason="written here meanwhile; yours is kept"))
    except NotADirectoryError:
        refused.append(Step(wanted, Action.REFUSED, reason="a file or a symlink is in the way of its folder"))
    except OSError as error:
        raise _disk_error(error, tree.root) from error
    else:
        row = _laid(wanted, now, seen)
        settled.append(row._replace(pinned=_pin(old, row)))


def _disk_error(error: OSError, root: str) -> DiskError:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return DiskError(f"{root}: no space left on the device", hint="make room, or boot with a smaller --budget")
    return DiskError(f"{root}: {error.strerror}", hint="check the folder's owner and mode")


def _laid(wanted: Wanted, now: int, seen: Seen | None) -> Laid:
    return Laid(
        path=wanted.path,
        sha256=wanted.sha256,
        size=wanted.size,
        version=wanted.version,
        why=wanted.why,
        pinned=wanted.pinned,
        generated=wanted.generated,
        used=now,
        seen=seen,
    )


def _known(step: Step, old: Laid | None, now: int) -> Laid:
    """The row of a file that was here already: why it came first stays, a pin is added."""
    fresh = _laid(step.wanted, now, step.seen)
    if old is None:
        return fresh
    return fresh._replace(why=old.why, pinned=_pin(old, fresh), version=max(old.version, fresh.version))


def _hear(manifest: Manifest, conflicts: tuple[Step, ...]) -> None:
    """Remember that the corpus has another version of these edited files: `status` says so without asking again."""
    if conflicts:
        with manifest.writing():
            for step in conflicts:
                manifest.hear([(step.wanted.path, step.wanted.sha256)], step.wanted.version)


def _pin(old: Laid | None, fresh: Laid) -> Pin:
    """The stronger of two: a user's pin outlasts the map's."""
    return fresh.pinned if old is None else max(old.pinned, fresh.pinned)


def _settle(
    manifest: Manifest,
    before: Mapping[str, Laid],
    steps: tuple[Step, ...],
    rows: list[Laid],
    evicted: Sequence[Going],
) -> None:
    """Record what is so now; a step that was not carried out gets its old row back, or none."""
    done = {row.path for row in rows}
    undone = [step.wanted.path for step in steps if step.wanted.path not in done]
    with manifest.writing():
        manifest.record([*rows, *(before[path] for path in undone if path in before)])
        manifest.forget(path for path in undone if path not in before)
        manifest.forget(going.path for going in evicted)
