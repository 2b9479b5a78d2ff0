"""What a random order of a run's own passages scores on average: exact, from how many there are and how many relevant.

Of a re-ranker they are the candidates that it was given; a search that finds by chance has hardly any relevant ones.
"""

import math
from functools import cache

import polars as pl

from eval_kit.measures.definitions import Measure, per_query

_SUMS = ("P", "R", "R_cap", "nDCG", "nDCG(dcg='exp-log2')")
"""Measures that add up what each passage gives, less at later ranks."""


def expected(measure: Measure, judgements: pl.DataFrame, queries: pl.Series) -> pl.Series | None:
    """The mean of each query's value over all orders of its passages; None for a measure whose mean is not known.

    Args:
        measure: from :func:`eval_kit.measures.definitions.parse`.
        judgements: as for :func:`eval_kit.measures.definitions.per_query`, with ``retrieved``.
        queries: the query ids wanted.
    """
    name, found = measure.kind.name, pl.col("rank").is_not_null()
    if name not in (*_SUMS, "RR", "Success", "AP"):
        return None
    relevant = judgements.filter(pl.col("relevance") >= measure.grade).group_by("query_id")
    counts = relevant.agg(pl.col("retrieved").first(), found.sum().alias("found"), pl.len().alias("relevant"))
    rows = queries.to_frame("query_id").join(counts, on="query_id", how="left", maintain_order="left").fill_null(0)
    of_order = [_mean(name, measure.cutoff, *row) for row in rows.drop("query_id").iter_rows()]
    if name not in _SUMS:
        return pl.Series(of_order, dtype=pl.Float64)
    all_first = judgements.with_columns(rank=pl.when(found).then(1))  # what they give where nothing is taken off
    return per_query(measure, all_first, queries) * pl.Series(of_order, dtype=pl.Float64)


@cache
def _mean(name: str, cutoff: int | None, retrieved: int, found: int, relevant: int) -> float:
    """The mean over orders of so many passages, of which some were found relevant; of sums, the share that is left."""
    ranks = range(1, min(cutoff or retrieved, retrieved) + 1) if found else ()
    if name in _SUMS:
        return sum(1 / math.log2(rank + 1) if name.startswith("nDCG") else 1.0 for rank in ranks) / max(retrieved, 1)
    if name == "AP":
        before = (found - 1) / max(retrieved - 1, 1)
        return sum(found / retrieved * (1 + (rank - 1) * before) / rank for rank in ranks) / max(relevant, 1)
    value, none_yet = 0.0, 1.0
    for rank in ranks:
        share = min(1.0, found / (retrieved - rank + 1))
        value += none_yet * share / (rank if name == "RR" else 1)
        none_yet *= 1 - share
    return value


def is_exceeded(differences: pl.Series) -> bool:
    """Whether the mean of some differences is above 0, by Student's t, one-sided at 5 %, from two on."""
    count, mean, deviation = len(differences), differences.mean(), differences.std()
    if count < 2 or not isinstance(mean, float) or not isinstance(deviation, float):
        return False
    # the quantile within 0.1 % from three degrees of freedom on (Abramowitz and Stegun 26.7.5), without scipy
    degrees = count - 1
    quantile = 1.644854 + 1.523778 / degrees + 1.420152 / degrees**2 + 0.984262 / degrees**3
    return mean > 1e-9 and mean > quantile * deviation / math.sqrt(count)
