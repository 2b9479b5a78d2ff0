"""The passages of mini: each is about one entity and one aspect, and may name a second entity."""

from dataclasses import dataclass

import numpy as np
import polars as pl

from builder.sources.mini.entities import Entities
from builder.sources.mini.intents import Intents
from builder.sources.mini.lexicon import Ints, Lexicon, join, prose
from builder.sources.mini.planted import ASPECTS

_PASSAGES_PER_QUERY = 2
_MENTION_RATE = 0.2  # of the passages that also name another entity
_PASSAGE_WORDS = (33, 60)  # including up to three places for second names that may stay empty
THE, OF, IS = 1, 2, 3
_CONTEXT_COLUMNS = slice(26, 30)  # passage columns that hold only filler; long queries quote them
_CHUNK = 100_000  # texts are drawn by chunks, so another number gives another release


@dataclass(frozen=True)
class Passages:
    """The passages (m,): the pair each is about, its topic, the second entity it names (-1 for none).

    answer (n,) is the row of the passage that answers each query; context (m, 4) are quotable word numbers.
    """

    pair: Ints
    topic: Ints
    mentioned: Ints
    answer: Ints
    ids: pl.Series
    texts: pl.Series
    context: Ints

    @property
    def entity(self) -> Ints:
        """The entity each is about."""
        return self.pair // ASPECTS


def write_passages(rng: np.random.Generator, lexicon: Lexicon, entities: Entities, intents: Intents) -> Passages:
    """Write a passage for each pair that is queried, two more for TREC DL's, and others; in random order."""
    pairs, pair_of = np.unique(intents.pair, return_inverse=True)
    pairs_twice = np.repeat(pairs[pair_of[intents.is_graded]], 2)
    extra_count = len(intents.pair) * _PASSAGES_PER_QUERY - len(pairs) - len(pairs_twice)
    extra = rng.integers(len(entities.head) * ASPECTS, size=extra_count)
    in_order = np.concatenate([pairs, pairs_twice, extra])
    row_of = rng.permutation(len(in_order))
    pair = np.empty(len(in_order), np.int64)
    pair[row_of] = in_order
    entity, aspect = pair // ASPECTS, pair % ASPECTS
    topic = np.searchsorted(entities.ends, entity, side="right")
    companion = entities.draw(rng, topic)
    mentions = np.where(rng.random(len(pair)) < _MENTION_RATE, companion, -1)
    texts, context = _passage_texts(rng, lexicon, topic, aspect, entities.names(entity), entities.names(mentions))
    ids = pl.Series("passage_id", np.arange(len(pair))).cast(pl.String)
    return Passages(pair, topic, mentions, row_of[pair_of], ids, texts, context)


def _passage_texts(
    rng: np.random.Generator, lexicon: Lexicon, topic: Ints, aspect: Ints, name: Ints, companions: Ints
) -> tuple[pl.Series, Ints]:
    """Write the passages; `name` and `mentioned` are (n, 2). Returns texts and quotable word numbers (n, 4)."""
    texts, context = [], []
    low, high = _PASSAGE_WORDS
    for start in range(0, len(topic), _CHUNK):
        part = slice(start, start + _CHUNK)
        size = len(topic[part])
        row = np.arange(size)
        words = prose(rng, lexicon, topic[part], high)
        words[np.arange(high) >= rng.integers(low, high + 1, size=size)[:, None]] = 0
        words[:, [0, 2, 5]] = THE, OF, IS
        words[:, 1] = lexicon.aspect + aspect[part]
        words[:, 3:5] = name[part]
        again = np.flatnonzero(rng.random(size) < 0.5)
        column = rng.integers(8, 12, size=size)
        words[again[:, None], column[again, None] + [0, 1]] = name[part][again]
        again_or_other = np.where(rng.random(size) < 0.5, aspect[part], rng.integers(ASPECTS, size=size))
        words[row, 14 + rng.integers(3, size=size)] = lexicon.aspect + again_or_other
        mentions = np.flatnonzero(companions[part, 0])
        words[mentions[:, None], [18, 19]] = companions[part][mentions]
        texts.append(join(lexicon, words))
        context.append(words[:, _CONTEXT_COLUMNS])
    return pl.concat(texts), np.concatenate(context)
