"""Room: what was used longest ago goes, never an edit, never a pin; what does not fit is named and not half there."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from contextlib import AbstractContextManager, closing
from pathlib import Path

import pytest
from conftest import document, leftovers, long_text, sha256, tree_of

from memfs.boot import Receipt, boot
from memfs.corpus.table import Corpus
from memfs.errors import DiskError
from memfs.fetch import fetch
from memfs.get import get
from memfs.status import status
from memfs.workset import space as spaces
from memfs.workset.apply import Applied, apply
from memfs.workset.cache import HostCache
from memfs.workset.manifest import GOING, Pin, Seen
from memfs.workset.plan import Action, Plan, Wanted, diff
from memfs.workset.room import Going, holdings, least_recent
from memfs.workset.space import Limits, Space, space
from memfs.workset.tree import Tree

MTIME_NS = 1_700_000_000_123_456_000
CORPUS = "s3://bucket/team"


def opened(
    tmp_path: Path, max_bytes: int | None = None, min_free: int | None = None, name: str = "memory"
) -> AbstractContextManager[Tree]:
    limits = Limits(max_bytes, min_free)
    return Tree.open(str(tmp_path / name), str(tmp_path / "state"), corpus=CORPUS, limits=limits)


def plan_of(tree: Tree, files: Mapping[str, bytes], *, pinned: Pin = Pin.NO, version: int = 1) -> Plan:
    wanted = [
        Wanted(path, sha256(data), len(data), MTIME_NS, version, "get", pinned, rank=rank)
        for rank, (path, data) in enumerate(files.items())
    ]
    return diff(wanted, tree)


def lay(tree: Tree, files: Mapping[str, bytes], *, pinned: Pin = Pin.NO, version: int = 1) -> tuple[Plan, Applied]:
    """Plan and apply with the bytes that the plan asks for, as the verbs do."""
    plan = plan_of(tree, files, pinned=pinned, version=version)
    return plan, apply(plan, tree, {w.path: files[w.path] for w in plan.needed()})


def used_at(tree: Tree, ages_s: Mapping[str, int]) -> None:
    """Make the manifest say that the files were last used so long ago."""
    now = int(time.time())
    rows = tree.manifest.all()
    with tree.manifest.writing():
        tree.manifest.record(rows[path]._replace(used=now - age) for path, age in ages_s.items())


def actions(plan: Plan) -> dict[str, str]:
    return {step.wanted.path: step.action.value for step in plan.steps}


def going(plan: Plan) -> list[str]:
    return [each.path for each in plan.evict]


FILES = {f"notes/{name}.md": name.encode() * 100 for name in "abcd"}
"""Four files of 100 bytes."""


class TestLimit:
    def test_least_recently_used_goes(self, tmp_path: Path) -> None:
        """What is new goes in, and so much as it needs of what was used longest ago goes out."""
        with opened(tmp_path, 400) as tree:
            lay(tree, FILES)
            used_at(tree, {"notes/a.md": 10, "notes/b.md": 400, "notes/c.md": 300, "notes/d.md": 20})
            plan, done = lay(tree, {"notes/new.md": b"n" * 150})
            assert going(plan) == ["notes/b.md", "notes/c.md"]
            assert [each.path for each in done.evicted] == going(plan)
            assert done.written == 1
        assert set(tree_of(tmp_path / "memory")) == {"notes/a.md", "notes/d.md", "notes/new.md"}

    def test_evicted_is_not_deleted(self, tmp_path: Path) -> None:
        """An evicted file's row goes with it; a file that the user deleted keeps its row and is said to be deleted."""
        with opened(tmp_path, 400) as tree:
            lay(tree, FILES)
            (tmp_path / "memory/notes/a.md").unlink()
            lay(tree, {"notes/new.md": b"n" * 200})
            said = status(tree, CORPUS)
            assert said.deleted == ("notes/a.md",)
            assert (said.modified, said.new) == ((), ())
            assert "notes/b.md" not in tree.manifest.all()

    def test_a_use_by_a_command_counts(self, tmp_path: Path) -> None:
        """A file that get or fetch finds present was used now: another goes."""
        with opened(tmp_path, 400) as tree:
            lay(tree, FILES)
            used_at(tree, dict.fromkeys(FILES, 1_000))
            lay(tree, {"notes/a.md": FILES["notes/a.md"]})
            plan, _ = lay(tree, {"notes/new.md": b"n" * 100})
            assert going(plan) == ["notes/b.md"]

    def test_a_read_counts(self, tmp_path: Path) -> None:
        """The kernel's access time makes a file recently used, without a write of ours."""
        with opened(tmp_path, 400) as tree:
            lay(tree, FILES)
            used_at(tree, dict.fromkeys(FILES, 1_000_000))
            assert tree.accessed("notes/a.md") == 0
            file = tmp_path / "memory/notes/a.md"
            os.utime(file, ns=(time.time_ns(), MTIME_NS))
            assert tree.accessed("notes/a.md") > time.time() - 60
            os.utime(tmp_path / "memory/notes/b.md", ns=(time.time_ns() + 10**18, MTIME_NS))
            assert tree.accessed("notes/b.md") <= time.time()
            before = tree.manifest.all()
            assert going(plan_of(tree, {"notes/new.md": b"n" * 100})) == ["notes/c.md"]
            assert tree.manifest.all() == before

    def test_our_own_hashing_is_no_use(self, tmp_path: Path) -> None:
        """A status that hashes a file does not make it look used."""
        with opened(tmp_path) as tree:
            lay(tree, FILES)
            tree.sha256("notes/a.md")
            assert tree.accessed("notes/a.md") == 0

    def test_real_read(self, tmp_path: Path) -> None:
        """A plain read by anybody moves the access time, on a mount that keeps any."""
        probe = tmp_path / "probe"
        probe.write_bytes(b"x")
        os.utime(probe, ns=(MTIME_NS, MTIME_NS))
        probe.read_bytes()
        if probe.stat().st_atime_ns == MTIME_NS:
            pytest.skip("this mount keeps no access times")
        with opened(tmp_path) as tree:
            lay(tree, FILES)
            (tmp_path / "memory/notes/a.md").read_bytes()
            assert tree.accessed("notes/a.md") > time.time() - 60

    def test_never_pinned_never_dirty(self, tmp_path: Path) -> None:
        """Pins, edits and the user's own files count, and stay; what then has no room is named and not laid."""
        with opened(tmp_path, 450) as tree:
            lay(tree, {"notes/a.md": FILES["notes/a.md"]}, pinned=Pin.USER)
            lay(tree, {p: FILES[p] for p in ("notes/b.md", "notes/c.md")})
            (tmp_path / "memory/notes/b.md").write_bytes(b"B" * 120)
            (tmp_path / "memory/notes/mine.md").write_bytes(b"m" * 80)
            plan, done = lay(tree, {"notes/x.md": b"x" * 150, "notes/y.md": b"y" * 100})
            assert actions(plan) == {"notes/x.md": "write", "notes/y.md": "no room"}
            assert going(plan) == ["notes/c.md"]
            assert [step.wanted.path for step in done.refused] == ["notes/y.md"]
            assert "100 bytes go over the limit of 450" in done.refused[0].reason
        found = tree_of(tmp_path / "memory")
        assert set(found) == {"notes/a.md", "notes/b.md", "notes/mine.md", "notes/x.md"}
        assert sum(map(len, found.values())) <= 450
        assert found["notes/b.md"] == b"B" * 120
        assert leftovers(tmp_path) == []

    def test_rank_decides(self, tmp_path: Path) -> None:
        """Where not all fit, what is wanted most does; a small one behind a large one that does not fit is laid."""
        with opened(tmp_path, 250) as tree:
            files = {"z.md": b"z" * 200, "a.md": b"a" * 100, "b.md": b"b" * 50}
            plan, _ = lay(tree, files)
            assert actions(plan) == {"z.md": "write", "a.md": "no room", "b.md": "write"}

    def test_larger_than_the_limit(self, tmp_path: Path) -> None:
        """A file that is larger than the limit evicts nothing in vain."""
        with opened(tmp_path, 400) as tree:
            lay(tree, FILES)
            plan, _ = lay(tree, {"huge.md": b"h" * 401})
            assert (actions(plan), going(plan)) == ({"huge.md": "no room"}, [])
        assert tree_of(tmp_path / "memory") == FILES

    def test_replace_counts_the_difference(self, tmp_path: Path) -> None:
        """A newer version needs room for its growth only; without it the older one stays, and is known."""
        with opened(tmp_path, 400) as tree:
            lay(tree, {p: FILES[p] for p in ("notes/a.md", "notes/b.md", "notes/c.md")}, pinned=Pin.MAP)
            plan, _ = lay(tree, {"notes/a.md": b"A" * 200}, version=2)
            assert (actions(plan), going(plan)) == ({"notes/a.md": "replace"}, [])
            plan, done = lay(tree, {"notes/b.md": b"B" * 101}, version=2)
            assert actions(plan) == {"notes/b.md": "no room"}
            assert "the older version stays" in done.refused[0].reason
            assert status(tree, CORPUS).clean == 3

    def test_files_of_the_plan_stay(self, tmp_path: Path) -> None:
        """What was asked for together does not push each other out."""
        with opened(tmp_path, 400) as tree:
            lay(tree, FILES)
            plan, _ = lay(tree, {**FILES, "notes/e.md": b"e" * 10})
            assert (actions(plan)["notes/e.md"], going(plan)) == ("no room", [])

    def test_a_lower_limit_is_kept_at_the_next_command(self, tmp_path: Path) -> None:
        """A limit below what is here takes effect with the next command that lays anything, present files too."""
        with opened(tmp_path) as tree:
            lay(tree, FILES)
            used_at(tree, dict.fromkeys(FILES, 100))
        with opened(tmp_path, 200) as tree:
            lay(tree, {"notes/c.md": FILES["notes/c.md"]})
        assert set(tree_of(tmp_path / "memory")) == {"notes/c.md", "notes/d.md"}

    def test_written_to_since_the_plan(self, tmp_path: Path) -> None:
        """A file that is edited between plan and apply stays, and so does its row."""
        with opened(tmp_path, 400) as tree:
            lay(tree, FILES)
            plan = plan_of(tree, {"new.md": b"n" * 50})
            (victim,) = going(plan)
            (tmp_path / "memory" / victim).write_bytes(b"mine")
            done = apply(plan, tree, {"new.md": b"n" * 50})
            assert done.evicted == ()
            assert status(tree, CORPUS).modified == (victim,)
        assert tree_of(tmp_path / "memory")[victim] == b"mine"

    def test_deleted_since_the_plan(self, tmp_path: Path) -> None:
        """A file that the user deletes between plan and apply is their deletion."""
        with opened(tmp_path, 400) as tree:
            lay(tree, FILES)
            plan = plan_of(tree, {"new.md": b"n" * 50})
            (victim,) = going(plan)
            (tmp_path / "memory" / victim).unlink()
            assert apply(plan, tree, {"new.md": b"n" * 50}).evicted == ()
            assert status(tree, CORPUS).deleted == (victim,)

    def test_empty_folders_go(self, tmp_path: Path) -> None:
        """A folder that eviction empties goes too, unless something of the user's is in it."""
        with opened(tmp_path, 100) as tree:
            lay(tree, {"deep/er/a.md": b"a" * 50, "other/b.md": b"b" * 40})
            (tmp_path / "memory/other/.keep").write_bytes(b"")
            lay(tree, {"deep/new/c.md": b"c" * 100})
        assert sorted(p.name for p in (tmp_path / "memory/deep").iterdir()) == ["new"]
        assert sorted(p.name for p in (tmp_path / "memory/other").iterdir()) == [".keep"]

    def test_the_tree_keeps_its_limit(self, tmp_path: Path) -> None:
        """What a boot was given holds for later commands; a flag is stronger; a very large one lifts it."""
        with opened(tmp_path, 200) as tree:
            tree.keep_limit()
        for given, said in ((None, 200), (300, 300), (None, 200)):
            with opened(tmp_path, given) as tree:
                assert tree.max_bytes == said


