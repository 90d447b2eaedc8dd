"""Corpus URIs: parsed once, without credentials, with bounded retries."""

from __future__ import annotations

from pathlib import Path

import pytest

from memfs.corpus.location import parse
from memfs.errors import ConfigError

SECRET = "hunter2hunter2"


@pytest.mark.parametrize(
    "uri",
    [
        f"s3://key:{SECRET}@bucket/x",
        f"s3://{SECRET}@bucket/x",
        f"s3://bucket/x?secret={SECRET}",
        f"https://u:{SECRET}@h/x",
        f"gs://:{SECRET}@b/x",
    ],
)
def test_credentials_are_refused(uri: str) -> None:
    """A URI with credentials or a query is refused, and the error repeats none of it."""
    with pytest.raises(ConfigError) as caught:
        parse(uri, {})
    assert SECRET not in f"{caught.value.message}{caught.value.hint}{caught.value!r}"
    assert "environment" in str(caught.value.hint)


@pytest.mark.parametrize(
    ("uri", "said"),
    [("", "empty"), ("  ", "empty"), ("ftp://h/x", "unknown scheme"), ("s3://", "no bucket"), ("s3:///x", "no bucket")],
)
def test_refused(uri: str, said: str) -> None:
    """An empty URI, another scheme, or no bucket is an error with an example."""
    with pytest.raises(ConfigError, match=said) as caught:
        parse(uri, {})
    assert caught.value.hint


def test_folders(tmp_path: Path, home: Path) -> None:
    """A path, `~` and `file://` are absolute folders."""
    assert parse("c").uri == str(Path.cwd() / "c")
    assert parse("~/c").uri == str(home / "c")
    assert parse(f"file://{tmp_path}/c").uri == str(tmp_path / "c")
    assert parse(str(tmp_path)).is_local
    assert parse(str(tmp_path)).lance_options() == {}


def test_remote() -> None:
    """An s3 URI loses its last slash; keys go into the options, never into the text; retries are bounded."""
    env = {"AWS_ACCESS_KEY_ID": "id", "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_ENDPOINT_URL": "http://127.0.0.1:9"}
    location = parse("s3://bucket/a/b/", env)
    assert location.uri == "s3://bucket/a/b"
    assert not location.is_local
    assert SECRET not in repr(location) + str(location) + f"{location}"
    options = location.lance_options()
    assert options["aws_secret_access_key"] == SECRET
    assert (options["allow_http"], options["aws_region"]) == ("true", "us-east-1")
    assert int(options["client_max_retries"]) <= 3
    assert int(options["client_retry_timeout"]) <= 10


def test_profile(home: Path) -> None:
    """Without keys in the environment, the AWS profile gives them; an unknown profile is an error with a hint."""
    folder = home / ".aws"
    folder.mkdir()
    (folder / "credentials").write_text(f"[work]\naws_access_key_id = id\naws_secret_access_key = {SECRET}\n")
    (folder / "config").write_text("[profile work]\nregion = eu-west-3\n")
    env = {"HOME": str(home), "AWS_PROFILE": "work"}
    options = parse("s3://bucket/x", env).lance_options()
    assert (options["aws_secret_access_key"], options["aws_region"]) == (SECRET, "eu-west-3")
    with pytest.raises(ConfigError, match="profile"):
        parse("s3://bucket/x", {"HOME": str(home), "AWS_PROFILE": "none"})
