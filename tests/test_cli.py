"""The command line: exit codes, hints, JSON on stdout, the rest on stderr, and never a secret."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import NOTES, Ran, Store, document, spawn_memfs, tree_of

from memfs.corpus.table import Corpus
from memfs.testing import Proxy, free_port

Run = Callable[..., Ran]
COMMANDS = [
    "init", "add", "boot", "fetch", "grep", "get", "pin", "unpin", "evict", "ls", "status", "diff", "push", "refresh",
    "export", "serve", "doctor", "config", "dream", "validate", "sync", "log", "rollback", "links", "why", "cite",
    "index", "skill",
]  # fmt: skip
SECRET = "hunter2-Zx9-secret"


@pytest.fixture
def ready(filled: Corpus, monkeypatch: pytest.MonkeyPatch) -> Corpus:
    """A corpus named by MEMFS_CORPUS."""
    monkeypatch.setenv("MEMFS_CORPUS", filled.uri)
    return filled


def test_the_walk(memfs: Run, tmp_path: Path) -> None:
    """init, add, boot, fetch, get, pin, ls, status, evict, doctor and the rest: each ends well, says what it did."""
    source = tmp_path / "source"
    for path, text in NOTES.items():
        (source / path).parent.mkdir(parents=True, exist_ok=True)
        (source / path).write_text(text)
    uri = str(tmp_path / "corpus")
    said = memfs("init", uri)
    assert said.code == 0
    assert uri in said.out
    assert "memfs add" in said.err
    for top in ("knowledge", "notes", "sessions"):
        assert memfs("add", str(source / top), "--as", top, "--corpus", uri).code == 0
    assert "nothing changed" in memfs("add", str(source / "notes"), "--corpus", uri).out
    said = memfs("boot", "--corpus", uri)
    assert "6 of 6 files are here" in said.out
    assert set(tree_of("memory")) == {*NOTES, "sessions/index.md"}
    assert "notes/deploy.md" in memfs("fetch", "when does the deployment run?").out
    assert "Nothing relevant found" in memfs("fetch", "xylophone zeppelin qqqq").out
    assert memfs("get", "notes").code == 0
    assert memfs("ls").out.count("\n") >= 6
    assert memfs("status").out.count("6 clean") == 1
    Path("memory/notes/deploy.md").write_text(NOTES["notes/deploy.md"] + "Or on Monday.\n")
    said = memfs("diff")
    assert (said.code, said.out.splitlines()[-1]) == (1, "+Or on Monday.")
    assert "sent: notes/deploy.md" in memfs("push").out
    assert memfs("refresh").code == memfs("diff").code == 0
    Path("memory/notes/deploy.md").write_text(NOTES["notes/deploy.md"])
    assert "sent 1 file;" in memfs("push", "notes").out
    assert memfs("export", "out").code == 0
    assert tree_of("out") == {path: text.encode() for path, text in NOTES.items()}
    assert memfs("pin", "notes/deploy.md").code == 0
    assert memfs("unpin", ".").code == 0
    assert memfs("doctor").code == 0
    assert "evicted 7 files" in memfs("evict", "--all").out
    assert ".memfs.toml" in memfs("config").out


def test_help(memfs: Run) -> None:
    """Every command has help; the version is one line."""
    assert all(name in memfs("--help").out for name in COMMANDS)
    for name in COMMANDS:
        said = memfs(name, "--help")
        assert (said.code, said.err) == (0, "")
        assert "Usage: memfs" in said.out
    assert memfs("--version").out.startswith("memfs ")


def test_json(memfs: Run, ready: Corpus, tmp_path: Path) -> None:
    """`--json` is one JSON value on stdout, for each command that an agent reads."""
    (tmp_path / "new.md").write_text("new\n")
    assert memfs("boot", "--json").json["files_here"] == 6
    assert memfs("fetch", "deployment", "--json").json["evidence"][0]["path"] == "notes/deploy.md"
    assert memfs("fetch", "xylophone zeppelin", "--json").json["evidence"] == []
    assert memfs("get", "notes", "--json").json["written"] == 0
    assert memfs("pin", "notes", "--json").json["pinned_files"] == 7
    assert memfs("unpin", "notes", "--json").json["changed"] == ["notes/deploy.md", "notes/people/ana.md"]
    assert memfs("evict", "notes", "--dry-run", "--json").json["evicted"] == ["notes/deploy.md", "notes/people/ana.md"]
    assert memfs("doctor", "--json").json["fix"] is False
    assert {item["path"] for item in memfs("ls", "--json").json} >= set(NOTES)
    assert memfs("status", "--json").json["clean"] == 6
    assert memfs("status", "--remote", "--json").json["stale"] == []
    assert memfs("diff", "--json").json == []
    assert memfs("push", "--json").json["sent"] == []
    assert memfs("refresh", "--json").json["conflicts"] == []
    assert memfs("add", str(tmp_path / "new.md"), "--json").json["added"] == 1
    assert memfs("export", "out", "--json").json["files"] == 7
    assert {item["name"] for item in memfs("config", "--json").json} >= {"corpus", "tree"}


def test_print_index(memfs: Run, ready: Corpus) -> None:
    """With --print-index the block alone is on stdout, the receipt on stderr."""
    said = memfs("boot", "--print-index")
    assert said.out.startswith("# Memory index")
    assert "notes/deploy.md" in said.out
    assert "files are here" in said.err
    assert len(memfs("boot", "--print-index", "--index-tokens", "60").out) < len(said.out)


@pytest.mark.parametrize(
    ("args", "code", "said"),
    [
        ("boot", 2, "no corpus is named"),
        ("boot --corpus ftp://x/y", 2, "unknown scheme"),
        ("boot --corpus {empty} --budget lots", 2, "no size"),
        ("boot --corpus {empty}", 4, "not a memfs corpus"),
        ("boot --corpus {none}", 4, "no such folder"),
        ("fetch x --corpus {empty}", 4, "not a memfs corpus"),
        ("init {filled}", 7, "already is a corpus"),
        ("init {empty} --embedder magic", 2, "unknown embedder"),
        ("add {none} --corpus {filled}", 4, "No such file"),
        ("add {empty} --format pdf --corpus {filled}", 3, "unknown format"),
        ("add {empty} --under ../x --corpus {filled}", 3, "would leave"),
        ("fetch '' --corpus {filled}", 3, "question is empty"),
        ("fetch x --since yesterday --corpus {filled}", 3, "no date"),
        ("get nothing --corpus {filled}", 4, "no such file"),
        ("get ../x --corpus {filled}", 3, "would leave"),
        ("status --tree {empty}", 4, "not a memfs tree"),
        ("status --remote --tree {empty} --corpus {filled}", 4, "not a memfs tree"),
        ("diff --tree {empty}", 4, "not a memfs tree"),
        ("push --tree {empty} --corpus {filled}", 4, "not a memfs tree"),
        ("push --tree {empty} --corpus {none}", 4, "no such folder"),
        ("refresh --tree {empty} --corpus {filled}", 4, "not a memfs tree"),
        ("unpin x --tree {empty}", 4, "not a memfs tree"),
        ("evict --all --tree {empty}", 4, "not a memfs tree"),
        ("pin x --dry-run --tree {empty} --corpus {filled}", 4, "not a memfs tree"),
        ("boot --corpus {filled} --max-size lots", 2, "no size"),
        ("export {full} --corpus {filled}", 3, "not an empty folder"),
        ("export out --at 999 --corpus {filled}", 4, "no version 999"),
    ],
)
def test_errors(args: str, code: int, said: str, memfs: Run, filled: Corpus, tmp_path: Path) -> None:
    """A fault is `error: …` and `hint: …` on stderr, nothing on stdout, and the exit code of its kind."""
    (tmp_path / "empty").mkdir()
    (tmp_path / "full").mkdir()
    (tmp_path / "full/x").write_text("x")
    places = {"empty": tmp_path / "empty", "none": tmp_path / "none", "full": tmp_path / "full", "filled": filled.uri}
    ran = memfs(*shlex.split(args.format(**places)))
    assert (ran.code, ran.out) == (code, "")
    first, second = ran.err.splitlines()
    assert first.startswith("error: ")
    assert said in first
    assert second.startswith("hint: ")
    assert "Traceback" not in ran.err


@pytest.mark.parametrize("args", ["nosuch", "boot --nosuch", "fetch", "fetch x -k many", "export"])
def test_usage(args: str, memfs: Run) -> None:
    """A wrong command line is a usage error, exit code 2."""
    ran = memfs(*args.split())
    assert (ran.code, ran.out) == (2, "")
    assert "error: " in ran.err
    assert "--help" in ran.err


def test_dry_runs(memfs: Run, ready: Corpus, tmp_path: Path) -> None:
    """--dry-run on each command that writes: it says what it would do, and nothing changes."""
    version = ready.refresh()
    (tmp_path / "new.md").write_text("new\n")
    assert "would" in memfs("boot", "--dry-run").out
    assert not Path("memory").exists()
    assert "would" in memfs("add", str(tmp_path / "new.md"), "--dry-run").out
    assert "would" in memfs("export", "out", "--dry-run").out
    assert not Path("out").exists()
    memfs("boot", "--budget", "0")
    assert "would write" in memfs("get", ".", "--dry-run").out
    assert "would pin" in memfs("pin", ".", "--dry-run").out
    assert "would evict" in memfs("evict", "--all", "--dry-run").out
    assert "dry run" in memfs("fetch", "deployment", "--dry-run").out
    assert "would be replaced" in memfs("refresh", "--dry-run").out
    assert tree_of("memory") == {}
    Path("memory/notes").mkdir()
    Path("memory/notes/own.md").write_text("own\n")
    assert "would send: notes/own.md" in memfs("push", "--dry-run").out
    assert ready.refresh() == version


def test_push_exit_codes(memfs: Run, ready: Corpus) -> None:
    """0 when all that was written here went, 3 when something stays behind, 7 with a conflict."""
    memfs("boot")
    assert memfs("push").code == 0
    Path("memory/knowledge/index.md").write_text("mine\n")
    ran = memfs("push")
    assert (ran.code, "refused: knowledge/index.md: " in ran.out) == (3, True)
    assert memfs("push", "knowledge").code == 3
    assert memfs("push", "knowledge/nothing.md").code == 4
    Path("memory/notes/deploy.md").write_text("mine\n")
    with ready.writing():
        ready.commit([document("notes/deploy.md", "theirs\n")])
    ran = memfs("push")
    assert (ran.code, "conflict: notes/deploy.md: " in ran.out) == (7, True)
    assert "conflict: notes/deploy.md: " in memfs("status").out


def test_ls_shows_what_lies_here(memfs: Run, ready: Corpus) -> None:
    """An edited file is listed with its own size."""
    memfs("boot")
    Path("memory/notes/deploy.md").write_text("mine\n")
    (item,) = memfs("ls", "notes/deploy.md", "--json").json
    assert (item["size"], item["where"], item["title"]) == (5, "both", "Deploy")


def test_edits_are_named(memfs: Run, ready: Corpus) -> None:
    """A kept edit and a refused name are in what is printed."""
    memfs("boot")
    Path("memory/notes/deploy.md").write_text("mine\n")
    assert "kept: notes/deploy.md" in memfs("boot").out
    assert "kept: notes/deploy.md" in memfs("get", "notes").out
    assert "modified: notes/deploy.md" in memfs("status").out


def test_secret_in_a_uri(memfs: Run, ready: Corpus) -> None:
    """Credentials in any URI are refused or used, and printed by no command."""
    bad = f"s3://key:{SECRET}@bucket/x?token={SECRET}"
    for args in (
        ["boot", "--corpus", bad],
        ["init", bad],
        ["fetch", "x", "--corpus", bad],
        ["add", bad],
        ["config", "--corpus", bad],
        ["ls", "--corpus", bad],
    ):
        ran = memfs(*args)
        assert SECRET not in ran.out + ran.err, args
    assert memfs("boot", "--corpus", bad).code == 2


def test_secret_in_the_environment(s3: Store, tmp_path: Path, memfs: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys in the environment are in no output, no state, no cache and no tree, whether the store takes them or not."""
    uri, key = s3.uri(), os.environ["AWS_SECRET_ACCESS_KEY"]
    monkeypatch.setenv("MEMFS_CORPUS", uri)
    monkeypatch.setenv("OPENAI_API_KEY", SECRET)
    (tmp_path / "a.md").write_text("# A\n\nThe quokka smiles.\n")
    printed = ""
    for args in (
        ["init", uri],
        ["add", str(tmp_path / "a.md")],
        ["boot"],
        ["fetch", "quokka"],
        ["config"],
        ["status"],
        ["ls"],
    ):
        ran = memfs(*args)
        assert ran.code == 0, ran.err
        printed += ran.out + ran.err
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    for args in (["boot"], ["fetch", "quokka"], ["add", str(tmp_path / "a.md")], ["init", uri]):
        ran = memfs(*args)
        assert ran.code == 5, ran.err
        printed += ran.out + ran.err
    assert SECRET not in printed
    assert key not in printed
    folders = [tmp_path / "cache", tmp_path / "state", tmp_path / "work"]
    for file in (f for folder in folders for f in folder.rglob("*") if f.is_file()):
        assert key.encode() not in file.read_bytes(), file


