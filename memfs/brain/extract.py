"""The dream's driver without a model: dated facts in the speakers' own words, filed under who and what they are about.

Modest on purpose. It chooses sentences, it writes none: each fact is a quotation with its
date and its citation, so nothing on a page can say what nobody said. A page for everyone
who speaks, and for every name that recurs.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import date
from typing import NamedTuple

from memfs.brain.evidence import QUOTE_CHARS_MAX, Evidence, Verdict, holds_quote, judge
from memfs.brain.gate import holds_secret
from memfs.brain.links import Graph
from memfs.brain.page import Page, Source
from memfs.brain.transcript import Transcript, Turn

__all__ = ["Fact", "facts_of", "mend", "short_names", "subjects_of", "summary", "update", "without_session"]

SENTENCE_CHARS_MAX = 220
FACTS_A_SESSION = 3
"""For one subject."""
FACTS_A_PAGE = 40
SUMMARY_SENTENCES = 6
MENTIONS_MIN, SESSIONS_MIN = 3, 2
"""From how many turns, of how many sessions, a name has a page."""
ASSISTANTS = frozenset({"assistant", "system", "tool"})
FACTS, PREFERENCES, SAID = "Facts", "Preferences", "What is said of it"
_LINE_DAY = re.compile(r'^- (\d{4}-\d{2}-\d{2})[^"\n]*: "', re.M)
_OUR_SUMMARY = re.compile(r".*(?: speaks| is spoken of|, in words) (?:in|from) \d+ sessions?, \S+ to \S+")
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+|(?<=[。！？])\s*|\n+")
_UNQUOTABLE = re.compile(r"[\[\]<>*_`|#\\{}\"]|\$\(|https?:|^\s*[-+>]|\bcite:")
_NAME = re.compile(r"(?<=[\w,;] )([A-ZÀ-Þ][\w'-]+(?: (?:of the |of |de |da |van )?(?:[A-ZÀ-Þ][\w'-]+|\d+))*)")
_FIRST_PERSON = re.compile(
    r"(?i)\b(i|i'm|i've|i'd|my|we|we're|our|eu|meu|minha|yo|mi|ich|mein|je|mon|ma)\b|나|저|우리|私|我"
)
_EVENT = re.compile(
    r"(?i)\b(moved?|went|got|bought|started|finished|joined|won|lost|born|married|adopted|signed|visited|works?|"
    r"lives?|studied|graduated|quit|since|until|named|called|allergic|decided|chose|booked|fly|flew|will be|has been|"
    r"is now)\b"
)
_PREFERENCE = re.compile(
    r"(?i)\b(prefers?|favou?rite|loves?|likes?|enjoys?|hates?|can't stand|always|never|wants?|please)\b"
)
_COMMON = frozenset(
    "I I'm I've I'd I'll OK Ok Yes No Hey Hi Wow Thanks Thank The This That These Those It And But So Oh What When "
    "Where Who Why How Monday Tuesday Wednesday Thursday Friday Saturday Sunday January February March April May June "
    "July August September October November December Mon Tue Tues Wed Thu Thurs Fri Sat Sun Jan Feb Mar Apr Jun Jul "
    "Aug Sep Sept Oct Nov Dec Christmas Halloween Easter Mr Mrs Ms Dr Let You We He She They My Your Our PR README "
    "TODO".split()
)


class Fact(NamedTuple):
    """One sentence that somebody said."""

    path: str
    anchor: str
    speaker: str
    day: date
    text: str
    sha256: str
    score: float

    @property
    def source(self) -> Source:
        """As a page cites it."""
        quote = self.text if len(self.text) <= QUOTE_CHARS_MAX else self.text[:QUOTE_CHARS_MAX].rpartition(" ")[0]
        return Source(f"memfs://{self.path}#{self.anchor}", self.sha256, quote)


def facts_of(transcript: Transcript) -> list[Fact]:
    """Return the sentences of a session that state something and can be quoted, in order."""
    return [fact for turn in transcript.turns for fact in _facts(transcript, turn)]


def _facts(transcript: Transcript, turn: Turn) -> Iterator[Fact]:
    if turn.speaker.casefold() in ASSISTANTS or turn.day is None:
        return
    for sentence in _SENTENCE_END.split(_prose(turn.text)):
        text = " ".join(sentence.split())
        score = _score(text) if text.endswith((".", "!", "。", "！")) else 0.0
        if score > 0:
            yield Fact(transcript.path, turn.anchor, turn.speaker, turn.day, text, turn.sha256, score)


def _prose(text: str) -> str:
    """The text without code and without what the importer added in brackets."""
    return re.sub(r"```.*?(```|$)|^\[.*\]$|^(?: {4}|\t).*$", "\n", text, flags=re.S | re.M)


def _score(text: str) -> float:
    """How much a sentence states; 0 for what is no statement, or cannot be quoted."""
    words = len(text.split())
    # Scripts without spaces count by their characters.
    words = max(words, sum(unicodedata.east_asian_width(char) in "WF" for char in text) // 2)
    if not words >= 5 or len(text) > SENTENCE_CHARS_MAX or "?" in text or "？" in text or _UNQUOTABLE.search(text):
        return 0.0
    if holds_secret(text):
        return 0.0
    score = (
        0.5 * bool(_FIRST_PERSON.search(text)) + 1.0 * bool(_EVENT.search(text)) + 0.8 * bool(_PREFERENCE.search(text))
    )
    score += 0.7 * bool(re.search(r"\d", text)) + 0.4 * min(3, len(_names(text)))
    return score + min(words, 20) / 40 if score >= 0.8 else 0.0


def _names(text: str) -> list[str]:
    found = (match.group().removesuffix("'s") for match in _NAME.finditer(text))
    return [name for name in found if name.split()[0] not in _COMMON]


def subjects_of(transcripts: Sequence[Transcript]) -> dict[str, list[Fact]]:
    """Return what is said by subject: everyone who speaks, and every name that recurs; a fact may be filed twice."""
    people: dict[str, list[Fact]] = {}
    turns: dict[str, set[tuple[str, str]]] = {}
    about: dict[str, list[Fact]] = {}
    for transcript in transcripts:
        for turn in transcript.turns:
            if turn.speaker.casefold() not in ASSISTANTS:
                people.setdefault(turn.speaker, [])
            for name in set(_names(_prose(turn.text))):
                turns.setdefault(name, set()).add((transcript.path, turn.anchor))
        for fact in facts_of(transcript):
            people[fact.speaker].append(fact)
            for name in _names(fact.text):
                about.setdefault(name, []).append(fact)
    spoken = {name.casefold() for name in people} | {part.casefold() for name in people for part in name.split()}
    # `Potter` is not another one than `Harry Potter`, where that is what is said more often.
    parts: dict[str, int] = {}
    for name, where in turns.items():
        for word in name.split() if " " in name else ():
            parts[word] = max(parts.get(word, 0), len(where))
    recurring = {
        name: about[name]
        for name, where in turns.items()
        if parts.get(name, 0) < len(where)
        if len(where) >= MENTIONS_MIN and len({path for path, _ in where}) >= SESSIONS_MIN and about.get(name)
        if not any(word.startswith(name.split()[0].casefold()) for word in spoken)
    }
    return {**{name: facts for name, facts in people.items() if facts}, **recurring}


def short_names(transcripts: Sequence[Transcript]) -> dict[str, tuple[str, ...]]:
    """Return what the others call someone who speaks: a name that theirs begins with (`Mel` for `Melanie`)."""
    people = {turn.speaker for transcript in transcripts for turn in transcript.turns}
    called = {name for t in transcripts for turn in t.turns for name in _names(_prose(turn.text)) if " " not in name}
    found: dict[str, tuple[str, ...]] = {}
    for name in sorted(called - people):
        owners = [person for person in people if len(name) > 2 and person.startswith(name)]
        if len(owners) == 1:
            found[owners[0]] = (*found.get(owners[0], ()), name)
    return found


def summary(transcript: Transcript) -> bytes:
    """Return a session's summary: its strongest sentences in order, each with its turn."""
    facts = sorted(facts_of(transcript), key=lambda fact: -fact.score)[:SUMMARY_SENTENCES]
    order = {turn.anchor: at for at, turn in enumerate(transcript.turns)}
    lines = [
        f"- {fact.speaker}: {fact.text} ([{fact.anchor}](transcript.md#{fact.anchor}))\n"
        for fact in sorted(facts, key=lambda fact: order[fact.anchor])
    ]
    people = ", ".join(dict.fromkeys(turn.speaker for turn in transcript.turns))
    day = transcript.day or "not known"
    head = f"# {transcript.title}\n\n- date: {day}\n- participants: {people}\n- turns: {len(transcript.turns)}\n"
    return (head + "\n" + ("".join(lines) or "Nothing was stated that can be quoted.\n")).encode()


