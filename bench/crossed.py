"""``python -m bench.crossed``: do the intervals of crossed hold-outs hold the truth as often as they say?

Losses are drawn with a known mean: clusters of unequal sizes differ in difficulty and in loss, each
training in quality and in loss, and each query answers 0 or 1. The design and the estimate are the
kit's own. Figures go to ``bench/results/crossed.json``; about three minutes on one idle core.
"""

import json
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from builder.shifts.crossed import CrossedParameters, assign
from eval_kit.stats import crossed

DRAWS, QUERIES, INSIDE = 1_000, 50, 0.55
RESULTS = Path(__file__).parent / "results" / "crossed.json"
CASES = {
    "as on SQuAD": (64, 0.25, 0.05, 0.01),
    "no loss": (64, 0.0, 0.0, 0.01),
    "no loss on average": (64, 0.0, 0.05, 0.01),
    "trainings differ more": (64, 0.25, 0.05, 0.05),
    "trainings differ most": (64, 0.25, 0.02, 0.08),
    "sixteen clusters": (16, 0.25, 0.05, 0.01),
    "sixteen, trainings too": (16, 0.25, 0.05, 0.05),
}
"""Clusters, mean Rel Loss, and its standard deviation over clusters and over trainings."""


def main() -> None:
    """Simulate each case, and print how often the interval holds the truth and p is under 0.05."""
    figures = {name: simulated(*case) for name, case in CASES.items()}
    RESULTS.write_text(json.dumps({"draws": DRAWS, "cases": CASES, "figures": figures}, indent=1) + "\n")
    for name, figure in figures.items():
        print(f"{name:22s}", "  ".join(f"{key} {value:.3f}" for key, value in figure.items()))


def simulated(clusters: int, loss: float, of_clusters: float, of_trainings: float) -> dict[str, float]:
    """Shares of :data:`DRAWS`: of intervals that hold the true Rel Loss, and of p-values under 0.05."""
    random = np.random.default_rng(0)
    covered, significant, widths = [], [], []
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
            searches += [_cells(part[role == side], answered[role == side], model, side) for side in ("in", "out")]
        whole = crossed.of_cells(pl.concat(searches))
        assert whole.low is not None and whole.high is not None and whole.p is not None
        covered.append(whole.low <= loss <= whole.high)
        significant.append(whole.p < 0.05)
        widths.append((whole.high - whole.low) / 2)
    means = map(np.mean, (covered, significant, widths))
    return dict(zip(("covered", "p under 0.05", "half-width"), map(float, means), strict=True))


def _cells(part: NDArray[np.uint32], answered: NDArray[np.bool_], model: str, side: str) -> pl.DataFrame:
    """The searches of one model on one side as the estimate takes them: means and numbers by cluster."""
    sizes = np.bincount(part)
    known = np.flatnonzero(sizes)
    means = np.bincount(part, answered)[known] / sizes[known]
    cells = pl.DataFrame({"part": known, "value": means, "n": sizes[known]})
    return cells.with_columns(model=pl.lit(model), is_out=pl.lit(side == "out"))


if __name__ == "__main__":
    main()
