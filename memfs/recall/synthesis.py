"""The answer's text without a model: the best passages themselves, cited, within a token budget."""

from __future__ import annotations

import re
from collections.abc import Sequence

from memfs.recall.evidence import Evidence

__all__ = ["CHARS_PER_TOKEN", "extract"]

CHARS_PER_TOKEN = 4
PASSAGE_CHARS_MAX = 1_500
"""Of one passage: enough to answer from, and no single log fills the answer."""
_SOURCES = re.compile(r"^sources:[^\n]*\n(?:[ \t][^\n]*\n)*", re.M)


def extract(evidence: Sequence[Evidence], budget_tokens: int) -> tuple[str, int]:
    """Return the synthesis and how many of the passages it holds, best first; what is cut is said."""
    parts: list[str] = []
    room = budget_tokens * CHARS_PER_TOKEN
    for number, item in enumerate(evidence, 1):
        block = _block(number, item)
        if len(block) > room and parts:
            break
        parts.append(block if len(block) <= room else _cut(block, room))
        room -= len(block)
    return "\n\n".join(parts), len(parts)


def _block(number: int, item: Evidence) -> str:
    when = item.event_time.strftime("%Y-%m-%d") if item.event_time else "undated"
    who = f" · {item.speaker}" if item.speaker else ""
    body = "\n".join(f"    {line}" for line in _cut(_spoken(item), PASSAGE_CHARS_MAX).splitlines())
    gone = "".join(f"\n    (no longer: {each})" for each in item.replaced)
    return f"[{number}] {when}{who} · {item.title}\n    {item.citation}{gone}\n{body}"


def _spoken(item: Evidence) -> str:
    """The passage without the turn heading, which the block's first line says already, and without a page's sources."""
    text = _SOURCES.sub("", item.text) if item.text.startswith("---\n") else item.text
    lines = text.strip("\n").split("\n")
    if item.speaker and lines and lines[0].startswith("## t"):
        lines = lines[1:]
    return "\n".join(lines).strip()


def _cut(text: str, chars: int) -> str:
    if len(text) <= chars:
        return text
    kept = text[: max(chars - 40, 40)]
    kept = kept[: kept.rfind("\n")] if kept.rfind("\n") > chars // 2 else kept
    return f"{kept}\n… [{len(text) - len(kept):,} more characters]"