# -- pages --------------------------------------------------------------------------------


def path_of(name: str) -> str:
    """Return where the page of a subject lies."""
    plain = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode().lower()
    found = re.sub(r"[^a-z0-9]+", "-", plain).strip("-")
    # A name without a Latin letter: its own code points.
    return f"knowledge/entities/{found or '-'.join(f'u{ord(char):x}' for char in name if char.isalnum())[:80]}.md"


def update(
    pages: Mapping[str, Page], subjects: Mapping[str, Sequence[Fact]], people: Iterable[str],
    called: Mapping[str, Sequence[str]],
) -> dict[str, Page]:  # fmt: skip
    """Return the pages that are new or other than before, each with the facts that it lacked."""
    persons = set(people)
    taken = {name.casefold() for page in pages.values() for name in page.names}
    made: dict[str, Page] = {}
    for name, facts in subjects.items():
        path = path_of(name)
        before = made.get(path) or pages.get(path)
        page = _with_facts(before or _empty(path, name, facts), _chosen(facts), name in persons)
        new = [short for short in called.get(name, ()) if short.casefold() not in taken]
        page = replace(page, aliases=(*page.aliases, *new)) if new else page
        if page != before and page.sources:
            made[path] = page
    known = {**pages, **made}
    for path, page in list(made.items()):
        linked = _linked(page, known, persons, subjects)
        if linked != page:
            made[path] = linked
    for path, page in back_links(made, {**pages, **made}).items():
        made[path] = page
    return {path: page for path, page in made.items() if pages.get(path) != page}


