"""memfs diff: what was changed here, as a unified diff against what was laid. Writes nothing.

What was laid is looked for by its hash: in the host's cache, in the map that this host
fetched last, in the corpus as it is, in the corpus as it was. The corpus is opened only
if the first two do not have it.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from memfs.corpus import bootset
from memfs.errors import CorruptError, NotFoundError
from memfs.workset.cache import HostCache
from memfs.workset.changes import compare
from memfs.workset.manifest import Laid
from memfs.workset.tree import Tree

if TYPE_CHECKING:
    from memfs.corpus.table import Corpus

__all__ = ["FileDiff", "diff"]

CONTEXT_LINES = 3
FILE_BYTES_MAX = 256 << 20
LINES_MAX = 100_000
"""Of both sides together: comparing more takes minutes."""
NO_END = "\n\\ No newline at end of file\n"


@dataclass(frozen=True, slots=True)
class FileDiff:
    """One changed file."""

    path: str
    change: str
    """`modified`, `new` or `deleted`."""
    text: str
    """A unified diff, as git and patch read it; for bytes that are no UTF-8 text, one line that says they differ."""


def diff(
    tree: Tree, names: Sequence[str] = (), *, cache: HostCache, corpus_uri: str, open_corpus: Callable[[], Corpus]
) -> tuple[FileDiff, ...]:
    """Return what differs at or below `names` (all for none), in path order.

    Raises:
        NotFoundError: a name is nothing that lies here or was laid here.
        UnreachableError, …: the corpus is needed, and cannot be opened.
    """
    local = compare(tree).only(names)
    laid = tree.manifest.all()
    wanted = {path: laid[path] for path in (*local.modified, *local.deleted)}
    bases = _bases(wanted, cache, corpus_uri, open_corpus)
    found: list[FileDiff] = []
    for path in sorted([*local.modified, *local.new, *local.deleted]):
        change = "modified" if path in local.modified else "new" if path in local.new else "deleted"
        before = b"" if change == "new" else bases.get(path)
        try:
            after = b"" if change == "deleted" else tree.read(path, FILE_BYTES_MAX)[0]
        except OSError as error:
            found.append(FileDiff(path, change, f"File {_quoted(f'b/{path}')} cannot be read: {error.strerror}\n"))
            continue
        found.append(FileDiff(path, change, _text(path, change, before, after)))
    return tuple(found)


def _bases(
    wanted: Mapping[str, Laid], cache: HostCache, corpus_uri: str, open_corpus: Callable[[], Corpus]
) -> dict[str, bytes]:
    """Return what the files were laid from, by path; those that nobody has any longer are left out."""
    cached = cache.read([row.sha256 for row in wanted.values()]) if wanted else {}
    if any(row.sha256 not in cached for row in wanted.values()):
        cached |= _from_map(cache, corpus_uri)
    found = {path: cached[row.sha256] for path, row in wanted.items() if row.sha256 in cached}
    missing = {path: row for path, row in wanted.items() if path not in found}
    if missing:
        corpus = open_corpus()
        found |= _from_corpus(corpus, missing)
        for version in sorted({row.version for path, row in missing.items() if path not in found}):
            here = {path: row for path, row in missing.items() if row.version == version and path not in found}
            try:
                found |= _from_corpus(corpus.at(version), here)
            except NotFoundError:
                # Cleaned up.
                continue
    return found


def _from_map(cache: HostCache, corpus_uri: str) -> dict[str, bytes]:
    copy = cache.boot_copy(corpus_uri)
    try:
        return {} if copy is None else {file.sha256: file.data for file in bootset.unpack(copy.data).files}
    except CorruptError:
        return {}


def _from_corpus(corpus: Corpus, wanted: Mapping[str, Laid]) -> dict[str, bytes]:
    same = [path for path, info in corpus.find(list(wanted)).items() if info.sha256 == wanted[path].sha256]
    return {path: file.data for path, file in corpus.read(same).items()}


def _text(path: str, change: str, before: bytes | None, after: bytes) -> str:
    old = "/dev/null" if change == "new" else _quoted(f"a/{path}")
    new = "/dev/null" if change == "deleted" else _quoted(f"b/{path}")
    if before is None:
        return f"Files {old} and {new} differ: what it was laid from is kept nowhere any longer\n"
    one, two = _lines(before), _lines(after)
    if one is None or two is None:
        return f"Binary files {old} and {new} differ\n"
    if len(one) + len(two) > LINES_MAX:
        return f"Files {old} and {new} differ: {len(one):,} and {len(two):,} lines are too many to compare\n"
    compared = difflib.unified_diff(one, two, f"{old}{_tab(old)}", f"{new}{_tab(new)}", n=CONTEXT_LINES)
    text = "".join(line if line.endswith("\n") else line + NO_END for line in compared)
    return text or f"--- {old}{_tab(old)}\n+++ {new}{_tab(new)}\n"


def _lines(data: bytes) -> list[str] | None:
    """Cut at newlines only, as diff does; None for what is no text."""
    if b"\0" in data:
        return None
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        return None
    return list(_cut(text))


def _cut(text: str) -> Iterator[str]:
    *whole, last = text.split("\n")
    yield from (f"{line}\n" for line in whole)
    if last:
        yield last


def _tab(name: str) -> str:
    """A tab ends a name with a space in it: patch would end it at the space."""
    return "\t" if " " in name else ""


def _quoted(name: str) -> str:
    """As git writes names: one with a control character or a stray byte in quotes, those as octal escapes."""
    if name.isprintable() and '"' not in name:
        return name
    parts = [
        char if char.isprintable() and char not in '"\\' else "".join(
            f"\\{byte:03o}" for byte in char.encode(errors="surrogateescape")
        )
        for char in name
    ]  # fmt: skip
    return f'"{"".join(parts)}"'
