"""The Brain's Git history: a repository beside the tree, carried by the corpus's own commits as bundles.

Each publish adds one file `<folder>/<number>-<commit>.bundle`, with the Git objects since
the one before, in the commit that holds the pages: readers see pages and history of the
same moment, or those of the moment before. A host puts the bundles that it lacks into a
repository of its own, outside memory/, so that `grep -r` never reads it; what lies in
`memory/knowledge/.git` is a file of one line that leads there.

Git itself does the work (2.38 or newer, for `merge-tree --write-tree`), with no
configuration, hook or environment of the user's.
"""

from __future__ import annotations

import io
import os
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from memfs.corpus.bootset import HISTORY_FOLDER
from memfs.errors import ConfigError, CorruptError, DiskError, NotFoundError

if TYPE_CHECKING:
    from memfs.workset.tree import Tree

__all__ = ["BRANCH", "Bundle", "Entry", "History", "Merged", "attach", "bundle_name", "bundles_of"]

BRANCH = "refs/heads/main"
AUTHOR = "memfs"
MAIL = "memfs@localhost"
FREE_BYTES_MIN = 1 << 16
_FULL = ("No space left on device", "Disk quota exceeded")
_NAME = re.compile(re.escape(HISTORY_FOLDER) + r"/(\d{6})-([0-9a-f]{40})\.bundle")
_FIELDS = "%H%x00%cI%x00%an%x00%s%x00%(trailers:key=Session,valueonly,separator=%x2C)"


class Bundle(NamedTuple):
    """One step of the history, as the corpus holds it."""

    number: int
    commit: str
    data: bytes


class Entry(NamedTuple):
    """One commit."""

    commit: str
    when: str
    """ISO 8601."""
    author: str
    subject: str
    sessions: tuple[str, ...]
    """What it brought in, by the paths of their transcripts."""


class Merged(NamedTuple):
    """Two lines of history joined: the files, and those that Git could not join."""

    files: Mapping[str, bytes]
    conflicts: tuple[str, ...]


def _full(folder: str) -> bool:
    """Whether a disk has no room to speak of: Git does not always say why it failed."""
    found = os.statvfs(folder)
    return found.f_bavail * found.f_frsize < FREE_BYTES_MIN


def bundle_name(bundle: Bundle) -> str:
    """Return the name under which the corpus holds it."""
    return f"{HISTORY_FOLDER}/{bundle.number:06}-{bundle.commit}.bundle"


def bundles_of(stored: Mapping[str, bytes]) -> list[Bundle]:
    """Return the corpus's bundles in order.

    Raises:
        CorruptError: one is missing in between.
    """
    found = [Bundle(int(m[1]), m[2], data) for name, data in stored.items() if (m := _NAME.fullmatch(name))]
    found.sort()
    if [bundle.number for bundle in found] != list(range(1, len(found) + 1)):
        raise CorruptError("a part of the Brain's history is missing", hint="memfs doctor says what is damaged")
    return found


