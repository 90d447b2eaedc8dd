"""memfs rollback: the Brain as it was, or without what one session brought in. A new commit, never a rewrite."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timezone

from memfs.brain.extract import without_links, without_session
from memfs.brain.gate import BUDGETS
from memfs.brain.history import History
from memfs.brain.index import finish
from memfs.brain.page import CHANGELOG, INDEX, render
from memfs.brain.store import gate_of, pages_in
from memfs.brain.sync import Base, Published, base_of, publish
from memfs.corpus.table import Corpus
from memfs.errors import InputError, NotFoundError

__all__ = ["rollback", "rollback_session"]

WHATEVER = replace(BUDGETS, deleted_pages_share=1.0, deleted_lines_share=1.0)
"""To go back is what was asked for."""


def rollback(corpus: Corpus, history: History, revision: str, *, dry_run: bool = False) -> Published:
    """Publish the Brain as it was at a revision.

    Raises:
        NotFoundError: there is no such revision.
        GateError: what it said then does not hold any more: its evidence changed or is gone.
    """
    base = base_of(corpus, history)
    then = history.files(history.resolve(revision))
    files = {**then, CHANGELOG: base.files.get(CHANGELOG, b"")}
    short = history.resolve(revision)[:12]
    return _publish(corpus, history, base, files, f"Back to {short}", dry_run)


def rollback_session(corpus: Corpus, history: History, session: str, *, dry_run: bool = False) -> Published:
    """Take out all that stands on one session, named by its path or a part of it.

    Raises:
        NotFoundError: no page cites such a session.
        InputError: more than one session is meant, or a page cites it in prose that only a person can mend.
    """
    base = base_of(corpus, history)
    pages = pages_in(base.files)
    cited = {source.at.partition("#")[0] for page in pages.values() for source in page.sources.values()}
    meant = sorted(at for at in cited if session in at)
    if not meant:
        raise NotFoundError(f"{session}: no page cites such a session", hint="memfs log names what came in")
    if len(meant) > 1:
        raise InputError(f"{session}: {len(meant)} sessions are so named", hint=f"one of: {', '.join(meant[:5])}")
    changed = {path: without_session(page, meant[0]) for path, page in pages.items()}
    for path, page in changed.items():
        if any(source.at.partition("#")[0] == meant[0] for source in page.sources.values()):
            raise InputError(f"{path} cites {meant[0]} in prose", hint="edit the page, then: memfs sync")
    gone = [path for path, page in changed.items() if pages[path].sources and not page.sources]
    kept = {path: without_links(page, gone) for path, page in changed.items() if path not in gone}
    files = {path: data for path, data in base.files.items() if path not in gone}
    files |= {path: render(page) for path, page in kept.items()}
    return _publish(corpus, history, base, files, f"Without {meant[0].removeprefix('memfs://')}", dry_run)


def _publish(
    corpus: Corpus, history: History, base: Base, files: Mapping[str, bytes], subject: str, dry_run: bool
) -> Published:
    same = {path: data for path, data in files.items() if path not in (INDEX, CHANGELOG)}
    if same == {path: data for path, data in base.files.items() if path not in (INDEX, CHANGELOG)}:
        return Published(corpus.version, base.commit, (), (), (), merged=False, dry_run=dry_run)

    day = datetime.now(timezone.utc).date()
    finished = finish(files, day, [subject])
    return publish(
        corpus, history, base, finished, gate=gate_of(corpus, WHATEVER), message=f"{subject}\n", dry_run=dry_run
    )
