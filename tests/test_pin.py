"""memfs pin, unpin and evict: what stays, what goes, and why."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import NOTES, Ran, tree_of

from memfs.corpus.table import Corpus
from memfs.errors import InputError, NotFoundError
from memfs.evict import evict
from memfs.pin import pin, unpin
from memfs.workset.tree import Tree

Run = Callable[..., Ran]


@pytest.fixture(autouse=True)
def ready(filled: Corpus, monkeypatch: pytest.MonkeyPatch) -> Corpus:
    """A corpus named by MEMFS_CORPUS."""
    monkeypatch.setenv("MEMFS_CORPUS", filled.uri)
    return filled


@pytest.fixture
def booted(memfs: Run) -> Run:
    """A tree with nothing of the map."""
    assert memfs("boot", "--budget", "0").code == 0
    return memfs


SIZE = {path: len(text.encode()) for path, text in NOTES.items()}


class TestPin:
    def test_lays_what_is_not_here(self, booted: Run) -> None:
        """A file that is not here is laid and pinned; then nothing evicts it."""
        done = booted("pin", "notes/deploy.md", "--json").json
        assert (done["changed"], done["laid"]) == (["notes/deploy.md"], ["notes/deploy.md"])
        assert tree_of("memory") == {"notes/deploy.md": NOTES["notes/deploy.md"].encode()}
        booted("evict", "--all")
        assert set(tree_of("memory")) == {"notes/deploy.md"}

    def test_folder(self, booted: Run) -> None:
        """A folder means the files in it; pinning again changes nothing and says so."""
        booted("get", "notes/people")
        done = booted("pin", "notes", "--json").json
        assert done["changed"] == ["notes/deploy.md", "notes/people/ana.md"]
        assert done["laid"] == ["notes/deploy.md"]
        said = booted("pin", "notes/")
        assert said.code == 0
        assert "pinned 0 files; 2 were so before" in said.out
        assert "pinned here: 2 files" in said.out

    def test_here_needs_no_corpus(self, booted: Run, ready: Corpus, tmp_path: Path) -> None:
        """Files that lie here are pinned without the corpus."""
        booted("get", "notes/deploy.md")
        Path(ready.uri).rename(tmp_path / "gone")
        assert booted("pin", "notes/deploy.md").code == 0
        assert booted("pin", "notes/people/ana.md").code == 4

    def test_no_room(self, booted: Run) -> None:
        """What has no room is not pinned, is named with the reason, and the exit code says so."""
        said = booted("pin", "notes/deploy.md", "notes/people/ana.md", "--max-size", str(SIZE["notes/deploy.md"]))
        assert said.code == 7
        assert "not pinned: notes/people/ana.md: its" in said.out
        assert booted("evict", "notes/deploy.md").code == 7

    def test_own_file_in_the_way(self, booted: Run) -> None:
        """A file of the user's at that name stays as it is, and is not called pinned."""
        Path("memory/notes").mkdir()
        Path("memory/notes/deploy.md").write_text("mine\n")
        said = booted("pin", "notes/deploy.md")
        assert said.code == 7
        assert "yours is kept" in said.out
        assert Path("memory/notes/deploy.md").read_text() == "mine\n"

    def test_edited_file(self, booted: Run) -> None:
        """An edited file is pinned as it is."""
        booted("get", "notes/deploy.md")
        Path("memory/notes/deploy.md").write_text("mine\n")
        assert booted("pin", "notes/deploy.md").code == 0
        assert Path("memory/notes/deploy.md").read_text() == "mine\n"

    def test_dry_run(self, booted: Run) -> None:
        """A dry run pins and lays nothing."""
        assert "would pin 2 files, 2 of them laid first" in booted("pin", "notes", "--dry-run").out
        assert tree_of("memory") == {}
        assert "pinned here: 0 files" in booted("pin", "notes/deploy.md", "--max-size", "1").out

    def test_unpin(self, memfs: Run) -> None:
        """What boot laid is pinned until it is unpinned; the next boot pins it again."""
        memfs("boot")
        assert memfs("evict", "notes/deploy.md").code == 7
        assert memfs("unpin", ".", "--dry-run").out.startswith("would unpin 7 files")
        assert "unpinned 1 file" in memfs("unpin", "notes/deploy.md").out
        assert memfs("evict", "notes/deploy.md").code == 0
        assert not Path("memory/notes/deploy.md").exists()
        memfs("boot")
        assert Path("memory/notes/deploy.md").exists()
        assert memfs("evict", "notes/deploy.md").code == 7

    @pytest.mark.parametrize("command", ["pin", "unpin", "evict"])
    def test_unknown_name(self, booted: Run, command: str) -> None:
        """A name that means nothing is an error, and then nothing is done."""
        booted("get", "notes")
        before = tree_of("memory")
        said = booted(command, "notes/deploy.md", "notes/none.md")
        assert (said.code, said.out) == (4, "")
        assert "no such file or folder" in said.err
        assert tree_of("memory") == before

    def test_hostile_name(self, booted: Run) -> None:
        """A name that leads out is refused by the gate."""
        for command in ("pin", "unpin", "evict"):
            assert booted(command, "../x").code == 3

    def test_no_names(self, filled: Corpus, tmp_path: Path) -> None:
        """Nothing named is an error with an example."""
        with Tree.open(str(tmp_path / "memory"), str(tmp_path / "state"), corpus=filled.uri) as tree:
            with pytest.raises(InputError):
                pin(lambda: filled, [], tree=tree, cache=None)
            with pytest.raises(InputError):
                unpin([], tree=tree)
            with pytest.raises(NotFoundError):
                unpin(["."], tree=tree)


