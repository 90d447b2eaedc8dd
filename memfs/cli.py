"""The command line: finds the command, parses its arguments, turns errors into words and exit codes.

The commands are in memfs.commands. Every import that costs is inside its command:
`--help`, `boot` and `status` load neither lancedb nor pyarrow (tests/test_structure.py
holds it). argparse, because it is loaded in a quarter of the time that click takes,
and boot and the thin client are counted in milliseconds (decision 007).
"""

from __future__ import annotations

import os
import sys
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from collections.abc import Iterator, Sequence
from typing import NoReturn, TextIO

from memfs import commands
from memfs.commands import Command, Invocation
from memfs.errors import ConfigError, DiskError, MemfsError, redact

__all__ = ["main", "run"]

INTERNAL_ERROR = 70
INTERRUPTED = 130
ABOUT = """\
Usage: memfs COMMAND [ARGUMENTS]…

  Memory for AI agents: months of sessions and notes in an object store, as plain files under memory/.

  Start with: memfs init URI, memfs add SOURCE, memfs boot, memfs fetch "question".

Commands (memfs COMMAND --help says more):
"""


def main() -> None:
    """Run the command line of this process."""
    # Lance's own log lines would go to the user's terminal.
    os.environ.setdefault("LANCE_LOG", "error")
    os.environ.setdefault("LANCEDB_LOG", "error")
    go = Invocation(os.environ, os.getcwd(), sys.stdout, sys.stderr)
    try:
        try:
            code = run(sys.argv[1:], go)
            go.flush()
        except KeyboardInterrupt:
            code = INTERRUPTED
            go.flush()
        except DiskError as error:
            code = _fail(go, error.message, error.hint, error.exit_code)
        sys.stderr.flush()
    except BrokenPipeError:
        # The reader (head, less) has gone; so do we, without a second error at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 0
    sys.exit(code)


def run(argv: Sequence[str], go: Invocation) -> int:
    """Run one command line and return its exit code; the one place where an error becomes words."""
    try:
        name, rest = (argv[0], argv[1:]) if argv else ("--help", ())
        if name in ("-h", "--help"):
            from memfs import commands_brain, commands_graph  # noqa: F401 - each adds its own

            go.say(ABOUT + "\n".join(f"  {each.name:<9} {each.about}" for each in commands.ALL.values()))
            return 0
        if name == "--version":
            from importlib.metadata import version

            go.say(f"memfs {version('agent-memfs')}")
            return 0
        command = _command(name)
        parser, words = _parser(command, go.out), list(_joined(command, rest))
        # What follows `--` is lost on the intermixed parser, which goes over it twice.
        arguments = parser.parse_args(words) if "--" in words else parser.parse_intermixed_args(words)
        return command.run(go, **vars(arguments)) or 0
    except _Helped:
        return 0
    except MemfsError as error:
        return _fail(go, error.message, error.hint, error.exit_code)
    except BrokenPipeError:
        raise
    except Exception as error:
        if go.environ.get("MEMFS_DEBUG"):
            raise
        text = redact(f"{type(error).__name__}: {error}").split("\n", 1)[0]
        hint = "please report it; MEMFS_DEBUG=1 shows where it happened"
        return _fail(go, f"internal error: {text}", hint, INTERNAL_ERROR)


def _fail(go: Invocation, message: str, hint: str | None, code: int) -> int:
    text = "".join(map(_shown, f"error: {message}" + (f"\nhint: {hint}" if hint else "")))
    try:
        go.note(text)
    except DiskError:
        # stdout is what cannot be written.
        go.err.write(f"{text}\n")
    return code


def _shown(char: str) -> str:
    # A message holds names and words of others: nothing of them steers a terminal. A name that is no Unicode stays.
    return char if char.isprintable() or char in "\n\t" or "\ud800" <= char <= "\udfff" else "\ufffd"


class _Helped(Exception):
    """Help was asked for, and printed."""


class _Parser(ArgumentParser):
    """As ArgumentParser, but never ends the process, and prints where it is told to."""

    out: TextIO

    def error(self, message: str) -> NoReturn:
        raise ConfigError(message, hint=f"{self.prog} --help")

    def print_help(self, file: object = None) -> None:
        self.out.write(self.format_help().replace("usage:", "Usage:", 1))

    def exit(self, status: int = 0, message: str | None = None) -> NoReturn:
        raise _Helped


def _command(name: str) -> Command:
    if name not in commands.ALL:
        from memfs import commands_brain, commands_graph  # noqa: F401 - each adds its own
    if name in commands.ALL:
        return commands.ALL[name]
    from difflib import get_close_matches

    near = get_close_matches(name, commands.ALL, n=1)
    raise ConfigError(f"no command {name!r}", hint=f"memfs {near[0]}?" if near else "memfs --help lists them")


def _joined(command: Command, words: Sequence[str]) -> Iterator[str]:
    """Join a repeatable flag and a value that begins with a hyphen (`-e -x`), which argparse takes for another flag."""
    repeatable = {
        name: a.names[-1] for a in command.arguments if a.settings.get("action") == "append" for name in a.names
    }
    left = iter(words)
    for word in left:
        value = next(left, None) if word in repeatable else None
        if value is not None:
            yield f"{repeatable[word]}={value}"
        else:
            yield word
        if word == "--":
            yield from left


def _parser(command: Command, out: TextIO) -> _Parser:
    parser = _Parser(
        prog=f"memfs {command.name}",
        description=command.description,
        formatter_class=RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.out = out
    for argument in command.arguments:
        parser.add_argument(*argument.names, **argument.settings)
    return parser


if __name__ == "__main__":
    main()
