"""memfs push: send new and edited notes, and new sessions, to the corpus. Nothing that changed there is overwritten.

Compare, then swap, under the corpus's lease: an edited file goes only if the corpus still
has what it was edited from, a new one only if the corpus has nothing of that name. What
changed on both sides is a conflict: both are kept (memfs.workset.conflict), and the file
is not sent until its copy is gone. Killed after the commit, the next push finds the same
bytes there and adopts them. Deletions are not sent.
"""

from __future__ import annotations

import hashlib
import io
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone

from memfs import paths
from memfs.brain.page import in_brain
from memfs.corpus.records import MTIME_MAX, Document, FileInfo, Skipped, batches, nanoseconds
from memfs.corpus.sources import files
from memfs.corpus.sources.discover import SourceFile
from memfs.corpus.sources.formats import read as read_format
from memfs.corpus.sources.formats import sniff
from memfs.corpus.table import Corpus
from memfs.workset.cache import HostCache
from memfs.workset.changes import Changes, check_version, compare
from memfs.workset.conflict import Conflict, keep_both
from memfs.workset.gather import gather
from memfs.workset.manifest import Imported, Laid, Pin, Seen
from memfs.workset.plan import Wanted, name_fault
from memfs.workset.tree import Tree

__all__ = ["Pushed", "push"]

RACY_NS = 50_000_000
"""A file changed so shortly before it was read may change again under the same time: it is hashed next time."""
CACHED_BYTES_MAX = 4 << 20
READ_ONLY = "transcripts are evidence and read-only: write what you conclude under notes/"
GENERATED = "memfs makes this file"
NO_ROAD = "the Brain's pages go through the gate: memfs sync sends them"
ELSEWHERE = "only notes/, sessions/ and knowledge/ are sent: move it below notes/"
UNRESOLVED = "merge the two, delete or rename the copy, and push again"
GONE = "edited here, and gone from the corpus: rename it to send it as a new file, or delete it"
BOTH = "changed here and in the corpus: merge the two, delete or rename the copy, and push again"
TWICE = "another file of this push has the same name (case and Unicode form aside), or is the same session"
NO_ROOM = "changed here and in the corpus, and its name leaves no room for a copy's: rename it"


@dataclass(frozen=True, slots=True)
class Pushed:
    """What a push did, or would do. Paths are those of the tree, sorted; only `transcripts` are the corpus's."""

    version: int
    """Of the corpus, now."""
    sent: tuple[str, ...]
    transcripts: tuple[str, ...]
    """What the session files among `sent` became."""
    adopted: tuple[str, ...]
    """The corpus had the same bytes already."""
    conflicts: tuple[Conflict, ...]
    """Not sent: changed on both sides, now or before."""
    refused: tuple[Skipped, ...]
    """Not sent, for another reason."""
    skipped: tuple[Skipped, ...]
    """Parts of session files that are no turns of a conversation."""
    deleted: tuple[str, ...]
    """Deleted here; the corpus keeps them."""
    dry_run: bool = False


@dataclass(slots=True)
class _Work:
    """What is found out on the way; by path of the tree."""

    sent: dict[str, Laid] = field(default_factory=dict)
    adopted: dict[str, Laid] = field(default_factory=dict)
    imported: dict[str, Imported] = field(default_factory=dict)
    became: dict[str, tuple[str, str]] = field(default_factory=dict)
    """Of each transcript the session file that it is from, and its sha256."""
    added: int = 0
    """Files that the corpus has more now."""
    conflicts: dict[str, FileInfo | None] = field(default_factory=dict)
    """What the corpus has; None where it has nothing."""
    refused: dict[str, str] = field(default_factory=dict)
    skipped: list[Skipped] = field(default_factory=list)


