"""The commands: each builds the nouns, calls one verb, prints; data on stdout, the rest on stderr.

A command runs in the process of the command line or in the resident server, for a
client whose environment and working folder are not its own: all that it needs of
the outside is in its `Invocation`.
"""

from __future__ import annotations

import json
import os
from argparse import Action
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, NamedTuple, TextIO

from memfs.errors import ConflictError, CorruptError, DiskError, InputError, redact
from memfs.project import inside

if TYPE_CHECKING:
    from datetime import date, datetime

    from memfs.config import Config
    from memfs.corpus.records import FileInfo
    from memfs.corpus.table import Corpus
    from memfs.workset.cache import HostCache
    from memfs.workset.mirror import Entry, Mirror
    from memfs.workset.space import Limits
    from memfs.workset.tree import Tree

__all__ = [
    "ALL", "CORPUS", "DRY_RUN", "JSON", "TREE", "UNDER", "Argument", "Command", "Invocation", "command", "flag",
    "json_text", "value", "when",
]  # fmt: skip


class Invocation:
    """Where one command runs: its environment, working folder and streams, and where it gets its corpus."""

    def __init__(self, environ: Mapping[str, str], cwd: str, out: TextIO, err: TextIO) -> None:
        self.environ, self.cwd, self.out, self.err = environ, cwd, out, err

    def say(self, text: str, end: str = "\n") -> None:
        """Print to stdout.

        Raises:
            DiskError: it cannot be written: a full disk, mostly.
        """
        with _to_output():
            self.out.write(text + end)

    def write(self, data: bytes) -> None:
        """Print bytes to stdout as they are."""
        buffer = getattr(self.out, "buffer", None)
        with _to_output():
            if buffer is None:
                self.out.write(data.decode(errors="surrogateescape"))
            else:
                self.out.flush()
                buffer.write(data)

    def flush(self) -> None:
        """Have what was printed reach stdout."""
        with _to_output():
            self.out.flush()

    def note(self, text: str, end: str = "\n") -> None:
        """Print to stderr."""
        # What was printed before it comes before it, also where the two streams are one.
        self.flush()
        self.err.write(text + end)
        self.err.flush()

    def show(self, value: Any, as_json: bool, text: Callable[[Any], str]) -> None:
        """Print a value as JSON, or as text."""
        self.say(json_text(value) if as_json else text(value))

    def config(self, **flags: str | None) -> Config:
        """Resolve the settings, the flags first."""
        from memfs.config import load

        return load(flags, self.environ, self.cwd)

    def open(self, config: Config, version: int | None = None) -> Corpus:
        """Open the corpus that the settings name."""
        from memfs.corpus.table import Corpus

        return Corpus.open(config.need_corpus(), version=version, embedder=config.embedder)

    def newest(self, config: Config) -> str:
        """Return the mark of the corpus's newest version, "" for no corpus: one request, and no lancedb."""
        from memfs.corpus.location import parse
        from memfs.corpus.objects import Objects
        from memfs.corpus.schema import TABLE

        found = Objects(parse(config.need_corpus())).newest(TABLE)
        return found[1] if found else ""

    def mirror(self, config: Config) -> Mirror:
        """Return this host's mirror of the corpus's text."""
        from memfs.corpus.location import parse
        from memfs.workset.mirror import Mirror

        return Mirror(config.cache_dir, parse(config.need_corpus()).uri)

    def mirror_at_hand(self, config: Config) -> Mirror | None:
        """Return the mirror if it is loaded: reading its index costs more than fetching a few files."""
        return None

    def keep_mirror(self, config: Config, mirror: Mirror) -> None:
        """A resident process keeps what this command's mirror learned; another has nowhere to."""

    def cache(self, config: Config) -> HostCache:
        """Return this host's cache."""
        from memfs.workset.cache import HostCache

        return HostCache(config.cache_dir, max_bytes=config.cache_max_bytes, min_free_bytes=config.min_free_bytes)

    @contextmanager
    def tree(self, config: Config, *, any_corpus: bool = False) -> Iterator[Tree]:
        """Open the tree, which must be one, and of the corpus that is named; with `any_corpus`, of whichever."""
        from memfs.workset.tree import Tree, read_mark

        ours = None if any_corpus or read_mark(config.tree) is None else _named_corpus(config)
        with Tree.open(config.tree, config.state_dir, corpus=ours, limits=_limits(config)) as opened:
            yield opened

    @contextmanager
    def maybe_tree(self, config: Config, *, make: bool = False, any_corpus: bool = False) -> Iterator[Any]:
        """As `tree`, or None if the folder is none; with `make`, an absent or empty folder is made one."""
        from memfs.workset.tree import Tree, read_mark

        free = not os.path.isdir(config.tree) or not os.listdir(config.tree)
        is_tree = read_mark(config.tree) is not None
        if not is_tree and not (make and free):
            yield None
            return
        ours = None if any_corpus else _named_corpus(config)
        with Tree.open(config.tree, config.state_dir, corpus=ours, limits=_limits(config)) as tree:
            yield tree

    def note_another(self, config: Config) -> None:
        """Say so if the tree is of another corpus than the one that is named."""
        from memfs.workset.tree import read_mark

        mark, named = read_mark(config.tree), _named_corpus(config)
        if mark is not None and named is not None and named != mark[0]:
            self.note(f"note: {config.tree} is a tree of {mark[0]}; the corpus that is named is {named} (memfs config)")