class TestEvict:
    def test_all(self, booted: Run) -> None:
        """All that can be fetched again goes, the exact bytes are said, and it comes back with get."""
        booted("get", ".")
        before = tree_of("memory")
        said = booted("evict", "--all")
        assert said.code == 0
        assert f"evicted 6 files, {sum(SIZE.values()):,} bytes; 0 files, 0 bytes are here" in said.out
        assert tree_of("memory") == {}
        assert [p for p in Path("memory").rglob("*/*")] == []
        assert "6 were" not in booted("status").out
        assert booted("status", "--json").json["deleted"] == []
        booted("get", ".")
        assert tree_of("memory") == before

    def test_kept_by_name_and_reason(self, booted: Run) -> None:
        """Edited, own and pinned files stay; named by themselves, the exit code is 7; in a folder they are listed."""
        booted("get", "notes")
        booted("pin", "knowledge/index.md")
        Path("memory/notes/deploy.md").write_text("mine\n")
        Path("memory/notes/own.md").write_text("own\n")
        for name, reason in (
            ("notes/deploy.md", "edited here"),
            ("notes/own.md", "yours: memfs did not lay it"),
            ("knowledge/index.md", "pinned: memfs unpin it first"),
        ):
            said = booted("evict", name)
            assert said.code == 7
            assert f"kept: {name}: {reason}" in said.out
        said = booted("evict", "notes")
        assert said.code == 0
        assert said.out.count("kept: ") == 2
        assert "evicted 1 file" in said.out
        assert set(tree_of("memory")) == {"notes/deploy.md", "notes/own.md", "knowledge/index.md"}

    def test_to(self, booted: Run) -> None:
        """Down to a size, and no further than needed; what can't be reached is said, with exit code 7."""
        booted("get", ".")
        total = sum(SIZE.values())
        done = booted("evict", "--to", str(total - 1), "--json").json
        assert len(done["evicted"]) == 1
        assert done["bytes_here"] == total - done["bytes_freed"] <= total - 1
        assert done["kept"] == []
        Path("memory/own.md").write_text("own\n")
        said = booted("evict", "--to", "1")
        assert said.code == 7
        assert "still 3 bytes over: what is left is pinned or yours" in said.out
        assert set(tree_of("memory")) == {"own.md"}
        assert booted("evict", "--to", "1k").code == 0

    def test_to_within_a_folder(self, booted: Run) -> None:
        """With paths, only those go."""
        booted("get", ".")
        said = booted("evict", "notes", "--to", "0")
        assert said.code == 7
        assert {path.split("/")[0] for path in tree_of("memory")} == {"knowledge", "sessions"}

    def test_dry_run(self, booted: Run) -> None:
        """A dry run says the same and removes nothing."""
        booted("get", ".")
        before = tree_of("memory")
        dry = booted("evict", "--all", "--dry-run", "--json").json
        assert tree_of("memory") == before
        real = booted("evict", "--all", "--json").json
        assert {**dry, "dry_run": False} == real

    def test_needs_no_network(self, booted: Run, monkeypatch: pytest.MonkeyPatch) -> None:
        """The corpus need not be named or there."""
        booted("get", ".")
        monkeypatch.delenv("MEMFS_CORPUS")
        assert booted("evict", "--all").code == 0

    @pytest.mark.parametrize("args", ["", "--all notes", "--all --to 5"])
    def test_unclear(self, booted: Run, args: str) -> None:
        """Nothing, or too much, said about what to evict is an error."""
        assert booted("evict", *args.split()).code == 3

    def test_no_size(self, booted: Run) -> None:
        """A wrong size is a usage error."""
        assert booted("evict", "--to", "lots").code == 2

    def test_deleted_by_the_user(self, booted: Run) -> None:
        """What the user deleted stays their deletion."""
        booted("get", "notes")
        Path("memory/notes/deploy.md").unlink()
        booted("evict", "--all")
        assert booted("status", "--json").json["deleted"] == ["notes/deploy.md"]

    def test_symlink(self, booted: Run, tmp_path: Path) -> None:
        """A symlink planted in the tree is neither followed nor removed."""
        booted("get", "notes")
        (tmp_path / "victim").write_text("mine\n")
        Path("memory/notes/deploy.md").unlink()
        Path("memory/notes/deploy.md").symlink_to(tmp_path / "victim")
        booted("evict", "--all")
        assert (tmp_path / "victim").read_text() == "mine\n"
        assert Path("memory/notes/deploy.md").is_symlink()

    def test_in_python(self, filled: Corpus, tmp_path: Path) -> None:
        """The verb by itself, over a tree."""
        with Tree.open(str(tmp_path / "memory"), str(tmp_path / "state"), corpus=filled.uri) as tree:
            done = pin(lambda: filled, ["notes"], tree=tree, cache=None)
            assert done.pinned_files == 2
            assert done.pinned_bytes == SIZE["notes/deploy.md"] + SIZE["notes/people/ana.md"]
            unpin(["notes/deploy.md"], tree=tree)
            gone = evict(tree, everything=True)
            assert gone.evicted == ("notes/deploy.md",)
            assert [(kept.path, kept.size) for kept in gone.kept] == [
                ("notes/people/ana.md", SIZE["notes/people/ana.md"])
            ]
