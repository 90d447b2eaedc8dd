"""The host's cache: bytes in, the same bytes out, or a miss; never a pickle, never a stranger's folder."""

from __future__ import annotations

import os
import pickle
import sqlite3
import stat
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from conftest import sha256

from memfs.errors import ConfigError, DiskError
from memfs.workset.cache import BootCopy, HostCache

SMALL, LARGE = b"small\n", b"large\n" * 20_000
"""In the database row, and in a file beside it."""


class Trap:
    """What runs code when it is unpickled."""

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.mkdir, (os.environ["TRAP"],)


@pytest.fixture
def cache(tmp_path: Path) -> Iterator[HostCache]:
    with closing(HostCache(str(tmp_path / "cache"))) as made:
        yield made


@pytest.fixture
def trap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that appears if a pickle was ever loaded."""
    monkeypatch.setenv("TRAP", str(tmp_path / "sprung"))
    return tmp_path / "sprung"


def tamper(cache: HostCache, statement: str, *values: object) -> None:
    """Write into the cache's database behind its back."""
    with closing(sqlite3.connect(os.path.join(cache.folder, "blobs", "cache.db"))) as database:
        database.execute(statement, values)
        database.commit()


def test_round_trip(cache: HostCache) -> None:
    """What was kept is what is read, small or large, empty too; what was not kept is a miss."""
    contents = {sha256(data): data for data in (b"", SMALL, LARGE, bytes(range(256)))}
    cache.keep(contents)
    assert cache.read([*contents, "0" * 64]) == contents
    with closing(HostCache(cache.folder)) as other:
        assert other.read(list(contents)) == contents


@pytest.mark.parametrize("data", [SMALL, LARGE])
def test_wrong_bytes_are_a_miss(cache: HostCache, data: bytes) -> None:
    """Bytes that do not match their name are dropped and never returned."""
    cache.keep({sha256(data): b"other" * len(data)})
    assert cache.read([sha256(data)]) == {}
    cache.keep({sha256(data): data})
    assert cache.read([sha256(data)]) == {sha256(data): data}


def test_damaged_file_is_a_miss(cache: HostCache) -> None:
    """A blob file cut short or gone on disk is a miss."""
    cache.keep({sha256(LARGE): LARGE})
    (file,) = (p for p in Path(cache.folder, "blobs").rglob("*.val"))
    file.write_bytes(LARGE[:100])
    assert cache.read([sha256(LARGE)]) == {}
    cache.keep({sha256(LARGE): LARGE})
    for file in Path(cache.folder, "blobs").rglob("*.val"):
        file.unlink()
    assert cache.read([sha256(LARGE)]) == {}


def test_pickled_value_is_refused(cache: HostCache, trap: Path) -> None:
    """A row that claims to be a pickle (mode 4), in the row or in a file, is a miss and is not loaded."""
    cache.keep({sha256(SMALL): SMALL, sha256(LARGE): LARGE})
    tamper(cache, "UPDATE Cache SET mode = 4, value = ?", pickle.dumps(Trap()))
    for file in Path(cache.folder, "blobs").rglob("*.val"):
        file.write_bytes(pickle.dumps(Trap()))
    assert cache.read([sha256(SMALL), sha256(LARGE)]) == {}
    assert not trap.exists()


def test_pickled_key_is_refused(cache: HostCache, trap: Path) -> None:
    """A row whose key claims to be a pickle (raw 0) is not loaded, nor does it break the cache."""
    cache.keep({sha256(SMALL): SMALL})
    tamper(cache, "UPDATE Cache SET raw = 0, key = ?", pickle.dumps(Trap()))
    assert cache.read([sha256(SMALL)]) == {}
    cache.keep({sha256(LARGE): LARGE})
    assert cache.read([sha256(LARGE)]) == {sha256(LARGE): LARGE}
    assert not trap.exists()


@pytest.mark.parametrize("name", ["../../secret", "{tmp_path}/secret", "x/../../../secret"])
def test_file_outside_is_refused(cache: HostCache, tmp_path: Path, name: str) -> None:
    """A row that points to a file outside the cache is a miss; that file is neither read nor deleted."""
    (tmp_path / "secret").write_bytes(b"secret")
    cache.keep({sha256(b"secret"): b"secret"})
    os.makedirs(os.path.join(cache.folder, "blobs", "x"))
    tamper(cache, "UPDATE Cache SET mode = 2, filename = ?, value = NULL", name.format(tmp_path=tmp_path))
    assert cache.read([sha256(b"secret")]) == {}
    assert (tmp_path / "secret").read_bytes() == b"secret"


