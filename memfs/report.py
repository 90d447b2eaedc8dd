"""What commands print: text for people and agents on one side, plain JSON values on the other."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import date, datetime
from enum import Enum
from typing import TYPE_CHECKING, Any

from memfs.corpus.bootset import NOT_INDEXED, BootSet
from memfs.workset.plan import Action, Plan, Step
from memfs.workset.room import Going

if TYPE_CHECKING:
    from memfs.add import Added
    from memfs.boot import Receipt
    from memfs.corpus.records import Skipped
    from memfs.doctor import Checkup
    from memfs.evict import Evicted
    from memfs.fetch import Answer, LaidFile
    from memfs.grep import Coverage
    from memfs.ls import Listed
    from memfs.pin import Pinned
    from memfs.push import Pushed
    from memfs.refresh import Refreshed
    from memfs.status import Status
    from memfs.workset.apply import Applied
    from memfs.workset.conflict import Conflict

__all__ = [
    "added_text",
    "answer_text",
    "checkup_text",
    "coverage_text",
    "evicted_text",
    "got_text",
    "jsonable",
    "listed_text",
    "name_text",
    "pinned_text",
    "pushed_text",
    "receipt_text",
    "refreshed_text",
    "size_text",
    "status_text",
    "steps_text",
    "trace_text",
]

LINES_MAX = 20
"""Of any list of names; the rest is counted."""


def jsonable(value: Any) -> Any:
    """Return a dataclass, or a collection of them, as JSON values: times as ISO 8601 UTC, boot sets left out."""
    if isinstance(value, Step):
        return {"path": value.wanted.path, "action": value.action.value, "reason": value.reason}
    if isinstance(value, Going):
        return value.path
    names = _field_names(value)
    if names:
        found = {n: jsonable(item) for n in names if not isinstance(item := getattr(value, n), BootSet)}
        derived = {n: getattr(value, n) for n in ("citation", "found") if hasattr(value, n)}
        return derived | found
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, datetime):
        return value.strftime("%Y-%m-%dT%H:%M:%SZ")
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, Mapping):
        return {key: jsonable(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [jsonable(item) for item in value]
    return value


def _field_names(value: Any) -> tuple[str, ...]:
    """The fields of a value type, be it a named tuple or a dataclass; () for anything else."""
    if isinstance(value, tuple):
        return getattr(value, "_fields", ())
    return tuple(getattr(value, "__dataclass_fields__", ()))


def files_text(count: int) -> str:
    """Return `1 file`, `1,200 files`."""
    return f"{count:,} file{'' if count == 1 else 's'}"


def size_text(size: int) -> str:
    """Return bytes as people read them: `4.1 MB`."""
    number = float(size)
    for unit in ("B", "kB", "MB", "GB"):
        if number < 1000 or unit == "GB":
            return f"{number:.0f} B" if unit == "B" else f"{number:.1f} {unit}"
        number /= 1000
    raise AssertionError


def receipt_text(receipt: Receipt) -> str:
    """Return the load receipt."""
    return "\n".join(_receipt_lines(receipt))


def _receipt_lines(receipt: Receipt) -> Iterator[str]:
    verb = "would lie" if receipt.dry_run else "are here"
    newest = receipt.newest_version
    behind = newest is not None and newest > receipt.corpus_version
    version = f"corpus version {receipt.corpus_version}" + (f" (newest: {newest})" if behind else "")
    yield (
        f"{receipt.tree}: {receipt.files_here:,} of {receipt.total_files:,} files {verb}, "
        f"{size_text(receipt.bytes_here)} of {size_text(receipt.total_bytes)}; {version}"
    )
    if receipt.offline:
        yield "offline: the corpus did not answer; this is the copy that this host fetched last"
    if behind:
        yield "the map is older than the corpus (a publish was cut short): memfs boot --rebuild; fetch sees all"
    if not receipt.dry_run:
        source = "nothing fetched, this host had it" if receipt.from_cache else "one GET"
        yield f"written: {receipt.files_written:,} ({source})"
    for left in receipt.left_out:
        if left.reason != NOT_INDEXED:
            yield f"left out: {files_text(left.files)} of {left.surface}/, {size_text(left.bytes)}: {left.reason}"
    if receipt.no_history:
        yield f"knowledge/ has no Git history here: {receipt.no_history}"
    yield from steps_text("kept", receipt.kept)
    yield from steps_text("refused", receipt.refused)
    yield from _deleted_lines(receipt.deleted)
    yield from going_text(receipt.evicted, receipt.dry_run)
    if receipt.files_here < receipt.total_files:
        yield 'what is not here: memfs fetch "question", memfs ls --remote, memfs get PATH'


def steps_text(title: str, steps: Sequence[Step]) -> Iterator[str]:
    """Yield a line a step, the rest counted."""
    yield from _some(f"{title}: {step.wanted.path}: {step.reason}" for step in steps)


def _deleted_lines(deleted: Sequence[str]) -> Iterator[str]:
    if deleted:
        yield f"deleted here, left so: {len(deleted):,}; memfs get PATH brings one back"
        yield from _some(f"  {name_text(path)}" for path in deleted)


def name_text(path: str) -> str:
    """Return a name as a terminal takes it: one with control characters or stray bytes in quotes, escaped."""
    return path if path.isprintable() else repr(path)


def going_text(evicted: Sequence[Going], dry_run: bool) -> Iterator[str]:
    """Yield what went to make room, the rest counted."""
    if evicted:
        word = "would evict" if dry_run else "evicted"
        yield f"{word} to make room: {files_text(len(evicted))}, {size_text(sum(going.size for going in evicted))}"
        yield from _some(f"  {going.path}" for going in evicted)


def _some(lines: Iterable[str], most: int = LINES_MAX) -> Iterator[str]:
    rest = 0
    for at, line in enumerate(lines):
        if at < most:
            yield line
        else:
            rest += 1
    if rest:
        yield f"… and {rest:,} more"


def added_text(added: Added) -> str:
    """Return the summary of an add."""
    return "\n".join(_added_lines(added))


def _added_lines(added: Added) -> Iterator[str]:
    changed = added.added + added.replaced
    would = "would be " if added.dry_run else ""
    if changed == 0 and added.unchanged:
        yield f"nothing changed: all {files_text(added.unchanged)} are in the corpus already (version {added.version})"
    else:
        passages = "" if added.dry_run else f"{added.passages:,} passages, "
        rate = f", {added.passages / added.seconds:,.0f} passages/s" if added.passages and added.seconds > 1 else ""
        if not changed and not added.unchanged:
            yield "nothing was taken"
        yield (
            f"{added.sources:,} sources read: {would}{files_text(added.added)} added, {added.replaced:,} replaced, "
            f"{added.unchanged:,} unchanged; {passages}{size_text(added.bytes)}, "
            f"{added.seconds:.1f} s{rate}; corpus version {added.version}"
        )
    if added.skipped_count:
        yield f"passed over ({added.skipped_count:,}; also parts of files that were taken):"
        yield from (f"  {line}" for line in _some(map(_skipped_line, added.skipped)))


def _skipped_line(item: Skipped) -> str:
    return f"{name_text(item.name)}: {item.reason}"


def answer_text(answer: Answer) -> str:
    """Return the synthesis, the files and the coverage line."""
    return "\n".join(_answer_lines(answer))


def _answer_lines(answer: Answer) -> Iterator[str]:
    if not answer.found:
        yield f"Nothing relevant found for: {answer.question}"
        yield "try the words that the memory itself would use, fewer filters, or look around: memfs ls --remote"
        yield from _times_lines(answer)
        yield _coverage_line(answer)
        return
    if answer.weak:
        yield "Nothing here answers this for sure. The nearest passages, which may be about something else:\n"
    yield answer.synthesis
    if answer.shown < len(answer.evidence):
        rest = answer.evidence[answer.shown :]
        yield f"\nbeyond the token budget: {', '.join(e.citation for e in rest[:LINES_MAX])}"
    yield "\nfiles (not laid; memfs get brings one by name):" if answer.weak else "\nfiles:"
    yield from (f"  {_file_line(file, answer.dry_run)}" for file in answer.files)
    yield from going_text(answer.evicted, answer.dry_run)
    yield from _times_lines(answer)
    if answer.trace is not None and answer.trace.active:
        yield f"walked the graph, rounds: {len(answer.trace.steps)}; ended: {answer.trace.stopped}"
    if answer.trace is not None and answer.trace.damage:
        yield f"found by the first search alone, {answer.trace.stopped}; {answer.trace.damage}"
    yield _coverage_line(answer)


def _times_lines(answer: Answer) -> Iterator[str]:
    if answer.times:
        read = ", ".join(map(str, answer.times))
        more = "what was said then counts more (--since and --until leave out the rest)"
        yield f"time read as {read}: {more if answer.said_then else 'nothing is dated then'}"


def trace_text(answer: Answer) -> str:
    """Return how the evidence was found, as Markdown: each round, what entered, what left, why it ended."""
    lines = [f"# {' '.join(answer.question.split())}", ""]
    if answer.trace is None:
        return "\n".join([*lines, "Found by the first search alone." if answer.found else "Nothing relevant.", ""])
    for move in answer.trace.steps:
        shown = {key: value for key, value in move.arguments.items() if value and key not in ("drop", "why")}
        said = ", ".join(f"{key} {_plain(value)}" for key, value in shown.items())
        lines += [
            f"## Round {move.round}: {move.action}",
            "",
            said,
            f"{move.found:,} passages reached, {move.ms:.0f} ms",
            "",
        ]
        lines += [f"+ {each}" for each in move.entered] + [f"- {each}" for each in move.dropped] + [""]
    walked = "" if answer.trace.active else "The graph was not walked. "
    lines += [f"{walked}Ended: {answer.trace.stopped}", "", "## Evidence", ""]
    lines += [f"{n}. {e.citation}" for n, e in enumerate(answer.evidence, 1)]
    return "\n".join([*lines, ""])


def _plain(value: object) -> str:
    return " ".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)


def _file_line(file: LaidFile, dry_run: bool) -> str:
    here = "would be laid" if dry_run else "here now"
    said = {"write": here, "replace": f"{here}, newer", "present": "was here"}.get(file.outcome, file.outcome)
    return f"{file.path} ({size_text(file.size)}, {said}{': ' + file.reason if file.reason else ''})"


def _coverage_line(answer: Answer) -> str:
    cover = answer.coverage
    here = f"{cover.files_here:,} of {cover.files_total:,} files are here; " if cover.files_here else ""
    dry = " (dry run: nothing written)" if answer.dry_run else ""
    every = "all " if not cover.scope else ""
    undated = f"; {files_text(cover.files_undated)} without a date left out" if cover.files_undated else ""
    scope = f" ({cover.scope}{undated}; the corpus has {files_text(cover.files_total)})" if cover.scope else ""
    return (
        f"coverage: {here}searched {every}{cover.passages_searched:,} passages "
        f"of {cover.files_searched:,} files{scope}, "
        f"corpus version {cover.corpus_version}{dry}"
    )


def listed_text(item: Listed) -> str:
    """Return one line of a listing."""
    mark = {"both": " ", "corpus": "-", "local": "+"}[item.where]
    title = f"  {item.title}" if item.title and item.title != item.path.rsplit("/", 1)[-1] else ""
    return f"{mark} {item.size:>10,} {item.mtime:%Y-%m-%d} {name_text(item.path)}{title}"


def coverage_text(coverage: Coverage) -> str:
    """Return what a search looked into, in one line."""
    parts = [
        f"coverage: {coverage.files_searched:,} of {coverage.files_total:,} files searched, "
        f"corpus version {coverage.corpus_version}"
    ]
    if coverage.files_matching:
        rest = coverage.files_matching - coverage.files_laid
        more = f", {rest:,} more match and are not here (memfs get PATH)" if rest else ""
        parts.append(f"laid {files_text(coverage.files_laid)} with matches{more}")
    if coverage.stale:
        parts.append(f"older here than in the corpus: {files_text(coverage.stale)} (memfs refresh)")
    if coverage.not_searched:
        parts.append(
            f"INCOMPLETE, not searched: {files_text(coverage.not_searched)}, over --budget, or damaged (memfs doctor)"
        )
    if coverage.offline:
        parts.append("INCOMPLETE: the corpus did not answer; its last version known here was searched")
    return "; ".join(parts)


def got_text(plan: Plan, done: Applied, dry_run: bool) -> str:
    """Return what a get did, or would do."""
    needed = plan.needed()
    count, size = (len(needed), sum(w.size for w in needed)) if dry_run else (done.written, done.bytes_written)
    word = "would write" if dry_run else "wrote"
    away = plan.having(Action.REFUSED, Action.NO_ROOM)
    others = len(plan.steps) - len(needed) - len(away)
    first = f"{word} {files_text(count)}, {size_text(size)}; {others:,} were here or kept"
    kept = steps_text("kept", plan.having(Action.EDITED, Action.CONFLICT))
    refused = steps_text("refused", plan.having(Action.REFUSED))
    no_room = steps_text("not laid", plan.having(Action.NO_ROOM))
    evicted = going_text(plan.evict if dry_run else done.evicted, dry_run)
    return "\n".join([first, *kept, *refused, *no_room, *evicted])


def pinned_text(pinned: Pinned, word: str) -> str:
    """Return what a pin or an unpin did, or would do."""
    return "\n".join(_pinned_lines(pinned, word))


def _pinned_lines(pinned: Pinned, word: str) -> Iterator[str]:
    did = f"would {word}" if pinned.dry_run else f"{word}ned"
    before = f"; {len(pinned.unchanged):,} were so before" if pinned.unchanged else ""
    laid = f", {len(pinned.laid):,} of them laid first" if pinned.laid else ""
    yield f"{did} {files_text(len(pinned.changed))}{laid}{before}"
    yield from _some(f"  {path}" for path in pinned.changed)
    yield from _some(f"not pinned: {step.wanted.path}: {step.reason}" for step in pinned.not_pinned)
    if pinned.evicted:
        yield f"{'would evict' if pinned.dry_run else 'evicted'} to make room:"
        yield from _some(f"  {path}" for path in pinned.evicted)
    now = "pinned now" if pinned.dry_run else "pinned here"
    yield f"{now}: {files_text(pinned.pinned_files)}, {size_text(pinned.pinned_bytes)}"


def evicted_text(evicted: Evicted) -> str:
    """Return what an evict did, or would do."""
    return "\n".join(_evicted_lines(evicted))


def _evicted_lines(evicted: Evicted) -> Iterator[str]:
    did = "would evict" if evicted.dry_run else "evicted"
    left = "would be left" if evicted.dry_run else "are here"
    yield (
        f"{did} {files_text(len(evicted.evicted))}, {evicted.bytes_freed:,} bytes; "
        f"{files_text(evicted.files_here)}, {evicted.bytes_here:,} bytes {left}"
    )
    yield from _some(f"  {path}" for path in evicted.evicted)
    if evicted.to_bytes is not None and evicted.bytes_here > evicted.to_bytes:
        yield f"still {evicted.bytes_here - evicted.to_bytes:,} bytes over: what is left is pinned or yours"
    yield from _some(f"kept: {kept.path}: {kept.reason}" for kept in evicted.kept)
    if evicted.evicted and not evicted.dry_run:
        yield "they come back with memfs get or fetch, as the corpus has them then"


def checkup_text(checkup: Checkup) -> str:
    """Return the findings, the problems last, and what to do about them."""
    return "\n".join(_checkup_lines(checkup))


def _checkup_lines(checkup: Checkup) -> Iterator[str]:
    for finding in sorted(checkup.findings, key=lambda f: f.severity == "problem" and not f.fixed):
        mark = "fixed" if finding.fixed else finding.severity
        yield f"{mark:<9}{finding.where}: {finding.what}"
        yield from _some(f"           {name}" for name in finding.names)
        if finding.repair:
            by = ("--fix did: " if finding.fixed else "--fix: ") if finding.fixable else "to do: "
            yield f"           {by}{finding.repair}"
    left = sum(f.severity == "problem" and not f.fixed for f in checkup.findings)
    fixable = sum(f.fixable and not f.fixed for f in checkup.findings)
    fixed = sum(f.fixed for f in checkup.findings)
    yield (
        f"{left:,} problems"
        + (f", {fixed:,} fixed" if fixed else "")
        + (f"; memfs doctor --fix would mend {fixable:,} of these findings" if fixable and not checkup.fix else "")
    )


def status_text(status: Status) -> str:
    """Return a tree's state."""
    return "\n".join(_status_lines(status))


