"""A release of made-up passages and queries: one shift, with a chosen number of training and test queries."""

from pathlib import Path

import numpy as np
import polars as pl

from bench.rehearsal import collection
from bench.rehearsal.sizes import Sizes
from builder.release import Draft, Table, write
from builder.test_sets import TOPICS, test_sets
from eval_kit.documents import Rule

SHIFT = "topic"
NEGATIVES = 10
RULE = Rule("made up, to measure speed", "bench.rehearsal")


def make(folder: Path, sizes: Sizes, negatives: bool = False) -> None:
    """Write the release: embedded passages, the topic shift, validation queries, and one judgement for each query.

    With ``negatives`` the release also holds random ones, for callers that do not search for them.
    """
    blocks = collection.blocks(sizes.passages, sizes.train + sizes.test + sizes.validation)
    passages, queries = map(pl.concat, zip(*blocks, strict=True))
    rng = np.random.Generator(np.random.PCG64(collection.SEED))
    queries = queries[rng.permutation(queries.height)]
    first_test, first_validation = sizes.train, sizes.train + sizes.test
    parts = {
        "train": queries[:first_test],
        "topic_test": queries[first_test:first_validation],
        "validation": queries[first_validation:],
    }
    tables = [
        _cluster_table("train", parts["train"]),
        _cluster_table("test", parts["topic_test"]),
        Table("validation", "validation", parts["validation"].select("query_id", "text"), RULE),
        *(_judgements(split, part) for split, part in parts.items()),
        Table("passages", "passages", passages, RULE),
    ]
    if negatives:
        training_queries = pl.concat([parts["train"], parts["validation"]])
        tables.append(_negatives(training_queries.select("query_id", "passage_id"), passages["passage_id"]))
    remarks = ["made up, to measure speed"]
    write(Draft("mini", None, collection.SEED, tables, test_sets(tables), "0.0.0", remarks=remarks), folder)


def _cluster_table(split: str, queries: pl.DataFrame) -> Table:
    numbers = np.arange(queries.height) % len(TOPICS)
    cluster = pl.Series("cluster", TOPICS).gather(numbers).cast(pl.Enum(TOPICS))
    return Table(SHIFT, split, queries.select("query_id", "text").with_columns(cluster), RULE)


def _negatives(queries: pl.DataFrame, passages: pl.Series) -> Table:
    rng = np.random.Generator(np.random.PCG64(collection.SEED))
    rows = rng.integers(len(passages), size=(queries.height, NEGATIVES))
    with_ids = queries.with_columns(passage_ids=pl.Series(passages.to_numpy()[rows].tolist()))
    others = pl.col("passage_ids").list.set_difference(pl.concat_list("passage_id"))
    return Table("negatives", "train", with_ids.select("query_id", others), RULE)


def _judgements(split: str, queries: pl.DataFrame) -> Table:
    pairs = queries.select(pl.col("query_id").alias("query-id"), pl.col("passage_id").alias("corpus-id"))
    return Table("qrels", split, pairs.with_columns(score=pl.lit(1, pl.Int64)), RULE)