def push(
    corpus: Corpus, tree: Tree, names: Sequence[str] = (), *, cache: HostCache | None = None, dry_run: bool = False
) -> Pushed:
    """Send what is new or edited at or below `names` (all for none), and record it as laid.

    Raises:
        NotFoundError: a name is nothing that lies here or was laid here.
        ConflictError: another writer held the corpus too long; nothing was sent.
        CorruptError: the corpus was made anew since this tree was laid; nothing was sent.
    """
    local = compare(tree).only(names)
    work = _Work(refused=dict(local.unreadable))
    chosen = list(_candidates(local, tree.manifest.all(), work))
    if dry_run or not chosen:
        corpus.refresh()
        check_version(tree, corpus.uri, corpus.version)
        for _ in _documents(corpus, tree, local, chosen, work):
            pass
    else:
        with corpus.writing():
            check_version(tree, corpus.uri, corpus.version)
            documents = _documents(corpus, tree, local, chosen, work)
            for commit in corpus.commit_batches(_kept(batches(documents), cache)):
                work.added += commit.added
                for item in commit.refused:
                    path, _ = work.became.pop(item.name, (item.name, ""))
                    _take_back(work, path, item.reason)
    if not dry_run:
        _record(tree, work, corpus.version)
    conflicts = dict(_unresolved(local))
    conflicts |= _keep_conflicts(corpus, tree, work, cache, dry_run)
    return Pushed(
        version=corpus.version,
        sent=tuple(sorted([*work.sent, *work.imported])),
        transcripts=tuple(sorted(work.became)),
        adopted=tuple(sorted(work.adopted)),
        conflicts=tuple(conflicts[path] for path in sorted(conflicts)),
        refused=tuple(Skipped(path, work.refused[path]) for path in sorted(work.refused)),
        skipped=tuple(work.skipped),
        deleted=local.deleted,
        dry_run=dry_run,
    )


def _candidates(local: Changes, laid: dict[str, Laid], work: _Work) -> Iterator[str]:
    """Yield the files that may be sent, if the corpus agrees; note why others may not."""
    for path in sorted([*local.modified, *local.new]):
        if path in local.copies:
            continue
        top = path.partition("/")[0] if "/" in path else ""
        fault = name_fault(path)
        if fault:
            work.refused[path] = fault
        elif path in local.modified and laid[path].generated:
            work.refused[path] = GENERATED
        elif top == "sessions" and path in local.modified:
            work.refused[path] = READ_ONLY
        elif in_brain(path):
            work.refused[path] = NO_ROAD
        elif top not in ("notes", "sessions", "knowledge"):
            work.refused[path] = ELSEWHERE
        else:
            yield path


def _documents(corpus: Corpus, tree: Tree, local: Changes, chosen: Sequence[str], work: _Work) -> Iterator[Document]:
    """Yield what goes to the corpus, read as it is asked for; the rest is noted."""
    stored, laid = corpus.find(chosen), tree.manifest.some(chosen)
    taken: set[str] = set()
    for path in chosen:
        try:
            data, seen = tree.read(path, files.FILE_BYTES_MAX)
        except OSError as error:
            work.refused[path] = error.strerror or str(error)
            continue
        source = _source(path, data, seen)
        if path.startswith("sessions/") and sniff(source) != "files":
            made = _transcripts(corpus, source, hashlib.sha256(data).hexdigest(), seen, work)
        else:
            base = laid[path].sha256 if path in local.modified else None
            made = _file(source, seen, base, stored.get(path), work)
        for document in made:
            if paths.fold(document.path) in taken:
                _take_back(work, path, TWICE)
                continue
            taken.add(paths.fold(document.path))
            if path in work.imported:
                work.became[document.path] = path, document.sha256()
            yield document


