"""memfs add: byte for byte, once, and one bad file never stops the rest."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from conftest import Store, long_text, tree_of

from memfs.add import Added, add
from memfs.corpus.sources.formats import target
from memfs.corpus.table import Corpus
from memfs.errors import InputError, MemfsError, NotFoundError, PathError, UnreachableError
from memfs.export import export

ODD = {
    "empty.txt": b"",
    "no-end.md": b"# Title\n\nno newline at the end",
    "crlf.md": b"# Title\r\n\r\nline\r\n" * 300,
    "cr.txt": b"old mac\rline\r" * 500,
    "latin1.txt": "déjà vu, réunion\n".encode("latin-1") * 200,
    "utf16.txt": ("Grüße an alle\n" * 300).encode("utf-16"),
    "utf16be.txt": b"\xfe\xff" + ("日本語\n" * 300).encode("utf-16-be"),
    "bom.md": b"\xef\xbb\xbf# Title\n",
    "zeros.bin": bytes(3_000_000),
    "mixed.bin": b"text\n\x00\xff\n" * 1_000,
    "long-line.json": b'{"a": "' + b"x" * 300_000 + b'"}',
    "formfeed.txt": b"a\x0cb\x0bc\x1c\x1d\x1e\x85\xe2\x80\xa8d\n" * 200,
    "deep/er/still/日本語 ファイル.md": "内容です。\n".encode() * 400,
    "it's 100% odd #1.md": b"odd\n",
    ".hidden": b"hidden\n",
}


@pytest.fixture
def source(tmp_path: Path) -> Path:
    folder = tmp_path / "source"
    for name, data in ODD.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    return folder


def counts(added: Added) -> tuple[int, int, int, int]:
    return added.added, added.replaced, added.unchanged, added.skipped_count


def test_byte_for_byte(corpus: Corpus, source: Path, tmp_path: Path) -> None:
    """Whatever the encoding, line ends or size: what is added is what is exported, with its modification time."""
    os.utime(source / "bom.md", ns=(1_600_000_000_123_456_000,) * 2)
    added = add(corpus, [str(source)])
    assert counts(added) == (len(ODD), 0, 0, 0)
    assert added.bytes == sum(map(len, ODD.values()))
    done = export(corpus, str(tmp_path / "out"), under="notes")
    assert (done.files, tree_of(tmp_path / "out")) == (len(ODD), ODD)
    assert (tmp_path / "out/bom.md").stat().st_mtime_ns == 1_600_000_000_123_456_000
    assert subprocess.run(["diff", "-r", source, tmp_path / "out"], capture_output=True).stdout == b""


def test_again_changes_nothing(corpus: Corpus, source: Path) -> None:
    """Adding again makes no version; after an edit only that file is replaced."""
    add(corpus, [str(source)])
    version = corpus.version
    again = add(Corpus.open(corpus.uri), [str(source)])
    assert (counts(again), again.version, again.passages) == ((0, 0, len(ODD), 0), version, 0)
    (source / "bom.md").write_bytes(b"new\n")
    assert counts(add(corpus, [str(source)])) == (0, 1, len(ODD) - 1, 0)
    assert corpus.read(["notes/bom.md"])["notes/bom.md"].data == b"new\n"


def test_dry_run(corpus: Corpus, source: Path) -> None:
    """A dry run counts as the add does, and makes no version."""
    version = corpus.version
    said = add(corpus, [str(source)], dry_run=True)
    assert said.dry_run
    assert Corpus.open(corpus.uri).version == version
    assert counts(said) == counts(add(corpus, [str(source)]))


def test_bad_files_are_counted(corpus: Corpus, source: Path, tmp_path: Path) -> None:
    """Symlinks, special files, .git, refused names and twins are skipped and named; the rest is stored."""
    (tmp_path / "stranger").write_text("secret\n")
    (source / "link.md").symlink_to(tmp_path / "stranger")
    (source / "link-folder").symlink_to(tmp_path)
    (source / "dangling").symlink_to("nowhere")
    os.mkfifo(source / "fifo")
    (source / ".git").mkdir()
    (source / ".git/config").write_text("[core]\n")
    (source / "con.txt").write_text("device\n")
    (source / "back\\slash").write_text("x\n")
    (source / "new\nline").write_text("x\n")
    (source / "BOM.md").write_text("twin\n")
    (source / os.fsdecode(b"not-utf8-\xff.md")).write_text("x\n")
    added = add(corpus, [str(source)])
    skipped = {item.name: item.reason for item in added.skipped}
    assert added.skipped_count == len(added.skipped) == 10
    assert added.added == len(ODD)
    assert "symlink" in skipped["link.md"]
    assert "Git" in skipped[".git"]
    assert all(item.reason for item in added.skipped)
    assert b"secret\n" not in {f.data for f in corpus.read([i.path for i in corpus.files()]).values()}


@pytest.mark.skipif(os.getuid() == 0, reason="root reads every file")
def test_unreadable(corpus: Corpus, source: Path) -> None:
    """A file or folder without read permission is skipped and named."""
    (source / "bom.md").chmod(0)
    (source / "deep").chmod(0)
    assert add(corpus, [str(source)]).skipped_count == 2


def test_file_vanishes(corpus: Corpus, source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that goes away between listing and reading is skipped."""

    def vanish(files: int, size: int) -> None:
        (source / "zeros.bin").unlink(missing_ok=True)

    added = add(corpus, [str(source)], progress=vanish)
    assert [item.name for item in added.skipped] == ["zeros.bin"]
    assert added.added == len(ODD) - 1


