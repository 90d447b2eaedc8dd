"""A local tree: its folder, its mark `.memfs.toml`, its lock, and safe access to what lies in it.

Every access walks from the root's descriptor with O_NOFOLLOW, one segment at a time,
so that a symlink planted in the tree never leads a write, a read or a hash outside it.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import re
import stat
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress

from memfs.errors import ConfigError, DiskError, NotFoundError
from memfs.project import MARK
from memfs.workset.manifest import Laid, Manifest, Seen
from memfs.workset.space import NO_LIMITS, Limits, Space, space

__all__ = ["MAX_BYTES", "Tree", "is_temporary", "read_mark"]

GIT_LINK = "knowledge/.git"
"""A file of one line, which makes that folder a Git work tree (memfs.brain.history)."""
A_FOLDER = "a folder lies there"
_TEMPORARY = re.compile(r"\.memfs-[0-9a-f]{12}\.tmp(\.old\.tmp)?")
_ID = re.compile(r"^[0-9a-f]{16}$")
_LINE = re.compile(r'^(corpus|state)\s*=\s*"((?:[^"\\]|\\.)*)"\s*$', re.M)
_FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
CHUNK_BYTES = 1 << 20
READ_TRIES = 3
NO_ATIME = getattr(os, "O_NOATIME", 0)
"""Our own hashing is no use of a file."""
MAX_BYTES = "max_bytes"
"""The manifest's name for the limit that the last boot was given."""


