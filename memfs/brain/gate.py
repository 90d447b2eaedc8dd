"""The gate: what a stage must be before any of it is published. Deterministic, and the same for every author.

Each rule has a name; docs/brain-format.md lists them. A problem says where it is and what
would fix it. `warning`s do not stop a publish: above all, a source that cannot be read
just now is unknown, never gone.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from memfs import paths
from memfs.brain.evidence import QUOTE_CHARS_MAX, Evidence, Span, Verdict, holds_quote, judge, place_of
from memfs.brain.index import INDEX_TOKENS, index
from memfs.brain.links import Graph
from memfs.brain.page import (
    CHANGELOG,
    FOLDERS,
    INDEX,
    INSTRUCTIONS,
    ROOT,
    SNAPSHOTS,
    STATUSES,
    Claim,
    Page,
    PageError,
    Source,
    human_blocks,
    page_path,
    parse,
)
from memfs.brain.support import Support, support
from memfs.errors import PathError, redact

__all__ = ["BUDGETS", "RULES", "Budgets", "Judge", "Problem", "Review", "holds_secret", "review", "validate"]

SUMMARY_CHARS_MAX = 200
RULES = {
    "name": "a page lies in one of the four folders, under a slug of a-z, 0-9 and single hyphens",
    "front-matter": "the front matter is YAML with the keys of the format, each of its kind",
    "type": "a page's type is its folder's",
    "status": "active, superseded or retired",
    "dates": "created is no later than updated",
    "summary": f"one sentence of at most {SUMMARY_CHARS_MAX} characters",
    "title": "the body begins with the title as its heading",
    "size": "no page is larger than the budget",
    "cite-form": "a citation is [cite:N]",
    "cite-unknown": "every citation has a source of that number",
    "cite-unused": "every source is cited",
    "source-form": "a source is memfs://path#anchor or connector://…, a sha256 and a quote",
    "evidence-gone": "the cited place exists",
    "evidence-changed": "the cited span has the hash that was cited",
    "evidence-quote": "the quote stands in the cited span",
    "evidence-unknown": "the cited place could not be read (a warning: nothing follows from it)",
    "uncited": "every sentence that says something is cited",
    "unsupported": "the cited spans say what the sentence says",
    "link-broken": "every link leads to one page, and to a heading that it has",
    "link-form": "a link is [[target]], [[target|label]] or [[target#heading]]",
    "names": "no two pages go by the same title or alias",
    "orphan": "every page is linked from another",
    "index": "index.md is what memfs makes from the pages, within its budget",
    "changelog": "changelog.md is there, a dated line for each change, newest first, and loses none",
    "secret": "no credentials",
    "human": "what a person wrote is as it was",
    "deletions": "no more pages and lines go than the budget allows",
    "stray": "nothing else lies in knowledge/",
}


class Problem(NamedTuple):
    """What is wrong, where, by which rule, and what would mend it."""

    path: str
    line: int
    """From 1; 0 for the file as a whole."""
    rule: str
    message: str
    fix: str
    warning: bool = False

    def __str__(self) -> str:
        where = f"{self.path}:{self.line}" if self.line else self.path
        return f"{where}: {'warning: ' if self.warning else ''}{self.message} [{self.rule}]"


@dataclass(frozen=True)
class Budgets:
    """How much there may be, and how much may go at once."""

    page_bytes: int = 24_000
    index_tokens: int = INDEX_TOKENS
    deleted_pages_share: float = 0.1
    deleted_lines_share: float = 0.3
    free_pages: int = 1
    """So many pages may go whatever their share."""
    free_lines: int = 40


BUDGETS = Budgets()


class Review(NamedTuple):
    """The whole verdict on a stage."""

    problems: tuple[Problem, ...]
    pages: int
    claims: int
    supported: int
    """Of the claims, those whose evidence was read and found to say so."""

    @property
    def passes(self) -> bool:
        """Whether it may be published."""
        return all(problem.warning for problem in self.problems)


Judge = Callable[[Page, Claim, list[Span]], Support]
"""Whether a claim's evidence supports it: by words and figures, or by a model."""


def validate(
    stage: Mapping[str, bytes], before: Mapping[str, bytes], evidence: Evidence, budgets: Budgets = BUDGETS
) -> tuple[Problem, ...]:
    """Return what is wrong with `stage`, the files of knowledge/ by path, that follow `before`."""
    return review(stage, before, evidence, budgets).problems


