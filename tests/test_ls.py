"""memfs ls: what exists, here and in the corpus."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import NOTES, sha256

from memfs.corpus.table import Corpus
from memfs.errors import NotFoundError, PathError
from memfs.ls import ls
from memfs.workset.apply import apply
from memfs.workset.plan import Wanted, diff
from memfs.workset.tree import Tree


def test_ls(filled: Corpus, tmp_path: Path) -> None:
    """Every file once, sorted, with where it is: here, there, or both; memfs's own files are not shown."""
    with Tree.open(str(tmp_path / "memory"), str(tmp_path / "state"), corpus=filled.uri) as tree:
        data = NOTES["notes/deploy.md"].encode()
        apply(
            diff([Wanted("notes/deploy.md", sha256(data), len(data), 0, 1, "get")], tree),
            tree,
            {"notes/deploy.md": data},
        )
        (tmp_path / "memory/notes/mine.md").write_text("mine\n")
        where = {item.path: item.where for item in ls(filled, tree)}
        assert list(where) == sorted([*NOTES, "notes/mine.md"])
        assert where.pop("notes/deploy.md") == "both"
        assert where.pop("notes/mine.md") == "local"
        assert set(where.values()) == {"corpus"}
        assert [item.path for item in ls(None, tree)] == ["notes/deploy.md", "notes/mine.md"]
        assert [item.path for item in ls(filled, None, "notes")] == ["notes/deploy.md", "notes/people/ana.md"]
        assert [item.path for item in ls(filled, tree, "notes/deploy.md")] == ["notes/deploy.md"]
        assert [item.path for item in ls(filled, tree, "memory/notes/people/")] == ["notes/people/ana.md"]
        with pytest.raises(NotFoundError):
            list(ls(filled, tree, "nothing"))
        with pytest.raises(PathError):
            list(ls(filled, tree, "../x"))
