"""The context edge: which page a link means, who links to whom, what leads nowhere."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable
from functools import cached_property

from memfs.brain.page import ROOT, Link, Page

__all__ = ["Graph"]


class Graph:
    """The links among pages. A target is a path, a slug, a title or an alias, whatever its case and Unicode form."""

    def __init__(self, pages: Iterable[Page]) -> None:
        self.pages = {page.path: page for page in pages}

    @cached_property
    def _by_name(self) -> dict[str, set[str]]:
        found: dict[str, set[str]] = {}
        for page in self.pages.values():
            for name in page.names:
                found.setdefault(_key(name), set()).add(page.path)
        return found

    def resolve(self, target: str) -> tuple[str, ...]:
        """Return the paths that a target may mean: one if all is well, none if it leads nowhere."""
        key = _key(target.removeprefix(ROOT).removesuffix(".md"))
        return tuple(sorted(self._by_name.get(key, ())))

    def out(self, path: str) -> tuple[tuple[Link, str], ...]:
        """Return a page's links that lead somewhere, with the page that each means."""
        found = ((link, self.resolve(link.target)) for link in self.pages[path].links)
        return tuple((link, paths[0]) for link, paths in found if len(paths) == 1)

    def into(self, path: str) -> tuple[str, ...]:
        """Return the pages that link to a page."""
        return tuple(sorted(self._into.get(path, ())))

    @cached_property
    def _into(self) -> dict[str, set[str]]:
        found: dict[str, set[str]] = {}
        for path in self.pages:
            for _, target in self.out(path):
                if target != path:
                    found.setdefault(target, set()).add(path)
        return found

    def broken(self, path: str) -> tuple[tuple[Link, str], ...]:
        """Return a page's links that lead nowhere, or to more than one page, or to no heading, and why."""
        found = []
        for link in self.pages[path].links:
            paths = self.resolve(link.target)
            if not paths:
                found.append((link, "leads to no page"))
            elif len(paths) > 1:
                found.append((link, f"may mean {' or '.join(paths)}"))
            elif link.heading and _heading(link.heading) not in self.pages[paths[0]].headings:
                found.append((link, f"{paths[0]} has no such heading"))
        return tuple(found)

    def orphans(self) -> tuple[str, ...]:
        """Return the pages that no other page links to; a single page is none."""
        return tuple(path for path in self.pages if not self.into(path)) if len(self.pages) > 1 else ()

    def shared_names(self) -> dict[str, tuple[str, ...]]:
        """Return the titles and aliases that more than one page goes by."""
        return {name: tuple(sorted(paths)) for name, paths in self._by_name.items() if len(paths) > 1}


def _key(name: str) -> str:
    return " ".join(unicodedata.normalize("NFC", unicodedata.normalize("NFC", name).casefold()).split())


def _heading(text: str) -> str:
    from memfs.corpus.split import slug

    return slug(text)