def _named_corpus(config: Config) -> str | None:
    if config.corpus is None:
        return None
    from memfs.corpus.location import parse

    return parse(config.corpus).uri


@contextmanager
def _to_output() -> Iterator[None]:
    try:
        yield
    except BrokenPipeError:
        # The reader has enough: no error.
        raise
    except OSError as error:
        raise DiskError(
            f"the output cannot be written: {error.strerror or error}", hint="make room where it goes, and run it again"
        ) from error


class Argument(NamedTuple):
    """What argparse's `add_argument` is given."""

    names: tuple[str, ...]
    settings: dict[str, Any]


class Command(NamedTuple):
    """One command: `run` takes the invocation and the arguments by name, and returns an exit code, None for 0."""

    name: str
    arguments: tuple[Argument, ...]
    run: Callable[..., int | None]

    @property
    def description(self) -> str:
        """What it does, for `--help`."""
        return "\n".join(line.strip() for line in (self.run.__doc__ or "").strip().split("\n"))

    @property
    def about(self) -> str:
        """The first sentence."""
        return self.description.split("\n", 1)[0]


ALL: dict[str, Command] = {}


def command(*arguments: Argument) -> Callable[[Callable[..., int | None]], Callable[..., int | None]]:
    def add(run: Callable[..., int | None]) -> Callable[..., int | None]:
        # `eval_` is the command `eval`: Python has that word already.
        name = run.__name__.rstrip("_")
        ALL[name] = Command(name, arguments, run)
        return run

    return add


def value(*names: str, **settings: Any) -> Argument:
    """An argument with a value; an option whose value is a text without a default may not be given as ""."""
    if names[0].startswith("-") and not settings.keys() & {"default", "type", "choices", "action"}:
        settings["type"] = _stated
    return Argument(names, settings)


def _stated(text: str) -> str:
    # `--corpus "$UNSET"` means something else than no --corpus.
    if not text.strip():
        from argparse import ArgumentTypeError

        raise ArgumentTypeError("an empty value; leave it out for the default")
    return text


def flag(*names: str, **settings: Any) -> Argument:
    return Argument(names, {"action": "store_true", **settings})


CORPUS = value("--corpus", metavar="URI", help="folder or s3://, gs://, az:// URI [MEMFS_CORPUS]")
TREE = value("--tree", metavar="DIR", help="the materialised folder [MEMFS_TREE, ./memory]")
JSON = flag("--json", dest="as_json", help="print JSON")
DRY_RUN = flag("--dry-run", help="say what would be done; write nothing")
_MAX_SIZE = value(
    "--max-size", metavar="SIZE", help="of all files in the tree: 50MB, none [as the last boot was given]"
)
UNDER = value("--under", metavar="PREFIX", default="", help="only below this folder of memory/")


def _limits(config: Config) -> Limits:
    from memfs.workset.space import Limits

    return Limits(config.max_bytes, config.min_free_bytes)


def json_text(value: Any) -> str:
    from memfs.report import jsonable

    text = json.dumps(jsonable(value), ensure_ascii=False, indent=1)
    # A file name that is no Unicode: no stream takes it as it is, and JSON has an escape for it.
    return text if text.isascii() or _is_unicode(text) else json.dumps(jsonable(value), indent=1)


def _is_unicode(text: str) -> bool:
    return not any("\ud800" <= char <= "\udfff" for char in text)


class _Progress:
    """One line on a terminal, rewritten; nothing elsewhere."""

    def __init__(self, go: Invocation, what: str) -> None:
        self._go, self._what, self._shown, self._live = go, what, 0.0, go.err.isatty()

    def __call__(self, files: int, size: int) -> None:
        import time

        if self._live and time.monotonic() - self._shown > 0.1:
            self._shown = time.monotonic()
            self._go.note(f"\r\x1b[K{self._what}: {files:,} files, {size / 1e6:,.1f} MB", end="")

    def close(self) -> None:
        if self._live:
            self._go.note("\r\x1b[K", end="")


