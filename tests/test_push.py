"""memfs push: edits go back, nothing of another's is overwritten, and what cannot go is named."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from conftest import NOTES, Store, document, tree_of

from memfs.boot import boot
from memfs.corpus.sources import files
from memfs.corpus.table import Corpus
from memfs.errors import CorruptError, NotFoundError, PathError
from memfs.push import Pushed, push
from memfs.status import Status, status
from memfs.workset.cache import HostCache
from memfs.workset.manifest import Manifest
from memfs.workset.tree import Tree

PLAN, MINE, THEIRS = "notes/deploy.md", b"# Deploy\n\nOn Monday.\n", b"# Deploy\n\nOn Sunday.\n"


@contextmanager
def opened(tmp_path: Path, tree: str = "memory") -> Iterator[Tree]:
    with Tree.open(str(tmp_path / tree), str(tmp_path / "state")) as found:
        yield found


def lay(corpus: Corpus, tmp_path: Path, tree: str = "memory") -> Path:
    """A tree of the whole corpus."""
    boot(corpus.uri, str(tmp_path / tree), cache_dir=str(tmp_path / "cache"), state_dir=str(tmp_path / "state"))
    return tmp_path / tree


def send(corpus: Corpus, tmp_path: Path, *names: str, tree: str = "memory", dry_run: bool = False) -> Pushed:
    with opened(tmp_path, tree) as found, closing(HostCache(str(tmp_path / "cache"))) as cache:
        return push(Corpus.open(corpus.uri), found, names, cache=cache, dry_run=dry_run)


def look(tmp_path: Path, tree: str = "memory") -> Status:
    with opened(tmp_path, tree) as found:
        return status(found, "")


def stored(corpus: Corpus, *wanted: str) -> dict[str, bytes]:
    """What the corpus holds now, read anew."""
    fresh = Corpus.open(corpus.uri)
    return {p: f.data for p, f in fresh.read(list(wanted) or [info.path for info in fresh.files()]).items()}


def commit(corpus: Corpus, **texts: bytes) -> None:
    with corpus.writing():
        corpus.commit([document(PLAN, text) for text in texts.values()])


@pytest.fixture
def root(filled: Corpus, tmp_path: Path) -> Path:
    return lay(filled, tmp_path)


def refusals(pushed: Pushed) -> dict[str, str]:
    return {item.name: item.reason for item in pushed.refused}


def test_the_walk(store: Store, tmp_path: Path) -> None:
    """On every store: an edit and a new file go, another tree gets them; its own edit of the same file is a conflict,
    and goes once it is merged."""
    corpus = Corpus.create(store.uri())
    with corpus.writing():
        corpus.commit([document(path, text) for path, text in NOTES.items()])
    one, two = lay(corpus, tmp_path, "one"), lay(corpus, tmp_path, "two")
    (one / PLAN).write_bytes(MINE)
    (one / "notes/new.md").write_bytes(b"# New\n")
    done = send(corpus, tmp_path, tree="one")
    assert (done.sent, done.conflicts, done.refused) == ((PLAN, "notes/new.md"), (), ())
    assert stored(corpus, PLAN, "notes/new.md") == {PLAN: MINE, "notes/new.md": b"# New\n"}
    said = look(tmp_path, "one")
    assert (said.modified, said.new, said.conflicting, said.stale) == ((), (), (), ())
    assert (said.files_here, said.files_total, said.heard_version) == (7, 7, done.version)
    assert send(corpus, tmp_path, tree="one").sent == ()
    (two / PLAN).write_bytes(THEIRS)
    (conflict,) = send(corpus, tmp_path, tree="two").conflicts
    assert conflict.copy == f"notes/deploy.conflict-v{done.version}.md"
    assert ((two / PLAN).read_bytes(), (two / conflict.copy).read_bytes()) == (THEIRS, MINE)
    assert stored(corpus, PLAN) == {PLAN: MINE}
    (two / PLAN).write_bytes(b"merged\n")
    (two / conflict.copy).unlink()
    assert send(corpus, tmp_path, tree="two").sent == (PLAN,)
    assert stored(corpus, PLAN) == {PLAN: b"merged\n"}
    lay(corpus, tmp_path, "three")
    assert (tmp_path / "three" / PLAN).read_bytes() == b"merged\n"


class TestConflict:
    @pytest.fixture
    def copy(self, filled: Corpus, root: Path, tmp_path: Path) -> Path:
        """The corpus's copy of a file that was changed on both sides, and pushed."""
        commit(filled, one=THEIRS)
        (root / PLAN).write_bytes(MINE)
        (conflict,) = send(filled, tmp_path).conflicts
        return root / conflict.copy

    def test_both_are_kept(self, copy: Path, filled: Corpus, root: Path, tmp_path: Path) -> None:
        """Yours keeps its name, theirs lies beside it; the copy is neither new nor sent; status names both."""
        assert ((root / PLAN).read_bytes(), copy.read_bytes()) == (MINE, THEIRS)
        said = look(tmp_path)
        assert [(c.path, root / c.copy) for c in said.conflicting] == [(PLAN, copy)]
        assert (said.new, said.modified) == ((), ())
        before = filled.refresh()
        again = send(filled, tmp_path)
        assert [c.path for c in again.conflicts] == [PLAN]
        assert (again.sent, filled.refresh()) == ((), before)
        assert len(list((root / "notes").glob("*.conflict-*"))) == 1

    def test_taking_theirs(self, copy: Path, filled: Corpus, root: Path, tmp_path: Path) -> None:
        """Moving the copy over the file settles it: clean, nothing to send."""
        os.replace(copy, root / PLAN)
        said = look(tmp_path)
        assert (said.conflicting, said.modified, said.new) == ((), (), ())
        done = send(filled, tmp_path)
        assert (done.sent, done.conflicts) == ((), ())

    def test_taking_mine(self, copy: Path, filled: Corpus, tmp_path: Path) -> None:
        """Deleting the copy lets the edit go."""
        copy.unlink()
        assert look(tmp_path).modified == (PLAN,)
        assert send(filled, tmp_path).sent == (PLAN,)
        assert stored(filled, PLAN) == {PLAN: MINE}

    def test_renaming_the_copy(self, copy: Path, filled: Corpus, root: Path, tmp_path: Path) -> None:
        """A renamed copy is a file of the user's: both go."""
        copy.rename(root / "notes/deploy-sunday.md")
        assert send(filled, tmp_path).sent == ("notes/deploy-sunday.md", PLAN)

    def test_the_corpus_moved_on(self, copy: Path, filled: Corpus, root: Path, tmp_path: Path) -> None:
        """While it was being merged the corpus changed again: another conflict, another copy."""
        commit(filled, two=b"third\n")
        copy.unlink()
        (conflict,) = send(filled, tmp_path).conflicts
        assert (root / conflict.copy).read_bytes() == b"third\n"
        assert stored(filled, PLAN) == {PLAN: b"third\n"}

    def test_a_name_that_is_taken(self, filled: Corpus, root: Path, tmp_path: Path) -> None:
        """A copy never overwrites: a file of that name stays, the copy gets the next one."""
        commit(filled, one=THEIRS)
        (root / PLAN).write_bytes(MINE)
        taken = root / f"notes/deploy.conflict-v{filled.version}.md"
        taken.write_bytes(b"own\n")
        (conflict,) = send(filled, tmp_path, PLAN).conflicts
        assert conflict.copy.endswith("-2.md")
        assert (taken.read_bytes(), (root / conflict.copy).read_bytes()) == (b"own\n", THEIRS)

    @pytest.mark.parametrize("name", ["é" * 126 + ".md", "x" * 255, "." + "n" * 250, "a" * 200 + "." + "b" * 40])
    def test_long_names(self, name: str, filled: Corpus, root: Path, tmp_path: Path) -> None:
        """A name with no room for the addition is shortened, at a whole character."""
        with filled.writing():
            filled.commit([document(f"notes/{name}", THEIRS)])
        (root / "notes" / name).write_bytes(MINE)
        (conflict,) = send(filled, tmp_path).conflicts
        assert (root / conflict.copy).read_bytes() == THEIRS
        assert (root / "notes" / name).read_bytes() == MINE
        assert len(os.path.basename(conflict.copy).encode()) <= 255

    def test_new_on_both_sides(self, filled: Corpus, root: Path, tmp_path: Path) -> None:
        """Two new files of one name: with the same bytes it is adopted, with others it is a conflict."""
        with filled.writing():
            filled.commit([document("notes/a.md", "theirs\n"), document("notes/b.md", "same\n")])
        (root / "notes/a.md").write_bytes(b"mine\n")
        (root / "notes/b.md").write_bytes(b"same\n")
        done = send(filled, tmp_path)
        assert ([c.path for c in done.conflicts], done.adopted, done.sent) == (["notes/a.md"], ("notes/b.md",), ())
        assert tree_of(root)["notes/a.md"] == b"mine\n"

    def test_edited_here_and_gone_there(self, filled: Corpus, root: Path, tmp_path: Path) -> None:
        """A file that the corpus deleted is not brought back by an old edit; under a new name it goes."""
        with filled.writing():
            filled.commit(delete=[PLAN])
        (root / PLAN).write_bytes(MINE)
        for _ in range(2):
            (conflict,) = send(filled, tmp_path).conflicts
            assert (conflict.path, conflict.copy) == (PLAN, "")
            assert "gone from the corpus" in conflict.reason
        assert stored(filled, PLAN) == {}
        (root / PLAN).rename(root / "notes/again.md")
        assert send(filled, tmp_path).sent == ("notes/again.md",)

    def test_others_are_sent(self, filled: Corpus, root: Path, tmp_path: Path) -> None:
        """One conflict does not hold the other files up."""
        commit(filled, one=THEIRS)
        (root / PLAN).write_bytes(MINE)
        (root / "notes/new.md").write_bytes(b"new\n")
        done = send(filled, tmp_path)
        assert ([c.path for c in done.conflicts], done.sent) == ([PLAN], ("notes/new.md",))


