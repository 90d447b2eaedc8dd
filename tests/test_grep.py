"""Complete grep: the lines of ripgrep over everything materialised, whatever is on disk; and what it covered."""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import Ran, Store, document

from memfs.commands import Invocation
from memfs.corpus.table import Corpus
from memfs.grep import INCOMPLETE, find_rg
from memfs.testing import free_port
from memfs.workset.mirror import Mirror

Run = Callable[..., Ran]
CASES = int(os.environ.get("MEMFS_GREP_CASES", "2000"))
CASES_PER_CORPUS = 100
WORDS = [
    "plan", "Plan", "PLAN", "budget", "kelvin", "\u212aelvin", "straße", "STRASSE", "ſun", "sun", "İstanbul",
    "istanbul", "东京都", "회의를", "reunião", "foo_bar", "getUserName", "a.b", "()[]", "O: f", "", " ",
    "\t", "x" * 3_000, "end",
]  # fmt: skip
ODD_FILES = [
    b"", b"\n", b"\n\n\n", b"no newline at the end", b"crlf one\r\ncrlf plan\r\n", b"a\0plan\nplan after nul\n",
    b"plan first\n" + b"filler line\n" * 9_000 + b"late \0 nul\nplan\n", "plan in utf-16\nbudget\n".encode("utf-16"),
    b"\xef\xbb\xbfplan after a mark\nbudget\n", b"bad \xff\xfe utf-8 plan \xc3\nplan\n", b"lone\rcarriage\rplan\n",
    b"\xfe\xff\x00p\x00l\x00a\x00n\x00\n", "vt\x0bff\x0cplan\u2028budget\u0085end\n".encode(),
]  # fmt: skip


