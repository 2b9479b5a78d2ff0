"""Losses of clusters: how far they differ beyond the noise of their queries and trainings."""

import numpy as np
import polars as pl
import pytest

from eval_kit.stats import crossed

CLUSTERS, MODELS, DRAWS = 64, 8, 12


@pytest.mark.parametrize("size", [50, 150])
def test_the_spread_of_clusters_is_the_one_planted(size: int) -> None:
    """5 points of Rel Loss; and each cluster's own interval holds its loss in 95 of 100."""
    random = np.random.default_rng(size)
    spreads, held = [], []
    for _ in range(DRAWS):
        losses = random.normal(0.25, 0.05, CLUSTERS)
        cluster = np.repeat(np.arange(CLUSTERS), size)
        chance = random.beta(0.5, 0.5, len(cluster))
        is_out = np.array([random.permutation(MODELS) < MODELS // 2 for _ in range(CLUSTERS)])[cluster]
        inside_model = np.argsort(is_out, axis=1, kind="stable")[np.arange(len(cluster)), np.arange(len(cluster)) % 4]
        frames = []
        for model in range(MODELS):
            for side, rows in ((True, is_out[:, model]), (False, inside_model == model)):
                rows = np.flatnonzero(rows)
                lost = losses[cluster[rows]] if side else 0.0
                value = (random.random(len(rows)) < chance[rows]) * (1 - lost)
                names = {"query_id": rows, "part": cluster[rows], "value": value}
                frames.append(pl.DataFrame(names).with_columns(model=pl.lit(f"m{model}"), is_out=pl.lit(side)))
        values = pl.concat(frames).with_columns(part=pl.col("part").cast(pl.String).str.zfill(2))
        whole, by_part = crossed.losses(values)
        spreads.append(whole.spread)
        low, high = by_part.select("rel_loss_low", "rel_loss_high").to_numpy().T
        held.append(((low <= losses) & (losses <= high)).mean())
    assert np.sqrt(np.mean(np.square(spreads))) == pytest.approx(0.05, abs=0.01)
    assert np.mean(held) == pytest.approx(0.95, abs=0.02)