@pytest.mark.parametrize(
    ("command", "fault"),
    [
        ("boot", "dead"),
        ("fetch x", "dead"),
        ("ls", "dead"),
        ("init {uri}", "dead"),
        ("add {file}", "dead"),
        ("export out", "dead"),
        ("push --tree {tree}", "dead"),
        ("refresh --tree {tree}", "dead"),
        ("status --remote --tree {tree}", "dead"),
        ("fetch x", "hang"),
    ],
)
def test_dead_endpoint(
    command: str, fault: str, proxy: Proxy, s3: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, memfs: Run
) -> None:
    """A dead or silent endpoint: every command ends within seconds, with exit code 6 and a hint."""
    if fault == "dead":
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{free_port()}")
    proxy.hang = True
    (tmp_path / "a.md").write_text("a\n")
    monkeypatch.setenv("MEMFS_CORPUS", s3.uri())
    started = time.monotonic()
    ran = memfs(*command.format(uri=s3.uri(), file=tmp_path / "a.md", tree=tmp_path / "tree").split())
    assert time.monotonic() - started < 15
    assert (ran.code, ran.out) == (6, "")
    assert "hint: " in ran.err


def test_reader_goes_away(ready: Corpus) -> None:
    """`memfs ls | head -1` ends quietly."""
    command = f"{shlex.quote(sys.executable)} -m memfs.cli ls --remote | head -1"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0
    assert "Error" not in done.stderr
    assert "error" not in done.stderr


