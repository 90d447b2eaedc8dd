"""Text to index terms: one analysis for what is stored and for what is asked.

The word index tokenises by white space only, so every choice is here, in one place:

- case folded; accents dropped in Latin, Greek and Cyrillic (`reunião` = `reuniao`);
- words stemmed (Snowball English; a term that is not English is left as it is or
  cut the same way on both sides);
- identifiers whole and in parts: `getUserName`, `user_name` also give their words;
- Chinese and Japanese without spaces: characters and pairs of characters; Korean:
  the word and its syllable pairs, so that a particle does not hide the noun;
- no term is dropped for its length.

`ANALYZER` is recorded in the corpus: a change here is a new number and a re-index.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import pairwise

__all__ = ["ANALYZER", "STOP_WORDS", "analyse", "analyse_all", "plain_words", "query_terms"]

ANALYZER = 1

_WORD = re.compile(r"\w+(?:['’]\w+)?")
_ASCII_SPACES = bytes(c if chr(c).isalnum() or chr(c) in "_'" else 32 for c in range(128)) + bytes([32] * 128)
_COMBINING = re.compile("[\u0300-\u036f]")
_CAMEL = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+|\d+|[^\W\d_A-Za-z]+")
_MIXED_CASE = re.compile(r"_|[a-z][A-Z]|[A-Z]{2}[a-z]")
_SPACELESS = re.compile(
    "[\u2e80-\u2fdf\u3005-\u3007\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
    "\u1100-\u11ff\ua960-\ua97f\uac00-\ud7ff\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\U00020000-\U0003ffff]+"
)
_HANGUL = re.compile("[\u1100-\u11ff\ua960-\ua97f\uac00-\ud7ff]")
STEM_CHARS_MAX = 40

STOP_WORDS = frozenset(
    "a an the and or but if then else of at by for with about to from in on off over under up down out into as is "
    "are was were be been being am do does did doing done have has had having would can could should shall might "
    "must will not no nor so than too very just there here again also i me my mine we us our ours you your yours "
    "he him his she her hers they them their theirs it its this that these those who whom whose which what when "
    "where why how im ive id youre youve hes shes were theyre theyve thats whats whos dont doesnt didnt isnt "
    "arent wasnt werent havent hasnt hadnt wont wouldnt cant couldnt shouldnt s t d ll m re ve".split()
)
"""Left out of questions only: stored text keeps every word. `may` is not among them: it is a month."""


def analyse(text: str) -> str:
    """Return the index terms of `text`, in order, repeats kept, joined by spaces."""
    if text.isascii():
        # Four times as fast as the pattern on plain text; `_chunk_terms` applies the pattern to each chunk once.
        return " ".join(filter(None, map(_chunk_terms, text.encode().translate(_ASCII_SPACES).split())))
    return " ".join(map(_word_terms, _WORD.findall(_flatten(text))))


def analyse_all(texts: Sequence[str]) -> list[str]:
    """As `analyse` of each: four times as fast, for a distinct word of the plain texts is looked at once a call."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    plain = [at for at, text in enumerate(texts) if text.isascii()]
    made = ["" if text.isascii() else analyse(text) for text in texts]
    spaced = pa.array([texts[at].encode().translate(_ASCII_SPACES).decode() for at in plain], pa.large_string())
    chunks = pc.ascii_split_whitespace(spaced)
    coded = chunks.flatten().dictionary_encode()
    of_chunk = [_chunk_terms(chunk.encode()) for chunk in coded.dictionary.to_pylist()]
    # A chunk can hold no term at all: the space at a text's end, a lone apostrophe.
    kept = np.array([bool(terms) for terms in of_chunk], dtype=bool)[coded.indices.to_numpy()]
    ends = np.concatenate(([0], np.cumsum(kept)))[chunks.offsets.to_numpy()]
    terms = pa.array(of_chunk, pa.large_string()).take(coded.indices.filter(pa.array(kept)))
    lists = pa.ListArray.from_arrays(pa.array(ends, pa.int32()), terms)
    joined = pc.binary_join(lists, pa.scalar(" ", pa.large_string()))
    for at, text in zip(plain, joined.to_pylist(), strict=True):
        made[at] = text
    return made


def query_terms(question: str) -> list[str]:
    """Return a question's terms without stop words; with them if nothing else is left. Repeats dropped, order kept."""
    words = _WORD.findall(_flatten(question))
    chosen = [w for w in words if _bare(w).casefold() not in STOP_WORDS] or words
    return list(dict.fromkeys(term for word in chosen for term in _word_terms(word).split()))


def plain_words(text: str) -> list[str]:
    """Return the words of `text`, folded but not stemmed: to compare names."""
    return [_bare(word).casefold() for word in _WORD.findall(_flatten(text))]


def _flatten(text: str) -> str:
    """NFKC, and without Latin, Greek or Cyrillic accents; kana voicing marks and Hangul stay."""
    if text.isascii():
        return text
    decomposed = unicodedata.normalize("NFKD", text)
    return unicodedata.normalize("NFC", _COMBINING.sub("", decomposed))


def _bare(word: str) -> str:
    """Drop a possessive, close other apostrophes: `Ann's` is `Ann`, `don't` is `dont`."""
    if "'" not in word and "’" not in word:
        return word
    return re.sub(r"['’][sS]$", "", word).replace("'", "").replace("’", "")


@lru_cache(maxsize=100_000)
def _chunk_terms(chunk: bytes) -> str:
    return " ".join(map(_word_terms, _WORD.findall(chunk.decode())))


@lru_cache(maxsize=100_000)
def _word_terms(word: str) -> str:
    bare = _bare(word)
    return " ".join(_identifier_terms(bare) if bare.isascii() else _mixed_terms(bare))


def _identifier_terms(word: str) -> Iterator[str]:
    whole = word.casefold()
    yield _stem(whole)
    if _MIXED_CASE.search(word):
        parts = _CAMEL.findall(word)
        if len(parts) > 1 or (parts and parts[0] != word):
            yield from (_stem(part.casefold()) for part in parts)


def _mixed_terms(word: str) -> Iterator[str]:
    """Split a word into runs with and without spaces between words."""
    at = 0
    for run in _SPACELESS.finditer(word):
        if run.start() > at:
            yield from _identifier_terms(word[at : run.start()])
        yield from _spaceless_terms(run.group())
        at = run.end()
    if at < len(word):
        yield from _identifier_terms(word[at:])


def _spaceless_terms(run: str) -> Iterator[str]:
    hangul = bool(_HANGUL.match(run))
    if hangul or len(run) == 1:
        yield run
    elif not hangul:
        yield from run
    for left, right in pairwise(run):
        if not (hangul and len(run) == 2):
            yield left + right


@lru_cache(maxsize=1)
def _stemmer() -> object:
    import Stemmer

    return Stemmer.Stemmer("english")


def _stem(word: str) -> str:
    if len(word) > STEM_CHARS_MAX or not word.isascii() or not word.isalpha():
        return word
    return str(_stemmer().stemWord(word))  # type: ignore[attr-defined]
