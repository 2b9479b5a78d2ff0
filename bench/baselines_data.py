"""Releases to train on that need neither Java nor a download."""

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from builder import mini
from builder.release import Draft, Rule, Table, write
from eval_kit.release import Release, open_release

NEGATIVES = 100
SEED = 13
SHIFTS = ("topic", "wh", "length", "resttest")


def mini_release(folder: Path, queries: int) -> Release:
    """A mini release with negatives drawn at random from its passages (only their number affects speed).

    Args:
        folder: where to write it.
        queries: number of queries of all kinds.
    """
    draft = mini.draft(queries=queries)
    write(Draft(**(vars(draft) | {"tables": [*draft.tables, _negatives(draft.tables)]})), folder)
    return open_release(folder)


def _negatives(tables: list[Table]) -> Table:
    frames = {(table.config, table.split): table.frame for table in tables}
    ids = frames["passages", "passages"]["passage_id"].to_numpy()
    judged = pl.concat([frame for (config, _), frame in frames.items() if config == "qrels"])
    relevant: dict[str, set[str]] = {}
    for query, passage in judged.select("query-id", "corpus-id").iter_rows():
        relevant.setdefault(query, set()).add(passage)
    training = [frame for (config, split), frame in frames.items() if config in SHIFTS and split == "train"]
    queries = pl.concat([frame.select("query_id") for frame in training])
    rng = np.random.Generator(np.random.PCG64(SEED))
    rows: dict[str, list[Any]] = {"query_id": queries["query_id"].unique().sort().to_list(), "passage_ids": []}
    for query in rows["query_id"]:
        drawn = rng.choice(ids, min(NEGATIVES, len(ids)), replace=False)
        rows["passage_ids"].append([passage for passage in drawn if passage not in relevant.get(query, ())])
    return Table("negatives", "train", pl.DataFrame(rows), Rule("drawn at random, to measure speed", "bench"))
