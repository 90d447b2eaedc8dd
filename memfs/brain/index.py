"""What is made from the pages: `knowledge/index.md`, and the changelog's lines."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import date

from memfs.brain.page import CHANGELOG, FOLDERS, INDEX, Page, PageError, page_path, parse

__all__ = ["INDEX_TOKENS", "changelog", "finish", "index"]

INDEX_TOKENS = 4_000
"""The most that `knowledge/index.md` may take of an agent's window, at 4 characters a token."""
CHARS_PER_TOKEN = 4
HEAD = "# Knowledge\n\nMade by memfs from the pages' summaries: edit the pages.\n"
CHANGELOG_HEAD = "# Changelog\n\nWhat changed in the Brain, newest first.\n\n"
_TITLES = {"entities": "Entities", "concepts": "Concepts", "projects": "Projects", "learnings": "Learnings"}


def index(pages: Iterable[Page], budget_tokens: int = INDEX_TOKENS) -> str:
    """Return a line a page, by folder, newest first; what does not fit is counted, never left out in silence."""
    chars = budget_tokens * CHARS_PER_TOKEN - len(HEAD) - 80 * len(FOLDERS)
    active = [page for page in pages if page.status == "active"]
    groups = {folder: _newest(page for page in active if _folder(page) == folder) for folder in FOLDERS}
    shown = _deal({folder: [len(_line(page)) for page in some] for folder, some in groups.items()}, chars)
    parts = [HEAD]
    for folder, some in groups.items():
        if some:
            parts.append(f"\n## {_TITLES[folder]}\n\n")
            parts += [_line(page) for page in some[: shown[folder]]]
            if len(some) > shown[folder]:
                parts.append(f"- … {len(some) - shown[folder]:,} more: ls knowledge/{folder}, or memfs ls\n")
    return "".join(parts)


def _folder(page: Page) -> str:
    return page.path.split("/")[1]


def _newest(pages: Iterable[Page]) -> list[Page]:
    return sorted(sorted(pages, key=lambda page: page.path), key=lambda page: page.updated, reverse=True)


def _line(page: Page) -> str:
    stem = page.path.removeprefix("knowledge/").removesuffix(".md")
    return f"- [[{stem}|{page.title}]]: {page.summary} ({page.updated.isoformat()})\n"


def _deal(sizes: dict[str, list[int]], chars: int) -> dict[str, int]:
    """Deal lines out in rounds, so that one long folder does not crowd the others out."""
    shown = dict.fromkeys(sizes, 0)
    open_folders = list(sizes)
    while open_folders:
        for folder in list(open_folders):
            at = shown[folder]
            if at == len(sizes[folder]) or sizes[folder][at] > chars:
                open_folders.remove(folder)
                continue
            chars -= sizes[folder][at]
            shown[folder] += 1
    return shown


def finish(files: Mapping[str, bytes], day: date, lines: Sequence[str]) -> dict[str, bytes]:
    """Return the files with what is made from them: the index, and `lines` of `day` on top of the changelog."""
    pages = []
    for path in filter(page_path, files):
        # What is no page, the gate names.
        with suppress(PageError):
            pages.append(parse(path, files[path]))
    before = files.get(CHANGELOG, b"").decode(errors="replace")
    return {**files, INDEX: index(pages).encode(), CHANGELOG: changelog(before, day, lines).encode()}


def changelog(before: str, day: date, lines: Sequence[str]) -> str:
    """Return the changelog with `lines` of `day` put on top; `before` is what it was, or ""."""
    rest = before.removeprefix(CHANGELOG_HEAD) if before.startswith(CHANGELOG_HEAD) else before
    return CHANGELOG_HEAD + "".join(f"- {day.isoformat()}: {line}\n" for line in lines) + rest
