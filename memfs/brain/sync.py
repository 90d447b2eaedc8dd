"""From a stage to the corpus: compared with where it began, merged with what others published, checked, one commit.

The lease is held from the last look at the corpus to the commit, so that what the gate
passed is what is published. Killed before the commit, nothing has changed; after it, the
next sync of the same stage finds its pages there and has nothing to do.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import NamedTuple

from memfs.brain.gate import Problem
from memfs.brain.history import Bundle, History, bundle_name, bundles_of
from memfs.brain.index import index
from memfs.brain.page import CHANGELOG, INDEX, ROOT, Page, PageError, in_brain, page_path, parse
from memfs.corpus.records import Document, Passage
from memfs.corpus.schema import HISTORY
from memfs.corpus.sources import files as file_source
from memfs.corpus.sources.discover import SourceFile
from memfs.corpus.table import Corpus
from memfs.errors import ConflictError, CorruptError, DiskError, InputError

__all__ = ["Base", "GateError", "MergeError", "Published", "base_of", "pages_of", "publish"]

Gate = Callable[[Mapping[str, bytes], Mapping[str, bytes]], Sequence[Problem]]
"""What is wrong with the files that are given first, which follow those given second."""


class GateError(InputError):
    """The gate refused; nothing was published."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        shown = "\n".join(f"  {problem}" for problem in problems[:20])
        more = f"\n  … and {len(problems) - 20} more" if len(problems) > 20 else ""
        super().__init__(f"the gate refuses {len(problems)} things:\n{shown}{more}", hint="mend that, then: memfs sync")
        self.problems = tuple(problems)


class MergeError(ConflictError):
    """Others changed the same lines; nothing was published."""

    def __init__(self, conflicts: Sequence[str]) -> None:
        super().__init__(
            f"others published changes to the same lines of: {', '.join(conflicts)}",
            hint="take the newest Brain, and make the change anew",
        )
        self.conflicts = tuple(conflicts)


class Base(NamedTuple):
    """Where a stage begins."""

    version: int
    """Of the corpus."""
    commit: str | None
    """None while there is no history."""
    files: Mapping[str, bytes]
    """All of knowledge/, by path."""


@dataclass(frozen=True)
class Published:
    """What a sync did, or would do."""

    version: int
    """Of the corpus, now."""
    commit: str | None
    added: tuple[str, ...]
    changed: tuple[str, ...]
    removed: tuple[str, ...]
    merged: bool
    """Others had published meanwhile."""
    dry_run: bool = False

    @property
    def nothing(self) -> bool:
        """Whether there was nothing to publish."""
        return not (self.added or self.changed or self.removed)


def pages_of(corpus: Corpus) -> dict[str, bytes]:
    """Return the files of the Brain, by path."""
    wanted = [info.path for info in corpus.files(ROOT) if in_brain(info.path)]
    return {path: found.data for path, found in corpus.read(wanted).items()}


def base_of(corpus: Corpus, history: History) -> Base:
    """Return the Brain as the corpus holds it at the version that it reads, and bring `history` there."""
    stored = {name: file.data for name, file in corpus.history().items()}
    return Base(corpus.version, history.take(stored), pages_of(corpus))


def publish(
    corpus: Corpus,
    history: History,
    base: Base,
    stage: Mapping[str, bytes],
    *,
    gate: Gate,
    message: str,
    also: Sequence[Document] = (),
    always: bool = False,
    dry_run: bool = False,
) -> Published:
    """Publish the files of `stage`, made from `base`, in one corpus commit; `also` goes with them.

    With `always`, what changes nothing is recorded too: sessions were looked at that hold nothing new.

    Raises:
        MergeError: others changed the same lines meanwhile.
        GateError: the gate refuses the stage, or what it became by the merge.
        ConflictError: another writer held the corpus too long.
    """
    if dict(stage) == dict(base.files) and not always:
        return _report(corpus, None, base.files, stage, merged=False, dry_run=dry_run)
    with corpus.writing():
        now = base_of(corpus, history)
        merged = now.commit != base.commit or now.files != base.files
        parents, wanted = _joined(history, base, now, stage) if merged else ([now.commit] if now.commit else [], stage)
        if _without_made(wanted) == _without_made(now.files):
            # Others came to the same: their index and changelog stand.
            wanted = now.files
        if dict(wanted) == dict(now.files) and not always:
            return _report(corpus, now.commit, now.files, wanted, merged, dry_run)
        problems = [problem for problem in gate(wanted, now.files) if not problem.warning]
        if problems:
            raise GateError(problems)
        if dry_run:
            return _report(corpus, None, now.files, wanted, merged, dry_run)
        if now.commit is None and now.files:
            # What lay there before there was a history is its first commit.
            parents = [history.commit(now.files, [], "The Brain as it was found\n")]
        commit = history.commit(wanted, parents, message)
        number = len(bundles_of({name: b"" for name in corpus.history()})) + 1
        bundle = history.bundle(commit, now.commit, number)
        put = [*_documents(wanted, now.files), *also, _history_document(bundle)]
        corpus.commit(put=put, delete=sorted(set(now.files) - set(wanted)))
        # It is published: what the local repository lacks now, the next use of it brings there.
        with suppress(CorruptError, DiskError):
            history.git("update-ref", "refs/heads/main", commit)
    return _report(corpus, commit, now.files, wanted, merged, dry_run)