def read_mark(root: str) -> tuple[str, str] | None:
    """Return (corpus URI, state id) from a tree's `.memfs.toml`, or None if `root` is no memfs tree."""
    try:
        fd = os.open(os.path.join(root, MARK), os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return None
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise ConfigError(f"{root}/{MARK} is not a plain file", hint="move it away and run memfs boot again")
    with open(fd, encoding="utf-8", errors="replace") as handle:
        found = dict(_LINE.findall(handle.read(65_536)))
    state = found.get("state", "")
    if "corpus" not in found or not _ID.match(state):
        raise ConfigError(f"{root}/{MARK} is damaged", hint=f"delete {root}/{MARK} and run memfs boot again")
    return found["corpus"].replace('\\"', '"').replace("\\\\", "\\"), state


class Tree:
    """A materialised tree that is open: `root` is locked against other memfs commands until `close`."""

    def __init__(self, root: str, manifest: Manifest, fd: int, lock_fd: int, limits: Limits) -> None:
        self.root, self.manifest, self.limits = root, manifest, limits
        self._fd, self._lock_fd = fd, lock_fd
        self._folders: dict[str, int] = {}
        self._missing: set[str] = set()
        """Folders that were not there when looked for. One that others make meanwhile is met when a file is placed."""

    @classmethod
    @contextmanager
    def open(
        cls, root: str, state_dir: str, *, corpus: str | None = None, limits: Limits = NO_LIMITS
    ) -> Iterator[Tree]:
        """Open the tree at `root`; with `corpus`, make it one if it is not.

        Raises:
            NotFoundError: it is no tree, and no `corpus` was given.
            ConfigError: it belongs to another corpus, or `root` is a symlink or a file.
        """
        _checked_mark(root, corpus)
        fd = _open_root(root, make=corpus is not None)
        lock_fd = -1
        try:
            # Of two first boots at once, the second waits here and then finds the first one's mark.
            # A network disk may not lock a folder; there the lock beside the manifest has to do.
            with suppress(OSError):
                fcntl.flock(fd, fcntl.LOCK_EX)
            mark = _checked_mark(root, corpus)
            state = mark[1] if mark else os.urandom(8).hex()
            folder = os.path.join(state_dir, "trees", state)
            if mark and _is_copy(folder, root):
                state = os.urandom(8).hex()
                folder, mark = os.path.join(state_dir, "trees", state), None
            with Manifest(folder) as manifest:
                lock_fd = _lock(os.path.join(folder, "lock"))
                tree = cls(root, manifest, fd, lock_fd, limits)
                if mark is None or manifest.meta("root") != os.path.realpath(root):
                    manifest.set_meta("root", os.path.realpath(root))
                tree._sweep()
                if mark is None:
                    tree._write_mark(corpus or read_mark(root)[0], state)  # type: ignore[index]
                try:
                    yield tree
                finally:
                    tree._close_folders()
        finally:
            for open_fd in (fd, lock_fd):
                if open_fd >= 0:
                    os.close(open_fd)

    def _write_mark(self, corpus: str, state: str) -> None:
        quoted = corpus.replace("\\", "\\\\").replace('"', '\\"')
        text = f'# A memfs working set: memfs status says what lies here.\ncorpus = "{quoted}"\nstate = "{state}"\n'
        found = self.look(MARK)
        if isinstance(found, str):
            raise ConfigError(f"{self.root}/{MARK}: {found}", hint="remove it, and run memfs boot again")
        self._place("", MARK, text.encode(), None, expected=found, mode=0o644)

    # -- room ----------------------------------------------------------------------

    @property
    def max_bytes(self) -> int | None:
        """How much may lie in the tree: as it was set for this command, or for the last boot; None for no limit."""
        if self.limits.max_bytes is not None:
            return self.limits.max_bytes
        kept = self.manifest.meta(MAX_BYTES)
        return int(kept) if kept else None

    def keep_limit(self) -> None:
        """Make the limit that was set for this command the tree's own, for the commands that set none."""
        if self.limits.max_bytes is not None:
            self.manifest.set_meta(MAX_BYTES, str(self.limits.max_bytes))

    def space(self) -> Space:
        """Ask the tree's disk what it has free."""
        return space(self._fd, self.limits.min_free_bytes)

    # -- safe access ---------------------------------------------------------------

    def folder(self, path: str, *, make: bool = False) -> int:
        """Return a descriptor of the folder at the relative `path` ("" is the root); owned by the tree.

        Raises:
            FileNotFoundError: it does not exist (and not `make`).
            NotADirectoryError: it, or a folder above it, is a file or a symlink.
        """
        if path == "":
            return self._fd
        known = self._folders.get(path)
        if known is not None:
            return known
        if path in self._missing and not make:
            raise FileNotFoundError(errno.ENOENT, "no such folder", path)
        parent, _, name = path.rpartition("/")
        if name in ("", ".", ".."):
            raise NotADirectoryError(errno.ENOTDIR, "leads out of the tree", path)
        try:
            above = self.folder(parent, make=make)
            if make:
                self._missing.discard(path)
                with suppress(FileExistsError):
                    os.mkdir(name, dir_fd=above)
            fd = os.open(name, _FOLDER_FLAGS, dir_fd=above)
        except FileNotFoundError:
            self._missing.add(path)
            raise
        except OSError as error:
            if error.errno in (errno.ELOOP, errno.ENOTDIR):
                raise NotADirectoryError(errno.ENOTDIR, "a file or a symlink is in the way", path) from error
            raise
        if len(self._folders) > 500:
            self._close_folders()
        self._folders[path] = fd
        return fd

    def _close_folders(self) -> None:
        for fd in self._folders.values():
            os.close(fd)
        self._folders.clear()

    def _lstat(self, path: str) -> os.stat_result:
        parent, _, name = path.rpartition("/")
        return os.lstat(name, dir_fd=self.folder(parent)) if parent else os.lstat(name, dir_fd=self._fd)

    def look(self, path: str) -> Seen | str | None:
        """Return what lies at `path`: a `Seen` for a plain file, a reason why it can't be one, or None for nothing."""
        try:
            status = self._lstat(path)
        except FileNotFoundError:
            return None
        except NotADirectoryError:
            return "a file or a symlink is in the way of its folder"
        if stat.S_ISREG(status.st_mode):
            return _seen(status)
        if stat.S_ISLNK(status.st_mode):
            return "a symlink lies there"
        return A_FOLDER if stat.S_ISDIR(status.st_mode) else "a special file lies there"

    def accessed(self, path: str) -> int:
        """Return when the file was last read as the kernel knows it, seconds since the epoch; 0 for not since laid."""
        status = self._lstat(path)
        # memfs lays a file with both times the same; the first read moves one of them, also under relatime.
        if status.st_atime_ns == status.st_mtime_ns:
            return 0
        return min(int(status.st_atime), int(time.time()))

    def is_clean(self, laid: Laid, found: Seen) -> bool:
        """Return whether the file on disk still has the bytes that were laid."""
        if laid.pending is None and found == laid.seen:
            return True
        return self.sha256(laid.path) in (laid.sha256, laid.pending)

    def sha256(self, path: str) -> str:
        """Hash the plain file at `path`."""
        parent, _, name = path.rpartition("/")
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
        try:
            fd = os.open(name, flags | NO_ATIME, dir_fd=self.folder(parent))
        except PermissionError:
            # It belongs to somebody else.
            fd = os.open(name, flags, dir_fd=self.folder(parent))
        digest = hashlib.sha256()
        with open(fd, "rb", buffering=0) as handle:
            while chunk := handle.read(CHUNK_BYTES):
                digest.update(chunk)
        return digest.hexdigest()

    def read(self, path: str, bytes_max: int) -> tuple[bytes, Seen]:
        """Return the bytes of the plain file at `path` and what it was while they were read.

        A file that changes while it is read is read again, a few times.

        Raises:
            OSError: it cannot be read, is no plain file, is larger than `bytes_max`, or does not keep still.
        """
        parent, _, name = path.rpartition("/")
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
        for _ in range(READ_TRIES):
            with open(os.open(name, flags, dir_fd=self.folder(parent)), "rb") as handle:
                before = os.fstat(handle.fileno())
                if not stat.S_ISREG(before.st_mode):
                    raise OSError(errno.EINVAL, "is no plain file", path)
                if before.st_size > bytes_max:
                    raise OSError(errno.EFBIG, f"is larger than {bytes_max >> 20} MiB", path)
                data = handle.read(bytes_max + 1)
                after = os.fstat(handle.fileno())
            if _seen(before) == _seen(after) and len(data) == after.st_size:
                return data, _seen(after)
        raise OSError(errno.EBUSY, "is being written to", path)

    def write(self, folder: str, name: str, data: bytes, mtime_ns: int | None, *, mode: int = 0o666) -> Seen:
        """Put a whole new file `folder/name` in place; an existing one is never overwritten.

        Raises:
            FileExistsError: something lies there.
        """
        return self._place(folder, name, data, mtime_ns, expected=None, mode=mode)

    def write_folder(self, top: str, files: Iterable[tuple[str, bytes, int]]) -> list[Seen]:
        """Put a whole new folder `top` into the root: written aside, then it gets its name, all at once.

        Half the system calls of as many `write`s. `files` are (path below `top`, bytes, mtime_ns), each once.

        Raises:
            FileExistsError: something lies at `top`; nothing is left of what was written.
            OSError: as `write`; nothing is left either.
        """
        staging = _temporary_name()
        os.mkdir(staging, 0o700, dir_fd=self._fd)
        try:
            # What is below a folder that was made this moment, under a name that nobody knows, is ours alone.
            fd = os.open(staging, _FOLDER_FLAGS, dir_fd=self._fd)
            try:
                os.mkdir(top, dir_fd=fd)
                made, seen = {top}, []
                for path, data, mtime_ns in files:
                    path = f"{top}/{path}"
                    _make_folders(path.rpartition("/")[0], made, fd)
                    seen.append(_write_new(path, data, mtime_ns, 0o666, fd))
                try:
                    os.rename(top, top, src_dir_fd=fd, dst_dir_fd=self._fd)
                except OSError as error:
                    # A rename over an empty folder succeeds, over anything else it does not.
                    if error.errno in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
                        raise FileExistsError(errno.EEXIST, "something lies there", top) from error
                    raise
            finally:
                os.close(fd)
        finally:
            _remove(staging, self._fd)
        # Those known so far are of an empty folder that was replaced, or said to be missing.
        self._close_folders()
        self._missing.clear()
        return seen

    def replace(self, folder: str, name: str, data: bytes, mtime_ns: int, expected: Seen) -> Seen:
        """Put new bytes over the file `folder/name` if it still is as `expected`.

        Raises:
            FileExistsError: it was written to meanwhile.
        """
        return self._place(folder, name, data, mtime_ns, expected=expected, mode=0o666)

    def _place(
        self, folder: str, name: str, data: bytes, mtime_ns: int | None, *, expected: Seen | None, mode: int
    ) -> Seen:
        fd = self.folder(folder, make=True)
        temporary = _temporary_name()
        try:
            ours = _write_new(temporary, data, mtime_ns, mode, fd)
            if expected is None:
                _link_new(temporary, name, fd)
            else:
                path = f"{folder}/{name}" if folder else name
                if self.look(path) != expected:
                    raise FileExistsError(errno.EEXIST, "changed while memfs was replacing it", path)
                _swap(temporary, name, fd, expected)
                temporary = ""
        finally:
            if temporary:
                _unlink(temporary, fd)
        status = os.lstat(name, dir_fd=fd)
        untouched = (status.st_ino, status.st_size, status.st_mtime_ns) == (ours.inode, ours.size, ours.mtime_ns)
        # Written to since it got its name: remembered so that it will be hashed, not taken for clean.
        return ours._replace(ctime_ns=status.st_ctime_ns if untouched else 0)

    def remove(self, path: str, expected: Seen) -> None:
        """Delete the file at `path` if it still is as `expected`.

        Raises:
            FileExistsError: it was written to meanwhile.
        """
        parent, _, name = path.rpartition("/")
        if self.look(path) != expected:
            raise FileExistsError(errno.EEXIST, "changed while memfs was removing it", path)
        os.unlink(name, dir_fd=self.folder(parent))

    def prune(self, folders: set[str]) -> None:
        """Remove those of `folders` that are empty, and what is empty above them; a top folder (`notes`) stays."""
        for path in sorted(folders, key=len, reverse=True):
            while "/" in path:
                parent, _, name = path.rpartition("/")
                try:
                    os.rmdir(name, dir_fd=self.folder(parent))
                except OSError:
                    break
                gone = self._folders.pop(path, None)
                if gone is not None:
                    os.close(gone)
                path = parent

    def sweep(self, folders: set[str]) -> None:
        """Delete temporary files that a killed run left in `folders`."""
        for path in folders:
            with suppress(OSError):
                fd = self.folder(path)
                for name in os.listdir(fd):
                    if is_temporary(name):
                        _remove(name, fd)

    def _sweep(self) -> None:
        """Before anything is looked at: some temporary files are links to laid files."""
        announced = (*self.manifest.pending(), *self.manifest.copies())
        # The root too: the tree's mark is written before there is a manifest.
        self.sweep({"", *(path.rpartition("/")[0] for path in announced)})

    def files(self) -> Iterator[tuple[str, Seen]]:
        """Yield (path, what is seen) of every plain file, memfs's own left out; symlinks are not followed."""
        yield from ((path, found) for path, found in self.entries() if isinstance(found, Seen))

    def entries(self) -> Iterator[tuple[str, Seen | str]]:
        """As `files`, and for whatever else lies there but folders: why it cannot be read."""
        ours = (MARK, GIT_LINK)
        yield from ((path, found) for path, found in self.everything() if path not in ours and not is_temporary(path))

    def everything(self, folder: str = "") -> Iterator[tuple[str, Seen | str]]:
        """As `entries`, memfs's own files included."""
        try:
            names = sorted(os.listdir(self.folder(folder)))
        except OSError as error:
            yield folder, f"the folder cannot be listed: {error.strerror}"
            return
        for name in names:
            path = f"{folder}/{name}" if folder else name
            found = self.look(path)
            if found == A_FOLDER:
                yield from self.everything(path)
            elif found is not None:
                yield path, found


def _seen(status: os.stat_result) -> Seen:
    return Seen(status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)


def is_temporary(path: str) -> bool:
    """Return whether a path is one of memfs's own unfinished files."""
    return _TEMPORARY.fullmatch(path.rpartition("/")[2]) is not None


def _temporary_name() -> str:
    return f".memfs-{os.urandom(6).hex()}.tmp"


def _write_new(name: str, data: bytes, mtime_ns: int | None, mode: int, fd: int) -> Seen:
    """Write a file that is not there yet, below the folder that `fd` is of; return what it is."""
    out = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, mode, dir_fd=fd)
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(out, view) :]
        if mtime_ns is not None:
            os.utime(out, ns=(mtime_ns, mtime_ns))
        return _seen(os.fstat(out))
    finally:
        os.close(out)


