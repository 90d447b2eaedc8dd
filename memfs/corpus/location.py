"""Where a corpus lies: a URI, parsed once, and what the object-store clients need to reach it.

Credentials come from the environment, from `~/.aws` or from the machine's role;
never from the URI, so that a URI can be printed, stored and shared.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import NamedTuple

from memfs.errors import ConfigError

__all__ = ["Location", "parse"]

REMOTE_SCHEMES = ("s3", "gs", "az")
CONNECT_TIMEOUT_S = 3
REQUEST_TIMEOUT_S = 10
RETRIES = 2
RETRY_TIMEOUT_S = 8
"""Lance and obstore default to 10 retries within 180 s: a dead endpoint would hang a boot for minutes."""
COALESCE_BYTES = 256 << 10
"""Lance joins reads that lie closer than this (its default is 64 kB); docs/decisions/005-scattered-reads.md."""


class Location(NamedTuple):
    """A corpus URI without credentials. `options` are client settings and may hold secrets: never print them."""

    uri: str
    options: tuple[tuple[str, str], ...] = ()

    @property
    def is_local(self) -> bool:
        """True for a folder on this machine."""
        return "://" not in self.uri

    def __repr__(self) -> str:
        return f"Location({self.uri!r})"

    def lance_options(self) -> dict[str, str]:
        """Return LanceDB's `storage_options`, with bounded retries."""
        if self.is_local:
            return {}
        return {
            **dict(self.options),
            "connect_timeout": f"{CONNECT_TIMEOUT_S}s",
            "timeout": f"{REQUEST_TIMEOUT_S * 3}s",
            "client_max_retries": str(RETRIES),
            "client_retry_timeout": str(RETRY_TIMEOUT_S),
            "block_size": str(COALESCE_BYTES),
        }


def parse(uri: str, environ: Mapping[str, str] | None = None) -> Location:
    """Return the location that `uri` names: a path, `file://`, `s3://`, `gs://` or `az://`.

    Raises:
        ConfigError: no URI, an unknown scheme, or credentials inside the URI.
    """
    env = os.environ if environ is None else environ
    if not uri.strip():
        raise ConfigError("the corpus URI is empty", hint="give a folder or s3://bucket/prefix")
    if "://" not in uri:
        return Location(os.path.abspath(os.path.expanduser(uri)))
    # By hand: urllib.parse costs a boot 8 ms, and takes `s3://` URLs apart no better.
    scheme, _, rest = uri.partition("://")
    place, _, path = rest.partition("/")
    if "@" in place or (":" in place and "@" in rest) or "?" in rest or "#" in rest:
        raise ConfigError(
            f"the corpus URI ({scheme}://…) holds credentials or a query",
            hint="keep credentials in the environment (AWS_ACCESS_KEY_ID, …), in ~/.aws or in the machine's role",
        )
    if scheme == "file" and place not in ("", "localhost"):
        raise ConfigError(f"{uri!r} names a host, not a folder", hint=f"write file:///{place}/{path}, or just the path")
    if scheme == "file":
        return Location(os.path.abspath("/" + path))
    if scheme not in REMOTE_SCHEMES:
        raise ConfigError(
            f"unknown scheme {scheme!r} in the corpus URI",
            hint="use a folder, s3://bucket/prefix, gs://bucket/prefix or az://container/prefix",
        )
    if not place:
        raise ConfigError(f"{uri!r} names no bucket", hint=f"write {scheme}://bucket/prefix")
    clean = f"{scheme}://{place}/{path}".rstrip("/")
    return Location(clean, _s3_options(env) if scheme == "s3" else ())


def _s3_options(env: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    endpoint = env.get("AWS_ENDPOINT_URL_S3") or env.get("AWS_ENDPOINT_URL") or env.get("AWS_ENDPOINT")
    found = {
        "aws_region": env.get("AWS_REGION") or env.get("AWS_DEFAULT_REGION") or ("us-east-1" if endpoint else None),
        "aws_endpoint": endpoint,
        "allow_http": "true" if (endpoint or "").startswith("http://") else None,
        "aws_access_key_id": env.get("AWS_ACCESS_KEY_ID"),
        "aws_secret_access_key": env.get("AWS_SECRET_ACCESS_KEY"),
        "aws_session_token": env.get("AWS_SESSION_TOKEN"),
    }
    if not found["aws_access_key_id"] and _has_profile(env):
        found.update(_profile_options(env))
    return tuple((key, value) for key, value in found.items() if value)


def _has_profile(env: Mapping[str, str]) -> bool:
    folder = os.path.join(env.get("HOME") or os.path.expanduser("~"), ".aws")
    shared = env.get("AWS_SHARED_CREDENTIALS_FILE") or os.path.join(folder, "credentials")
    settings = env.get("AWS_CONFIG_FILE") or os.path.join(folder, "config")
    return bool(env.get("AWS_PROFILE")) or os.path.exists(shared) or os.path.exists(settings)


def _profile_options(env: Mapping[str, str]) -> dict[str, str | None]:
    """Resolve `~/.aws` (profiles, SSO, processes) through botocore, which s3fs brings; 0.2 s, only when needed."""
    import botocore.exceptions
    import botocore.session

    try:
        session = botocore.session.Session(profile=env.get("AWS_PROFILE"))
        credentials = session.get_credentials()
        region = session.get_config_variable("region")
        frozen = None if credentials is None else credentials.get_frozen_credentials()
    except botocore.exceptions.BotoCoreError as error:
        raise ConfigError(f"the AWS profile cannot be used: {error}", hint="check AWS_PROFILE and ~/.aws") from error
    found: dict[str, str | None] = {"aws_region": region} if region else {}
    if frozen is not None:
        found |= {
            "aws_access_key_id": frozen.access_key,
            "aws_secret_access_key": frozen.secret_key,
            "aws_session_token": frozen.token,
        }
    return found