def _joined(history: History, base: Base, now: Base, stage: Mapping[str, bytes]) -> tuple[list[str], dict[str, bytes]]:
    """Merge the stage with what others published since its base, and make the index anew."""
    if base.commit is None or now.commit is None:
        # No history to part from: the two are compared file by file.
        return ([now.commit] if now.commit else []), _by_file(base.files, now.files, stage)
    ours = history.commit(_without_made(stage), [base.commit], "stage\n")
    theirs = history.commit(_without_made(now.files), [base.commit], "published\n")
    found = history.merge(ours, theirs)
    if found.conflicts:
        raise MergeError(found.conflicts)
    files = dict(found.files)
    files[CHANGELOG] = _changelogs(base.files, now.files, stage)
    pages = _pages(files)
    if pages or INDEX in now.files:
        files[INDEX] = index(pages).encode()
    return [now.commit], files


def _without_made(files: Mapping[str, bytes]) -> dict[str, bytes]:
    return {path: data for path, data in files.items() if path not in (INDEX, CHANGELOG)}


def _changelogs(base: Mapping[str, bytes], now: Mapping[str, bytes], stage: Mapping[str, bytes]) -> bytes:
    """The stage's new lines over what is published by now."""
    old, mine, theirs = (files.get(CHANGELOG, b"") for files in (base, stage, now))
    if not theirs:
        return mine
    had = set(old.split(b"\n"))
    new = [line for line in mine.split(b"\n") if line.startswith(b"- ") and line not in had]
    head, dash, rest = theirs.partition(b"\n- ")
    return b"\n".join([head, *new]) + dash + rest if new else theirs


def _by_file(base: Mapping[str, bytes], now: Mapping[str, bytes], stage: Mapping[str, bytes]) -> dict[str, bytes]:
    files, conflicts = dict(now), []
    for path in {*base, *stage}:
        before, mine = base.get(path), stage.get(path)
        if mine == before or path in (INDEX, CHANGELOG):
            continue
        if now.get(path) not in (before, mine):
            conflicts.append(path)
        elif mine is None:
            files.pop(path, None)
        else:
            files[path] = mine
    if conflicts:
        raise MergeError(sorted(conflicts))
    files[CHANGELOG] = _changelogs(base, now, stage)
    files[INDEX] = index(_pages(files)).encode()
    return files


def _pages(files: Mapping[str, bytes]) -> list[Page]:
    found = []
    for path in filter(page_path, files):
        with suppress(PageError):
            found.append(parse(path, files[path]))
    return found


def _documents(files: Mapping[str, bytes], before: Mapping[str, bytes]) -> list[Document]:
    now = datetime.now(timezone.utc)
    made = []
    for path, data in files.items():
        if before.get(path) != data:
            made.append(document(path, data, now))
    return made


def document(path: str, data: bytes, mtime: datetime) -> Document:
    """Return a file of knowledge/ as the corpus stores it."""
    import io
    from dataclasses import replace

    source = SourceFile(path, path, len(data), mtime, lambda: io.BytesIO(data))
    made = file_source.read(source, path)
    assert isinstance(made, Document), made
    return replace(made, kind="page" if page_path(path) else made.kind)


def _history_document(bundle: Bundle) -> Document:
    return Document(
        path=bundle_name(bundle),
        passages=(Passage(bundle.data, None),),
        kind=HISTORY,
        title="",
        source="memfs",
        mtime=datetime.now(timezone.utc),
    )


def _report(
    corpus: Corpus,
    commit: str | None,
    before: Mapping[str, bytes],
    after: Mapping[str, bytes],
    merged: bool,
    dry_run: bool,
) -> Published:
    return Published(
        version=corpus.version,
        commit=commit,
        added=tuple(sorted(set(after) - set(before))),
        changed=tuple(sorted(path for path in set(after) & set(before) if after[path] != before[path])),
        removed=tuple(sorted(set(before) - set(after))),
        merged=merged,
        dry_run=dry_run,
    )