def test_where_files_go(corpus: Corpus, source: Path) -> None:
    """`--as` names the top folder, `--under` a folder in it; one file keeps its name."""
    add(corpus, [str(source / "bom.md")], surface="knowledge", under="concepts")
    add(corpus, [str(source / "bom.md")], under="notes/other/")
    assert [info.path for info in corpus.files()] == ["knowledge/concepts/bom.md", "notes/other/bom.md"]
    assert {info.kind for info in corpus.files()} == {"page", "note"}


@pytest.mark.parametrize(
    ("surface", "under", "expected"),
    [
        (None, "", "notes/"),
        (None, "sessions/x", "sessions/x/"),
        ("knowledge", "", "knowledge/"),
        ("notes", "notes/a", "notes/a/"),
        ("notes", "a/b/", "notes/a/b/"),
        ("notes", "memory/notes", "notes/"),
    ],
)
def test_target(surface: str | None, under: str, expected: str) -> None:
    """The prefix, however it is written."""
    assert target("notes", surface, under) in (expected, expected.replace("notes/notes/", "notes/"))


def test_wrong_arguments(corpus: Corpus, source: Path) -> None:
    """An unknown format or surface, a prefix that leads out, and no such source are errors with a hint."""
    for options in ({"format": "pdf"}, {"surface": "stuff"}):
        with pytest.raises(InputError) as caught:
            add(corpus, [str(source)], **options)  # type: ignore[arg-type]
        assert caught.value.hint
    with pytest.raises(PathError):
        add(corpus, [str(source)], under="../out")
    with pytest.raises(NotFoundError):
        add(corpus, [str(source / "none")])


def test_several_sources(corpus: Corpus, source: Path, tmp_path: Path) -> None:
    """Of two sources with the same file name the first stays, and the second is reported."""
    other = tmp_path / "other"
    other.mkdir()
    (other / "bom.md").write_text("other\n")
    added = add(corpus, [str(source), str(other)])
    assert [item.name for item in added.skipped] == ["notes/bom.md"]
    assert corpus.read(["notes/bom.md"])["notes/bom.md"].data == ODD["bom.md"]


