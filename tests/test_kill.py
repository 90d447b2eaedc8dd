"""kill -9 at any moment: what is visible is whole, what was edited is kept, and the next run mends the rest.

A child process counts its own calls of the operating-system functions that change a
disk (link, rename, open for writing, write, unlink, fsync of SQLite goes with them) and
kills itself at the nth. Other children are killed from outside after a random delay.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from conftest import Store, document, leftovers, long_text, sha256, tree_of

from memfs import add as add_verb
from memfs.boot import boot
from memfs.corpus import lease as leases
from memfs.corpus.table import Corpus
from memfs.push import Pushed, push
from memfs.refresh import refresh
from memfs.status import status
from memfs.workset.manifest import Pin
from memfs.workset.tree import Tree

FILES = 24
CONFLICT = 7
KILLER = """
import os, signal, sys
at, calls = int(sys.argv[1]), 0
def counted(function):
    def call(*args, **options):
        global calls
        calls += 1
        if calls == at:
            os.kill(os.getpid(), signal.SIGKILL)
        return function(*args, **options)
    return call
for name in ("link", "rename", "replace", "open", "write", "unlink", "mkdir", "rmdir", "utime"):
    setattr(os, name, counted(getattr(os, name)))
sys.argv = ["memfs", *sys.argv[2:]]
try:
    from memfs.cli import main
    main()
finally:
    print("calls", calls, file=sys.stderr)
"""


def killed_at(call: int, *args: str) -> bool:
    """Run a command that kills itself at its `call`-th change of the disk; False if it made fewer and ended well."""
    done = subprocess.run([sys.executable, "-c", KILLER, str(call), *args], capture_output=True, text=True, timeout=60)
    assert done.returncode in (0, CONFLICT, -signal.SIGKILL), done.stderr
    return done.returncode == -signal.SIGKILL


def killed_after(delay_s: float, *args: str) -> bool:
    """Start a command and kill it after `delay_s`; False if it had ended by itself."""
    with subprocess.Popen(
        [sys.executable, "-m", "memfs.cli", *args], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as child:
        try:
            child.wait(delay_s)
        except subprocess.TimeoutExpired:
            child.send_signal(signal.SIGKILL)
        return child.wait() == -signal.SIGKILL


@pytest.fixture
def corpus(tmp_path: Path) -> Corpus:
    """A corpus of two versions: in the second every other file is another."""
    made = Corpus.create(str(tmp_path / "corpus"))
    with made.writing():
        made.commit([document(f"notes/d{n % 3}/{n:02d}.md", long_text(f"one{n}", 30)) for n in range(FILES)])
    return made


def advance(corpus: Corpus) -> None:
    with corpus.writing():
        corpus.commit([document(f"notes/d{n % 3}/{n:02d}.md", long_text(f"two{n}", 50)) for n in range(0, FILES, 2)])


def allowed(corpus: Corpus) -> dict[str, set[str]]:
    """Hashes that each file may have, over all versions."""
    made: dict[str, set[str]] = {}
    for version in range(1, corpus.version + 1):
        for info in corpus.at(version).files():
            made.setdefault(info.path, set()).add(info.sha256)
    return made


def check_visible(root: Path, corpus: Corpus, mine: dict[str, bytes]) -> None:
    """Every visible file is whole, and the user's are as they were."""
    may = allowed(corpus)
    for path, data in tree_of(root).items():
        if "/.memfs-" in f"/{path}":
            continue
        if path in mine:
            assert data == mine[path]
        else:
            assert sha256(data) in may[path], f"{path} is no whole file"
    assert set(mine) <= set(tree_of(root))


def check_mended(root: Path, corpus: Corpus, mine: dict[str, bytes], tmp_path: Path) -> None:
    """After one more boot: all files are here and new, nothing else is left, status names the user's only."""
    boot(corpus.uri, str(root), cache_dir=str(tmp_path / "cache"), state_dir=str(tmp_path / "state"))
    found = tree_of(root)
    newest = {info.path: info.sha256 for info in corpus.files()}
    assert {path: sha256(data) for path, data in found.items() if path not in mine} == {
        p: h for p, h in newest.items() if p not in mine
    }
    assert {path: found[path] for path in mine} == mine
    assert leftovers(root) == []
    with Tree.open(str(root), str(tmp_path / "state")) as tree:
        said = status(tree, corpus.uri)
    assert {*said.modified, *said.new, *(conflict.path for conflict in said.conflicting)} == set(mine)
    assert said.deleted == ()


