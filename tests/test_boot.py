"""memfs boot: the map in one GET, edits kept, and a clear word when the store is away."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import NOTES, Ran, Store, document, leftovers, long_text, tree_of

from memfs.boot import Receipt, boot
from memfs.corpus import bootset
from memfs.corpus.table import Corpus
from memfs.errors import (
    AccessError,
    ConfigError,
    CorruptError,
    MemfsError,
    NotACorpusError,
    NotFoundError,
    UnreachableError,
)
from memfs.get import get
from memfs.status import status
from memfs.testing import Proxy, free_port
from memfs.workset.tree import Tree

SECONDS_MAX = 15


def run(uri: str, tmp_path: Path, tree: str = "memory", *, cache: str = "cache", **options: object) -> Receipt:
    """Boot into `tmp_path / tree` with this test's cache and state."""
    return boot(
        uri,
        str(tmp_path / tree),
        cache_dir=str(tmp_path / cache),
        state_dir=str(tmp_path / "state"),
        **options,  # type: ignore[arg-type]
    )


def fill(uri: str) -> Corpus:
    """A published corpus at `uri`."""
    corpus = Corpus.create(uri)
    with corpus.writing():
        corpus.commit([document(path, text) for path, text in NOTES.items()])
    return corpus


def is_clean(tmp_path: Path, tree: str = "memory") -> bool:
    with Tree.open(str(tmp_path / tree), str(tmp_path / "state")) as opened:
        found = status(opened, "")
        return not (found.modified or found.new or found.deleted)


class TestEveryStore:
    def test_boot(self, store: Store, tmp_path: Path) -> None:
        """A first boot lays the map byte for byte and its receipt counts the corpus's files; status is clean."""
        fill(store.uri())
        receipt = run(store.uri(), tmp_path)
        found = tree_of(tmp_path / "memory")
        assert "# Sessions" in found.pop("sessions/index.md").decode()
        assert found == {path: text.encode() for path, text in NOTES.items()}
        assert (receipt.files_here, receipt.files_written, receipt.total_files) == (6, 7, 6)
        assert not receipt.offline
        assert receipt.newest_version is not None
        assert receipt.newest_version >= receipt.corpus_version
        assert is_clean(tmp_path)
        assert leftovers(tmp_path) == []

    def test_again(self, store: Store, tmp_path: Path) -> None:
        """A second boot writes nothing, and after a commit only what changed."""
        corpus = fill(store.uri())
        run(store.uri(), tmp_path)
        assert run(store.uri(), tmp_path).files_written == 0
        with corpus.writing():
            corpus.commit([document("notes/deploy.md", "# Deploy\n\nOn Monday.\n"), document("notes/new.md", "new\n")])
        receipt = run(store.uri(), tmp_path)
        assert tree_of(tmp_path / "memory")["notes/deploy.md"] == b"# Deploy\n\nOn Monday.\n"
        assert tree_of(tmp_path / "memory")["notes/new.md"] == b"new\n"
        assert receipt.files_written in (2, 3)
        assert is_clean(tmp_path)

    def test_nothing_there(self, store: Store, tmp_path: Path) -> None:
        """No corpus: an error with a hint, and no folder is made."""
        with pytest.raises(NotFoundError) as caught:
            run(store.uri("nothing"), tmp_path)
        assert "memfs init" in str(caught.value.hint)
        assert not (tmp_path / "memory").exists()

    def test_lost_boot_set(self, store: Store, tmp_path: Path) -> None:
        """A missing boot set costs a rebuild, which is published for the next."""
        corpus = fill(store.uri())
        corpus.objects.delete(bootset.KEY)
        assert run(store.uri(), tmp_path).files_written == 7
        assert corpus.objects.read(bootset.KEY) is not None
        assert is_clean(tmp_path)