class History:
    """A repository of the Brain, in a folder of its own; made when it is first needed."""

    def __init__(self, folder: str) -> None:
        self.folder = folder

    # -- Git ---------------------------------------------------------------------------

    def git(
        self, *arguments: str, stdin: bytes = b"", codes: Sequence[int] = (0,), work_tree: str | None = None
    ) -> bytes:
        """Run a Git command in the repository and return what it prints.

        Raises:
            ConfigError: there is no Git.
            DiskError: the disk is full.
            CorruptError: it failed.
        """
        command = shutil.which("git")
        if command is None:
            raise ConfigError("git is not installed", hint="apt install git; the pages can be read without it")
        kept = {k: v for k, v in os.environ.items() if not k.startswith("GIT_")}
        environ = kept | {
            "GIT_DIR": self.folder, "GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": os.devnull, "LC_ALL": "C",
            "GIT_AUTHOR_NAME": AUTHOR, "GIT_AUTHOR_EMAIL": MAIL, "GIT_COMMITTER_NAME": AUTHOR,
            "GIT_COMMITTER_EMAIL": MAIL, "GIT_TERMINAL_PROMPT": "0",
        }  # fmt: skip
        if work_tree is not None:
            environ["GIT_WORK_TREE"] = work_tree
        done = subprocess.run(
            [command, "-c", "core.hooksPath=/dev/null", "-c", "core.quotePath=false", "-c", "gc.auto=0", *arguments],
            input=stdin, env=environ, cwd=work_tree or os.path.dirname(self.folder), capture_output=True, check=False,
        )  # fmt: skip
        if done.returncode not in codes:
            said = done.stderr.decode(errors="replace").strip()[-500:]
            if any(full in said for full in _FULL) or _full(os.path.dirname(self.folder)):
                raise DiskError(f"git {arguments[0]}: no space left on device", hint=f"make room at {self.folder}")
            raise CorruptError(
                f"git {arguments[0]}: {said}", hint="memfs doctor checks the corpus; the local history can be deleted"
            )
        self.code = done.returncode
        return done.stdout

    def _make(self) -> None:
        if not os.path.exists(os.path.join(self.folder, "HEAD")):
            # Whole or not at all: beside it first. The templates are samples that nobody needs.
            new = History(f"{self.folder}.new-{os.getpid()}")
            shutil.rmtree(new.folder, ignore_errors=True)
            try:
                os.makedirs(new.folder, mode=0o700)
                new.git("init", "--quiet", "--initial-branch=main", "--template=")
                new.git("config", "core.bare", "false")
                with suppress(FileExistsError):
                    os.rename(new.folder, self.folder)
            finally:
                shutil.rmtree(new.folder, ignore_errors=True)

    def head(self) -> str | None:
        """Return the newest commit; None while there is none."""
        if not os.path.exists(os.path.join(self.folder, "HEAD")):
            return None
        return self.git("rev-parse", "--verify", "--quiet", BRANCH, codes=(0, 1)).decode().strip() or None

    def take(self, stored: Mapping[str, bytes]) -> str | None:
        """Bring the repository to what the corpus holds, and return its newest commit.

        Commits that are here only, of a publish that did not come through, are let go.

        Raises:
            CorruptError: the corpus's history is damaged.
        """
        bundles = bundles_of(stored)
        if not bundles:
            return None
        self._make()
        for bundle in bundles:
            if not self.has(bundle.commit):
                self._unbundle(bundle)
        tip = bundles[-1].commit
        if self.head() != tip:
            self.git("update-ref", BRANCH, tip)
        return tip

    def has(self, commit: str) -> bool:
        """Whether a commit is here, with all before it."""
        self.git("cat-file", "-e", f"{commit}^{{commit}}", codes=(0, 1, 128))
        return self.code == 0

    def _unbundle(self, bundle: Bundle) -> None:
        file = os.path.join(self.folder, f"incoming-{os.getpid()}.bundle")
        try:
            with open(file, "wb") as out:
                out.write(bundle.data)
            self.git("bundle", "unbundle", file)
        finally:
            if os.path.exists(file):
                os.unlink(file)
        if not self.has(bundle.commit):
            raise CorruptError(
                f"part {bundle.number} of the Brain's history does not hold its commit", hint="memfs doctor"
            )

    # -- commits -----------------------------------------------------------------------

    def files(self, commit: str) -> dict[str, bytes]:
        """Return the pages of a commit, by path below memory/.

        Raises:
            NotFoundError: there is no such commit.
        """
        import tarfile

        data = self.git("archive", "--format=tar", self.resolve(commit))
        with tarfile.open(fileobj=io.BytesIO(data)) as tar:
            members = [member for member in tar if member.isfile()]
            return {f"knowledge/{m.name}": tar.extractfile(m).read() for m in members}  # type: ignore[union-attr]

    def resolve(self, revision: str) -> str:
        """Return the commit that a revision names (`HEAD~1`, seven digits of a hash).

        Raises:
            NotFoundError: none.
        """
        if revision.startswith("-"):
            raise NotFoundError(f"{revision}: no such revision", hint="memfs log lists them")
        wanted = f"{re.sub('^HEAD', BRANCH, revision)}^{{commit}}"
        found = self.git("rev-parse", "--verify", "--quiet", wanted, codes=(0, 1, 128)).decode().strip()
        if not found:
            raise NotFoundError(f"{revision}: no such revision", hint="memfs log lists them")
        return found

    def commit(self, files: Mapping[str, bytes], parents: Sequence[str], message: str) -> str:
        """Record the pages as a commit on `parents` and return it; the branch is left where it is."""
        self._make()
        lines: list[bytes] = [b"commit refs/memfs/new\ncommitter %s <%s> now\n" % (AUTHOR.encode(), MAIL.encode())]
        text = message.encode()
        lines.append(b"data %d\n%s\n" % (len(text), text))
        if parents:
            lines.append(b"from %s\n" % parents[0].encode())
            lines += [b"merge %s\n" % parent.encode() for parent in parents[1:]]
        lines.append(b"deleteall\n")
        for path, data in sorted(files.items()):
            name = path.removeprefix("knowledge/").encode()
            quoted = b'"%s"' % name.replace(b"\\", b"\\\\").replace(b'"', b'\\"')
            lines.append(b"M 100644 inline %s\ndata %d\n%s\n" % (quoted, len(data), data))
        self.git("update-ref", "-d", "refs/memfs/new")
        self.git("fast-import", "--quiet", "--force", "--date-format=now", stdin=b"".join(lines))
        made = self.git("rev-parse", "refs/memfs/new").decode().strip()
        self.git("update-ref", "-d", "refs/memfs/new")
        return made

    def bundle(self, commit: str, base: str | None, number: int) -> Bundle:
        """Return what the corpus is given for a commit: its objects, without those that `base` has."""
        self.git("update-ref", "refs/memfs/out", commit)
        try:
            data = self.git("bundle", "create", "--quiet", "-", "refs/memfs/out", *([f"^{base}"] if base else []))
        finally:
            self.git("update-ref", "-d", "refs/memfs/out")
        return Bundle(number, commit, data)

    def merge(self, ours: str, theirs: str) -> Merged:
        """Join two commits three ways, from where they parted."""
        said = self.git("merge-tree", "--write-tree", "-z", "--name-only", "--no-messages", ours, theirs, codes=(0, 1))
        tree, *names = said.decode(errors="surrogateescape").split("\0")
        conflicts = sorted({f"knowledge/{name}" for name in names if name}) if self.code else []
        return Merged(self._tree(tree), tuple(conflicts))

    def _tree(self, tree: str) -> dict[str, bytes]:
        import tarfile

        with tarfile.open(fileobj=io.BytesIO(self.git("archive", "--format=tar", tree))) as tar:
            members = [member for member in tar if member.isfile()]
            return {f"knowledge/{m.name}": tar.extractfile(m).read() for m in members}  # type: ignore[union-attr]

    def log(self, limit: int | None = None) -> list[Entry]:
        """Return the commits, newest first."""
        if self.head() is None:
            return []
        some = [f"--max-count={limit}"] if limit else []
        said = self.git("log", *some, "-z", f"--format={_FIELDS}", BRANCH).decode(errors="replace")
        parts = said.split("\0")
        rows = [parts[at : at + 5] for at in range(0, len(parts) - 4, 5)]
        return [Entry(a, b, c, d, tuple(filter(None, map(str.strip, e.split(","))))) for a, b, c, d, e in rows]

    # -- the work tree -----------------------------------------------------------------

    def attach(self, knowledge: str) -> None:
        """Make the folder `memory/knowledge` a work tree: git log, diff, show and status work in it.

        Pages that are not on disk are marked so (skip-worktree), and are not taken for deleted.
        """
        link = os.path.join(knowledge, ".git")
        line = f"gitdir: {self.folder}\n"
        if os.path.lexists(link):
            if os.path.islink(link) or not os.path.isfile(link):
                return
            with open(link, encoding="utf-8", errors="replace") as handle:
                if handle.read() != line:
                    # A repository of the user's own: left alone.
                    return
        else:
            with open(link, "x", encoding="utf-8") as out:
                out.write(line)
        self.git("read-tree", BRANCH)
        listed = self.git("ls-files", "-z").decode(errors="surrogateescape").split("\0")
        absent = [name for name in listed if name and not os.path.lexists(os.path.join(knowledge, name))]
        if absent:
            names = "\0".join(absent).encode(errors="surrogateescape")
            self.git("update-index", "--skip-worktree", "-z", "--stdin", stdin=names, work_tree=knowledge)


def attach(tree: Tree, stored: Mapping[str, bytes]) -> str:
    """Make `knowledge/` of a tree a Git work tree with the corpus's history `stored`; return why not, or ""."""
    knowledge = os.path.join(tree.root, "knowledge")
    if not os.path.isdir(knowledge) or os.path.islink(knowledge):
        return "there is no folder knowledge/"
    history = History(os.path.join(tree.manifest.folder, "brain.git"))
    try:
        history.take(stored)
        history.attach(knowledge)
    except (ConfigError, CorruptError) as error:
        return error.message
    return ""
