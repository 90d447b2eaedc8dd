"""The resident server: the same output as without it, alone, private, and gone when it should be."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from conftest import Ran, document, leftovers, tree_of

from memfs import client
from memfs.corpus.table import Corpus
from memfs.workset.tree import read_mark

Run = Callable[..., Ran]
WAIT_S = 60


def run_client(*argv: str, cwd: str = ".", **environ: str) -> Ran:
    """The console command, in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-m", "memfs.client", *argv],
        capture_output=True, text=True, timeout=WAIT_S, env={**os.environ, **environ}, check=False, cwd=cwd,
    )  # fmt: skip
    return Ran(done.returncode, done.stdout, done.stderr)


def socket_of(tree: str = "memory") -> Path:
    mark = read_mark(tree)
    assert mark is not None
    file = client.socket_file(mark[1])
    assert file is not None
    return Path(file)


def until(true: Callable[[], object]) -> None:
    """Wait for something that another process brings about."""
    end = time.monotonic() + WAIT_S
    while not true():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.05)


def answers(tree: str = "memory") -> bool:
    with socket.socket(socket.AF_UNIX) as connection:
        try:
            connection.connect(str(socket_of(tree)))
        except OSError:
            return False
        return True


def log(tree: str = "memory") -> str:
    mark = read_mark(tree)
    assert mark is not None
    file = Path(os.environ["MEMFS_STATE_DIR"], "trees", mark[1], "serve.log")
    return file.read_text() if file.exists() else ""


@pytest.fixture
def ready(filled: Corpus, memfs: Run, monkeypatch: pytest.MonkeyPatch) -> Iterator[Corpus]:
    """A corpus named by MEMFS_CORPUS, its map in ./memory, and a folder of this test's own for the socket."""
    # Short: a socket's path has at most 107 bytes.
    runtime = tempfile.mkdtemp(prefix="memfs-test-")
    monkeypatch.setenv("XDG_RUNTIME_DIR", runtime)
    monkeypatch.setenv("MEMFS_CORPUS", filled.uri)
    assert memfs("boot", "--budget", "0").code == 0
    yield filled
    if Path("memory").exists():
        run_client("serve", "--stop")
    shutil.rmtree(runtime)


@pytest.fixture
def served(ready: Corpus) -> Corpus:
    """A server for ./memory, warm."""
    client.start(os.path.abspath("memory"))
    until(answers)
    until(lambda: "warm" in log())
    return ready


COMMAND_LINES = [
    ["fetch", "when does the deployment run?"],
    ["fetch", "zebra", "--json"],
    ["fetch", "xylophone zeppelin"],
    ["grep", "-n", "zebra|blue"],
    ["grep", "--json", "-c", "zebra", "notes"],
    ["grep", "un(closed"],
    ["get", "notes", "--json"],
    ["get", "nothing"],
    ["ls", "--remote"],
    ["ls", "notes", "--json"],
    ["fetch", "--since", "yesterday", "x"],
    ["fetch"],
]


def test_the_same_output(served: Corpus) -> None:
    """What a command prints, returns and lays does not tell whether a server ran it."""
    assert run_client("boot", "memory", "--budget", "0", cwd=str(made_folder("other/work"))).code == 0
    here, there = os.getcwd(), os.path.abspath("other/work")
    for argv in COMMAND_LINES:
        by_server = run_client(*argv)
        alone = run_client(*argv, cwd="other/work", MEMFS_NO_SERVER="1")
        assert by_server.code == alone.code, argv
        assert plain(by_server.out, here) == plain(alone.out, there), argv
        assert plain(by_server.err, here) == plain(alone.err, there), argv
        assert tree_of("memory") == tree_of("other/work/memory"), argv
    assert log().count("served") == len(COMMAND_LINES)


def made_folder(path: str) -> Path:
    Path(path).mkdir(parents=True)
    return Path(path)


def plain(text: str, folder: str) -> str:
    """Without what differs from one run to the next."""
    return re.sub(r'"(elapsed[a-z_]*|secs|nanos|human)": ?[^,}]*', "", text.replace(folder, "."))


def test_another_environment_is_declined(served: Corpus) -> None:
    """A client with other settings or credentials runs its command itself."""
    assert run_client("grep", "-l", "zebra", MEMFS_INDEX_TOKENS="7").code == 0
    assert run_client("grep", "-l", "zebra", AWS_ACCESS_KEY_ID="another").code == 0
    assert "served" not in log()
    assert run_client("grep", "-l", "zebra").code == 0
    assert "served grep" in log()


def test_new_versions_are_seen(served: Corpus) -> None:
    """What another process commits is found by the next command."""
    assert run_client("grep", "-l", "quokka").code == 1
    served.commit([document("notes/quokka.md", "The quokka smiles.\n")])
    assert run_client("grep", "-l", "quokka").out == "memory/notes/quokka.md\n"
    served.commit([document("notes/emu.md", "The emu runs away.\n")])
    assert "notes/emu.md" in run_client("fetch", "what does the emu do?").out
    assert log().count("served") == 3


