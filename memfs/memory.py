"""The Python surface: one object for a corpus and all that can be asked of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import date, datetime
from functools import cached_property
from typing import TYPE_CHECKING

from memfs.boot import Receipt
from memfs.boot import boot as boot_verb
from memfs.config import Config, load
from memfs.corpus.location import parse
from memfs.corpus.records import Commit, Document, FileInfo
from memfs.workset.cache import HostCache
from memfs.workset.space import Limits

if TYPE_CHECKING:
    from memfs.add import Added
    from memfs.corpus.table import Corpus, Scope
    from memfs.fetch import Answer
    from memfs.push import Pushed
    from memfs.recall.evidence import Evidence
    from memfs.status import Status
    from memfs.workset.mirror import Mirror

__all__ = ["Memory", "connect", "create"]


def connect(uri: str) -> Memory:
    """Return the memory at `uri`; the corpus itself is opened when first needed."""
    return Memory(load({"corpus": parse(uri).uri}))


def create(uri: str, *, embedder: str = "static") -> Memory:
    """Make an empty corpus at `uri` and return its memory.

    Raises:
        ConflictError: there already is one.
    """
    from memfs.corpus.table import Corpus

    memory = connect(uri)
    memory.__dict__["corpus"] = Corpus.create(uri, embedder=embedder)
    return memory


class Memory:
    """A corpus, this host's cache, and the trees that are laid from it."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self._cache = HostCache(
            config.cache_dir, max_bytes=config.cache_max_bytes, min_free_bytes=config.min_free_bytes
        )
        self._limits = Limits(config.max_bytes, config.min_free_bytes)
        self._mirror: Mirror | None = None

    @cached_property
    def corpus(self) -> Corpus:
        """The corpus at the version it was opened; `refresh()` moves it to the newest."""
        from memfs.corpus.table import Corpus

        return Corpus.open(self.config.need_corpus(), embedder=self.config.embedder)

    def add(self, *sources: str, format: str = "auto", surface: str | None = None, under: str = "") -> Added:
        """Store what the sources hold; see `memfs add`."""
        from memfs.add import add

        return add(self.corpus, sources, format=format, surface=surface, under=under)

    def commit(self, put: Iterable[Document] = (), delete: Iterable[str] = ()) -> Commit:
        """Publish a set of files in one atomic commit."""
        return self.corpus.commit(put, delete)

    def boot(self, directory: str | None = None, *, budget_bytes: int | None = None) -> Receipt:
        """Lay the initial map into `directory` (default: ./memory)."""
        return boot_verb(
            self.config.need_corpus(),
            directory or self.config.tree,
            cache_dir=self.config.cache_dir,
            state_dir=self.config.state_dir,
            budget_bytes=budget_bytes,
            limits=self._limits,
        )

    def status(self, directory: str | None = None) -> Status:
        """Say what lies in the tree at `directory` (default: ./memory), and what of it is yours."""
        from memfs.status import status
        from memfs.workset.tree import Tree

        uri = self.config.need_corpus()
        with Tree.open(directory or self.config.tree, self.config.state_dir) as tree:
            return status(tree, uri)

    def push(self, *names: str, directory: str | None = None) -> Pushed:
        """Send new and edited notes, and new sessions, of the tree at `directory` (default: ./memory)."""
        from memfs.push import push
        from memfs.workset.tree import Tree, read_mark

        root = directory or self.config.tree
        ours = None if read_mark(root) is None else self.corpus.uri
        with Tree.open(root, self.config.state_dir, corpus=ours, limits=self._limits) as tree:
            return push(self.corpus, tree, names, cache=self._cache)

    def recall(
        self,
        question: str,
        *,
        k: int = 10,
        under: str = "",
        since: datetime | None = None,
        until: datetime | None = None,
        today: date | None = None,
    ) -> list[Evidence]:
        """Return the `k` best passages, best first; nothing is written. `last week` is counted from `today`."""
        from memfs.fetch import recall

        self.refresh()
        return recall(self.corpus, question, k=k, scope=_scope(under, since, until), today=today)

    def fetch(
        self, question: str, *, directory: str | None = None, k: int = 10, budget_tokens: int = 2_000,
        under: str = "", since: datetime | None = None, until: datetime | None = None, today: date | None = None,
    ) -> Answer:  # fmt: skip
        """Answer with citations, and lay the supporting files into the tree at `directory` (default: ./memory).

        `last week` is counted from `today` (None: the day it is).
        """
        from memfs.fetch import fetch
        from memfs.workset.tree import Tree

        self.refresh()
        root = directory or self.config.tree
        with Tree.open(root, self.config.state_dir, corpus=self.corpus.uri, limits=self._limits) as tree:
            return fetch(
                self.corpus, question, tree=tree, cache=self._cache, mirror=self._mirror, k=k,
                budget_tokens=budget_tokens, scope=_scope(under, since, until), today=today,
            )  # fmt: skip

    def warm(self, *, mirror_bytes: int = 256 << 20) -> int:
        """Load indices, catalogue and model, and bring the files to this host if they are so few bytes together.

        For a process that answers many questions. Returns the number of files on this host.
        """
        from memfs.workset.mirror import Mirror

        self.corpus.warm()
        if self.corpus.catalog().file_bytes > mirror_bytes:
            return 0
        self._mirror = Mirror(self.config.cache_dir, self.corpus.uri)
        self._mirror.update(self.corpus, mirror_bytes, self.config.min_free_bytes)
        return len(self._mirror.entries)

    def refresh(self) -> int:
        """Move to the newest version of the corpus and return its number; `fetch` and `recall` do it by themselves."""
        return self.corpus.refresh()

    def files(self, under: str = "") -> Iterator[FileInfo]:
        """Yield what the corpus holds below the folder `under`, sorted by path."""
        from memfs import paths

        return self.corpus.files(paths.prefix(under))

    def read(self, paths: Sequence[str]) -> dict[str, bytes]:
        """Return the whole files at `paths`; those that do not exist are left out."""
        return {path: file.data for path, file in self.corpus.read(paths).items()}


def _scope(under: str, since: datetime | None, until: datetime | None) -> Scope:
    from memfs import paths
    from memfs.corpus.table import Scope

    return Scope(paths.prefix(under), since, until)
