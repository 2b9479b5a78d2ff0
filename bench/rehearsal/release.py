"""A release of made-up passages and queries: one shift, with as many training and test queries as wanted."""

from pathlib import Path

import numpy as np
import polars as pl

from bench.rehearsal import collection
from bench.rehearsal.sizes import Sizes
from builder.release import Draft, Rule, Table, write
from builder.test_sets import TOPICS, test_sets

SHIFT = "topic"
NEGATIVES = 10
RULE = Rule("made up, to measure speed", "bench.rehearsal")


def make(folder: Path, sizes: Sizes, negatives: bool = False) -> None:
    """Write the release: embedded passages, the topic shift, validation queries, and one judgement for each query.

    ``negatives`` are drawn at random, for what does not search for them.
    """
    blocks = list(collection.blocks(sizes.passages, sizes.train + sizes.test + sizes.validation))
    passages = pl.concat(block for block, _ in blocks)
    queries = pl.concat(block for _, block in blocks)
    del blocks
    rng = np.random.Generator(np.random.PCG64(collection.SEED))
    queries = queries[rng.permutation(queries.height)]
    first_test, first_validation = sizes.train, sizes.train + sizes.test
    parts = {
        "train": queries[:first_test],
        "topic_test": queries[first_test:first_validation],
        "validation": queries[first_validation:],
    }
    tables = [
        _clustered("train", parts["train"]),
        _clustered("test", parts["topic_test"]),
        Table("validation", "validation", parts["validation"].select("query_id", "text"), RULE),
        *(_judgements(split, part) for split, part in parts.items()),
        Table("passages", "passages", passages, RULE),
    ]
    if negatives:
        tables.append(_negatives(parts["train"], parts["validation"], passages, rng))
    draft = Draft(
        kind="mini",
        version="0.0.0",
        collection=None,
        seed=collection.SEED,
        tables=tables,
        test_sets=test_sets(tables),
        remarks=["made up, to measure speed"],
    )
    write(draft, folder)


def _clustered(split: str, queries: pl.DataFrame) -> Table:
    numbers = np.arange(queries.height) % len(TOPICS)
    cluster = pl.Series("cluster", TOPICS).gather(numbers).cast(pl.Enum(TOPICS))
    return Table(SHIFT, split, queries.select("query_id", "text").with_columns(cluster), RULE)


def _negatives(
    train: pl.DataFrame, validation: pl.DataFrame, passages: pl.DataFrame, rng: np.random.Generator
) -> Table:
    queries = pl.concat([train, validation]).select("query_id", "passage_id")
    rows = rng.integers(passages.height, size=(queries.height, NEGATIVES))
    drawn = [passages["passage_id"].gather(row).to_list() for row in rows]
    pairs = zip(drawn, queries["passage_id"], strict=True)
    others = [[passage for passage in ids if passage != relevant] for ids, relevant in pairs]
    frame = queries.select("query_id").with_columns(passage_ids=pl.Series(others, dtype=pl.List(pl.String)))
    return Table("negatives", "train", frame, RULE)


def _judgements(split: str, queries: pl.DataFrame) -> Table:
    pairs = queries.select(pl.col("query_id").alias("query-id"), pl.col("passage_id").alias("corpus-id"))
    return Table("qrels", split, pairs.with_columns(score=pl.lit(1, pl.Int64)), RULE)