def when(text: str | None, name: str, *, end: bool = False) -> datetime | None:
    """Parse a date or time, UTC where no zone is given; with `end`, a day without a time is its end.

    Raises:
        InputError: it is neither.
    """
    if text is None:
        return None
    from datetime import date, datetime, timezone

    from memfs.recall.dates import end_of

    if end:
        with suppress(ValueError):
            return end_of(date.fromisoformat(text))
    try:
        parsed = datetime.fromisoformat(text.replace("Z", "+00:00"))
        return parsed.replace(tzinfo=timezone.utc) if parsed.tzinfo is None else parsed.astimezone(timezone.utc)
    except (ValueError, OverflowError):
        raise InputError(f"--{name}: {text!r} is no date", hint="write 2026-05-08 or 2026-05-08T13:00Z") from None


def day(text: str | None, name: str) -> date | None:
    """Parse a day.

    Raises:
        InputError: it is none, or a time: half a day can't be asked for.
    """
    if text is None:
        return None
    from datetime import date

    try:
        return date.fromisoformat(text)
    except ValueError:
        raise InputError(f"--{name}: {text!r} is no day", hint="write 2026-05-08, without a time") from None


@command(
    value("uri", metavar="URI"),
    value(
        "--embedder", default="static", metavar="NAME", help="static, or sentence-transformers:NAME_OR_PATH [static]"
    ),
)
def init(go: Invocation, uri: str, embedder: str) -> None:
    """Make an empty corpus at URI: a folder, s3://bucket/prefix, gs:// or az://."""
    from memfs.corpus.table import Corpus

    corpus = Corpus.create(uri, embedder=embedder)
    go.say(f"made a corpus at {corpus.uri} (embedder {corpus.embedder_name})")
    go.note(f"next: export MEMFS_CORPUS={corpus.uri}; memfs add SOURCE…")


@command(
    value("sources", nargs="+", metavar="SOURCE"),
    value("--format", dest="format_", default="auto", metavar="NAME", help="auto, files, claude-code or locomo [auto]"),
    value("--as", dest="surface", help="sessions, notes or knowledge [sessions for transcripts, notes for files]"),
    value("--under", default="", metavar="PREFIX", help="a folder in there"),
    CORPUS,
    JSON,
    DRY_RUN,
)
def add(
    go: Invocation, sources: list[str], format_: str, surface: str | None, under: str,
    corpus: str | None, as_json: bool, dry_run: bool,
) -> None:  # fmt: skip
    """Bring files, folders, session transcripts or any fsspec URL into the corpus. Adding again changes nothing."""
    from memfs import add as verb
    from memfs.report import added_text

    progress = _Progress(go, "adding")
    try:
        opened = go.open(go.config(corpus=corpus))
        added = verb.add(
            opened, sources, format=format_, surface=surface, under=under, dry_run=dry_run, progress=progress
        )
    finally:
        progress.close()
    go.show(added, as_json, added_text)


@command(
    value("directory", nargs="?", metavar="DIR"),
    value("--budget", metavar="SIZE", help="of the map: 500k, 2MB [as published: 2 MiB]"),
    flag("--print-index", help="print the compact index for the first message; receipt on stderr"),
    value("--index-tokens", metavar="N", help="of that index [1500]"),
    flag("--rebuild", help="make the published map anew from the table"),
    flag("--serve", dest="served", help="start the tree's resident server in the background (memfs serve)"),
    _MAX_SIZE,
    CORPUS,
    JSON,
    DRY_RUN,
)
def boot(
    go: Invocation, directory: str | None, budget: str | None, print_index: bool, index_tokens: str | None,
    rebuild: bool, served: bool, max_size: str | None, corpus: str | None, as_json: bool, dry_run: bool,
) -> None:  # fmt: skip
    """Lay the initial map of the corpus into DIR (./memory), in one GET. Again: a refresh that keeps edits."""
    from memfs import boot as verb

    config = go.config(corpus=corpus, tree=directory, budget=budget, index_tokens=index_tokens, max_size=max_size)
    receipt = verb.boot(
        config.need_corpus(),
        config.tree,
        cache_dir=config.cache_dir,
        state_dir=config.state_dir,
        budget_bytes=config.budget_bytes,
        limits=_limits(config),
        dry_run=dry_run,
        rebuild=rebuild,
    )
    if served and not dry_run:
        from memfs import client

        client.start(config.tree)
        go.note("server: starting in the background; memfs serve --stop ends it")
    from memfs.report import receipt_text

    if print_index:
        from memfs.corpus.bootset import index_text

        go.note(receipt_text(receipt))
        go.say(index_text(receipt.boot_set, config.index_tokens, os.path.basename(config.tree)), end="")
    else:
        go.show(receipt, as_json, receipt_text)