def edit(root: Path) -> dict[str, bytes]:
    """Two edits and a file of the user's own."""
    mine = {"notes/d0/00.md": b"edited\n", "notes/d1/01.md": b"edited too\n", "notes/d2/own.md": b"own\n"}
    for path, data in mine.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(data)
    return mine


# The calls of a first boot: some 10 for the set-up, then about 6 a file.
@pytest.mark.parametrize(
    "call", [1, 2, 3, 5, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 27, 40, 63, 90, 120, 150]
)
def test_first_boot(call: int, corpus: Corpus, tmp_path: Path) -> None:
    """Killed at the nth change of the disk, a first boot leaves whole files only, and the next one completes it."""
    root = tmp_path / "memory"
    killed_at(call, "boot", str(root), "--corpus", corpus.uri)
    if root.exists():
        check_visible(root, corpus, {})
    check_mended(root, corpus, {}, tmp_path)


@pytest.mark.parametrize("call", [3, 6, 7, 8, 9, 10, 11, 12, 13, 14, 30, 55, 70])
def test_refresh(call: int, corpus: Corpus, tmp_path: Path) -> None:
    """Killed at the nth change of the disk, a refresh leaves each file at its old or new version, and edits."""
    root = tmp_path / "memory"
    boot(corpus.uri, str(root), cache_dir=str(tmp_path / "cache"), state_dir=str(tmp_path / "state"))
    mine = edit(root)
    advance(corpus)
    killed_at(call, "boot", str(root), "--corpus", corpus.uri)
    check_visible(root, corpus, mine)
    check_mended(root, corpus, mine, tmp_path)


def test_every_file_is_reached(corpus: Corpus, tmp_path: Path) -> None:
    """A boot makes more calls than the first ones that are tried above, and ends well when nobody kills it."""
    assert killed_at(60, "boot", str(tmp_path / "a"), "--corpus", corpus.uri)
    assert not killed_at(100_000, "boot", str(tmp_path / "b"), "--corpus", corpus.uri)


@pytest.mark.parametrize(("command", "call"), [("get", 25), ("get", 60), ("fetch", 40)])
def test_get_and_fetch(command: str, call: int, corpus: Corpus, tmp_path: Path) -> None:
    """The same holds for get and fetch."""
    root = tmp_path / "memory"
    boot(corpus.uri, str(root), cache_dir=str(tmp_path / "cache"), state_dir=str(tmp_path / "state"), budget_bytes=0)
    mine = edit(root)
    advance(corpus)
    what = (
        [".", "--tree", str(root)]
        if command == "get"
        else ["one line words of no weight two", "-k", "40", "--tree", str(root)]
    )
    killed_at(call, command, *what, "--corpus", corpus.uri)
    check_visible(root, corpus, mine)
    check_mended(root, corpus, mine, tmp_path)


# The calls of a push of two files and a conflict: the tree's lock, the reads, the lease, the copy.
@pytest.mark.parametrize("call", [4, 8, 12, 15, 18, 20, *range(21, 28)])
def test_push(call: int, corpus: Corpus, tmp_path: Path) -> None:
    """Killed at the nth change of the disk, a push loses no edit and sends none over a newer version."""
    root = tmp_path / "memory"
    boot(corpus.uri, str(root), cache_dir=str(tmp_path / "cache"), state_dir=str(tmp_path / "state"))
    mine = edit(root)
    advance(corpus)
    killed_at(call, "push", "--tree", str(root), "--corpus", corpus.uri)
    check_pushed(root, corpus, mine, tmp_path)


@pytest.mark.parametrize("seed", range(3))
def test_push_killed_at_random(seed: int, corpus: Corpus, tmp_path: Path) -> None:
    """The same, killed from outside at a random moment; 1.2 s go by before the first commit."""
    root = tmp_path / "memory"
    boot(corpus.uri, str(root), cache_dir=str(tmp_path / "cache"), state_dir=str(tmp_path / "state"))
    mine = edit(root)
    advance(corpus)
    killed_after(random.Random(seed).uniform(0.8, 2.2), "push", "--tree", str(root), "--corpus", corpus.uri)
    check_pushed(root, corpus, mine, tmp_path)


