"""Every error memfs raises on purpose, grouped by what the caller does next.

    MemfsError
    ├── ConfigError          fix the configuration            exit 2
    ├── InputError           fix the input                    exit 3
    │   └── PathError        a name that memory/ cannot hold
    ├── NotFoundError        ask for another                  exit 4
    │   └── NotACorpusError  this URI holds no corpus
    ├── AccessError          fix the credentials              exit 5
    ├── UnreachableError     wait and retry                   exit 6
    ├── ConflictError        re-read and retry                exit 7
    ├── CorruptError         restore or rebuild               exit 8
    └── DiskError            make room, or fix the folder     exit 9

Each carries a one-line message, a hint (what to try) and an exit code. Texts
pass through `redact`, so a credential never reaches a terminal or a log.
"""

from __future__ import annotations

import os
import re

__all__ = [
    "AccessError",
    "ConfigError",
    "ConflictError",
    "CorruptError",
    "DiskError",
    "InputError",
    "MemfsError",
    "NotACorpusError",
    "NotFoundError",
    "PathError",
    "UnreachableError",
    "redact",
]

# As texts: `re` compiles them when the first error comes, which most runs never meet.
_SECRET_NAMES = r"(?i)(secret|token|password|access_key_id|api_key|account_key|sas_key|credential)"
_PATTERNS = (
    (r"(?i)\b([a-z][a-z0-9+.-]*://)(?:[^/\s'\"@]*|[^\s'\"@/]*:[^\s'\"@]*)@", r"\1***@"),
    (
        r"(?i)\b((?:x-amz-(?:signature|credential|security-token)|sig|signature|awsaccesskeyid|"
        r"(?:aws_)?(?:secret_access_key|access_key_id|session_token)|account_key|password|api_?key|token)"
        r"[\"']?\s*[=:]\s*[\"']?)[^&\s\"',}]+",
        r"\1***",
    ),
    (r"(?<![A-Za-z0-9])(?:AKIA|ASIA)[A-Z0-9]{16}(?![A-Za-z0-9])", "***"),
    (r"(?i)\b(authorization[\"']?\s*[=:]\s*[\"']?)[^\"'\n]+", r"\1***"),
)


def redact(text: str) -> str:
    """Replace credentials by `***`: URL userinfo, signed-URL parameters, known keys, secret environment values."""
    for name, value in os.environ.items():
        if len(value) >= 6 and value in text and re.search(_SECRET_NAMES, name):
            text = text.replace(value, "***")
    for pattern, replacement in _PATTERNS:
        text = re.sub(pattern, replacement, text)
    return text


def printable(text: str) -> str:
    """Return text that others wrote without what steers a terminal, line ends included: a space stands in its place."""
    return text if text.isprintable() else "".join(char if char.isprintable() else " " for char in text)


def plain_line(text: str) -> str:
    """Return text that others wrote as one `printable` line, single spaces between its words."""
    return " ".join(printable(text).split())


class MemfsError(Exception):
    """The root: catch this to catch all that memfs raises on purpose."""

    exit_code = 1

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        self.message = redact(message)
        self.hint = None if hint is None else redact(hint)
        super().__init__(self.message)


class ConfigError(MemfsError):
    """A flag, a MEMFS_* variable or a settings file is wrong, or a needed package is missing."""

    exit_code = 2


class InputError(MemfsError):
    """What was given to be stored or asked cannot be used."""

    exit_code = 3


class PathError(InputError):
    """A name that memory/ cannot hold on every system; `reason` says which rule."""

    def __init__(self, path: str, reason: str) -> None:
        self.path, self.reason = path, reason
        super().__init__(
            f"{path!r}: {reason}",
            hint="such a name cannot lie in memory/ on every system; wildcards are not known here, name a folder",
        )


class NotFoundError(MemfsError):
    """The named file, version or source does not exist."""

    exit_code = 4


class NotACorpusError(NotFoundError):
    """The store answers, but no memfs corpus lies at this URI."""


class AccessError(MemfsError):
    """The store refused the credentials, or they lack the right."""

    exit_code = 5


class UnreachableError(MemfsError):
    """The store did not answer in time."""

    exit_code = 6


class ConflictError(MemfsError):
    """Another writer was faster, or both sides changed."""

    exit_code = 7


class CorruptError(MemfsError):
    """Stored bytes do not match their hash, or a format is newer than this memfs."""

    exit_code = 8


class DiskError(MemfsError):
    """The local disk is full or refuses the write."""

    exit_code = 9