@command(
    value("question", nargs="+", metavar="QUESTION"),
    value("-k", type=int, default=10, metavar="N", help="passages [10]"),
    value("--budget-tokens", type=int, default=2000, metavar="N", help="of the printed synthesis [2000]"),
    value("--since", metavar="DATE", help="only what happened on or after this date"),
    value("--until", metavar="DATE", help="only what happened until the end of this day, or before this time"),
    value(
        "--today",
        metavar="DATE",
        help="as of this day: `last week` is counted from it, later memories are left out [the day it is]",
    ),
    value(
        "--active",
        choices=("auto", "always", "never"),
        default="auto",
        help="walk the graph from what the first search found: where that does not suffice [auto]",
    ),
    value("--rounds", type=int, metavar="N", help="of the walk, at most [4]"),
    value("--max-seconds", type=float, metavar="S", help="of the walk, at most [5]"),
    value("--model", metavar="PROVIDER:NAME", help="a language model chooses the way"),
    value("--max-tokens", type=int, metavar="N", help="with --model: stop after so many, input and output"),
    value("--trace", metavar="FILE", help="write there how the evidence was found"),
    UNDER,
    _MAX_SIZE,
    CORPUS,
    TREE,
    JSON,
    DRY_RUN,
)
def fetch(
    go: Invocation, question: list[str], k: int, budget_tokens: int, since: str | None, until: str | None,
    today: str | None, active: str, rounds: int | None, max_seconds: float | None, model: str | None,
    max_tokens: int | None, trace: str | None, under: str, max_size: str | None, corpus: str | None,
    tree: str | None, as_json: bool, dry_run: bool,
) -> None:  # fmt: skip
    """Ask in words. Prints a cited synthesis and lays the supporting files into the tree, in one batch."""
    from memfs import fetch as verb
    from memfs import paths
    from memfs.corpus.table import Scope
    from memfs.report import answer_text, trace_text

    config = go.config(corpus=corpus, tree=tree, max_size=max_size)
    scope = Scope(paths.prefix(under), when(since, "since"), when(until, "until", end=True))
    asked = day(today, "today")
    if (rounds is not None and rounds < 1) or (max_seconds is not None and max_seconds <= 0):
        raise InputError("--rounds and --max-seconds must be positive", hint="leave them out for 4 and 5")
    if trace is not None and inside(os.path.join(go.cwd, trace), config.tree):
        raise InputError(f"--trace {trace}: in the tree lies what is remembered", hint="name a file outside of it")
    opened = go.open(config)
    policy = None
    if model is not None:
        from memfs.llm import LanguageModel
        from memfs.recall.choose import ByModel

        policy = ByModel(LanguageModel.open(model, max_tokens=max_tokens))
    with go.maybe_tree(config, make=not dry_run) as laid:
        answer = verb.fetch(
            opened,
            " ".join(question),
            tree=laid,
            cache=go.cache(config),
            mirror=go.mirror_at_hand(config),
            k=k,
            budget_tokens=budget_tokens,
            scope=scope,
            active=active,
            policy=policy,
            budget=verb.limits(rounds, max_seconds),
            today=asked,
            dry_run=dry_run,
        )
    go.show(answer, as_json, answer_text)
    if laid is None and not dry_run:
        go.note(f"note: no files were laid, {config.tree} is no memfs tree: memfs boot makes one")
    if trace is not None:
        try:
            with open(os.path.join(go.cwd, trace), "w", encoding="utf-8") as out:
                out.write(trace_text(answer))
        except OSError as error:
            raise DiskError(f"{trace}: {error.strerror}", hint="name a file that can be written") from None