def _make_folders(path: str, made: set[str], fd: int) -> None:
    if path not in made:
        _make_folders(path.rpartition("/")[0], made, fd)
        os.mkdir(path, dir_fd=fd)
        made.add(path)


def _remove(name: str, fd: int) -> None:
    """Remove what is ours and unfinished: a file, or a folder with all that is in it; no symlink is followed."""
    try:
        _unlink(name, fd)
    except (IsADirectoryError, PermissionError):
        # What Linux says of a folder, and what macOS does.
        below = os.open(name, _FOLDER_FLAGS, dir_fd=fd)
        try:
            for inner in os.listdir(below):
                _remove(inner, below)
        finally:
            os.close(below)
        os.rmdir(name, dir_fd=fd)


def _link_new(temporary: str, name: str, fd: int) -> None:
    """Give the finished file its name; unlike rename, a link fails when something lies there."""
    try:
        os.link(temporary, name, src_dir_fd=fd, dst_dir_fd=fd, follow_symlinks=False)
    except OSError as error:
        if error.errno not in (errno.EPERM, errno.EOPNOTSUPP, errno.EMLINK, errno.ENOSYS):
            raise
        # A file system without hard links: look, then rename.
        try:
            os.lstat(name, dir_fd=fd)
        except FileNotFoundError:
            os.rename(temporary, name, src_dir_fd=fd, dst_dir_fd=fd)
            return
        raise FileExistsError(errno.EEXIST, "exists", name) from error


