"""Index terms: what is asked finds what was written, in any of the languages we promise."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memfs.corpus.terms import analyse, analyse_all, plain_words, query_terms


def finds(question: str, text: str) -> bool:
    """Whether any term of the question is among the text's."""
    return bool(set(query_terms(question)) & set(analyse(text).split()))


@pytest.mark.parametrize(
    ("question", "text"),
    [
        ("reuniao", "A reunião foi adiada"),
        ("REUNIÃO", "a reuniao foi adiada"),
        ("reunia\u0303o", "A reunião"),
        ("decisões", "decisoes"),
        ("데이터베이스", "우리는 데이터베이스를 옮겼다"),
        ("회의", "회의는 내일이다"),
        ("회의가", "회의에서 결정했다"),
        ("数据库", "我们迁移了数据库到云端"),
        ("会議", "明日の会議は中止です"),
        ("データベース", "新しいデータベースに移行した"),
        ("ｶﾀｶﾅ", "カタカナ"),
        ("user", "def getUserName(self)"),
        ("getUserName", "call getUserName() now"),
        ("name", "user_name = 1"),
        ("user_name", "user_name = 1"),
        ("http", "class HTTPServerError"),
        ("server", "class HTTPServerError"),
        ("Ann", "Ann's dog"),
        ("Ann's", "the dog of Ann"),
        ("Ann’s", "Ann"),
        ("deployments", "the deployment"),
        ("running", "she runs"),
        ("Straße", "STRASSE"),
        ("Ελλάδα", "ΕΛΛΑΔΑ"),
        ("café", "CAFE"),
        ("x" * 60, f"token {'x' * 60} end"),
        ("a" * 300, "b " + "a" * 300),
        ("0x7fFe", "at 0x7ffe"),
        ("May", "on 8 May 2023"),
        ("don't panic", "panic"),
    ],
)
def test_finds(question: str, text: str) -> None:
    """Accents, particles, scripts without spaces, identifiers, possessives, long tokens: the words meet."""
    assert finds(question, text)


@pytest.mark.parametrize(
    ("question", "text"),
    [("猫", "犬が好き"), ("회의", "데이터베이스"), ("x" * 60, "x" * 61), ("cat", "concatenate"), ("가", "나")],
)
def test_finds_not(question: str, text: str) -> None:
    """Different words do not meet."""
    assert not finds(question, text)


def test_voicing_is_kept() -> None:
    """Kana voicing marks and Hangul letters are no accents."""
    assert not finds("はは", "ばば")
    assert analyse("한국") == analyse("\u1112\u1161\u11ab\u1100\u116e\u11a8")


@given(st.lists(st.text(max_size=60) | st.text("ab'’_ \n\x1cé中", max_size=20), max_size=8))
def test_many_at_once(texts: list[str]) -> None:
    """The fast way for many texts finds the terms that each has by itself."""
    assert analyse_all(texts) == [analyse(text) for text in texts]


def test_stop_words() -> None:
    """Questions lose their stop words, unless nothing else is left; stored text keeps all."""
    assert query_terms("what is the plan") == query_terms("plan")
    assert query_terms("what is the")
    assert "the" in analyse("the plan").split()


@given(st.text(max_size=200))
def test_any_text(text: str) -> None:
    """Any text has terms, none of them empty or with white space in it, and what is asked in its own words finds it."""
    terms = analyse(text).split(" ") if analyse(text) else []
    assert all(term and not any(c.isspace() for c in term) for term in terms)
    assert set(query_terms(text)) <= set(terms)
    plain_words(text)