class TestRequests:
    def test_first_boot(self, proxy: Proxy, s3: Store, tmp_path: Path) -> None:
        """A first boot is one GET and one LIST; the second is the same with a 304, and brings no bytes."""
        corpus = Corpus.create(s3.uri())
        with corpus.writing():
            corpus.commit([document(f"notes/{n}.md", long_text(f"n{n}", 20)) for n in range(300)])
        proxy.reset()
        assert not run(s3.uri(), tmp_path).from_cache
        first = proxy.traffic()
        assert first.requests == {"GET": 2}, first.lines
        assert sum("list-type=2" in line for line in first.lines) == 1
        proxy.reset()
        receipt = run(s3.uri(), tmp_path, "second")
        assert receipt.from_cache
        assert receipt.files_written == 300
        second = proxy.traffic()
        assert second.requests == {"GET": 2}, second.lines
        assert second.bytes_down < first.bytes_down / 2
        assert tree_of(tmp_path / "memory") == tree_of(tmp_path / "second")


class TestEdits:
    def test_refresh_keeps_edits(self, filled: Corpus, tmp_path: Path) -> None:
        """Edited, made, deleted here: edits and own files stay, a deleted file stays away, and all are named."""
        run(filled.uri, tmp_path)
        root = tmp_path / "memory"
        (root / "notes/deploy.md").write_text("my words\n")
        (root / "notes/mine.md").write_text("mine\n")
        (root / "notes/people/ana.md").unlink()
        with filled.writing():
            filled.commit([document("notes/deploy.md", "their words\n"), document("notes/mine.md", "theirs\n")])
        receipt = run(filled.uri, tmp_path)
        assert [step.wanted.path for step in receipt.kept] == ["notes/deploy.md", "notes/mine.md"]
        assert (root / "notes/deploy.md").read_text() == "my words\n"
        assert (root / "notes/mine.md").read_text() == "mine\n"
        assert receipt.deleted == ("notes/people/ana.md",)
        assert not (root / "notes/people/ana.md").exists()
        assert (receipt.files_here, receipt.total_files) == (6, 7)

    def test_a_map_that_is_behind_undoes_nothing(self, filled: Corpus, tmp_path: Path) -> None:
        """A file that is newer here than in the published map keeps its newer bytes."""
        run(filled.uri, tmp_path)
        with filled.writing(publish=False):
            filled.commit([document("notes/deploy.md", "# Deploy\n\nOn Monday.\n")])
        with Tree.open(str(tmp_path / "memory"), str(tmp_path / "state")) as tree:
            get(filled, ["notes/deploy.md"], tree=tree, cache=None)
        assert run(filled.uri, tmp_path).files_written == 0
        assert tree_of(tmp_path / "memory")["notes/deploy.md"] == b"# Deploy\n\nOn Monday.\n"
        assert is_clean(tmp_path)

    def test_into_a_full_folder(self, filled: Corpus, tmp_path: Path) -> None:
        """A folder with files of the user's own becomes a tree, and keeps them."""
        root = tmp_path / "memory"
        (root / "notes").mkdir(parents=True)
        (root / "notes/deploy.md").write_text("mine\n")
        (root / "other.txt").write_text("other\n")
        receipt = run(filled.uri, tmp_path)
        assert [step.wanted.path for step in receipt.kept] == ["notes/deploy.md"]
        assert (root / "notes/deploy.md").read_text() == "mine\n"
        assert (root / "other.txt").read_text() == "other\n"

    def test_another_corpus(self, filled: Corpus, tmp_path: Path) -> None:
        """Booting another corpus over a tree is refused; the tree stays as it was."""
        run(filled.uri, tmp_path)
        before = tree_of(tmp_path / "memory")
        other = fill(str(tmp_path / "other"))
        with pytest.raises(ConfigError, match="belongs to another corpus"):
            run(other.uri, tmp_path)
        assert tree_of(tmp_path / "memory") == before

    def test_dry_run(self, filled: Corpus, tmp_path: Path) -> None:
        """A dry run makes no folder and writes no file."""
        receipt = run(filled.uri, tmp_path, dry_run=True)
        assert (receipt.files_here, receipt.files_written, receipt.dry_run) == (6, 0, True)
        assert not (tmp_path / "memory").exists()
        assert not (tmp_path / "state").exists()