def _swap(temporary: str, name: str, fd: int, expected: Seen) -> None:
    """Give the finished file its name in place of the old one; put that back if it was written to meanwhile."""
    old = f"{temporary}.old.tmp"
    os.link(name, old, src_dir_fd=fd, dst_dir_fd=fd, follow_symlinks=False)
    try:
        os.rename(temporary, name, src_dir_fd=fd, dst_dir_fd=fd)
        status = os.lstat(old, dir_fd=fd)
        if (status.st_ino, status.st_size, status.st_mtime_ns) != (expected.inode, expected.size, expected.mtime_ns):
            os.rename(old, name, src_dir_fd=fd, dst_dir_fd=fd)
            raise FileExistsError(errno.EEXIST, "changed while memfs was replacing it", name)
    finally:
        _unlink(old, fd)


def _unlink(name: str, fd: int) -> None:
    try:  # noqa: SIM105 - suppress() costs more than the call, and this is called for every file of a boot
        os.unlink(name, dir_fd=fd)
    except FileNotFoundError:
        pass


def _open_root(root: str, *, make: bool) -> int:
    try:
        if make:
            os.makedirs(root, exist_ok=True)
        return os.open(root, _FOLDER_FLAGS)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENOTDIR, errno.EEXIST):
            raise ConfigError(f"{root} is a symlink or a file", hint="give a folder that is its own") from error
        if isinstance(error, FileNotFoundError):
            raise NotFoundError(f"{root}: no such folder", hint="make a tree with: memfs boot") from error
        raise DiskError(f"{root}: {error.strerror}", hint="choose a folder that you may write") from error


