"""The command line. A command builds the nouns, calls one verb, prints: data on stdout, the rest on stderr.

Every import that costs is inside its command: `--help`, `boot` and `status` load neither
lancedb nor pyarrow (tests/test_structure.py holds it).
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import click

from memfs.errors import MemfsError, redact

if TYPE_CHECKING:
    from datetime import datetime

    from memfs.config import Config
    from memfs.corpus.table import Corpus
    from memfs.workset.cache import HostCache

__all__ = ["main"]

F = TypeVar("F", bound=Callable[..., Any])
INTERNAL_ERROR = 70
INTERRUPTED = 130


def main() -> None:
    """Run the command line; the one place that turns errors into words and exit codes."""
    # Lance's own log lines would go to the user's terminal.
    os.environ.setdefault("LANCE_LOG", "error")
    os.environ.setdefault("LANCEDB_LOG", "error")
    try:
        code = cli.main(standalone_mode=False, prog_name="memfs")
        sys.stdout.flush()
        sys.exit(code or 0)
    except MemfsError as error:
        _fail(error.message, error.hint, error.exit_code)
    except click.exceptions.Abort:
        sys.exit(INTERRUPTED)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except BrokenPipeError:
        # The reader (head, less) has gone; so do we, without a second error at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    except Exception as error:
        if os.environ.get("MEMFS_DEBUG"):
            raise
        text = redact(f"{type(error).__name__}: {error}").split("\n", 1)[0]
        _fail(f"internal error: {text}", "please report it; MEMFS_DEBUG=1 shows where it happened", INTERNAL_ERROR)


def _fail(message: str, hint: str | None, code: int) -> None:
    click.echo(f"error: {message}", err=True)
    if hint:
        click.echo(f"hint: {hint}", err=True)
    sys.exit(code)


def _version(context: click.Context, _: click.Parameter, value: bool) -> None:
    if value and not context.resilient_parsing:
        from importlib.metadata import version

        click.echo(f"memfs {version('agent-memfs')}")
        context.exit()


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.option(
    "--version", is_flag=True, is_eager=True, expose_value=False, callback=_version, help="Print the version."
)
def cli() -> None:
    """Memory for AI agents: months of sessions and notes in an object store, as plain files under memory/.

    Start with: memfs init URI, memfs add SOURCE, memfs boot, memfs fetch "question".
    """


# -- options and nouns ----------------------------------------------------------------


def _common(*names: str) -> Callable[[F], F]:
    """Add the options that several commands share, by name."""
    made = {
        "corpus": click.option("--corpus", metavar="URI", help="Folder or s3://, gs://, az:// URI [MEMFS_CORPUS]."),
        "tree": click.option("--tree", metavar="DIR", help="The materialised folder [MEMFS_TREE, ./memory]."),
        "json": click.option("--json", "as_json", is_flag=True, help="Print JSON."),
        "dry_run": click.option("--dry-run", is_flag=True, help="Say what would be done; write nothing."),
        "under": click.option("--under", metavar="PREFIX", default="", help="Only below this folder of memory/."),
    }

    def add(command: F) -> F:
        for name in reversed(names):
            command = made[name](command)
        return command

    return add


def _config(**flags: str | None) -> Config:
    from memfs.config import load

    return load(flags)


def _cache(config: Config) -> HostCache:
    from memfs.workset.cache import HostCache

    return HostCache(config.cache_dir)


def _open(config: Config, version: int | None = None) -> Corpus:
    from memfs.corpus.table import Corpus

    return Corpus.open(config.need_corpus(), version=version, embedder=config.embedder)


@contextmanager
def _maybe_tree(config: Config, make_for: str | None = None) -> Iterator[Any]:
    """The tree, if the folder is one; with `make_for` (a corpus), an absent or empty folder is made one."""
    from memfs.workset.tree import Tree, read_mark

    free = not os.path.isdir(config.tree) or not os.listdir(config.tree)
    if read_mark(config.tree) is None and not (make_for and free):
        yield None
        return
    with Tree.open(config.tree, config.state_dir, corpus=make_for) as tree:
        yield tree


def _print(value: Any, as_json: bool, text: Callable[[Any], str]) -> None:
    from memfs.report import jsonable

    click.echo(json.dumps(jsonable(value), ensure_ascii=False, indent=1) if as_json else text(value))


class _Progress:
    """One line on a terminal, rewritten; nothing elsewhere."""

    def __init__(self, what: str) -> None:
        self._what, self._shown, self._live = what, 0.0, sys.stderr.isatty()

    def __call__(self, files: int, size: int) -> None:
        import time

        if self._live and time.monotonic() - self._shown > 0.1:
            self._shown = time.monotonic()
            click.echo(f"\r\x1b[K{self._what}: {files:,} files, {size / 1e6:,.1f} MB", err=True, nl=False)

    def close(self) -> None:
        if self._live:
            click.echo("\r\x1b[K", err=True, nl=False)


def _when(text: str | None, name: str) -> datetime | None:
    """Parse a date or time, UTC where no zone is given.

    Raises:
        InputError: it is neither.
    """
    if text is None:
        return None
    from datetime import datetime, timezone

    from memfs.errors import InputError

    try:
        parsed = datetime.fromisoformat(text.replace("Z", "+00:00"))
    except ValueError:
        raise InputError(f"--{name}: {text!r} is no date", hint="write 2026-05-08 or 2026-05-08T13:00Z") from None
    return parsed.replace(tzinfo=timezone.utc) if parsed.tzinfo is None else parsed.astimezone(timezone.utc)


# -- commands -------------------------------------------------------------------------


@cli.command()
@click.argument("uri")
@click.option("--embedder", default="static", show_default=True, help="static, or sentence-transformers:NAME_OR_PATH.")
def init(uri: str, embedder: str) -> None:
    """Make an empty corpus at URI: a folder, s3://bucket/prefix, gs:// or az://."""
    from memfs.corpus.table import Corpus

    corpus = Corpus.create(uri, embedder=embedder)
    click.echo(f"made a corpus at {corpus.uri} (embedder {corpus.embedder_name})")
    click.echo(f"next: export MEMFS_CORPUS={corpus.uri}; memfs add SOURCE…", err=True)