class TestBudget:
    @pytest.fixture
    def large(self, corpus: Corpus) -> Corpus:
        """A corpus of 3 MB, more than the published map holds."""
        with corpus.writing():
            corpus.commit([document(f"notes/{n:03d}.md", long_text(f"n{n}", 300)) for n in range(170)])
        return corpus

    def test_smaller(self, large: Corpus, tmp_path: Path) -> None:
        """A smaller budget takes the most wanted files; the rest is counted as left out."""
        receipt = run(large.uri, tmp_path, budget_bytes=100_000)
        assert 50_000 < receipt.bytes_here <= 100_000
        assert sum(len(data) for data in tree_of(tmp_path / "memory").values()) == receipt.bytes_here
        left = sum(x.files for x in receipt.left_out if x.reason != bootset.NOT_INDEXED)
        assert left + receipt.files_here == receipt.total_files == 170

    def test_larger(self, large: Corpus, tmp_path: Path) -> None:
        """A larger budget is made out of the table, and the published map stays as it was."""
        before = large.objects.read(bootset.KEY)
        assert run(large.uri, tmp_path, "small").files_here < 170
        assert run(large.uri, tmp_path, "big", budget_bytes=50 << 20).files_here == 170
        assert large.objects.read(bootset.KEY) == before

    def test_none(self, large: Corpus, tmp_path: Path) -> None:
        """A budget of nothing lays nothing, and says so."""
        receipt = run(large.uri, tmp_path, budget_bytes=0)
        assert (receipt.files_here, tree_of(tmp_path / "memory")) == (0, {})


class TestStale:
    def test_older_map_is_reported(self, filled: Corpus, tmp_path: Path) -> None:
        """A map older than the table is used and reported; --rebuild mends it."""
        with filled.writing(publish=False):
            filled.commit([document("notes/late.md", "late\n")])
        receipt = run(filled.uri, tmp_path)
        assert receipt.newest_version is not None
        assert receipt.newest_version > receipt.corpus_version
        assert "notes/late.md" not in tree_of(tmp_path / "memory")
        receipt = run(filled.uri, tmp_path, rebuild=True)
        assert receipt.corpus_version == receipt.newest_version == filled.refresh()
        assert "notes/late.md" in tree_of(tmp_path / "memory")

    def test_damaged_boot_set(self, filled: Corpus, tmp_path: Path) -> None:
        """A damaged boot set is an error with the way out, which works; the folder is untouched."""
        filled.objects.write(bootset.KEY, b"damaged")
        with pytest.raises(CorruptError) as caught:
            run(filled.uri, tmp_path)
        assert "--rebuild" in str(caught.value.hint)
        assert not (tmp_path / "memory").exists()
        assert run(filled.uri, tmp_path, rebuild=True).files_written == 7
        assert run(filled.uri, tmp_path, "second").files_written == 7

    def test_hostile_boot_set(self, filled: Corpus, tmp_path: Path) -> None:
        """Names in a boot set that would lead outside are refused and named; the rest is laid."""
        found = filled.objects.read(bootset.KEY)
        assert found is not None
        made = bootset.unpack(found.data)
        hostile = tuple(
            bootset.BootFile(path, made.files[0].data, made.files[0].sha256, 0, "boot")
            for path in ("../out.md", "/tmp/out.md", "a/../../out.md", ".memfs.toml", "NOTES/deploy.md")
        )
        filled.objects.write(bootset.KEY, bootset.pack(made._replace(files=made.files + hostile)))
        receipt = run(filled.uri, tmp_path)
        assert {step.wanted.path for step in receipt.refused} >= {file.path for file in hostile[:4]}
        assert not (tmp_path / "out.md").exists()
        assert not Path("/tmp/out.md").exists()
        assert receipt.files_written == len(made.files)