def test_from_s3(s3: Store, source: Path, tmp_path: Path) -> None:
    """A bucket's objects come in through s3fs, byte for byte, again without change; a missing prefix is an error."""
    import s3fs

    filesystem = s3fs.S3FileSystem(skip_instance_cache=True)
    bucket = s3.uri("").removeprefix("s3://").rstrip("/")
    for name, data in ODD.items():
        filesystem.pipe_file(f"{bucket}/source/{name}", data)
    corpus = Corpus.create(s3.uri())
    added = add(corpus, [f"s3://{bucket}/source"])
    assert counts(added) == (len(ODD), 0, 0, 0)
    export(corpus, str(tmp_path / "out"), under="notes")
    assert tree_of(tmp_path / "out") == ODD
    assert counts(add(corpus, [f"s3://{bucket}/source"])) == (0, 0, len(ODD), 0)
    assert counts(add(corpus, [f"s3://{bucket}/source/bom.md"], under="notes/one")) == (1, 0, 0, 0)
    with pytest.raises(NotFoundError):
        add(corpus, [f"s3://{bucket}/nothing-here"])


def test_from_s3_denied(s3: Store, corpus: Corpus, monkeypatch: pytest.MonkeyPatch) -> None:
    """A denied source is an error without the key in it, and nothing is stored."""
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong-and-secret")
    with pytest.raises(MemfsError) as caught:
        add(corpus, [f"{s3.uri('')}source"])
    assert "wrong-and-secret" not in f"{caught.value} {caught.value.hint}"
    assert list(corpus.files()) == []


def test_memory_url(corpus: Corpus) -> None:
    """Any fsspec URL is a source."""
    import fsspec

    with fsspec.open("memory://box/a/b.md", "wb") as handle:
        handle.write(b"from memory\n")
    assert add(corpus, ["memory://box"]).added == 1
    assert corpus.read(["notes/a/b.md"])["notes/a/b.md"].data == b"from memory\n"
    with pytest.raises((MemfsError, UnreachableError)):
        add(corpus, ["nosuchscheme://x/y"])


def test_many_batches(corpus: Corpus, tmp_path: Path) -> None:
    """A source of several batches is stored whole."""
    folder = tmp_path / "many"
    folder.mkdir()
    for n in range(90):
        (folder / f"{n:02d}.txt").write_text(long_text(f"m{n}", 6_000))
    added = add(corpus, [str(folder)])
    assert added.added == 90
    assert {p.name: p.read_bytes() for p in folder.iterdir()} == {
        path[6:]: f.data for path, f in corpus.read([i.path for i in corpus.files()]).items()
    }


def test_eips(corpus: Corpus, tmp_path: Path) -> None:
    """The EIPs tree goes in and comes out identical."""
    data = Path(os.environ.get("MEMFS_DATA") or Path(__file__).parents[2] / "shared" / "data") / "eips"
    if not data.is_dir():
        pytest.skip("no eips data; set MEMFS_DATA")
    add(corpus, [str(data)])
    export(corpus, str(tmp_path / "out"), under="notes")
    assert subprocess.run(["diff", "-r", data, tmp_path / "out"], capture_output=True).stdout == b""


def test_memory_is_not_added_to_itself(tmp_path: Path) -> None:
    """A corpus and a booted tree below the source are passed over and named; adding again changes nothing."""
    work = tmp_path / "work"
    (work / "plans").mkdir(parents=True)
    (work / "plans" / "a.md").write_text("# A\n")
    inside = Corpus.create(str(work / "corpus"))
    (work / "memory").mkdir()
    (work / "memory" / ".memfs.toml").write_text('corpus = "x"\nstate = "0123456789abcdef"\n')
    first, again = add(inside, [str(work)]), add(inside, [str(work)])
    assert counts(first)[:2] == (1, 0)
    assert (again.added, again.replaced) == (0, 0)
    assert {item.name: item.reason for item in first.skipped} == {
        "corpus": "a memfs corpus",
        "memory": "a tree that memfs laid",
    }
    with pytest.raises(InputError, match="a tree that memfs laid"):
        add(inside, [str(work / "memory")])


def test_time_of_a_broken_clock(corpus: Corpus, tmp_path: Path) -> None:
    """A file dated far in the future is added, and its time can be laid again."""
    file = tmp_path / "late.md"
    file.write_text("# Late\n")
    os.utime(file, (253_402_300_000, 253_402_300_000))
    assert add(corpus, [str(file)]).added == 1
    (info,) = [found for found in corpus.files() if found.path == "notes/late.md"]
    assert info.mtime.year <= 2250
