"""The commands of the graph and of the evaluation; loaded when one of them is asked for."""

from __future__ import annotations

from typing import Any, NoReturn

from memfs.commands import ALL, CORPUS, JSON, TREE, Invocation, command, flag, json_text, value
from memfs.errors import InputError, MemfsError

__all__ = ["ALL"]


@command(
    value("action", nargs="?", choices=("sizes", "build", "cue", "content", "facts"), default="sizes"),
    value(
        "name",
        nargs="*",
        metavar="NAME",
        help="for cue: a word or name; for content: PATH#ANCHOR, or a path; for facts: a subject, or none for all",
    ),
    flag("--again", help="with build: file everything anew"),
    value("--model", metavar="PROVIDER:NAME", help="with build: a language model files too, what it has not filed yet"),
    value("--max-tokens", type=int, metavar="N", help="of the model: stop after so many, input and output"),
    value("--max-cost", type=float, metavar="USD", help="of the model: stop after so much"),
    CORPUS,
    TREE,
    JSON,
)
def graph(
    go: Invocation, action: str, name: list[str], again: bool, model: str | None, max_tokens: int | None,
    max_cost: float | None, corpus: str | None, tree: str | None, as_json: bool,
) -> None:  # fmt: skip
    """Show or make the graph that `fetch` walks: cues, tags and the passages they lead to.

    `build` files what is new or has changed. `cue WORD` shows what is near it and what it leads to,
    `content PATH#ANCHOR` what a passage is filed under, `facts NAME` what a model found stated of somebody, and until
    when it held.
    """
    from memfs import graph as verb
    from memfs.report_graph import built_text, content_text, cue_text, facts_text, sizes_text

    if action != "facts" and bool(name) != (action in ("cue", "content")):
        raise InputError(
            f"memfs graph {action} {'needs a' if not name else 'takes no'} name", hint="memfs graph --help"
        )
    if action != "build" and (again or model):
        raise InputError("--again and --model go with build", hint="memfs graph build")
    if not model and (max_tokens is not None or max_cost is not None):
        raise InputError("--max-tokens and --max-cost are of a model", hint="name one: --model PROVIDER:NAME")
    config = go.config(corpus=corpus, tree=tree)
    opened = go.open(config)
    if action == "build":
        files_by = None
        if model:
            from memfs.llm import LanguageModel

            files_by = LanguageModel.open(model, max_tokens=max_tokens, max_cost_usd=max_cost)
        built = verb.build(opened, again=again, model=files_by, state_dir=config.state_dir, say=go.note)
        go.show(built, as_json, built_text)
        if files_by is not None:
            go.note(f"{files_by.name}: {files_by.spent}")
    elif action == "facts":
        go.show(verb.facts(opened, " ".join(name)), as_json, facts_text)
    elif action == "cue":
        go.show(verb.cue(opened, " ".join(name)), as_json, cue_text)
    elif action == "content":
        go.show(verb.content(opened, " ".join(name)), as_json, content_text)
    else:
        go.show(verb.sizes(opened), as_json, sizes_text)


