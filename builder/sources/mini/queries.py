"""The texts of mini's queries, their hardness, and their nearness to the TREC DL queries."""

import numpy as np
import polars as pl

from builder.shifts import length, wh
from builder.sources.mini.entities import Entities
from builder.sources.mini.intents import Intents
from builder.sources.mini.lexicon import Floats, Ints, Lexicon, join, prose
from builder.sources.mini.passages import Passages
from builder.sources.mini.planted import ASPECTS, CLUSTERS, LENGTH_SHARES

_QUOTE_RATE = 0.3  # of the context words of long queries
_HARDNESS = {"synonym": 0.35, "typo": 0.45, "crowd": 0.20}
TEMPLATES = (  # by wh-form (the last without), short then long; {x} the aspect, {e} the entity, {c} context
    "what is {e} {x} | what {x} {e} | {e} {x} definition",
    "what is the {x} of {e} in {c} | what are {x} {e} types for {c} | definition of the {x} of {e} in {c}",
    "how to {x} {e} | how {e} {x} | show {x} {e}",
    "how do you {x} the {e} with {c} | how many {x} are in {e} for {c} | how is the {x} of {e} in {c}",
    "who {x} {e} | when did {e} {x} | which {e} {x}",
    "who was the {x} of {e} in {c} | where is the {x} of {e} near {c} | when did the {e} {x} start in {c}",
    "{x} {e} | {e} {x} | is {e} {x}",
    "the {x} of {e} for {c} | is there a {x} on {e} with {c} | can you {x} the {e} in {c}",
)
_TEMPLATES_PER_FORM = 3


def write_queries(
    rng: np.random.Generator, lexicon: Lexicon, entities: Entities, intents: Intents, passages: Passages
) -> pl.DataFrame:
    """Write the queries; the columns are those of :class:`Mini`."""
    count = len(intents.entity)
    nearness = _nearness(intents) + rng.random(count) / 2
    identifiers = np.sort(rng.choice(count * 10, count, replace=False))
    quotes = rng.random((count, 4)) < _QUOTE_RATE
    context = np.where(quotes, passages.context[passages.answer], prose(rng, lexicon, intents.topic, 4))
    text = _query_texts(rng, lexicon, entities, intents, context)
    return pl.DataFrame(
        {
            "query_id": pl.Series(identifiers).cast(pl.String),
            "text": text,
            "population": intents.population,
            "topic": pl.Series([*CLUSTERS["topic"], None]).gather(intents.topic),
            **_published_rules(text),
            "test": intents.test,
            "hardness": _hardness(intents, passages),
            "nearness": pl.Series(np.where(intents.population == "train", nearness, np.nan)).fill_nan(None),
        }
    )


def _query_texts(
    rng: np.random.Generator, lexicon: Lexicon, entities: Entities, intents: Intents, context: Ints
) -> pl.Series:
    """Write the queries, with some of the `context` words (n, 4); a typo drops a letter of the entity's first word."""
    count = len(context)
    templates = pl.Series(" | ".join(TEMPLATES).split(" | "))
    form = intents.wh * len(LENGTH_SHARES) + intents.length
    number = form * _TEMPLATES_PER_FORM + rng.integers(_TEMPLATES_PER_FORM, size=count)
    contexts = np.where(np.arange(4) < rng.integers(1, 5, size=count)[:, None], context, 0)
    drops = pl.Series(rng.integers(1, 7, size=count))
    head = lexicon.words.gather(entities.head[intents.entity])
    misspelt = head.str.slice(0, drops) + head.str.slice(drops + 1)
    parts = pl.DataFrame(
        {
            "text": templates.gather(number),
            "{x}": lexicon.words.gather(intents.word),
            "{c}": join(lexicon, contexts),
            "head": misspelt.zip_with(pl.Series(intents.typo), head),
            "tail": lexicon.words.gather(entities.tail[intents.entity]),
        }
    ).with_columns(pl.concat_str("head", "tail", separator=" ", ignore_nulls=True).alias("{e}"))
    text = pl.col("text")
    for slot in ("{x}", "{e}", "{c}"):
        text = text.str.replace(slot, pl.col(slot), literal=True)
    return parts.select(text)["text"]


def _published_rules(text: pl.Series) -> dict[str, pl.Series]:
    """Tell the wh-form (null = none) and the length class of each text by the published rules."""
    forms = [pl.when(wh.member(text, cluster)).then(pl.lit(cluster)) for cluster in wh.CLUSTERS]
    return {"wh": pl.select(pl.coalesce(forms)).to_series(), "length": length.cluster(text).cast(pl.String)}


def _hardness(intents: Intents, passages: Passages) -> Floats:
    """Hardness from 0 to 1: a synonym, a typo and many passages about the entity make a query hard."""
    crowd = np.bincount(passages.entity, minlength=int(intents.entity.max()) + 1)[intents.entity]
    return np.asarray(
        _HARDNESS["synonym"] * ~intents.literal
        + _HARDNESS["typo"] * intents.typo
        + _HARDNESS["crowd"] * crowd / (crowd + 10)
    )


def _nearness(intents: Intents) -> Floats:
    """2 for a query that shares its entity with a TREC DL query, 1 for its topic and aspect, else 0."""
    grades = intents.is_graded
    topic_and_aspect = intents.topic * ASPECTS + intents.aspect
    same_field = np.isin(topic_and_aspect, topic_and_aspect[grades])
    return np.where(np.isin(intents.entity, intents.entity[grades]), 2.0, same_field * 1.0)