def _chosen(facts: Sequence[Fact]) -> list[Fact]:
    """The best of each session, newest first."""
    by_session: dict[str, list[Fact]] = {}
    for fact in facts:
        by_session.setdefault(fact.path, []).append(fact)
    best = [f for some in by_session.values() for f in sorted(some, key=lambda f: -f.score)[:FACTS_A_SESSION]]
    best = sorted(best, key=lambda fact: -fact.score)[:FACTS_A_PAGE]
    return sorted(best, key=lambda fact: (fact.day, fact.path, len(fact.anchor), fact.anchor), reverse=True)


def _empty(path: str, name: str, facts: Sequence[Fact]) -> Page:
    first = min(fact.day for fact in facts)
    return Page(path, name, "entity", "", first, first, f"# {name}\n")


def _with_facts(page: Page, facts: Sequence[Fact], is_person: bool) -> Page:
    known = {(source.at, source.quote) for source in page.sources.values()}
    new = [fact for fact in facts if (fact.source.at, fact.source.quote) not in known]
    room = FACTS_A_PAGE - len(page.sources)
    new = sorted(new, key=lambda fact: fact.day, reverse=True)[: max(room, FACTS_A_SESSION)]
    sources, body = dict(page.sources), page.body
    # Oldest first, each put on top of its list.
    for fact in reversed(new):
        number = max(sources, default=0) + 1
        sources[number] = fact.source
        heading = SAID if not is_person else PREFERENCES if _PREFERENCE.search(fact.text) else FACTS
        who = "" if is_person else f", {fact.speaker}"
        body = _on_top(body, heading, f'- {fact.day.isoformat()}{who}: "{fact.text}" [cite:{number}]')
    page = _trimmed(replace(page, sources=sources, body=body))
    days = [fact.day for fact in new]
    if not days:
        return page
    return _described(replace(page, created=min([page.created, *days]), updated=max([page.updated, *days])))


def _described(page: Page) -> Page:
    """Say in its summary from how many sessions, of which days, its lines are, unless another wrote the summary."""
    days = sorted(date.fromisoformat(day) for day in _LINE_DAY.findall(page.body))
    if not days or not (not page.summary or _OUR_SUMMARY.fullmatch(page.summary)):
        return page
    sessions = len({source.at.partition("#")[0] for source in page.sources.values()})
    many = "s" if sessions > 1 else ""
    text = f"{page.title}, in words from {sessions} session{many}, {days[0].isoformat()} to {days[-1].isoformat()}"
    return replace(page, created=days[0], updated=days[-1], summary=text)


def _on_top(body: str, heading: str, line: str) -> str:
    mark = f"\n## {heading}\n\n"
    if mark in body:
        return body.replace(mark, f"{mark}{line}\n", 1)
    before, see, after = body.partition("\nSee also: ")
    return f"{before.rstrip()}\n{mark}{line}\n{see}{after}"


def _trimmed(page: Page) -> Page:
    """Let the oldest facts go where there are more than a page holds: they stay in the history, and in the sessions."""
    while len(page.sources) > FACTS_A_PAGE:
        cut = _without(page, min(page.sources))
        if cut == page:
            return page
        page = cut
    return page


