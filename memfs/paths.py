"""The path gate: which names memory/ can hold, in and out of the corpus.

A corpus path is relative to `memory/`, `/`-separated and in Unicode NFC. It must
be writable under the same name on Linux, macOS and Windows, so that a corpus
filled on one boots on all. The rules, each with its reason:

- NUL, C0/C1 controls, lone surrogates: no file system, or no terminal, takes them.
- backslash, and any of ``< > : " | ? *``: Windows separators and reserved marks.
- a segment that is empty, ``.`` or ``..``: would leave the tree or collapse.
- a leading ``/`` or a drive letter: absolute.
- a segment that ends in a dot or space: Windows drops it, two names become one.
- CON, NUL, COM1 and kin, with any ending: Windows devices.
- a segment over 255 bytes or a path over 1,024 bytes in UTF-8: ext4, APFS and S3 limits.
- `.memfs.toml` at the top, `.memfs-*` anywhere: ours.

Names in NFD are mapped to NFC (`normalise`); all else is refused, never mended.
Two paths whose `fold` is equal (case, NFC) are one name on macOS and Windows:
the corpus keeps the first and refuses the second.
"""

from __future__ import annotations

import os
import re
import unicodedata
from collections.abc import Iterator

from memfs.errors import PathError

__all__ = ["ancestors", "check", "fold", "joined", "normalise", "prefix"]

SEGMENT_BYTES_MAX = 255
PATH_BYTES_MAX = 1024

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_WINDOWS_MARKS = re.compile(r'[<>:"|?*]')
_WINDOWS_DEVICE = re.compile(r"(?i)^(con|prn|aux|nul|conin\$|conout\$|com[0-9¹²³]|lpt[0-9¹²³])\s*(\..*)?$")

_PLAIN = re.compile(r"[A-Za-z0-9_./ -]+")
_SUSPECT = re.compile(r"(?i)(?:^|/)(?:\.|/|$|(?:con|prn|aux|nul|com\d|lpt\d)(?:[ ./]|$))|[. ](?:/|$)")
"""Most paths are `_PLAIN` and not `_SUSPECT`: two quick looks, and the rules below need not be asked."""


def normalise(path: str) -> str:
    """Return `path` in NFC; the one mapping that the gate makes."""
    return unicodedata.normalize("NFC", path)


def fold(path: str) -> str:
    """Return the key under which two paths are the same file on a case-insensitive disk."""
    if path.isascii():
        return path.lower()
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", path).casefold())


def check(path: str) -> str:
    """Return `path` in NFC if memory/ can hold it.

    Raises:
        PathError: it breaks a rule of the gate.
    """
    if _PLAIN.fullmatch(path) and len(path) <= SEGMENT_BYTES_MAX and not _SUSPECT.search(path):
        return path
    if not path:
        raise PathError(str(path), "an empty name")
    try:
        encoded = path.encode("utf-8")
    except UnicodeEncodeError:
        raise PathError(ascii(path), "not valid Unicode (lone surrogate)") from None
    path = normalise(path)
    if _CONTROL.search(path):
        raise PathError(path, "holds a control character")
    if "\\" in path:
        raise PathError(path, "holds a backslash")
    if path.startswith("/") or re.match(r"^[A-Za-z]:", path):
        raise PathError(path, "is absolute")
    if len(encoded) > PATH_BYTES_MAX or len(path.encode("utf-8")) > PATH_BYTES_MAX:
        raise PathError(_short(path), f"is longer than {PATH_BYTES_MAX} bytes")
    segments = path.split("/")
    for segment in segments:
        _check_segment(path, segment)
    if segments[0].casefold() == ".memfs.toml" or any(s.casefold().startswith(".memfs-") for s in segments):
        raise PathError(path, "is reserved for memfs itself")
    return path


def _check_segment(path: str, segment: str) -> None:
    if segment == "":
        raise PathError(path, "has an empty segment (a leading, trailing or doubled '/')")
    if segment in (".", ".."):
        raise PathError(path, f"has the segment {segment!r}, which would leave its folder")
    if _WINDOWS_MARKS.search(segment):
        raise PathError(path, 'holds one of < > : " | ? *, which Windows refuses')
    if segment[-1] in ". ":
        raise PathError(path, "has a segment ending in a dot or space, which Windows drops")
    if _WINDOWS_DEVICE.match(segment):
        raise PathError(path, f"has the segment {segment!r}, a Windows device name")
    if len(segment.encode("utf-8")) > SEGMENT_BYTES_MAX:
        raise PathError(_short(path), f"has a segment longer than {SEGMENT_BYTES_MAX} bytes")


def _short(path: str) -> str:
    return path if len(path) <= 120 else f"{path[:100]}…{path[-15:]}"


def prefix(path: str) -> str:
    """Return a folder prefix that ends in one `/`, or "" for the whole tree; accepts `memory/notes`, `notes/`, `.`.

    Raises:
        PathError: the folder's name breaks a rule of the gate.
    """
    trimmed = normalise(path).strip("/")
    for lead in ("./", "memory/"):
        trimmed = trimmed.removeprefix(lead)
    if trimmed in ("", ".", "memory"):
        return ""
    return check(trimmed) + "/"


def ancestors(path: str) -> Iterator[str]:
    """Yield the folders above `path`, nearest first: `a/b/c` gives `a/b`, `a`."""
    while "/" in path:
        path = path.rsplit("/", 1)[0]
        yield path


def joined(root: str, path: str) -> str:
    """Return the place of corpus path `path` below the folder `root`, gate included."""
    return os.path.join(root, *check(path).split("/"))
