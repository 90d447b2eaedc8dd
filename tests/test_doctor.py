"""memfs doctor: each thing is damaged for real, found, and mended; nothing of the user's is touched."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pytest
from conftest import NOTES, Ran, Store, document, leftovers, long_text, sha256, tree_of

from memfs.corpus import bootset
from memfs.corpus import lease as leases
from memfs.corpus.table import Corpus
from memfs.doctor import Checkup, Finding, doctor
from memfs.workset.cache import HostCache
from memfs.workset.manifest import GOING
from memfs.workset.space import Limits, Space
from memfs.workset.tree import Tree, read_mark

Run = Callable[..., Ran]
LARGE = long_text("large", 1_000)
"""60 kB: a blob with a file of its own."""


@pytest.fixture
def ready(filled: Corpus, memfs: Run, monkeypatch: pytest.MonkeyPatch) -> Corpus:
    """A corpus, a booted tree of all its files, and a cache that holds them."""
    with filled.writing():
        filled.commit([document("notes/large.md", LARGE)])
        filled.maintain()
    monkeypatch.setenv("MEMFS_CORPUS", filled.uri)
    assert memfs("boot", "--budget", "0").code == 0
    assert memfs("get", ".").code == 0
    return filled


def look(tmp_path: Path, corpus: Corpus | None, *, fix: bool = False, deep: bool = False) -> Checkup:
    with closing(HostCache(str(tmp_path / "cache"))) as cache:
        return doctor(
            str(tmp_path / "work/memory"),
            state_dir=str(tmp_path / "state"),
            cache=cache,
            corpus=corpus.uri if corpus else None,
            limits=Limits(),
            deep=deep,
            fix=fix,
        )


def problems(checkup: Checkup) -> list[Finding]:
    return [finding for finding in checkup.findings if finding.severity == "problem"]


def only(checkup: Checkup) -> Finding:
    (finding,) = problems(checkup)
    return finding


def check_mend(tmp_path: Path, corpus: Corpus, said: str, *, deep: bool = False) -> Finding:
    """The damage is the only problem, is fixable, is left alone without `fix`, mended with it, and then gone."""
    for _ in range(2):
        found = look(tmp_path, corpus, deep=deep)
        assert said in only(found).what
        assert only(found).fixable
        assert not found.healthy
    fixed = look(tmp_path, corpus, deep=deep, fix=True)
    assert only(fixed).fixed
    assert fixed.healthy
    assert problems(look(tmp_path, corpus, deep=deep)) == []
    return only(fixed)


def snapshot(folder: Path) -> dict[str, bytes]:
    """Every file but what SQLite keeps beside its databases."""
    return {
        str(file.relative_to(folder)): file.read_bytes()
        for file in folder.rglob("*")
        if file.is_file() and ".sqlite" not in file.name and not file.name.startswith("cache.db")
    }


def state_folder(tmp_path: Path) -> Path:
    mark = read_mark(str(tmp_path / "work/memory"))
    assert mark is not None
    return tmp_path / "state/trees" / mark[1]


class TestWhole:
    @pytest.mark.parametrize("deep", [False, True])
    def test_healthy(self, ready: Corpus, tmp_path: Path, deep: bool) -> None:
        """Where nothing is wrong, each part says what was looked at, and no file changes."""
        before = snapshot(tmp_path)
        found = look(tmp_path, ready, deep=deep)
        assert found.healthy
        assert problems(found) == []
        assert {finding.where for finding in found.findings} == {"memfs", "tree", "cache", "corpus", "clock", "disk"}
        said = "\n".join(finding.what for finding in found.findings)
        assert "7 of 7 files are whole" in said
        assert "7 files are as they were laid" in said
        assert "7 blobs, all 7 hashed" in said
        assert "embedder static, 256 dimensions" in said
        assert snapshot(tmp_path) == before

    def test_command(self, ready: Corpus, memfs: Run) -> None:
        """Exit code 0 and the findings, as text and as JSON; 8 when a problem is left; 0 when it was mended."""
        said = memfs("doctor")
        assert said.code == 0
        assert "0 problems" in said.out
        assert memfs("doctor", "--json").json["findings"][0]["where"] == "memfs"
        Path("memory/notes/.memfs-0123456789ab.tmp").write_bytes(b"half")
        said = memfs("doctor")
        assert said.code == 8
        assert "notes/.memfs-0123456789ab.tmp" in said.out
        assert "--fix: deletes them" in said.out
        assert "1 problems; memfs doctor --fix would mend 1 of these findings" in said.out
        said = memfs("doctor", "--fix")
        assert said.code == 0
        assert "0 problems, 1 fixed" in said.out
        assert memfs("doctor", "--deep").code == 0

    def test_nothing_at_all(self, tmp_path: Path, memfs: Run) -> None:
        """No tree, no cache, no corpus: notes, no problem, and nothing is made, with --fix neither."""
        for flag in ([], ["--fix"]):
            said = memfs("doctor", *flag)
            assert said.code == 0, said.out
            for text in ("no memfs tree", "is not there yet", "none is named"):
                assert text in said.out
        assert not (tmp_path / "cache").exists()
        assert not (tmp_path / "state").exists()
        assert list((tmp_path / "work").iterdir()) == []

    def test_corpus_gone(self, ready: Corpus, tmp_path: Path) -> None:
        """A corpus that is not there is a problem; the rest is looked at all the same."""
        Path(ready.uri).rename(tmp_path / "gone")
        found = look(tmp_path, ready)
        assert "no such folder" in only(found).what
        assert any("7 files are as they were laid" in finding.what for finding in found.findings)

    def test_unreachable(self, ready: Corpus, tmp_path: Path, memfs: Run, monkeypatch: pytest.MonkeyPatch) -> None:
        """A store that does not answer is a note: it can't be told."""
        for name, value in {"AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "x-secret"}.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
        said = memfs("doctor", "--corpus", "s3://bucket/x")
        assert said.code == 0
        assert "corpus: not looked at:" in said.out


class TestTree:
    def test_edits_are_notes(self, ready: Corpus, tmp_path: Path) -> None:
        """Edited, own and deleted files are named, are no problem, and --fix leaves them as they are."""
        root = tmp_path / "work/memory"
        (root / "notes/deploy.md").write_text("mine\n")
        (root / "notes/own.md").write_text("own\n")
        (root / "notes/people/ana.md").unlink()
        before = tree_of(root)
        for fix in (False, True):
            found = look(tmp_path, ready, fix=fix)
            assert problems(found) == []
            names = [finding.names for finding in found.findings if finding.where == "tree" and finding.names]
            assert names == [("notes/deploy.md",), ("notes/own.md",), ("notes/people/ana.md",)]
            assert tree_of(root) == before

    @pytest.mark.parametrize("state", ["new, absent", "new, whole", "new, the user's", "old", "edited", "going, gone"])
    def test_pending_row(self, ready: Corpus, tmp_path: Path, state: str) -> None:
        """A row that a killed run left is settled by what lies on disk."""
        root, path = tmp_path / "work/memory", "notes/deploy.md"
        data = (root / path).read_bytes()
        with Tree.open(str(root), str(tmp_path / "state")) as tree, tree.manifest.writing():
            row = tree.manifest.all()[path]
            if state.startswith("new"):
                row = row._replace(pending=row.sha256, seen=None)
            else:
                row = row._replace(pending=GOING if state.startswith("going") else sha256(b"newer"))
            tree.manifest.record([row])
        if state in ("new, absent", "going, gone"):
            (root / path).unlink()
        if state in ("new, the user's", "edited"):
            (root / path).write_bytes(b"mine\n")
        before = tree_of(root)
        finding = check_mend(tmp_path, ready, "when memfs was killed")
        assert finding.names == (path,)
        assert tree_of(root) == before
        with Tree.open(str(root), str(tmp_path / "state")) as tree:
            found = tree.manifest.all().get(path)
        if state in ("new, absent", "going, gone", "new, the user's"):
            assert found is None
        else:
            assert found is not None
            assert (found.pending, found.sha256) == (None, sha256(data))

    def test_temporary_files(self, ready: Corpus, tmp_path: Path) -> None:
        """Unfinished files are found wherever they lie; the user's own files with such an ending are not ours."""
        root = tmp_path / "work/memory"
        (root / "mine.tmp").write_text("mine")
        (root / "deep/er").mkdir(parents=True)
        for folder in ("", "notes/people/", "deep/er/"):
            (root / f"{folder}.memfs-0123456789ab.tmp").write_bytes(b"half")
        # Opening the tree sweeps its root.
        assert len(check_mend(tmp_path, ready, "2 unfinished files").names) == 2
        assert leftovers(root) == [str(root / "mine.tmp")]

    def test_something_in_the_way(self, ready: Corpus, tmp_path: Path) -> None:
        """A folder, or a symlink, where a file was laid is a problem that the user must solve; nothing follows it."""
        root = tmp_path / "work/memory"
        (tmp_path / "victim").write_text("mine\n")
        (root / "notes/deploy.md").unlink()
        (root / "notes/deploy.md").symlink_to(tmp_path / "victim")
        (root / "knowledge/index.md").unlink()
        (root / "knowledge/index.md").mkdir()
        (root / "other").symlink_to(tmp_path)
        for fix in (False, True):
            found = look(tmp_path, ready, fix=fix, deep=True)
            assert only(found).names == (
                "knowledge/index.md: a folder lies there",
                "notes/deploy.md: a symlink lies there",
            )
            assert not only(found).fixed
            assert ("other: a symlink lies there",) in [finding.names for finding in found.findings]
        assert (tmp_path / "victim").read_text() == "mine\n"
        assert (root / "notes/deploy.md").is_symlink()

    def test_folder_swapped_for_a_symlink(self, ready: Corpus, tmp_path: Path) -> None:
        """A symlink where a folder was hides the files below it: said, and not followed."""
        root = tmp_path / "work/memory"
        (root / "notes/people").rename(tmp_path / "elsewhere")
        (root / "notes/people").symlink_to(tmp_path / "elsewhere")
        found = look(tmp_path, ready)
        assert only(found).names == ("notes/people/ana.md: a file or a symlink is in the way of its folder",)

    @pytest.mark.parametrize("how", ["lost", "no database", "a page"])
    def test_manifest(self, ready: Corpus, tmp_path: Path, how: str, memfs: Run) -> None:
        """A lost or damaged manifest is started anew: no file is touched, and the next boot knows those that match."""
        root, folder = tmp_path / "work/memory", state_folder(tmp_path)
        (root / "notes/deploy.md").write_text("mine\n")
        file = folder / "manifest.sqlite"
        if how == "lost":
            file.unlink()
        elif how == "no database":
            file.write_bytes(b"not a database, " * 1_000)
        else:
            with closing(sqlite3.connect(file)) as database:
                database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            damaged = bytearray(file.read_bytes())
            damaged[4096:] = b"\xff" * (len(damaged) - 4096)
            file.write_bytes(bytes(damaged))
        before = tree_of(root)
        check_mend(tmp_path, ready, "its manifest is")
        assert tree_of(root) == before
        said = memfs("boot")
        assert said.code == 0, said.err
        assert "kept: notes/deploy.md" in said.out
        assert (root / "notes/deploy.md").read_text() == "mine\n"
        assert memfs("status", "--json").json["clean"] == 6

    def test_mark(self, ready: Corpus, tmp_path: Path) -> None:
        """A damaged mark is a problem with the way out."""
        (tmp_path / "work/memory/.memfs.toml").write_text("nonsense")
        found = only(look(tmp_path, ready))
        assert "is damaged" in found.what
        assert "memfs boot" in found.repair

    def test_moved(self, ready: Corpus, tmp_path: Path) -> None:
        """A tree that was moved is a note; without --fix its state stays as it is."""
        (tmp_path / "work/memory").rename(tmp_path / "away")
        (tmp_path / "work/memory").symlink_to(tmp_path / "nowhere")
        (tmp_path / "work/memory").unlink()
        (tmp_path / "away").rename(tmp_path / "work/other")
        with closing(HostCache(str(tmp_path / "cache"))) as cache:
            options = {"state_dir": str(tmp_path / "state"), "cache": cache, "corpus": None, "limits": Limits()}
            found = doctor(str(tmp_path / "work/other"), **options)  # type: ignore[arg-type]
            assert any("moved or copied" in finding.what for finding in found.findings)
            assert not any("as they were laid" in finding.what for finding in found.findings)
            fixed = doctor(str(tmp_path / "work/other"), fix=True, **options)  # type: ignore[arg-type]
        assert any("7 files are as they were laid" in finding.what for finding in fixed.findings)

    def test_bytes_changed_behind_the_times(
        self, ready: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Bytes that changed though no time did (a failing disk) are found with --deep."""
        real = Tree.sha256
        monkeypatch.setattr(Tree, "sha256", lambda self, p: "0" * 64 if p == "notes/deploy.md" else real(self, p))
        assert problems(look(tmp_path, ready)) == []
        assert only(look(tmp_path, ready, deep=True)).names == ("notes/deploy.md",)


class TestCache:
    def blob(self, tmp_path: Path) -> Path:
        (file,) = (tmp_path / "cache/blobs").rglob("*.val")
        return file

    def test_flipped_byte(self, ready: Corpus, tmp_path: Path) -> None:
        """A blob with a flipped byte is found by its hash and dropped."""
        data = bytearray(self.blob(tmp_path).read_bytes())
        data[1000] ^= 1
        self.blob(tmp_path).write_bytes(bytes(data))
        assert check_mend(tmp_path, ready, "1 blobs do not match").names == (sha256(LARGE.encode()),)
        with closing(HostCache(str(tmp_path / "cache"))) as cache:
            assert cache.has([sha256(LARGE.encode())]) == frozenset()
            small = sha256(NOTES["notes/deploy.md"].encode())
            assert set(cache.read([small])) == {small}

    def test_in_the_database(self, ready: Corpus, tmp_path: Path) -> None:
        """So is one that lies in the database."""
        digest = sha256(NOTES["notes/deploy.md"].encode())
        with closing(sqlite3.connect(tmp_path / "cache/blobs/cache.db")) as database:
            database.execute("UPDATE Cache SET value = ? WHERE key = ?", (b"other", digest))
            database.commit()
        assert check_mend(tmp_path, ready, "1 blobs do not match").names == (digest,)

    def test_stray_file(self, ready: Corpus, tmp_path: Path) -> None:
        """A value file that no row names is what a kill leaves; it is deleted."""
        stray = self.blob(tmp_path).with_name("stray.val")
        stray.write_bytes(b"stray")
        check_mend(tmp_path, ready, "faults in its database")
        assert not stray.exists()
        assert self.blob(tmp_path).exists()

    def test_file_gone(self, ready: Corpus, tmp_path: Path) -> None:
        """A row whose file is gone is dropped."""
        self.blob(tmp_path).unlink()
        for fix in (False, True):
            found = look(tmp_path, ready, fix=fix)
            assert found.healthy is fix
        assert problems(look(tmp_path, ready)) == []

    def test_boot_copy(self, ready: Corpus, tmp_path: Path) -> None:
        """A copy of a map that is not whole is dropped."""
        (file,) = (tmp_path / "cache/boot").iterdir()
        file.write_bytes(file.read_bytes()[:-1])
        check_mend(tmp_path, ready, "copies of maps")
        assert not file.exists()

    def test_mode(self, ready: Corpus, tmp_path: Path) -> None:
        """A folder that others can look into is closed."""
        os.chmod(tmp_path / "cache", 0o755)
        check_mend(tmp_path, ready, "open to other users (mode 755)")

    def test_no_database(self, ready: Corpus, tmp_path: Path) -> None:
        """A database that is none is a problem with the way out."""
        for name in ("cache.db-wal", "cache.db-shm"):
            (tmp_path / "cache/blobs" / name).unlink(missing_ok=True)
        (tmp_path / "cache/blobs/cache.db").write_bytes(b"not a database, " * 1_000)
        found = only(look(tmp_path, ready))
        assert "cannot be opened" in found.what
        assert "only a cache" in found.repair

    @pytest.mark.skipif(os.getuid() != 0, reason="giving a folder away needs root")
    def test_owner(self, ready: Corpus, tmp_path: Path) -> None:
        """A folder of another user's is a problem."""
        os.chown(tmp_path / "cache", 65_534, 65_534)
        assert "another user" in only(look(tmp_path, ready)).what

    def test_sample(self, ready: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Without --deep a large cache is sampled, and that is said."""
        monkeypatch.setattr("memfs.workset.cache.SAMPLE_BLOBS", 3)
        assert any("7 blobs, a sample of 3 hashed" in f.what for f in look(tmp_path, ready).findings)
        assert any("7 blobs, all 7 hashed" in f.what for f in look(tmp_path, ready, deep=True).findings)


class TestCorpus:
    def rows(self, corpus: Corpus, path: str) -> pa.Table:
        table: pa.Table = corpus._table.search().where(f"path = '{path}'").to_arrow()
        return table

    def test_doubled_row(self, ready: Corpus, tmp_path: Path) -> None:
        """A row that is there twice is found, and the surplus one dropped."""
        ready._table.add(self.rows(ready, "notes/large.md").slice(1, 1))
        finding = check_mend(tmp_path, ready, "1 files have a passage twice")
        assert finding.names == ("notes/large.md",)
        reader = Corpus.open(ready.uri)
        assert reader.read(["notes/large.md"])["notes/large.md"].data == LARGE.encode()
        ids = reader._table.to_arrow()["id"].to_pylist()
        assert len(ids) == len(set(ids))

    def test_two_versions_mixed(self, ready: Corpus, tmp_path: Path) -> None:
        """Of two writers' mixed versions one that is whole stays."""
        old = self.rows(ready, "notes/large.md")
        with ready.writing():
            ready.commit([document("notes/large.md", long_text("newer", 400))])
        ready._table.add(old)
        check_mend(tmp_path, ready, "1 files have a passage twice")
        data = Corpus.open(ready.uri).read(["notes/large.md"])["notes/large.md"].data
        assert data in (LARGE.encode(), long_text("newer", 400).encode())

    @pytest.mark.parametrize(("seq", "said"), [(0, "missing"), (1, "missing"), (-1, "do not match its hash")])
    def test_missing_passage(self, ready: Corpus, tmp_path: Path, seq: int, said: str) -> None:
        """A passage that is gone, wherever it was, is found, and put back from an older version."""
        last = len(self.rows(ready, "notes/large.md")) - 1
        ready._table.delete(f"id = 'notes/large.md#{last if seq < 0 else seq}'")
        found = look(tmp_path, ready)
        (finding,) = problems(found)
        assert finding.names[0].startswith("notes/large.md: ")
        assert said in finding.names[0]
        assert look(tmp_path, ready, fix=True).healthy
        assert problems(look(tmp_path, ready, deep=True)) == []
        assert Corpus.open(ready.uri).read(["notes/large.md"])["notes/large.md"].data == LARGE.encode()

    def test_missing_for_good(self, ready: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Where no older version has it, that is said, other files are mended all the same, and an add mends it."""
        monkeypatch.setattr("memfs.corpus.audit.VERSIONS_MAX", 0)
        ready._table.delete("id = 'notes/large.md#1'")
        ready._table.add(self.rows(ready, "notes/deploy.md"))
        found = look(tmp_path, ready, fix=True)
        assert not found.healthy
        twice, broken, *_ = problems(found)
        assert (twice.names, twice.fixed) == (("notes/deploy.md",), True)
        assert "no older version has them so" in broken.what
        assert not broken.fixed
        with ready.writing():
            assert ready.commit([document("notes/large.md", LARGE)]).replaced == 1
        assert look(tmp_path, ready, fix=True).healthy
        assert problems(look(tmp_path, ready)) == []

    def test_changed_body(self, ready: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Bodies are read where they are few, or with --deep; else it is said that they were not."""
        ready._table.update(where="path = 'notes/deploy.md'", values={"body": b"false"})
        assert any("notes/deploy.md" in name for f in problems(look(tmp_path, ready)) for name in f.names)
        monkeypatch.setattr("memfs.corpus.audit.READ_ANYWAY_BYTES", 10)
        assert any("--deep does" in f.what for f in look(tmp_path, ready).findings)
        monkeypatch.setattr("memfs.corpus.audit.BATCH_BYTES", 100)
        (finding,) = (f for f in problems(look(tmp_path, ready, deep=True)) if "not whole" in f.what)
        assert len(finding.names) == 1

    @pytest.mark.parametrize("how", ["missing", "damaged"])
    def test_map(self, ready: Corpus, tmp_path: Path, how: str) -> None:
        """A map that is missing or damaged is made anew."""
        if how == "missing":
            ready.objects.delete(bootset.KEY)
        else:
            ready.objects.write(bootset.KEY, b"nonsense")
        check_mend(tmp_path, ready, f"the map for boots is {how}")
        fetched = ready.objects.read(bootset.KEY)
        assert fetched is not None
        assert bootset.unpack(fetched.data).total_files == 7

    def test_older_map_and_tail(self, ready: Corpus, tmp_path: Path) -> None:
        """A map that is behind, and rows outside the indices, are notes, and are caught up with."""
        with ready.writing(publish=False):
            ready.commit([document("notes/late.md", "late\n"), document("notes/deploy.md", "short\n")])
        for fix in (False, True):
            found = look(tmp_path, ready, fix=fix)
            assert problems(found) == []
            tail = next(f for f in found.findings if "outside the indices" in f.what)
            assert tail.fixed is fix
        said = "\n".join(finding.what for finding in look(tmp_path, ready).findings)
        assert "outside the indices" not in said
        assert "the newest" in said

    def test_embedder(self, ready: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """An embedder of the wrong length, or one that is not installed, is a problem."""
        monkeypatch.setattr("memfs.corpus.embed.StaticEmbedder.dimensions", 128)
        monkeypatch.setattr("memfs.corpus.embed._read_matrix", lambda *_: [[0.0] * 128])
        found = look(tmp_path, ready)
        assert "makes 128 dimensions, not 256" in only(found).what
        assert any("7 of 7 files are whole" in finding.what for finding in found.findings)

    def test_lease(self, ready: Corpus, tmp_path: Path) -> None:
        """A writer at work is a note, and is not disturbed."""
        with leases.hold(ready.location, ready.objects):
            assert any("a writer holds it" in finding.what for finding in look(tmp_path, ready).findings)
        assert not any("a writer holds it" in finding.what for finding in look(tmp_path, ready).findings)

    def test_not_a_corpus(self, ready: Corpus, tmp_path: Path, memfs: Run) -> None:
        """A URI that holds none is a problem."""
        (tmp_path / "empty").mkdir()
        said = memfs("doctor", "--corpus", str(tmp_path / "empty"))
        assert said.code == 8
        assert "is not a memfs corpus" in said.out


class TestStore:
    @pytest.fixture
    def remote(self, s3: Store) -> Corpus:
        made = Corpus.create(s3.uri())
        with made.writing():
            made.commit([document("notes/a.md", "a\n")])
        return made

    def test_lease_and_clock(self, remote: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """On a store: who holds the lease; the clock, one way without a write and both ways with --fix."""
        found = look(tmp_path, remote)
        assert problems(found) == []
        assert any("can't be told without a write" in f.what for f in found.findings)
        remote.objects.write(leases.KEY, leases._Record(3, "host/1/x", True).encode())
        assert any("a writer holds it: host/1/x" in f.what for f in look(tmp_path, remote).findings)
        remote.objects.write(leases.KEY, b"nonsense")
        assert "lease.json is not readable" in only(look(tmp_path, remote)).what
        remote.objects.delete(leases.KEY)
        assert any("within 120 s of the store's" in f.what for f in look(tmp_path, remote, fix=True).findings)
        now = time.time
        for off, said, fix in ((-900, "behind the store's", False), (900, "ahead of the store's", True)):
            monkeypatch.setattr("memfs.doctor.time.time", lambda off=off: now() + off)
            assert said in only(look(tmp_path, remote, fix=fix)).what
        monkeypatch.undo()
        assert not remote.objects.any_below(".memfs-probe")


class TestMachine:
    def test_disk(self, ready: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """A disk below its floor, or without inodes, is a problem, said once a disk."""
        full = Space(free_bytes=10, total_bytes=1_000, floor_bytes=64, block_bytes=1, files_free=5)
        monkeypatch.setattr("memfs.doctor.space", lambda *_: full)
        found = [finding.what for finding in problems(look(tmp_path, ready))]
        assert len(found) == 2
        assert "10 bytes free of 1,000" in found[0]
        assert "5 inodes are left" in found[1]

    def test_network_file_system(self, ready: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """State and cache on a network file system are problems, a tree there a note."""
        monkeypatch.setattr("memfs.doctor.network_file_system", lambda _: "nfs4")
        found = look(tmp_path, ready)
        assert [finding.repair for finding in problems(found)] == ["set MEMFS_STATE_DIR", "set MEMFS_CACHE_DIR"]
        assert any(f.severity == "note" and "tree folder is on nfs4" in f.what for f in found.findings)

    def test_no_ripgrep(self, ready: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Without rg it is said."""
        monkeypatch.setenv("PATH", str(tmp_path))
        assert any("rg (ripgrep) is not on the PATH" in finding.what for finding in look(tmp_path, ready).findings)

    def test_clock_never_set(self, ready: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """A clock in 1970 is a problem."""
        monkeypatch.setattr("memfs.doctor.time.time", lambda: 1_000.0)
        assert "never set" in only(look(tmp_path, None)).what


def test_the_mirror(ready: Corpus, memfs: Run, tmp_path: Path) -> None:
    """What grep searches is hashed with --deep, and written again with --fix."""
    assert memfs("grep", "-l", "Friday").code == 0
    (data,) = (tmp_path / "cache/mirror").glob("*/data-*")
    whole = data.read_bytes()
    data.write_bytes(whole.replace(b"Friday", b"Monday", 1))
    assert problems(look(tmp_path, ready)) == []
    assert check_mend(tmp_path, ready, "1 files of the mirror", deep=True).names == ("notes/deploy.md",)
    assert data.read_bytes() == whole
