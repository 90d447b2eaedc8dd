"""What the command leaves out of its own process, and nobody else's."""

from __future__ import annotations

import subprocess
import sys

import pytest

from memfs.unneeded import UNNEEDED

CLIENT = """
import os, sys
os._exit = sys.exit
sys.argv = ["memfs", "fetch", "x", "--corpus", sys.argv[1]]
from memfs.client import main
try:
    main()
except SystemExit as end:
    print("code", end.code)
"""


def run(code: str, *arguments: str) -> str:
    done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_command_loads_stand_ins(tmp_path: object) -> None:
    """lancedb is there, and what it only needs for a REST service isn't."""
    out = run(
        CLIENT + f"print([sys.modules[name].__class__.__name__ for name in {UNNEEDED!r} if name in sys.modules])\n"
        "print('lancedb' in sys.modules)",
        f"{tmp_path}/none",
    )
    assert "'_StandIn', '_StandIn'" in out
    assert out.endswith("True\n")


def test_a_stand_in_that_is_used_says_so() -> None:
    """Never a wrong answer: the first use of what was left out is an error that names it."""
    code = (
        "from memfs.unneeded import leave_out; leave_out()\n"
        "import lance_namespace\n"
        "try:\n    lance_namespace.connect('rest', {})\n"
        "except ImportError as error:\n    print(error)"
    )
    assert "lance_namespace is left out of the memfs command" in run(code)


@pytest.mark.parametrize("name", UNNEEDED[:2])
def test_a_library_import_leaves_nothing_out(name: str) -> None:
    """A program that imports memfs keeps its own lancedb whole."""
    assert run(f"import memfs.corpus.table, {name}; print({name}.__file__ is not None)") == "True\n"
