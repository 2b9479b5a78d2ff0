"""What a random order of a run's own passages scores on average, exactly; those of a re-ranker are its candidates."""

import math
from functools import cache

import polars as pl

from eval_kit.measures.definitions import Measure, per_query

_SUMS = ("P", "R", "R_cap", "nDCG", "nDCG(dcg='exp-log2')")
"""Measures that add up what each relevant passage gives, which at the first rank is most."""


def expected(measure: Measure, judgements: pl.DataFrame, queries: pl.Series) -> pl.Series | None:
    """Each query's mean over all orders; None for a measure of which it is not known.

    The arguments are those of :func:`eval_kit.measures.definitions.per_query`, the judgements with ``retrieved``.
    """
    name, found = measure.kind.name, pl.col("rank").is_not_null()
    if name not in (*_SUMS, "RR", "Success", "AP"):
        return None
    relevant = judgements.filter(pl.col("relevance") >= measure.grade).group_by("query_id")
    counts = relevant.agg(pl.col("retrieved").first(), found.sum().alias("found"), pl.len().alias("relevant"))
    rows = queries.to_frame("query_id").join(counts, on="query_id", how="left", maintain_order="left").fill_null(0)
    means = pl.Series([_mean(name, measure.cutoff, *row[1:]) for row in rows.iter_rows()], dtype=pl.Float64)
    all_first = judgements.with_columns(rank=pl.when(found).then(1))
    return means * per_query(measure, all_first, queries) if name in _SUMS else means


@cache
def _mean(name: str, cutoff: int | None, retrieved: int, found: int, relevant: int) -> float:
    """The mean over orders of passages of which some are relevant; of sums, the share of what they give first."""
    mean, none_yet = 0.0, 1.0
    for rank in range(1, min(cutoff or retrieved, retrieved) + 1 if found else 0):
        share, next_one = found / retrieved, min(1.0, found / (retrieved - rank + 1))
        if name in _SUMS:
            mean += 1 / retrieved / (math.log2(rank + 1) if name.startswith("nDCG") else 1)
        elif name == "AP":
            mean += share * (1 + (rank - 1) * (found - 1) / max(retrieved - 1, 1)) / rank / relevant
        else:
            mean += none_yet * next_one / (rank if name == "RR" else 1)
        none_yet *= 1 - next_one
    return mean


def is_exceeded(differences: pl.Series) -> bool:
    """Whether the mean of some differences is shown to be above 0: by Student's t, one-sided, at 5 %."""
    mean, degrees = float(differences.mean() or 0), len(differences) - 1  # type: ignore[arg-type]
    if mean < 1e-9 or not degrees:
        return False
    # the quantile, within 0.3 % from three degrees of freedom on (Abramowitz and Stegun 26.7.5), without scipy
    quantile = 1.644854 + 1.523778 / degrees + 1.420152 / degrees**2 + 0.984262 / degrees**3
    return mean > quantile * float(differences.std() or 0) / math.sqrt(degrees + 1)  # type: ignore[arg-type]
