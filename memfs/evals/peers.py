"""Another system as a way: a command in an environment of its own, asked over its standard streams, a JSON line each.

to it    {"documents": [{"path", "passages": [{"citation", "speaker", "when", "text"}]}]}    once
from it  {"ready": "its name and version"}
to it    {"question", "under", "until"}                              of each question: folder and last day, or ""
from it  {"found": ["sessions/…#t3", …]}                             citations, best first
"""

from __future__ import annotations

import json
import os
import queue
import shlex
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any

from memfs.errors import ConfigError, plain_line
from memfs.evals.metrics import Found

if TYPE_CHECKING:
    from memfs.evals.data import Question
    from memfs.evals.ways import Context

__all__ = ["Peer"]

STOP_S = 5.0
READY_S = 3600.0
"""It may embed all it was given, on a slow machine."""
ANSWER_S = 300.0
LINE_CHARS_MAX = 16 << 20
HINT = "--peer NAME='COMMAND ARGUMENTS'"


class Peer:
    """The command, running while it is used as a context manager.

    Raises:
        ConfigError: there is no such command.
    """

    def __init__(self, name: str, command: str, *, ready_s: float = READY_S, answer_s: float = ANSWER_S) -> None:
        self.name, self._ready_s, self._answer_s = name, ready_s, answer_s
        try:
            self._command = shlex.split(command)
        except ValueError as error:
            raise ConfigError(f"the peer {name}: {error}", hint=HINT) from None
        if not self._command or shutil.which(self._command[0]) is None:
            raise ConfigError(f"the peer {name}: no command {(self._command or [''])[0]!r}", hint=HINT)
        self.version = ""
        self._child: subprocess.Popen[str] | None = None
        self._lines: queue.Queue[str] = queue.Queue(maxsize=1)
        """What it says, a line each; "" at its end."""
        self._errors = tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace")  # noqa: SIM115
        self._sizes: dict[str, int] = {}

    def __enter__(self) -> Peer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        child = self._child
        if child is not None:
            if error is not None:
                # It may read nothing: what is being written to it would never end.
                self._kill(child)
            with suppress(OSError):
                child.stdin.close()  # type: ignore[union-attr]
            try:
                child.wait(STOP_S)
            except subprocess.TimeoutExpired:
                self._kill(child)
                child.wait()
            end = time.monotonic() + STOP_S
            while self._listener.is_alive() and time.monotonic() < end:
                with suppress(queue.Empty):
                    self._lines.get(timeout=0.1)
        self._errors.close()

    def start(self, context: Context) -> None:
        """Start it, and give it the documents; what it says of itself is its `version`.

        Raises:
            ConfigError: the command can't be run, ended, or doesn't keep to the protocol.
        """
        try:
            self._child = subprocess.Popen(
                self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors,
                text=True, encoding="utf-8", errors="replace", start_new_session=True,
            )  # fmt: skip
        except OSError as error:
            raise ConfigError(f"the peer {self.name}: {error}", hint=HINT) from None
        self._listener = threading.Thread(target=self._listen, args=(self._child,), daemon=True)
        self._listener.start()
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
        self.version = plain_line(str(self._ask(all_of_it, self._ready_s).get("ready", "")))
        if not self.version:
            raise self._broken("it did not say that it is ready")

    def __call__(self, context: Context, question: Question) -> list[Found]:
        """Ask it.

        Raises:
            ConfigError: it ended, or doesn't keep to the protocol.
        """
        if not self._lines.empty():
            line = self._lines.get()
            raise self._broken(f"it said {line[:200]!r} before it was asked" if line else "it ended")
        until = question.asked_at.date().isoformat() if question.asked_at else ""
        said = self._ask({"question": question.text, "under": question.under, "until": until}, self._answer_s)
        found = said.get("found")
        if not isinstance(found, list) or not all(isinstance(each, str) for each in found):
            raise self._broken(f"it said {json.dumps(said)[:200]}, not found: a list of citations")
        unknown = next((each for each in found if each not in self._sizes), None)
        if unknown is not None:
            raise self._broken(f"it found {unknown[:200]!r}, which it was not given")
        return [Found((each,), self._sizes[each]) for each in dict.fromkeys(found)]

    def _ask(self, message: dict[str, Any], wait_s: float) -> dict[str, Any]:
        # One that writes before it has read all must not wait for us, nor we for it.
        threading.Thread(target=self._tell, args=(self._child, json.dumps(message) + "\n"), daemon=True).start()
        try:
            line = self._lines.get(timeout=wait_s)
        except queue.Empty:
            raise self._broken(f"it said nothing for {wait_s:,.0f} s") from None
        if not line:
            raise self._broken("it ended")
        with suppress(ValueError, RecursionError):
            said = json.loads(line)
            if isinstance(said, dict):
                return said
        raise self._broken(f"it said {line[:200]!r}, no JSON object")

    @staticmethod
    def _kill(child: subprocess.Popen[str]) -> None:
        """End it, and what it has started."""
        with suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)

    @staticmethod
    def _tell(child: subprocess.Popen[str], line: str) -> None:
        # One that ended without reading may have said something before.
        with suppress(OSError, ValueError):
            child.stdin.write(line)  # type: ignore[union-attr]
            child.stdin.flush()  # type: ignore[union-attr]

    def _listen(self, child: subprocess.Popen[str]) -> None:
        assert child.stdout is not None
        with child.stdout as stream:
            while line := stream.readline(LINE_CHARS_MAX):
                self._lines.put(line)
        self._lines.put("")

    def _broken(self, what: str) -> ConfigError:
        if self._child is not None:
            # So that its last words are all there.
            with suppress(subprocess.TimeoutExpired):
                self._child.wait(0.5)
        self._errors.seek(0)
        last = self._errors.read().strip().splitlines()[-1:]
        return ConfigError(
            f"the peer {self.name}: {what}{f'; its last words: {plain_line(last[0][:300])}' if last else ''}",
            hint="the protocol stands in memfs/evals/peers.py",
        )