def check_pushed(root: Path, corpus: Corpus, mine: dict[str, bytes], tmp_path: Path) -> None:
    """The edits are whole, here or there; the conflict is seen before it is settled; then everything goes."""
    newest = corpus.read(["notes/d0/00.md"])["notes/d0/00.md"].data
    found = tree_of(root)
    assert {path: found[path] for path in mine} == mine
    copies = {path: data for path, data in found.items() if ".conflict-" in path}
    assert set(copies.values()) <= {newest}
    assert Corpus.open(corpus.uri).read(["notes/d0/00.md"])["notes/d0/00.md"].data == newest
    done = send(root, corpus, tmp_path)
    assert [conflict.path for conflict in done.conflicts] == ["notes/d0/00.md"]
    assert done.refused == ()
    # A run that was killed before it settled the conflict finds it once more.
    for _ in range(2):
        for copy in root.rglob("*.conflict-*"):
            copy.unlink()
        done = send(root, corpus, tmp_path)
    assert done.conflicts == ()
    held = Corpus.open(corpus.uri).read(list(mine))
    assert {path: file.data for path, file in held.items()} == mine
    assert leftovers(root) == []
    with Tree.open(str(root), str(tmp_path / "state")) as tree:
        said = status(tree, corpus.uri)
    assert (said.modified, said.new, said.deleted, said.conflicting) == ((), (), (), ())


def send(root: Path, corpus: Corpus, tmp_path: Path) -> Pushed:
    with Tree.open(str(root), str(tmp_path / "state")) as tree:
        return push(Corpus.open(corpus.uri), tree)


# After the set-up: about 7 calls a replaced file, 4 a conflict copy, 1 a removed file.
@pytest.mark.parametrize(
    "call",
    [3, 10, 12, 14, 16, 40, 77, 84, 88, 96, 104, 107, 108, 109, 110],
)
def test_refresh_command(call: int, corpus: Corpus, tmp_path: Path) -> None:
    """Killed at the nth change of the disk, a refresh leaves whole files and the user's, and the next one completes."""
    root = tmp_path / "memory"
    boot(corpus.uri, str(root), cache_dir=str(tmp_path / "cache"), state_dir=str(tmp_path / "state"))
    mine = edit(root)
    deleted = root / "notes/d2/05.md"
    deleted.unlink()
    advance(corpus)
    gone = [f"notes/d{n % 3}/{n:02d}.md" for n in (7, 11, 13)]
    with corpus.writing():
        corpus.commit(delete=gone)
    killed_at(call, "refresh", "--tree", str(root), "--corpus", corpus.uri)
    copies = {str(file.relative_to(root)): file.read_bytes() for file in root.rglob("*.conflict-*")}
    newest = {info.path: info.sha256 for info in corpus.files()}
    assert {sha256(data) for data in copies.values()} <= {newest["notes/d0/00.md"]}
    check_visible(root, corpus, mine | copies)
    assert not deleted.exists()
    with Tree.open(str(root), str(tmp_path / "state")) as tree:
        done = refresh(Corpus.open(corpus.uri), tree)
        said = status(tree, corpus.uri)
    assert [conflict.path for conflict in done.conflicts] == ["notes/d0/00.md"]
    (copy,) = root.rglob("*.conflict-*")
    expected = {p: h for p, h in newest.items() if p not in mine and p != "notes/d2/05.md"}
    others = {*mine, str(copy.relative_to(root))}
    assert {p: sha256(data) for p, data in tree_of(root).items() if p not in others} == expected
    assert {path: tree_of(root)[path] for path in mine} == mine
    assert leftovers(root) == []
    assert (said.deleted, said.stale) == (("notes/d2/05.md",), ())
    assert {*said.modified, *said.new} == {"notes/d1/01.md", "notes/d2/own.md"}