@command(
    value("dataset", metavar="DATASET", help="a LoCoMo or LongMemEval file or folder, or: personas"),
    value("--ways", metavar="LIST", help="of grep,bm25,similarity,n-hop,full,passive,active,always [all]"),
    flag("--ablations", help="the graph's parts left out, too"),
    value(
        "--peer", action="append", metavar="NAME=COMMAND", help="another system, by its adapter (bench/peers); again"
    ),
    value("--wiki", choices=("on", "off"), default="off", help="dream first, without a model [off]"),
    value("--index", choices=("on", "off"), default="off", help="the wiki's index before the passages [off]"),
    value("--embedder", default="static", metavar="NAME", help="static, or sentence-transformers:NAME [static]"),
    value("--limit", type=int, metavar="N", help="questions, drawn by the seed; every category keeps its share"),
    value("--seed", type=int, default=0, metavar="N", help="of the draw, the intervals and the personas [0]"),
    value("--budget-tokens", type=int, default=2000, metavar="N", help="of evidence, the same for every way [2000]"),
    value("--model", metavar="PROVIDER:NAME", help="answers each question from each way's evidence"),
    value("--judge", metavar="PROVIDER:NAME", help="grades the answers"),
    value("--active-model", metavar="PROVIDER:NAME", help="chooses the active ways' steps"),
    value("--graph-model", metavar="PROVIDER:NAME", help="fills the graph beside the words"),
    value("--max-tokens", type=int, metavar="N", help="of each model: stop after so many"),
    value("--out", metavar="DIR", help="keep the corpus, the tables and each question's scores there"),
    value("--ledger", metavar="FILE", help="add the result to this file"),
    value("--against", metavar="ENTRY", help="an entry of the ledger, or `last`: better, worse, or can't tell"),
    JSON,
)
def eval_(
    go: Invocation, dataset: str, ways: str | None, ablations: bool, peer: list[str] | None, wiki: str, index: str,
    embedder: str, limit: int | None, seed: int, budget_tokens: int, model: str | None, judge: str | None,
    active_model: str | None, graph_model: str | None, max_tokens: int | None, out: str | None, ledger: str | None,
    against: str | None, as_json: bool,
) -> None:  # fmt: skip
    """Ask a data set's questions by several ways over one corpus, and say which finds the evidence.

    Needs no model, no key and no network. With --model and --judge also answers, F1 and grades.
    """
    import os
    import signal
    import tempfile
    from contextlib import ExitStack
    from pathlib import Path

    from memfs.evals import run
    from memfs.evals.ledger import Ledger
    from memfs.evals.peers import Peer
    from memfs.evals.report import compared_text, result_text
    from memfs.evals.ways import WAYS
    from memfs.llm import LanguageModel

    if (limit is not None and limit < 1) or budget_tokens < 1:
        raise InputError("--limit and --budget-tokens must be positive", hint="leave them out")
    if against is not None and ledger is None:
        raise InputError("--against needs --ledger", hint="memfs eval … --ledger evals/ledger.jsonl --against last")
    kept = None if ledger is None else Ledger(Path(go.cwd, ledger))
    if kept is not None and against is not None:
        # Before minutes of asking, not after.
        kept.entry(against)
    if judge is not None and model is None:
        raise InputError("--judge needs --model", hint="it grades that model's answers")
    if index == "on" and (wiki == "off" or model is None):
        raise InputError("--index on needs --wiki on and --model", hint="it is put before what the model reads")
    named = {
        name: LanguageModel.open(name, max_tokens=max_tokens)
        for name in {model, judge, active_model, graph_model} if name
    }  # fmt: skip
    path = dataset if dataset == "personas" else os.path.join(go.cwd, dataset)
    with ExitStack() as stack:
        # Minutes of work: `timeout` ends it as Ctrl-C does, and the peers and the folder go with it.
        before = signal.signal(signal.SIGTERM, _ended)
        stack.callback(_restored, before)
        temporary = stack.enter_context(tempfile.TemporaryDirectory(prefix="memfs-eval-"))
        peers = [stack.enter_context(Peer(*_peer(each))) for each in peer or ()]
        folder = Path(go.cwd, out) if out else Path(temporary, "eval")
        result = run.evaluate(
            path, folder, ways=ways.split(",") if ways else tuple(WAYS), ablations=ablations, limit=limit, seed=seed,
            embedder=embedder, wiki=wiki == "on", index=index == "on", peers=peers, model=named.get(model or ""),
            judge=named.get(judge or ""), active_model=named.get(active_model or ""),
            graph_model=named.get(graph_model or ""), budget_tokens=budget_tokens, say=go.note,
        )  # fmt: skip
        text = result_text(result)
        if out:
            (folder / "result.md").write_text(text + "\n", encoding="utf-8")
            (folder / "result.json").write_text(json_text({**result.entry(), "answers": result.answers}) + "\n")
    # What was measured is kept and shown, whatever becomes of the comparison and of the ledger.
    compared, entry, failure = None, "", None
    if kept and against:
        try:
            compared = kept.against(result, against)
            if compared is None:
                go.note("nothing to compare with yet: the ledger has no earlier entry of this data")
            for each in kept.unlike(result, against):
                go.note(f"set otherwise in that entry: {each}")
        except MemfsError as error:
            failure = error
    try:
        entry = kept.append(result) if kept else ""
    except MemfsError as error:
        failure = error
    if as_json:
        go.say(json_text({**result.entry(), "compared": compared}))
    else:
        go.say(text)
        if compared is not None:
            go.say(f"\n{compared_text(compared)}")
        if entry:
            go.say(f"\nledger entry {entry}")
    if failure is not None:
        raise failure


def _ended(number: int, _: object) -> NoReturn:
    import signal
    import sys

    # Once is enough: a second one would cut off what the first one clears away.
    signal.signal(number, signal.SIG_IGN)
    sys.exit(128 + number)


def _restored(before: Any) -> None:
    import signal

    # One that has come stays the last, until the process is gone.
    if signal.getsignal(signal.SIGTERM) is _ended:
        signal.signal(signal.SIGTERM, before)


def _peer(stated: str) -> tuple[str, str]:
    name, equals, command = stated.partition("=")
    if not equals or not name.strip() or not name.isprintable() or not command.strip():
        raise InputError(
            f"--peer {stated!r} is not NAME=COMMAND", hint="--peer 'mem0=python bench/peers/mem0_raw.py MODEL'"
        )
    return name.strip(), command