def test_only_bytes_go_in(cache: HostCache) -> None:
    """Anything but bytes under a text key is refused on the way in."""
    blobs = cache._open()
    for key, value in (("k", {"a": 1}), ("k", "text"), (("t",), b"x"), (b"k", b"x"), (1, b"x")):
        with pytest.raises(TypeError):
            blobs.set(key, value)


def test_mode(cache: HostCache) -> None:
    """The folder is its owner's only; one left open by another program is closed."""
    os.makedirs(cache.folder, mode=0o755)
    cache.keep({sha256(SMALL): SMALL})
    assert stat.S_IMODE(os.stat(cache.folder).st_mode) == 0o700


@pytest.mark.skipif(os.getuid() != 0, reason="giving a folder away needs root")
def test_foreign_owner(cache: HostCache) -> None:
    """A folder that belongs to somebody else is refused with a hint."""
    os.makedirs(cache.folder)
    os.chown(cache.folder, 65_534, 65_534)
    with pytest.raises(ConfigError, match="another user") as caught:
        cache.read(["0" * 64])
    assert "MEMFS_CACHE_DIR" in str(caught.value.hint)


def test_symlinked_folder(tmp_path: Path) -> None:
    """A cache folder that is a symlink is refused."""
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "cache").symlink_to(tmp_path / "elsewhere")
    with pytest.raises((ConfigError, DiskError)):
        HostCache(str(tmp_path / "cache")).read(["0" * 64])


def test_foreign_boot_copy(tmp_path: Path) -> None:
    """A boot copy in a folder that is a stranger's, or that strangers can write, is not believed."""
    cache = HostCache(str(tmp_path / "cache"))
    cache.keep_boot("s3://b/x", BootCopy(b"data", "etag"))
    assert cache.boot_copy("s3://b/x") is not None
    if os.getuid() != 0:
        pytest.skip("giving a folder away needs root")
    os.chown(cache.folder, 65_534, 65_534)
    assert cache.boot_copy("s3://b/x") is None


def test_boot_copy(cache: HostCache) -> None:
    """A boot copy comes back whole under its own corpus; a damaged one is none."""
    cache.keep_boot("s3://b/x", BootCopy(b"data\nmore", '"etag"'))
    assert cache.boot_copy("s3://b/x") == BootCopy(b"data\nmore", '"etag"')
    assert cache.boot_copy("s3://b/y") is None
    (file,) = Path(cache.folder, "boot").iterdir()
    file.write_bytes(file.read_bytes()[:-1])
    assert cache.boot_copy("s3://b/x") is None
    file.write_bytes(b"\xff\n")
    assert cache.boot_copy("s3://b/x") is None


def test_unusable_cache_costs_nothing_but_time(tmp_path: Path) -> None:
    """A boot copy that cannot be kept is forgotten, without an error."""
    (tmp_path / "cache").write_bytes(b"a file")
    cache = HostCache(str(tmp_path / "cache"))
    cache.keep_boot("s3://b/x", BootCopy(b"data", "etag"))
    assert cache.boot_copy("s3://b/x") is None


def test_damaged_database(cache: HostCache) -> None:
    """A cache database that is no database is a miss, and takes nothing."""
    os.makedirs(os.path.join(cache.folder, "blobs"), mode=0o700)
    Path(cache.folder, "blobs", "cache.db").write_bytes(b"not a database, " * 1_000)
    cache.keep({sha256(SMALL): SMALL})
    assert cache.read([sha256(SMALL)]) == {}
    assert cache.has([sha256(SMALL)]) == frozenset()


def age(cache: HostCache, ages_s: dict[str, float]) -> None:
    """Make the database say that the blobs were last used so long ago."""
    for sha, seconds in ages_s.items():
        tamper(cache, "UPDATE Cache SET access_time = ? WHERE key = ?", time.time() - seconds, sha)


def used(cache: HostCache) -> dict[str, float]:
    with closing(sqlite3.connect(os.path.join(cache.folder, "blobs", "cache.db"))) as database:
        return dict(database.execute("SELECT key, access_time FROM Cache"))