class TestAway:
    def test_offline_with_a_cache(self, proxy: Proxy, s3: Store, tmp_path: Path) -> None:
        """An unreachable store and a cached map: the map is laid, and the receipt says offline."""
        fill(s3.uri())
        run(s3.uri(), tmp_path)
        proxy.refuse = True
        started = time.monotonic()
        receipt = run(s3.uri(), tmp_path, "second")
        assert time.monotonic() - started < SECONDS_MAX
        assert (receipt.offline, receipt.newest_version, receipt.files_written) == (True, None, 7)
        assert tree_of(tmp_path / "second") == tree_of(tmp_path / "memory")

    @pytest.mark.parametrize("fault", ["dead", "refuse", "hang", "cut", "no host"])
    def test_without_a_cache(
        self, fault: str, proxy: Proxy, s3: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A dead, refusing, silent or cut-off store: an error with a hint within seconds, and an untouched folder."""
        fill(s3.uri())
        if fault == "dead":
            monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{free_port()}")
        elif fault == "no host":
            monkeypatch.setenv("AWS_ENDPOINT_URL", "http://no-such-host.invalid:9000")
        elif fault == "cut":
            proxy.cut_after_bytes = 400
        else:
            setattr(proxy, fault, True)
        started = time.monotonic()
        with pytest.raises(UnreachableError) as caught:
            run(s3.uri(), tmp_path)
        assert time.monotonic() - started < SECONDS_MAX
        assert caught.value.hint
        assert not (tmp_path / "memory").exists()

    def test_denied_and_missing(self, s3: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Wrong keys and a bucket that does not exist are told apart, within seconds."""
        fill(s3.uri())
        started = time.monotonic()
        with pytest.raises(NotFoundError, match="bucket"):
            run("s3://memfs-no-such-bucket/x", tmp_path)
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong-and-secret")
        with pytest.raises(AccessError) as caught:
            run(s3.uri(), tmp_path)
        assert "wrong-and-secret" not in f"{caught.value} {caught.value.hint}"
        assert time.monotonic() - started < SECONDS_MAX
        assert not (tmp_path / "memory").exists()

    def test_denied_does_not_boot_from_the_cache(
        self, s3: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Who is refused by the store is refused, whatever this host has cached."""
        fill(s3.uri())
        run(s3.uri(), tmp_path)
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong-and-secret")
        with pytest.raises(AccessError):
            run(s3.uri(), tmp_path, "second")
        assert not (tmp_path / "second").exists()

    def test_damaged_cache(self, s3: Store, tmp_path: Path) -> None:
        """A damaged cached map is fetched anew."""
        fill(s3.uri())
        run(s3.uri(), tmp_path)
        for file in (tmp_path / "cache/boot").iterdir():
            file.write_bytes(file.read_bytes()[:-5])
        assert not run(s3.uri(), tmp_path, "second").from_cache
        assert tree_of(tmp_path / "second") == tree_of(tmp_path / "memory")

    def test_folder_corpus_gone(self, filled: Corpus, tmp_path: Path) -> None:
        """A local corpus that was deleted is no corpus, cached map or not; it is not recreated."""
        run(filled.uri, tmp_path)
        shutil.rmtree(filled.uri)
        with pytest.raises((NotACorpusError, NotFoundError)):
            run(filled.uri, tmp_path, "second")
        assert not os.path.exists(filled.uri)


@pytest.mark.skipif(os.getuid() == 0, reason="root may write everywhere")
def test_read_only_folder(filled: Corpus, tmp_path: Path) -> None:
    """A folder that may not be written is a clear error."""
    (tmp_path / "ro").mkdir(mode=0o500)
    with pytest.raises(MemfsError):
        run(filled.uri, tmp_path, "ro/memory")


def test_a_damaged_file_keeps_no_other_away(filled: Corpus, memfs: Callable[..., Ran], tmp_path: Path) -> None:
    """One file whose stored bytes are wrong: adds, boots and searches go on without it, and say so."""
    filled._table.update(where="path = 'notes/deploy.md'", values={"body": b"rotten\n"})
    filled.refresh()
    (tmp_path / "more.md").write_text("more zebra\n")
    assert memfs("add", str(tmp_path / "more.md"), "--corpus", filled.uri).code == 0
    ran = memfs("boot", "--corpus", filled.uri)
    assert ran.code == 0
    assert "left out: 1 file of notes/" in ran.out
    assert "damaged: memfs doctor says more" in ran.out
    assert "notes/more.md" in tree_of("memory")
    assert "notes/deploy.md" not in tree_of("memory")
    ran = memfs("grep", "-l", "zebra|rotten")
    assert ran.code == 10
    assert ran.out == "memory/notes/more.md\nmemory/sessions/2026/05/two/summary.md\n"
    assert "INCOMPLETE, not searched: 1 file" in ran.err
