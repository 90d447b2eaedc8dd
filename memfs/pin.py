"""memfs pin, memfs unpin: which files stay, whatever else needs the room."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from memfs import paths
from memfs.corpus.table import Corpus
from memfs.errors import InputError
from memfs.workset import named
from memfs.workset.apply import Applied
from memfs.workset.cache import HostCache
from memfs.workset.manifest import Pin
from memfs.workset.plan import Action, Step
from memfs.workset.tree import Tree

__all__ = ["Pinned", "pin", "unpin"]

NOT_PINNED = (Action.REFUSED, Action.NO_ROOM, Action.CONFLICT)
"""Files of the corpus that do not lie here, for lack of room or because one of the user's lies there."""


@dataclass(frozen=True, slots=True)
class Pinned:
    """What became of the files that were named. Paths are sorted."""

    changed: tuple[str, ...]
    """Pinned now, or no longer."""
    unchanged: tuple[str, ...]
    """Were so before."""
    laid: tuple[str, ...]
    """Of `changed`, those that were not here before."""
    not_pinned: tuple[Step, ...]
    """Each with its reason."""
    evicted: tuple[str, ...]
    """What went to make room for `laid`."""
    pinned_files: int
    """In the tree, after this."""
    pinned_bytes: int
    dry_run: bool


def pin(
    open_corpus: Callable[[], Corpus],
    names: Sequence[str],
    *,
    tree: Tree,
    cache: HostCache | None,
    dry_run: bool = False,
) -> Pinned:
    """Pin the files and folders named, so that nothing evicts them; what is not here is laid first, as `get` does.

    A folder means the files that the corpus has in it now, not those to come. The corpus
    is opened only if something else than files that lie here is named.

    Raises:
        NotFoundError: a name is neither a file nor a folder of the corpus; nothing is pinned then.
    """
    if not names:
        raise InputError("no name is given", hint="memfs pin notes/today.md, or a folder: memfs pin notes/")
    rows = tree.manifest.all()
    here = {path for name in names if (path := _file_here(name, tree)) in rows}
    away = [name for name in names if paths.prefix(name).rstrip("/") not in here]
    steps: tuple[Step, ...] = ()
    done = Applied(0, 0, (), ())
    evict = done.evicted
    if away:
        corpus = open_corpus()
        infos = named.stored(corpus, away)
        plan, done = named.lay(corpus, infos.values(), tree, cache, why="pin", dry_run=dry_run)
        # What was decided, and what turned out otherwise while it was carried out.
        late = {step.wanted.path: step for step in (*done.kept, *done.refused)}
        steps = tuple(late.get(step.wanted.path, step) for step in plan.steps)
        evict = plan.evict if dry_run else done.evicted
    not_pinned = tuple(step for step in steps if step.action in NOT_PINNED)
    refused = {step.wanted.path for step in not_pinned}
    asked = sorted(here | {step.wanted.path for step in steps} - refused)
    laid = tuple(s.wanted.path for s in steps if s.action is Action.WRITE and s.wanted.path not in refused)
    changed, unchanged = _set(tree, asked, Pin.USER, dry_run, rows_before={p: r.pinned for p, r in rows.items()})
    return _result(tree, changed, unchanged, dry_run, laid, not_pinned, tuple(going.path for going in evict))


def unpin(names: Sequence[str], *, tree: Tree, dry_run: bool = False) -> Pinned:
    """Let the files and folders named be evicted again. What the map holds is pinned again by the next boot.

    Raises:
        NotFoundError: a name means nothing that memfs laid here; nothing is unpinned then.
    """
    if not names:
        raise InputError("no name is given", hint="memfs unpin notes/today.md, or . for everything")
    rows = tree.manifest.all()
    asked = named.local(rows, names)
    changed, unchanged = _set(tree, asked, Pin.NO, dry_run, rows_before={p: r.pinned for p, r in rows.items()})
    return _result(tree, changed, unchanged, dry_run)


def _file_here(name: str, tree: Tree) -> str:
    """The path of a laid file that lies here; "" for what is something else."""
    path = paths.prefix(name).rstrip("/")
    return "" if name.endswith("/") or not path or isinstance(tree.look(path), (str, type(None))) else path


def _set(
    tree: Tree, asked: Sequence[str], how: Pin, dry_run: bool, rows_before: dict[str, Pin]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    changed = tuple(path for path in asked if rows_before.get(path, Pin.NO) is not how)
    if changed and not dry_run:
        with tree.manifest.writing():
            tree.manifest.pin(changed, how)
    return changed, tuple(path for path in asked if path not in set(changed))


def _result(
    tree: Tree,
    changed: tuple[str, ...],
    unchanged: tuple[str, ...],
    dry_run: bool,
    laid: tuple[str, ...] = (),
    not_pinned: tuple[Step, ...] = (),
    evicted: tuple[str, ...] = (),
) -> Pinned:
    pinned = [row for row in tree.manifest.all().values() if row.pinned]
    return Pinned(changed, unchanged, laid, not_pinned, evicted, len(pinned), sum(row.size for row in pinned), dry_run)
