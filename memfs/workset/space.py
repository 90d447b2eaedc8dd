"""How much may lie where: the limits that are set, and what a disk has free.

The free-space floor: a full disk breaks the sandbox for everybody in it, so memfs
stops writing before, and its own files go first.
"""

from __future__ import annotations

import os
from typing import NamedTuple

__all__ = ["NO_LIMITS", "Limits", "Space", "network_file_system", "space"]

FLOOR_BYTES = 64 << 20
FLOOR_SHARE = 100
"""The default floor is the smaller of 64 MiB and a hundredth of the disk: room for a database's journal and a
log on a large disk, and no more than a hundredth of one that is small on purpose."""
NETWORK_FILE_SYSTEMS = frozenset(("nfs", "nfs4", "cifs", "smb3", "fuse.sshfs", "9p", "afs", "lustre", "glusterfs"))
"""SQLite's locks do not hold there."""


class Limits(NamedTuple):
    """What was set for a tree."""

    max_bytes: int | None = None
    """Of all files in the tree; None: what the tree's last boot was given, or no limit."""
    min_free_bytes: int | None = None
    """The free-space floor of the disk; None: the default."""


NO_LIMITS = Limits()


class Space(NamedTuple):
    """A disk, as it is now."""

    free_bytes: int
    """That this user may still write."""
    total_bytes: int
    floor_bytes: int
    """memfs writes nothing that would leave less than this free."""
    block_bytes: int
    files_free: int | None
    """Inodes; None where the file system does not count them."""

    @property
    def usable_bytes(self) -> int:
        """Above the floor; negative below it."""
        return self.free_bytes - self.floor_bytes

    def on_disk(self, size: int) -> int:
        """Return what a file of `size` bytes may take: whole blocks, and one for its name."""
        return (-(-size // self.block_bytes) + 1) * self.block_bytes


def space(folder: str | int, min_free_bytes: int | None = None) -> Space:
    """Ask the disk that holds `folder`, a path or a descriptor.

    Raises:
        OSError: it does not exist.
    """
    status = os.statvfs(folder)
    total = status.f_blocks * status.f_frsize
    floor = min(FLOOR_BYTES, total // FLOOR_SHARE) if min_free_bytes is None else min_free_bytes
    files = status.f_favail if status.f_files else None
    return Space(status.f_bavail * status.f_frsize, total, floor, status.f_frsize or 4096, files)


def network_file_system(folder: str) -> str | None:
    """Return the kind of network file system that holds `folder`; None for a local one, or where nobody can tell."""
    try:
        with open("/proc/mounts", encoding="utf-8", errors="replace") as handle:
            mounts = [line.split(" ")[1:3] for line in handle]
    except OSError:
        return None
    real = os.path.realpath(folder) + "/"
    inside = [(len(point), kind) for point, kind in mounts if real.startswith(point.rstrip("/") + "/")]
    kind = max(inside)[1] if inside else ""
    return kind if kind in NETWORK_FILE_SYSTEMS else None
