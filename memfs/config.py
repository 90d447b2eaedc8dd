"""Settings: flags over MEMFS_* over the project's file over the user's file, resolved once into a frozen `Config`.

The project's file is `.memfs.toml` or `memory/.memfs.toml` (a tree's own mark) in the
working folder or the nearest folder above, and may not name folders outside its own; the user's is
`$XDG_CONFIG_HOME/memfs/config.toml`. Each value remembers where it came from.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import Any, NamedTuple

from memfs.errors import ConfigError
from memfs.project import MARK, inside, nearest

__all__ = ["NO_LIMIT_BYTES", "Config", "Setting", "load", "parse_size"]

FILE_KEYS = (
    "corpus", "tree", "embedder", "cache_dir", "state_dir", "budget", "index_tokens",
    "max_size", "cache_max_size", "min_free", "state",
)  # fmt: skip
HOST_KEYS = ("cache_dir", "state_dir", "cache_max_size", "min_free")
"""What a project's file may not set: it may come with a stranger's repository."""
NO_LIMIT_BYTES = 1 << 50
_UNITS = {"": 1, "b": 1, "k": 10**3, "kb": 10**3, "m": 10**6, "mb": 10**6, "g": 10**9, "gb": 10**9}
_UNITS |= {"kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30}


class Setting(NamedTuple):
    """One value and where it came from, for people."""

    name: str
    value: str
    origin: str


class Config(NamedTuple):
    """All settings. `corpus` is None where nothing names one."""

    corpus: str | None
    tree: str
    """The folder that is, or will be, `memory/`."""
    embedder: str | None
    """None: whatever made the corpus."""
    cache_dir: str
    state_dir: str
    budget_bytes: int | None
    """Of the initial map; None: as it was published."""
    index_tokens: int
    """Of the printed index, at 4 characters a token."""
    max_bytes: int | None
    """Of all files in the tree; None: as the tree's last boot was given, or no limit."""
    cache_max_bytes: int
    """Of this host's cache."""
    min_free_bytes: int | None
    """memfs leaves that much of a disk free; None: 64 MiB, or a hundredth of a small disk."""
    settings: tuple[Setting, ...]

    def need_corpus(self) -> str:
        """Return the corpus URI.

        Raises:
            ConfigError: no flag, variable or file names one.
        """
        if self.corpus is None:
            raise ConfigError(
                "no corpus is named",
                hint="give --corpus URI, set MEMFS_CORPUS, or run this beside a booted memory/; memfs init makes one",
            )
        return self.corpus


def load(flags: Mapping[str, str | None], environ: Mapping[str, str] | None = None, cwd: str | None = None) -> Config:
    """Resolve the settings. `flags` holds what the command line gave; None and absent mean not given.

    Raises:
        ConfigError: a settings file is not TOML, has an unknown key, or a value has the wrong form.
    """
    env = os.environ if environ is None else environ
    where = os.getcwd() if cwd is None else cwd
    home = env.get("HOME") or os.path.expanduser("~")
    layers = [
        ("flag", {k: v for k, v in flags.items() if v is not None}),
        ("environment", {k: env[f"MEMFS_{k.upper()}"] for k in FILE_KEYS if env.get(f"MEMFS_{k.upper()}")}),
        *_project_layers(where, home),
        *_file_layer(os.path.join(env.get("XDG_CONFIG_HOME") or f"{home}/.config", "memfs", "config.toml")),
        ("default", _defaults(env, home, where)),
    ]
    found = {name: _first(name, layers) for name in FILE_KEYS if name != "state"}
    value = {name: setting.value for name, setting in found.items()}
    corpus = value["corpus"]
    if corpus and "://" not in corpus:
        corpus = os.path.join(where, os.path.expanduser(corpus))
    return Config(
        corpus=corpus or None,
        tree=os.path.join(where, os.path.expanduser(value["tree"])),
        embedder=value["embedder"] or None,
        cache_dir=os.path.join(where, os.path.expanduser(value["cache_dir"])),
        state_dir=os.path.join(where, os.path.expanduser(value["state_dir"])),
        budget_bytes=parse_size(value["budget"], "budget") if value["budget"] else None,
        index_tokens=_number(value["index_tokens"], "index_tokens"),
        max_bytes=_limit(value["max_size"], "max_size"),
        cache_max_bytes=parse_size(value["cache_max_size"], "cache_max_size"),
        min_free_bytes=parse_size(value["min_free"], "min_free") if value["min_free"] else None,
        settings=tuple(found.values()),
    )