def ripgrep(cwd: Path, *arguments: str) -> tuple[int, bytes]:
    """What ripgrep itself prints over a folder that holds everything."""
    command = [find_rg(), "--no-config", "--no-ignore", "--hidden", "--color=never", "--glob=!.memfs.toml"]
    done = subprocess.run([*command, *arguments], cwd=cwd, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    return done.returncode, done.stdout


def files_with(mirror: Mirror, pattern: str) -> set[str] | None:
    """What a search of the mirror alone finds."""
    with mirror.search(find_rg(), ["-e", pattern]) as search:
        return search.files()


@pytest.fixture
def ready(filled: Corpus, memfs: Run, monkeypatch: pytest.MonkeyPatch) -> Corpus:
    """A corpus named by MEMFS_CORPUS, and a tree ./memory that holds one of its files."""
    monkeypatch.setenv("MEMFS_CORPUS", filled.uri)
    assert memfs("boot", "--budget", "0").code == 0
    assert memfs("get", "notes/deploy.md").code == 0
    return filled


# -- the property ---------------------------------------------------------------------------


def content(chance: random.Random) -> bytes:
    """A file: odd, or lines of odd words."""
    if chance.random() < 0.25:
        return chance.choice(ODD_FILES)
    lines = [" ".join(chance.choice(WORDS) for _ in range(chance.randint(0, 6))) for _ in range(chance.randint(0, 60))]
    return chance.choice(["\n", "\n", "\r\n"]).join(lines).encode() + chance.choice([b"", b"\n"])


def pattern(chance: random.Random, depth: int = 0) -> str:
    """A pattern, mostly one that ripgrep takes."""
    kind = chance.random()
    if depth > 2 or kind < 0.45:
        word = chance.choice([w for w in WORDS if w.strip()])
        part = word[chance.randint(0, 2) : chance.randint(3, 9)] or word
        return "".join("\\" + c if c in ".()[]{}|*+?^$\\" else c for c in part)
    inner = pattern(chance, depth + 1)
    other = pattern(chance, depth + 1)
    return chance.choice(
        [
            f"({inner}|{other})", f"{inner}.*{other}", f"^{inner}", f"{inner}$", f"(?:{inner})+", f"(?:{inner})?",
            f"{inner}\\b", f"[a-p]{inner}", f"[^a-m]{inner}", f"{inner}\\s", ".", "^$", f"(?i){inner}", f"(?-u){inner}",
            "[[:upper:]]+", "\\p{Han}+", "\\w{4,}", f"\\A{inner}", f"{inner}\\z", "x*", f"{inner}{{2}}",
            f"\\x70{inner}", "[K-M&&[^L]]", f"\\b{{start}}{inner}", "\\x00", f"({inner}", "",
        ]
    )  # fmt: skip


FLAGS = (
    ["-i"], ["-w"], ["-F"], ["-x"], ["-S"], ["-a"], ["-v"], ["-l"], ["-c"], ["-n"], ["-o"], ["-A1"], ["-B", "2"],
    ["-C1"], ["-m", "2"], ["-N"], ["-I"], ["-H"], ["--files-without-match"], ["-g", "*.md"], ["-g", "!notes/b*"],
    ["-U"], ["-b"], ["--column"], ["--heading"], ["--trim"], ["--vimgrep"], ["--null"], ["--color=always"],
)  # fmt: skip


def changes(chance: random.Random, whole: Path, tree: Path) -> None:
    """Edit, add and delete in the tree, and in the folder that holds everything."""
    here = sorted(str(f.relative_to(tree)) for f in tree.rglob("*") if f.is_file() and f.name != ".memfs.toml")
    for path in here:
        if chance.random() < 0.3:
            data = content(chance)
            (tree / path).write_bytes(data)
            (whole / path).write_bytes(data)
        elif chance.random() < 0.2:
            (tree / path).unlink()
            (whole / path).unlink()
    for number in range(chance.randint(0, 3)):
        data = content(chance)
        for root in (whole, tree):
            (root / "notes").mkdir(exist_ok=True)
            (root / f"notes/mine-{number}.md").write_bytes(data)


@pytest.mark.parametrize("seed", range(-(-CASES // CASES_PER_CORPUS)))
def test_property(seed: int, memfs: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """For any corpus, tree and pattern: byte for byte what ripgrep prints over the whole."""
    chance = random.Random(seed)
    names = [
        f"{top}/{stem}{n}.md"
        for top in ("notes", "notes/deep/er", "sessions/2026", "top")
        for n, stem in enumerate("ab")
    ]
    stored = {name: content(chance) for name in chance.sample(names, chance.randint(1, len(names)))}
    corpus = Corpus.create(str(tmp_path / "corpus"))
    with corpus.writing():
        corpus.commit([document(path, data) for path, data in stored.items()])
    if chance.random() < 0.7:
        # An unindexed tail, a replacement, a deletion.
        victim = chance.choice(sorted(stored))
        stored[victim] = content(chance)
        corpus.commit([document(victim, stored[victim]), document("notes/tail.md", "plan tail\n")])
        stored["notes/tail.md"] = b"plan tail\n"
        corpus.commit(delete=[gone := chance.choice(sorted(stored))])
        del stored[gone]
    monkeypatch.setenv("MEMFS_CORPUS", corpus.uri)
    whole = tmp_path / "whole"
    for path, data in stored.items():
        (whole / "memory" / path).parent.mkdir(parents=True, exist_ok=True)
        (whole / "memory" / path).write_bytes(data)
    (whole / "memory").mkdir(parents=True, exist_ok=True)
    assert memfs("boot", "--budget", "0").code == 0
    index = Path("memory/sessions/index.md")
    if index.exists():
        index.unlink()
    for path in chance.sample(sorted(stored), len(stored) // 2):
        assert memfs("get", path).code == 0
    changes(chance, whole / "memory", Path("memory"))
    for _ in range(min(CASES_PER_CORPUS, CASES)):
        flags = [part for some in chance.sample(FLAGS, chance.randint(0, 3)) for part in some]
        patterns = [part for _ in range(chance.choice([1, 1, 1, 2])) for part in ("-e", pattern(chance))]
        code, expected = ripgrep(whole, "--sort=path", *flags, *patterns, "--", "memory")
        lay = "0" if chance.random() < 0.7 else "2"
        ran = grep_bytes(["grep", *flags, *patterns, "--lay", lay])
        assert (ran[0], ran[1]) == (code, expected), (flags, patterns)


def grep_bytes(argv: list[str]) -> tuple[int, bytes, str]:
    """Run `memfs grep` in this process; its output as bytes."""
    import io

    from memfs.cli import run

    out, err = io.TextIOWrapper(io.BytesIO()), io.StringIO()
    code = run(argv, Invocation(os.environ, os.getcwd(), out, err))
    out.flush()
    return code, out.buffer.getvalue(), err.getvalue()


# -- what it says and does ------------------------------------------------------------------


def test_finds_what_is_not_here_and_lays_it(memfs: Run, ready: Corpus) -> None:
    """A match in a file that is not on disk is printed, and the file is there afterwards."""
    assert not Path("memory/notes/people/ana.md").exists()
    ran = memfs("grep", "-n", "green tea")
    assert (ran.code, ran.out) == (0, "memory/notes/people/ana.md:3:Ana likes green tea and lives in Lisbon.\n")
    assert "6 of 6 files searched" in ran.err
    assert "laid 1 file with matches" in ran.err
    assert Path("memory/notes/people/ana.md").read_text().startswith("# Ana")
    assert memfs("status", "--json").json["modified"] == []


def test_exit_codes(memfs: Run, ready: Corpus) -> None:
    """As ripgrep's: 0 found, 1 nothing, 2 a bad pattern in ripgrep's own words."""
    assert memfs("grep", "zebra").code == 0
    assert memfs("grep", "nowhere at all").code == 1
    ran = memfs("grep", "un(closed")
    assert (ran.code, ran.out) == (2, "")
    assert "unclosed group" in ran.err
    assert memfs("grep").code == 3
    assert memfs("grep", "x", "notes/none").code == 4


@pytest.mark.parametrize(
    ("cwd", "paths", "printed"),
    [
        (".", [], "memory/notes/deploy.md"),
        (".", ["memory/notes"], "memory/notes/deploy.md"),
        (".", ["notes"], "memory/notes/deploy.md"),
        ("memory", [], "notes/deploy.md"),
        ("memory", ["notes/deploy.md", "knowledge"], "notes/deploy.md"),
        ("memory/notes", [], "deploy.md"),
        ("memory/notes", ["../notes"], "../notes/deploy.md"),
        ("memory/knowledge", ["notes"], "../notes/deploy.md"),
        ("elsewhere", ["--tree", "../memory"], "../memory/notes/deploy.md"),
        ("elsewhere", ["--tree", "../memory", "../memory/notes"], "../memory/notes/deploy.md"),
    ],
)
def test_paths_can_be_opened_from_where_one_stands(
    cwd: str, paths: list[str], printed: str, memfs: Run, ready: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Printed paths are relative to the working folder, as ripgrep's are; a corpus path is taken too."""
    Path(cwd).mkdir(exist_ok=True)
    monkeypatch.chdir(cwd)
    assert memfs("grep", "-l", "deployment", *paths).out == f"{printed}\n"


def test_the_disk_wins(memfs: Run, ready: Corpus) -> None:
    """Edits are searched as they are, deletions are left out, an older version on disk is named."""
    Path("memory/notes/deploy.md").write_text("my own words\n")
    assert memfs("grep", "-l", "own words").out == "memory/notes/deploy.md\n"
    assert memfs("grep", "deployment").code == 1
    Path("memory/notes/deploy.md").unlink()
    assert memfs("grep", "own words|deployment").code == 1
    assert memfs("get", "notes/people/ana.md").code == 0
    ready.commit([document("notes/people/ana.md", "Ana drinks coffee now.\n")])
    ran = memfs("grep", "-l", "coffee|green tea")
    assert ran.out == "memory/notes/people/ana.md\n"
    assert "older here than in the corpus: 1 file" in ran.err
    assert memfs("grep", "coffee").code == 1


@pytest.mark.parametrize("flag", ["-r", "-R", "-rn", "-u", "-uu", "--no-ignore", "--hidden", "--recursive"])
def test_what_is_so_in_any_case_may_be_asked_for(flag: str, memfs: Run, ready: Corpus) -> None:
    """grep's habit of -rn among them."""
    line = "3:" if flag == "-rn" else ""
    assert (
        memfs("grep", flag, "green tea").out
        == f"memory/notes/people/ana.md:{line}Ana likes green tea and lives in Lisbon.\n"
    )


@pytest.mark.parametrize(
    "argv", [["-e", "-noon-"], ["-e-noon-"], ["--regexp=-noon-"], ["--", "-noon-"], ["-l", "--", "-noon-", "notes"]]
)
def test_a_pattern_may_begin_with_a_hyphen(argv: list[str], memfs: Run, ready: Corpus) -> None:
    """As with ripgrep: after -e, or after --."""
    ready.commit([document("notes/hyphen.md", "at -noon- sharp\n")])
    ran = memfs("grep", *argv)
    assert (ran.code, ran.out.split(":")[0].strip()) == (0, "memory/notes/hyphen.md"), ran.err


def test_json(memfs: Run, ready: Corpus) -> None:
    """ripgrep's own messages, then one with the coverage."""
    lines = [json.loads(line) for line in memfs("grep", "--json", "zebra").out.splitlines()]
    assert [line["type"] for line in lines] == ["begin", "match", "end", "summary", "coverage"]
    assert lines[-1]["data"]["files_searched"] == lines[-1]["data"]["files_total"] == 6


def test_over_the_budget_is_said(memfs: Run, ready: Corpus, tmp_path: Path) -> None:
    """What could not be brought to this host is counted, and the exit code is its own; with room, it is made up for."""
    ready.commit([document("notes/large.md", "large zebra line\n" * 500)])
    ran = memfs("grep", "-c", "zebra", "--budget", "2k")
    assert ran.code == INCOMPLETE
    assert "large" not in ran.out
    assert "INCOMPLETE, not searched: 1 file," in ran.err
    ran = memfs("grep", "-c", "large zebra")
    assert (ran.code, ran.out) == (0, "memory/notes/large.md:500\n")


def test_without_a_tree(memfs: Run, filled: Corpus, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing was booted: the corpus is searched all the same, and nothing is laid."""
    monkeypatch.setenv("MEMFS_CORPUS", filled.uri)
    assert memfs("grep", "-l", "zebra").out == "memory/sessions/2026/05/two/summary.md\n"
    assert not Path("memory").exists()


def test_an_unreachable_corpus(memfs: Run, s3: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """What this host mirrored is searched, said to be incomplete; a host with no mirror gets an error."""
    uri = s3.uri()
    corpus = Corpus.create(uri)
    corpus.commit([document("notes/a.md", "zebra\n")])
    monkeypatch.setenv("MEMFS_CORPUS", uri)
    assert memfs("grep", "-l", "zebra").out == "memory/notes/a.md\n"
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{free_port()}")
    ran = memfs("grep", "-l", "zebra")
    assert (ran.code, ran.out) == (INCOMPLETE, "memory/notes/a.md\n")
    assert "did not answer" in ran.err
    shutil.rmtree(os.environ["MEMFS_CACHE_DIR"])
    assert memfs("grep", "-l", "zebra").code == 6


# -- the mirror -----------------------------------------------------------------------------


def test_the_mirror_follows(filled: Corpus, tmp_path: Path) -> None:
    """A new version costs what changed; what is gone is found no more, a wasteful data file is written anew."""
    mirror = Mirror(str(tmp_path / "cache"), filled.uri)
    mirror.update(filled, 1 << 30)
    data = mirror.snapshot.data
    assert files_with(mirror, "Friday") == {"notes/deploy.md"}
    filled.commit([document("notes/deploy.md", "Now it is Monday.\n")], delete=["notes/people/ana.md"])
    mirror.update(filled, 1 << 30)
    assert mirror.snapshot.data == data
    assert files_with(mirror, "Friday|green tea") == set()
    assert files_with(mirror, "Monday") == {"notes/deploy.md"}
    again = Mirror(str(tmp_path / "cache"), filled.uri)
    assert again.entries == mirror.entries
    assert {path: again.read(entry) for path, entry in again.entries.items()} == {
        path: file.data for path, file in filled.read(list(again.entries)).items()
    }
    for turn in range(3):
        filled.commit([document("notes/big.md", f"turn {turn}\n" + "filling line\n" * 100_000)])
        mirror.update(filled, 1 << 30)
    assert mirror.snapshot.data != data
    assert files_with(mirror, "turn 2|Monday") == {"notes/big.md", "notes/deploy.md"}


@pytest.mark.parametrize("damage", ["index", "data", "cut", "name"])
def test_a_damaged_mirror_is_made_anew(damage: str, filled: Corpus, tmp_path: Path) -> None:
    """It is only a cache: what cannot be right is not used."""
    mirror = Mirror(str(tmp_path / "cache"), filled.uri)
    mirror.update(filled, 1 << 30)
    index, data = Path(mirror.folder, "index.json"), Path(mirror.folder, mirror.snapshot.data)
    if damage == "index":
        index.write_text("{")
    elif damage == "name":
        index.write_text(index.read_text().replace(data.name, "../../../etc/passwd"))
    elif damage == "cut":
        os.truncate(data, 10)
    else:
        data.write_bytes(data.read_bytes().replace(b"Friday", b"Sunday"))
    again = Mirror(str(tmp_path / "cache"), filled.uri)
    if damage == "data":
        assert again.read(again.entries["notes/deploy.md"]) is None
        return
    assert again.version == 0
    again.update(filled, 1 << 30)
    assert files_with(again, "Friday") == {"notes/deploy.md"}


def test_scratch_is_swept(memfs: Run, ready: Corpus) -> None:
    """Nothing of a search is left, and what a killed one left goes with the next."""
    left = Path(os.environ["MEMFS_CACHE_DIR"], "scratch", "0" * 16, "tree")
    left.mkdir(parents=True)
    (left / "x.md").write_text("zebra\n")
    assert memfs("grep", "zebra").code == 0
    assert list(left.parents[1].iterdir()) == []


def test_rg_is_missing(memfs: Run, ready: Corpus, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without ripgrep there is no grep, and the hint says how to get it."""
    monkeypatch.setattr("sys.executable", "/nowhere/python")
    monkeypatch.setenv("PATH", "/nowhere")
    ran = memfs("grep", "zebra")
    assert ran.code == 2
    assert "agent-memfs[grep]" in ran.err


@pytest.fixture(autouse=True)
def _no_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MEMFS_NO_SERVER", "1")


# -- faults ---------------------------------------------------------------------------------

DIES_IN_UPDATE = """
import os, signal, sys
from memfs.corpus.table import Corpus
from memfs.workset import mirror
step, uri, cache = int(sys.argv[1]), sys.argv[2], sys.argv[3]
seen = 0
def dies(what):
    def stepped(*args, **kwargs):
        global seen
        seen += 1
        if seen == step:
            os.kill(os.getpid(), signal.SIGKILL)
        return what(*args, **kwargs)
    return stepped
mirror._flat = dies(mirror._flat)
os.fdatasync, os.replace, os.unlink = dies(os.fdatasync), dies(os.replace), dies(os.unlink)
mirror.json.dump = dies(mirror.json.dump)
mirror.Mirror(cache, uri).update(Corpus.open(uri), 1 << 30)
"""


@pytest.mark.parametrize("step", [1, 3, 6, 7, 8, 9])
def test_killed_while_the_mirror_is_made(step: int, filled: Corpus, tmp_path: Path) -> None:
    """Killed at any step, the old mirror answers, and the next update makes it right."""
    cache = str(tmp_path / "cache")
    for turn in range(2):
        before = Mirror(cache, filled.uri).entries
        done = subprocess.run([sys.executable, "-c", DIES_IN_UPDATE, str(step), filled.uri, cache], check=False)
        assert done.returncode in (0, -9)
        if done.returncode and step < 9:
            assert Mirror(cache, filled.uri).entries == before
        mirror = Mirror(cache, filled.uri)
        mirror.update(filled, 1 << 30)
        stored = filled.read([info.path for info in filled.files()])
        assert {path: mirror.read(entry) for path, entry in mirror.entries.items()} == {
            path: file.data for path, file in stored.items()
        }
        assert files_with(mirror, "noon|Monday") == {"notes/deploy.md"}
        filled.commit([document("notes/deploy.md", f"Now it is Monday, {turn}.\n")])


def test_a_full_disk(memfs: Run, ready: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the text does not fit: a clear error, and nothing half-made is left."""
    monkeypatch.setenv("MEMFS_MIN_FREE", "900000GB")
    ran = memfs("grep", "zebra")
    assert (ran.code, ran.out) == (9, "")
    assert "above the floor" in ran.err
    assert "hint: " in ran.err
    monkeypatch.delenv("MEMFS_MIN_FREE")
    assert memfs("grep", "-l", "zebra").code == 0
