"""A page of the Brain: front matter, Markdown, links and citations. One parser, one writer; docs/brain-format.md.

What another tool or a person wrote in another style is read all the same, and keeps its
bytes as long as nothing in it changes: `render(parse(path, data)) == data`, always.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import date
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

from memfs.corpus.split import slug
from memfs.errors import InputError

if TYPE_CHECKING:
    from markdown_it.token import Token

__all__ = [
    "CHANGELOG", "FOLDERS", "INDEX", "INSTRUCTIONS", "ROOT", "SNAPSHOTS", "Claim", "Link", "Page", "PageError",
    "Source", "human_blocks", "in_brain", "page_path", "parse", "render",
]  # fmt: skip

ROOT = "knowledge/"
FOLDERS = {"entities": "entity", "concepts": "concept", "projects": "project", "learnings": "learning"}
"""Each folder's type of page."""
INDEX, CHANGELOG, INSTRUCTIONS = f"{ROOT}index.md", f"{ROOT}changelog.md", f"{ROOT}instructions.md"
SNAPSHOTS = f"{ROOT}.sources/"
KEYS = ("title", "type", "aliases", "summary", "created", "updated", "status", "sources")
STATUSES = ("active", "superseded", "retired")
_NAME = re.compile(r"knowledge/(entities|concepts|projects|learnings)/[a-z0-9]+(?:-[a-z0-9]+)*\.md")
_LINK = re.compile(r"\[\[([^\[\]|#\n]+)(?:#([^\[\]|\n]+))?(?:\|([^\[\]\n]+))?\]\]")
_CITE = re.compile(r"\[cite:(\d+)\]")
_CITES_END = re.compile(r"(?<=[.!?。！？])((?:\s*\[cite:\d+\])*)\s+(?!\[cite:)(?=\S)")
_HUMAN = re.compile(r"^<!-- human -->\n.*?^<!-- /human -->$", re.M | re.S)
_PLAIN = re.compile(r"[A-Za-z][\w ,'()/&+-]*(?:\.[\w ,'()/&+-]+)*\.?")
_RESERVED = re.compile(r"(?i)(true|false|yes|no|on|off|null|y|n|~|\d.*|[-+.].*)")


class PageError(InputError):
    """A page that cannot be read as one; `line` counts from 1."""

    def __init__(self, path: str, line: int, message: str) -> None:
        super().__init__(f"{path}:{line}: {message}", hint="docs/brain-format.md says how a page looks")
        self.path, self.line, self.reason = path, line, message


class Source(NamedTuple):
    """Where a claim stands."""

    at: str
    """`memfs://sessions/…#t12`, a note, or `connector://…`."""
    sha256: str
    """Of the cited span's bytes."""
    quote: str
    """Some of its words."""


class Link(NamedTuple):
    """`[[target#heading|label]]`."""

    target: str
    heading: str
    label: str
    line: int


class Claim(NamedTuple):
    """One sentence that says something, and the sources that it names."""

    text: str
    """Without citations; links as their labels."""
    line: int
    cites: tuple[int, ...]


