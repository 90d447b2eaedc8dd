"""Whole small objects beside the table (boot set, lease): the owner of obstore.

Turns obstore's errors, which come as one class with a long text, into ours.
"""

from __future__ import annotations

import os
import re
from datetime import timedelta
from typing import Any, NamedTuple

import obstore
import obstore.exceptions as oe
from obstore.store import LocalStore, from_url

from memfs.corpus.location import CONNECT_TIMEOUT_S, REQUEST_TIMEOUT_S, RETRIES, RETRY_TIMEOUT_S, Location
from memfs.errors import AccessError, ConfigError, ConflictError, DiskError, MemfsError, NotFoundError, UnreachableError

__all__ = ["Fetched", "Objects", "explain"]

# As texts: `re` compiles them when the first error comes, which most runs never meet.
ACCESS = (
    r"(?i)\b40[13]\b (Forbidden|Unauthorized)|AccessDenied|InvalidAccessKeyId|SignatureDoesNotMatch|ExpiredToken|"
    r"169\.254\.169\.254|CredentialsNotLoaded|credential"
)
MISSING_BUCKET = r"(?i)NoSuchBucket|InvalidBucketName|ContainerNotFound|bucket does not exist"
UNREACHABLE = (
    r"(?i)error sending request|timed? ?out|connection (refused|reset|closed)|dns error|after \d+ retries|"
    r"\b50[0-9]\b|SlowDown|broken pipe|incomplete message|error decoding response body|unexpected end of file"
)
NO_ROOM = r"(?i)No space left|os error 28|StorageFull|quota"
DENIED_DISK = r"(?i)Permission denied|Read-only file system|os error (13|30)\b"


def explain(error: BaseException, uri: str) -> MemfsError:
    """Return our error for one of an object-store client's, decided by its text (they share a class)."""
    text = str(error)
    if re.search(MISSING_BUCKET, text):
        return NotFoundError(
            f"{uri}: the bucket does not exist", hint="create the bucket, or check its name and region"
        )
    if re.search(NO_ROOM, text):
        return DiskError(f"{uri}: no space left on the device", hint="make room, then run the same command again")
    if re.search(DENIED_DISK, text):
        return DiskError(f"{uri}: this user may not write there", hint="check the folder's owner and mode")
    if re.search(ACCESS, text):
        return AccessError(
            f"{uri}: access denied",
            hint="check AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (or profile, or role) and the bucket's policy",
        )
    if re.search(UNREACHABLE, text):
        return UnreachableError(
            f"{uri}: the object store did not answer",
            hint="check the network and AWS_ENDPOINT_URL; the command can be run again as it is",
        )
    first_line = text.strip().split("\n", 1)[0][:300]
    return MemfsError(f"{uri}: {first_line}", hint="this is not an error memfs knows; please report it")


class Fetched(NamedTuple):
    """An object's bytes and the opaque token that names this version of it."""

    data: bytes
    etag: str