def _status_lines(status: Status) -> Iterator[str]:
    yield f"{status.tree}: {status.files_here:,} of {status.files_total:,} files are here"
    newer = f"; {status.heard_version} is known of" if status.heard_version > status.corpus_version else ""
    yield f"corpus {status.corpus}, version {status.corpus_version} at the last boot{newer}"
    yield (
        f"{status.clean:,} clean, {len(status.modified):,} modified, {len(status.new):,} new, "
        f"{len(status.deleted):,} deleted, {len(status.conflicting):,} conflicting, {len(status.stale):,} stale"
    )
    for title, names in (
        ("modified", status.modified),
        ("new", status.new),
        ("deleted", status.deleted),
        ("stale", status.stale),
    ):
        yield from _some((f"  {title}: {name_text(name)}" for name in names), 100)
    yield from _some((f"  {line}" for line in _conflict_lines(status.conflicting)), 100)
    yield from _some((f"  unreadable: {name_text(x.path)}: {x.reason}" for x in status.unreadable), 100)
    if status.imported:
        yield f"  {status.imported:,} session files were sent, and became transcripts"


def _conflict_lines(conflicts: Sequence[Conflict]) -> Iterator[str]:
    for item in conflicts:
        copy = f"the corpus's version is {name_text(item.copy)}; " if item.copy else ""
        yield f"conflict: {name_text(item.path)}: {copy}{item.reason}"


