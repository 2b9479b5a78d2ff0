"""Rankers that fail on planted queries, in common and alone."""

import numpy as np
import polars as pl

RANKERS = [f"ranker{i}" for i in range(6)]


def planted(n: int = 1_000, seed: int = 1) -> tuple[pl.DataFrame, dict[str, set[str]]]:
    """Six rankers; 100 queries are hard for all, 60 for all but one, 60 for all but two; the others are easy.

    Each ranker's hard queries are the bottom 20 % exactly: where too few are planted for it, others of its own fill up.
    """
    rng = np.random.default_rng(seed)
    hard = np.zeros((n, 6), bool)
    hard[:100] = True
    for row in range(100, 160):
        hard[row] = np.arange(6) != row % 6
    for row in range(160, 220):
        hard[row] = ~np.isin(np.arange(6), [row % 6, (row + 1) % 6])
    own = 220
    for ranker in range(6):
        own_count = n // 5 - hard[:, ranker].sum()
        hard[own : own + own_count, ranker] = True
        own += own_count
    values = np.where(hard, rng.uniform(0, 0.1, hard.shape), rng.uniform(0.2, 1, hard.shape))
    order = rng.permutation(n)
    ids = [f"q{i}" for i in range(n)]
    frame = pl.DataFrame({"query_id": ids, **{r: values[:, i] for i, r in enumerate(RANKERS)}})[order.tolist()]
    return frame, {"lesser": set(ids[:100]), "pygmy": set(ids[:160]), "veiled": set(ids[:220])}
