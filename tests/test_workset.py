"""The working set: plan, then apply. Never outside the folder, never over an edit, never half a file."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from conftest import leftovers, sha256, tree_of
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from memfs.errors import ConfigError, CorruptError, DiskError, NotFoundError
from memfs.project import MARK
from memfs.workset.apply import Applied, apply
from memfs.workset.plan import Action, Plan, Wanted, diff
from memfs.workset.tree import Tree, read_mark

CORPUS = "s3://bucket/team"
NEW_FOLDER = {"notes/a.md": b"a\n", "notes/deep/c.md": b"c\n", "notes/deep/er/b.md": b""}
MTIME_NS = 1_700_000_000_123_456_000


def wanted(path: str, data: bytes, version: int = 1) -> Wanted:
    return Wanted(path, sha256(data), len(data), MTIME_NS, version, "boot")


def lay(tree: Tree, files: Mapping[str, bytes], version: int = 1) -> tuple[Plan, Applied]:
    """Plan and apply, as the verbs do."""
    plan = diff((wanted(path, data, version) for path, data in files.items()), tree)
    return plan, apply(plan, tree, files)


def actions(plan: Plan) -> dict[str, str]:
    return {step.wanted.path: step.action.value for step in plan.steps}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "memory"


@pytest.fixture
def tree(root: Path, tmp_path: Path) -> Iterator[Tree]:
    with Tree.open(str(root), str(tmp_path / "state"), corpus=CORPUS) as opened:
        yield opened


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """A folder beside the tree that nothing may touch."""
    folder = tmp_path / "outside"
    folder.mkdir()
    (folder / "victim").write_bytes(b"mine")
    return folder


class TestLaying:
    def test_write(self, tree: Tree, root: Path) -> None:
        """Files arrive with their bytes and their time; laying again finds them present."""
        files = {"a.md": b"a\n", "notes/deep/er/b.md": b"", "notes/c.bin": b"\x00" * 100_000}
        plan, done = lay(tree, files)
        assert set(actions(plan).values()) == {"write"}
        assert (done.written, done.bytes_written) == (3, 100_002)
        assert tree_of(root) == files
        assert (root / "a.md").stat().st_mtime_ns == MTIME_NS
        plan, done = lay(tree, files)
        assert set(actions(plan).values()) == {"present"}
        assert done.written == 0
        assert leftovers(root) == []

    def test_newer_version_replaces_the_clean(self, tree: Tree, root: Path) -> None:
        """A file that nobody edited follows the corpus."""
        lay(tree, {"a.md": b"one\n"})
        plan, done = lay(tree, {"a.md": b"two\n"}, version=2)
        assert (actions(plan), done.written) == ({"a.md": "replace"}, 1)
        assert tree_of(root) == {"a.md": b"two\n"}

    def test_wrong_bytes_are_not_laid(self, tree: Tree, root: Path) -> None:
        """Bytes that do not match their hash are an error before anything is written."""
        plan = diff([wanted("a.md", b"right"), wanted("b.md", b"b")], tree)
        with pytest.raises(CorruptError):
            apply(plan, tree, {"a.md": b"wrong", "b.md": b"b"})
        assert tree_of(root) == {}

    def test_touched_but_same(self, tree: Tree, root: Path) -> None:
        """A file whose time changed but not its bytes is clean: it is replaced, or known as present."""
        lay(tree, {"a.md": b"one\n", "b.md": b"b\n"})
        for name in ("a.md", "b.md"):
            os.utime(root / name)
        plan, _ = lay(tree, {"a.md": b"two\n", "b.md": b"b\n"}, version=2)
        assert actions(plan) == {"a.md": "replace", "b.md": "adopt"}
        assert tree_of(root) == {"a.md": b"two\n", "b.md": b"b\n"}

    def test_deleted_here_comes_back(self, tree: Tree, root: Path) -> None:
        """A laid file that was deleted is written anew when it is wanted again."""
        lay(tree, {"a.md": b"one\n"})
        (root / "a.md").unlink()
        plan, _ = lay(tree, {"a.md": b"one\n"})
        assert actions(plan) == {"a.md": "write"}
        assert tree_of(root) == {"a.md": b"one\n"}


class TestEdits:
    @pytest.mark.parametrize("edit", ["append", "replace", "same-size-same-time"])
    def test_edit_is_kept(self, tree: Tree, root: Path, edit: str) -> None:
        """However a file was edited, it stays; the corpus's newer version is a conflict that is reported."""
        lay(tree, {"a.md": b"one\n"})
        file = root / "a.md"
        if edit == "append":
            file.write_bytes(b"one\nmine\n")
        elif edit == "replace":
            (root / "new").write_bytes(b"mine")
            os.replace(root / "new", file)
        else:
            file.write_bytes(b"ONE\n")
            os.utime(file, ns=(MTIME_NS, MTIME_NS))
        mine = file.read_bytes()
        for version, data, action in ((1, b"one\n", "edited"), (2, b"two\n", "conflict")):
            plan, done = lay(tree, {"a.md": data}, version)
            assert actions(plan) == {"a.md": action}
            assert [step.wanted.path for step in done.kept] == ["a.md"]
            assert done.kept[0].reason
            assert file.read_bytes() == mine

    def test_own_file_is_kept(self, tree: Tree, root: Path) -> None:
        """A file that the user made is never overwritten; with the same bytes it is adopted."""
        (root / "mine.md").write_bytes(b"mine\n")
        (root / "same.md").write_bytes(b"same\n")
        plan, done = lay(tree, {"mine.md": b"theirs\n", "same.md": b"same\n"})
        assert actions(plan) == {"mine.md": "conflict", "same.md": "adopt"}
        assert done.written == 0
        assert tree_of(root) == {"mine.md": b"mine\n", "same.md": b"same\n"}

    @pytest.mark.parametrize("before", [None, b"one\n"])
    def test_edit_between_plan_and_apply(self, tree: Tree, root: Path, before: bytes | None) -> None:
        """A file written after the plan was made is kept, whether the plan had seen it or not."""
        if before is not None:
            lay(tree, {"a.md": before})
        plan = diff([wanted("a.md", b"two\n", 2)], tree)
        (root / "a.md").write_bytes(b"written meanwhile\n")
        done = apply(plan, tree, {"a.md": b"two\n"})
        assert done.written == 0
        assert [step.action for step in done.kept] == [Action.CONFLICT]
        assert tree_of(root) == {"a.md": b"written meanwhile\n"}
        assert leftovers(root) == []
        plan, _ = lay(tree, {"a.md": b"two\n"}, 2)
        assert tree_of(root) == {"a.md": b"written meanwhile\n"}

    def test_reverted_edit_is_clean_again(self, tree: Tree, root: Path) -> None:
        """An edit taken back is no edit."""
        lay(tree, {"a.md": b"one\n"})
        (root / "a.md").write_bytes(b"mine\n")
        lay(tree, {"a.md": b"two\n"}, 2)
        (root / "a.md").write_bytes(b"one\n")
        plan, _ = lay(tree, {"a.md": b"two\n"}, 2)
        assert actions(plan) == {"a.md": "replace"}

    def test_remove_spares_edits(self, tree: Tree, root: Path) -> None:
        """`remove` deletes what was seen, and refuses what was written to meanwhile."""
        lay(tree, {"a.md": b"one\n", "b.md": b"b\n"})
        seen_a, seen_b = tree.look("a.md"), tree.look("b.md")
        (root / "a.md").write_bytes(b"mine\n")
        with pytest.raises(FileExistsError):
            tree.remove("a.md", seen_a)  # type: ignore[arg-type]
        tree.remove("b.md", seen_b)  # type: ignore[arg-type]
        assert tree_of(root) == {"a.md": b"mine\n"}


