"""From a stage to the corpus: one commit of pages and history, merged with what others published, or nothing at all."""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import date
from pathlib import Path

import pytest
from brain_samples import SAMPLES, make_corpus, sample_pages
from conftest import Ran, Store, document, spawn_memfs, tree_of

from memfs.add import add
from memfs.brain.history import History, bundle_name, bundles_of
from memfs.brain.index import finish
from memfs.brain.page import CHANGELOG, INDEX, page_path
from memfs.brain.store import gate_of
from memfs.brain.sync import GateError, MergeError, Published, base_of, pages_of, publish
from memfs.corpus.table import Corpus
from memfs.errors import CorruptError, MemfsError
from memfs.fetch import fetch
from memfs.rollback import rollback, rollback_session
from memfs.testing import Proxy, SeaweedFS

INES, FORNO, DB = (
    "knowledge/entities/ines-duarte.md",
    "knowledge/projects/forno-pipeline.md",
    "knowledge/concepts/database.md",
)
Run = Callable[..., Ran]
Files = dict[str, bytes]


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sample's sessions and pages, published, without a history."""
    folder = tmp_path_factory.mktemp("brain") / "corpus"
    corpus = make_corpus(folder)
    corpus.commit([document(path, data) for path, data in sample_pages().items()])
    return folder


@pytest.fixture
def corpus(template: Path, tmp_path: Path) -> Corpus:
    shutil.copytree(template, tmp_path / "corpus")
    return Corpus.open(str(tmp_path / "corpus"))


@pytest.fixture
def history(tmp_path: Path) -> History:
    return History(str(tmp_path / "a/brain.git"))


def edited(files: Files, path: str, old: bytes, new: bytes) -> Files:
    assert old in files[path]
    return finish({**files, path: files[path].replace(old, new, 1)}, date(2026, 7, 1), [f"edited {path}"])


def send(corpus: Corpus, history: History, files: Files, base: object = None, message: str = "test\n") -> Published:
    start = base_of(corpus, history) if base is None else base
    return publish(corpus, history, start, files, gate=gate_of(corpus), message=message)  # type: ignore[arg-type]


def check_agreed(corpus: Corpus, tmp_path: Path) -> Files:
    """The history, taken anew from the corpus, ends in just the pages that the corpus has."""
    corpus.refresh()
    pages, fresh = pages_of(corpus), History(str(tmp_path / "fresh/brain.git"))
    shutil.rmtree(tmp_path / "fresh", ignore_errors=True)
    (tmp_path / "fresh").mkdir()
    tip = fresh.take({name: file.data for name, file in corpus.history().items()})
    assert tip is None or fresh.files(tip) == pages
    return pages


def test_publish_and_again(corpus: Corpus, history: History, tmp_path: Path) -> None:
    """What was there is the first commit, the change the second; the same stage again publishes nothing."""
    base = base_of(corpus, history)
    files = edited(dict(base.files), INES, b"from Coimbra", b"living in Coimbra")
    done = send(corpus, history, files, base)
    assert (done.changed, done.added, done.merged) == ((CHANGELOG, INES, INDEX), (), False)
    assert check_agreed(corpus, tmp_path) == files
    assert [entry.subject for entry in history.log()] == ["test", "The Brain as it was found"]
    version = corpus.version
    again = send(corpus, history, files)
    assert (again.nothing, corpus.refresh()) == (True, version)
    # A stage that began before, with the same outcome: nothing to do either.
    assert send(corpus, history, files, base).nothing


def test_history_is_no_file(corpus: Corpus, history: History, tmp_path: Path) -> None:
    """Not listed, not counted, not read by name, not exported, not in the catalogue."""
    files = [info.path for info in corpus.files()]
    send(corpus, history, edited(dict(pages_of(corpus)), INES, b"from Coimbra", b"in Coimbra"))
    assert [info.path for info in corpus.files()] == files
    assert set(corpus.stored()) == set(files) == {file.path for file in corpus.read_all()}
    (name,) = corpus.history()
    assert corpus.find([name]) == {}
    assert corpus.read([name]) == {}
    corpus.catalog()
    assert corpus.read([name]) == {}
    assert corpus.catalog().file_count == len(files)


