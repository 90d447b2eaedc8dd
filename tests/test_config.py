"""Settings: which layer wins, where a value came from, what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from memfs.config import Config, load, parse_size
from memfs.errors import ConfigError


def origins(config: Config) -> dict[str, str]:
    return {setting.name: setting.origin for setting in config.settings}


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


@pytest.fixture
def env(home: Path) -> dict[str, str]:
    """An environment with a home only."""
    return {"HOME": str(home)}


def test_defaults(env: dict[str, str], home: Path, tmp_path: Path) -> None:
    """Nothing set: ./memory, XDG folders, no corpus; and `need_corpus` says how to name one."""
    config = load({}, env, str(tmp_path))
    assert config.corpus is None
    assert config.tree == str(tmp_path / "memory")
    assert config.cache_dir == str(home / ".cache/memfs")
    assert config.state_dir == str(home / ".local/state/memfs")
    assert (config.budget_bytes, config.embedder, config.index_tokens) == (None, None, 1500)
    assert (config.max_bytes, config.cache_max_bytes, config.min_free_bytes) == (None, 4 * 10**9, None)
    assert origins(config)["corpus"] == "not set"
    assert origins(config)["tree"] == "default"
    with pytest.raises(ConfigError) as caught:
        config.need_corpus()
    assert "--corpus" in str(caught.value.hint)


def test_precedence(env: dict[str, str], home: Path, tmp_path: Path) -> None:
    """Flag over environment over project file over user file over default, each with its origin."""
    user = write(home / ".config/memfs/config.toml", 'corpus = "user"\nbudget = "1k"\n')
    assert (load({}, env, str(tmp_path)).corpus, origins(load({}, env, str(tmp_path)))["corpus"]) == (
        str(tmp_path / "user"),
        str(user),
    )
    project = write(tmp_path / "p/.memfs.toml", 'corpus = "project"\n')
    inner = tmp_path / "p/q/r"
    inner.mkdir(parents=True)
    found = load({}, env, str(inner))
    assert (found.corpus, origins(found)["corpus"], found.budget_bytes) == (
        str(tmp_path / "p/project"),
        str(project),
        1000,
    )
    env["MEMFS_CORPUS"] = "environment"
    found = load({}, env, str(inner))
    assert (found.corpus, origins(found)["corpus"]) == (str(inner / "environment"), "MEMFS_CORPUS")
    found = load({"corpus": "flag", "tree": None}, env, str(inner))
    assert (found.corpus, origins(found)["corpus"]) == (str(inner / "flag"), "--corpus")


def test_a_tree_names_its_corpus(env: dict[str, str], tmp_path: Path) -> None:
    """In, above and beside a booted tree, its mark gives corpus and tree."""
    write(tmp_path / "w/memory/.memfs.toml", 'corpus = "s3://b/team"\nstate = "0123456789abcdef"\n')
    (tmp_path / "w/memory/notes").mkdir()
    for where in ("w", "w/memory", "w/memory/notes"):
        config = load({}, env, str(tmp_path / where))
        assert config.corpus == "s3://b/team"
        assert config.tree == str(tmp_path / "w/memory")


@pytest.mark.parametrize(
    "text",
    [
        'tree = "../out"',
        'tree = "/tmp/out"',
        'tree = "link/sub"',
        'cache_dir = "c"',
        'state_dir = "s"',
        "cache_max_size = 0",
        "min_free = 0",
    ],
)
def test_a_strangers_project(env: dict[str, str], tmp_path: Path, text: str) -> None:
    """A settings file that came with a repository leads no write out of it, not through a symlink either."""
    file = write(tmp_path / "p/.memfs.toml", f"{text}\n")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "p/link").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ConfigError) as caught:
        load({}, env, str(tmp_path / "p"))
    assert str(file) in caught.value.message


def test_room(env: dict[str, str], tmp_path: Path) -> None:
    """The limits from a flag, the environment and a project's file; `none` lifts one, in any case far above a disk."""
    write(tmp_path / ".memfs.toml", 'max_size = "10k"\n')
    assert load({}, env, str(tmp_path)).max_bytes == 10_000
    env |= {"MEMFS_MAX_SIZE": "20k", "MEMFS_CACHE_MAX_SIZE": "1MB", "MEMFS_MIN_FREE": "5m"}
    found = load({}, env, str(tmp_path))
    assert (found.max_bytes, found.cache_max_bytes, found.min_free_bytes) == (20_000, 10**6, 5 * 10**6)
    assert origins(found)["min_free"] == "MEMFS_MIN_FREE"
    assert load({"max_size": "0"}, env, str(tmp_path)).max_bytes == 0
    assert (load({"max_size": "none"}, env, str(tmp_path)).max_bytes or 0) >= 1 << 50
    with pytest.raises(ConfigError, match="min_free"):
        load({}, env | {"MEMFS_MIN_FREE": "none"}, str(tmp_path))


def test_a_projects_own_tree(env: dict[str, str], tmp_path: Path) -> None:
    """A tree and a corpus in a project's file are relative to that file."""
    write(tmp_path / "p/.memfs.toml", 'tree = "deep/memory"\ncorpus = "corpus"\n')
    (tmp_path / "p/q").mkdir()
    config = load({}, env, str(tmp_path / "p/q"))
    assert (config.tree, config.corpus) == (str(tmp_path / "p/deep/memory"), str(tmp_path / "p/corpus"))


def test_not_above_home(env: dict[str, str], home: Path) -> None:
    """A stranger's file above the home folder is not ours to obey."""
    write(home.parent / ".memfs.toml", 'corpus = "stranger"\n')
    inner = home / "project"
    inner.mkdir()
    assert load({}, env, str(inner)).corpus is None


@pytest.mark.parametrize(
    ("text", "said"),
    [("corpsu = 'x'\n", "corpsu"), ("corpus = \n", "mend the file"), ("[corpus]\nx = 1\n", "corpus"), ("\x00", "mend")],
)
def test_bad_files(env: dict[str, str], tmp_path: Path, text: str, said: str) -> None:
    """A file with an unknown key, or that is not TOML, is an error that names the file."""
    file = write(tmp_path / ".memfs.toml", text)
    with pytest.raises(ConfigError) as caught:
        load({}, env, str(tmp_path))
    assert str(file) in caught.value.message
    assert said in f"{caught.value.message} {caught.value.hint}"


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("0", 0),
        ("2000000", 2_000_000),
        ("500k", 500_000),
        ("2MB", 2_000_000),
        ("2 MiB", 2 << 20),
        ("1.5m", 1_500_000),
        ("1g", 10**9),
        ("7b", 7),
    ],
)
def test_sizes(text: str, size: int) -> None:
    """Sizes as people write them, powers of 1,024."""
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "k", "-1", "two", "1x", "1e999", "nan", "inf", "2mm", "1 2k", "9999999g"])
def test_no_sizes(text: str) -> None:
    """What is no size, or absurd, is refused with an example."""
    with pytest.raises(ConfigError) as caught:
        parse_size(text, "budget")
    assert "budget" in caught.value.message
    assert "2MB" in str(caught.value.hint)


@pytest.mark.parametrize("text", ["-1", "1.5", "many", "²"])
def test_index_tokens(env: dict[str, str], tmp_path: Path, text: str) -> None:
    """The index's token budget is a whole number."""
    with pytest.raises(ConfigError, match="whole number"):
        load({"index_tokens": text}, env, str(tmp_path))
