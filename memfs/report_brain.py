"""What the Brain's commands print."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from memfs.brain.gate import Review
    from memfs.brain.history import Entry
    from memfs.brain.page import Source
    from memfs.brain.sync import Published
    from memfs.dream import Dreamt
    from memfs.links import Links
    from memfs.why import Reason

__all__ = ["dreamt_text", "links_text", "log_text", "published_text", "review_text", "source_text", "why_text"]


def dreamt_text(dreamt: Dreamt) -> str:
    """Return what a dream did."""
    if dreamt.published is None:
        return "nothing to dream of: no session is new"
    count = len(dreamt.sessions)
    first = (
        f"{count:,} new session{'s' if count != 1 else ''} ({dreamt.driver}); {dreamt.pages:,} pages, "
        f"{dreamt.claims:,} claims, {dreamt.supported:,} of them found in their evidence"
    )
    kept = [f"stage: {dreamt.stage}"] if dreamt.stage else []
    spent = [f"spent: {dreamt.spent}"] if dreamt.spent else []
    odd = [str(problem) for problem in dreamt.warnings]
    return "\n".join([first, published_text(dreamt.published), *odd, *spent, *kept])


def published_text(published: Published) -> str:
    """Return what a publish changed."""
    if published.nothing:
        return f"the pages are as they were; corpus version {published.version}"
    would = "would publish" if published.dry_run else "published"
    merged = ", merged with what others published meanwhile" if published.merged else ""
    lines = [f"{would} corpus version {published.version}{merged}" if not published.dry_run else f"{would}:"]
    for word, paths in (("new", published.added), ("changed", published.changed), ("removed", published.removed)):
        lines += [f"  {word}: {path}" for path in paths]
    return "\n".join(lines)


def review_text(review: Review) -> str:
    """Return a verdict of the gate."""
    return "\n".join(_review_lines(review))


def _review_lines(review: Review) -> Iterator[str]:
    for problem in review.problems:
        yield str(problem)
        yield f"    {problem.fix}"
    verdict = "passes" if review.passes else "is refused"
    yield f"{verdict}: {review.pages:,} pages, {review.claims:,} claims, {review.supported:,} found in their evidence"


def log_text(entries: Sequence[Entry]) -> str:
    """Return the history."""
    if not entries:
        return "no history yet: memfs dream makes the first commit"
    return "\n".join(line for entry in entries for line in _entry_lines(entry))


def _entry_lines(entry: Entry) -> Iterator[str]:
    yield f"{entry.commit[:12]} {entry.when} {entry.subject}"
    for session in entry.sessions[:3]:
        yield f"    {session.partition('@')[0]}"
    if len(entry.sessions) > 3:
        yield f"    … and {len(entry.sessions) - 3:,} more"


def links_text(links: Links) -> str:
    """Return a page's links, or what is wrong with all."""
    lines = [f"-> {path}" for path in links.out] + [f"<- {path}" for path in links.into]
    lines += [f"broken: {each.path}:{each.line}: [[{each.target}]] {each.why}" for each in links.broken]
    lines += [f"no page links to: {path}" for path in links.orphans]
    return "\n".join(lines) or "no links" if links.page else "\n".join(lines) or "every link leads somewhere"


def why_text(path: str, reasons: Sequence[Reason], *, in_full: bool) -> str:
    """Return what claims stand on; the surroundings too when one was asked for."""
    parts = [path]
    for reason in reasons:
        parts += [f"[{reason.number}] {claim}" for claim in reason.claims]
        parts.append(f"    {reason.verdict}: {reason.at}")
        if in_full:
            parts += [f"      {line}" for line in (reason.before[-300:] or "").splitlines()]
            parts += [f"    > {line}" for line in reason.span.splitlines()]
            parts += [f"      {line}" for line in reason.after[:300].splitlines()]
        else:
            parts.append(f"    > {reason.quote}")
    return "\n".join(parts)


def source_text(source: Source) -> str:
    """Return a source as a page's front matter has it, but for its number."""
    import json

    return "{" + ", ".join(f"{k}: {json.dumps(v, ensure_ascii=False)}" for k, v in source._asdict().items()) + "}"