def test_what_is_searched_of_a_page(corpus: Corpus, history: History) -> None:
    """Names, summary and body; not the hashes and quotes of its sources. The bytes are whole all the same."""
    files = edited(dict(pages_of(corpus)), INES, b"from Coimbra", b"in Coimbra")
    send(corpus, history, files)
    rows = corpus.every_row(["seq", "text", "body"], path=INES).sort_by("seq").to_pylist()
    assert b"".join(row["body"] for row in rows) == files[INES]
    whole = "\n".join(row["text"] for row in rows)
    assert "Inês Duarte" in whole
    assert "Wants diagrams as PDF" in whole
    assert "sha256" not in whole
    assert "memfs://" not in whole
    answer = fetch(corpus, "Ines Duarte leads the data team", tree=None, cache=None)
    assert INES in answer.synthesis
    assert "sha256" not in answer.synthesis


def test_merge(corpus: Corpus, history: History, tmp_path: Path) -> None:
    """Two stages from one base, other lines: both are in the Brain, and the index and changelog say both."""
    base = base_of(corpus, history)
    other = History(str(tmp_path / "b/brain.git"))
    send(corpus, other, edited(dict(base.files), FORNO, b"a flour forecast", b"the flour forecast"), base)
    base = base_of(corpus, history)
    send(corpus, other, edited(dict(base.files), DB, b"MySQL 5.7 before", b"MySQL 5.7 until then"), base)
    done = send(corpus, history, edited(dict(base.files), INES, b"from Coimbra", b"in Coimbra"), base)
    assert done.merged
    pages = check_agreed(corpus, tmp_path)
    assert b"until then" in pages[DB]
    assert b"in Coimbra" in pages[INES]
    assert pages[CHANGELOG].count(b"edited ") == 3
    assert b"until then" in pages[INDEX]


def test_conflict(corpus: Corpus, history: History, tmp_path: Path) -> None:
    """The same line: the second stops, names the page, and the Brain is the first one's."""
    send(corpus, history, edited(dict(pages_of(corpus)), FORNO, b"a flour forecast", b"the flour forecast"))
    base = base_of(corpus, history)
    send(corpus, history, edited(dict(base.files), INES, b"from Coimbra", b"in Coimbra"), base)
    before = check_agreed(corpus, tmp_path)
    with pytest.raises(MergeError, match="ines-duarte"):
        send(corpus, history, edited(dict(base.files), INES, b"from Coimbra", b"near Coimbra"), base)
    assert check_agreed(corpus, tmp_path) == before


def test_the_gate_holds_for_the_merged_whole(corpus: Corpus, history: History, tmp_path: Path) -> None:
    """Two stages that pass alone, and not together: nothing is published of the second."""
    send(corpus, history, edited(dict(pages_of(corpus)), FORNO, b"a flour forecast", b"the flour forecast"))
    base = base_of(corpus, history)
    send(corpus, history, edited(dict(base.files), FORNO, b"aliases: [Forno]", b"aliases: [Forno, The bakers]"), base)
    before = check_agreed(corpus, tmp_path)
    mine = edited(dict(base.files), DB, b"aliases: []", b"aliases: [The bakers]")
    with pytest.raises(GateError) as caught:
        send(corpus, history, mine, base)
    assert {problem.rule for problem in caught.value.problems} == {"names"}
    assert check_agreed(corpus, tmp_path) == before


def test_two_at_once(corpus: Corpus, tmp_path: Path) -> None:
    """Four sandboxes publish at once: all are in, or stopped by name; nothing is lost."""
    base = base_of(corpus, History(str(tmp_path / "0/brain.git")))
    first = edited(dict(base.files), FORNO, b"a flour forecast", b"the flour forecast")
    send(corpus, History(str(tmp_path / "0/brain.git")), first, base)
    start = base_of(corpus, History(str(tmp_path / "0/brain.git")))
    edits = [
        (INES, b"from Coimbra", b"in Coimbra"),
        (DB, b"5.7 before", b"5.7 till then"),
        (INES, b"Metric units only", b"Metric units"),
        (INES, b"from Coimbra", b"by Coimbra"),
    ]

    def one(at: int) -> str:
        mine = Corpus.open(corpus.uri)
        try:
            send(mine, History(str(tmp_path / f"h{at}/brain.git")), edited(dict(start.files), *edits[at]), start)
        except MergeError:
            return "conflict"
        return "published"

    with ThreadPoolExecutor(4) as pool:
        ends = list(pool.map(one, range(4)))
    pages = check_agreed(corpus, tmp_path)
    assert ends.count("conflict") == 1
    assert {ends[0], ends[3]} == {"conflict", "published"}
    assert b"till then" in pages[DB]
    assert b"Metric units: grams" in pages[INES]
    assert pages[CHANGELOG].count(b"edited ") == 4


