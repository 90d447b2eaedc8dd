"""Where a project's settings lie. Only `os` is imported: the thin client (memfs.client) asks on every command."""

from __future__ import annotations

import os

__all__ = ["MARK", "inside", "nearest"]

MARK = ".memfs.toml"
"""A project's settings file, and at the top of a tree its mark."""


def inside(path: str, folder: str) -> bool:
    """Whether a path is a folder or leads into it, symlinks followed."""
    real = os.path.realpath(folder)
    return os.path.commonpath([os.path.realpath(path), real]) == real


def nearest(where: str, home: str) -> str | None:
    """Return the nearest `.memfs.toml` at or above `where` (not above `home`), or in `memory/` there; None for none."""
    folder = where
    while True:
        for file in (os.path.join(folder, MARK), os.path.join(folder, "memory", MARK)):
            if os.path.isfile(file):
                return file
        parent = os.path.dirname(folder)
        if parent == folder or folder == home:
            return None
        folder = parent