def review(
    stage: Mapping[str, bytes],
    before: Mapping[str, bytes],
    evidence: Evidence,
    budgets: Budgets = BUDGETS,
    judge_claim: Judge | None = None,
) -> Review:
    """As `validate`, with the counts; `judge_claim` replaces the judgement by words."""
    problems: list[Problem] = []
    pages: dict[str, Page] = {}
    for path, data in sorted(stage.items()):
        if path in (INDEX, CHANGELOG, INSTRUCTIONS) or path.startswith(SNAPSHOTS):
            continue
        named = list(_named(path))
        problems += named
        if any(problem.rule == "stray" for problem in named):
            continue
        try:
            pages[path] = parse(path, data)
        except PageError as error:
            problems.append(Problem(path, error.line, "front-matter", error.reason, "write it as the format says"))
    graph = Graph(pages.values())
    counts = [0, 0]
    for page in pages.values():
        problems += _page(page, stage[page.path], budgets)
        problems += _links(page, graph)
        old = _claims_of(page.path, before.get(page.path))
        problems += _evidence(page, evidence, counts, judge_claim or _by_words, old)
    # What was there before and is as it was is nobody's fault of now: said, and no reason to publish nothing.
    problems = [p._replace(warning=p.warning or stage[p.path] == before.get(p.path)) for p in problems]
    problems += _whole(graph, pages, stage, before, budgets)
    for path, data in sorted(stage.items()):
        problems += _secrets(path, data)
        problems += _human(path, data, before.get(path))
    order = sorted(dict.fromkeys(problems), key=lambda p: (p.path, p.line, p.rule))
    return Review(tuple(order), len(pages), counts[0], counts[1])


# -- one page -----------------------------------------------------------------------------


def _named(path: str) -> Iterator[Problem]:
    try:
        paths.check(path)
    except PathError as error:
        yield Problem(path, 0, "name", error.message, "rename it")
        return
    inside = path.startswith(ROOT) and path.count("/") == 2 and path.split("/")[1] in FOLDERS
    if not inside or not path.endswith(".md"):
        yield Problem(
            path,
            0,
            "stray",
            "is no page, and nothing else belongs here",
            f"move it to notes/, or a page to {ROOT}entities/",
        )
    elif not page_path(path):
        yield Problem(
            path, 0, "name", "is no slug", "use a-z, 0-9 and single hyphens: knowledge/entities/ines-duarte.md"
        )


def _page(page: Page, data: bytes, budgets: Budgets) -> Iterator[Problem]:
    path, kind = page.path, FOLDERS.get(page.path.split("/")[1])
    if page.type != kind:
        yield Problem(
            path, 3, "type", f"type is {page.type!r}, in the folder of type {kind!r}", f"type: {kind}, or move the page"
        )
    if page.status not in STATUSES:
        yield Problem(path, 8, "status", f"status is {page.status!r}", f"one of {', '.join(STATUSES)}")
    if page.created > page.updated:
        yield Problem(
            path, 6, "dates", "was updated before it was created", "these are the dates of what the page says"
        )
    if len(page.summary) > SUMMARY_CHARS_MAX or re.search(r"[.!?。]\s+\S", page.summary):
        yield Problem(
            path,
            5,
            "summary",
            "the summary is more than a sentence, or too long",
            f"at most {SUMMARY_CHARS_MAX} characters",
        )
    if page.body.lstrip("\n").split("\n", 1)[0] != f"# {page.title}":
        yield Problem(path, page.body_line, "title", "the body does not begin with the title", f"# {page.title}")
    if len(data) > budgets.page_bytes:
        fix = "split it into pages that link to each other, or retire what is superseded"
        yield Problem(path, 0, "size", f"has {len(data):,} bytes of at most {budgets.page_bytes:,}", fix)
    yield from _forms(page)
    cited = {number for number, _ in page.cites}
    for number, line in page.cites:
        if number not in page.sources:
            yield Problem(
                path,
                line,
                "cite-unknown",
                f"[cite:{number}] has no source",
                "add it to sources, or take the citation out",
            )
    for number in page.sources:
        if number not in cited:
            yield Problem(
                path, 9, "cite-unused", f"source {number} is not cited", "cite it where it belongs, or take it out"
            )
    for claim in page.claims:
        if not claim.cites:
            yield Problem(
                path, claim.line, "uncited", f"{claim.text[:80]!r} is not cited", "end the sentence with [cite:N]"
            )


_ALMOST_CITE = re.compile(r"(?i)[\[(【]\s*cite\b[^\])】]{0,12}[\])】]")
_ALMOST_LINK = re.compile(r"\[\[[^\[\]]*(?:\]|$)(?!\])|\[\[\s*[|#\]]|\[\[[^\]]*\|[^\]]*\|[^\]]*\]\]", re.M)