@command(value("names", nargs="+", metavar="PATH"), _MAX_SIZE, CORPUS, TREE, JSON, DRY_RUN)
def get(
    go: Invocation, names: list[str], max_size: str | None, corpus: str | None, tree: str | None,
    as_json: bool, dry_run: bool,
) -> int | None:  # fmt: skip
    """Lay files or whole folders into the tree by name (`.` is everything). Local edits are kept.

    Exit code 7 if a file could not be laid: there was no room, or something else lies there.
    """
    from memfs import get as verb
    from memfs.report import got_text
    from memfs.workset.plan import Action
    from memfs.workset.tree import Tree

    config = go.config(corpus=corpus, tree=tree, max_size=max_size)
    opened = go.open(config)
    open_tree = (
        go.maybe_tree(config)
        if dry_run
        else Tree.open(config.tree, config.state_dir, corpus=opened.uri, limits=_limits(config))
    )
    with open_tree as laid:
        plan, done = verb.get(
            opened, names, tree=laid, cache=go.cache(config), mirror=go.mirror_at_hand(config), dry_run=dry_run
        )
    away = done.refused or plan.having(Action.REFUSED, Action.NO_ROOM)
    code = ConflictError.exit_code if away else None
    if not as_json:
        go.say(got_text(plan, done, dry_run))
        return code
    files = [
        {"path": s.wanted.path, "size": s.wanted.size, "outcome": s.action.value, "reason": s.reason}
        for s in plan.steps
    ]
    evicted = [going.path for going in (plan.evict if dry_run else done.evicted)]
    go.say(json_text({"written": done.written, "dry_run": dry_run, "files": files, "evicted": evicted}))
    return code


@command(value("names", nargs="+", metavar="PATH"), _MAX_SIZE, CORPUS, TREE, JSON, DRY_RUN)
def pin(
    go: Invocation, names: list[str], max_size: str | None, corpus: str | None, tree: str | None,
    as_json: bool, dry_run: bool,
) -> int | None:  # fmt: skip
    """Keep files or folders here, whatever needs the room; what is not here is laid first.

    Exit code 7 if a file could not be pinned: it is named with the reason.
    """
    from memfs import pin as verb
    from memfs.corpus.location import parse
    from memfs.report import pinned_text
    from memfs.workset.tree import Tree, read_mark

    config = go.config(corpus=corpus, tree=tree, max_size=max_size)
    is_tree = read_mark(config.tree) is not None
    uri = parse(config.need_corpus()).uri if is_tree or dry_run else go.open(config).uri
    make_for = None if dry_run and not is_tree else uri
    with Tree.open(config.tree, config.state_dir, corpus=make_for, limits=_limits(config)) as laid:
        done = verb.pin(lambda: go.open(config), names, tree=laid, cache=go.cache(config), dry_run=dry_run)
    go.show(done, as_json, lambda value: pinned_text(value, "pin"))
    return ConflictError.exit_code if done.not_pinned else None


@command(value("names", nargs="+", metavar="PATH"), TREE, JSON, DRY_RUN)
def unpin(go: Invocation, names: list[str], tree: str | None, as_json: bool, dry_run: bool) -> None:
    """Let files or folders be evicted again (`.` is everything). What the map holds, the next boot pins again."""
    from memfs import pin as verb
    from memfs.report import pinned_text
    from memfs.workset.tree import Tree

    config = go.config(tree=tree)
    with Tree.open(config.tree, config.state_dir) as laid:
        done = verb.unpin(names, tree=laid, dry_run=dry_run)
    go.show(done, as_json, lambda value: pinned_text(value, "unpin"))


@command(
    value("names", nargs="*", metavar="PATH"),
    value("--to", dest="to_size", metavar="SIZE", help="until no more than this lies in the tree, oldest use first"),
    flag("--all", dest="everything", help="all that can be fetched again and is not pinned"),
    TREE,
    JSON,
    DRY_RUN,
)
def evict(
    go: Invocation, names: list[str], to_size: str | None, everything: bool, tree: str | None,
    as_json: bool, dry_run: bool,
) -> int | None:  # fmt: skip
    """Free room: remove files that can be fetched again. Edited, own and pinned files stay. Needs no network.

    What was evicted comes back with memfs get or fetch, as the corpus has it then. Exit
    code 7 if a file that was named by itself stays, or --to could not be reached.
    """
    from memfs import evict as verb
    from memfs.config import parse_size
    from memfs.report import evicted_text
    from memfs.workset.tree import Tree

    config = go.config(tree=tree)
    to_bytes = None if to_size is None else parse_size(to_size, "--to")
    with Tree.open(config.tree, config.state_dir, limits=_limits(config)) as laid:
        done = verb.evict(laid, names, to_bytes=to_bytes, everything=everything, dry_run=dry_run)
    go.show(done, as_json, evicted_text)
    return ConflictError.exit_code if done.refused else None