def test_every_step_is_reached(corpus: Corpus, tmp_path: Path) -> None:
    """Push and refresh make more calls than the most that are tried above, or end well before them."""
    root = tmp_path / "memory"
    boot(corpus.uri, str(root), cache_dir=str(tmp_path / "cache"), state_dir=str(tmp_path / "state"))
    edit(root)
    advance(corpus)
    assert killed_at(12, "push", "--tree", str(root), "--corpus", corpus.uri)
    assert killed_at(70, "refresh", "--tree", str(root), "--corpus", corpus.uri)
    assert not killed_at(100_000, "push", "--tree", str(root), "--corpus", corpus.uri)
    assert not killed_at(100_000, "refresh", "--tree", str(root), "--corpus", corpus.uri)


def check_agreed(root: Path, corpus: Corpus, mine: dict[str, bytes], tmp_path: Path) -> None:
    """Right after the kill, manifest and disk agree: nothing that memfs removed is said to be deleted or edited."""
    check_visible(root, corpus, mine)
    with Tree.open(str(root), str(tmp_path / "state")) as tree:
        said = status(tree, corpus.uri)
    assert {*said.modified, *said.new} == set(mine)
    assert said.deleted == ()


# The first calls open the tree; then one a file, and its folder in the end.
@pytest.mark.parametrize("call", [*range(1, 16), 20, 24, 27, 28, 29, 30, 31, 32])
def test_evict(call: int, corpus: Corpus, tmp_path: Path) -> None:
    """Killed at the nth change of the disk, an evict leaves manifest and tree in agreement, and edits."""
    root = tmp_path / "memory"
    boot(corpus.uri, str(root), cache_dir=str(tmp_path / "cache"), state_dir=str(tmp_path / "state"))
    mine = edit(root)
    with Tree.open(str(root), str(tmp_path / "state")) as tree, tree.manifest.writing():
        tree.manifest.pin(tree.manifest.all(), Pin.NO)
    killed_at(call, "evict", "--all", "--tree", str(root))
    check_agreed(root, corpus, mine, tmp_path)
    killed_at(100_000, "evict", "--all", "--tree", str(root))
    assert tree_of(root) == mine
    with Tree.open(str(root), str(tmp_path / "state")) as tree:
        assert tree.manifest.pending() == []
        assert set(tree.manifest.all()) == set(mine) - {"notes/d2/own.md"}
    check_mended(root, corpus, mine, tmp_path)


