"""Mem0 as a way of `memfs eval`: turns stored as they are (`infer=False`, no language model), found by its own search.

    python -m venv mem0 && mem0/bin/pip install mem0ai sentence-transformers
    memfs eval locomo5.json --peer 'mem0=mem0/bin/python bench/peers/mem0_raw.py MODEL'

MODEL is a sentence-transformers name or path. Vectors lie in its default store, Qdrant, in a folder that goes with the
process. With a language model Mem0 writes memories of its own instead; that is another evaluation.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from importlib import metadata
from typing import Any

os.environ |= {"MEM0_TELEMETRY": "False", "ANONYMIZED_TELEMETRY": "False"}
os.environ.setdefault("OPENAI_API_KEY", "none")
"""It makes its client when it is opened; without `infer` nothing asks it."""
USER = "memory"
FOUND_MAX = 100


def main() -> None:
    """Read the passages, then a question a line; answer each with citations, best first."""
    with tempfile.TemporaryDirectory() as folder:
        os.environ["MEM0_DIR"] = folder
        memory = opened(folder, sys.argv[1])
        for document in json.loads(sys.stdin.readline())["documents"]:
            for passage in document["passages"]:
                memory.add(
                    [{"role": "user", "content": f"{passage['speaker']} {passage['when']} {passage['text']}"}],
                    user_id=USER,
                    infer=False,
                    metadata={"at": passage["citation"], "day": passage["when"], "folder": top(document["path"])},
                )
        say({"ready": f"mem0ai {metadata.version('mem0ai')}"})
        for line in sys.stdin:
            asked = json.loads(line)
            within = {"folder": asked["under"]} if asked["under"] else {}
            found = memory.search(asked["question"], top_k=3 * FOUND_MAX, filters={"user_id": USER, **within})
            known = [each["metadata"] for each in found["results"]]
            until = asked["until"] or "9999"
            say({"found": [each["at"] for each in known if each["day"] <= until][:FOUND_MAX]})


def opened(folder: str, model: str) -> Any:
    """Mem0 with a local embedder and its default store."""
    from mem0 import Memory  # type: ignore[import-not-found]
    from sentence_transformers import SentenceTransformer

    dimensions = SentenceTransformer(model).get_sentence_embedding_dimension()
    return Memory.from_config(
        {
            "embedder": {"provider": "huggingface", "config": {"model": model, "embedding_dims": dimensions}},
            "vector_store": {
                "provider": "qdrant",
                "config": {"path": os.path.join(folder, "qdrant"), "embedding_model_dims": dimensions},
            },
            "history_db_path": os.path.join(folder, "history.db"),
        }
    )


def top(path: str) -> str:
    """The folder that a question is asked of: `sessions/conv-26/`."""
    return "/".join(path.split("/")[:2]) + "/"


def say(answer: dict[str, Any]) -> None:
    """A line on the real standard output: what the libraries print goes elsewhere."""
    OUT.write(json.dumps(answer) + "\n")
    OUT.flush()


if __name__ == "__main__":
    OUT = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    main()