def _checked_mark(root: str, corpus: str | None) -> tuple[str, str] | None:
    """Return the tree's mark if it is one of `corpus`; None if it is to be made one."""
    mark = read_mark(root)
    if mark is None and corpus is None:
        raise NotFoundError(f"{root} is not a memfs tree", hint="make one with: memfs boot")
    if mark is not None and corpus is not None and mark[0] != corpus:
        raise ConfigError(
            f"{root} belongs to another corpus ({mark[0]})",
            hint="boot into another folder (memfs boot ./memory), or name that corpus; memfs config says which is set",
        )
    return mark


def _lock(file: str) -> int:
    fd = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    fcntl.flock(fd, fcntl.LOCK_EX)
    return fd


def _is_copy(folder: str, root: str) -> bool:
    """A tree copied with `cp -r` carries its original's id: if the original still is there, this one needs its own."""
    if not os.path.exists(os.path.join(folder, "manifest.sqlite")):
        return False
    with Manifest(folder) as manifest:
        original = manifest.meta("root")
    if original is None or original == os.path.realpath(root):
        return False
    with suppress(OSError):
        # Moved, and a symlink put where it was: that is this tree itself.
        if os.path.samefile(original, root):
            return False
    mark = read_mark(original)
    return mark is not None and os.path.basename(folder) == mark[1]