@pytest.mark.parametrize("call", [10, 14, 18, 20, 21, 22, 23, 24, 25, 26, 28, 30, 34, 40, 50, 60, 75])
def test_boot_that_evicts(call: int, corpus: Corpus, tmp_path: Path) -> None:
    """So does a boot that makes room for its map."""
    root = tmp_path / "memory"
    boot(corpus.uri, str(root), cache_dir=str(tmp_path / "cache"), state_dir=str(tmp_path / "state"))
    mine = edit(root)
    with Tree.open(str(root), str(tmp_path / "state")) as tree, tree.manifest.writing():
        tree.manifest.pin(tree.manifest.all(), Pin.NO)
    with corpus.writing():
        corpus.commit([document(f"knowledge/{n:02d}.md", long_text(f"one{n}", 60)) for n in range(6)])
    limit = str(sum(map(len, tree_of(root).values())) // 2)
    before = set(tree_of(root))
    killed_at(call, "boot", str(root), "--budget", "20k", "--max-size", limit, "--corpus", corpus.uri)
    gone = before - set(tree_of(root))
    assert gone or call < 26
    check_agreed(root, corpus, mine, tmp_path)
    assert not killed_at(100_000, "boot", str(root), "--budget", "20k", "--max-size", limit, "--corpus", corpus.uri)
    assert sum(map(len, tree_of(root).values())) <= int(limit)
    check_agreed(root, corpus, mine, tmp_path)
    assert not killed_at(100_000, "boot", str(root), "--max-size", "none", "--corpus", corpus.uri)
    check_mended(root, corpus, mine, tmp_path)


@pytest.mark.parametrize("seed", range(4))
def test_boot_killed_at_random(seed: int, corpus: Corpus, tmp_path: Path) -> None:
    """Killed from outside at a random moment, three times over."""
    root, luck = tmp_path / "memory", random.Random(seed)
    mine = edit(root)
    for _ in range(3):
        killed_after(luck.uniform(0.15, 0.4), "boot", str(root), "--corpus", corpus.uri)
        check_visible(root, corpus, mine)
    check_mended(root, corpus, mine, tmp_path)


@pytest.mark.parametrize("seed", range(4))
def test_add_killed_at_random(seed: int, corpus: Corpus, tmp_path: Path) -> None:
    """An add killed at any moment leaves the corpus readable, all there or nothing; the next one completes it."""
    source = tmp_path / "source"
    source.mkdir()
    for n in range(60):
        (source / f"{n:02d}.md").write_text(long_text(f"new{n}", 200))
    before = {info.path: info.sha256 for info in corpus.files()}
    boot_before = corpus.objects.read("boot/current.tar.zst")
    # 1.2 s to import lancedb, then under a second for the rest.
    was_killed = killed_after(random.Random(seed).uniform(1.2, 2.4), "add", str(source), "--corpus", corpus.uri)
    reader = Corpus.open(corpus.uri)
    after = {info.path: info.sha256 for info in reader.files()}
    assert set(after.items()) >= set(before.items())
    assert len(after) - len(before) in (0, 60)
    reader.read(list(after))
    boot(corpus.uri, str(tmp_path / "memory"), cache_dir=str(tmp_path / "cache"), state_dir=str(tmp_path / "state"))
    started = time.monotonic()
    done = add_verb.add(Corpus.open(corpus.uri), [str(source)])
    assert time.monotonic() - started < 30
    assert done.added + done.unchanged == 60
    final = Corpus.open(corpus.uri)
    rows = final._table.to_arrow().column("id").to_pylist()
    assert len(rows) == len(set(rows))
    expected = {f"notes/{n:02d}.md": (source / f"{n:02d}.md").read_bytes() for n in range(60)}
    assert {path: file.data for path, file in final.read(list(expected)).items()} == expected
    assert was_killed or boot_before != final.objects.read("boot/current.tar.zst")


@pytest.mark.parametrize("seed", range(3))
def test_add_to_s3_killed_at_random(seed: int, s3: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same on an object store: the dead writer's lease is taken over, and the next add completes its work."""
    monkeypatch.setattr(leases, "TTL_S", 1.0)
    source = tmp_path / "source"
    source.mkdir()
    for n in range(40):
        (source / f"{n:02d}.md").write_text(long_text(f"new{n}", 200))
    corpus = Corpus.create(s3.uri())
    with corpus.writing():
        corpus.commit([document("notes/before.md", "before\n")])
    killed_after(random.Random(seed).uniform(1.5, 3.5), "add", str(source), "--corpus", corpus.uri)
    names = {info.path for info in Corpus.open(corpus.uri).files()}
    assert len(names) in (1, 41)
    done = add_verb.add(Corpus.open(corpus.uri), [str(source)])
    assert done.added + done.unchanged == 40
    final = Corpus.open(corpus.uri)
    rows = final._table.to_arrow().column("id").to_pylist()
    assert len(rows) == len(set(rows))
    expected = {f"notes/{n:02d}.md": (source / f"{n:02d}.md").read_bytes() for n in range(40)}
    assert {path: file.data for path, file in final.read(list(expected)).items()} == expected
    receipt = boot(
        corpus.uri, str(tmp_path / "memory"), cache_dir=str(tmp_path / "cache"), state_dir=str(tmp_path / "state")
    )
    assert receipt.corpus_version == receipt.newest_version
    assert receipt.total_files == 41


def test_boot_while_adding(corpus: Corpus, tmp_path: Path) -> None:
    """Boots during an add see one published map or the next, never a mixture."""
    source = tmp_path / "source"
    source.mkdir()
    for n in range(FILES):
        (source / f"{n:02d}.md").write_text(long_text(f"three{n}", 20))
    command = [sys.executable, "-m", "memfs.cli", "add", str(source), "--under", "notes/d9", "--corpus", corpus.uri]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, env=os.environ) as adding:
        while adding.poll() is None:
            root = tmp_path / f"memory{time.monotonic_ns()}"
            boot(corpus.uri, str(root), cache_dir=str(tmp_path / "cache"), state_dir=str(tmp_path / "state"))
            assert len(tree_of(root)) in (FILES, 2 * FILES)
    assert adding.returncode == 0
