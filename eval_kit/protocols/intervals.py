"""Intervals of means over queries, and of a mean over test sets that is printed as one figure, as BEIR's is."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from eval_kit.measures.definitions import parse
from eval_kit.protocols.scores import Mean, Scores
from eval_kit.stats.losses import mean_estimate
from eval_kit.stats.parts import FEWEST_PARTS, heterogeneity
from eval_kit.tables.table import bracketed


def with_intervals(scores: Scores) -> Scores:
    """The scores, each mean with its interval over queries; and the means over test sets."""
    means = []
    for mean in scores.means:
        low, high = mean_estimate(mean.per_query["value"].to_numpy()).interval
        means.append(replace(mean, low=low, high=high))
    return replace(scores, means=means, over_test_sets=list(over_test_sets(means)))


def over_test_sets(means: list[Mean]) -> Iterator[str]:
    """A sentence for each run and measure on six test sets or more: their mean, as if they were drawn at random."""
    groups: dict[tuple[str, str], list[Mean]] = {}
    for mean in means:
        groups.setdefault((mean.run, mean.measure), []).append(mean)
    for (run, name), together in groups.items():
        if len(together) >= FEWEST_PARTS:
            columns = [mean.per_query["value"].to_numpy() for mean in together]
            sizes = np.array(list(map(len, columns)), np.float64)
            errors = np.array([column.std(ddof=1) if len(column) > 1 else 0.0 for column in columns]) / sizes**0.5
            values = np.array([mean.value for mean in together])
            low, high = found.interval if (found := heterogeneity(values, errors, sizes)) else (None, None)
            shown = bracketed(float(values.mean()), low, high, parse(name).show)
            yield f"{run}: mean {name} over {len(together)} test sets {shown} (95 %, test sets as random draws)."
