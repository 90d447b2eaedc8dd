"""The console command's first step: hand the command line to the tree's resident server, if one is there.

It imports next to nothing, for it is all that `memfs fetch` and `memfs grep` cost when
a server is up. Without one, or with one that has another environment (credentials,
MEMFS_*), the same command runs in this process, with the same output.

    request   4-byte length, then texts that end with NUL each: how many settings, they, the working folder, argv
    accepted  1 byte (a), at once: a server that is stopped or hangs does not send it
    answer    frames of 1 byte kind (o: stdout, e: stderr, x: exit code, d: declined, k: still at work, once a second),
              4-byte length, bytes
"""

from __future__ import annotations

import os
import sys

from memfs.project import MARK, nearest

TYPE_CHECKING = False
if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable

__all__ = ["SERVED", "main", "settings", "socket_file", "start"]

SERVED = ("fetch", "get", "grep", "ls")
PREFIXES = ("MEMFS_", "AWS_", "AZURE_", "GOOGLE_", "XDG_", "HF_")
_started: list[subprocess.Popen[bytes]] = []
ACCEPT_S = 5
SILENT_S = 15
"""A server that says nothing for so long, not even that it is at work, is stopped or hangs."""
GARBAGE_EVERY = 100_000
"""Objects that may be made before the collector looks for cycles; 700 is Python's own."""
DISK = 9
"""As memfs.errors.DiskError's."""
LOST = 75
"""The exit code when a server ended, or stopped, in the middle of an answer."""


def main() -> None:
    """Run the command line: by the server, or here."""
    argv = sys.argv[1:]
    code = None
    # A language model's keys are in this process's environment, and stay there.
    here = "--help" in argv or any(word.split("=", 1)[0] == "--model" for word in argv)
    if argv and argv[0] in SERVED and not os.environ.get("MEMFS_NO_SERVER") and not here:
        code = _ask(argv)
    if code is None:
        import gc

        from memfs.cli import main as run
        from memfs.unneeded import leave_out

        leave_out()
        # One short command makes no garbage to speak of: at Python's own pace, looking for it takes 12 of a boot's
        # 140 ms.
        gc.set_threshold(GARBAGE_EVERY)
        try:
            run()
        except SystemExit as end:
            code = int(end.code or 0)
    # Whatever was begun is ended and flushed; taking Python and its libraries down takes a tenth of a boot.
    os._exit(code or 0)


def settings() -> list[str]:
    """Return what a server and its client must have in common: program and environment."""
    import memfs

    environ = sorted(f"{k}={v}" for k, v in os.environ.items() if k.startswith(PREFIXES) or k == "HOME")
    return [str(memfs.__file__), sys.executable, *environ]


def socket_file(state: str) -> str | None:
    """Return where the server of the tree with id `state` listens; None if there is no safe place for it."""
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    folders = [f"/tmp/memfs-{os.getuid()}"]
    if runtime and len(runtime) < 60:
        folders.insert(0, os.path.join(runtime, "memfs"))
    for folder in folders:
        try:
            os.makedirs(folder, mode=0o700, exist_ok=True)
            status = os.lstat(folder)
        except OSError:
            continue
        # A folder that another user made, or may write, could hold a server of theirs.
        if status.st_uid == os.getuid() and not status.st_mode & 0o077 and (status.st_mode & 0o170000) == 0o040000:
            return os.path.join(folder, f"{state}.sock")
    return None


