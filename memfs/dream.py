"""memfs dream: bring the sessions that are new into the Brain: staged, checked, published in one commit."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import date
from typing import NamedTuple

from memfs.brain import dream as phases
from memfs.brain.evidence import CorpusEvidence
from memfs.brain.gate import Problem, Review, review
from memfs.brain.history import History
from memfs.brain.stage import SUMMARIES, Stage
from memfs.brain.store import documents_of, gate_of
from memfs.brain.sync import GateError, Published, base_of, publish
from memfs.corpus.table import Corpus
from memfs.errors import CorruptError, MemfsError
from memfs.llm import LanguageModel, Spent
from memfs.recall.graph import build as build_graph

__all__ = ["AgentError", "Dreamt", "dream", "skill"]

EVIDENCE = "evidence"
"""In a stage for an agent: the new transcripts, to read."""


class AgentError(MemfsError):
    """The external agent failed; nothing was published."""

    exit_code = 3


class Dreamt(NamedTuple):
    """What a dream did, or would do."""

    sessions: tuple[str, ...]
    """New since the last dream."""
    driver: str
    facts: int
    """Attached to subjects; 0 for an agent, which keeps no count."""
    pages: int
    claims: int
    supported: int
    published: Published | None
    """None when nothing was new."""
    stage: str
    """Where it was kept; "" if it was not."""
    spent: Spent | None = None
    """On a model."""
    warnings: tuple[Problem, ...] = ()
    """What a model thinks cannot hold side by side."""


def dream(
    corpus: Corpus,
    history: History,
    *,
    agent: str | None = None,
    model: LanguageModel | None = None,
    under: str = "",
    since: date | None = None,
    keep_stage: str | None = None,
    state_dir: str | None = None,
    dry_run: bool = False,
    say: Callable[[str], None] = lambda text: None,
) -> Dreamt:
    """Stage, fill by extraction, by the command `agent` or by `model`, check, and publish what passes.

    A dream by a model that stops goes on from its stage, which lies in `keep_stage` or below `state_dir`.

    Raises:
        AgentError: the command failed.
        BudgetError, NonsenseError: the model; nothing was published, the stage is kept.
        GateError: the stage is refused; it is kept, and the error says where.
        MergeError: others published changes to the same lines meanwhile.
    """
    base = base_of(corpus, history)
    new = phases.new_sessions(corpus, history, under=under, since=since)
    driver = f"agent: {agent}" if agent else f"model: {model.name}" if model else "no model"
    if not new:
        return Dreamt((), driver, 0, 0, 0, 0, None, "")
    resumed = _resumed(corpus, state_dir) if model and keep_stage is None and state_dir else None
    with _folder(keep_stage or resumed, keep=keep_stage is not None, on_error=model is not None) as folder:
        stage = Stage.resume(folder, corpus.uri, base, own=resumed is not None) if model else None
        stage = stage or Stage.make(folder, corpus.uri, base)
        phases.orient(stage, base, new, driver)
        facts, judge, warnings = 0, None, tuple[Problem, ...]()
        if model is not None:
            from memfs.brain import author

            judge = author.Verdicts()
            written = author.write(corpus, stage, new, model, judge, say)
            facts, warnings = written.facts, written.contradictions
        elif agent is None:
            facts = phases.without_model(corpus, stage, new).facts
        else:
            _run(agent, corpus, stage, new, say)
        checked = review(stage.files(), base.files, CorpusEvidence(corpus), judge_claim=judge)
        _refuse(checked, stage)
        done = publish(
            corpus,
            history,
            base,
            stage.files(),
            gate=gate_of(corpus, judge=judge),
            message=stage.message(f"Dream: {len(new)} sessions"),
            also=documents_of(stage),
            always=True,
            dry_run=dry_run,
        )
        if not dry_run:
            # What fetch walks: it follows what the dream published, which stands whether it can or not.
            try:
                build_graph(corpus)
            except CorruptError as error:
                warnings += (Problem("the graph", 0, "graph", error.message, error.hint or "", warning=True),)
        return Dreamt(
            tuple(each.path for each in new), driver, facts, checked.pages, checked.claims, checked.supported, done,
            str(stage.folder) if keep_stage else "", model.spent if model else None, warnings,
        )  # fmt: skip


def _resumed(corpus: Corpus, state_dir: str) -> str:
    """Where a dream by a model is staged, so that the next run finds what this one did."""
    name = hashlib.sha256(corpus.uri.encode()).hexdigest()[:16]
    return os.path.join(state_dir, "brain", f"{name}.dream")


@contextmanager
def _folder(where: str | None, *, keep: bool, on_error: bool) -> Iterator[str]:
    """A folder for a stage; it goes when all is done, unless it is to be kept, and stays on any error if `on_error`."""
    folder = where or tempfile.mkdtemp(prefix="memfs-dream-")
    try:
        yield folder
    except GateError:
        # What was refused can be looked at, and mended.
        raise
    except BaseException:
        if not keep and not on_error:
            shutil.rmtree(folder, ignore_errors=True)
        raise
    else:
        if not keep:
            shutil.rmtree(folder, ignore_errors=True)


def _refuse(checked: Review, stage: Stage) -> None:
    if not checked.passes:
        error = GateError([problem for problem in checked.problems if not problem.warning])
        error.hint = f"the Brain is as it was; mend the stage, then: memfs sync {stage.folder}"
        raise error


def _run(agent: str, corpus: Corpus, stage: Stage, new: list[phases.New], say: Callable[[str], None]) -> None:
    """Lay the new transcripts and the skill beside the pages, and let the command work there."""
    for path, found in corpus.read([each.path for each in new]).items():
        file = stage.folder / EVIDENCE / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(found.data)
        file.chmod(0o444)
    (stage.folder / "SKILL.md").write_text(skill())
    stage.bring(tuple(each.mark for each in new))
    before = stage.files()
    say(f"the agent works in {stage.folder}")
    environ = {**os.environ, "MEMFS_CORPUS": corpus.uri, "MEMFS_STAGE": str(stage.folder)}
    done = subprocess.run(["bash", "-c", agent], cwd=stage.folder, env=environ, stdin=subprocess.DEVNULL, check=False)
    if done.returncode:
        raise AgentError(f"the agent ended with {done.returncode}", hint=f"nothing was published: {agent[:80]}")
    if stage.files() == before and not stage.has_record(SUMMARIES):
        # One that found nothing to change has read the sessions, and says so there. This one may not even have begun.
        raise AgentError(
            f"the agent changed no page and wrote no records/{SUMMARIES}: the sessions stay new",
            hint="nothing was published; the skill asks for a few lines on each session, also where no page changes",
        )


def skill() -> str:
    """Return the text that tells a coding agent how to dream."""
    from importlib.resources import files

    return (files("memfs.brain") / "SKILL.md").read_text(encoding="utf-8")
