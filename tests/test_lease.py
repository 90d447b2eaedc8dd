"""The lease: one writer at a time, a dead one is replaced, a paused one finds out."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from conftest import Store, document, long_text

from memfs.corpus import lease as leases
from memfs.corpus.lease import KEY, hold
from memfs.corpus.location import parse
from memfs.corpus.objects import Objects
from memfs.corpus.table import Corpus
from memfs.errors import ConflictError, CorruptError, MemfsError


@pytest.fixture
def short_ttl(monkeypatch: pytest.MonkeyPatch) -> float:
    """A lease that can be taken over after 0.6 s of silence."""
    monkeypatch.setattr(leases, "TTL_S", 0.6)
    return 0.6


def fence(objects: Objects) -> int:
    """The number in the stored lease."""
    fetched = objects.read(KEY)
    assert fetched is not None
    return int(json.loads(fetched.data)["fence"])


def abandon(lease: leases.Lease) -> None:
    """Stop a holder's heart without release: as a kill, or a machine put to sleep, would."""
    lease._stop.set()  # type: ignore[attr-defined]
    lease._heart.join()  # type: ignore[attr-defined]


class TestRemote:
    """On an object store: conditional PUTs, fence and heartbeat."""

    @pytest.fixture
    def objects(self, s3: Store) -> Objects:
        return Objects(parse(s3.uri()))

    def test_fence_grows(self, s3: Store, objects: Objects) -> None:
        """Every taking has a higher number than the one before, and a released lease is free at once."""
        numbers = []
        for _ in range(3):
            with hold(parse(s3.uri()), objects) as lease:
                assert lease.still_held()
                numbers.append(fence(objects))
        assert numbers == [1, 2, 3]

    def test_second_waits(self, s3: Store, objects: Objects) -> None:
        """While a holder lives nobody else gets it; the error says who and what to do."""
        location = parse(s3.uri())
        second = hold(location, objects, wait_s=0.5)
        with hold(location, objects), pytest.raises(ConflictError, match="another writer") as caught, second:
            raise AssertionError("two holders")
        assert "wait" in str(caught.value.hint)

    def test_heart_keeps_it(self, s3: Store, objects: Objects, short_ttl: float) -> None:
        """A holder that works for several TTLs keeps its lease: its heart renews it."""
        with hold(parse(s3.uri()), objects) as lease:
            with pytest.raises(ConflictError), hold(parse(s3.uri()), objects, wait_s=short_ttl * 3):
                raise AssertionError("two holders")
            assert lease.still_held()
        assert fence(objects) == 1

    def test_takeover(self, s3: Store, objects: Objects, short_ttl: float) -> None:
        """A silent holder is replaced after the TTL; it then finds out, and its release harms nobody."""
        dead = leases._RemoteLease(objects, 5)
        abandon(dead)
        started = time.monotonic()
        with hold(parse(s3.uri()), objects) as second:
            assert time.monotonic() - started >= short_ttl
            assert fence(objects) == 2
            assert not dead.still_held()
            dead.release()
            assert second.still_held()
        with hold(parse(s3.uri()), objects) as third:
            assert third.still_held()
            assert fence(objects) == 3

    def test_dead_process_is_replaced(self, s3: Store, short_ttl: float) -> None:
        """A writer killed with -9 while holding the lease delays the next one by the TTL only."""
        corpus = Corpus.create(s3.uri())
        script = (
            "import sys, time; from memfs.corpus.table import Corpus\n"
            f"with Corpus.open({s3.uri()!r}).writing(): print('held', flush=True); time.sleep(60)"
        )
        with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, env=os.environ) as holder:
            assert holder.stdout is not None
            assert holder.stdout.readline() == b"held\n"
            holder.send_signal(signal.SIGKILL)
            holder.wait()
        corpus.commit([document("notes/a.md", "after\n")])
        assert corpus.read(["notes/a.md"])["notes/a.md"].data == b"after\n"

    def test_damaged_lease(self, objects: Objects, s3: Store) -> None:
        """A lease that is not ours to read is an error with the way out, not a free lease."""
        objects.write(KEY, b"{not json")
        with pytest.raises(CorruptError, match=r"lease\.json") as caught, hold(parse(s3.uri()), objects):
            raise AssertionError("held")
        assert "delete" in str(caught.value.hint)


