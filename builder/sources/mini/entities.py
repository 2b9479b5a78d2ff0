"""What mini's passages and queries are about: entities with names of one or two words, each of one topic."""

from dataclasses import dataclass

import numpy as np

from builder.sources.mini.lexicon import ENTITIES_PER_TAIL, Ints, Lexicon, draw_words
from builder.sources.mini.planted import TOPIC_SHARES

_QUERIES_PER_ENTITY = 4


@dataclass(frozen=True)
class Entities:
    """What passages and queries are about: topic t has the entities ``starts[t]`` to ``ends[t] - 1``.

    head and tail are the word numbers of each entity's name; tail is 0 if the name has one word.
    """

    starts: Ints
    ends: Ints
    head: Ints
    tail: Ints

    def draw(self, rng: np.random.Generator, topic: Ints, popularity: float = 1.0) -> Ints:
        """Draw an entity for each topic of (n,); the first are drawn more often where popularity is above 1."""
        sizes = self.ends - self.starts
        return self.starts[topic] + (sizes[topic] * rng.random(len(topic)) ** popularity).astype(np.int64)

    def names(self, entity: Ints) -> Ints:
        """Give the two name word numbers of each entity as (n, 2); 0 for no second word and for entity -1."""
        return np.where(entity[:, None] < 0, 0, np.stack([self.head[entity], self.tail[entity]], axis=1))


def name_entities(rng: np.random.Generator, queries: int) -> tuple[Lexicon, Entities]:
    """Draw all words, and name as many entities as that number of queries needs."""
    shares = np.array(TOPIC_SHARES)
    blocks = np.maximum(2, np.round(queries * shares / _QUERIES_PER_ENTITY / ENTITIES_PER_TAIL)).astype(np.int64)
    ends = np.cumsum(blocks * ENTITIES_PER_TAIL)
    count = int(ends[-1])
    lexicon = draw_words(rng, count)
    head = lexicon.head + np.arange(count)
    tail = np.where(rng.random(count) < 0.5, lexicon.tail + np.arange(count) // ENTITIES_PER_TAIL, 0)
    return lexicon, Entities(ends - blocks * ENTITIES_PER_TAIL, ends, head, tail)
