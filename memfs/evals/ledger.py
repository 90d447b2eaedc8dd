"""The ledger of evaluations: a file of the user's choosing, a JSON object a line.

Each entry says what was run, on what, with what result, each question's score included, so that a later run can be
told better, worse or neither by a paired test.
"""

from __future__ import annotations

import fcntl
import json
import os
import stat
import statistics
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from memfs.errors import ConfigError, DiskError, InputError, NotFoundError, plain_line
from memfs.evals.metrics import Paired, paired
from memfs.evals.run import DIGITS, Result

__all__ = ["Comparison", "Ledger"]

HEADLINE = "turn_r10"
SETTINGS = ("embedder", "wiki", "budget_tokens", "seed")


@dataclass(frozen=True)
class Comparison:
    """A way beside itself in an earlier entry."""

    way: str
    metric: str
    before: float
    now: float
    test: Paired
    same_questions: int


class Ledger:
    """The file, opened for each use; it need not exist yet, and what is in it is never rewritten.

    Raises:
        DiskError: it can't be written.
        InputError: it is no regular file.
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        # Before minutes of asking, not after.
        with self._opened():
            pass

    def entries(self) -> list[dict[str, Any]]:
        """Return what is in it.

        Raises:
            InputError: a line is no entry.
        """
        found = []
        for number, line in enumerate(self._file.read_bytes().splitlines(), 1):
            if not line.strip():
                continue
            try:
                entry = json.loads(line)
                wrong = _wrong(entry)
            except (ValueError, RecursionError) as error:
                wrong = str(error)
            if wrong:
                raise InputError(
                    f"{self._file}:{number} is no entry: {wrong}",
                    hint="an earlier run was cut off there, or something else wrote: take the line out",
                )
            found.append(entry)
        return found

    def entry(self, wanted: str, digest: str | None = None) -> dict[str, Any] | None:
        """Return the entry of that id, or of the only id that begins so; `last` is the last (of that data), if any.

        Raises:
            NotFoundError: no such id, or more than one.
            InputError: a line is no entry.
        """
        known = self.entries()
        if wanted == "last":
            return next((each for each in reversed(known) if digest in (None, each["digest"])), None)
        found = [each for each in known if each["id"].startswith(wanted)]
        if len(found) != 1:
            raise NotFoundError(f"{wanted}: {len(found)} such entries in {self._file}", hint="an entry's id, or: last")
        return found[0]

    def append(self, result: Result) -> str:
        """Add a result, whole or not at all, on a line of its own whatever stands before it; return its id.

        Raises:
            DiskError: it can't be written.
        """
        entry = result.entry()
        data = json.dumps(entry, ensure_ascii=False).encode() + b"\n"
        with self._opened() as fd:
            fcntl.flock(fd, fcntl.LOCK_EX)
            size = os.fstat(fd).st_size
            if size and os.pread(fd, 1, size - 1) != b"\n":
                data = b"\n" + data
            try:
                while data:
                    data = data[os.write(fd, data) :]
            except OSError:
                os.ftruncate(fd, size)
                raise
        return str(entry["id"])

    def against(self, result: Result, wanted: str, metric: str = HEADLINE) -> list[Comparison] | None:
        """Hold a result against an entry (see `entry`; `last` is the last of the same data, None without one).

        Raises:
            NotFoundError: there is no such entry.
            ConfigError: it was made of other data.
            InputError: a line is no entry.
        """
        old = self.entry(wanted, result.digest)
        if old is None:
            return None
        if old["digest"] != result.digest:
            raise ConfigError(
                f"entry {old['id']} is of other data ({old['dataset']} {old['digest']})", hint="compare like with like"
            )
        at = {question: i for i, question in enumerate(old["questions"])}
        made = []
        for name in result.scores:
            pairs = [
                (old["scores"][name][metric][at[question]], round(getattr(each, metric), DIGITS))
                for question, each, ok in zip(result.questions, result.scores[name], result.answerable, strict=True)
                if ok and question in at and metric in old["scores"].get(name, ())
            ]
            if pairs:
                before, now = [a for a, _ in pairs], [b for _, b in pairs]
                test = paired(before, now, result.seed)
                made.append(
                    Comparison(name, metric, statistics.fmean(before), statistics.fmean(now), test, len(pairs))
                )  # fmt: skip
        return made

    def unlike(self, result: Result, wanted: str) -> list[str]:
        """Say what was set otherwise in an entry: `seed 0 -> 3`; [] without an entry (see `entry`)."""
        old = self.entry(wanted, result.digest) or {}
        pairs = {key: (old[key], getattr(result, key)) for key in SETTINGS if key in old}
        return [plain_line(f"{key} {before} -> {now}") for key, (before, now) in pairs.items() if before != now]

    @contextmanager
    def _opened(self) -> Iterator[int]:
        """Its descriptor, for reading and appending."""
        try:
            with suppress(FileExistsError):
                self._file.parent.mkdir(parents=True, exist_ok=True)
            # Not to wait for a pipe's reader before it is seen to be one.
            flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NONBLOCK
            fd = os.open(self._file, flags, 0o666)
            try:
                if not stat.S_ISREG(os.fstat(fd).st_mode):
                    raise InputError(f"{self._file} is no regular file", hint="--ledger evals/ledger.jsonl")
                yield fd
            finally:
                os.close(fd)
        except (OSError, ValueError) as error:
            said = error.strerror if isinstance(error, OSError) else error
            raise DiskError(f"{str(self._file)!r}: {said}", hint="the ledger is a file that can be written") from None


def _wrong(entry: Any) -> str:
    """Say what is wrong with an entry, "" if nothing."""
    if not isinstance(entry, dict):
        return "no object"
    for key in ("id", "digest", "dataset"):
        if not isinstance(entry.get(key), str):
            return f"{key} is no text"
    questions, scores = entry.get("questions"), entry.get("scores")
    if not isinstance(questions, list) or not all(isinstance(each, str) for each in questions):
        return "questions is no list of names"
    if not isinstance(scores, dict) or not all(isinstance(each, dict) for each in scores.values()):
        return "scores is no object of objects"
    for way, metrics in scores.items():
        for metric, values in metrics.items():
            if not isinstance(values, list) or len(values) != len(questions):
                return f"scores of {way}, {metric}: not one for each question"
            if not all(isinstance(value, (int, float)) and 0 <= value <= 1 for value in values):
                return f"scores of {way}, {metric}: not all are shares"
    return ""
