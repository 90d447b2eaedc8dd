"""Bring the bytes of files: from the host's cache, the rest from the corpus in one batch, and keep those."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from memfs.errors import ConflictError
from memfs.workset.cache import HostCache

if TYPE_CHECKING:
    from memfs.corpus.table import Corpus

PREFETCH_FILES = 5_000

__all__ = ["gather", "prefetch"]


def gather(corpus: Corpus, wanted: Iterable[tuple[str, str]], cache: HostCache | None) -> dict[str, bytes]:
    """Return bytes by path for the (path, sha256) pairs.

    Raises:
        ConflictError: a file is no longer what the caller was told it is.
        CorruptError: stored bytes do not match their hash.
    """
    pairs = dict(wanted)
    cached = cache.read(list(pairs.values())) if cache else {}
    found = {path: cached[sha256] for path, sha256 in pairs.items() if sha256 in cached}
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


def prefetch(corpus: Corpus, cache: HostCache, bytes_max: int) -> int:
    """Bring every file of the corpus into the host's cache if they are at most `bytes_max` together; return how many.

    Files lie in the table in path order, so this takes some 20 requests for 50 MB, and later
    fetches on this host take none for content.
    """
    infos = list(corpus.files())
    if sum(info.size for info in infos) > bytes_max:
        return 0
    have = cache.has([info.sha256 for info in infos])
    missing = [info for info in infos if info.sha256 not in have]
    for at in range(0, len(missing), PREFETCH_FILES):
        gather(corpus, ((info.path, info.sha256) for info in missing[at : at + PREFETCH_FILES]), cache)
    return len(missing)
