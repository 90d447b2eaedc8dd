"""Errors: secrets never leave, plain text stays, each kind has an exit code of its own."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memfs import errors
from memfs.errors import MemfsError, PathError, redact


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        ("s3://AKIDEXAMPLE:hunter2hunter2@bucket/x", "hunter2"),
        ("see https://user:pa55@host/path for more", "pa55"),
        ("https://tok3n@host/", "tok3n"),
        ("GET https://b.s3.amazonaws.com/k?X-Amz-Signature=deadbeef01&X-Amz-Date=2026", "deadbeef01"),
        ("?X-Amz-Credential=AKIAIOSFODNN7EXAMPLE%2F2026&x=1", "AKIAIOSFODNN7EXAMPLE"),
        ("?X-Amz-Security-Token=FwoGZXIvYXdz&y=2", "FwoGZXIvYXdz"),
        ("https://acct.blob.core.windows.net/c?sv=2024&sig=abc%2Bdef%3D", "abc%2Bdef"),
        ("aws_secret_access_key = wJalrXUtnFEMI/K7MDENG", "wJalrXUtnFEMI"),
        ("'secret_access_key': 'wJalrXUtnFEMI'", "wJalrXUtnFEMI"),
        ('{"password": "s3cr3t!"}', "s3cr3t!"),
        ("api_key=abcdef123456", "abcdef123456"),
        ("apikey: abcdef123456", "abcdef123456"),
        ("key id AKIAIOSFODNN7EXAMPLE was refused", "AKIAIOSFODNN7EXAMPLE"),
        ("Authorization: Bearer eyJhbGciOi.J9.x", "eyJhbGciOi"),
        ('headers: {"authorization": "AWS4-HMAC-SHA256 Credential=AKIA/2026"}', "AWS4-HMAC"),
    ],
)
def test_redacted(text: str, secret: str) -> None:
    """Credentials in URLs, signed parameters, settings and headers become ***; what is around them stays."""
    cleaned = redact(text)
    assert secret not in cleaned
    assert "***" in cleaned
    assert secret not in str(MemfsError(text, hint=text))
    assert secret not in str(MemfsError(text, hint=text).hint)


@pytest.mark.parametrize(
    "name", ["AWS_SECRET_ACCESS_KEY", "OPENAI_API_KEY", "HF_TOKEN", "DB_PASSWORD", "AZURE_STORAGE_ACCOUNT_KEY"]
)
def test_environment_values(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """The value of a secret variable is cut out of any text."""
    monkeypatch.setenv(name, "Zx9-plain-looking-value")
    assert "plain-looking" not in redact("the server said: Zx9-plain-looking-value is wrong")


@pytest.mark.parametrize(
    "text",
    [
        "notes/a.md: no such file",
        "s3://bucket/prefix/a@b.md",
        "the token budget must be positive",
        "mail ana@example.com about the signature of the contract",
        "https://example.com/path?page=2&sort=asc",
        "password reset is described in notes/login.md",
        "author: Ana; title: API keys and how to rotate them",
        "/home/ana/memory: no space left on the device",
        "'a\\\\b': holds a backslash",
        "",
    ],
)
def test_plain_text_stays(text: str) -> None:
    """What holds no secret comes back as it was."""
    assert redact(text) == text


def test_short_values_do_not_shred_text(monkeypatch: pytest.MonkeyPatch) -> None:
    """A secret variable of a few letters does not cut holes into words."""
    monkeypatch.setenv("MY_TOKEN", "a")
    monkeypatch.setenv("MAX_TOKENS", "1500")
    assert redact("a table of 1500 rows") == "a table of 1500 rows"


@given(st.text(max_size=200))
def test_redacting_twice_is_redacting_once(text: str) -> None:
    """Redaction is idempotent and never fails."""
    assert redact(redact(text)) == redact(text)


def test_tree() -> None:
    """Every error is a MemfsError with an exit code, a message and perhaps a hint; siblings have codes of their own."""
    kinds = [getattr(errors, name) for name in errors.__all__ if name not in ("redact", "MemfsError")]
    assert all(issubclass(kind, MemfsError) for kind in kinds)
    direct = [kind for kind in kinds if kind.__mro__[1] is MemfsError]
    codes = [kind.exit_code for kind in direct]
    assert len(codes) == len(set(codes))
    assert set(codes) == set(range(2, 10))
    refused = PathError("a\\b", "holds a backslash")
    assert (refused.exit_code, refused.path, refused.reason) == (3, "a\\b", "holds a backslash")
    assert not str(errors.NotFoundError("x")).startswith("'")