class TestWhatGoes:
    def test_refused(self, filled: Corpus, root: Path, tmp_path: Path) -> None:
        """Transcripts, the Brain, other folders and memfs's own index are refused, named, and kept."""
        mine = {
            "sessions/2026/05/one/summary.md": "read-only",
            "sessions/index.md": "memfs makes",
            "knowledge/index.md": "memfs sync",
            "knowledge/entities/new.md": "memfs sync",
            "top.md": "below notes/",
            "code/x.py": "below notes/",
        }
        for path in mine:
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_bytes(b"mine\n")
        before = filled.refresh()
        done = send(filled, tmp_path)
        assert (done.sent, done.conflicts) == ((), ())
        said = refusals(done)
        assert said.keys() == mine.keys()
        assert all(word in said[path] for path, word in mine.items())
        assert all((root / path).read_bytes() == b"mine\n" for path in mine)
        assert filled.refresh() == before

    def test_deletions_stay_here(self, filled: Corpus, root: Path, tmp_path: Path) -> None:
        """A file deleted here is named, and kept in the corpus."""
        (root / PLAN).unlink()
        assert send(filled, tmp_path).deleted == (PLAN,)
        assert PLAN in stored(filled)

    def test_by_name(self, filled: Corpus, root: Path, tmp_path: Path) -> None:
        """Only what is named goes; a name that is nothing is an error, and nothing goes."""
        (root / PLAN).write_bytes(MINE)
        (root / "notes/people/bo.md").write_bytes(b"Bo\n")
        with pytest.raises(NotFoundError):
            send(filled, tmp_path, "notes/people", "notes/none.md")
        with pytest.raises(PathError):
            send(filled, tmp_path, "../x")
        assert send(filled, tmp_path, "memory/notes/people/").sent == ("notes/people/bo.md",)
        assert look(tmp_path).modified == (PLAN,)

    def test_dry_run(self, filled: Corpus, root: Path, tmp_path: Path) -> None:
        """A dry run says what would go and what would be a conflict; nothing changes, here or there."""
        commit(filled, one=THEIRS)
        (root / PLAN).write_bytes(MINE)
        (root / "notes/new.md").write_bytes(b"new\n")
        before, version = tree_of(root), filled.refresh()
        said = send(filled, tmp_path, dry_run=True)
        assert (said.sent, [c.path for c in said.conflicts]) == (("notes/new.md",), [PLAN])
        assert (tree_of(root), filled.refresh()) == (before, version)
        assert look(tmp_path).new == ("notes/new.md",)

    def test_bytes_are_exact(self, filled: Corpus, root: Path, tmp_path: Path) -> None:
        """Empty, binary, CRLF, without a last newline: what lies here is what the corpus has."""
        odd = {"empty.md": b"", "zeros.bin": bytes(300_000), "crlf.md": b"a\r\nb\r\n" * 900, "end.txt": b"no end"}
        for name, data in odd.items():
            (root / "notes" / name).write_bytes(data)
        assert len(send(filled, tmp_path).sent) == len(odd)
        assert stored(filled, *(f"notes/{name}" for name in odd)) == {f"notes/{n}": data for n, data in odd.items()}

    def test_many(self, filled: Corpus, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """More than one batch goes in one push."""
        monkeypatch.setattr("memfs.corpus.records.BATCH_FILES", 10)
        for n in range(35):
            (root / f"notes/n{n:02}.md").write_text(f"note {n}\n")
        assert len(send(filled, tmp_path).sent) == 35
        assert len(stored(filled)) == len(NOTES) + 35
        assert look(tmp_path).new == ()


def session(id: str, *texts: str) -> str:
    """A Claude Code session file."""
    rows = [
        {
            "type": "user", "sessionId": id, "uuid": f"{id}-{n}", "parentUuid": f"{id}-{n - 1}" if n else None,
            "timestamp": f"2026-05-08T12:00:{n:02}.000Z", "cwd": "/work", "version": "2.0.0",
            "isSidechain": False, "userType": "external", "message": {"role": "user", "content": text},
        }
        for n, text in enumerate(texts)
    ]  # fmt: skip
    return "".join(json.dumps(row) + "\n" for row in rows)


class TestSessions:
    ID = "0f0e0d0c-1111-4222-8333-444455556666"

    def test_session_file(self, filled: Corpus, root: Path, tmp_path: Path) -> None:
        """A session file becomes a transcript; it is sent once, and again when it has grown."""
        raw = root / "sessions/today.jsonl"
        raw.write_text(session(self.ID, "the quokka question"))
        done = send(filled, tmp_path)
        assert done.sent == ("sessions/today.jsonl",)
        (path,) = done.transcripts
        assert path.endswith("/transcript.md")
        assert b"quokka" in stored(filled, path)[path]
        assert "sessions/today.jsonl" not in stored(filled)
        said = look(tmp_path)
        assert (said.new, said.imported) == ((), 1)
        assert send(filled, tmp_path).sent == ()
        raw.write_text(session(self.ID, "the quokka question", "and the zebra"))
        assert look(tmp_path).new == ("sessions/today.jsonl",)
        assert send(filled, tmp_path).transcripts == (path,)
        assert b"zebra" in stored(filled, path)[path]

    def test_shorter_is_refused(self, filled: Corpus, root: Path, tmp_path: Path) -> None:
        """A session file that lost turns does not shorten the evidence."""
        raw = root / "sessions/today.jsonl"
        raw.write_text(session(self.ID, "one", "two is longer"))
        (path,) = send(filled, tmp_path).transcripts
        whole = stored(filled, path)[path]
        raw.write_text(session(self.ID, "one"))
        assert "longer transcript" in refusals(send(filled, tmp_path))["sessions/today.jsonl"]
        assert stored(filled, path)[path] == whole

    def test_same_session_twice(self, filled: Corpus, root: Path, tmp_path: Path) -> None:
        """Two files of one session: the first goes, the second is named."""
        for name in ("a", "b"):
            (root / f"sessions/{name}.jsonl").write_text(session(self.ID, "one"))
        done = send(filled, tmp_path)
        assert done.sent == ("sessions/a.jsonl",)
        assert "same session" in refusals(done)["sessions/b.jsonl"]
        assert look(tmp_path).new == ("sessions/b.jsonl",)

    def test_a_plain_file(self, filled: Corpus, root: Path, tmp_path: Path) -> None:
        """A summary, or JSON of another kind, goes as it is; a later edit of it is refused."""
        (root / "sessions/x").mkdir()
        (root / "sessions/x/summary.md").write_bytes(b"We met.\n")
        (root / "sessions/x/data.json").write_bytes(b'{"a": 1}\n')
        assert send(filled, tmp_path).sent == ("sessions/x/data.json", "sessions/x/summary.md")
        (root / "sessions/x/summary.md").write_bytes(b"We did not meet.\n")
        assert "read-only" in refusals(send(filled, tmp_path))["sessions/x/summary.md"]

    def test_not_a_session(self, filled: Corpus, root: Path, tmp_path: Path) -> None:
        """A broken session file is refused and named, and the rest goes."""
        row = json.loads(session(self.ID, "x"))
        (root / "sessions/bad.jsonl").write_text(json.dumps({**row, "message": {"role": "user", "content": []}}) + "\n")
        (root / "notes/new.md").write_bytes(b"new\n")
        done = send(filled, tmp_path)
        assert done.sent == ("notes/new.md",)
        assert "no session" in refusals(done)["sessions/bad.jsonl"]


class TestHostile:
    def test_what_is_no_file(self, filled: Corpus, root: Path, tmp_path: Path) -> None:
        """Symlinks, a FIFO, a file replaced by a folder or a symlink: refused, named, never read, never deleted."""
        (tmp_path / "secret").write_bytes(b"secret\n")
        (root / "notes/link.md").symlink_to(tmp_path / "secret")
        (root / "notes/folder").symlink_to(tmp_path)
        os.mkfifo(root / "notes/fifo.md")
        (root / PLAN).unlink()
        (root / PLAN).symlink_to(tmp_path / "secret")
        (root / "notes/people/ana.md").unlink()
        (root / "notes/people/ana.md").mkdir()
        done = send(filled, tmp_path)
        assert (done.sent, done.deleted) == ((), ())
        assert refusals(done).keys() == {
            "notes/link.md", "notes/folder", "notes/fifo.md", PLAN, "notes/people/ana.md"
        }  # fmt: skip
        assert set(stored(filled)) == set(NOTES)
        assert look(tmp_path).deleted == ()

    @pytest.mark.parametrize(
        "name", [b"\xff\xfe.md", b"a\x1b[31m.md", b"con.md", b"a:b.md", b"end.", "e\u0301.md".encode()]
    )
    def test_names(self, name: bytes, filled: Corpus, root: Path, tmp_path: Path) -> None:
        """A name that not every system can hold is refused with its reason; its neighbour goes."""
        with open(os.path.join(os.fsencode(root), b"notes", name), "wb") as handle:
            handle.write(b"x\n")
        (root / "notes/good.md").write_bytes(b"g\n")
        done = send(filled, tmp_path)
        assert done.sent == ("notes/good.md",)
        assert [os.fsencode(item.name) for item in done.refused] == [b"notes/" + name]
        assert done.refused[0].reason

    def test_twins(self, filled: Corpus, root: Path, tmp_path: Path) -> None:
        """Names that differ only in case: one goes, the other is named; the corpus's own is not replaced."""
        (root / "notes/Deploy.md").write_bytes(b"shout\n")
        (root / "notes/a.md").write_bytes(b"a\n")
        (root / "notes/A.md").write_bytes(b"A\n")
        done = send(filled, tmp_path)
        assert done.sent == ("notes/A.md",)
        assert refusals(done).keys() == {"notes/Deploy.md", "notes/a.md"}
        assert stored(filled, PLAN) == {PLAN: NOTES[PLAN].encode()}
        assert set(look(tmp_path).new) == {"notes/Deploy.md", "notes/a.md"}

    def test_too_large(self, filled: Corpus, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """A file over the limit is refused without being read; the rest goes."""
        monkeypatch.setattr(files, "FILE_BYTES_MAX", 1 << 20)
        with open(root / "notes/huge.bin", "wb") as handle:
            handle.truncate((1 << 20) + 1)
        (root / "notes/good.md").write_bytes(b"g\n")
        done = send(filled, tmp_path)
        assert done.sent == ("notes/good.md",)
        assert "larger than 1 MiB" in refusals(done)["notes/huge.bin"]

    def test_written_while_read(
        self, filled: Corpus, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A file that changes under the reader is read again; one that never keeps still is named, not sent torn."""
        (root / "notes/still.md").write_bytes(b"one\n")
        (root / "notes/busy.md").write_bytes(b"one\n")
        real, times = os.fstat, {"still.md": 1, "busy.md": 99}
        calls = 0

        def meddling(fd: int) -> os.stat_result:
            nonlocal calls
            found = real(fd)
            name = os.path.basename(os.readlink(f"/proc/self/fd/{fd}"))
            if times.get(name, 0) > 0:
                times[name] -= 1
                calls += 1
                with open(root / "notes" / name, "ab") as handle:
                    handle.write(b"more\n")
            return found

        monkeypatch.setattr(os, "fstat", meddling)
        done = send(filled, tmp_path)
        monkeypatch.undo()
        assert calls > 2
        assert done.sent == ("notes/still.md",)
        assert "being written to" in refusals(done)["notes/busy.md"]
        assert stored(filled, "notes/still.md")["notes/still.md"] == (root / "notes/still.md").read_bytes()

    def test_another_corpus(self, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """A tree of one corpus is not pushed into another."""
        other = Corpus.create(str(tmp_path / "other"))
        (root / "notes/new.md").write_bytes(b"new\n")
        done = subprocess.run(
            [sys.executable, "-m", "memfs.cli", "push", "--tree", str(root), "--corpus", other.uri],
            capture_output=True, text=True, timeout=60,
        )  # fmt: skip
        assert done.returncode == 2
        assert "belongs to another corpus" in done.stderr
        assert list(other.files()) == []


def killed(*_: object, **__: object) -> None:
    raise KeyboardInterrupt


class TestInterrupted:
    def test_between_commit_and_manifest(
        self, filled: Corpus, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The commit went through, the manifest did not: the next push finds the same bytes and adopts them."""
        (root / PLAN).write_bytes(MINE)
        (root / "notes/new.md").write_bytes(b"new\n")
        with monkeypatch.context() as patch:
            patch.setattr("memfs.push._record", killed)
            with pytest.raises(KeyboardInterrupt):
                send(filled, tmp_path)
        assert stored(filled, PLAN) == {PLAN: MINE}
        done = send(filled, tmp_path)
        assert (done.sent, done.adopted, done.conflicts) == ((), (PLAN, "notes/new.md"), ())
        said = look(tmp_path)
        assert (said.modified, said.new, said.conflicting) == ((), (), ())

    def test_between_copy_and_base(
        self, filled: Corpus, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The copy was laid, or only announced, and the run killed: the edit is not sent over the corpus's version."""
        commit(filled, one=THEIRS)
        (root / PLAN).write_bytes(MINE)
        for owner, step in ((Tree, "write"), (Manifest, "record")):
            with monkeypatch.context() as patch:
                patch.setattr(owner, step, killed)
                patch.setattr("memfs.push._record", lambda *_: None)
                with pytest.raises(KeyboardInterrupt):
                    send(filled, tmp_path)
            assert stored(filled, PLAN) == {PLAN: THEIRS}
        (copy,) = (root / "notes").glob("*.conflict-*")
        assert copy.read_bytes() == THEIRS
        assert send(filled, tmp_path).sent == ()
        assert look(tmp_path).new == ()
        copy.unlink()
        assert [c.path for c in send(filled, tmp_path).conflicts] == [PLAN]
        assert stored(filled, PLAN) == {PLAN: THEIRS}
        assert (root / PLAN).read_bytes() == MINE

    def test_edited_after_it_was_sent(self, filled: Corpus, root: Path, tmp_path: Path) -> None:
        """An edit of the same size right after a push is seen as one, however coarse the clock."""
        for n in range(5):
            (root / PLAN).write_bytes(b"sent %d\n" % n)
            before = (root / PLAN).stat()
            send(filled, tmp_path)
            (root / PLAN).write_bytes(b"edit %d\n" % n)
            os.utime(root / PLAN, ns=(before.st_atime_ns, before.st_mtime_ns))
            assert look(tmp_path).modified == (PLAN,)

    def test_a_boot_that_never_laid_it(self, filled: Corpus, tmp_path: Path) -> None:
        """A boot announced a file and was killed; the user then made one of that name: it does not replace theirs."""
        root = lay(filled, tmp_path)
        with opened(tmp_path) as tree, tree.manifest.writing():
            row = tree.manifest.all()[PLAN]
            tree.manifest.record([row._replace(seen=None, pending=row.sha256)])
        (root / PLAN).write_bytes(MINE)
        assert [c.path for c in send(filled, tmp_path).conflicts] == [PLAN]
        assert stored(filled, PLAN) == {PLAN: NOTES[PLAN].encode()}


@pytest.mark.parametrize("kind", ["local", "s3"])
def test_two_at_once(kind: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """Two sandboxes push the same file at the same time: one wins, the other gets the conflict, nothing is lost."""
    store = Store("local", tmp_path) if kind == "local" else request.getfixturevalue("s3")
    corpus = Corpus.create(store.uri())
    with corpus.writing():
        corpus.commit([document(PLAN, NOTES[PLAN])])
    names = [f"t{n}" for n in range(3)]
    for name in names:
        (lay(corpus, tmp_path, name) / PLAN).write_text(f"by {name}\n")
        (tmp_path / name / f"notes/{name}.md").write_text(f"own of {name}\n")
    running = [
        subprocess.Popen(
            [sys.executable, "-m", "memfs.cli", "push", "--tree", str(tmp_path / name), "--corpus", corpus.uri],
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
        )
        for name in names
    ]  # fmt: skip
    ended = [process.communicate(timeout=120)[1] for process in running]
    codes = [process.returncode for process in running]
    assert sorted(codes) == [0, 7, 7], ended
    winner = names[codes.index(0)]
    assert stored(corpus) == {PLAN: f"by {winner}\n".encode()} | {
        f"notes/{name}.md": f"own of {name}\n".encode() for name in names
    }
    for name in names:
        assert (tmp_path / name / PLAN).read_text() == f"by {name}\n"
        copies = [file.read_text() for file in (tmp_path / name / "notes").glob("*.conflict-*")]
        assert copies == ([] if name == winner else [f"by {winner}\n"])
    rows = Corpus.open(corpus.uri)._table.to_arrow().column("id").to_pylist()
    assert len(rows) == len(set(rows))


def test_nothing_to_send_takes_no_lease(
    filled: Corpus, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A push of nothing neither waits for other writers nor makes a version."""
    monkeypatch.setattr(Corpus, "writing", lambda *_, **__: pytest.fail("took the lease"))
    version = filled.refresh()
    assert send(filled, tmp_path).version == version


def test_old_manifest(filled: Corpus, root: Path, tmp_path: Path) -> None:
    """A manifest of format 1 is brought to format 2 when it is opened, and its files are known."""
    with opened(tmp_path) as tree:
        for table in ("heard", "copies", "imported"):
            tree.manifest._db.execute(f"DROP TABLE {table}")
        tree.manifest.set_meta("format", "1")
    assert look(tmp_path).clean == len(NOTES)
    (root / PLAN).write_bytes(MINE)
    assert send(filled, tmp_path).sent == (PLAN,)


def test_memory_surface(filled: Corpus, root: Path, tmp_path: Path) -> None:
    """From Python: status and push."""
    import memfs

    (root / PLAN).write_bytes(MINE)
    memory = memfs.connect(filled.uri)
    assert memory.status(str(root)).modified == (PLAN,)
    assert memory.push(directory=str(root)).sent == (PLAN,)
    with pytest.raises(NotFoundError):
        memory.push(directory=str(tmp_path / "none"))


def test_a_corpus_made_anew(filled: Corpus, tmp_path: Path) -> None:
    """Nothing is sent into another corpus that lies at the place of the one that this tree was laid from."""
    root = lay(filled, tmp_path)
    (root / "notes/mine.md").write_bytes(MINE)
    shutil.rmtree(filled.uri)
    anew = Corpus.create(filled.uri)
    for dry_run in (True, False):
        with pytest.raises(CorruptError):
            send(anew, tmp_path, dry_run=dry_run)
    assert list(Corpus.open(filled.uri).files()) == []
    assert (root / "notes/mine.md").read_bytes() == MINE