def _without(page: Page, number: int) -> Page:
    """Take a source out, with the lines of ours that cite it alone."""
    ours = re.compile(rf'^- \d{{4}}-\d{{2}}-\d{{2}}[^"\n]*: ".*" \[cite:{number}\]\n', re.M)
    body = re.sub(r"\n## [^\n]+\n\n(?=\n## |\nSee also: |\Z)", "", ours.sub("", page.body))
    if f"[cite:{number}]" in body:
        return page
    return replace(page, body=body, sources={n: source for n, source in page.sources.items() if n != number})


def _linked(page: Page, known: Mapping[str, Page], persons: set[str], subjects: Mapping[str, Sequence[Fact]]) -> Page:
    """Link a page to those that its facts are by or about."""
    others: dict[str, str] = {}
    for name in subjects:
        path = path_of(name)
        if path in known and path != page.path and (_shares(page, subjects[name]) or _met(page, subjects[name])):
            others[path] = known[path].title
    return _see_also(page, others)


def _shares(page: Page, facts: Sequence[Fact]) -> bool:
    cited = {source.at for source in page.sources.values()}
    return any(fact.source.at in cited for fact in facts)


def _met(page: Page, facts: Sequence[Fact]) -> bool:
    """Whether someone speaks in a session that the page cites."""
    sessions = {source.at.partition("#")[0] for source in page.sources.values()}
    return len({fact.speaker for fact in facts}) == 1 and any(f"memfs://{fact.path}" in sessions for fact in facts)


def _see_also(page: Page, others: Mapping[str, str]) -> Page:
    there = {link.target for link in page.links}
    new = [
        f"[[{stem}|{title}]]" for path, title in sorted(others.items())
        if (stem := path.removeprefix("knowledge/").removesuffix(".md")) not in there
    ][:30]  # fmt: skip
    if not new:
        return page
    body, mark, rest = page.body.rpartition("\nSee also: ")
    if mark:
        return replace(page, body=f"{body}{mark}{rest.rstrip().removesuffix('.')}, {', '.join(new)}.\n")
    return replace(page, body=f"{page.body.rstrip()}\n\nSee also: {', '.join(new)}.\n")


def back_links(made: Mapping[str, Page], known: Mapping[str, Page]) -> dict[str, Page]:
    """Where no page links to one, link it from a page that it links to, or from the largest."""
    found: dict[str, Page] = {}
    pages = {**known, **made}
    graph = Graph(pages.values())
    for path in graph.orphans():
        hosts = [other for _, other in graph.out(path) if other != path]
        host = hosts[0] if hosts else max((other for other in pages if other != path), key=lambda p: len(pages[p].body))
        found[host] = _see_also(found.get(host) or pages[host], {path: pages[path].title})
    return found


def without_links(page: Page, gone: Iterable[str]) -> Page:
    """Take links to pages (paths) that are no more out of our lists of links."""
    before, mark, rest = page.body.rpartition("\nSee also: ")
    if not mark:
        return page
    line, end, after = rest.partition("\n")
    stems = {path.removeprefix("knowledge/").removesuffix(".md") for path in gone}
    links = re.findall(r"\[\[([^\[\]|#]+)(\|[^\[\]]+)?\]\]", line)
    kept = [f"[[{target}{label}]]" for target, label in links if target not in stems]
    if len(kept) == len(links):
        return page
    if not kept:
        return replace(page, body=f"{before.rstrip()}\n{after}")
    return replace(page, body=f"{before}{mark}{', '.join(kept)}.{end}{after}")


def without_session(page: Page, at: str) -> Page:
    """Take out our lines that cite a session (`memfs://path`)."""
    for number, source in list(page.sources.items()):
        if source.at.partition("#")[0] == at:
            page = _without(page, number)
    return _described(page)


def mend(page: Page, evidence: Evidence) -> Page:
    """Follow the evidence: a span that changed and still says the quote is cited anew, else our line of it goes.

    What could not be read stays as it is: nothing follows from that.
    """
    for number, source in list(page.sources.items()):
        verdict, span = judge(source, evidence)
        if verdict is Verdict.CHANGED and span is not None and holds_quote(span, source.quote):
            sources = {**page.sources, number: source._replace(sha256=span.sha256)}
            page = replace(page, sources=sources)
        elif verdict in (Verdict.CHANGED, Verdict.GONE):
            page = _without(page, number)
    return page
