"""A small synthetic MS MARCO with planted query shifts.

Every passage is about one (entity, aspect) pair and every query asks for one. A passage names the aspect by
one word; a query uses that word, or a synonym that no passage contains. Some synonyms are reserved for one
topic, one wh-form or one length: the share of a cluster's queries that use its reserved synonyms is the
cluster's planted strength. A model that never trained on the cluster can't know these synonyms.
"""

from dataclasses import dataclass, field

import numpy as np
import polars as pl

from builder.collection import Collection
from builder.encoders import Lsa
from builder.sources.mini.entities import Entities, name_entities
from builder.sources.mini.intents import Intents, draw_intents
from builder.sources.mini.judgements import judge
from builder.sources.mini.lexicon import Floats
from builder.sources.mini.passages import Passages, write_passages
from builder.sources.mini.planted import CLUSTERS, DL_SIZES, STRENGTHS, TOPIC_SHARES
from builder.sources.mini.queries import write_queries
from eval_kit.errors import UserError
from eval_kit.release import NAME

_MIN_QUERIES = 500
_MOST_QUERIES = 200_000


@dataclass(frozen=True)
class MiniParameters:
    """The parameters of a mini: equal parameters give equal frames.

    `queries` (at least 500) counts all populations together. `strength` (0..1) scales every planted strength:
    it changes the words that queries use for aspects, the hardness that follows from them, and nothing else.
    """

    seed: int = 13
    queries: int = 10_000
    strength: float = 1.0

    def __post_init__(self) -> None:
        """Raise a UserError when a value is out of range."""
        if self.queries < _MIN_QUERIES:
            raise UserError(f"queries must be at least {_MIN_QUERIES}, not {self.queries}")
        if self.queries > _MOST_QUERIES:
            raise UserError(f"queries must be at most {_MOST_QUERIES:,}, not {self.queries:,}")
        if not 0 <= self.strength <= 1:
            raise UserError(f"strength must be in 0..1, not {self.strength}")


DEFAULT = MiniParameters()


@dataclass(frozen=True)
class Mini:
    """A generated collection and the truth planted in it.

    passages: passage_id, text.
    queries: query_id, text, population (train, dev, dl19, dl20, validation), topic (null = others), wh
    (null = no wh word), length, test (train queries held back as topic and wh test sets), hardness (0..1),
    nearness (train only, else null; from 2: shares its entity with a dl query, from 1: its topic and aspect).
    qrels: query_id, passage_id, score (1; for dl19 and dl20 graded 0..3).
    strengths: shift -> cluster -> share of the cluster's queries that use its reserved synonyms.
    entities, intents, subjects: what queries and passages are about, by row.
    prior: (0..1) by row of passages; parts equal ones.
    """

    parameters: MiniParameters
    passages: pl.DataFrame
    queries: pl.DataFrame
    qrels: pl.DataFrame
    strengths: dict[str, dict[str, float]]
    entities: Entities = field(repr=False)
    intents: Intents = field(repr=False)
    subjects: Passages = field(repr=False)
    prior: Floats = field(repr=False)


def generate(parameters: MiniParameters = DEFAULT) -> Mini:
    """Make the collection that `parameters` determine."""
    rng = np.random.Generator(np.random.PCG64(parameters.seed))
    strengths = {}
    for shift, clusters in CLUSTERS.items():
        of_clusters = np.array(STRENGTHS[shift]) * parameters.strength
        strengths[shift] = dict(zip(clusters, of_clusters.tolist(), strict=True))
    lexicon, entities = name_entities(rng, parameters.queries)
    intents = draw_intents(rng, parameters.queries, lexicon, entities, strengths)
    passages = write_passages(rng, lexicon, entities, intents)
    queries = write_queries(rng, lexicon, entities, intents, passages)
    qrels = judge(rng, queries["query_id"], intents, passages)
    texts = pl.DataFrame({"passage_id": passages.ids, "text": passages.texts})
    prior = rng.random(len(passages.ids))
    return Mini(parameters, texts, queries, qrels, strengths, entities, intents, passages, prior)


def collection(parameters: MiniParameters = DEFAULT) -> Collection:
    """Mini as a collection without planted shifts; its validation queries are training queries like others."""
    mini = generate(parameters)
    splits = {"train": ["train", "validation"], "dev": ["dev"], **{split: [split] for split in DL_SIZES}}
    pairs = mini.qrels.rename({"query_id": "query-id", "passage_id": "corpus-id"}).cast({"score": pl.Int64})
    queries, qrels = {}, {}
    for split, populations in splits.items():
        queries[split] = mini.queries.filter(pl.col("population").is_in(populations)).select("query_id", "text")
        qrels[split] = pairs.filter(pl.col("query-id").is_in(queries[split]["query_id"].implode()))
    return Collection(
        name=f"{NAME}-mini", source="builder/sources/mini", queries=queries, qrels=qrels, passages=mini.passages
    )


def encoder(mini: Collection) -> Lsa:
    """LSA learnt from mini's passages, as no encoder can learn its topics from the queries alone.

    Mini has six vocabularies (five topics and the rest), and its common words are in more than 2 % of the passages.
    """
    assert mini.passages is not None
    return Lsa(dimensions=len(TOPIC_SHARES), most=0.02, corpus=mini.passages["text"].to_list())
