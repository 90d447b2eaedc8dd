"""Text to vectors. The seam is `Embedder`; a corpus records which one made its vectors.

`static` is a lookup table of 32,000 token vectors (256 dimensions, the weights that
the `wordllama` package ships, MIT): no torch, no download. `sentence-transformers:NAME`
takes any model by hub name or local path, and needs the extra `agent-memfs[transformers]`.
"""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Sequence
from itertools import pairwise
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
WORDS_MAX = 64_000
"""Words whose vectors are kept: 64 MB."""


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
    """The mean of a text's token vectors, made unit length; a word is tokenised when it is first met."""

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
        # A page of it costs memory when it is first written.
        self._sums = np.empty((WORDS_MAX, self.dimensions), dtype=np.float32)
        self._place_of: dict[str, int] = {}

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """See `Embedder.embed`."""
        import numpy as np

        out: NDArray[np.float32] = np.zeros((len(texts), self.dimensions), dtype=np.float32)
        self._add_up(texts, out)
        norms = np.linalg.norm(out, axis=1, keepdims=True)
        np.divide(out, norms, out=out, where=norms > 0)
        return out

    def _add_up(self, texts: Sequence[str], out: NDArray[np.float32]) -> None:
        """Write the sum of each text's word vectors into its row of `out`."""
        import numpy as np
        import pyarrow as pa
        import pyarrow.compute as pc

        words = pc.utf8_split_whitespace(pa.array([text[:STATIC_CHARS_MAX] for text in texts], pa.large_string()))
        coded = words.flatten().dictionary_encode()
        distinct = coded.dictionary.to_pylist()
        if len(distinct) > WORDS_MAX:
            half = len(texts) // 2
            self._add_up(texts[:half], out[:half])
            self._add_up(texts[half:], out[half:])
            return
        self._learn(distinct)
        places = np.fromiter(map(self._place_of.__getitem__, distinct), dtype=np.intp, count=len(distinct))
        of_text = places[coded.indices.to_numpy()]
        for row, (start, end) in zip(out, pairwise(words.offsets.to_pylist()), strict=True):
            np.add.reduce(self._sums[of_text[start:end]], axis=0, out=row)

    def _learn(self, words: Sequence[str]) -> None:
        """Add up the token vectors of the words not met before; forget the others when there is no room."""
        new = [word for word in words if word not in self._place_of]
        if len(self._place_of) + len(new) > WORDS_MAX:
            self._place_of.clear()
            new = list(words)
        encodings = self._tokenizer.encode_batch_fast([w[:WORD_CHARS_MAX] for w in new], add_special_tokens=False)
        for place, (word, encoding) in enumerate(zip(new, encodings, strict=True), len(self._place_of)):
            ids = encoding.ids
            self._sums[place] = self._vectors[ids[0]] if len(ids) == 1 else self._vectors[ids].sum(axis=0)
            self._place_of[word] = place


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
