"""Another system as a way: a command in an environment of its own, asked over its standard streams, a JSON line each.

to it    {"documents": [{"path", "passages": [{"citation", "speaker", "when", "text"}]}]}    once
from it  {"ready": "its name and version"}
to it    {"question", "under", "until"}                              of each question: folder and last day, or ""
from it  {"found": ["sessions/…#t3", …]}                             citations, best first
"""

from __future__ import annotations

import json
import shlex
import subprocess
import tempfile
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any

from memfs.errors import ConfigError
from memfs.evals.metrics import Found

if TYPE_CHECKING:
    from memfs.evals.data import Question
    from memfs.evals.ways import Context

__all__ = ["Peer"]

STOP_S = 5.0


class Peer:
    """The command, started when it is first asked; use it as a context manager, which ends it."""

    def __init__(self, name: str, command: str) -> None:
        self.name, self._command = name, command
        self.version = ""
        self._child: subprocess.Popen[str] | None = None
        self._errors = tempfile.TemporaryFile("w+", encoding="utf-8")  # noqa: SIM115
        self._sizes: dict[str, int] = {}

    def __enter__(self) -> Peer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        child = self._child
        if child is not None:
            with suppress(OSError):
                child.stdin.close()  # type: ignore[union-attr]
            try:
                child.wait(STOP_S)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()
            child.stdout.close()  # type: ignore[union-attr]
        self._errors.close()

    def __call__(self, context: Context, question: Question) -> list[Found]:
        """Ask it.

        Raises:
            ConfigError: the command can't be run, ended, or doesn't keep to the protocol.
        """
        if self._child is None:
            self._start(context)
        until = question.asked_at.date().isoformat() if question.asked_at else ""
        said = self._ask({"question": question.text, "under": question.under, "until": until})
        found = said.get("found")
        if not isinstance(found, list) or not all(isinstance(each, str) for each in found):
            raise self._broken(f"it said {json.dumps(said)[:200]}, not found: a list of citations")
        unknown = next((each for each in found if each not in self._sizes), None)
        if unknown is not None:
            raise self._broken(f"it found {unknown!r}, which it was not given")
        return [Found((each,), self._sizes[each]) for each in dict.fromkeys(found)]

    def _start(self, context: Context) -> None:
        try:
            self._child = subprocess.Popen(
                shlex.split(self._command), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors,
                text=True, encoding="utf-8",
            )  # fmt: skip
        except (OSError, ValueError) as error:
            raise ConfigError(f"the peer {self.name}: {error}", hint="--peer NAME='COMMAND ARGUMENTS'") from None
        documents: dict[str, list[dict[str, str]]] = {}
        for place in context.places:
            if place.kind == "transcript" and place.speaker is None:
                continue
            when = f"{place.event_time:%Y-%m-%d}" if place.event_time else ""
            text = context.bodies[place.row_id].partition("\n")[2] if place.speaker else context.bodies[place.row_id]
            documents.setdefault(place.path, []).append(
                {"citation": place.citation, "speaker": place.speaker or "", "when": when, "text": text.strip()}
            )
            self._sizes[place.citation] = place.end - place.start
        all_of_it = {"documents": [{"path": path, "passages": some} for path, some in documents.items()]}
        self.version = str(self._ask(all_of_it).get("ready", ""))
        if not self.version:
            raise self._broken("it did not say that it is ready")

    def _ask(self, message: dict[str, Any]) -> dict[str, Any]:
        assert self._child is not None
        assert self._child.stdin is not None
        assert self._child.stdout is not None
        # One that ended without reading may have said something before.
        with suppress(OSError):
            self._child.stdin.write(json.dumps(message) + "\n")
            self._child.stdin.flush()
        line = self._child.stdout.readline()
        if not line:
            raise self._broken("it ended")
        with suppress(ValueError):
            said = json.loads(line)
            if isinstance(said, dict):
                return said
        raise self._broken(f"it said {line[:200]!r}, no JSON object")

    def _broken(self, what: str) -> ConfigError:
        self._errors.seek(0)
        last = self._errors.read().strip().splitlines()[-1:]
        return ConfigError(
            f"the peer {self.name}: {what}{f'; its last words: {last[0][:300]}' if last else ''}",
            hint="the protocol stands in memfs/evals/peers.py",
        )
