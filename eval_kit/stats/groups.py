"""Queries that hang together: with one text, or with a relevant passage in common.

Several questions on one passage, or one text asked sixty times, fare alike: counted one by one they make a difference
look surer than it is. On MS MARCO hardly any queries do.
"""

import numpy as np
import polars as pl
from numpy.typing import NDArray

type Floats = NDArray[np.float64]
type Integers = NDArray[np.int64]

MATTERS = 1.05
"""The ratio of the error by groups to that by queries from which groups count; below, it is but chance or less."""


_FEW = 10
"""Groups below which their error is too rough to say that they do not matter."""


def groups_of(queries: pl.DataFrame, relevant: pl.DataFrame) -> pl.DataFrame:
    """The group of each query: ``query_id`` and ``group``, a number.

    Args:
        queries: ``query_id`` and ``text``, which may be null.
        relevant: ``query_id`` and ``passage_id`` of relevant passages.
    """
    by_text = queries.drop_nulls("text").select("query_id", key=pl.format("text {}", "text"))
    own = relevant.join(queries, on="query_id", how="semi")
    keys = pl.concat([by_text, own.select("query_id", key=pl.format("passage {}", "passage_id"))]).unique()
    shared = keys.filter(pl.len().over("key") > 1).group_by("key", maintain_order=True).agg("query_id")
    leaders: dict[str, str] = {}

    def leader(query: str) -> str:
        while (above := leaders.setdefault(query, query)) != query:
            leaders[query] = leaders[above]  # halves the way for those that ask next
            query = above
        return query

    for together in shared["query_id"]:
        first, *rest = together
        for query in rest:
            leaders[leader(query)] = leader(first)
    led = [leader(query) if query in leaders else query for query in queries["query_id"]]
    numbers = pl.Series(led, dtype=pl.String).rank("dense").cast(pl.Int64)
    return queries.select("query_id", group=numbers)


def error_by_groups(off: Floats, groups: Integers) -> tuple[float, float] | None:
    """The standard error of a mean, by groups, and its degrees of freedom; None with a single group.

    Args:
        off: (n,) each query's distance to the mean.
        groups: (n,) the number of its group.
    """
    sums = np.bincount(np.unique(groups, return_inverse=True)[1], off)
    count = len(sums)
    if count < 2:
        return None
    return float(np.sqrt(count / (count - 1) * (sums @ sums)) / len(off)), count - 1.0


def greater_error(
    error: float | None, degrees: float, off: Floats, groups: Integers | None
) -> tuple[float | None, float, float]:
    """The error that counts, its degrees, and its ratio to that of queries which are independent.

    Sharing may also narrow an error, as answers compete: the greater counts, if it is so beyond chance
    (:data:`MATTERS`). A single group has no error.
    """
    if groups is None or not error:
        return error, degrees, 1.0
    found = error_by_groups(off, groups)
    if found is None:  # all queries stand and fall together: a case of its own
        return None, degrees, 1.0
    of_groups, number = found
    if of_groups < MATTERS * error and number >= _FEW - 1:
        return error, degrees, 1.0
    return max(of_groups, error), number, max(of_groups / error, 1.0)
