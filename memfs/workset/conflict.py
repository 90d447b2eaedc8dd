"""A file that changed on both sides: yours keeps its name, the corpus's lies beside it.

    notes/plan.md                 your edit
    notes/plan.conflict-v12.md    what the corpus holds, as of its version 12

Order: the manifest learns of the copy, the copy is put in place, and only then does the
corpus's version become what the file counts as edited from. Killed in between, the
conflict is found again; no run takes it for settled that the user has not seen.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import NamedTuple

from memfs import paths
from memfs.errors import DiskError
from memfs.workset.manifest import Copy, Laid
from memfs.workset.plan import Wanted
from memfs.workset.tree import Tree

__all__ = ["Conflict", "keep_both"]

TRIES = 1_000
ENDING_CHARS_MAX = 16
"""What follows a later dot is part of the name, and may be cut."""


class Conflict(NamedTuple):
    """A file that changed here and in the corpus."""

    path: str
    copy: str
    """Where the corpus's version lies; "" where it has none, and in a dry run."""
    reason: str


def keep_both(wanted: Wanted, data: bytes, tree: Tree) -> str:
    """Lay `data`, the corpus's version, beside the edited file and return the path of the copy.

    A copy with these bytes that lies there already is taken for it. "" if no longer name
    fits beside the file: then nothing is laid, and the conflict stays as it is.

    Raises:
        DiskError: there is no room.
    """
    copy = _known_copy(wanted, tree) or _lay(wanted, data, tree)
    if not copy:
        return ""
    old = tree.manifest.some([wanted.path]).get(wanted.path)
    base = Laid(
        wanted.path, wanted.sha256, wanted.size, wanted.version, old.why if old else wanted.why,
        pinned=old.pinned if old else wanted.pinned, used=int(time.time()),
    )  # fmt: skip
    with tree.manifest.writing():
        tree.manifest.record([base])
    return copy


def _known_copy(wanted: Wanted, tree: Tree) -> str | None:
    known = (c.copy for c in tree.manifest.copies().values() if (c.path, c.sha256) == (wanted.path, wanted.sha256))
    return next((copy for copy in known if tree.look(copy) is not None), None)


def _lay(wanted: Wanted, data: bytes, tree: Tree) -> str:
    for name in _names(wanted.path, wanted.version):
        if tree.look(name) is not None or tree.manifest.some([name]):
            continue
        with tree.manifest.writing():
            tree.manifest.record_copy(Copy(name, wanted.path, wanted.sha256))
        folder, _, base = name.rpartition("/")
        try:
            tree.write(folder, base, data, wanted.mtime_ns)
        except FileExistsError:
            # It appeared just now, and is the user's.
            with tree.manifest.writing():
                tree.manifest.forget_copies([name])
            continue
        except OSError as error:
            raise DiskError(f"{name}: {error.strerror}", hint="make room in the tree, and run this again") from error
        return name
    return ""


def _names(path: str, version: int) -> Iterator[str]:
    """Yield `notes/plan.conflict-v12.md`, then `…-v12-2.md` and on: names that the path gate takes."""
    folder, slash, name = path.rpartition("/")
    stem, _, ending = name.rpartition(".")
    if not stem or len(ending) > ENDING_CHARS_MAX:
        stem, ending = name, ""
    for number in range(1, TRIES):
        tail = f".conflict-v{version}{f'-{number}' if number > 1 else ''}{f'.{ending}' if ending else ''}"
        room = min(
            paths.SEGMENT_BYTES_MAX - len(tail.encode()),
            paths.PATH_BYTES_MAX - len(f"{folder}{slash}{tail}".encode()),
        )
        if room < 1:
            return
        short = stem.encode()[:room].decode(errors="ignore")
        yield paths.check(f"{folder}{slash}{short}{tail}")