def _forms(page: Page) -> Iterator[Problem]:
    for text, line, _ in page._inline():
        for match in _ALMOST_CITE.finditer(text):
            if not re.fullmatch(r"\[cite:\d+\]", match.group()):
                yield Problem(
                    page.path,
                    line + text.count("\n", 0, match.start()),
                    "cite-form",
                    f"{match.group()!r} is no citation",
                    "[cite:N]",
                )
        for match in _ALMOST_LINK.finditer(text):
            at = line + text.count("\n", 0, match.start())
            yield Problem(page.path, at, "link-form", f"{match.group()[:40]!r} is no link", RULES["link-form"])


def _links(page: Page, graph: Graph) -> Iterator[Problem]:
    for link, why in graph.broken(page.path):
        shown = f"[[{link.target}{'#' + link.heading if link.heading else ''}]]"
        yield Problem(
            page.path, link.line, "link-broken", f"{shown} {why}", "name the page by its path, or take the link out"
        )


# -- evidence -----------------------------------------------------------------------------


def _by_words(page: Page, claim: Claim, spans: list[Span]) -> Support:
    return support(claim, spans, " ".join([page.title, *page.aliases]))


def _standing(page: Page, claim: Claim) -> tuple[str, frozenset[Source | None]]:
    """A claim with what it stands on, whatever its number."""
    return claim.text, frozenset(page.sources.get(number) for number in claim.cites)


def _claims_of(path: str, data: bytes | None) -> frozenset[tuple[str, frozenset[Source | None]]]:
    try:
        page = None if data is None else parse(path, data)
    except PageError:
        page = None
    return frozenset() if page is None else frozenset(_standing(page, claim) for claim in page.claims)


def _evidence(
    page: Page,
    evidence: Evidence,
    counts: list[int],
    judge_claim: Judge,
    old: frozenset[tuple[str, frozenset[Source | None]]],
) -> Iterator[Problem]:
    spans: dict[int, Span] = {}
    unknown: set[int] = set()
    for number, source in page.sources.items():
        line = next(
            (n for n, text in enumerate(page.raw.decode().split("\n"), 1) if text.startswith(f"  {number}:")), 9
        )
        form = _source_form(source.at, source.sha256, source.quote)
        if form:
            yield Problem(page.path, line, "source-form", f"source {number}: {form}", RULES["source-form"])
            unknown.add(number)
            continue
        if source.at.startswith("connector://"):
            unknown.add(number)
            continue
        verdict, span = judge(source, evidence)
        where = f"source {number}: {source.at}"
        if verdict is Verdict.UNKNOWN:
            unknown.add(number)
            yield Problem(
                page.path, line, "evidence-unknown", f"{where} could not be read", "try again later", warning=True
            )
        elif span is None:
            yield Problem(
                page.path, line, "evidence-gone", f"{where} does not exist", "cite what exists, or retire the claim"
            )
        elif verdict is Verdict.CHANGED:
            yield Problem(
                page.path,
                line,
                "evidence-changed",
                f"{where} is not what was cited",
                f"read it again, then cite sha256 {span.sha256}",
            )
        else:
            spans[number] = span
            if not holds_quote(span, source.quote):
                yield Problem(
                    page.path,
                    line,
                    "evidence-quote",
                    f"{where} does not say {source.quote[:60]!r}",
                    "quote its own words",
                )
    for claim in page.claims:
        counts[0] += 1
        mine = [spans[number] for number in claim.cites if number in spans]
        if not mine:
            continue
        found = judge_claim(page, claim, mine)
        counts[1] += found.holds
        if not found.holds and not any(number in unknown for number in claim.cites):
            fix = "say what the evidence says, cite what says this, or take it out"
            # It passed once, perhaps before a model that could judge other words than its evidence's.
            passed = _standing(page, claim) in old
            yield Problem(page.path, claim.line, "unsupported", f"{claim.text[:80]!r}: {found.why}", fix, passed)


def _source_form(at: str, sha256: str, quote: str) -> str | None:
    if not re.fullmatch(r"[0-9a-f]{64}", sha256):
        return "sha256 is no hash"
    if not quote.strip() or len(quote) > QUOTE_CHARS_MAX:
        return f"the quote is empty, or longer than {QUOTE_CHARS_MAX} characters"
    if re.fullmatch(r"connector://[\w.-]+/\S+", at):
        return None
    place = place_of(at)
    if place is None:
        return f"{at!r} is no place"
    if place.path.startswith(ROOT):
        return "a page is no evidence: cite what it stands on"
    return None


# -- the Brain as a whole -----------------------------------------------------------------


