"""Queries that hang together: with one text, or with half of their relevant passages in common.

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

_MOST = 1_000
"""Needs that differ and share a passage above which it says little of them; all pairs of more would take gigabytes."""


def groups_of(queries: pl.DataFrame, relevant: pl.DataFrame) -> pl.DataFrame:
    """The group of each query: ``query_id`` and ``group``, a number.

    Two queries are of one group if they have one text, or if at least half of the passages that are relevant to either
    are so to both (Jaccard), or by way of others. A single passage in common would do where queries have one each, but
    chains 318 of the 323 test queries of NFCorpus, which hardly fare alike (ratio of errors 0.96 to 1.03).

    Args:
        queries: ``query_id`` and ``text``, which may be null.
        relevant: ``query_id`` and ``passage_id`` of relevant passages.
    """
    by_text = queries.drop_nulls("text").select("query_id", key=pl.lit("text ") + pl.col("text"))
    own = relevant.unique(maintain_order=True).join(queries, on="query_id", how="semi", maintain_order="left")
    needs = own.group_by("query_id", maintain_order=True).agg(pl.col("passage_id").sort(), size=pl.len())
    needs = needs.with_columns(key=pl.lit("passages ") + pl.col("passage_id").list.join(" "))
    keys = pl.concat([by_text, needs.select("query_id", "key")])
    equal = keys.filter(pl.len().over("key") > 1).group_by("key", maintain_order=True).agg("query_id")
    each = needs.unique("key", keep="first", maintain_order=True).explode("passage_id").drop("key")
    each = each.filter(pl.len().over("passage_id").is_between(2, _MOST))
    pairs = each.join(each, on="passage_id").filter(pl.col("query_id") < pl.col("query_id_right"))
    pairs = pairs.group_by("query_id", "query_id_right", "size", "size_right").len("both")
    pairs = pairs.filter(3 * pl.col("both") >= pl.col("size") + pl.col("size_right"))
    linked = sorted(pairs.select("query_id", "query_id_right").rows())
    leaders: dict[str, str] = {}

    def leader(query: str) -> str:
        while (above := leaders.setdefault(query, query)) != query:
            leaders[query] = leaders[above]  # halves the way for those that ask next
            query = above
        return query

    for together in [*equal["query_id"], *linked]:
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