def test_boots_and_pushes_beside_a_dream(corpus: Corpus, tmp_path: Path) -> None:
    """While dreams publish, three sandboxes boot again and again, and one pushes: each sees a whole Brain."""
    laid = [tmp_path / f"box{n}/memory" for n in range(3)]
    wholes: list[set[str]] = []

    def command(*arguments: str) -> Ran:
        return spawn_memfs(*arguments, "--corpus", corpus.uri)

    def boots(tree: Path) -> None:
        for _ in range(6):
            ran = command("boot", str(tree))
            assert ran.code == 0, ran.err
            files = {f"knowledge/{name}": data for name, data in tree_of(tree / "knowledge").items()}
            pages = {path for path in files if page_path(path)}
            # An index of other pages than lie there would be half a Brain.
            if pages:
                linked = set(re.findall(r"^- \[\[([^|\]]+)", files[INDEX].decode(), re.M))
                wholes.append(pages ^ {f"knowledge/{stem}.md" for stem in linked})

    def pushes() -> None:
        tree = tmp_path / "writer/memory"
        assert command("boot", str(tree)).code == 0
        for n in range(4):
            (tree / "notes").mkdir(exist_ok=True)
            (tree / f"notes/n{n}.md").write_text(f"note {n}\n")
            ran = command("push", "--tree", str(tree))
            assert ran.code == 0, ran.err

    def dreams() -> None:
        for n in range(3):
            mine = Corpus.open(corpus.uri)
            day = f"2026-08-0{n + 1}"
            turn = f"## t1 · Ana · {day} 10:00\n\nI moved to Porto with {n + 2} cats in May.\n"
            text = f"# S{n}\n\n- date: {day} 10:00 UTC\n\n{turn}"
            path = f"sessions/2026/08/{day}-s{n}-0000000{n}/transcript.md"
            mine.commit([replace(document(path, text), kind="transcript")])
            ran = command("dream")
            assert ran.code == 0, ran.err

    with ThreadPoolExecutor(5) as pool:
        work = [*(pool.submit(boots, tree) for tree in laid), pool.submit(pushes), pool.submit(dreams)]
        for each in work:
            each.result()
    assert wholes
    assert not set().union(*wholes)
    check_agreed(corpus, tmp_path)
    paths = {info.path for info in corpus.files()}
    assert {f"notes/n{n}.md" for n in range(4)} <= paths
    assert {"knowledge/entities/ana.md", "knowledge/entities/user.md"} <= paths
    assert command("validate").code == 0


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
from memfs.add import add
from memfs.brain.history import History
from memfs.corpus.table import Corpus
from memfs.corpus.objects import Objects
History.git = counted(History.git)
Corpus._send = counted(Corpus._send)
Objects.write = counted(Objects.write)
send = Corpus._send
sys.argv = ["memfs", *sys.argv[2:]]
from memfs.cli import main
try:
    main()
finally:
    print("calls", calls, file=sys.stderr)
