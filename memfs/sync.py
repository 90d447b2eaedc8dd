"""memfs sync: publish a stage, or the pages that were edited in the tree, through the gate."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timezone

from memfs.brain.history import History
from memfs.brain.index import finish
from memfs.brain.page import CHANGELOG, INDEX, ROOT, in_brain
from memfs.brain.stage import Stage
from memfs.brain.store import documents_of, gate_of
from memfs.brain.sync import MergeError, Published, base_of, publish
from memfs.corpus.table import Corpus
from memfs.errors import ConfigError
from memfs.workset.changes import compare
from memfs.workset.tree import Tree

__all__ = ["sync", "sync_tree"]

PAGE_BYTES_MAX = 4 << 20


def sync(corpus: Corpus, history: History, folder: str, *, message: str = "", dry_run: bool = False) -> Published:
    """Publish a stage.

    Raises:
        NotFoundError: there is no stage.
        ConfigError: it is one of another corpus.
        GateError, MergeError: nothing was published.
    """
    stage = Stage.open(folder)
    if stage.corpus != corpus.uri:
        raise ConfigError(f"{folder} is a stage of {stage.corpus}", hint="name that corpus: --corpus, or MEMFS_CORPUS")
    subject = message or (f"Dream: {len(stage.sessions)} sessions" if stage.sessions else "Sync of a stage")
    base_of(corpus, history)
    seen = {mark for entry in history.log() for mark in entry.sessions}
    return publish(
        corpus, history, stage.base(), stage.files(), gate=gate_of(corpus), message=stage.message(subject),
        also=documents_of(stage), always=bool(set(stage.sessions) - seen), dry_run=dry_run,
    )  # fmt: skip


def sync_tree(corpus: Corpus, history: History, tree: Tree, *, message: str = "", dry_run: bool = False) -> Published:
    """Publish what was edited, made or deleted below knowledge/ of a tree; index and changelog follow by themselves.

    Raises:
        GateError: the gate refuses it.
        MergeError: a page was changed in the corpus too.
    """
    local, laid = compare(tree), tree.manifest.all()
    base = base_of(corpus, history)
    mine: dict[str, bytes | None] = {}
    for path in (*local.modified, *local.new):
        if in_brain(path) and path not in (INDEX, CHANGELOG):
            mine[path] = tree.read(path, PAGE_BYTES_MAX)[0]
    mine |= {path: None for path in local.deleted if in_brain(path) and path not in (INDEX, CHANGELOG)}
    stored = {info.path: info.sha256 for info in corpus.files(ROOT)}
    moved = [path for path in mine if (laid[path].sha256 if path in laid else None) != stored.get(path)]
    if moved:
        raise MergeError(sorted(moved))
    files: Mapping[str, bytes] = {**base.files, **{path: data for path, data in mine.items() if data is not None}}
    files = {path: data for path, data in files.items() if mine.get(path, b"") is not None}
    if dict(files) == dict(base.files):
        return Published(corpus.version, base.commit, (), (), (), merged=False, dry_run=dry_run)
    day = datetime.now(timezone.utc).date()
    lines = [
        f"by hand: {path.removeprefix(ROOT)}{' removed' if data is None else ''}" for path, data in sorted(mine.items())
    ]
    subject = message or f"By hand: {', '.join(sorted(mine))[:60]}"
    return publish(
        corpus, history, base, finish(files, day, lines), gate=gate_of(corpus), message=f"{subject}\n", dry_run=dry_run
    )