def test_output_is_clean_text(ready: Corpus, tmp_path: Path) -> None:
    """A hostile file name in a source is printed without its control characters."""
    folder = tmp_path / "source"
    folder.mkdir()
    (folder / "a\x1b[31mred\n.md").write_text("x\n")
    ran = spawn_memfs("add", str(folder))
    assert ran.code == 0
    assert "\x1b" not in ran.out + ran.err
    assert "passed over (1;" in ran.out


def test_stdout_of_json_is_json_in_a_process(ready: Corpus) -> None:
    """Nothing that a library prints gets between: stdout parses, also in a process of its own."""
    for args in (["boot", "--json"], ["fetch", "deployment", "--json"]):
        ran = spawn_memfs(*args)
        assert ran.code == 0
        json.loads(ran.out)
        assert ran.err == ""


@pytest.mark.parametrize("uri", ["s3://bob:hunter2secret@bucket/x", "s3://bob:hun/ter2secret@bucket/x"])
@pytest.mark.parametrize("command", ["config", "config --json", "boot t", "fetch x"])
def test_password_with_any_letter(uri: str, command: str, memfs: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """A password in the URI, also one with a slash, is never printed, by no command."""
    monkeypatch.setenv("MEMFS_CORPUS", uri)
    ran = memfs(*command.split())
    assert "ter2secret" not in ran.out + ran.err


def test_dry_get_makes_nothing(memfs: Run, ready: Corpus, tmp_path: Path) -> None:
    """`get --dry-run` into a folder that does not exist leaves it so."""
    assert memfs("get", ".", "--tree", "nowhere", "--dry-run").code == 0
    assert not (Path.cwd() / "nowhere").exists()


def test_a_folder_that_is_not_there_is_an_error(memfs: Run, ready: Corpus) -> None:
    """A mistyped folder is said, not answered with nothing."""
    for command in ("fetch x --under nowhere", "ls nowhere", "export out --under nowhere"):
        ran = memfs(*command.split())
        assert (ran.code, "hint:" in ran.err) == (4, True), command


def test_interrupted() -> None:
    """What was printed before Ctrl-C reaches a pipe, although the command ends without taking Python down."""
    script = (
        "import sys\nimport memfs.cli\nfrom memfs.client import main\n"
        "def run(argv, go):\n    go.say('found so far')\n    raise KeyboardInterrupt\n"
        "memfs.cli.run = run\nsys.argv = ['memfs', 'status']\nmain()"
    )
    buffered = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    done = subprocess.run([sys.executable, "-c", script], env=buffered, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (130, "found so far\n")


@pytest.mark.parametrize(
    "argv",
    [["grep", "x"], ["fetch", "x"], ["get", "."], ["ls"], ["diff"], ["push"], ["refresh"], ["pin", "."], ["boot"]],
    ids=lambda argv: argv[0],
)
def test_another_corpus_than_the_trees(
    argv: list[str], filled: Corpus, memfs: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing of one corpus is laid into, or compared with, a tree of another."""
    assert memfs("boot", "--corpus", filled.uri, "--budget", "0").code == 0
    before = tree_of("memory")
    other = Corpus.create(str(tmp_path / "other"))
    other.commit([document("notes/x.md", "x\n")])
    monkeypatch.setenv("MEMFS_CORPUS", other.uri)
    ran = memfs(*argv)
    assert (ran.code, f"belongs to another corpus ({filled.uri})" in ran.err) == (2, True)
    assert tree_of("memory") == before
    assert f"the corpus that is named is {other.uri}" in memfs("status").err
    assert f"the corpus that is named is {other.uri}" in memfs("doctor").err
    assert memfs("ls", "--local").code == 0


def test_get_without_room(filled: Corpus, memfs: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """What could not be laid is named, and the exit code tells."""
    monkeypatch.setenv("MEMFS_CORPUS", filled.uri)
    assert memfs("boot", "--budget", "0").code == 0
    ran = memfs("get", ".", "--max-size", "20")
    assert ran.code == 7
    assert "not laid: " in ran.out
    assert memfs("get", ".", "--max-size", "none").code == 0
    # From this tree alone it is known what is the corpus's.
    Path("memory/notes/mine.md").write_text("mine\n")
    lines = memfs("ls", "notes", "--local").out.splitlines()
    assert [(line[0], line.rpartition(" ")[2]) for line in lines] == [
        (" ", "notes/deploy.md"), ("+", "notes/mine.md"), (" ", "notes/people/ana.md"),
    ]  # fmt: skip


def test_made_on_both_sides(filled: Corpus, memfs: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """A new file here and another of that name in the corpus: known before a push, by whoever asks the corpus."""
    monkeypatch.setenv("MEMFS_CORPUS", filled.uri)
    assert memfs("boot").code == 0
    Path("memory/notes/plan.md").write_text("mine\n")
    Path("memory/notes/same.md").write_text("same\n")
    filled.commit([document("notes/plan.md", "theirs\n"), document("notes/same.md", "same\n")])
    conflicts = memfs("status", "--remote", "--json").json["conflicting"]
    assert [conflict["path"] for conflict in conflicts] == ["notes/plan.md"]
    ran = memfs("refresh", "--dry-run")
    assert (ran.code, "notes/plan.md: made here and in the corpus" in ran.out) == (7, True)
    assert Path("memory/notes/plan.md").read_text() == "mine\n"
    assert memfs("push").code == 7
    assert "notes/same.md" not in memfs("status", "--json").json["new"]
