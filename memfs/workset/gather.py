"""Bring the bytes of files: from this host, the rest from the corpus in one batch, and keep those."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from memfs.errors import ConflictError
from memfs.workset.cache import HostCache
from memfs.workset.mirror import Mirror

if TYPE_CHECKING:
    from memfs.corpus.table import Corpus

__all__ = ["gather"]


def gather(
    corpus: Corpus, wanted: Iterable[tuple[str, str]], cache: HostCache | None, mirror: Mirror | None = None
) -> dict[str, bytes]:
    """Return bytes by path for the (path, sha256) pairs: from this host's mirror and cache, the rest in one batch.

    Raises:
        ConflictError: a file is no longer what the caller was told it is.
        CorruptError: stored bytes do not match their hash.
    """
    pairs = dict(wanted)
    found = _mirrored(pairs, mirror) if mirror else {}
    cached = cache.read([sha256 for path, sha256 in pairs.items() if path not in found]) if cache else {}
    found |= {path: cached[sha256] for path, sha256 in pairs.items() if sha256 in cached}
    missing = [path for path in pairs if path not in found]
    if not missing:
        return found
    fresh = corpus.read(missing)
    for path in missing:
        if path not in fresh or fresh[path].sha256 != pairs[path]:
            raise ConflictError(f"{path} changed while it was being fetched", hint="run the command again")
    if cache:
        cache.keep({file.sha256: file.data for file in fresh.values()})
    return found | {path: file.data for path, file in fresh.items()}


def _mirrored(pairs: Mapping[str, str], mirror: Mirror) -> dict[str, bytes]:
    entries = (mirror.entries.get(path) for path in pairs)
    same = (entry for entry in entries if entry is not None and entry.sha256 == pairs[entry.path])
    return {entry.path: data for entry in same if (data := mirror.read(entry)) is not None}
