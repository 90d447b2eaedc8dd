"""memfs get: files and folders by name, in one batch, from the host's cache where it has them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from conftest import NOTES, Store, document, long_text, tree_of

from memfs.corpus.table import Corpus
from memfs.errors import ConflictError, CorruptError, InputError, NotFoundError, PathError
from memfs.get import get
from memfs.testing import Proxy
from memfs.workset.cache import HostCache
from memfs.workset.gather import gather
from memfs.workset.tree import Tree


@pytest.fixture
def cache(tmp_path: Path) -> Iterator[HostCache]:
    with closing(HostCache(str(tmp_path / "cache"))) as made:
        yield made


@pytest.fixture
def tree(tmp_path: Path, filled: Corpus) -> Iterator[Tree]:
    with Tree.open(str(tmp_path / "memory"), str(tmp_path / "state"), corpus=filled.uri) as opened:
        yield opened


@pytest.mark.parametrize("name", ["notes/deploy.md", "memory/notes/deploy.md", "./notes/deploy.md"])
def test_one_file(name: str, filled: Corpus, tree: Tree, cache: HostCache) -> None:
    """A file by its name, with or without the tree's."""
    plan, done = get(filled, [name], tree=tree, cache=cache)
    assert (done.written, [step.wanted.path for step in plan.steps]) == (1, ["notes/deploy.md"])
    assert tree_of(tree.root) == {"notes/deploy.md": NOTES["notes/deploy.md"].encode()}


@pytest.mark.parametrize(
    ("name", "count"), [("notes", 2), ("notes/", 2), ("notes/people/", 1), (".", 6), ("sessions/2026", 2)]
)
def test_folder(name: str, count: int, filled: Corpus, tree: Tree, cache: HostCache) -> None:
    """A folder, or everything."""
    assert get(filled, [name], tree=tree, cache=cache)[1].written == count
    assert get(filled, [name], tree=tree, cache=cache)[1].written == 0


def test_all_or_nothing(filled: Corpus, tree: Tree, cache: HostCache) -> None:
    """One unknown name, and nothing is written; a hostile one is refused by the gate."""
    for bad in ("notes/none.md", "note", "notes/deploy.md/"):
        with pytest.raises(NotFoundError, match="no such file or folder"):
            get(filled, ["notes/people/ana.md", bad], tree=tree, cache=cache)
    with pytest.raises(PathError):
        get(filled, ["../x"], tree=tree, cache=cache)
    with pytest.raises(InputError):
        get(filled, [], tree=tree, cache=cache)
    assert tree_of(tree.root) == {}


def test_edits_are_kept(filled: Corpus, tree: Tree, cache: HostCache) -> None:
    """An edited file is not fetched over; the plan says why."""
    get(filled, ["."], tree=tree, cache=cache)
    (Path(tree.root) / "notes/deploy.md").write_text("mine\n")
    plan, done = get(filled, ["notes"], tree=tree, cache=cache)
    assert [step.wanted.path for step in done.kept] == ["notes/deploy.md"]
    assert (Path(tree.root) / "notes/deploy.md").read_text() == "mine\n"
    assert plan.needed() == ()


def test_dry_run(filled: Corpus, tree: Tree, cache: HostCache) -> None:
    """A dry run plans and writes nothing."""
    plan, done = get(filled, ["."], tree=tree, cache=cache, dry_run=True)
    assert (len(plan.needed()), done.written, tree_of(tree.root)) == (6, 0, {})


def test_second_sandbox_fetches_no_bytes(proxy: Proxy, s3: Store, tmp_path: Path) -> None:
    """A second tree on the same host brings no content from the store: only the listing is asked."""
    corpus = Corpus.create(s3.uri())
    files = {f"notes/{n:03d}.md": long_text(f"file{n}", 150) for n in range(60)}
    with corpus.writing():
        corpus.commit([document(path, text) for path, text in files.items()])
    total = sum(len(text) for text in files.values())
    down = []
    for name in ("one", "two"):
        proxy.reset()
        opened = Corpus.open(s3.uri())
        with (
            closing(HostCache(str(tmp_path / "cache"))) as cache,
            Tree.open(str(tmp_path / name), str(tmp_path / "state"), corpus=corpus.uri) as tree,
        ):
            get(opened, ["."], tree=tree, cache=cache)
        down.append(proxy.traffic().bytes_down)
    assert (
        tree_of(tmp_path / "one") == tree_of(tmp_path / "two") == {path: text.encode() for path, text in files.items()}
    )
    assert down[1] < down[0] - total / 20
    reads = []
    corpus_read = Corpus.read

    def counted(self: Corpus, wanted: list[str]) -> object:
        reads.extend(wanted)
        return corpus_read(self, wanted)

    with pytest.MonkeyPatch.context() as patch, closing(HostCache(str(tmp_path / "cache"))) as cache:
        patch.setattr(Corpus, "read", counted)
        gather(corpus, ((info.path, info.sha256) for info in corpus.files()), cache)
    assert reads == []


def test_changed_meanwhile(filled: Corpus, cache: HostCache) -> None:
    """A file that is another than the one that was planned is a conflict, never the wrong bytes."""
    with pytest.raises(ConflictError):
        gather(filled, [("notes/deploy.md", "0" * 64)], cache)
    with pytest.raises(ConflictError):
        gather(filled, [("notes/none.md", "0" * 64)], None)


def test_tampered_corpus(filled: Corpus, tree: Tree, cache: HostCache) -> None:
    """Bytes that do not match their hash are not laid."""
    filled._table.update(where="path = 'notes/deploy.md'", values={"body": b"false"})
    with pytest.raises(CorruptError):
        get(filled, ["notes"], tree=tree, cache=cache)
    assert tree_of(tree.root) == {}
