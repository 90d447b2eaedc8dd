"""memfs ls: what exists, here and in the corpus. A file that is not here has no placeholder; this is where it shows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timezone

from memfs import paths
from memfs.corpus.table import Corpus
from memfs.errors import NotFoundError
from memfs.workset.tree import Tree

__all__ = ["Listed", "ls"]


@dataclass(frozen=True, slots=True)
class Listed:
    """One file. `where`: `both`, `corpus` (not on disk) or `local` (on disk only)."""

    path: str
    size: int
    """Of the file on disk where there is one, edited or not; so is `mtime`."""
    mtime: datetime
    where: str
    title: str


def ls(corpus: Corpus | None, tree: Tree | None, path: str = "") -> Iterator[Listed]:
    """Yield the files at or below `path`, sorted; without `corpus` those on disk, without `tree` those stored.

    Raises:
        NotFoundError: nothing lies at `path`.
    """
    folder = paths.prefix(path)
    here = {} if tree is None else {p: seen for p, seen in tree.files() if p.startswith(folder) or p == folder[:-1]}
    stored = {} if corpus is None else {info.path: info for info in _stored(corpus, folder)}
    # Without the corpus, what came from it is what this tree knows to have laid.
    known = {p for p, row in tree.manifest.all().items() if not row.generated} if tree and corpus is None else stored
    if folder and not here and not stored:
        raise NotFoundError(f"{path}: no such file or folder", hint="folders and files only, no wildcards: memfs ls")
    for name in sorted(here.keys() | stored.keys()):
        info, seen = stored.get(name), here.get(name)
        if seen is not None:
            mtime = datetime.fromtimestamp(seen.mtime_ns / 1e9, tz=timezone.utc)
            yield Listed(name, seen.size, mtime, "both" if name in known else "local", info.title if info else "")
        elif info is not None:
            yield Listed(name, info.size, info.mtime, "corpus", info.title)


def _stored(corpus: Corpus, folder: str) -> Iterator:  # type: ignore[type-arg]
    found = corpus.find([folder[:-1]]) if folder else {}
    yield from found.values()
    if not found:
        yield from corpus.files(folder)