def _first(name: str, layers: list[tuple[str, dict[str, str]]]) -> Setting:
    for origin, values in layers:
        if name in values:
            return Setting(name, values[name], _origin_text(origin, name))
    return Setting(name, "", "not set")


def _origin_text(origin: str, name: str) -> str:
    if origin == "flag":
        return f"--{name.replace('_', '-')}"
    return f"MEMFS_{name.upper()}" if origin == "environment" else origin


def _defaults(env: Mapping[str, str], home: str, where: str) -> dict[str, str]:
    inside = os.path.exists(os.path.join(where, MARK))
    return {
        "tree": where if inside else os.path.join(where, "memory"),
        "cache_dir": os.path.join(env.get("XDG_CACHE_HOME") or f"{home}/.cache", "memfs"),
        "state_dir": os.path.join(env.get("XDG_STATE_HOME") or f"{home}/.local/state", "memfs"),
        "index_tokens": "1500",
        "cache_max_size": "4GB",
    }


def _project_layers(where: str, home: str) -> list[tuple[str, dict[str, str]]]:
    file = nearest(where, home)
    return [_project_layer(file)] if file else []


def _project_layer(file: str) -> tuple[str, dict[str, str]]:
    """A project's file must neither lead writes out of its own folder nor set anything of the host's."""
    ((origin, values),) = _file_layer(file)
    folder = os.path.dirname(file)
    forbidden = next((name for name in HOST_KEYS if name in values), None)
    if forbidden:
        raise ConfigError(
            f"{file}: {forbidden} cannot be set in a project's file",
            hint=f"set MEMFS_{forbidden.upper()}, or put it in ~/.config/memfs/config.toml",
        )
    tree = os.path.normpath(os.path.join(folder, values.get("tree", ".")))
    # Resolved: a repository may hold symlinks too.
    if not inside(tree, folder):
        raise ConfigError(f"{file}: tree leads out of its folder", hint="name a folder below the file, or use --tree")
    if "state" in values or "tree" in values:
        values["tree"] = tree
    if "://" not in values.get("corpus", "://"):
        values["corpus"] = os.path.normpath(os.path.join(folder, os.path.expanduser(values["corpus"])))
    return origin, values


def _file_layer(file: str) -> list[tuple[str, dict[str, str]]]:
    if not os.path.isfile(file):
        return []
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    try:
        with open(file, "rb") as handle:
            values: dict[str, Any] = tomllib.load(handle)
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(f"{file}: {error}", hint="mend the file, or delete it") from error
    unknown = sorted(set(values) - set(FILE_KEYS))
    if unknown:
        raise ConfigError(f"{file}: unknown setting {unknown[0]!r}", hint=f"known: {', '.join(FILE_KEYS[:-1])}")
    wrong = next((name for name, value in values.items() if not isinstance(value, str | int)), None)
    if wrong:
        raise ConfigError(f"{file}: {wrong} must be a text or a whole number", hint="mend the file, or delete it")
    return [(file, {name: str(value) for name, value in values.items()})]


def parse_size(text: str, name: str = "size") -> int:
    """Return bytes: `2000000`, `500k`, `2MB` (powers of 1,000), `2MiB` (of 1,024).

    Raises:
        ConfigError: it is no size.
    """
    trimmed = text.strip().lower()
    digits = trimmed.rstrip("bkmgi ")
    try:
        size = float(digits) * _UNITS[trimmed[len(digits) :].strip()]
    except (ValueError, KeyError):
        raise ConfigError(f"{name}: {text!r} is no size", hint="write 2000000, 500k or 2MB") from None
    if not 0 <= size < 1 << 50:
        raise ConfigError(f"{name}: {text!r} is out of range", hint="write 2000000, 500k or 2MB")
    return int(size)


def _limit(text: str, name: str) -> int | None:
    """Return bytes, None where nothing is set; `none` lifts a limit that was set before."""
    if not text:
        return None
    return NO_LIMIT_BYTES if text.strip().lower() == "none" else parse_size(text, name)


def _number(text: str, name: str) -> int:
    if not text.isascii() or not text.isdigit():
        raise ConfigError(f"{name}: {text!r} is no whole number", hint="write 1500")
    return int(text)