def test_a_corpus_made_anew(served: Corpus) -> None:
    """Another corpus at the same place is another corpus, whatever its version number; none is an error."""
    assert run_client("grep", "-l", "zebra").code == 0
    shutil.rmtree(served.uri)
    assert run_client("grep", "-l", "zebra").code == run_client("fetch", "zebra").code == 4
    anew = Corpus.create(served.uri)
    with anew.writing():
        anew.commit([document("notes/anew.md", "The quokka is another.\n")])
    ran = run_client("grep", "-l", "quokka")
    assert (ran.code, ran.out) == (0, "memory/notes/anew.md\n")
    assert "notes/anew.md" in run_client("fetch", "what is the quokka?").out
    while anew.version <= served.version:
        anew.commit([document(f"notes/anew-{anew.version}.md", "The wombat is here.\n")])
    assert run_client("grep", "-l", "wombat").out.splitlines()[0].startswith("memory/notes/anew-")


def test_it_is_private(served: Corpus) -> None:
    """The socket and its folder are the user's alone; nonsense is not answered, and harms nobody."""
    assert socket_of().stat().st_mode & 0o777 == 0o600
    assert socket_of().parent.stat().st_mode & 0o777 == 0o700
    for sent in (b"", b"\xff" * 4, b"\0\0\0\5hello", b"\0\0\0\2{}", b'\0\0\0\x0b{"argv": []}'):
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(str(socket_of()))
            connection.sendall(sent)
            connection.shutdown(socket.SHUT_WR)
            assert connection.recv(10) == b""
    assert run_client("grep", "-l", "zebra").code == 0


