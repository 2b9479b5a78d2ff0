"""Releases to train on that need neither Java nor a download."""

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from builder import mini as planted
from builder import release as releases
from builder.release import Draft, Rule, Table
from eval_kit.release import Release, open_release

NEGATIVES = 100
DECILES = (6, 48, 55, 60, 65, 71, 78, 91, 109, 130, 293)
"""BERT tokens of the 30,005 passages of the real slice, from the shortest to the longest, without [CLS] and [SEP]."""
SEED = 13
SHIFTS = ("topic", "wh", "length", "resttest")


def mini_release(folder: Path, queries: int, real_lengths: bool = False) -> Release:
    """A mini release with negatives, drawn at random from its passages (only their number matters to speed).

    Args:
        folder: where to.
        queries: of all kinds.
        real_lengths: give the passages as many words as passages of MS MARCO have tokens.
    """
    draft = planted.draft(queries=queries)
    tables = [_with_real_lengths(one) if real_lengths and one.config == "passages" else one for one in draft.tables]
    releases.write(Draft(**(vars(draft) | {"tables": [*tables, _negatives(tables)]})), folder)
    return open_release(folder)


def _negatives(tables: list[Table]) -> Table:
    frames = {(one.config, one.split): one.frame for one in tables}
    ids = frames["passages", "passages"]["passage_id"].to_numpy()
    judged = pl.concat([frame for (config, _), frame in frames.items() if config == "qrels"])
    relevant: dict[str, set[str]] = {}
    for query, passage in judged.select("query-id", "corpus-id").iter_rows():
        relevant.setdefault(query, set()).add(passage)
    asked = [frame for (config, split), frame in frames.items() if config in SHIFTS and split == "train"]
    queries = pl.concat([frame.select("query_id") for frame in asked])
    rng = np.random.Generator(np.random.PCG64(SEED))
    rows: dict[str, list[Any]] = {"query_id": queries["query_id"].unique().sort().to_list(), "passage_ids": []}
    for query in rows["query_id"]:
        drawn = rng.choice(ids, min(NEGATIVES, len(ids)), replace=False)
        rows["passage_ids"].append([one for one in drawn if one not in relevant.get(query, ())])
    return Table("negatives", "train", pl.DataFrame(rows), Rule("drawn at random, to measure speed", "bench"))


def _with_real_lengths(table: Table) -> Table:
    rng = np.random.Generator(np.random.PCG64(SEED))
    words = sorted({word for text in table.frame["text"] for word in text.split()})
    lengths = np.interp(rng.random(table.frame.height), np.linspace(0, 1, len(DECILES)), DECILES).astype(int)
    texts = pl.Series("text", [" ".join(rng.choice(words, length)) for length in lengths])
    return Table(table.config, table.split, table.frame.with_columns(texts), table.rule)
