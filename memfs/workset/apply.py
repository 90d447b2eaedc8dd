"""Carry out a plan: the only code that writes files into a tree.

Order: the manifest learns what is coming, the files are put in place one by one
(each whole, or not at all), the manifest settles. Killed at any point, every file in
the tree is a whole one, and the manifest knows it.
"""

from __future__ import annotations

import errno
import hashlib
import time
from collections.abc import Mapping
from typing import NamedTuple

from memfs.errors import CorruptError, DiskError
from memfs.workset.manifest import Laid, Manifest, Seen
from memfs.workset.plan import Action, Plan, Step, Wanted
from memfs.workset.tree import Tree

__all__ = ["Applied", "apply"]


class Applied(NamedTuple):
    """What became of a plan."""

    written: int
    bytes_written: int
    kept: tuple[Step, ...]
    """Local edits and conflicts: left as they are."""
    refused: tuple[Step, ...]


def apply(plan: Plan, tree: Tree, contents: Mapping[str, bytes]) -> Applied:
    """Lay the plan's files; `contents` gives the bytes of `plan.needed()` by path.

    Raises:
        CorruptError: bytes do not match their hash; nothing of that file is written.
        DiskError: the disk is full or refuses; files laid so far stay, and are known.
    """
    steps = plan.having(Action.WRITE, Action.REPLACE)
    for step in steps:
        _verify(step.wanted, contents[step.wanted.path])
    now = int(time.time())
    known_steps = plan.having(Action.ADOPT, Action.PRESENT)
    before = _announce(tree, steps, known_steps, now)
    settled: list[Laid] = []
    kept = list(plan.having(Action.EDITED, Action.CONFLICT))
    refused = list(plan.having(Action.REFUSED))
    try:
        for step in steps:
            _lay(step, tree, contents, now, settled, kept, refused)
    finally:
        known = [_known(step, before.get(step.wanted.path), now) for step in known_steps]
        _settle(tree.manifest, before, steps, [*settled, *known])
        _hear(tree.manifest, plan.having(Action.CONFLICT))
    return Applied(len(settled), sum(f.size for f in settled), tuple(kept), tuple(refused))


def _verify(wanted: Wanted, data: bytes) -> None:
    if hashlib.sha256(data).hexdigest() != wanted.sha256:
        raise CorruptError(
            f"{wanted.path}: the bytes that arrived do not match their hash", hint="run the command again"
        )


def _announce(tree: Tree, steps: tuple[Step, ...], known_steps: tuple[Step, ...], now: int) -> dict[str, Laid]:
    """Write the pending rows; return the rows as they were."""
    before = tree.manifest.some(step.wanted.path for step in (*steps, *known_steps))
    coming = []
    for step in steps:
        old = before.get(step.wanted.path)
        coming.append(
            old._replace(pending=step.wanted.sha256)
            if old
            else _laid(step.wanted, now, None)._replace(pending=step.wanted.sha256)
        )
    if coming:
        with tree.manifest.writing():
            tree.manifest.record(coming)
    return before


def _lay(
    step: Step, tree: Tree, contents: Mapping[str, bytes], now: int,
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
        settled.append(_laid(wanted, now, seen))


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
    return fresh._replace(why=old.why, pinned=old.pinned or fresh.pinned, version=max(old.version, fresh.version))


def _hear(manifest: Manifest, conflicts: tuple[Step, ...]) -> None:
    """Remember that the corpus has another version of these edited files: `status` says so without asking again."""
    if conflicts:
        with manifest.writing():
            for step in conflicts:
                manifest.hear([(step.wanted.path, step.wanted.sha256)], step.wanted.version)


def _settle(manifest: Manifest, before: Mapping[str, Laid], steps: tuple[Step, ...], rows: list[Laid]) -> None:
    """Record what is so now; a step that was not carried out gets its old row back, or none."""
    done = {row.path for row in rows}
    undone = [step.wanted.path for step in steps if step.wanted.path not in done]
    with manifest.writing():
        manifest.record([*rows, *(before[path] for path in undone if path in before)])
        manifest.forget(path for path in undone if path not in before)