@cli.command()
@click.argument("sources", nargs=-1, required=True, metavar="SOURCE…")
@click.option("--format", "format_", default="auto", show_default=True, help="auto, files, claude-code or locomo.")
@click.option("--as", "surface", help="sessions, notes or knowledge [sessions for transcripts, notes for files].")
@click.option("--under", default="", metavar="PREFIX", help="A folder in there.")
@_common("corpus", "json", "dry_run")
def add(
    sources: tuple[str, ...], format_: str, surface: str | None, under: str,
    corpus: str | None, as_json: bool, dry_run: bool,
) -> None:  # fmt: skip
    """Bring files, folders, session transcripts or any fsspec URL into the corpus. Adding again changes nothing."""
    from memfs import add as verb
    from memfs.report import added_text

    progress = _Progress("adding")
    try:
        opened = _open(_config(corpus=corpus))
        added = verb.add(
            opened, sources, format=format_, surface=surface, under=under, dry_run=dry_run, progress=progress
        )
    finally:
        progress.close()
    _print(added, as_json, added_text)


@cli.command()
@click.argument("directory", required=False, metavar="[DIR]")
@click.option("--budget", metavar="SIZE", help="Of the map: 500k, 2MB [as published: 2 MiB].")
@click.option("--print-index", is_flag=True, help="Print the compact index for the first message; receipt on stderr.")
@click.option("--index-tokens", metavar="N", help="Of that index [1500].")
@click.option("--rebuild", is_flag=True, help="Make the published map anew from the table.")
@_common("corpus", "json", "dry_run")
def boot(
    directory: str | None, budget: str | None, print_index: bool, index_tokens: str | None, rebuild: bool,
    corpus: str | None, as_json: bool, dry_run: bool,
) -> None:  # fmt: skip
    """Lay the initial map of the corpus into DIR (./memory), in one GET. Again: a refresh that keeps edits."""
    from memfs import boot as verb

    config = _config(corpus=corpus, tree=directory, budget=budget, index_tokens=index_tokens)
    receipt = verb.boot(
        config.need_corpus(),
        config.tree,
        cache_dir=config.cache_dir,
        state_dir=config.state_dir,
        budget_bytes=config.budget_bytes,
        dry_run=dry_run,
        rebuild=rebuild,
    )
    from memfs.report import receipt_text

    if print_index:
        from memfs.corpus.bootset import index_text

        click.echo(receipt_text(receipt), err=True)
        click.echo(index_text(receipt.boot_set, config.index_tokens, os.path.basename(config.tree)), nl=False)
    else:
        _print(receipt, as_json, receipt_text)


@cli.command()
@click.argument("question", nargs=-1, required=True)
@click.option("-k", default=10, show_default=True, help="Passages.")
@click.option("--budget-tokens", default=2000, show_default=True, help="Of the printed synthesis.")
@click.option("--since", metavar="DATE", help="Only what happened on or after this date.")
@click.option("--until", metavar="DATE", help="Only what happened before this date.")
@_common("under", "corpus", "tree", "json", "dry_run")
def fetch(
    question: tuple[str, ...], k: int, budget_tokens: int, since: str | None, until: str | None,
    under: str, corpus: str | None, tree: str | None, as_json: bool, dry_run: bool,
) -> None:  # fmt: skip
    """Ask in words. Prints a cited synthesis and lays the supporting files into the tree, in one batch."""
    from memfs import fetch as verb
    from memfs import paths
    from memfs.corpus.table import Scope
    from memfs.report import answer_text

    config = _config(corpus=corpus, tree=tree)
    scope = Scope(paths.prefix(under), _when(since, "since"), _when(until, "until"))
    opened = _open(config)
    with _maybe_tree(config, None if dry_run else opened.uri) as laid:
        answer = verb.fetch(
            opened,
            " ".join(question),
            tree=laid,
            cache=_cache(config),
            k=k,
            budget_tokens=budget_tokens,
            scope=scope,
            dry_run=dry_run,
        )
    _print(answer, as_json, answer_text)
    if laid is None and not dry_run:
        click.echo(f"note: no files were laid, {config.tree} is no memfs tree: memfs boot makes one", err=True)