@dataclass(frozen=True)
class Page:
    """A page. Dates are of what it says, not of when it was written."""

    path: str
    title: str
    type: str
    summary: str
    created: date
    updated: date
    body: str
    """Markdown, without the front matter; begins with the title's heading."""
    aliases: tuple[str, ...] = ()
    status: str = "active"
    sources: Mapping[int, Source] = field(default_factory=dict)
    raw: bytes = field(default=b"", compare=False, repr=False)
    """As it was read; empty for one that was made."""
    body_line: int = field(default=0, compare=False)
    """In the file, where the body begins."""

    @property
    def names(self) -> tuple[str, ...]:
        """What a link may call it: its path, the same without folder, title and aliases."""
        stem = self.path.removeprefix(ROOT).removesuffix(".md")
        return (stem, stem.rpartition("/")[2], self.title, *self.aliases)

    @cached_property
    def _tokens(self) -> list[Token]:
        from markdown_it import MarkdownIt

        return MarkdownIt("commonmark").enable("table").parse(self.body)

    def _inline(self) -> Iterator[tuple[str, int, bool]]:
        """Yield (text, line in the file, is a heading) of the prose: no code, no HTML."""
        in_heading = False
        for token in self._tokens:
            if token.type in ("heading_open", "heading_close"):
                in_heading = token.type == "heading_open"
            if token.type == "inline":
                parts = [c.content if c.type == "text" else "\n" for c in token.children or () if _is_prose(c)]
                yield "".join(parts), self.body_line + (token.map[0] if token.map else 0), in_heading

    @cached_property
    def headings(self) -> tuple[str, ...]:
        """The slugs of all headings."""
        return tuple(slug(text) for text, _, is_heading in self._inline() if is_heading)

    @cached_property
    def links(self) -> tuple[Link, ...]:
        """All links, in order."""
        return tuple(
            Link(m[1].strip(), (m[2] or "").strip(), (m[3] or m[1]).strip(), line + text.count("\n", 0, m.start()))
            for text, line, _ in self._inline()
            for m in _LINK.finditer(text)
        )

    @cached_property
    def cites(self) -> tuple[tuple[int, int], ...]:
        """All citations as (number, line), in order."""
        return tuple(
            (int(m[1]), line + text.count("\n", 0, m.start()))
            for text, line, _ in self._inline()
            for m in _CITE.finditer(text)
        )

    @cached_property
    def claims(self) -> tuple[Claim, ...]:
        """The sentences of the prose that say something: no heading, no list of links, nothing in a human block."""
        human = [(m.start(), m.end()) for m in _HUMAN.finditer(self.body)]
        spans = [(self.body.count("\n", 0, a), self.body.count("\n", 0, b)) for a, b in human]
        found = []
        for text, line, is_heading in self._inline():
            if is_heading or any(a <= line - self.body_line <= b for a, b in spans):
                continue
            at = 0
            for end in [*(m.end() for m in _CITES_END.finditer(text)), len(text)]:
                sentence = text[at:end]
                plain = " ".join(_LINK.sub(lambda m: m[3] or m[1], _CITE.sub("", sentence)).split())
                cites = tuple(int(n) for n in _CITE.findall(sentence))
                if cites or _says_something(sentence):
                    found.append(Claim(plain, line + text.count("\n", 0, at), cites))
                at = end
        return tuple(found)


def _is_prose(token: Token) -> bool:
    return token.type in ("text", "softbreak", "hardbreak")


def _says_something(sentence: str) -> bool:
    """Whether words are left without links, a label such as `See also:` and punctuation."""
    rest = re.sub(r"^\s*[^.:]{0,30}:(?=\s|$)", "", _LINK.sub("", sentence))
    return len(re.findall(r"\w+", re.sub(r"(?i)\b(see also|and|or|see)\b", "", rest))) > 0


def in_brain(path: str) -> bool:
    """Whether a file of the corpus belongs to the Brain; other files below knowledge/ are their owner's."""
    if path in (INDEX, CHANGELOG, INSTRUCTIONS):
        return True
    return path.startswith((SNAPSHOTS, *(f"{ROOT}{folder}/" for folder in FOLDERS)))


def page_path(path: str) -> bool:
    """Whether a page may lie there."""
    return _NAME.fullmatch(path) is not None


def human_blocks(text: str) -> list[str]:
    """Return the parts of a page that a person keeps: a dream leaves them as they are."""
    return [match.group() for match in _HUMAN.finditer(text)]


def parse(path: str, data: bytes) -> Page:
    """Read a page.

    Raises:
        PageError: it is none, and where.
    """
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise PageError(path, data.count(b"\n", 0, error.start) + 1, "is not UTF-8") from None
    if "\0" in text or "\r" in text:
        line = next(n for n, each in enumerate(text.split("\n"), 1) if "\0" in each or "\r" in each)
        raise PageError(path, line, "holds a NUL or a carriage return")
    match = re.match(r"---\n(.*?\n)---\n", text, re.S)
    if match is None:
        raise PageError(path, 1, "has no front matter between two lines of ---")
    values = _front_matter(path, match[1])
    body = text[match.end() :]
    return Page(
        path=path,
        title=_text(path, match[1], values, "title"),
        type=_text(path, match[1], values, "type"),
        summary=_text(path, match[1], values, "summary"),
        created=_date(path, match[1], values, "created"),
        updated=_date(path, match[1], values, "updated"),
        body=body,
        aliases=_aliases(path, match[1], values),
        status=_text(path, match[1], values, "status"),
        sources=_sources(path, match[1], values),
        raw=data,
        body_line=text.count("\n", 0, match.end()) + 1,
    )


