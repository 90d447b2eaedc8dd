"""A stage: a folder in which the next Brain is made, and nothing else reads.

stage.json      which corpus, at which version and commit it began
base/           knowledge/ as it was then
knowledge/      knowledge/ as it is to be
records/        what each phase of a dream found out, for people and for the run that goes on
also/           files outside knowledge/ that are published with it: sessions/…/summary.md
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path

from memfs import paths
from memfs.brain.sync import Base
from memfs.errors import ConflictError, InputError, NotFoundError

__all__ = ["SUMMARIES", "Stage"]

SUMMARIES = "2-summaries.md"
"""The record of phase 2, by which it is known that the sessions were read."""
FORMAT = 1
FILE_BYTES_MAX = 4 << 20


class Stage:
    """A stage on disk."""

    def __init__(self, folder: str) -> None:
        self.folder = Path(folder)

    @classmethod
    def make(cls, folder: str, corpus_uri: str, base: Base) -> Stage:
        """Begin a stage from the Brain as it is.

        Raises:
            ConflictError: something lies there.
        """
        stage = cls(folder)
        if stage.folder.exists() and any(stage.folder.iterdir()):
            raise ConflictError(
                f"{folder} is not empty", hint="give another folder, or memfs sync what lies there first"
            )
        for name in ("base", "knowledge", "records", "also"):
            (stage.folder / name).mkdir(parents=True, exist_ok=True)
        for path, data in base.files.items():
            for top in (stage.folder / "base", stage.folder):
                file = top / path
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_bytes(data)
        head = {"format": FORMAT, "corpus": corpus_uri, "version": base.version, "commit": base.commit, "sessions": []}
        # Last: a stage without it is none.
        stage._write_head(head)
        return stage

    @classmethod
    def resume(cls, folder: str, corpus_uri: str, base: Base, *, own: bool) -> Stage | None:
        """Return the stage that was begun in `folder` from this very Brain; None where there is none.

        One that was begun from another Brain is begun anew if it is `own`, memfs's: what was read of sessions stays.

        Raises:
            ConflictError: it is of another corpus or another Brain, and somebody's.
        """
        stage = cls(folder)
        if not (stage.folder / "stage.json").exists():
            if own:
                shutil.rmtree(folder, ignore_errors=True)
            return None
        head = stage.head()
        if head["corpus"] == corpus_uri and stage.base() == base._replace(version=int(str(head["version"]))):
            return stage
        if not own:
            raise ConflictError(
                f"the stage in {folder} was begun from another Brain",
                hint="memfs sync it first, or give another folder",
            )
        notes, kept = stage.folder / "records" / "notes", Path(f"{folder}.notes")
        shutil.rmtree(kept, ignore_errors=True)
        if notes.is_dir():
            notes.rename(kept)
        shutil.rmtree(folder)
        made = cls.make(folder, corpus_uri, base)
        if kept.is_dir():
            kept.rename(notes)
        return made

    @classmethod
    def open(cls, folder: str) -> Stage:
        """Open a stage that was begun.

        Raises:
            NotFoundError: there is none.
            InputError: its head is damaged, or of another format.
        """
        stage = cls(folder)
        stage.head()
        return stage

    def head(self) -> dict[str, object]:
        """Return stage.json."""
        file = self.folder / "stage.json"
        try:
            head = json.loads(file.read_text())
        except FileNotFoundError:
            raise NotFoundError(
                f"{self.folder} is no stage",
                hint="memfs dream --keep-stage makes one; memfs sync --dry-run checks the pages that you edited",
            ) from None
        except ValueError as error:
            raise InputError(f"{file}: {error}", hint="begin a new stage") from None
        if not isinstance(head, dict) or head.get("format") != FORMAT:
            raise InputError(f"{file}: not of a format that this memfs knows", hint="begin a new stage")
        return head

    def _write_head(self, head: Mapping[str, object]) -> None:
        temporary = self.folder / f".stage-{os.getpid()}.tmp"
        temporary.write_text(json.dumps(head, indent=1) + "\n")
        os.replace(temporary, self.folder / "stage.json")

    @property
    def corpus(self) -> str:
        """The URI of the corpus that it is for."""
        return str(self.head()["corpus"])

    @property
    def sessions(self) -> tuple[str, ...]:
        """What it brings in: `path@sha256` of the transcripts."""
        found = self.head().get("sessions")
        return tuple(map(str, found)) if isinstance(found, list) else ()

    def message(self, subject: str) -> str:
        """Return a commit's message, with a trailer for each session that it brings in."""
        return subject + "\n\n" + "".join(f"Session: {mark}\n" for mark in self.sessions)

    def bring(self, sessions: tuple[str, ...]) -> None:
        """Note what it brings in."""
        self._write_head({**self.head(), "sessions": list(sessions)})

    def base(self) -> Base:
        """Return where it began."""
        head = self.head()
        commit = head.get("commit")
        return Base(int(str(head["version"])), str(commit) if commit else None, dict(self._files("base/knowledge")))

    def files(self) -> dict[str, bytes]:
        """Return knowledge/ as it is to be.

        Raises:
            InputError: something lies there that no Brain can hold: a symlink, a hostile name, a huge file.
        """
        return dict(self._files("knowledge"))

    def also(self) -> dict[str, bytes]:
        """Return what is published with it."""
        return {path.removeprefix("also/"): data for path, data in self._files("also", strip="also/")}

    def write(self, path: str, data: bytes) -> None:
        """Write a file of knowledge/."""
        file = self.folder / paths.check(path)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)

    def record(self, name: str, text: str) -> None:
        """Write what a phase found out."""
        (self.folder / "records" / name).write_text(text)

    def has_record(self, name: str) -> bool:
        """Whether a phase has written that."""
        return (self.folder / "records" / name).exists()

    def _files(self, below: str, strip: str = "base/") -> Iterator[tuple[str, bytes]]:
        for root, folders, names in os.walk(self.folder / below):
            if ".git" in folders:
                folders.remove(".git")
            for name in [*names, *folders]:
                file = Path(root, name)
                if file.is_symlink():
                    raise InputError(f"{file} is a symlink", hint="a stage holds plain files only")
            for name in names:
                file = Path(root, name)
                if name == ".git":
                    continue
                if not file.is_file() or file.stat().st_size > FILE_BYTES_MAX:
                    raise InputError(f"{file} is no plain file, or too large", hint="take it out of the stage")
                path = file.relative_to(self.folder).as_posix().removeprefix(strip)
                yield paths.check(path), file.read_bytes()