"""


@pytest.mark.parametrize("at", [3, 15, 21, 24, 26, 27])
def test_killed(at: int, corpus: Corpus, tmp_path: Path, memfs: Run) -> None:
    """A dream that is killed at any step: the old Brain or the new one, whole, and the next dream works."""
    before = pages_of(corpus)
    done = subprocess.run(
        [sys.executable, "-c", KILLER, str(at), "dream", "--corpus", corpus.uri],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode in (0, -signal.SIGKILL), done.stderr
    after = check_agreed(corpus, tmp_path)
    if after != before:
        assert "knowledge/entities/user.md" in after
    ran = memfs("dream", "--corpus", corpus.uri)
    assert ran.code == 0, ran.err
    assert "knowledge/entities/user.md" in check_agreed(corpus, tmp_path)
    assert memfs("validate", "--corpus", corpus.uri).code == 0
    assert memfs("dream", "--corpus", corpus.uri).out == "nothing to dream of: no session is new\n"


def test_cut_connection(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The store goes away in the middle of a publish: an error, and the Brain is whole; afterwards it works."""
    if not isinstance(store.server, SeaweedFS):
        pytest.skip("one server is enough")
    proxy = Proxy(store.server.port).__enter__()
    for name, text in store.server.environ(proxy.port).items():
        monkeypatch.setenv(name, text)
    corpus = Corpus.create(store.uri("brain"))
    add(corpus, [str(SAMPLES / "claude-code")])
    history = History(str(tmp_path / "a/brain.git"))
    base = base_of(corpus, history)
    files = finish(sample_pages(), date(2026, 7, 1), ["first"])
    write = Corpus._send

    def cut(self: Corpus, data: object, *, append: bool) -> None:
        proxy.__exit__(None, None, None)
        write(self, data, append=append)

    with monkeypatch.context() as patch:
        patch.setattr(Corpus, "_send", cut)
        with pytest.raises(MemfsError):
            send(corpus, history, files, base)
    for name, text in store.server.environ().items():
        monkeypatch.setenv(name, text)
    again = Corpus.open(corpus.uri)
    assert check_agreed(again, tmp_path) == {}
    send(again, history, files)
    assert check_agreed(again, tmp_path) == files


def test_damaged_history(corpus: Corpus, history: History, tmp_path: Path) -> None:
    """A part that is missing, or holds something else, is an error, never another history."""
    send(corpus, history, edited(dict(pages_of(corpus)), INES, b"from Coimbra", b"in Coimbra"))
    send(corpus, history, edited(dict(pages_of(corpus)), INES, b"in Coimbra", b"near Coimbra"))
    stored = {name: file.data for name, file in corpus.history().items()}
    first, second = bundles_of(stored)
    with pytest.raises(CorruptError, match="missing"):
        History(str(tmp_path / "x/brain.git")).take({bundle_name(second): second.data})
    (tmp_path / "y").mkdir()
    with pytest.raises(CorruptError):
        History(str(tmp_path / "y/brain.git")).take({**stored, bundle_name(second): first.data})


# -- back -----------------------------------------------------------------------------------


def test_rollback(corpus: Corpus, history: History, tmp_path: Path) -> None:
    """The Brain as it was, as a new commit; the changelog keeps what happened."""
    first = dict(pages_of(corpus))
    send(corpus, history, edited(first, INES, b"from Coimbra", b"in Coimbra"))
    send(corpus, history, edited(dict(pages_of(corpus)), DB, b"5.7 before", b"5.7 till then"))
    done = rollback(corpus, history, "HEAD~2")
    pages = check_agreed(corpus, tmp_path)
    assert {p: d for p, d in pages.items() if p != CHANGELOG} == {p: d for p, d in first.items() if p != CHANGELOG}
    assert pages[CHANGELOG].count(b"edited ") == 2
    assert b"Back to" in pages[CHANGELOG]
    assert len(history.log()) == 4
    assert done.changed
    assert rollback(corpus, history, "HEAD").nothing
    with pytest.raises(MemfsError, match="no such revision"):
        rollback(corpus, history, "--all")


def test_rollback_of_a_session(corpus: Corpus, history: History, memfs: Run, tmp_path: Path) -> None:
    """All that stands on it goes, from every page; a page that stood on nothing else goes with it."""
    assert memfs("dream", "--corpus", corpus.uri).code == 0
    corpus.refresh()
    session = "2026-05-28-i-fly-to-seoul"
    assert any(session.encode() in data for data in pages_of(corpus).values())
    with pytest.raises(MemfsError, match=r"cites .* in prose"):
        rollback_session(corpus, history, session)
    files = dict(pages_of(corpus))
    files = edited(files, INES, b"- Is allergic to walnuts. [cite:6]\n", b"")
    lines = [line for line in files[INES].split(b"\n") if not line.startswith(b"  6: ")]
    send(corpus, history, {**files, INES: b"\n".join(lines)})
    done = rollback_session(corpus, history, session)
    assert "knowledge/entities/user.md" in done.changed
    assert not any(session.encode() in data for path, data in pages_of(corpus).items() if path != CHANGELOG)
    check_agreed(corpus, tmp_path)
    with pytest.raises(MemfsError, match="no page cites"):
        rollback_session(corpus, history, session)