@command(
    value("path", nargs="?", default="", metavar="PATH"),
    value("--remote", dest="only", action="store_const", const="remote", help="only what the corpus holds"),
    value("--local", dest="only", action="store_const", const="local", help="only what is on disk; needs no network"),
    CORPUS,
    TREE,
    JSON,
)
def ls(go: Invocation, path: str, only: str | None, corpus: str | None, tree: str | None, as_json: bool) -> None:
    """List files: `-` not on disk, `+` on disk only, blank both."""
    from memfs import ls as verb
    from memfs.report import listed_text

    config = go.config(corpus=corpus, tree=tree)
    opened = None if only == "local" else go.open(config)
    with go.maybe_tree(config, any_corpus=only == "local") as laid:
        items = list(verb.ls(opened, None if only == "remote" else laid, path))
    if as_json:
        go.say(json_text(items))
        return
    for item in items:
        go.say(listed_text(item))
    here = sum(item.where != "corpus" for item in items)
    go.note(f"{len(items):,} files" if only == "remote" else f"{here:,} of {len(items):,} files are here")


_MATCHING = {
    "-i": "ignore-case", "-S": "smart-case", "-s": "case-sensitive", "-w": "word-regexp", "-x": "line-regexp",
    "-F": "fixed-strings", "-P": "pcre2", "-a": "text",
}  # fmt: skip
_WHOLE = {
    "-v": "invert-match", "-U": "multiline", "--files-without-match": "files-without-match",
    "--include-zero": "include-zero",
}  # fmt: skip
_PRINTING = {
    "-l": "files-with-matches", "-c": "count", "-o": "only-matching", "-n": "line-number", "-N": "no-line-number",
    "-H": "with-filename", "-I": "no-filename", "--json": "json", "-q": "quiet", "--count-matches": "count-matches",
    "-b": "byte-offset", "--column": "column", "--heading": "heading", "--no-heading": "no-heading", "--null": "null",
    "--trim": "trim", "--vimgrep": "vimgrep",
}  # fmt: skip
_ALREADY = (("-r", "-R", "--recursive"), ("-u", "--no-ignore"), ("--hidden",))
"""What people type for grep or ripgrep, and is so in any case. (ripgrep's own -r, --replace, is not offered.)"""
_NUMBERED = {"-A": "after-context", "-B": "before-context", "-C": "context", "-m": "max-count"}


class _Passed(Action):
    """A flag for ripgrep: kept in the order of the command line, for of two that contradict, ripgrep takes the last."""

    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: str | None = None) -> None:
        flag = self.option_strings[-1] + (f"={values}" if self.nargs is None else "")
        namespace.passed = (*namespace.passed, flag)


def _rg_flags() -> Iterator[Argument]:
    passed = {"dest": "passed", "default": (), "action": _Passed, "help": "as ripgrep's"}
    for short, name in {**_MATCHING, **_WHOLE, **_PRINTING}.items():
        yield value(*dict.fromkeys((short, f"--{name}")), nargs=0, **passed)
    for short, name in _NUMBERED.items():
        yield value(short, f"--{name}", type=int, metavar="N", **passed)
    yield value("--color", choices=("never", "auto", "always", "ansi"), **passed)
    for names in _ALREADY:
        yield value(*names, action="count", default=0, dest="already", help="is so in any case")


@command(
    value("words", nargs="*", metavar="PATTERN [PATH…]"),
    value("-e", "--regexp", dest="patterns", action="append", default=[], metavar="PATTERN", help="as ripgrep's"),
    value("-g", "--glob", dest="globs", action="append", default=[], metavar="GLOB", help="as ripgrep's"),
    value("--sort", choices=("path", "none"), default="path", help="as ripgrep's [path]"),
    *_rg_flags(),
    value("--budget", default="2GB", metavar="SIZE", help="of text that may be brought to this host [2GB]"),
    value("--lay", type=int, default=100, metavar="N", help="lay at most N of the files that match [100]"),
    CORPUS,
    TREE,
)
def grep(
    go: Invocation, words: list[str], patterns: list[str], globs: list[str], sort: str, budget: str, lay: int,
    passed: tuple[str, ...], already: int, corpus: str | None, tree: str | None,
) -> int:  # fmt: skip
    """Search every file of the corpus, here or not, as ripgrep would: the same patterns, the same lines.

    Files that match and are not here are laid into the tree. Exit codes: 0 found, 1 nothing,
    2 a bad pattern, 10 not everything could be searched (stderr says what is missing).
    """
    from memfs import grep as verb
    from memfs.config import parse_size
    from memfs.report import coverage_text

    config = go.config(corpus=corpus, tree=tree)
    named = (patterns, words) if patterns else (words[:1], words[1:])
    matching = [flag for flag in passed if flag[2:] in _MATCHING.values()]
    query = verb.Query(
        patterns=tuple(named[0]),
        matching=tuple(matching),
        printing=(f"--sort={sort}", *(flag for flag in passed if flag not in matching)),
        globs=tuple(globs),
        paths=tuple(named[1]),
        whole=any(flag[2:] in _WHOLE.values() for flag in passed),
    )
    rg = verb.find_rg()
    mirror, limit = go.mirror(config), parse_size(budget, "budget")
    done = verb.grep(
        query,
        mirror,
        rg=rg,
        cwd=go.cwd,
        tree_root=config.tree,
        open_tree=lambda: go.maybe_tree(config),
        bring=lambda entries: _bring(go, config, entries),
        sink=go.write,
        scratch=os.path.join(config.cache_dir, "scratch"),
        lay=lay,
        freshen=lambda: _freshen(go, config, mirror, limit),
    )
    if done.said:
        go.note(done.said, end="")
    if "--json" in passed:
        from memfs.report import jsonable

        go.say(json.dumps({"type": "coverage", "data": jsonable(done.coverage)}))
    go.note(coverage_text(done.coverage))
    return done.exit_code