class TestFolder:
    """On a local folder: the kernel's lock."""

    def test_excludes(self, tmp_path: Path, corpus: Corpus) -> None:
        """A second holder waits, and gives up with an error; afterwards the lease is free."""
        location = parse(corpus.uri)
        with hold(location, corpus.objects), pytest.raises(ConflictError), hold(location, corpus.objects, wait_s=0.2):
            raise AssertionError("two holders")
        with hold(location, corpus.objects, wait_s=0.2) as lease:
            assert lease.still_held()

    def test_kernel_frees_it(self, corpus: Corpus) -> None:
        """A killed holder leaves nothing to wait for."""
        script = (
            "import sys, time; from memfs.corpus.table import Corpus\n"
            f"with Corpus.open({corpus.uri!r}).writing(): print('held', flush=True); time.sleep(60)"
        )
        with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE) as holder:
            assert holder.stdout is not None
            assert holder.stdout.readline() == b"held\n"
            holder.send_signal(signal.SIGKILL)
            holder.wait()
        with hold(parse(corpus.uri), corpus.objects, wait_s=1):
            pass

    def test_planted_symlink(self, corpus: Corpus, tmp_path: Path) -> None:
        """A symlink planted as the lock file is not followed."""
        victim = tmp_path / "victim"
        lock = Path(corpus.uri) / leases.LOCK_FILE
        lock.unlink(missing_ok=True)
        lock.symlink_to(victim)
        with pytest.raises(MemfsError), hold(parse(corpus.uri), corpus.objects):
            raise AssertionError("held")
        assert not victim.exists()


def test_lost_lease_is_repaired(s3: Store, short_ttl: float) -> None:
    """A writer that lost its lease while committing checks its ids: of doubled rows one stays, the file is whole."""
    first, second = Corpus.create(s3.uri()), Corpus.open(s3.uri())
    text = "same new file\n"

    def overtaken() -> bool:
        """Another writer stores the same new file just before the first one looks at its lease."""
        lease = first._lease
        assert lease is not None
        abandon(lease)
        first.__dict__["overtaken"] = True
        second.commit([document("notes/a.md", text), document("notes/b.md", "b\n")])
        return False

    with first.writing(publish=False):
        assert first._lease is not None
        first._lease.still_held = overtaken  # type: ignore[method-assign]
        first.commit([document("notes/a.md", text)])
    assert first.__dict__["overtaken"]
    reader = Corpus.open(s3.uri())
    rows = reader._table.to_arrow().column("id").to_pylist()
    assert sorted(rows) == ["notes/a.md#0", "notes/b.md#0"]
    assert reader.read(["notes/a.md"])["notes/a.md"].data == text.encode()


def test_torn_file_is_repaired(s3: Store, short_ttl: float) -> None:
    """Two writers replaced one file at once, with different lengths: it ends wholly as one of theirs."""
    first = Corpus.create(s3.uri())
    first.commit([document("notes/a.md", "old\n")])
    second = Corpus.open(s3.uri())
    send = first._send

    def overtaken(data: object, *, append: bool) -> None:
        """The other writer's longer version arrives after this one has read what is there."""
        assert first._lease is not None
        abandon(first._lease)
        first._send = send  # type: ignore[method-assign]
        second.commit([document("notes/a.md", long_text("second", 300))])
        send(data, append=append)

    first._send = overtaken  # type: ignore[method-assign]
    first.commit([document("notes/a.md", long_text("first", 60))])
    reader = Corpus.open(s3.uri())
    assert reader.read(["notes/a.md"])["notes/a.md"].data == long_text("first", 60).encode()
    rows = reader._table.to_arrow().column("id").to_pylist()
    assert len(rows) == len(set(rows))