class TestFloor:
    def test_default(self, tmp_path: Path) -> None:
        """The floor is 64 MiB, or a hundredth of a small disk; a setting overrides it."""
        disk = space(str(tmp_path))
        assert disk.floor_bytes == min(64 << 20, disk.total_bytes // 100)
        assert space(str(tmp_path), 5).floor_bytes == 5
        assert disk.on_disk(1) == 2 * disk.block_bytes
        assert disk.usable_bytes == disk.free_bytes - disk.floor_bytes

    def test_evicts_then_stops(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Near the floor, files go first; below it nothing is written, and the error says what to do."""
        disk = Space(free_bytes=10_000, total_bytes=1 << 20, floor_bytes=9_000, block_bytes=1, files_free=None)
        with opened(tmp_path) as tree:
            lay(tree, FILES)
            monkeypatch.setattr(Tree, "space", lambda self: disk)
            plan = plan_of(tree, {"new.md": b"n" * 1_150})
            assert len(going(plan)) == 2
            with pytest.raises(DiskError, match="above the floor of 9,000 bytes") as caught:
                apply(plan, tree, {"new.md": b"n" * 1_150})
            assert "memfs evict" in str(caught.value.hint)
            assert status(tree, CORPUS).deleted == ()
        assert len(tree_of(tmp_path / "memory")) == 2
        assert leftovers(tmp_path) == []

    def test_nothing_to_write_is_no_error(self, tmp_path: Path) -> None:
        """Below the floor, a command that has nothing to write evicts nothing and does not fail."""
        with opened(tmp_path) as tree:
            lay(tree, FILES)
        with opened(tmp_path, min_free=1 << 49) as tree:
            plan, done = lay(tree, FILES)
            assert (going(plan), done.written) == ([], 0)
            with pytest.raises(DiskError):
                lay(tree, {"new.md": b"n"})

    def test_network_file_system(self, tmp_path: Path) -> None:
        """A local folder is on none."""
        assert spaces.network_file_system(str(tmp_path)) is None


class TestKilled:
    @pytest.mark.parametrize("gone", [True, False])
    def test_going_row_is_settled(self, tmp_path: Path, gone: bool) -> None:
        """Killed between mark and removal or after it: nothing is said to be deleted or edited, and the next run
        settles the row."""
        with opened(tmp_path) as tree:
            lay(tree, FILES)
            row = tree.manifest.all()["notes/a.md"]
            with tree.manifest.writing():
                tree.manifest.record([row._replace(pending=GOING)])
            if gone:
                (tmp_path / "memory/notes/a.md").unlink()
            said = status(tree, CORPUS)
            assert (said.deleted, said.modified) == ((), ())
            lay(tree, {"new.md": b"n"})
            assert tree.manifest.pending() == []
            assert ("notes/a.md" in tree.manifest.all()) is not gone

    def test_the_users_file_in_its_place(self, tmp_path: Path) -> None:
        """A file that the user made where an evicted one was is theirs."""
        with opened(tmp_path) as tree:
            lay(tree, FILES)
            row = tree.manifest.all()["notes/a.md"]
            with tree.manifest.writing():
                tree.manifest.record([row._replace(pending=GOING)])
            (tmp_path / "memory/notes/a.md").write_bytes(b"mine")
            plan, _ = lay(tree, {"notes/a.md": b"theirs"}, version=2)
            assert actions(plan) == {"notes/a.md": "conflict"}
        assert tree_of(tmp_path / "memory")["notes/a.md"] == b"mine"


def test_least_recent() -> None:
    """The first that free enough; none for nothing; all where that is not enough."""
    three = [Going(name, 10, 0, Seen(1, 10, 0, 0)) for name in "abc"]
    assert [len(least_recent(three, need)) for need in (-5, 0, 1, 10, 11, 30, 31)] == [0, 0, 1, 1, 2, 3, 3]


class TestVerbs:
    @pytest.fixture
    def corpus(self, tmp_path: Path) -> Corpus:
        made = Corpus.create(str(tmp_path / "corpus"))
        with made.writing():
            made.commit([document(f"notes/{n:02d}.md", long_text(f"topic{n}", 30)) for n in range(20)])
        return made

    def run(
        self,
        corpus: Corpus,
        tmp_path: Path,
        max_bytes: int | None,
        name: str = "memory",
        *,
        budget_bytes: int | None = None,
        dry_run: bool = False,
    ) -> Receipt:
        return boot(
            corpus.uri,
            str(tmp_path / name),
            cache_dir=str(tmp_path / "cache"),
            state_dir=str(tmp_path / "state"),
            limits=Limits(max_bytes),
            budget_bytes=budget_bytes,
            dry_run=dry_run,
        )

    @pytest.mark.parametrize("dry_run", [True, False])
    def test_boot(self, corpus: Corpus, tmp_path: Path, dry_run: bool) -> None:
        """The map goes no further than the limit, and the receipt counts what is left out and why."""
        receipt = self.run(corpus, tmp_path, 10_000, dry_run=dry_run)
        assert 0 < receipt.bytes_here <= 10_000
        (left,) = (x for x in receipt.left_out if "--max-size" in x.reason)
        assert receipt.files_here + left.files == receipt.total_files == 20
        assert receipt.refused == ()
        if not dry_run:
            assert len(tree_of(tmp_path / "memory")) == receipt.files_here

    def test_refresh_within_the_limit(self, corpus: Corpus, tmp_path: Path) -> None:
        """A map that moved on unpins what it no longer holds, and that makes room for what is new."""
        receipt = self.run(corpus, tmp_path, 10_000, budget_bytes=10_000)
        first = set(tree_of(tmp_path / "memory"))
        with corpus.writing():
            head = "---\ndate: 2027-01-0{}\n---\n"
            newer = [document(f"notes/00{n}-new.md", head.format(n + 1) + long_text("new", 60)) for n in range(3)]
            corpus.commit(newer)
        receipt = self.run(corpus, tmp_path, None, budget_bytes=10_000)
        found = tree_of(tmp_path / "memory")
        assert sum(map(len, found.values())) <= 10_000
        assert {"notes/000-new.md", "notes/001-new.md"} & set(found)
        assert first - set(found) == {g.path for g in receipt.evicted}
        assert receipt.evicted

    def test_user_pin_outlasts_the_map(self, corpus: Corpus, tmp_path: Path) -> None:
        """A pin of the user's is not undone by a map that moved on, nor made the map's by a refresh."""
        self.run(corpus, tmp_path, None)
        with Tree.open(str(tmp_path / "memory"), str(tmp_path / "state")) as tree, tree.manifest.writing():
            tree.manifest.pin(["notes/01.md"], Pin.USER)
        with corpus.writing():
            corpus.commit([document("notes/99.md", "new\n")])
        self.run(corpus, tmp_path, None)
        self.run(corpus, tmp_path, None, budget_bytes=0)
        with Tree.open(str(tmp_path / "memory"), str(tmp_path / "state")) as tree:
            assert tree.manifest.all()["notes/01.md"].pinned is Pin.USER

    def test_fetch(self, corpus: Corpus, tmp_path: Path) -> None:
        """A question's files come in rank order while there is room; the answer names what went and what has none."""
        self.run(corpus, tmp_path, 6_000, budget_bytes=0)
        with closing(HostCache(str(tmp_path / "cache"))) as cache:
            for question in ("topic3 line", "topic4 line"):
                with Tree.open(str(tmp_path / "memory"), str(tmp_path / "state"), corpus=corpus.uri) as tree:
                    answer = fetch(corpus, question, tree=tree, cache=cache)
                assert answer.files[0].outcome == "write"
                assert sum(map(len, tree_of(tmp_path / "memory").values())) <= 6_000
        assert answer.evicted
        named = {file.path for file in answer.files if file.outcome == "no room"}
        assert named
        assert not named & set(tree_of(tmp_path / "memory"))
        assert all("--max-size" in file.reason for file in answer.files if file.outcome == "no room")

    def test_get_in_parts(self, corpus: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """A get of more than memory holds lays part after part, and the later do not push out the earlier."""
        monkeypatch.setattr("memfs.workset.named.BATCH_BYTES", 3_000)
        self.run(corpus, tmp_path, 12_000, budget_bytes=0)
        asked: list[str] = []
        read = Corpus.read

        def counted(self: Corpus, wanted: list[str]) -> object:
            asked.extend(wanted)
            return read(self, wanted)

        monkeypatch.setattr(Corpus, "read", counted)
        with Tree.open(str(tmp_path / "memory"), str(tmp_path / "state"), corpus=corpus.uri) as tree:
            plan, done = get(corpus, ["."], tree=tree, cache=None)
        assert done.evicted == ()
        assert set(tree_of(tmp_path / "memory")) == {w.path for w in plan.needed()} == set(asked)
        assert len(plan.having(Action.NO_ROOM)) == 20 - done.written > 0

    def test_two_sandboxes(self, corpus: Corpus, tmp_path: Path) -> None:
        """Two trees on one host share the cache and nothing else: what one evicts, the other keeps, the cache too."""
        with closing(HostCache(str(tmp_path / "cache"))) as cache:
            for name in ("one", "two"):
                self.run(corpus, tmp_path, None, name, budget_bytes=0)
                with Tree.open(str(tmp_path / name), str(tmp_path / "state"), corpus=corpus.uri) as tree:
                    get(corpus, ["."], tree=tree, cache=cache)
            two = tree_of(tmp_path / "two")
            with Tree.open(str(tmp_path / "one"), str(tmp_path / "state")) as tree:
                apply(Plan((), holdings(tree).evictable), tree, {})
            assert tree_of(tmp_path / "one") == {}
            assert tree_of(tmp_path / "two") == two
            assert len(two) == 20
            assert len(cache.has([sha256(data) for data in two.values()])) == 20
            with Tree.open(str(tmp_path / "two"), str(tmp_path / "state")) as tree:
                assert status(tree, corpus.uri).clean == 20