def _freshen(go: Invocation, config: Config, mirror: Mirror, budget_bytes: int) -> bool:
    """Bring this host's mirror to the corpus's newest version; leave it as it is, and return True, if none answers."""
    from memfs.errors import UnreachableError

    try:
        mark = go.newest(config)
        if not mirror.is_at(mark):
            limit = min(budget_bytes, config.cache_max_bytes)
            mirror.update(go.open(config), limit, config.min_free_bytes, mark=mark)
            go.keep_mirror(config, mirror)
    except UnreachableError:
        if not mirror.version:
            raise
        return True
    return False


def _bring(go: Invocation, config: Config, entries: Sequence[Entry]) -> Mapping[str, bytes]:
    """The bytes of files: from this host's cache, and only for what is not there from the corpus."""
    from memfs.workset.gather import gather

    cache = go.cache(config)
    cached = cache.read([entry.sha256 for entry in entries])
    found = {entry.path: cached[entry.sha256] for entry in entries if entry.sha256 in cached}
    missing = [(entry.path, entry.sha256) for entry in entries if entry.path not in found]
    return {**found, **(gather(go.open(config), missing, cache) if missing else {})}


@command(
    flag("--remote", help="ask the corpus first what it has now; without it, no network is needed"),
    CORPUS,
    TREE,
    JSON,
)
def status(go: Invocation, remote: bool, corpus: str | None, tree: str | None, as_json: bool) -> None:
    """Say what lies in the tree: clean, new, modified, deleted, conflicting, stale. Needs no network."""
    from memfs import status as verb
    from memfs.report import status_text
    from memfs.workset.tree import read_mark

    config = go.config(corpus=corpus, tree=tree)
    opened = go.open(config) if remote else None
    go.note_another(config)
    with go.tree(config, any_corpus=not remote) as laid:
        stored: Mapping[str, FileInfo] = {}
        if opened is not None:
            from memfs.workset.learn import learn

            stored = learn(opened, laid)
        mark = read_mark(config.tree)
        found = verb.status(laid, mark[0] if mark else "", stored)
    go.show(found, as_json, status_text)


@command(value("names", nargs="*", metavar="PATH"), CORPUS, TREE, JSON)
def diff(go: Invocation, names: list[str], corpus: str | None, tree: str | None, as_json: bool) -> int:
    """Show what was changed here, as a unified diff. Exit code 0 without differences, 1 with."""
    from memfs import diff as verb
    from memfs.workset.tree import read_mark

    config = go.config(corpus=corpus, tree=tree)
    with go.tree(config) as laid:
        mark = read_mark(config.tree)
        uri = mark[0] if mark else ""
        found = verb.diff(laid, names, cache=go.cache(config), corpus_uri=uri, open_corpus=lambda: go.open(config))
    go.say(json_text(found) if as_json else "".join(file.text for file in found), end="\n" if as_json else "")
    return 1 if found else 0


@command(value("names", nargs="*", metavar="PATH"), CORPUS, TREE, JSON, DRY_RUN)
def push(go: Invocation, names: list[str], corpus: str | None, tree: str | None, as_json: bool, dry_run: bool) -> int:
    """Send new and edited notes, and new sessions, to the corpus. What changed on both sides is kept, twice.

    Exit code 7 if a conflict remains; 3 if something that was written here could not be sent.
    """
    from memfs import push as verb
    from memfs.report import pushed_text

    config = go.config(corpus=corpus, tree=tree)
    opened = go.open(config)
    with go.tree(config) as laid:
        done = verb.push(opened, laid, names, cache=go.cache(config), dry_run=dry_run)
    go.show(done, as_json, pushed_text)
    if done.conflicts:
        return ConflictError.exit_code
    # What stays behind is somebody's work: a script must not take it for sent.
    return InputError.exit_code if done.refused else 0