class TestNewFolder:
    """A top folder that is not there yet gets its name when all is in it."""

    @pytest.mark.parametrize("empty", [False, True])
    def test_laid_at_once(self, tree: Tree, root: Path, empty: bool, monkeypatch: pytest.MonkeyPatch) -> None:
        """One rename, over an empty folder too; what follows finds the files where they are."""
        renamed: list[str] = []
        rename = os.rename

        def noted(source: str, target: str, **options: int) -> None:
            renamed.append(target)
            rename(source, target, **options)

        monkeypatch.setattr(os, "rename", noted)
        if empty:
            (root / "notes").mkdir()
            assert tree.look("notes/x") is None
        else:
            assert tree.look("notes/deep/x") is None
        done = Tree.write_folder(tree, "notes", [(p[6:], data, MTIME_NS) for p, data in NEW_FOLDER.items()])
        assert renamed == ["notes"]
        assert [tree.look(path) for path in NEW_FOLDER] == done
        assert tree_of(root) == NEW_FOLDER
        assert leftovers(root) == []

    def test_apply_lays_new_folders_whole(self, tree: Tree, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """No link a file, and the next plan finds all as laid."""
        monkeypatch.setattr(os, "link", None)
        plan, done = lay(tree, NEW_FOLDER)
        assert done.written == 3
        plan, _ = lay(tree, NEW_FOLDER)
        assert set(actions(plan).values()) == {"present"}

    @pytest.mark.parametrize("what", ["folder", "file", "symlink"])
    def test_somebody_was_faster(
        self, tree: Tree, root: Path, outside: Path, what: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """What appears under that name while the files are written is kept, and nothing is written beyond it."""
        rename = os.rename

        def late(source: str, target: str, **options: int) -> None:
            if not (root / "notes").is_symlink() and not (root / "notes").exists():
                if what == "folder":
                    (root / "notes").mkdir()
                    (root / "notes/a.md").write_bytes(b"mine\n")
                elif what == "file":
                    (root / "notes").write_bytes(b"mine\n")
                else:
                    (root / "notes").symlink_to(outside)
            rename(source, target, **options)

        monkeypatch.setattr(os, "rename", late)
        _, done = lay(tree, NEW_FOLDER)
        away = {step.wanted.path for step in (*done.kept, *done.refused)}
        if what == "folder":
            assert away == {"notes/a.md"}
            assert tree_of(root) == {**NEW_FOLDER, "notes/a.md": b"mine\n"}
        else:
            assert away == set(NEW_FOLDER)
            assert tree_of(root) == ({"notes": b"mine\n"} if what == "file" else {})
        assert tree_of(outside) == {"victim": b"mine"}
        assert leftovers(root) == []

    def test_full_disk(self, tree: Tree, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """A write that fails leaves nothing behind, and the error says which."""
        write = os.write

        def full(fd: int, data: bytes) -> int:
            if bytes(data) == b"c\n":
                raise OSError(errno.ENOSPC, "No space left on device")
            return write(fd, data)

        monkeypatch.setattr(os, "write", full)
        with pytest.raises(DiskError, match="no space left"):
            lay(tree, NEW_FOLDER)
        assert leftovers(root) == []
        assert set(tree_of(root)) == {"notes/a.md"}

    def test_what_a_killed_run_left(self, root: Path, tmp_path: Path, outside: Path) -> None:
        """An unfinished folder goes when the tree is opened next; a symlink in it is not followed."""
        with Tree.open(str(root), str(tmp_path / "state"), corpus=CORPUS):
            pass
        left = root / ".memfs-0123456789ab.tmp"
        (left / "notes/deep").mkdir(parents=True)
        (left / "notes/deep/a.md").write_bytes(b"half")
        (left / "notes/out").symlink_to(outside)
        with Tree.open(str(root), str(tmp_path / "state")):
            assert leftovers(root) == []
        assert tree_of(outside) == {"victim": b"mine"}


class TestHostile:
    @pytest.mark.parametrize(
        "bad",
        [
            "../out",
            "/etc/x",
            "a/../../out",
            "a\\b",
            "a\x00b",
            "CON",
            "x" * 256,
            ".memfs.toml",
            ".memfs-x.tmp",
            "a//b",
            "a/./b",
            "cafe\u0301",
            "a\ud800",
        ],
    )
    def test_names(self, tree: Tree, root: Path, bad: str, tmp_path: Path) -> None:
        """A hostile name in a wanted list is refused with its reason; its neighbour is laid."""
        before = {p for p in tmp_path.rglob("*") if "state" not in p.parts}
        plan, done = lay(tree, {bad: b"x", "good.md": b"g"})
        assert actions(plan)[bad] == "refused"
        assert [step.reason != "" for step in done.refused] == [True]
        assert tree_of(root) == {"good.md": b"g"}
        assert {p for p in tmp_path.rglob("*") if "state" not in p.parts} - before == {root / "good.md"}

    @settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
    @given(st.text(alphabet=st.sampled_from(list("ab./\\~ :\x00\u0301éAN")), max_size=12))
    def test_any_name_stays_inside(self, tree: Tree, root: Path, name: str) -> None:
        """Whatever the name, nothing appears outside the tree."""
        beside = set(os.listdir(root.parent))
        lay(tree, {name: b"x"})
        assert set(os.listdir(root.parent)) == beside

    def test_twins(self, tree: Tree, root: Path) -> None:
        """Of two names equal but for case, one is laid and one is refused: the same on every disk."""
        plan, done = lay(tree, {"notes/A.md": b"A", "notes/a.md": b"a"})
        assert actions(plan) == {"notes/A.md": "write", "notes/a.md": "refused"}
        assert "differs only in case" in done.refused[0].reason
        assert tree_of(root) == {"notes/A.md": b"A"}

    def test_file_that_is_a_folder(self, tree: Tree, root: Path) -> None:
        """In one plan the folder wins; over what lies on disk, what lies there wins. Both are reported."""
        plan, _ = lay(tree, {"a": b"file", "a/b.md": b"b"})
        assert actions(plan) == {"a": "refused", "a/b.md": "write"}
        plan, done = lay(tree, {"a": b"file"})
        assert actions(plan) == {"a": "refused"}
        assert done.refused[0].reason == "a folder lies there"
        lay(tree, {"f": b"file"})
        plan, _ = lay(tree, {"f/x.md": b"x"})
        assert actions(plan) == {"f/x.md": "refused"}
        assert tree_of(root) == {"a/b.md": b"b", "f": b"file"}

    def test_planted_symlink_to_file(self, tree: Tree, root: Path, outside: Path) -> None:
        """A symlink where a file should be is not followed and not replaced."""
        (root / "a.md").symlink_to(outside / "victim")
        (root / "b.md").symlink_to(outside / "not-there")
        plan, done = lay(tree, {"a.md": b"x", "b.md": b"x"})
        assert set(actions(plan).values()) == {"refused"}
        assert done.refused[0].reason == "a symlink lies there"
        assert tree_of(outside) == {"victim": b"mine"}

    def test_planted_symlink_to_folder(self, tree: Tree, root: Path, outside: Path) -> None:
        """A symlink where a folder should be leads nothing outside, at any depth."""
        (root / "notes").symlink_to(outside)
        (root / "deep").mkdir()
        (root / "deep/er").symlink_to(outside, target_is_directory=True)
        plan, _ = lay(
            tree, {"notes/victim": b"x", "notes/new": b"x", "deep/er/victim": b"x", "deep/er/x/y": b"x", "ok": b"ok"}
        )
        assert [p for p, a in actions(plan).items() if a == "write"] == ["ok"]
        assert tree_of(outside) == {"victim": b"mine"}

    def test_symlink_planted_after_the_plan(self, tree: Tree, root: Path, outside: Path) -> None:
        """Planted between plan and apply, file or folder, it still leads nowhere."""
        plan = diff([wanted("notes/victim", b"x"), wanted("v", b"x")], tree)
        (root / "notes").symlink_to(outside)
        (root / "v").symlink_to(outside / "victim")
        done = apply(plan, tree, {"notes/victim": b"x", "v": b"x"})
        assert done.written == 0
        assert {step.wanted.path for step in (*done.kept, *done.refused)} == {"notes/victim", "v"}
        assert tree_of(outside) == {"victim": b"mine"}

    def test_laid_folder_swapped_for_a_symlink(self, root: Path, tmp_path: Path, outside: Path) -> None:
        """A folder that memfs made and somebody swapped for a symlink is refused at the next run."""
        with Tree.open(str(root), str(tmp_path / "state"), corpus=CORPUS) as tree:
            lay(tree, {"notes/victim": b"laid"})
        shutil.rmtree(root / "notes")
        (root / "notes").symlink_to(outside)
        with Tree.open(str(root), str(tmp_path / "state")) as tree:
            plan, _ = lay(tree, {"notes/victim": b"two"}, 2)
        assert actions(plan) == {"notes/victim": "refused"}
        assert tree_of(outside) == {"victim": b"mine"}

    def test_fifo(self, tree: Tree, root: Path) -> None:
        """A special file is refused and never opened."""
        os.mkfifo(root / "a.md")
        plan, _ = lay(tree, {"a.md": b"x"})
        assert actions(plan) == {"a.md": "refused"}

    def test_root_is_a_symlink(self, tmp_path: Path, outside: Path) -> None:
        """A tree's root that is a symlink or a file is refused."""
        (tmp_path / "link").symlink_to(outside)
        for root in (tmp_path / "link", outside / "victim"):
            with (
                pytest.raises(ConfigError, match="symlink or a file"),
                Tree.open(str(root), str(tmp_path / "s"), corpus=CORPUS),
            ):
                raise AssertionError("opened")
        assert tree_of(outside) == {"victim": b"mine"}

    def test_mark_is_a_symlink(self, root: Path, tmp_path: Path, outside: Path) -> None:
        """A mark that is a symlink is not read and not written through."""
        root.mkdir()
        (root / MARK).symlink_to(outside / "victim")
        assert read_mark(str(root)) is None
        with pytest.raises((OSError, DiskError, ConfigError)), Tree.open(str(root), str(tmp_path / "s"), corpus=CORPUS):
            raise AssertionError("opened")
        assert tree_of(outside) == {"victim": b"mine"}


class TestIdentity:
    def test_mark(self, tree: Tree, root: Path) -> None:
        """The mark names the corpus and the state, and nothing else is added to the tree."""
        mark = read_mark(str(root))
        assert mark is not None
        assert mark[0] == CORPUS
        assert os.listdir(root) == [MARK]

    def test_other_corpus(self, tree: Tree, root: Path, tmp_path: Path) -> None:
        """A tree of another corpus is refused."""
        with (
            pytest.raises(ConfigError, match="belongs to another corpus"),
            Tree.open(str(root), str(tmp_path / "state"), corpus="s3://other/x"),
        ):
            raise AssertionError("opened")

    def test_no_tree(self, tmp_path: Path) -> None:
        """A folder without a mark is no tree, and is left alone."""
        (tmp_path / "d").mkdir()
        with (
            pytest.raises(NotFoundError, match="not a memfs tree"),
            Tree.open(str(tmp_path / "d"), str(tmp_path / "state")),
        ):
            raise AssertionError("opened")
        assert os.listdir(tmp_path / "d") == []

    @pytest.mark.parametrize("text", ["", "corpus = ", 'corpus = "x"\nstate = "../../../etc"\n', 'corpus = "x"\n'])
    def test_damaged_mark(self, tmp_path: Path, text: str) -> None:
        """A damaged mark, or one whose state would lead elsewhere, is an error with the way out."""
        (tmp_path / "d").mkdir()
        (tmp_path / "d" / MARK).write_text(text)
        with pytest.raises(ConfigError, match="damaged") as caught:
            read_mark(str(tmp_path / "d"))
        assert "delete" in str(caught.value.hint)

    @pytest.mark.parametrize("uri", ['/a "b"', "/back\\slash", "/new\tline", "/日本", '/quote\\"both'])
    def test_odd_corpus_names(self, tmp_path: Path, uri: str) -> None:
        """A corpus URI with quotes and backslashes comes back from the mark as it was."""
        with Tree.open(str(tmp_path / "d"), str(tmp_path / "state"), corpus=uri):
            pass
        mark = read_mark(str(tmp_path / "d"))
        assert mark is not None
        assert mark[0] == uri

    def test_copied_tree(self, root: Path, tmp_path: Path) -> None:
        """A tree copied with `cp -r` gets a state of its own; edits in one are not the other's."""
        state = str(tmp_path / "state")
        with Tree.open(str(root), state, corpus=CORPUS) as tree:
            lay(tree, {"a.md": b"one\n"})
        copy = tmp_path / "copy"
        shutil.copytree(root, copy)
        with Tree.open(str(copy), state) as tree:
            lay(tree, {"a.md": b"two\n", "b.md": b"b\n"}, 2)
        one, two = read_mark(str(root)), read_mark(str(copy))
        assert one is not None
        assert two is not None
        assert one[1] != two[1]
        assert tree_of(root) == {"a.md": b"one\n"}
        with Tree.open(str(root), state) as tree:
            assert set(tree.manifest.all()) == {"a.md"}

    def test_copied_tree_keeps_edits(self, root: Path, tmp_path: Path) -> None:
        """In a copy, a file that was edited before or after copying is never overwritten."""
        state = str(tmp_path / "state")
        with Tree.open(str(root), state, corpus=CORPUS) as tree:
            lay(tree, {"a.md": b"one\n", "b.md": b"one\n"})
        (root / "a.md").write_bytes(b"mine\n")
        shutil.copytree(root, tmp_path / "copy")
        (tmp_path / "copy/b.md").write_bytes(b"mine too\n")
        with Tree.open(str(tmp_path / "copy"), state) as tree:
            lay(tree, {"a.md": b"two\n", "b.md": b"two\n"}, 2)
        assert tree_of(tmp_path / "copy") == {"a.md": b"mine\n", "b.md": b"mine too\n"}

    @pytest.mark.parametrize("linked", [False, True])
    def test_moved_tree(self, root: Path, tmp_path: Path, linked: bool) -> None:
        """A tree that was moved keeps its state, also when a symlink was left where it was."""
        state = str(tmp_path / "state")
        with Tree.open(str(root), state, corpus=CORPUS) as tree:
            lay(tree, {"a.md": b"one\n"})
        root.rename(tmp_path / "moved")
        if linked:
            root.symlink_to(tmp_path / "moved")
        with Tree.open(str(tmp_path / "moved"), state) as tree:
            plan, _ = lay(tree, {"a.md": b"two\n"}, 2)
        assert actions(plan) == {"a.md": "replace"}

    def test_lost_state(self, root: Path, tmp_path: Path) -> None:
        """Without its manifest a tree's files are compared anew: the same are adopted, others are the user's."""
        with Tree.open(str(root), str(tmp_path / "state"), corpus=CORPUS) as tree:
            lay(tree, {"a.md": b"one\n", "b.md": b"b\n"})
        shutil.rmtree(tmp_path / "state")
        with Tree.open(str(root), str(tmp_path / "state")) as tree:
            plan, _ = lay(tree, {"a.md": b"two\n", "b.md": b"b\n"}, 2)
        assert actions(plan) == {"a.md": "conflict", "b.md": "adopt"}
        assert tree_of(root)["a.md"] == b"one\n"


def test_pending_row_is_settled(root: Path, tmp_path: Path) -> None:
    """Killed between announcement and write, old bytes or new: the next run takes neither for an edit."""

    state = str(tmp_path / "state")
    for on_disk, action in ((b"one\n", "replace"), (b"two\n", "adopt")):
        with Tree.open(str(root), state, corpus=CORPUS) as tree:
            shutil.rmtree(root / "n", ignore_errors=True)
            lay(tree, {"n/a.md": b"one\n"})
            row = tree.manifest.all()["n/a.md"]
            with tree.manifest.writing():
                tree.manifest.record([row._replace(pending=sha256(b"two\n"))])
            (root / "n/a.md").write_bytes(on_disk)
            (root / "n/.memfs-0123456789ab.tmp").write_bytes(b"half")
        with Tree.open(str(root), state) as tree:
            plan, _ = lay(tree, {"n/a.md": b"two\n"}, 2)
            assert actions(plan) == {"n/a.md": action}
            assert tree_of(root) == {"n/a.md": b"two\n"}
            assert tree.manifest.all()["n/a.md"].pending is None


def test_two_first_openings(root: Path, tmp_path: Path) -> None:
    """Two commands that make the same folder a tree at once end with one state, and neither fails."""
    from concurrent.futures import ThreadPoolExecutor
    from threading import Barrier

    barrier = Barrier(4)

    def make(n: int) -> str:
        barrier.wait()
        with Tree.open(str(root), str(tmp_path / "state"), corpus=CORPUS) as tree:
            lay(tree, {"a.md": b"a", f"{n}.md": b"n"})
            return str(tree.manifest.folder)

    for _ in range(5):
        with ThreadPoolExecutor(4) as pool:
            assert len(set(pool.map(make, range(4)))) == 1
        shutil.rmtree(root)