@cli.command()
@click.argument("names", nargs=-1, required=True, metavar="PATH…")
@_common("corpus", "tree", "json", "dry_run")
def get(names: tuple[str, ...], corpus: str | None, tree: str | None, as_json: bool, dry_run: bool) -> None:
    """Lay files or whole folders into the tree by name (`.` is everything). Local edits are kept."""
    from memfs import get as verb
    from memfs.report import size_text, steps_text
    from memfs.workset.tree import Tree

    config = _config(corpus=corpus, tree=tree)
    opened = _open(config)
    open_tree = _maybe_tree(config) if dry_run else Tree.open(config.tree, config.state_dir, corpus=opened.uri)
    with open_tree as laid:
        plan, done = verb.get(opened, names, tree=laid, cache=_cache(config), dry_run=dry_run)
    if as_json:
        outcomes = [
            {"path": s.wanted.path, "size": s.wanted.size, "outcome": s.action.value, "reason": s.reason}
            for s in plan.steps
        ]
        click.echo(
            json.dumps({"written": done.written, "dry_run": dry_run, "files": outcomes}, ensure_ascii=False, indent=1)
        )
        return
    needed = plan.needed()
    verb_text = "would write" if dry_run else "wrote"
    count, size = (len(needed), sum(w.size for w in needed)) if dry_run else (done.written, done.bytes_written)
    click.echo(f"{verb_text} {count:,} files, {size_text(size)}; {len(plan.steps) - len(needed):,} were here or kept")
    from memfs.workset.plan import Action

    for line in (
        *steps_text("kept", plan.having(Action.EDITED, Action.CONFLICT)),
        *steps_text("refused", plan.having(Action.REFUSED)),
    ):
        click.echo(line)


@cli.command()
@click.argument("path", required=False, default="")
@click.option("--remote", "only", flag_value="remote", help="Only what the corpus holds.")
@click.option("--local", "only", flag_value="local", help="Only what is on disk; needs no network.")
@_common("corpus", "tree", "json")
def ls(path: str, only: str | None, corpus: str | None, tree: str | None, as_json: bool) -> None:
    """List files: `-` not on disk, `+` on disk only, blank both."""
    from memfs import ls as verb
    from memfs.report import jsonable, listed_text

    config = _config(corpus=corpus, tree=tree)
    opened = None if only == "local" else _open(config)
    with _maybe_tree(config) as laid:
        items = list(verb.ls(opened, None if only == "remote" else laid, path))
    if as_json:
        click.echo(json.dumps(jsonable(items), ensure_ascii=False, indent=1))
        return
    for item in items:
        click.echo(listed_text(item))
    here = sum(item.where != "corpus" for item in items)
    count = f"{len(items):,} files" if only == "remote" else f"{here:,} of {len(items):,} files are here"
    click.echo(count, err=True)


@cli.command()
@_common("tree", "json")
def status(tree: str | None, as_json: bool) -> None:
    """Say what lies in the tree and what of it is yours. Needs no network."""
    from memfs import status as verb
    from memfs.report import status_text
    from memfs.workset.tree import Tree, read_mark

    config = _config(tree=tree)
    with Tree.open(config.tree, config.state_dir) as laid:
        mark = read_mark(config.tree)
        found = verb.status(laid, mark[0] if mark else "")
    _print(found, as_json, status_text)


@cli.command()
@click.argument("directory", metavar="DIR")
@_common("under", "corpus", "json", "dry_run")
@click.option("--at", "version", type=int, metavar="N", help="An older corpus version.")
def export(directory: str, under: str, corpus: str | None, as_json: bool, dry_run: bool, version: int | None) -> None:
    """Write every file of the corpus, byte for byte, into the empty folder DIR."""
    from memfs import export as verb
    from memfs.report import size_text

    progress = _Progress("exporting")
    try:
        opened = _open(_config(corpus=corpus), version)
        done = verb.export(opened, directory, under=under, dry_run=dry_run, progress=progress)
    finally:
        progress.close()
    word = "would export" if dry_run else "exported"
    _print(
        done,
        as_json,
        lambda d: f"{word} {d.files:,} files, {size_text(d.bytes)}, of corpus version {d.version} to {d.folder}",
    )
    for item in done.refused:
        click.echo(f"refused: {item.name}: {item.reason}", err=True)


@cli.command()
@_common("corpus", "tree", "json")
def config(corpus: str | None, tree: str | None, as_json: bool) -> None:
    """Show each setting and where it came from."""
    found = _config(corpus=corpus, tree=tree)
    if as_json:
        from memfs.report import jsonable

        shown = [setting._replace(value=redact(setting.value)) for setting in found.settings]
        click.echo(json.dumps(jsonable(shown), ensure_ascii=False, indent=1))
        return
    for setting in found.settings:
        click.echo(f"{setting.name:<13}{redact(setting.value) or '(not set)'}  [{setting.origin}]")


if __name__ == "__main__":
    main()