def pushed_text(pushed: Pushed) -> str:
    """Return what a push did, or would do."""
    return "\n".join(_pushed_lines(pushed))


def _pushed_lines(pushed: Pushed) -> Iterator[str]:
    would = "would send" if pushed.dry_run else "sent"
    there = f", {len(pushed.adopted):,} were there already" if pushed.adopted else ""
    yield f"{would} {files_text(len(pushed.sent))}{there}; corpus version {pushed.version}"
    yield from _some(f"{would}: {name_text(path)}" for path in pushed.sent)
    yield from _some(f"  transcript: {name_text(path)}" for path in pushed.transcripts)
    yield from _some(_conflict_lines(pushed.conflicts))
    yield from _some(f"refused: {_skipped_line(item)}" for item in pushed.refused)
    yield from _some(f"passed over: {_skipped_line(item)}" for item in pushed.skipped)
    if pushed.deleted:
        yield f"deleted here, kept in the corpus: {len(pushed.deleted):,}"


def refreshed_text(refreshed: Refreshed) -> str:
    """Return what a refresh did, or would do."""
    return "\n".join(_refreshed_lines(refreshed))


def _refreshed_lines(refreshed: Refreshed) -> Iterator[str]:
    would = "would be " if refreshed.dry_run else ""
    yield (
        f"corpus version {refreshed.version}: {files_text(len(refreshed.replaced))} {would}replaced, "
        f"{len(refreshed.removed):,} {would}removed, {refreshed.unchanged:,} as they were"
    )
    yield from _some(f"replaced: {name_text(path)}" for path in refreshed.replaced)
    yield from _some(f"removed: {name_text(path)}: gone from the corpus" for path in refreshed.removed)
    yield from _some(_conflict_lines(refreshed.conflicts))
    yield from _some(f"refused: {_skipped_line(item)}" for item in refreshed.refused)
    yield from _deleted_lines(refreshed.deleted)
