"""What each query of mini asks for, before it is written."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from builder.sources.mini.entities import Entities
from builder.sources.mini.lexicon import COMMON_SYNONYMS, Floats, Ints, Lexicon
from builder.sources.mini.planted import (
    ASPECTS,
    DEV_SHARE,
    DL_SIZES,
    LENGTH_SHARES,
    TEST_SHARE,
    TOPIC_SHARES,
    VALIDATION_SHARE,
    WH_SHARES,
)

_SYNONYM_RATE = 0.25  # of the queries that use no reserved synonym
_TYPO_RATE = 0.12  # of the queries for entities of two words
_POPULARITY = 1.2  # 1 = every entity is asked for equally often


@dataclass(frozen=True)
class Intents:
    """What each query asks for, before it is written: (n,) each; topic, wh and length are label numbers.

    word is the number of the word for the aspect; literal says whether passages use it too.
    """

    population: NDArray[np.str_]
    test: NDArray[np.bool_]
    topic: Ints
    wh: Ints
    length: Ints
    entity: Ints
    aspect: Ints
    word: Ints
    literal: NDArray[np.bool_]
    typo: NDArray[np.bool_]

    @property
    def is_graded(self) -> NDArray[np.bool_]:
        """Whether each is a TREC DL query."""
        return np.isin(self.population, list(DL_SIZES))

    @property
    def pair(self) -> Ints:
        """Entity and aspect as one number."""
        return self.entity * ASPECTS + self.aspect


def draw_intents(
    rng: np.random.Generator, count: int, lexicon: Lexicon, entities: Entities, strengths: dict[str, dict[str, float]]
) -> Intents:
    """Draw what the queries ask for."""
    population = _populations(rng, count)
    shares = (TOPIC_SHARES, WH_SHARES, LENGTH_SHARES)
    topic, wh_form, length_class = (rng.choice(len(share), count, p=share) for share in shares)
    train = population == "train"
    test = train & (spread(rng, train, topic, wh_form) < TEST_SHARE)
    entity = entities.draw(rng, topic, _POPULARITY)
    aspect = rng.integers(ASPECTS, size=count)
    misspells = rng.random(count) < _TYPO_RATE
    kind = np.unique(population, return_inverse=True)[1]
    u = spread(rng, kind, test, topic, wh_form, length_class)
    word = _aspect_words(rng, lexicon, aspect, (topic, wh_form, length_class), strengths, u)
    return Intents(
        population=population,
        test=test,
        topic=topic,
        wh=wh_form,
        length=length_class,
        entity=entity,
        aspect=aspect,
        word=word,
        literal=word == lexicon.aspect + aspect,
        typo=misspells & (entities.tail[entity] != 0),  # the second word stays correct: every query matches something
    )


def _populations(rng: np.random.Generator, n: int) -> NDArray[np.str_]:
    """Name the population of each of `n` queries, in random order."""
    sizes = {**DL_SIZES, "dev": round(n * DEV_SHARE), "validation": round(n * VALIDATION_SHARE)}
    sizes["train"] = n - sum(sizes.values())
    return rng.permutation(np.repeat(list(sizes), list(sizes.values())))


def spread(rng: np.random.Generator, *labels: NDArray[Any]) -> Floats:
    """Draw (n,) uniform numbers in 0..1, evenly spread within equal labels, so that shares come out exact."""
    cell = np.unique(np.stack(labels, axis=1), axis=0, return_inverse=True)[1]
    order = np.lexsort((rng.random(len(cell)), cell))
    sizes = np.bincount(cell)
    rank = np.empty(len(cell))
    rank[order] = np.arange(len(cell)) - (np.cumsum(sizes) - sizes)[cell[order]]
    return np.asarray((rank + rng.random(len(cell))) / sizes[cell])


def _aspect_words(
    rng: np.random.Generator,
    lexicon: Lexicon,
    aspect: Ints,
    clusters: tuple[Ints, ...],
    strengths: dict[str, dict[str, float]],
    u: Floats,
) -> Ints:
    """Choose the word number by which each query asks for its aspect; `u` decides which shift reserves it."""
    synonym = lexicon.common + aspect * COMMON_SYNONYMS + rng.integers(COMMON_SYNONYMS, size=len(aspect))
    word = np.where(rng.random(len(aspect)) < _SYNONYM_RATE, synonym, lexicon.aspect + aspect)
    low = np.zeros(len(aspect))
    first = lexicon.reserved
    for cluster, strength in zip(clusters, strengths.values(), strict=True):
        high = low + np.array([*strength.values(), 0.0])[cluster]
        word = np.where((low <= u) & (u < high), first + cluster * ASPECTS + aspect, word)
        first += len(strength) * ASPECTS
        low = high
    return word