def _source(path: str, data: bytes, seen: Seen) -> SourceFile:
    seconds = min(max(seen.mtime_ns // 1_000 / 1e6, 0.0), MTIME_MAX.timestamp())
    mtime = datetime.fromtimestamp(seconds, tz=timezone.utc)
    return SourceFile(path, path, len(data), mtime, lambda: io.BytesIO(data))


def _file(source: SourceFile, seen: Seen, base: str | None, stored: FileInfo | None, work: _Work) -> list[Document]:
    """Decide on a file that goes as it is; `base` is what it was edited from, None for a new one."""
    document = files.read(source, source.name)
    if isinstance(document, Skipped):
        work.refused[source.name] = document.reason
        return []
    sha256 = document.sha256()
    row = Laid(source.name, sha256, document.size, 0, "push", used=int(time.time()), seen=_settled(seen))
    if stored is not None and stored.sha256 == sha256:
        work.adopted[source.name] = row
    elif (stored.sha256 if stored else None) != base:
        work.conflicts[source.name] = stored
    else:
        work.sent[source.name] = row
        return [document]
    return []


def _settled(seen: Seen) -> Seen:
    return seen._replace(ctime_ns=0) if time.time_ns() - seen.ctime_ns < RACY_NS else seen


def _transcripts(corpus: Corpus, source: SourceFile, sha256: str, seen: Seen, work: _Work) -> list[Document]:
    """Decide on a session file: its transcripts go unless the corpus has longer ones."""
    made: list[Document] = []
    for item in read_format(source, "auto", None, ""):
        if isinstance(item, Skipped):
            work.skipped.append(item)
        else:
            made.append(item)
    stored = corpus.find([document.path for document in made])
    for document in made:
        known = stored.get(document.path)
        if known is not None and known.size > document.size:
            reason = f"the corpus has a longer transcript of this session ({document.path}); memfs add replaces it"
            work.refused[source.name] = reason
            return []
    if not made:
        work.refused[source.name] = "no session in it"
        return []
    work.imported[source.name] = Imported(source.name, sha256, _settled(seen))
    return made


def _take_back(work: _Work, path: str, reason: str) -> None:
    """Note that a file does not go after all."""
    work.sent.pop(path, None)
    work.imported.pop(path, None)
    work.refused[path] = reason


def _kept(made: Iterator[list[Document]], cache: HostCache | None) -> Iterator[list[Document]]:
    """Pass the batches on, and keep small files in the host's cache: a later diff needs what was sent."""
    for batch in made:
        if cache is not None:
            bodies = (b"".join(p.body for p in d.passages) for d in batch if d.size <= CACHED_BYTES_MAX)
            cache.keep({hashlib.sha256(body).hexdigest(): body for body in bodies})
        yield batch


def _record(tree: Tree, work: _Work, version: int) -> None:
    """Settle the manifest: what was sent is laid, at the version that it was sent in."""
    rows = {**work.sent, **work.adopted}
    before = tree.manifest.some(rows)
    gone = [copy for copy in tree.manifest.copies() if tree.look(copy) is None]
    with tree.manifest.writing():
        tree.manifest.record(
            row._replace(
                version=version,
                why=before[path].why if path in before else row.why,
                pinned=before[path].pinned if path in before else Pin.NO,
            )
            for path, row in rows.items()
        )
        tree.manifest.record_imported(work.imported.values())
        tree.manifest.hear(((path, sha256) for path, (_, sha256) in work.became.items()), version)
        tree.manifest.set_meta("heard_version", str(version))
        tree.manifest.set_meta("total_files", str(int(tree.manifest.meta("total_files") or 0) + work.added))
        tree.manifest.forget_copies(gone)


def _unresolved(local: Changes) -> Iterator[tuple[str, Conflict]]:
    for path, copies in local.copies.items():
        yield path, Conflict(path, copies[-1], UNRESOLVED)


def _keep_conflicts(
    corpus: Corpus, tree: Tree, work: _Work, cache: HostCache | None, dry_run: bool
) -> dict[str, Conflict]:
    made: dict[str, Conflict] = {}
    for path, info in work.conflicts.items():
        if info is None:
            made[path] = Conflict(path, "", GONE)
        elif dry_run:
            made[path] = Conflict(path, "", BOTH)
        else:
            data = gather(corpus, [(path, info.sha256)], cache)[path]
            wanted = Wanted(path, info.sha256, info.size, nanoseconds(info.mtime), corpus.version, "push")
            copy = keep_both(wanted, data, tree)
            made[path] = Conflict(path, copy, BOTH if copy else NO_ROOM)
    return made
