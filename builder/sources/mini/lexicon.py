"""The words of mini: pseudo-words in blocks, from which prose and names are drawn by number."""

from dataclasses import dataclass
from itertools import product

import numpy as np
import polars as pl
from numpy.typing import NDArray

from builder.sources.mini.planted import ASPECTS, CLUSTERS, TOPIC_SHARES

type Ints = NDArray[np.int64]
type Floats = NDArray[np.float64]
COMMON_SYNONYMS = 2
ENTITIES_PER_TAIL = 8  # entities that may share the second word of their names
_CONSONANTS = "bcdfgjklmnprstvz"  # neither h nor w: no word can contain a wh term
_SYLLABLES = np.array(list(map("".join, product(_CONSONANTS, "aeiou"))), dtype=object)
"""As objects they add in every version of numpy."""
_FUNCTION_WORDS = ("the", "of", "is", "and", "in", "to", "a", "for")
_FILLER_WORDS = 2_000
_TOPIC_WORDS = 300
_TOPIC_WORD_RATE = 0.3


@dataclass(frozen=True)
class Lexicon:
    """All words (number 0 is null) and the number of the first word of each block."""

    words: pl.Series
    filler: int
    topical: int
    aspect: int
    common: int
    reserved: int
    tail: int
    head: int


def draw_words(rng: np.random.Generator, entities: int) -> Lexicon:
    """Draw all words; words of different blocks differ."""
    count = sum(map(len, CLUSTERS.values()))
    sizes = {
        "topical": len(TOPIC_SHARES) * _TOPIC_WORDS,
        "aspect": ASPECTS,
        "common": ASPECTS * COMMON_SYNONYMS,
        "reserved": ASPECTS * count,
        "tail": entities // ENTITIES_PER_TAIL,
    }
    filler = _words(rng, _FILLER_WORDS - len(_FUNCTION_WORDS), 2)
    middle = _words(rng, sum(sizes.values()), 3)
    words = [None, *_FUNCTION_WORDS, *filler, *middle, *_words(rng, entities, 4)]
    first = np.cumsum([1 + _FILLER_WORDS, *sizes.values()]).tolist()
    return Lexicon(pl.Series(words, dtype=pl.String), 1, *first)


def _words(rng: np.random.Generator, count: int, syllables: int) -> list[str]:
    """Draw `count` different pseudo-words with the given number of syllables."""
    codes = rng.choice(len(_SYLLABLES) ** syllables, count, replace=False)
    words = _SYLLABLES[codes % len(_SYLLABLES)]
    for _ in range(syllables - 1):
        codes = codes // len(_SYLLABLES)
        words = words + _SYLLABLES[codes % len(_SYLLABLES)]
    return list(map(str, words))


def prose(rng: np.random.Generator, lexicon: Lexicon, topic: Ints, width: int) -> Ints:
    """Draw (n, width) word numbers, Zipf-distributed, some general and some from the row's topic."""
    shape = (len(topic), width)
    u = rng.random(shape)
    general = lexicon.filler + (_FILLER_WORDS**u).astype(np.int64) - 1
    topical = lexicon.topical + topic[:, None] * _TOPIC_WORDS + (_TOPIC_WORDS**u).astype(np.int64) - 1
    return np.where(rng.random(shape) < _TOPIC_WORD_RATE, topical, general)


def join(lexicon: Lexicon, words: Ints) -> pl.Series:
    """Write each row of word numbers as one text."""
    return lexicon.words.gather(words.ravel()).reshape(words.shape).arr.join(" ", ignore_nulls=True)