# -- in the sandbox -------------------------------------------------------------------------


@pytest.fixture
def booted(corpus: Corpus, memfs: Run, monkeypatch: pytest.MonkeyPatch) -> Corpus:
    monkeypatch.setenv("MEMFS_CORPUS", corpus.uri)
    assert memfs("dream").code == 0
    assert memfs("boot").code == 0
    return corpus


def git(*arguments: str) -> str:
    return subprocess.run(
        ["git", *arguments], cwd="memory/knowledge", capture_output=True, text=True, check=True
    ).stdout


def test_git_works_in_the_sandbox(booted: Corpus, memfs: Run) -> None:
    """log, show and status, with the repository outside of the tree; memfs takes its link for no file of yours."""
    assert git("log", "--format=%s").splitlines() == ["Dream: 12 sessions", "The Brain as it was found"]
    assert git("status", "--short") == ""
    assert "entities/user.md" in git("show", "--stat", "HEAD")
    assert Path("memory/knowledge/.git").is_file()
    assert memfs("status", "--json").json["new"] == []
    assert not any(".git" in path for path in tree_of("memory") if path != "knowledge/.git")
    Path("memory/knowledge/entities/user.md").write_text("mine\n")
    assert git("status", "--short") == " M entities/user.md\n"
    assert memfs("boot").code == 0
    assert Path("memory/knowledge/entities/user.md").read_text() == "mine\n"


def test_pages_that_are_not_here_are_not_deleted(booted: Corpus, memfs: Run) -> None:
    """A smaller map: Git knows of the pages, and does not miss them."""
    shutil.rmtree("memory")
    assert memfs("boot", "--budget", "9k").code == 0
    assert not Path("memory/knowledge/entities/user.md").exists()
    assert git("status", "--short") == ""
    assert "entities/user.md" in git("ls-files")


def test_a_repository_of_your_own_is_left_alone(corpus: Corpus, memfs: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that was there before."""
    monkeypatch.setenv("MEMFS_CORPUS", corpus.uri)
    assert memfs("boot").code == 0
    git("init", "--quiet")
    assert memfs("dream").code == 0
    assert memfs("boot").code == 0
    assert Path("memory/knowledge/.git").is_dir()


def test_boot_without_git(booted: Corpus, memfs: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """The pages are here all the same; the receipt says what is not."""
    shutil.rmtree("memory")
    monkeypatch.setenv("PATH", "/nowhere")
    ran = memfs("boot")
    assert ran.code == 0
    assert "no Git history here: git is not installed" in ran.out
    assert Path("memory/knowledge/entities/user.md").exists()
    assert memfs("log").code == 2


def test_edits_by_hand(booted: Corpus, memfs: Run, tmp_path: Path) -> None:
    """`memfs sync` sends a person's edits through the same gate; push names that road."""
    page = Path("memory") / INES
    page.write_text(page.read_text().replace("allergic to walnuts.", "allergic to peanuts."))
    assert "memfs sync" in memfs("push").out
    ran = memfs("sync")
    assert ran.code == 3
    assert "[unsupported]" in ran.err
    page.write_text(page.read_text().replace("to peanuts.", "to walnuts, she says."))
    assert memfs("sync", "--dry-run").out.startswith("would publish")
    assert f"changed: {INES}" in memfs("sync").out
    assert b"she says" in check_agreed(booted, tmp_path)[INES]
    assert "by hand: entities/ines-duarte.md" in memfs("log", "--json").out or "By hand" in memfs("log").out
    assert memfs("refresh").code == 0
    assert memfs("sync").out.startswith("the pages are as they were")
    # Changed on both sides: named, and left.
    history = History(str(tmp_path / "c/brain.git"))
    send(booted, history, edited(dict(pages_of(booted)), INES, b"she says", b"she said"))
    page.write_text(page.read_text().replace("Metric units only", "Metric units"))
    assert memfs("sync").code == 7