class Objects:
    """The small objects below a corpus URI. Keys are relative, `/`-separated."""

    def __init__(self, location: Location) -> None:
        self.uri = location.uri
        self._store = _open(location)

    def read(self, key: str, *, unless_etag: str | None = None) -> Fetched | None:
        """Return the object in one request, or None if it still is `unless_etag`.

        Raises:
            NotFoundError: no such object.
            AccessError, UnreachableError: the store refused, or did not answer.
        """
        options: Any = {"if_none_match": unless_etag} if unless_etag else None
        try:
            result = obstore.get(self._store, key, options=options)
            return Fetched(bytes(result.bytes()), str(result.meta["e_tag"]))
        except oe.NotModifiedError:
            return None
        except FileNotFoundError as error:
            if re.search(MISSING_BUCKET, str(error)):
                raise explain(error, self.uri) from error
            raise NotFoundError(f"{self.uri}/{key}: no such object") from error
        except (oe.BaseError, OSError) as error:
            raise explain(error, self.uri) from error

    def write(self, key: str, data: bytes, *, if_etag: str | None = None, if_absent: bool = False) -> str:
        """Store the object and return its new etag.

        Raises:
            ConflictError: `if_absent` and it exists, or `if_etag` and it is no longer that.
        """
        mode: Any = "create" if if_absent else {"e_tag": if_etag} if if_etag else "overwrite"
        try:
            return str(obstore.put(self._store, key, data, mode=mode, use_multipart=False)["e_tag"])
        except (oe.AlreadyExistsError, oe.PreconditionError, FileExistsError) as error:
            raise ConflictError(f"{self.uri}/{key}: changed by another writer") from error
        except (oe.BaseError, OSError) as error:
            raise explain(error, self.uri) from error

    def delete(self, key: str) -> None:
        """Remove the object; one that is not there is not an error."""
        try:
            obstore.delete(self._store, key)
        except FileNotFoundError:
            return
        except (oe.BaseError, OSError) as error:
            raise explain(error, self.uri) from error

    def modified(self, key: str) -> float:
        """Return when the object was last written by the store's own clock, seconds since the epoch.

        Raises:
            NotFoundError: no such object.
        """
        try:
            return float(obstore.head(self._store, key)["last_modified"].timestamp())
        except FileNotFoundError as error:
            raise NotFoundError(f"{self.uri}/{key}: no such object") from error
        except (oe.BaseError, OSError) as error:
            raise explain(error, self.uri) from error

    def any_below(self, prefix: str) -> bool:
        """Return whether any object's key starts with the folder `prefix`, in one request."""
        try:
            found = obstore.list_with_delimiter(self._store, prefix)
        except FileNotFoundError:
            return False
        except (oe.BaseError, OSError) as error:
            raise explain(error, self.uri) from error
        return bool(found["objects"] or found["common_prefixes"])

    def newest_version(self, table: str) -> int | None:
        """Return a Lance table's newest version by listing its manifests, without opening it; None for no table."""
        found = self.newest(table)
        return found[0] if found else None

    def newest(self, table: str) -> tuple[int, str] | None:
        """Return the newest version, and what tells it from the same version of a table made anew at this place."""
        try:
            pages = obstore.list(self._store, f"{table}.lance/_versions", chunk_size=1000)
            entries = list(next(iter(pages), []))
        except (oe.BaseError, OSError) as error:
            raise explain(error, self.uri) from error
        # Named u64 max - version, so that a store that lists in order gives the newest on its first page.
        named = ((str(entry["path"]).rsplit("/", 1)[-1].partition("."), entry) for entry in entries)
        found = [(int(stem), entry) for (stem, _, kind), entry in named if kind == "manifest" and stem.isdigit()]
        if not found:
            return None
        stem, entry = min(found, key=lambda pair: pair[0])
        version = (1 << 64) - 1 - stem
        return version, f"{version}:{entry.get('e_tag') or ''}:{entry['last_modified'].isoformat()}"


def _open(location: Location) -> Any:
    if location.is_local:
        return LocalStore(location.uri, mkdir=False) if os.path.isdir(location.uri) else _absent_folder(location)
    config: Any = {key: value for key, value in location.options if key != "allow_http"}
    client: Any = {
        "allow_http": ("allow_http", "true") in location.options,
        "connect_timeout": timedelta(seconds=CONNECT_TIMEOUT_S),
        "timeout": timedelta(seconds=REQUEST_TIMEOUT_S),
    }
    retry: Any = {"max_retries": RETRIES, "retry_timeout": timedelta(seconds=RETRY_TIMEOUT_S)}
    try:
        return from_url(location.uri, config=config, client_options=client, retry_config=retry)
    except (oe.BaseError, ValueError) as error:
        raise ConfigError(f"{location.uri}: {error}", hint="check the corpus URI") from error


def _absent_folder(location: Location) -> Any:
    raise NotFoundError(
        f"{location.uri}: no such folder",
        hint=f"a relative path depends on the working folder; to make a corpus there: memfs init {location.uri}",
    )