def test_another_user_is_refused(served: Corpus) -> None:
    """The kernel says who is at the other end of the socket, should its folder ever let them in."""
    if os.getuid() != 0:
        pytest.skip("only root can be another user")
    file = socket_of()
    for let_in in (file.parents[1], file.parent, file):
        let_in.chmod(0o777)
    ask = (
        "import os, socket, sys\nos.setuid(65534)\nc = socket.socket(socket.AF_UNIX)\nc.connect(sys.argv[1])\n"
        "try:\n    c.sendall(b'\\0\\0\\0\\2{}')\n    print(c.recv(10))\nexcept OSError:\n    print(b'')"
    )
    done = subprocess.run([sys.executable, "-S", "-c", ask, str(file)], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "b''", done.stderr
    until(lambda: "refused user 65534" in log())
    file.parent.chmod(0o700)


def test_a_folder_of_another_kind_is_not_used(ready: Corpus, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Where others may write, a socket could be a stranger's: the next place is taken."""
    open_folder = tmp_path / "open"
    (open_folder / "memfs").mkdir(parents=True)
    (open_folder / "memfs").chmod(0o777)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(open_folder))
    file = client.socket_file("0" * 16)
    assert file is not None
    assert not file.startswith(str(open_folder))


def test_two_boots_do_not_start_two(ready: Corpus) -> None:
    """`boot --serve` returns at once; the second server finds the first one's lock, and ends."""
    assert run_client("boot", "--serve").code == 0
    assert run_client("boot", "--serve").code == 0
    until(answers)
    first = Path(f"{socket_of()}.lock").read_text()
    ran = run_client("serve")
    assert ran.code == 7
    assert "served already" in ran.err
    assert Path(f"{socket_of()}.lock").read_text() == first


def test_it_ends_with_its_tree(served: Corpus) -> None:
    """A server of a tree that is gone would hold memory for nothing."""
    file = socket_of()
    shutil.rmtree("memory")
    until(lambda: not file.exists())


def test_it_ends_when_idle(ready: Corpus) -> None:
    """And says so by its exit code 0."""
    assert run_client("serve", "--idle", "0.5").code == 0
    assert not socket_of().exists()


def test_stop(served: Corpus) -> None:
    """`serve --stop` ends it, and nothing starts it again."""
    assert run_client("serve", "--stop").out == "stopped\n"
    assert not socket_of().exists()
    assert run_client("serve", "--stop").out == "no server was running\n"
    assert run_client("grep", "-l", "zebra").code == 0
    assert not socket_of().exists()


def test_a_killed_server_is_replaced(served: Corpus) -> None:
    """The command that finds it dead works all the same, and a new one is there for the next."""
    os.kill(int(Path(f"{socket_of()}.lock").read_text()), signal.SIGKILL)
    until(lambda: not answers())
    assert run_client("grep", "-l", "zebra").out == "memory/sessions/2026/05/two/summary.md\n"
    until(answers)
    until(lambda: "warm" in log())
    assert run_client("grep", "-l", "zebra").code == 0
    assert "served grep" in log()


def test_a_stopped_server_holds_nobody_up(served: Corpus) -> None:
    """One that hangs does not accept; the command does its own work."""
    server = int(Path(f"{socket_of()}.lock").read_text())
    os.kill(server, signal.SIGSTOP)
    try:
        assert run_client("grep", "-l", "zebra").out == "memory/sessions/2026/05/two/summary.md\n"
    finally:
        os.kill(server, signal.SIGCONT)


def test_killed_while_it_works(served: Corpus) -> None:
    """Killed at random moments of many commands: each client ends well, the tree is whole, no edit is lost."""
    Path("memory/notes").mkdir(exist_ok=True)
    Path("memory/notes/mine.md").write_text("my own zebra\n")
    for turn in range(5):
        if not answers():
            client.start(os.path.abspath("memory"))
        until(answers)
        asked = [
            subprocess.Popen(
                [sys.executable, "-m", "memfs.client", *argv], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
            )
            for argv in (["grep", "-l", "zebra"], ["fetch", "when does the deployment run?"], ["get", "."])
        ]
        time.sleep(0.05 + 0.1 * turn)
        os.kill(int(Path(f"{socket_of()}.lock").read_text()), signal.SIGKILL)
        for child in asked:
            out, err = child.communicate(timeout=WAIT_S)
            assert child.returncode in (0, client.LOST), (out, err)
        shutil.rmtree("memory/sessions", ignore_errors=True)
    assert Path("memory/notes/mine.md").read_text() == "my own zebra\n"
    assert run_client("get", ".", MEMFS_NO_SERVER="1").code == 0
    stored = {path: file.data for path, file in served.read([info.path for info in served.files()]).items()}
    assert {path: data for path, data in tree_of("memory").items() if path in stored} == stored
    assert leftovers("memory") == []


def test_ended_while_it_starts(ready: Corpus) -> None:
    """From its first moment, so that a tree can be taken away at once: nothing of it comes back."""
    for wait_s in (0, 0, 0.05, 0.2, 0.4):
        client.start(os.path.abspath("memory"))
        child = client._started[-1]
        client.start(os.path.abspath("memory"))
        assert client._started[-1] is child, "one is starting already"
        time.sleep(wait_s)
        assert run_client("serve", "--stop").out == "stopped\n"
        assert child.wait(WAIT_S) in (0, -signal.SIGTERM)
    # One that was killed leaves its socket: nothing is started because of it.
    client.start(os.path.abspath("memory"))
    until(answers)
    os.kill(int(Path(f"{socket_of()}.lock").read_text()), signal.SIGKILL)
    assert client._started[-1].wait(WAIT_S) == -signal.SIGKILL
    assert all(child.returncode is None for child in client._started[:-1]), "those that have ended are not kept"
    assert run_client("serve", "--stop").out == "no server was running\n"
    assert run_client("ls", "--remote").code == 0
    assert not socket_of().exists()
    shutil.rmtree("memory")
    shutil.rmtree(os.environ["MEMFS_STATE_DIR"])
    done = run_client("serve")
    assert done.code == 2
    assert "not a memfs tree" in done.err
    assert not Path(os.environ["MEMFS_STATE_DIR"]).exists()


def test_a_client_that_dies(served: Corpus) -> None:
    """Its command ends with it; the others are answered."""
    dying = [
        subprocess.Popen([sys.executable, "-m", "memfs.client", "grep", "."], stdout=subprocess.DEVNULL)
        for _ in range(5)
    ]
    time.sleep(0.1)
    for child in dying:
        child.kill()
        child.wait()
    assert run_client("grep", "-l", "zebra").out == "memory/sessions/2026/05/two/summary.md\n"
    assert "Error" not in log()


def test_ten_clients_at_once(served: Corpus) -> None:
    """Each gets its own answer."""
    questions = {
        "zebra": "two/summary.md",
        "blue": "one/summary.md",
        "green tea": "people/ana.md",
        "Friday": "deploy.md",
    }
    words = [word for _ in range(5) for word in questions]
    with ThreadPoolExecutor(10) as pool:
        found = list(pool.map(lambda word: run_client("grep", "-l", word), words))
    assert all(ran.out.endswith(f"{questions[word]}\n") for word, ran in zip(words, found, strict=True))
    assert log().count("served grep") == len(words)


def test_two_trees_share_the_cache_not_each_other(served: Corpus) -> None:
    """Another sandbox on this host finds the mirror made, and touches nothing of the first one's tree."""
    before = tree_of("memory")
    assert run_client("boot", "second", "--budget", "0").code == 0
    ran = run_client("grep", "-l", "zebra", "--tree", "second")
    assert ran.out == "second/sessions/2026/05/two/summary.md\n"
    assert tree_of("memory") == before
    assert len(list(Path(os.environ["MEMFS_CACHE_DIR"], "mirror").iterdir())) == 1


def test_the_client_is_light() -> None:
    """What the thin client loads is what every command with a server costs."""
    script = "import sys, memfs.client as c; c._tree(['grep']); print(len(sys.modules), 'argparse' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    count, parser = done.stdout.split()
    assert int(count) < 90
    assert parser == "False"