def _whole(
    graph: Graph, pages: Mapping[str, Page], stage: Mapping[str, bytes], before: Mapping[str, bytes], budgets: Budgets
) -> Iterator[Problem]:
    for path in graph.orphans():
        yield Problem(path, 0, "orphan", "no page links to it", "link it from the page whose subject it belongs to")
    for name, shared in graph.shared_names().items():
        for path in shared:
            if graph.pages[path].title.casefold() == name or name in (
                alias.casefold() for alias in graph.pages[path].aliases
            ):
                yield Problem(
                    path,
                    2,
                    "names",
                    f"{name!r} is also what {_others(shared, path)} goes by",
                    "merge them, or rename one",
                )
    if pages:
        expected = index(pages.values(), budgets.index_tokens)
        if stage.get(INDEX) != expected.encode():
            yield Problem(INDEX, 0, "index", "is not what the pages make", "memfs index --write makes it anew")
    yield from _changelog(stage, before)
    yield from _deletions(stage, before, budgets)


def _others(shared: Iterable[str], path: str) -> str:
    return " and ".join(other for other in shared if other != path)


_ENTRY = re.compile(r"- (\d{4}-\d{2}-\d{2}): \S.*")


def _changelog(stage: Mapping[str, bytes], before: Mapping[str, bytes]) -> Iterator[Problem]:
    changed = {path for path in {*stage, *before} if page_path(path) and stage.get(path) != before.get(path)}
    lines = stage.get(CHANGELOG, b"").decode(errors="replace").split("\n")
    old = [line for line in before.get(CHANGELOG, b"").decode(errors="replace").split("\n") if line.startswith("- ")]
    entries = [(n, line) for n, line in enumerate(lines, 1) if line.startswith("-")]
    fix = "- 2026-05-17: one line, on top"
    if changed and len(entries) <= len(old):
        yield Problem(CHANGELOG, 0, "changelog", f"{len(changed)} pages changed, and no line says so", fix)
    if old and [line for _, line in entries][-len(old) :] != old:
        yield Problem(
            CHANGELOG, 0, "changelog", "lines of before were changed or lost", "put new ones on top of the old"
        )
    for number, line in entries:
        if not _ENTRY.fullmatch(line):
            yield Problem(CHANGELOG, number, "changelog", "is no dated line", fix)


def _deletions(stage: Mapping[str, bytes], before: Mapping[str, bytes], budgets: Budgets) -> Iterator[Problem]:
    old = [path for path in before if page_path(path)]
    # A page that says nothing any more is gone, whatever is left of its file.
    gone = [
        path
        for path in old
        if path not in stage or (_claims_of(path, before[path]) and not _claims_of(path, stage[path]))
    ]
    allowed = max(budgets.free_pages, int(len(old) * budgets.deleted_pages_share))
    fix = "retire pages (status: retired) rather than delete them, or do it in smaller steps"
    if len(gone) > allowed:
        yield Problem(ROOT, 0, "deletions", f"{len(gone)} of {len(old)} pages would go; at most {allowed} may", fix)
    had = sum(before[path].count(b"\n") for path in old)
    lost = sum(_lost(before[path], stage.get(path, b"")) for path in old)
    most = max(budgets.free_lines, int(had * budgets.deleted_lines_share))
    if lost > most:
        yield Problem(ROOT, 0, "deletions", f"{lost} of {had} lines would go; at most {most} may", fix)


def _lost(old: bytes, new: bytes) -> int:
    left = set(new.split(b"\n"))
    return sum(1 for line in old.split(b"\n") if line.strip() and line not in left)


_SECRET = re.compile(
    r"-----BEGIN [A-Z ]*PRIVATE KEY-----|\bgh[pousr]_[A-Za-z0-9]{30,}|\bsk-[A-Za-z0-9_-]{20,}|"
    r"\bxox[abprs]-[A-Za-z0-9-]{10,}|"
    r"\bAIza[0-9A-Za-z_-]{35}|\beyJ[A-Za-z0-9_-]{15,}\.eyJ[A-Za-z0-9_-]{15,}|\bglpat-[\w-]{20}"
)


def holds_secret(line: str) -> bool:
    """Whether a line holds what looks like a credential."""
    return bool(_SECRET.search(line)) or redact(line) != line


def _secrets(path: str, data: bytes) -> Iterator[Problem]:
    for number, line in enumerate(data.decode(errors="replace").split("\n"), 1):
        if holds_secret(line):
            yield Problem(
                path,
                number,
                "secret",
                "holds what looks like a credential",
                "take it out; the page can say where it is kept",
            )


def _human(path: str, data: bytes, before: bytes | None) -> Iterator[Problem]:
    if before is None:
        return
    if path == INSTRUCTIONS and data != before:
        yield Problem(path, 0, "human", "is a person's, and was changed", "leave it as it was")
    now = human_blocks(data.decode(errors="replace"))
    for block in human_blocks(before.decode(errors="replace")):
        if block not in now:
            yield Problem(
                path, 0, "human", f"a person's block is gone or changed: {block[:60]!r}", "leave it as it was"
            )
