"""What became of a tree's files since they were laid: the comparison that status, push, diff and refresh share.

Only what is known not to be on disk counts as deleted. A folder that cannot be listed, a
file that cannot be read, something else in a file's place: none of them is "deleted".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from memfs import paths
from memfs.errors import CorruptError, NotFoundError
from memfs.workset.manifest import Imported, Laid, Seen
from memfs.workset.tree import Tree

__all__ = ["Changes", "check_version", "compare"]


class Changes(NamedTuple):
    """The files of a tree, each under one heading (an edited file may have copies too); all in path order."""

    clean: Mapping[str, Seen]
    """As they were laid."""
    modified: Mapping[str, Seen]
    new: Mapping[str, Seen]
    """Not from the corpus, as far as this tree knows."""
    imported: Mapping[str, Seen]
    """Session files that went to the corpus as transcripts, and are as they were then."""
    deleted: tuple[str, ...]
    """Laid, and no longer on disk."""
    unreadable: Mapping[str, str]
    """What is no plain file, or cannot be read, and why; laid files that such a thing has replaced included."""
    copies: Mapping[str, tuple[str, ...]]
    """The conflict copies on disk, by the file that was edited."""

    def only(self, names: Sequence[str]) -> Changes:
        """Return those at or below `names`; all of them for no names.

        Raises:
            NotFoundError: a name is nothing that lies here or was laid here.
            PathError: a name breaks a rule of the gate.
        """
        if not names:
            return self
        folders = {name: paths.prefix(name) for name in names}
        beside = (copy for copies in self.copies.values() for copy in copies)
        known = [*self.clean, *self.modified, *self.new, *self.imported, *self.deleted, *self.unreadable, *beside]
        for name, folder in folders.items():
            if not any(_is_at(path, folder) for path in known):
                raise NotFoundError(f"{name}: no such file or folder in the tree", hint="look with: memfs status")

        def asked(path: str) -> bool:
            return any(_is_at(path, folder) for folder in folders.values())

        return Changes(
            _those(self.clean, asked),
            _those(self.modified, asked),
            _those(self.new, asked),
            _those(self.imported, asked),
            tuple(filter(asked, self.deleted)),
            {path: reason for path, reason in self.unreadable.items() if asked(path)},
            {path: copies for path, copies in self.copies.items() if asked(path)},
        )


def _is_at(path: str, folder: str) -> bool:
    return path.startswith(folder) or path == folder[:-1]


def _those(files: Mapping[str, Seen], asked: Callable[[str], bool]) -> dict[str, Seen]:
    return {path: seen for path, seen in files.items() if asked(path)}


def compare(tree: Tree) -> Changes:
    """Compare the disk with the manifest. Only files whose `lstat` differs from when they were laid are read."""
    laid, known_copies, imported = tree.manifest.all(), tree.manifest.copies(), tree.manifest.imported()
    clean: dict[str, Seen] = {}
    modified: dict[str, Seen] = {}
    new: dict[str, Seen] = {}
    sent: dict[str, Seen] = {}
    unreadable: dict[str, str] = {}
    copies: dict[str, list[str]] = {}
    there = set()
    for path, found in tree.entries():
        there.add(path)
        try:
            if path in known_copies and path not in laid:
                copies.setdefault(known_copies[path].path, []).append(path)
            elif isinstance(found, str):
                unreadable[path] = found
            elif path in laid and not _never_laid(laid[path]):
                (clean if tree.is_clean(laid[path], found) else modified)[path] = found
            elif path in laid and tree.is_clean(laid[path], found):
                clean[path] = found
            elif path in imported and _is_same(tree, imported[path], found):
                sent[path] = found
            else:
                new[path] = found
        except OSError as error:
            unreadable[path] = f"cannot be read: {error.strerror}"
    deleted = []
    for path, row in laid.items():
        if path not in there and row.pending is None:
            reason = _missing(tree, path)
            if reason is None:
                deleted.append(path)
            else:
                unreadable[path] = reason
    return Changes(
        clean, modified, new, sent, tuple(deleted), dict(sorted(unreadable.items())),
        {path: tuple(found) for path, found in sorted(copies.items())},
    )  # fmt: skip


def _never_laid(row: Laid) -> bool:
    """A run was killed before it laid the file for the first time: what differs there now is the user's own."""
    return row.pending is not None and row.seen is None


def _is_same(tree: Tree, file: Imported, found: Seen) -> bool:
    return found == file.seen or tree.sha256(file.path) == file.sha256


def _missing(tree: Tree, path: str) -> str | None:
    """Return None if nothing lies at `path`, else why it was not found as a plain file."""
    try:
        found = tree.look(path)
    except OSError as error:
        return f"cannot be read: {error.strerror}"
    return "changed while it was being looked at" if isinstance(found, Seen) else found


def check_version(tree: Tree, uri: str, version: int) -> None:
    """Refuse a corpus that is older than what this tree has seen: its numbers and contents mean something else.

    Raises:
        CorruptError: the corpus was restored or made anew.
    """
    known = (tree.manifest.meta("boot_version"), tree.manifest.meta("heard_version"))
    seen = max([row.version for row in tree.manifest.all().values()] + [int(text or 0) for text in known])
    if version < seen:
        raise CorruptError(
            f"{uri} is at version {version}, and this tree has seen {seen}: it was restored or made anew",
            hint=f"nothing was changed; keep {tree.root} as it is, and boot into another folder",
        )
