"""memfs: months of agent memory in an object store, as plain files under memory/.

    import memfs

    memory = memfs.connect("s3://bucket/team")
    memory.add("~/.claude/projects")
    print(memory.boot("memory").files_here)
    answer = memory.fetch("which database did we move to?")

Importing it does nothing and loads nothing heavy: names are resolved when used.
"""

from __future__ import annotations

# As in typing, whose import is a tenth of what a command costs when a server answers it.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from memfs.corpus.records import Commit, Document, Passage
    from memfs.errors import MemfsError
    from memfs.fetch import Answer
    from memfs.memory import Memory, connect, create
    from memfs.recall.evidence import Evidence

__all__ = ["Answer", "Commit", "Document", "Evidence", "MemfsError", "Memory", "Passage", "connect", "create"]

_HOMES = {
    "Answer": "memfs.fetch",
    "Commit": "memfs.corpus.records",
    "Document": "memfs.corpus.records",
    "Evidence": "memfs.recall.evidence",
    "MemfsError": "memfs.errors",
    "Memory": "memfs.memory",
    "Passage": "memfs.corpus.records",
    "connect": "memfs.memory",
    "create": "memfs.memory",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'memfs' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)
