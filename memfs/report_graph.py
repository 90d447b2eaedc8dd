"""What the graph's commands print."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from memfs.graph import Content, Cue
    from memfs.recall.graph import Built, Fact

__all__ = ["built_text", "content_text", "cue_text", "facts_text", "sizes_text"]


def built_text(built: Built) -> str:
    """Return what a build did."""
    odd = f", {built.refused:,} pieces without a usable answer (--again asks for them again)" if built.refused else ""
    by_model = f"{built.by_model:,} files filed by the model{odd}" if built.by_model else ""
    if not built.files and not built.gone:
        return by_model or "nothing to file: every file is in the graph as it is"
    gone = f", {built.gone:,} taken out" if built.gone else ""
    rate = built.passages / built.seconds if built.seconds else 0.0
    by_words = (
        f"{built.files:,} files filed{gone}: {built.passages:,} passages, {built.edges:,} edges, "
        f"{built.seconds:.1f} s ({rate:,.0f} passages/s)"
    )
    return "\n".join(filter(None, (by_words, by_model)))


def facts_text(facts: Sequence[Fact]) -> str:
    """Return a line a fact, with where it is said."""
    if not facts:
        return "no such facts: memfs graph build --model PROVIDER:NAME finds them"
    return "\n".join(map(_fact_lines, facts))


def _fact_lines(fact: Fact) -> str:
    since = f" (since {fact.since})" if fact.since else ""
    return f"{fact}{since}\n    {', '.join(place.citation for place in fact.places)}"


def sizes_text(sizes: Mapping[str, int]) -> str:
    """Return a line a count."""
    lines = [f"{count:>12,} {name}" for name, count in sizes.items() if name != "unfiled"]
    if sizes["unfiled"]:
        lines.append(f"{sizes['unfiled']:>12,} files are not in it: memfs graph build")
    return "\n".join(lines)


def cue_text(cue: Cue) -> str:
    """Return a cue's neighbourhood."""
    lines = [f"{cue.cue}: {cue.passages:,} passages"]
    lines += [f"near: {', '.join(cue.near)}"] if cue.near else []
    lines += [f"tags: {', '.join(f'{tag} ({count:,})' for tag, count in cue.tags)}"] if cue.tags else []
    lines += [f"  {each}" for each in cue.contents]
    more = cue.passages - len(cue.contents)
    return "\n".join([*lines, *([f"  … and {more:,} more"] if more else [])])


def content_text(content: Content) -> str:
    """Return what a passage is filed under."""
    rows = [f"  {kind:<7}{cue}{' · ' + tag if tag else ''}  ({layer})" for kind, cue, tag, layer in content.filed]
    return "\n".join([content.citation, *(rows or ["  not filed: memfs graph build"])])