def _front_matter(path: str, head: str) -> dict[str, Any]:
    import yaml

    try:
        # The base loader makes texts of everything: what a value means is decided here.
        values = yaml.load(head, Loader=yaml.BaseLoader)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        raise PageError(
            path, 2 + (mark.line if mark else 0), f"the front matter is no YAML: {error}".split("\n")[0]
        ) from None
    if not isinstance(values, dict):
        raise PageError(path, 2, "the front matter is no mapping")
    for key in values:
        if key not in KEYS:
            raise PageError(path, _line_of(head, str(key)), f"{key!r} is no key of a page: {', '.join(KEYS)}")
    return values


def _line_of(head: str, key: str) -> int:
    return next((n for n, line in enumerate(head.split("\n"), 2) if line.startswith(f"{key}:")), 2)


def _text(path: str, head: str, values: Mapping[str, Any], key: str) -> str:
    value = values.get(key)
    if not isinstance(value, str) or not value.strip():
        raise PageError(path, _line_of(head, key), f"{key} is missing, or no text")
    if "\n" in value:
        raise PageError(path, _line_of(head, key), f"{key} is more than a line")
    return value.strip()


def _date(path: str, head: str, values: Mapping[str, Any], key: str) -> date:
    try:
        return date.fromisoformat(str(values.get(key)))
    except ValueError:
        raise PageError(path, _line_of(head, key), f"{key} is no date like 2026-05-17") from None


def _aliases(path: str, head: str, values: Mapping[str, Any]) -> tuple[str, ...]:
    found = values.get("aliases", [])
    if not isinstance(found, list) or not all(isinstance(name, str) and name.strip() for name in found):
        raise PageError(path, _line_of(head, "aliases"), "aliases is no list of names")
    return tuple(name.strip() for name in found)


def _sources(path: str, head: str, values: Mapping[str, Any]) -> dict[int, Source]:
    found = values.get("sources", {})
    where = _line_of(head, "sources")
    if not isinstance(found, dict):
        raise PageError(path, where, "sources is no mapping of numbers")
    sources = {}
    for offset, (number, entry) in enumerate(found.items(), 1):
        if not str(number).isdecimal() or not isinstance(entry, dict):
            raise PageError(path, where + offset, f"source {number!r} is no number with at, sha256 and quote")
        if set(entry) != set(Source._fields) or not all(isinstance(value, str) for value in entry.values()):
            raise PageError(path, where + offset, f"source {number} has not just at, sha256 and quote")
        sources[int(number)] = Source(**entry)
    return sources


def render(page: Page) -> bytes:
    """Return a page's bytes: as they were read if nothing changed, else in the canonical form."""
    if page.raw and parse(page.path, page.raw) == page:
        return page.raw
    lines = [
        "---",
        f"title: {_scalar(page.title)}",
        f"type: {page.type}",
        f"aliases: [{', '.join(map(_scalar, page.aliases))}]",
        f"summary: {_scalar(page.summary)}",
        f"created: {page.created.isoformat()}",
        f"updated: {page.updated.isoformat()}",
        f"status: {page.status}",
        "sources:" if page.sources else "sources: {}",
    ]
    for number, source in page.sources.items():
        parts = ", ".join(f"{key}: {_quoted(value)}" for key, value in source._asdict().items())
        lines.append(f"  {number}: {{{parts}}}")
    return ("\n".join([*lines, "---", ""]) + page.body).encode()


def _scalar(text: str) -> str:
    return text if _PLAIN.fullmatch(text) and not _RESERVED.fullmatch(text) and "," not in text else _quoted(text)


def _quoted(text: str) -> str:
    import json

    return json.dumps(text, ensure_ascii=False)