@command(CORPUS, TREE, JSON, DRY_RUN)
def refresh(go: Invocation, corpus: str | None, tree: str | None, as_json: bool, dry_run: bool) -> int:
    """Bring the tree to the newest version of the corpus. Edits are kept; exit code 7 if one is a conflict."""
    from memfs import boot as boot_verb
    from memfs import refresh as verb
    from memfs.report import jsonable, refreshed_text

    config = go.config(corpus=corpus, tree=tree)
    opened = go.open(config)
    with go.tree(config) as laid:
        done = verb.refresh(opened, laid, cache=go.cache(config), dry_run=dry_run)
        booted, budget = laid.manifest.meta("boot_version"), laid.manifest.meta("boot_budget")
    written = 0
    if booted is not None:
        receipt = boot_verb.boot(
            opened.uri,
            config.tree,
            cache_dir=config.cache_dir,
            state_dir=config.state_dir,
            budget_bytes=int(budget) if budget else None,
            dry_run=dry_run,
        )
        written = receipt.files_written
    if as_json:
        go.say(json_text(jsonable(done) | {"map_written": written}))
    else:
        go.say(refreshed_text(done) + (f"\nnew in the map: {written:,} files" if written else ""))
    return ConflictError.exit_code if done.conflicts else 0


@command(
    value("directory", metavar="DIR"),
    value("--at", dest="version", type=int, metavar="N", help="an older corpus version"),
    UNDER,
    CORPUS,
    JSON,
    DRY_RUN,
)
def export(
    go: Invocation, directory: str, version: int | None, under: str, corpus: str | None, as_json: bool, dry_run: bool
) -> None:
    """Write every file of the corpus, byte for byte, into the empty folder DIR."""
    from memfs import export as verb
    from memfs.report import size_text

    progress = _Progress(go, "exporting")
    try:
        opened = go.open(go.config(corpus=corpus), version)
        done = verb.export(opened, directory, under=under, dry_run=dry_run, progress=progress)
    finally:
        progress.close()
    word = "would export" if dry_run else "exported"
    go.show(
        done,
        as_json,
        lambda d: f"{word} {d.files:,} files, {size_text(d.bytes)}, of corpus version {d.version} to {d.folder}",
    )
    for item in done.refused:
        go.note(f"refused: {item.name}: {item.reason}")


@command(
    value("--idle", type=float, default=1800, metavar="SECONDS", help="end when nothing was asked for so long [1800]"),
    flag("--stop", dest="stopping", help="end the server that is running"),
    CORPUS,
    TREE,
)
def serve(go: Invocation, idle: float, stopping: bool, corpus: str | None, tree: str | None) -> None:
    """Keep the tree's corpus, indices and model ready: fetch, grep, get and ls then answer in tenths of a second.

    Runs until the tree is gone or nothing was asked for a while; `memfs boot --serve` starts it in the background.
    """
    from memfs import serve as resident

    config = go.config(corpus=corpus, tree=tree)
    if stopping:
        go.say("stopped" if resident.stop(config) else "no server was running")
        return
    with resident.log_of(config) as log:
        resident.serve(config, idle_s=idle, log=log)


@command(
    flag("--fix", help="repair what can be repaired; an edit of yours is never touched"),
    flag("--deep", help="read and hash every file of the corpus and every blob of the cache"),
    CORPUS,
    TREE,
    JSON,
)
def doctor(go: Invocation, fix: bool, deep: bool, corpus: str | None, tree: str | None, as_json: bool) -> int | None:
    """Check the tree, the cache, the corpus and this machine, and say what --fix would repair.

    Without --fix nothing is repaired. Exit code 8 if a problem remains.
    """
    from memfs import doctor as verb
    from memfs.report import checkup_text

    config = go.config(corpus=corpus, tree=tree)
    go.note_another(config)
    found = verb.doctor(
        config.tree,
        state_dir=config.state_dir,
        cache=go.cache(config),
        corpus=config.corpus,
        embedder=config.embedder,
        limits=_limits(config),
        deep=deep,
        fix=fix,
    )
    go.show(found, as_json, checkup_text)
    return None if found.healthy else CorruptError.exit_code


@command(CORPUS, TREE, JSON)
def config(go: Invocation, corpus: str | None, tree: str | None, as_json: bool) -> None:
    """Show each setting and where it came from."""
    settings = [
        setting._replace(value=redact(setting.value)) for setting in go.config(corpus=corpus, tree=tree).settings
    ]
    if as_json:
        go.say(json_text(settings))
        return
    for setting in settings:
        go.say(f"{setting.name:<15}{setting.value or '(not set)'}  [{setting.origin}]")
