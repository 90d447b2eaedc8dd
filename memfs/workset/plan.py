"""Decide what laying a set of files into a tree would do. Data only: nothing is written here."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from enum import Enum
from typing import NamedTuple

from memfs import paths
from memfs.errors import PathError
from memfs.workset.manifest import Laid, Pin, Seen
from memfs.workset.room import Asked, Going, make_room
from memfs.workset.space import NO_LIMITS, Limits
from memfs.workset.tree import Tree

__all__ = ["PART_BYTES", "Action", "Plan", "Step", "Wanted", "diff", "name_fault"]

PART_BYTES = 64 << 20


class Action(str, Enum):
    """What a step does, and why it may do nothing."""

    WRITE = "write"
    """Nothing lies there."""
    REPLACE = "replace"
    """An older version lies there, unedited."""
    ADOPT = "adopt"
    """The right bytes lie there, but the manifest does not know it."""
    PRESENT = "present"
    """It is here already."""
    EDITED = "edited"
    """The file was edited locally, and the corpus still has what it was edited from: the edit is kept."""
    CONFLICT = "conflict"
    """The file was edited, or made, locally, and the corpus has something else: the local file is kept."""
    REFUSED = "refused"
    """It cannot be laid; `reason` says why."""
    NO_ROOM = "no room"
    """It would go over the tree's limit, though all that may go has gone: what lies there stays."""


class Wanted(NamedTuple):
    """A file that should be in the tree."""

    path: str
    sha256: str
    size: int
    mtime_ns: int
    version: int
    why: str
    pinned: Pin = Pin.NO
    generated: bool = False
    rank: int = 0
    """Where not all have room, the smaller comes first."""


class Step(NamedTuple):
    """One file's decision. `seen` is what lies there now, which must still be so when the step is applied."""

    wanted: Wanted
    action: Action
    seen: Seen | None = None
    reason: str = ""


class Plan(NamedTuple):
    """All decisions, one a file, in path order, and the files that go to make room for them."""

    steps: tuple[Step, ...]
    evict: tuple[Going, ...] = ()

    def having(self, *actions: Action) -> tuple[Step, ...]:
        """Return the steps with one of `actions`."""
        return tuple(step for step in self.steps if step.action in actions)

    def needed(self) -> tuple[Wanted, ...]:
        """Return the files whose bytes the plan writes."""
        return tuple(step.wanted for step in self.having(Action.WRITE, Action.REPLACE))

    def without(self, paths: Collection[str]) -> Plan:
        """Return the plan without the steps for `paths`."""
        return self._replace(steps=tuple(step for step in self.steps if step.wanted.path not in paths))

    def parts(self, bytes_max: int = PART_BYTES) -> Iterator[Plan]:
        """Yield the plan cut up, so that the bytes of one part fit in memory; at least one part."""
        # What goes, goes with the first part.
        steps, evict = list[Step](), self.evict
        size = 0
        for step in self.steps:
            steps.append(step)
            size += step.wanted.size
            if size >= bytes_max:
                yield Plan(tuple(steps), evict)
                steps, evict, size = [], (), 0
        yield Plan(tuple(steps), evict)


def diff(wanted: Iterable[Wanted], tree: Tree | None, limits: Limits = NO_LIMITS) -> Plan:
    """Compare what should be in the tree with the manifest and the disk, and find room for it.

    `tree` is None for a folder not made yet, for which `limits` count; a tree has its own.
    """
    unique = {w.path: w for w in wanted}
    refused = {path: reason for path in unique if (reason := name_fault(path))}
    refused |= _collisions([path for path in unique if path not in refused])
    laid = {} if tree is None else tree.manifest.some(path for path in unique if path not in refused)
    steps = tuple(_step(unique[path], laid.get(path), tree, refused.get(path)) for path in sorted(unique))
    return _within_limits(steps, tree, limits)


def _within_limits(steps: tuple[Step, ...], tree: Tree | None, limits: Limits) -> Plan:
    """Find room for what is to be written; what has none is not written."""
    asked = [
        Asked(step.wanted.path, step.wanted.size, step.seen.size if step.seen else 0, step.wanted.rank)
        for step in steps
        if step.action in (Action.WRITE, Action.REPLACE)
    ]
    room = make_room(asked, tree, {step.wanted.path for step in steps}, limits)
    if not room.without:
        return Plan(steps, room.evict)
    return Plan(
        tuple(
            step._replace(action=Action.NO_ROOM, reason=reason)
            if (reason := room.without.get(step.wanted.path))
            else step
            for step in steps
        ),
        room.evict,
    )


def _step(wanted: Wanted, laid: Laid | None, tree: Tree | None, reason: str | None) -> Step:
    if reason:
        return Step(wanted, Action.REFUSED, reason=reason)
    found = None if tree is None else tree.look(wanted.path)
    if found is None:
        return Step(wanted, Action.WRITE)
    if isinstance(found, str) or tree is None:
        return Step(wanted, Action.REFUSED, reason=str(found))
    if laid is not None and laid.pending is None and found == laid.seen:
        same = laid.sha256 == wanted.sha256
        return Step(wanted, Action.PRESENT if same else Action.REPLACE, found)
    on_disk = tree.sha256(wanted.path)
    if on_disk == wanted.sha256:
        return Step(wanted, Action.ADOPT, found)
    if laid is not None and on_disk in (laid.sha256, laid.pending):
        return Step(wanted, Action.REPLACE, found)
    if laid is not None and laid.sha256 == wanted.sha256:
        return Step(wanted, Action.EDITED, found, "edited here; your edit is kept")
    origin = "edited here" if laid is not None else "a file of yours lies there"
    return Step(wanted, Action.CONFLICT, found, f"{origin}, and the corpus has another; yours is kept")


def name_fault(path: str) -> str:
    """Return why memory/ cannot hold a file of this name on every system, "" if it can."""
    try:
        return "" if paths.check(path) == path else "is not in Unicode NFC"
    except PathError as error:
        return error.reason


def _collisions(wanted: Sequence[str]) -> Iterable[tuple[str, str]]:
    """Yield (path, reason) of those that cannot lie beside the others: a folder beats a file, a first name the next."""
    folders = {paths.fold(folder): folder for path in wanted for folder in paths.ancestors(path)}
    first: dict[str, str] = {}
    for path in sorted(wanted):
        key = paths.fold(path)
        other = first.setdefault(key, path)
        if other != path:
            yield path, f"differs only in case or Unicode form from {other!r}"
        elif key in folders:
            yield path, f"other files have {folders[key]!r} as their folder"
