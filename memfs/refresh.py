"""memfs refresh: bring what lies in the tree to the newest corpus version. Edits are kept, absence is proven.

A file counts as gone from the corpus only if the corpus was read, has files, is no older
than what this tree has seen of it, and both a scan and a look-up of that very path say
that it is not there. Only unedited copies are removed. What was deleted here stays so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from memfs.corpus.records import FileInfo, Skipped, nanoseconds
from memfs.corpus.table import Corpus
from memfs.workset.apply import apply
from memfs.workset.cache import HostCache
from memfs.workset.changes import Changes, compare
from memfs.workset.conflict import Conflict, keep_both
from memfs.workset.gather import gather
from memfs.workset.learn import check_listing, laid_files, learn, made_on_both_sides
from memfs.workset.manifest import Laid
from memfs.workset.plan import Action, Plan, Wanted, diff
from memfs.workset.tree import Tree

__all__ = ["Refreshed", "refresh"]

KEPT_BOTH = "changed here and in the corpus: merge the two, delete or rename the copy, and push"
MADE_TWICE = "made here and in the corpus: memfs push lays its version beside yours"
UNRESOLVED = "merge the two, delete or rename the copy, and push"
GONE = "edited here, and gone from the corpus: rename it to send it as a new file, or delete it"
NO_ROOM = "changed here and in the corpus, and its name leaves no room for a copy's: rename it"


@dataclass(frozen=True, slots=True)
class Refreshed:
    """What a refresh did, or would do. Paths are sorted."""

    version: int
    """Of the corpus, and of every unedited file in the tree now."""
    unchanged: int
    """Files here that the corpus has the same, edited or not."""
    replaced: tuple[str, ...]
    removed: tuple[str, ...]
    """Gone from the corpus, and unedited here."""
    conflicts: tuple[Conflict, ...]
    """Changed on both sides, now or before; both are kept."""
    deleted: tuple[str, ...]
    """Deleted here, and left so; the corpus keeps them."""
    refused: tuple[Skipped, ...]
    """Could not be brought up to date."""
    dry_run: bool = False


def refresh(corpus: Corpus, tree: Tree, *, cache: HostCache | None = None, dry_run: bool = False) -> Refreshed:
    """Replace and remove what changed in the corpus and not here; keep both where it changed on both sides.

    Raises:
        CorruptError: as `learn`; nothing was changed.
    """
    if dry_run:
        corpus.refresh()
        stored = {info.path: info for info in corpus.files()}
        check_listing(corpus, tree, stored)
    else:
        stored = learn(corpus, tree)
    local, laid = compare(tree), laid_files(tree)
    there = {path: row for path, row in laid.items() if path not in local.deleted}
    plan = _plan(there, stored, corpus.version, tree)
    conflicts = {path: Conflict(path, copies[-1], UNRESOLVED) for path, copies in local.copies.items()}
    conflicts |= {path: Conflict(path, "", MADE_TWICE) for path in made_on_both_sides(tree, local, stored)}
    refused = {path: reason for path, reason in local.unreadable.items() if path in laid}
    if dry_run:
        replaced = [wanted.path for wanted in plan.needed()]
        conflicts |= {s.wanted.path: Conflict(s.wanted.path, "", KEPT_BOTH) for s in plan.having(Action.CONFLICT)}
        refused |= {step.wanted.path: step.reason for step in plan.having(Action.REFUSED, Action.NO_ROOM)}
    else:
        replaced = _apply(plan, corpus, tree, cache, conflicts, refused)
    gone = [path for path in there if path not in stored]
    removed = _remove(gone, local, tree, dry_run, conflicts, refused)
    if not dry_run:
        nowhere = [p for p in laid if p not in stored and p not in {*removed, *conflicts, *refused}]
        with tree.manifest.writing():
            tree.manifest.forget([*removed, *nowhere])
            tree.manifest.forget_copies([copy for copy in tree.manifest.copies() if tree.look(copy) is None])
        tree.prune({path.rpartition("/")[0] for path in removed})
    return Refreshed(
        version=corpus.version,
        unchanged=len(there) - len({*replaced, *removed, *conflicts, *refused} & there.keys()),
        replaced=tuple(sorted(replaced)),
        removed=tuple(sorted(removed)),
        conflicts=tuple(conflicts[path] for path in sorted(conflicts)),
        deleted=tuple(path for path in local.deleted if path in stored),
        refused=tuple(Skipped(path, refused[path]) for path in sorted(refused)),
        dry_run=dry_run,
    )


def _plan(there: Mapping[str, Laid], stored: Mapping[str, FileInfo], version: int, tree: Tree) -> Plan:
    """Plan for the files that are another in the corpus, or that a killed run left in between."""
    changed = {
        path: row
        for path, row in there.items()
        if path in stored and (stored[path].sha256 != row.sha256 or row.pending is not None)
    }
    wanted = (_wanted(stored[path], version, row) for path, row in changed.items())
    plan = diff(wanted, tree)
    # Deleted since we looked: it stays so, unless memfs itself never got to lay it.
    deleted = {s.wanted.path for s in plan.having(Action.WRITE) if changed[s.wanted.path].pending is None}
    return plan.without(deleted)


def _wanted(info: FileInfo, version: int, row: Laid) -> Wanted:
    return Wanted(info.path, info.sha256, info.size, nanoseconds(info.mtime), version, row.why, row.pinned)


def _apply(
    plan: Plan, corpus: Corpus, tree: Tree, cache: HostCache | None,
    conflicts: dict[str, Conflict], refused: dict[str, str],
) -> list[str]:  # fmt: skip
    """Carry the plan out, note conflicts and refusals, and return what was replaced."""
    replaced: set[str] = set()
    for part in plan.parts():
        contents = gather(corpus, ((w.path, w.sha256) for w in part.needed()), cache)
        done = apply(part, tree, contents)
        replaced |= {wanted.path for wanted in part.needed()}
        replaced -= {step.wanted.path for step in (*done.kept, *done.refused)}
        refused |= {step.wanted.path: step.reason for step in done.refused}
        for step in done.kept:
            if step.action is Action.CONFLICT:
                wanted = step.wanted
                data = gather(corpus, [(wanted.path, wanted.sha256)], cache)[wanted.path]
                copy = keep_both(wanted, data, tree)
                conflicts[wanted.path] = Conflict(wanted.path, copy, KEPT_BOTH if copy else NO_ROOM)
    return sorted(replaced)


def _remove(
    gone: Sequence[str], local: Changes, tree: Tree, dry_run: bool,
    conflicts: dict[str, Conflict], refused: dict[str, str],
) -> list[str]:  # fmt: skip
    """Remove what is gone from the corpus and unedited here; note the rest."""
    removed = []
    for path in gone:
        if path in local.modified:
            conflicts[path] = Conflict(path, "", GONE)
        if path not in local.clean:
            continue
        try:
            if not dry_run:
                tree.remove(path, local.clean[path])
            removed.append(path)
        except FileExistsError:
            # Written to just now.
            conflicts[path] = Conflict(path, "", GONE)
        except OSError as error:
            refused[path] = f"cannot be removed: {error.strerror}"
    return removed
