"""The architecture, held: which module may import which, who owns a heavy library, what a command loads."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import memfs
from memfs.corpus.table import Corpus

ROOT = Path(memfs.__file__).parent
ROOMS = {
    "errors": 0, "later": 0, "paths": 0, "project": 0, "unneeded": 0, "config": 1, "llm": 1, "corpus": 2, "workset": 3,
    "recall": 3, "brain": 4, "verbs": 5, "report": 6, "report_brain": 6, "report_graph": 6, "memory": 6, "ways in": 7,
}  # fmt: skip
"""A module imports only from rooms below its own, or from its own room."""
ALONE = ("workset", "recall")
"""Of the same height, and apart."""
NOT_VERBS = {
    "cli",
    "client",
    "commands",
    "commands_brain",
    "commands_graph",
    "serve",
    "mcp",
    "testing",
    "memory",
    "report",
    "report_brain",
    "report_graph",
    "errors",
    "later",
    "paths",
    "project",
    "unneeded",
    "llm",
    "config",
    "__init__",
}
OWNERS = {
    "lancedb": {"corpus/table.py", "corpus/edges.py"},
    "lance": {"corpus/table.py"},
    "obstore": {"corpus/objects.py"},
    "diskcache": {"workset/cache.py"},
    "fsspec": {"corpus/sources/discover.py", "corpus/filesystem.py"},
    "s3fs": {"testing.py"},
    "zstandard": {"corpus/bootset.py"},
    "sqlite3": {"workset/manifest.py", "workset/cache.py"},
    "Stemmer": {"corpus/terms.py"},
    "tokenizers": {"corpus/embed.py"},
    "sentence_transformers": {"corpus/embed.py"},
    "torch": set(),
    "markdown_it": {"brain/page.py"},
    "yaml": {"brain/page.py"},
    "pydantic_ai": {"llm.py"},
    "openai": set(),
    "anthropic": set(),
}
HEAVY = {
    "lancedb",
    "lance",
    "pyarrow",
    "numpy",
    "torch",
    "s3fs",
    "fsspec",
    "botocore",
    "aiohttp",
    "diskcache",
    "tokenizers",
    "sentence_transformers",
    "markdown_it",
    "yaml",
    "pydantic_ai",
}


def modules() -> list[Path]:
    return sorted(file for file in ROOT.rglob("*.py") if "samples" not in file.parts)


def imports(file: Path) -> Iterator[tuple[str, bool]]:
    """Yield (module, at run time?) for every import, wherever it stands; those for type checkers only are False."""
    tree = ast.parse(file.read_text())
    typing = {
        id(n)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)
        for n in ast.walk(node)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, id(node) not in typing) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            assert node.level == 0, f"{file}: a relative import"
            for alias in node.names:
                inner = ROOT.parent / Path(*node.module.split("."), alias.name)
                is_module = node.module.startswith("memfs") and (inner.with_suffix(".py").exists() or inner.is_dir())
                yield (f"{node.module}.{alias.name}" if is_module else node.module), id(node) not in typing


def room(module: str) -> str:
    """The room of `memfs.…`."""
    parts = module.split(".")
    if len(parts) == 1:
        return "errors"
    top = parts[1]
    if top in ("cli", "client", "commands", "commands_brain", "commands_graph", "serve", "mcp", "testing", "evals"):
        return "ways in"
    return top if top in ROOMS else "verbs"


def name_of(file: Path) -> str:
    parts = file.relative_to(ROOT.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@pytest.mark.parametrize("file", modules(), ids=lambda file: str(file.relative_to(ROOT)))
def test_arrows(file: Path) -> None:
    """Imports go one way: errors, paths <- corpus <- workset, recall <- brain <- verbs <- the ways in."""
    if file == ROOT / "__init__.py":
        return
    mine = room(name_of(file))
    for module, _ in imports(file):
        if not module.startswith("memfs."):
            continue
        theirs = room(module)
        assert ROOMS[theirs] <= ROOMS[mine], f"{file}: {mine} imports {module}"
        assert not (mine in ALONE and theirs in ALONE and mine != theirs), f"{file}: {mine} imports {module}"


def test_verbs_do_not_import_verbs() -> None:
    """A verb stands alone."""
    for file in ROOT.glob("*.py"):
        if file.stem not in NOT_VERBS:
            others = {module for module, _ in imports(file) if module.startswith("memfs.") and room(module) == "verbs"}
            assert others <= {name_of(file)}, f"{file} imports {others}"


def test_owners() -> None:
    """Each heavy library is imported by its owner only."""
    for file in modules():
        for module, _ in imports(file):
            owners = OWNERS.get(module.split(".")[0])
            assert owners is None or str(file.relative_to(ROOT)) in owners, f"{file} imports {module}"


def loaded(code: str) -> set[str]:
    """The heavy libraries that a new process has loaded after `code`."""
    script = f"import sys\n{code}\nprint('LOADED', *sorted({{name.split('.')[0] for name in sys.modules}}))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    (line,) = (line for line in done.stdout.splitlines() if line.startswith("LOADED"))
    return HEAVY & set(line.split())


def command(*args: str) -> str:
    run = "try:\n    from memfs.cli import main; main()\nexcept SystemExit as end:\n    assert not end.code, end.code"
    return f"sys.argv = {['memfs', *args]!r}\n{run}"


def test_import_is_light() -> None:
    """`import memfs`, the command line and its help load no heavy library."""
    assert loaded("import memfs") == set()
    assert loaded("import memfs.cli") == set()
    assert loaded("import memfs; memfs.connect('/tmp/none')") == set()
    for args in (["--help"], ["--version"], ["boot", "--help"], ["fetch", "--help"], ["config"]):
        assert loaded(command(*args)) == set(), args


def test_boot_and_status_are_light(filled: Corpus, tmp_path: Path) -> None:
    """A boot, a refresh and a status load neither lancedb, pyarrow, numpy, torch nor s3fs."""
    tree = str(tmp_path / "memory")
    for _ in range(2):
        assert loaded(command("boot", tree, "--corpus", filled.uri)) == set()
    assert loaded(command("boot", tree, "--print-index", "--corpus", filled.uri)) == set()
    assert loaded(command("status", "--tree", tree)) == set()
    with open(f"{tree}/notes/deploy.md", "a") as handle:
        handle.write("mine\n")
    run = command("diff", "--tree", tree).replace("assert not end.code", "assert end.code == 1")
    assert loaded(run) <= {"diskcache"}
    assert loaded(command("ls", "--local", "--tree", tree)) <= {"lancedb", "pyarrow", "numpy", "lance"}


def test_public_names() -> None:
    """The public names, each with a home; changing this list is changing the interface."""
    assert memfs.__all__ == [
        "Answer",
        "Commit",
        "Document",
        "Evidence",
        "MemfsError",
        "Memory",
        "Passage",
        "connect",
        "create",
    ]
    assert all(getattr(memfs, name).__module__.startswith("memfs.") for name in memfs.__all__)
    with pytest.raises(AttributeError):
        _ = memfs.nothing
    assert (ROOT / "py.typed").exists()


def test_no_grab_bags() -> None:
    """No module is named after nothing in particular."""
    banned = {"utils", "util", "helpers", "common", "base", "core", "manager", "service", "handler"}
    assert not {file.stem for file in modules()} & banned
    assert not {part for file in modules() for part in file.relative_to(ROOT).parts} & banned
