"""The commands of the graph and of the evaluation; loaded when one of them is asked for."""

from __future__ import annotations

from memfs.commands import ALL, CORPUS, JSON, TREE, Invocation, command, flag, value
from memfs.errors import InputError

__all__ = ["ALL"]


@command(
    value("action", nargs="?", choices=("sizes", "build", "cue", "content"), default="sizes"),
    value("name", nargs="*", metavar="NAME", help="for cue: a word or name; for content: PATH#ANCHOR, or a path"),
    flag("--again", help="with build: file everything anew"),
    CORPUS,
    TREE,
    JSON,
)
def graph(
    go: Invocation, action: str, name: list[str], again: bool, corpus: str | None, tree: str | None, as_json: bool
) -> None:
    """Show or make the graph that `fetch` walks: cues, tags and the passages they lead to.

    `build` files what is new or has changed. `cue WORD` shows what is near it and what it leads to,
    `content PATH#ANCHOR` what a passage is filed under.
    """
    from memfs import graph as verb
    from memfs.report_graph import built_text, content_text, cue_text, sizes_text

    if bool(name) != (action in ("cue", "content")):
        raise InputError(f"memfs graph {action} {'needs' if not name else 'takes no'} name", hint="memfs graph --help")
    opened = go.open(go.config(corpus=corpus, tree=tree))
    if action == "build":
        go.show(verb.build(opened, again=again, say=go.note), as_json, built_text)
    elif action == "cue":
        go.show(verb.cue(opened, " ".join(name)), as_json, cue_text)
    elif action == "content":
        go.show(verb.content(opened, " ".join(name)), as_json, content_text)
    else:
        go.show(verb.sizes(opened), as_json, sizes_text)
