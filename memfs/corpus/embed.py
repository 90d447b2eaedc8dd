"""Text to vectors. The seam is `Embedder`; a corpus records which one made its vectors.

`static` is a lookup table of 32,000 token vectors (256 dimensions, the weights that
the `wordllama` package ships, MIT): no torch, no download. `sentence-transformers:NAME`
takes any model by hub name or local path, and needs the extra `agent-memfs[transformers]`.
"""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from memfs.errors import ConfigError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["DEFAULT", "Embedder", "StaticEmbedder", "load"]

DEFAULT = "static"
TEXT_CHARS_MAX = 8_000
"""A model is given a text's first 8,000 characters; every word of it is in the word index all the same."""
STATIC_CHARS_MAX = 1_000
"""A mean over more than some 170 words says little in particular (MiniLM reads 256 tokens)."""
WORD_CHARS_MAX = 64
WORDS_MAX = 100_000


class Embedder(Protocol):
    """What turns texts into vectors."""

    @property
    def name(self) -> str:
        """The name that the corpus records; equal names mean comparable vectors."""

    @property
    def dimensions(self) -> int:
        """Length of a vector."""

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return float32[n, d], each row of unit norm; a text without any known token gives a zero row."""


def load(name: str) -> Embedder:
    """Return the embedder called `name`: `static`, or `sentence-transformers:<hub name or path>`.

    Raises:
        ConfigError: unknown name, missing package, or a model that cannot be loaded.
    """
    if name == DEFAULT:
        return StaticEmbedder()
    kind, _, model = name.partition(":")
    if kind == "sentence-transformers" and model:
        return SentenceTransformerEmbedder(model)
    raise ConfigError(f"unknown embedder {name!r}", hint="use static, or sentence-transformers:<name or path>")


class StaticEmbedder:
    """The mean of a text's token vectors, made unit length; each distinct word is tokenised once a process."""

    name = DEFAULT
    dimensions = 256

    def __init__(self) -> None:
        import numpy as np
        from tokenizers import Tokenizer

        folder = _package_folder("wordllama")
        weights = folder / "weights" / "l2_supercat_256.safetensors"
        vocabulary = folder / "tokenizers" / "l2_supercat_tokenizer_config.json"
        for file in (weights, vocabulary):
            if not file.exists():
                raise ConfigError(f"wordllama ships no {file.name}", hint="pip install 'wordllama>=0.4,<0.5'")
        self._vectors = np.array(_read_matrix(weights, self.dimensions), dtype=np.float32)
        self._tokenizer = Tokenizer.from_file(str(vocabulary))
        self._tokenizer.no_padding()
        self._tokenizer.no_truncation()
        self._ids_of: dict[str, list[int]] = {}

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """See `Embedder.embed`."""
        import numpy as np

        words = [text[:STATIC_CHARS_MAX].split() for text in texts]
        distinct = list(dict.fromkeys(chain.from_iterable(words)))
        self._learn(distinct)
        # One row a distinct word, then a text is the sum of its words' rows: each word's tokens are summed once a call.
        sums = np.zeros((len(distinct), self.dimensions), dtype=np.float32)
        for row, word in zip(sums, distinct, strict=True):
            ids = self._ids_of[word]
            row[:] = self._vectors[ids[0]] if len(ids) == 1 else self._vectors[ids].sum(axis=0)
        place = {word: at for at, word in enumerate(distinct)}
        out: NDArray[np.float32] = np.zeros((len(texts), self.dimensions), dtype=np.float32)
        for row, some in zip(out, words, strict=True):
            if some:
                rows = np.fromiter(map(place.__getitem__, some), dtype=np.intp, count=len(some))
                np.add.reduce(sums[rows], axis=0, out=row)
        norms = np.linalg.norm(out, axis=1, keepdims=True)
        np.divide(out, norms, out=out, where=norms > 0)
        return out

    def _learn(self, words: Sequence[str]) -> None:
        """Tokenise the words not met before; start anew when there are too many."""
        if len(self._ids_of) > WORDS_MAX:
            self._ids_of.clear()
        new = [word for word in words if word not in self._ids_of]
        encodings = self._tokenizer.encode_batch_fast([w[:WORD_CHARS_MAX] for w in new], add_special_tokens=False)
        self._ids_of.update(zip(new, (encoding.ids for encoding in encodings), strict=True))


class SentenceTransformerEmbedder:
    """Any sentence-transformers model; loads torch (5-7 s) when constructed."""

    def __init__(self, model: str) -> None:
        try:
            from sentence_transformers import SentenceTransformer
            from transformers.utils import logging
        except ImportError as error:
            raise ConfigError(
                f"the embedder sentence-transformers:{model} needs a package that is not installed",
                hint="pip install 'agent-memfs[transformers]'",
            ) from error
        logging.disable_progress_bar()  # type: ignore[no-untyped-call]
        try:
            self._model: Any = SentenceTransformer(model)
        except (OSError, ValueError, RuntimeError) as error:
            raise ConfigError(
                f"the model {model!r} cannot be loaded: {str(error).splitlines()[0][:200]}",
                hint="give a folder that holds the model, or check the hub's name and the network",
            ) from error
        self.name = f"sentence-transformers:{model}"
        # Asked of the model itself: the method that tells has changed its name between versions.
        self.dimensions = int(self._model.encode(["x"], show_progress_bar=False).shape[1])

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """See `Embedder.embed`."""
        import numpy as np

        clipped = [t[:TEXT_CHARS_MAX] for t in texts]
        made = self._model.encode(clipped, normalize_embeddings=True, show_progress_bar=False, batch_size=64)
        return np.asarray(made, dtype=np.float32).reshape(len(texts), self.dimensions)


def _package_folder(package: str) -> Path:
    """Find a package's folder without importing it (wordllama's own import takes 0.4 s)."""
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise ConfigError(f"the package {package} is not installed", hint=f"pip install {package}")
    return Path(next(iter(spec.submodule_search_locations)))


def _read_matrix(file: Path, dimensions: int) -> NDArray[np.float16]:
    """Memory-map the one float16 matrix of a safetensors file: u64 header length, JSON header, raw rows."""
    import numpy as np

    with file.open("rb") as handle:
        header_bytes = int.from_bytes(handle.read(8), "little")
        (entry,) = json.loads(handle.read(header_bytes)).values()
    rows, width = entry["shape"]
    if entry["dtype"] != "F16" or width != dimensions:
        raise ConfigError(f"{file.name} is not float16[n, {dimensions}]", hint="pip install 'wordllama>=0.4,<0.5'")
    offset = 8 + header_bytes + entry["data_offsets"][0]
    return np.memmap(file, dtype=np.float16, mode="r", offset=offset, shape=(rows, width))
