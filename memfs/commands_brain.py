"""The commands of the Brain; loaded when one of them is asked for, so that a boot does not pay for them."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from memfs.commands import (
    ALL,
    CORPUS,
    DRY_RUN,
    JSON,
    TREE,
    UNDER,
    Invocation,
    command,
    flag,
    json_text,
    value,
    when,
)  # fmt: skip
from memfs.errors import ConflictError, CorruptError, InputError

if TYPE_CHECKING:
    from memfs.brain.history import History
    from memfs.config import Config
    from memfs.corpus.table import Corpus

__all__ = ["ALL"]


def _history(config: Config, corpus: Corpus) -> History:
    from memfs.brain.store import history_of

    return history_of(config.state_dir, corpus.uri)


@command(
    value("--model", metavar="PROVIDER:NAME", help="a language model reads the sessions and writes the pages"),
    value("--agent", metavar="COMMAND", help="a coding agent that is started in the stage, with SKILL.md beside it"),
    flag("--no-model", help="by extraction: dated facts in the speakers' own words, all cited [default]"),
    value("--since", metavar="DATE", help="only sessions of this date or later"),
    UNDER,
    value("--max-tokens", type=int, metavar="N", help="with --model: stop after so many, input and output"),
    value("--max-cost", type=float, metavar="USD", help="with --model: stop when it has cost so much"),
    value("--keep-stage", metavar="DIR", help="make the stage in DIR, and leave it there"),
    CORPUS,
    JSON,
    DRY_RUN,
)
def dream(
    go: Invocation, model: str | None, agent: str | None, no_model: bool, since: str | None, under: str,
    max_tokens: int | None, max_cost: float | None, keep_stage: str | None, corpus: str | None, as_json: bool,
    dry_run: bool,
) -> None:  # fmt: skip
    """Bring new sessions into the Brain: staged, checked by the gate, published in one commit, or not at all.

    Exit code 3 if the gate refuses the stage or the model's answers cannot be used, 7 if others changed the same
    lines meanwhile, 75 if the budget is used up: the same command goes on from there.
    """
    from memfs import dream as verb
    from memfs import paths
    from memfs.report_brain import dreamt_text
    from memfs.workset.tree import read_mark

    if sum((model is not None, agent is not None, no_model)) > 1:
        raise InputError("--model, --agent and --no-model contradict each other", hint="give one of them")
    if model is None and (max_tokens is not None or max_cost is not None):
        raise InputError("--max-tokens and --max-cost are of --model", hint="give --model PROVIDER:NAME with them")
    from memfs.llm import LanguageModel

    spoken = LanguageModel.open(model, max_tokens=max_tokens, max_cost_usd=max_cost) if model else None
    config = go.config(corpus=corpus)
    opened = go.open(config)
    first = when(since, "since")
    done = verb.dream(
        opened, _history(config, opened), agent=agent, model=spoken, under=paths.prefix(under),
        since=first.date() if first else None, keep_stage=keep_stage and os.path.join(go.cwd, keep_stage),
        state_dir=config.state_dir, dry_run=dry_run, say=go.note,
    )  # fmt: skip
    go.show(done, as_json, dreamt_text)
    if done.published is not None and not dry_run and read_mark(config.tree) is not None:
        go.note(f"memfs refresh brings the pages into {config.tree}")


@command(value("stage", nargs="?", metavar="STAGE"), CORPUS, TREE, JSON)
def validate(go: Invocation, stage: str | None, corpus: str | None, tree: str | None, as_json: bool) -> int | None:
    """Check a stage by the gate, or the Brain as the corpus has it. Exit code 8 if it does not pass."""
    from memfs import validate as verb
    from memfs.report_brain import review_text

    found = verb.validate(go.open(go.config(corpus=corpus, tree=tree)), stage and os.path.join(go.cwd, stage))
    go.show({**found._asdict(), "passes": found.passes} if as_json else found, as_json, review_text)
    return None if found.passes else CorruptError.exit_code


@command(
    value("stage", nargs="?", metavar="STAGE"),
    value("-m", "--message", default="", metavar="TEXT", help="what the history says of it"),
    CORPUS,
    TREE,
    JSON,
    DRY_RUN,
)
def sync(
    go: Invocation, stage: str | None, message: str, corpus: str | None, tree: str | None, as_json: bool, dry_run: bool
) -> None:
    """Publish a stage, or without one the pages that you edited below knowledge/, through the gate.

    Exit code 3 if the gate refuses, 7 if others changed the same lines meanwhile.
    """
    from memfs import sync as verb
    from memfs.report_brain import published_text

    config = go.config(corpus=corpus, tree=tree)
    opened = go.open(config)
    history = _history(config, opened)
    if stage is not None:
        folder = os.path.join(go.cwd, stage)
        done = verb.sync(opened, history, folder, message=message, dry_run=dry_run)
    else:
        with go.tree(config) as laid:
            done = verb.sync_tree(opened, history, laid, message=message, dry_run=dry_run)
    go.show(done, as_json, published_text)


@command(value("-n", "--max-count", dest="limit", type=int, metavar="N", help="at most N"), CORPUS, TREE, JSON)
def log(go: Invocation, limit: int | None, corpus: str | None, tree: str | None, as_json: bool) -> None:
    """Show the Brain's history, newest first."""
    from memfs import log as verb
    from memfs.report_brain import log_text

    config = go.config(corpus=corpus, tree=tree)
    opened = go.open(config)
    go.show(verb.log(opened, _history(config, opened), limit), as_json, log_text)


