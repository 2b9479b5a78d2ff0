"""Do the intervals of crossed hold-outs hold the truth as often as they say? Simulated losses of known size.

Clusters of unequal sizes differ in difficulty and in loss, each training in quality and in loss, and each query
answers 0 or 1. The design and the estimate are the kit's own. docs/results.md has the figures of 1,000 draws.
"""

import numpy as np
import polars as pl
import pytest
from numpy.typing import NDArray

from builder.shifts.crossed import CrossedParameters, assign
from eval_kit.stats import crossed

pytestmark = pytest.mark.slow

DRAWS, QUERIES, INSIDE = 200, 50, 0.55
CHANCE = 3 * (0.95 * 0.05 / DRAWS) ** 0.5
"""How far a share of 95 or 5 % lies off by chance: three standard deviations."""


@pytest.mark.parametrize(
    ("clusters", "loss", "of_clusters", "of_trainings"),
    [
        pytest.param(64, 0.25, 0.05, 0.01, id="as on SQuAD"),
        pytest.param(64, 0.0, 0.05, 0.01, id="no loss on average"),
        pytest.param(64, 0.25, 0.02, 0.08, id="trainings differ most"),
        pytest.param(16, 0.25, 0.05, 0.05, id="sixteen clusters"),
    ],
)
def test_the_interval_holds_the_true_loss_in_95_of_100_draws(
    clusters: int, loss: float, of_clusters: float, of_trainings: float
) -> None:
    random = np.random.default_rng(0)
    covered, significant, estimates, errors = 0, 0, [], []
    for draw in range(DRAWS):
        sizes = 8 + random.multinomial((QUERIES - 8) * clusters, random.dirichlet(np.full(clusters, 3.0)))
        labels = pl.Series(np.repeat(np.arange(clusters), sizes)).cast(pl.String).str.zfill(2)
        ids = pl.Series(np.arange(len(labels))).cast(pl.String)
        design = assign(pl.DataFrame({"query_id": ids, "part": labels}), CrossedParameters(seed=draw))
        part = design["cluster"].to_physical().to_numpy()
        hardness = random.uniform(-0.12, 0.12, clusters)[part] + random.uniform(-0.15, 0.15, len(part))
        lost = loss + random.normal(0, of_clusters, clusters)[part]
        searches = []
        for model in design.columns[2:]:
            quality, own = random.normal(0, of_trainings, 2)
            role = design[model].cast(pl.String).to_numpy()
            chance = INSIDE + quality + hardness - np.where(role == "out", INSIDE * (lost + own), 0)
            answered = random.random(len(part)) < chance
            for side in ("in", "out"):
                searches.append(_cells(part[role == side], answered[role == side], model, side))
        whole = crossed.of_cells(pl.concat(searches))
        assert whole.low is not None and whole.high is not None and whole.p is not None
        covered += whole.low <= loss <= whole.high
        significant += whole.p < 0.05
        estimates.append(whole.rel_loss)
        errors.append([whole.error_queries, whole.error_trainings])
    assert np.sqrt(np.square(errors).sum(axis=1).mean()) == pytest.approx(np.std(estimates), rel=0.2)
    assert covered / DRAWS > 0.95 - CHANCE
    assert covered / DRAWS < 1, "an interval that always holds the truth is too wide"
    if loss == 0:
        assert significant / DRAWS < 0.05 + CHANCE
    else:
        assert significant / DRAWS > 0.95


def _cells(part: NDArray[np.uint32], answered: NDArray[np.bool_], model: str, side: str) -> pl.DataFrame:
    """The searches of one model on one side as the estimate takes them: means and numbers by cluster."""
    sizes = np.bincount(part)
    known = np.flatnonzero(sizes)
    means = np.bincount(part, answered)[known] / sizes[known]
    cells = pl.DataFrame({"part": known, "value": means, "n": sizes[known]})
    return cells.with_columns(model=pl.lit(model), is_out=pl.lit(side == "out"))
