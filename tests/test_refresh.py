"""memfs refresh: the tree follows the corpus; edits are kept, and absence is never taken for deletion."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from conftest import Ran, Store, document, leftovers, tree_of

from memfs.boot import boot
from memfs.corpus.table import Corpus
from memfs.errors import CorruptError, UnreachableError
from memfs.push import push
from memfs.refresh import Refreshed, refresh
from memfs.status import Status, status
from memfs.testing import Proxy
from memfs.workset.cache import HostCache
from memfs.workset.learn import learn
from memfs.workset.tree import Tree

Run = Callable[..., Ran]
PLAN, ANA, ONE = "notes/deploy.md", "notes/people/ana.md", "sessions/2026/05/one/summary.md"
MINE, THEIRS = b"mine\n", b"theirs\n"


def lay(corpus: Corpus, tmp_path: Path) -> Path:
    boot(corpus.uri, str(tmp_path / "memory"), cache_dir=str(tmp_path / "cache"), state_dir=str(tmp_path / "state"))
    return tmp_path / "memory"


def run(corpus: Corpus, tmp_path: Path, *, dry_run: bool = False) -> Refreshed:
    with (
        Tree.open(str(tmp_path / "memory"), str(tmp_path / "state")) as tree,
        closing(HostCache(str(tmp_path / "cache"))) as cache,
    ):
        return refresh(Corpus.open(corpus.uri), tree, cache=cache, dry_run=dry_run)


def look(tmp_path: Path) -> Status:
    with Tree.open(str(tmp_path / "memory"), str(tmp_path / "state")) as tree:
        return status(tree, "")


def change(corpus: Corpus, put: dict[str, bytes] | None = None, delete: tuple[str, ...] = ()) -> None:
    with corpus.writing():
        corpus.commit([document(path, data) for path, data in (put or {}).items()], delete)


@pytest.fixture
def root(filled: Corpus, tmp_path: Path) -> Path:
    return lay(filled, tmp_path)


def test_every_case(store: Store, tmp_path: Path) -> None:
    """On every store: changed and gone there; clean, edited and deleted here, in all combinations."""
    corpus = Corpus.create(store.uri())
    names = [f"{there}-{here}" for there in ("same", "changed", "gone") for here in ("clean", "edited", "deleted")]
    change(corpus, {f"notes/{name}/a.md": b"base\n" for name in names})
    root = lay(corpus, tmp_path)
    for name in names:
        file = root / f"notes/{name}/a.md"
        if name.endswith("edited"):
            file.write_bytes(MINE)
        if name.endswith("deleted"):
            file.unlink()
    change(
        corpus,
        {f"notes/{name}/a.md": THEIRS for name in names if name.startswith("changed")},
        tuple(f"notes/{name}/a.md" for name in names if name.startswith("gone")),
    )
    before = tree_of(root)
    said = run(corpus, tmp_path, dry_run=True)
    assert tree_of(root) == before
    done = run(corpus, tmp_path)
    assert (said.replaced, said.removed, said.deleted) == (done.replaced, done.removed, done.deleted)
    assert [c.path for c in said.conflicts] == [c.path for c in done.conflicts]
    assert done.replaced == ("notes/changed-clean/a.md",)
    assert done.removed == ("notes/gone-clean/a.md",)
    assert done.deleted == ("notes/changed-deleted/a.md", "notes/same-deleted/a.md")
    (changed, gone) = done.conflicts
    assert (changed.path, gone.path, gone.copy) == ("notes/changed-edited/a.md", "notes/gone-edited/a.md", "")
    assert tree_of(root) == {
        "notes/same-clean/a.md": b"base\n",
        "notes/same-edited/a.md": MINE,
        "notes/changed-clean/a.md": THEIRS,
        "notes/changed-edited/a.md": MINE,
        changed.copy: THEIRS,
        "notes/gone-edited/a.md": MINE,
    }
    assert not (root / "notes/gone-clean").exists()
    assert leftovers(root) == []
    again = run(corpus, tmp_path)
    assert (again.replaced, again.removed) == ((), ())
    assert [c.path for c in again.conflicts] == [changed.path, gone.path]
    assert [c.copy for c in again.conflicts] == [changed.copy, ""]
    found = look(tmp_path)
    assert [c.path for c in found.conflicting] == [changed.path, gone.path]
    assert (found.modified, found.stale, found.new) == (("notes/same-edited/a.md",), (), ())


class TestNotDeleted:
    """What looks like a deletion, and is none."""

    def test_lists_nothing(self, filled: Corpus, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """A corpus that lists no file is an error; nothing is removed, and status does not call it stale."""
        before = tree_of(root)
        monkeypatch.setattr(Corpus, "files", lambda *_: iter(()))
        for dry_run in (False, True):
            with pytest.raises(CorruptError) as caught:
                run(filled, tmp_path, dry_run=dry_run)
            assert "nothing was changed" in str(caught.value.hint)
        assert tree_of(root) == before
        assert (look(tmp_path).stale, look(tmp_path).deleted) == ((), ())

    def test_lists_a_part(self, filled: Corpus, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """A listing without a file that a look-up finds is an error; nothing is removed."""
        before, whole = tree_of(root), list(filled.files())
        monkeypatch.setattr(Corpus, "files", lambda *_: iter([i for i in whole if i.path != PLAN]))
        with pytest.raises(CorruptError, match="not listed"):
            run(filled, tmp_path)
        assert tree_of(root) == before

    def test_made_anew(self, filled: Corpus, root: Path, tmp_path: Path) -> None:
        """Another corpus at the same place, younger than the tree: an error, nothing removed."""
        before = tree_of(root)
        shutil.rmtree(filled.uri)
        other = Corpus.create(filled.uri)
        with pytest.raises(CorruptError, match="restored or made anew"):
            run(other, tmp_path)
        assert tree_of(root) == before

    @pytest.mark.parametrize("fault", ["refuse", "cut"])
    def test_unreachable(self, fault: str, proxy: Proxy, s3: Store, tmp_path: Path, memfs: Run) -> None:
        """A store that does not answer, or stops in the middle: an error, nothing removed or replaced."""
        corpus = Corpus.create(s3.uri())
        change(corpus, {f"notes/{n:02}.md": b"x\n" * 2_000 for n in range(20)})
        root = lay(corpus, tmp_path)
        change(
            corpus, {f"notes/{n:02}.md": THEIRS * 2_000 for n in range(9)}, tuple(f"notes/1{n}.md" for n in range(9))
        )
        before = tree_of(root)
        if fault == "refuse":
            proxy.refuse = True
        else:
            proxy.cut_after_bytes = 400
        ran = memfs("refresh", "--tree", str(root), "--corpus", corpus.uri)
        assert (ran.code, ran.out) == (UnreachableError.exit_code, "")
        assert tree_of(root) == before
        assert look(tmp_path).deleted == ()

    def test_contents_that_cannot_be_read(
        self, filled: Corpus, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The listing was read, the contents fail: nothing is removed before everything is here."""
        change(filled, {PLAN: THEIRS}, (ANA,))

        def fail(*_: object) -> None:
            raise UnreachableError("the store went away", hint="try again")

        before = tree_of(root)
        with monkeypatch.context() as patch:
            patch.setattr(Corpus, "read", fail)
            with pytest.raises(UnreachableError):
                run(filled, tmp_path)
        assert tree_of(root) == before
        done = run(filled, tmp_path)
        assert (done.replaced, done.removed) == ((PLAN,), (ANA,))

    def test_a_folder_that_cannot_be_listed(
        self, filled: Corpus, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A folder of the tree that cannot be read: its files are unreadable, not deleted, and stay known."""
        real = os.listdir

        def failing(fd: int) -> list[str]:
            if os.readlink(f"/proc/self/fd/{fd}").endswith("/notes"):
                raise PermissionError(13, "Permission denied")
            return real(fd)

        change(filled, delete=(PLAN,))
        with monkeypatch.context() as patch:
            patch.setattr(os, "listdir", failing)
            found = look(tmp_path)
            assert found.deleted == ()
            assert {x.path for x in found.unreadable} == {"notes", PLAN, ANA}
            done = run(filled, tmp_path)
            assert (done.removed, done.deleted) == ((), ())
        assert (root / PLAN).exists()
        assert run(filled, tmp_path).removed == (PLAN,)

    def test_something_else_in_its_place(self, filled: Corpus, root: Path, tmp_path: Path) -> None:
        """A symlink or folder where a file was: neither followed, removed nor replaced; it is named."""
        (tmp_path / "victim").write_bytes(b"victim\n")
        (root / PLAN).unlink()
        (root / PLAN).symlink_to(tmp_path / "victim")
        (root / ANA).unlink()
        (root / ANA).mkdir()
        change(filled, {PLAN: THEIRS}, (ANA,))
        done = run(filled, tmp_path)
        assert {item.name for item in done.refused} == {PLAN, ANA}
        assert (done.removed, done.replaced) == ((), ())
        assert (tmp_path / "victim").read_bytes() == b"victim\n"
        assert ((root / PLAN).is_symlink(), (root / ANA).is_dir()) == (True, True)


class TestEdits:
    def test_written_while_refreshing(
        self, filled: Corpus, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """An edit between the look and the deed is kept: a copy beside it, or the file not removed."""
        change(filled, {PLAN: THEIRS}, (ANA,))
        real = Corpus.read

        def slow(self: Corpus, wanted: list[str]) -> object:
            (root / PLAN).write_bytes(MINE)
            (root / ANA).write_bytes(MINE)
            return real(self, wanted)

        monkeypatch.setattr(Corpus, "read", slow)
        done = run(filled, tmp_path)
        assert [c.path for c in done.conflicts] == [PLAN, ANA]
        assert (done.replaced, done.removed) == ((), ())
        assert ((root / PLAN).read_bytes(), (root / ANA).read_bytes()) == (MINE, MINE)
        assert (root / done.conflicts[0].copy).read_bytes() == THEIRS

    def test_then_push(self, filled: Corpus, root: Path, tmp_path: Path) -> None:
        """A conflict that refresh found is settled as one that push found: merge, delete the copy, push."""
        (root / PLAN).write_bytes(MINE)
        change(filled, {PLAN: THEIRS})
        (conflict,) = run(filled, tmp_path).conflicts
        (root / PLAN).write_bytes(b"merged\n")
        (root / conflict.copy).unlink()
        with Tree.open(str(root), str(tmp_path / "state")) as tree:
            assert push(Corpus.open(filled.uri), tree).sent == (PLAN,)
        assert Corpus.open(filled.uri).read([PLAN])[PLAN].data == b"merged\n"

    def test_same_edit_on_both_sides(self, filled: Corpus, root: Path, tmp_path: Path) -> None:
        """The same bytes here and there are no conflict."""
        (root / PLAN).write_bytes(THEIRS)
        change(filled, {PLAN: THEIRS})
        done = run(filled, tmp_path)
        assert (done.conflicts, done.replaced) == ((), ())
        assert look(tmp_path).modified == ()

    def test_own_files_are_left(self, filled: Corpus, root: Path, tmp_path: Path) -> None:
        """Files of the user's own, and folders with them, stay whatever vanishes around them."""
        (root / "notes/people/own.md").write_bytes(MINE)
        change(filled, delete=(ANA, PLAN))
        assert run(filled, tmp_path).removed == (PLAN, ANA)
        assert (root / "notes/people/own.md").read_bytes() == MINE

    def test_top_folders_stay(self, filled: Corpus, root: Path, tmp_path: Path) -> None:
        """An emptied folder goes, but notes/ itself is where the next note is written."""
        change(filled, delete=(ANA, PLAN))
        run(filled, tmp_path)
        assert os.listdir(root / "notes") == []

    def test_deleted_and_written_anew(self, filled: Corpus, root: Path, tmp_path: Path) -> None:
        """A file deleted here, changed there, and then made anew here, does not replace theirs."""
        (root / PLAN).unlink()
        change(filled, {PLAN: THEIRS})
        assert run(filled, tmp_path).deleted == (PLAN,)
        (root / PLAN).write_bytes(MINE)
        with Tree.open(str(root), str(tmp_path / "state")) as tree:
            assert [c.path for c in push(Corpus.open(filled.uri), tree).conflicts] == [PLAN]


class TestCommand:
    @pytest.fixture
    def ready(self, filled: Corpus, monkeypatch: pytest.MonkeyPatch) -> Corpus:
        monkeypatch.setenv("MEMFS_CORPUS", filled.uri)
        return filled

    def test_the_map_too(self, ready: Corpus, memfs: Run) -> None:
        """New files of the map arrive; a file deleted here does not come back, by refresh or by boot."""
        memfs("boot")
        Path("memory", ANA).unlink()
        change(ready, {"notes/new.md": b"new\n", PLAN: THEIRS})
        ran = memfs("refresh")
        assert ran.code == 0
        assert f"replaced: {PLAN}" in ran.out
        assert "new in the map: " in ran.out
        assert "deleted here, left so: 1" in ran.out
        assert tree_of("memory")["notes/new.md"] == b"new\n"
        assert "deleted here, left so: 1" in memfs("boot").out
        assert not Path("memory", ANA).exists()
        assert memfs("get", ANA).code == 0
        assert Path("memory", ANA).exists()
        assert "deleted here" not in memfs("boot").out

    def test_keeps_to_the_budget(self, ready: Corpus, memfs: Run) -> None:
        """A tree that was booted small does not grow by a refresh; one that was never booted gets no map."""
        memfs("boot", "--budget", "0")
        assert memfs("refresh", "--json").json["map_written"] == 0
        assert tree_of("memory") == {}
        memfs("get", PLAN, "--tree", "other")
        assert memfs("refresh", "--tree", "other").code == 0
        assert list(tree_of("other")) == [PLAN]

    def test_exit_code(self, ready: Corpus, memfs: Run) -> None:
        """7 with a conflict; the dry run the same, and nothing is changed by it."""
        memfs("boot")
        Path("memory", PLAN).write_bytes(MINE)
        change(ready, {PLAN: THEIRS})
        before = tree_of("memory")
        ran = memfs("refresh", "--dry-run")
        assert (ran.code, f"conflict: {PLAN}" in ran.out, tree_of("memory")) == (7, True, before)
        assert memfs("refresh", "--json").json["conflicts"][0]["path"] == PLAN
        assert memfs("refresh").code == 7

    def test_not_a_tree(self, ready: Corpus, memfs: Run) -> None:
        """Where there is no tree, none is made."""
        for command in ("refresh", "push", "diff", "status --remote"):
            ran = memfs(*command.split())
            assert (ran.code, "memfs boot" in ran.err) == (4, True)
        assert not Path("memory").exists()


def test_learning_changes_no_file(filled: Corpus, root: Path, tmp_path: Path) -> None:
    """`learn` notes what the corpus has now; only status tells the difference, and no file changes."""
    change(filled, {PLAN: THEIRS}, (ANA,))
    before = tree_of(root)
    (root / ONE).write_bytes(MINE)
    change(filled, {ONE: THEIRS})
    with Tree.open(str(root), str(tmp_path / "state")) as tree:
        learn(filled, tree)
        found = status(tree, "")
    assert found.stale == (PLAN, ANA)
    assert [c.path for c in found.conflicting] == [ONE]
    assert tree_of(root) == before | {ONE: MINE}