@command(
    value("revision", nargs="?", metavar="REV"),
    value("--session", metavar="ID", help="only take out what stands on that session: its path, or a part of it"),
    CORPUS,
    JSON,
    DRY_RUN,
)
def rollback(
    go: Invocation, revision: str | None, session: str | None, corpus: str | None, as_json: bool, dry_run: bool
) -> None:
    """Publish the Brain as it was at REV, or without what one session brought in: a new commit, never a rewrite."""
    from memfs import rollback as verb
    from memfs.report_brain import published_text

    if (revision is None) == (session is None):
        raise InputError("give a revision, or --session", hint="memfs log lists both")
    config = go.config(corpus=corpus)
    opened = go.open(config)
    history = _history(config, opened)
    if session is not None:
        done = verb.rollback_session(opened, history, session, dry_run=dry_run)
    else:
        done = verb.rollback(opened, history, str(revision), dry_run=dry_run)
    go.show(done, as_json, published_text)
    if not dry_run and not done.nothing:
        go.note(
            "note: no dream reads their sessions again; memfs rollback REV goes forward as it went back (memfs log)"
        )


@command(value("page", nargs="?", metavar="PAGE"), CORPUS, TREE, JSON)
def links(go: Invocation, page: str | None, corpus: str | None, tree: str | None, as_json: bool) -> int | None:
    """Show a page's links, both ways; without PAGE all broken links and the pages that no other links to.

    Exit code 8 with a broken link.
    """
    from memfs import links as verb
    from memfs.report_brain import links_text

    found = verb.links(go.open(go.config(corpus=corpus, tree=tree)), page)
    go.show(found, as_json, links_text)
    return CorruptError.exit_code if found.broken else None


@command(value("page", metavar="PAGE"), value("number", nargs="?", type=int, metavar="N"), CORPUS, TREE, JSON)
def why(
    go: Invocation, page: str, number: int | None, corpus: str | None, tree: str | None, as_json: bool
) -> int | None:
    """Show what a page's claims stand on: the cited words, what is around them, and whether they still hold.

    Exit code 8 if a citation does not hold.
    """
    from memfs import why as verb
    from memfs.report_brain import why_text

    path, found = verb.why(go.open(go.config(corpus=corpus, tree=tree)), page, number)
    go.say(json_text(found) if as_json else why_text(path, found, in_full=number is not None))
    return CorruptError.exit_code if any(each.verdict in ("changed", "gone") for each in found) else None


@command(
    value("at", nargs="+", metavar="PATH#ANCHOR"),
    value("--quote", default="", metavar="TEXT", help="of one place: words that stand there [its beginning]"),
    CORPUS,
    TREE,
    JSON,
)
def cite(go: Invocation, at: list[str], quote: str, corpus: str | None, tree: str | None, as_json: bool) -> None:
    """Print the source line that a page needs to cite a place, with the hash of what stands there now."""
    from memfs import why as verb
    from memfs.report_brain import source_text

    sources = verb.cite(go.open(go.config(corpus=corpus, tree=tree)), at, quote)
    shown = sources if len(sources) > 1 else sources[0]
    go.show(shown, as_json, lambda _: "\n".join(map(source_text, sources)))


@command(
    value("--tokens", type=int, default=1_500, metavar="N", help="of the printed index, at 4 characters each [1500]"),
    value("--stage", metavar="DIR", help="of the pages in a stage"),
    flag("--write", help="with --stage: write its knowledge/index.md"),
    CORPUS,
    TREE,
)
def index(go: Invocation, tokens: int, stage: str | None, write: bool, corpus: str | None, tree: str | None) -> None:
    """Print the Brain's index: a line a page, newest first, and what did not fit is counted."""
    from memfs.brain import index as made
    from memfs.brain.page import INDEX
    from memfs.brain.stage import Stage
    from memfs.brain.store import pages_in
    from memfs.brain.sync import pages_of

    if write and stage is None:
        raise InputError("--write is for a stage", hint="memfs index --stage DIR --write")
    if stage is None:
        go.say(made.index(pages_in(pages_of(go.open(go.config(corpus=corpus, tree=tree)))).values(), tokens), end="")
        return
    opened = Stage.open(os.path.join(go.cwd, stage))
    pages = pages_in(opened.files()).values()
    if write:
        opened.write(INDEX, made.index(pages).encode())
    go.say(made.index(pages, made.INDEX_TOKENS if write else tokens), end="")


@command(
    value("action", nargs="?", choices=("show", "install"), default="show"),
    value("directory", nargs="?", metavar="DIR"),
)
def skill(go: Invocation, action: str, directory: str | None) -> None:
    """Show the skill by which a coding agent dreams, or install it into DIR (.claude/skills)."""
    from memfs import dream as verb

    if action == "show":
        go.say(verb.skill(), end="")
        return
    folder = os.path.join(go.cwd, directory or ".claude/skills", "memfs-dream")
    file = os.path.join(folder, "SKILL.md")
    os.makedirs(folder, exist_ok=True)
    if os.path.exists(file):
        with open(file, encoding="utf-8", errors="replace") as handle:
            if handle.read() not in ("", verb.skill()):
                raise ConflictError(f"{file} is another", hint="delete it first, or give another folder")
    with open(file, "w", encoding="utf-8") as out:
        out.write(verb.skill())
    go.say(f"installed {file}")