def start(tree: str) -> None:
    """Start the tree's server in the background, and do not wait for it; one that is starting or serves is let be.

    The server is given its lock, held and with its process in it, as its standard input: `memfs serve --stop` ends
    it from its first moment.
    """
    import fcntl
    import subprocess

    state = _state(os.path.join(tree, MARK))
    file = state and socket_file(state)
    if not file:
        return
    lock = os.open(f"{file}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.ftruncate(lock, 0)
        command = [sys.executable, "-m", "memfs.client", "serve", "--tree", tree]
        null = subprocess.DEVNULL
        child = subprocess.Popen(command, stdin=lock, stdout=null, stderr=null, start_new_session=True, cwd="/")
        os.pwrite(lock, f"{child.pid}\n".encode(), 0)
    except BlockingIOError:
        return
    finally:
        os.close(lock)
    # It outlives this process, or is this process's child to its end: not waited for either way. Those that have
    # ended are reaped, or a process that lays out many trees would gather zombies.
    _started[:] = [*(other for other in _started if other.poll() is None), child]


def _ask(argv: list[str]) -> int | None:
    """Return the server's exit code; None if the command is to run here."""
    tree, state = _tree(argv)
    file = state and socket_file(state)
    if not tree or not file or not os.path.exists(file):
        return None
    # What `socket` is made of, without the 5 ms that its own imports (enum, selectors) take.
    import _socket

    connection = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    try:
        connection.connect(file)
    except OSError:
        # It was killed. This command does its own work; the next one finds a server again.
        start(tree)
        return None
    mine = settings()
    texts = [str(len(mine)), *mine, os.getcwd(), *argv]
    request = b"".join(os.fsencode(text) + b"\0" for text in texts)
    try:
        connection.settimeout(ACCEPT_S)
        connection.sendall(len(request).to_bytes(4, "big") + request)
        accepted = connection.recv(1)
        connection.settimeout(None)
    except (ConnectionError, TimeoutError):
        accepted = b""
    if accepted != b"a":
        connection.close()
        return None
    silent_s = SILENT_S.to_bytes(8, sys.byteorder) + bytes(8)
    connection.setsockopt(_socket.SOL_SOCKET, _socket.SO_RCVTIMEO, silent_s)
    with open(connection.detach(), "rb") as answer:
        try:
            return _relay(answer.read)
        except ConnectionError:
            return None


def _relay(read: Callable[[int], bytes | None]) -> int | None:
    """Copy the answer to this process's streams."""
    printed = False
    while (head := read(5)) and len(head) == 5:
        kind, size = head[:1], int.from_bytes(head[1:], "big")
        data = read(size) or b""
        if len(data) < size:
            break
        if kind == b"k":
            continue
        if kind == b"x":
            return int(data)
        if kind == b"d":
            return None
        stream = sys.stdout if kind == b"o" else sys.stderr
        printed = True
        try:
            stream.buffer.write(data)
            stream.buffer.flush()
        except BrokenPipeError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 0
        except OSError as error:
            sys.stderr.write(f"error: the output cannot be written: {error.strerror}\nhint: make room where it goes\n")
            return DISK
    if head == b"" and not printed:
        # It ended. Had it begun to lay files, this command goes on from there.
        return None
    sys.stderr.write(
        "error: the memfs server ended or stopped while it answered\n"
        "hint: run the command again; if that hangs too, end the server: memfs serve --stop\n"
    )
    return LOST


def _tree(argv: list[str]) -> tuple[str | None, str | None]:
    """Return the tree that a command line means, and its id; None for what cannot be told (the command will say why).

    The usual case, the nearest settings file being a tree's mark, is settled without reading it
    as such. The server resolves the settings once more, as they are.
    """
    named = [word for word in argv if word.startswith("--tree")]
    if not named and not os.environ.get("MEMFS_TREE"):
        file = nearest(os.getcwd(), os.environ.get("HOME") or os.path.expanduser("~"))
        state = file and _state(file)
        if file and state:
            return os.path.dirname(file), state
    flag = next((a.removeprefix("--tree=") for a in named if a.startswith("--tree=")), None)
    if flag is None and "--tree" in argv[:-1]:
        flag = argv[argv.index("--tree") + 1]
    tree = _configured_tree(flag)
    return tree, tree and _state(os.path.join(tree, MARK))


def _configured_tree(flag: str | None) -> str | None:
    from memfs.config import load
    from memfs.errors import ConfigError

    try:
        return load({"tree": flag}).tree
    except (ConfigError, OSError):
        return None


def _state(mark: str) -> str | None:
    """Return the id in a tree's mark, a file; None if it is something else."""
    try:
        with open(mark, encoding="utf-8", errors="replace") as handle:
            lines = handle.read(65_536).splitlines()
    except OSError:
        return None
    for line in lines:
        key, _, value = line.partition("=")
        state = value.strip()[1:-1]
        if key.strip() == "state" and len(state) == 16 and not state.strip("0123456789abcdef"):
            return state
    return None


if __name__ == "__main__":
    main()