class TestLimit:
    @pytest.mark.parametrize("size", [2_000, 50_000])
    def test_least_recently_used_goes(self, tmp_path: Path, size: int) -> None:
        """Over the limit, the blobs used longest ago go, in the database or in files, and no more than needed."""
        contents = {sha256(data): data for n in range(40) if (data := bytes([n]) * size)}
        names = list(contents)
        with closing(HostCache(str(tmp_path / "cache"))) as cache:
            cache.keep(contents)
            full = cache.blob_bytes()
            age(cache, {name: 1_000 - n for n, name in enumerate(names)})
        with closing(HostCache(str(tmp_path / "cache"), max_bytes=full)) as cache:
            new = b"new" * (size // 3)
            cache.keep({sha256(new): new})
            assert cache.blob_bytes() <= full
            left = cache.has(names)
            assert left == frozenset(names[len(names) - len(left) :])
            assert 25 <= len(left) < 40
            assert cache.read([sha256(new)]) == {sha256(new): new}
            on_disk = sum(file.stat().st_size for file in Path(cache.folder, "blobs").rglob("*.val"))
            assert on_disk == (len(left) + 1) * size - (size - len(new)) if size > 40_000 else on_disk == 0

    def test_one_large_batch(self, tmp_path: Path) -> None:
        """A batch of more than the limit fills it, and does not empty it."""
        contents = {sha256(data): data for n in range(100) if (data := bytes([n]) * 10_000)}
        with closing(HostCache(str(tmp_path / "cache"), max_bytes=600_000)) as cache:
            cache.keep(contents)
            assert cache.blob_bytes() <= 600_000
            assert len(cache.has(list(contents))) > 20

    def test_larger_than_the_limit(self, tmp_path: Path) -> None:
        """A value larger than the limit is not kept, and pushes nothing out."""
        with closing(HostCache(str(tmp_path / "cache"), max_bytes=300_000)) as cache:
            cache.keep({sha256(SMALL): SMALL})
            huge = b"h" * 300_001
            cache.keep({sha256(huge): huge})
            assert cache.has([sha256(SMALL), sha256(huge)]) == {sha256(SMALL)}

    def test_limit_is_this_processs(self, tmp_path: Path) -> None:
        """The limit is what this process was given, not what an earlier one left in the database."""
        with closing(HostCache(str(tmp_path / "cache"), max_bytes=10)) as cache:
            cache.keep({sha256(SMALL): SMALL, sha256(LARGE): LARGE})
            assert cache.has([sha256(LARGE)]) == frozenset()
        with closing(HostCache(str(tmp_path / "cache"))) as cache:
            cache.keep({sha256(LARGE): LARGE})
            assert cache.read([sha256(LARGE)]) == {sha256(LARGE): LARGE}

    def test_a_read_costs_a_write_once_a_day(self, cache: HostCache) -> None:
        """A blob read again the same day is not written to; after a day its last use is noted."""
        cache.keep({sha256(SMALL): SMALL, sha256(LARGE): LARGE})
        age(cache, {sha256(SMALL): 3_600, sha256(LARGE): 90_000})
        before = used(cache)
        cache.read([sha256(SMALL), sha256(LARGE)])
        after = used(cache)
        assert after[sha256(SMALL)] == before[sha256(SMALL)]
        assert after[sha256(LARGE)] > time.time() - 60

    def test_floor(self, tmp_path: Path) -> None:
        """Nothing is kept, blob or map, that would leave the disk below its floor; what is there is still read."""
        with closing(HostCache(str(tmp_path / "cache"))) as cache:
            cache.keep({sha256(SMALL): SMALL})
        with closing(HostCache(str(tmp_path / "cache"), min_free_bytes=1 << 49)) as cache:
            cache.keep({sha256(LARGE): LARGE})
            cache.keep_boot("s3://b/x", BootCopy(b"data", "etag"))
            assert cache.boot_copy("s3://b/x") is None
            assert cache.has([sha256(SMALL), sha256(LARGE)]) == {sha256(SMALL)}
            assert cache.read([sha256(SMALL)]) == {sha256(SMALL): SMALL}

    def test_blob_bytes(self, cache: HostCache) -> None:
        """Counts the blobs only, and makes no folder to find out."""
        assert cache.blob_bytes() == 0
        assert not os.path.exists(cache.folder)
        cache.keep({sha256(LARGE): LARGE})
        before = cache.blob_bytes()
        assert len(LARGE) < before < len(LARGE) + 200_000
        os.makedirs(os.path.join(cache.folder, "flat"))
        Path(cache.folder, "flat", "x").write_bytes(bytes(1 << 20))
        assert cache.blob_bytes() == before
