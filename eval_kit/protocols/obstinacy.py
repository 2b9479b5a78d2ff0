"""Obstinate queries: those that a ranker does worst on, and how far rankers share them (CIKM 2021 §2.3-3).

Each ranker's queries are ordered by average precision; the bottom x % are its obstinate ones. The paper doesn't say
which queries are left out where equal values cross the boundary, as they do (BM25 finds nothing for more than 10 % of
dev). Here the query with the lower mean over all rankers goes first, then the lower id as a string.

``values`` are ``query_id`` and a column of average precision for each ranker.
"""

from collections.abc import Mapping
from itertools import combinations

import polars as pl

from eval_kit.errors import UserError
from eval_kit.stats.vectors import check_ids

LEVELS = (10, 20, 30, 40, 50)
"""The paper's levels, in percent."""


def obstinate(values: pl.DataFrame, level: int) -> pl.DataFrame:
    """H_x: whether each query is in the bottom ``level`` percent of each ranker (§2.3).

    Returns:
        ``query_id`` and a boolean column for each ranker, in the order of ``values``.

    Raises:
        UserError: ids that appear twice, a ranker without a value for some query, a level out of 1 to 100 or so low
            that it holds no query.
    """
    names = rankers(values)
    if not 1 <= level <= 100:
        raise UserError(f"the share of most obstinate queries must be 1 to 100 percent, not {level}")
    count = round(values.height * level / 100)
    if not count:
        raise UserError(f"the bottom {level} % of {values.height:,} queries is empty")
    columns = [values["query_id"]]
    mean = values.select(pl.mean_horizontal(names)).to_series()
    for name in names:
        order = pl.DataFrame([values[name].alias("value"), mean.alias("mean"), values["query_id"]])
        bottom = order.with_row_index("row").sort("value", "mean", "query_id")["row"].head(count)
        columns.append(pl.int_range(values.height, eager=True).is_in(bottom.implode()).alias(name))
    return pl.DataFrame(columns)


def worst(values: pl.DataFrame) -> pl.DataFrame:
    """Table 2: each ranker's mean over its own bottom x % of the queries, and over all of them.

    Returns:
        ``run``, ``level`` (100: all queries) and ``value``.
    """
    rows = []
    for level in (*LEVELS, 100):
        bottom = obstinate(values, level)
        rows += [(name, level, values[name].filter(bottom[name]).mean()) for name in rankers(values)]
    return pl.DataFrame(rows, {"run": pl.String, "level": pl.Int64, "value": pl.Float64}, orient="row")


def agreement(values: pl.DataFrame) -> pl.DataFrame:
    """Equation 1 for each pair of rankers: shared obstinate queries over all obstinate queries of the two.

    Returns:
        ``first``, ``second`` (rankers, in the order of the columns), ``level`` and ``agreement``.
    """
    rows = []
    for level in LEVELS:
        bottom = obstinate(values, level)
        ids = {name: set(bottom["query_id"].filter(bottom[name])) for name in rankers(values)}
        for first, second in combinations(ids, 2):
            both, either = ids[first] & ids[second], ids[first] | ids[second]
            rows.append((first, second, level, len(both) / len(either)))
    schema = {"first": pl.String, "second": pl.String, "level": pl.Int64, "agreement": pl.Float64}
    return pl.DataFrame(rows, schema, orient="row")


def strictly_more_obstinate(first: Mapping[str, float], second: Mapping[str, float], same_ranker: bool = False) -> bool:
    """Definition 1: whether every ranker does worse on the first set of queries than any ranker on the second.

    As written, the definition compares all pairs: P(R_i(Q1)) < P(R_j(Q2)) for all R_i, R_j. The paper's own sets
    don't meet it in that form (Table 4: ANCE's MAP on Lesser, 0.0286, is above BM25's on Pygmy, 0.0215), though they
    do if each ranker is compared with itself.

    Args:
        first: ranker -> performance on Q1.
        second: ranker -> performance on Q2; the same rankers.
        same_ranker: compare each ranker only with itself (i = j).

    Raises:
        UserError: no rankers, or not the same.
    """
    if not first or first.keys() != second.keys():
        raise UserError("two sets of queries can be compared only on the same rankers, and on at least one")
    if same_ranker:
        return all(first[ranker] < second[ranker] for ranker in first)
    return max(first.values()) < min(second.values())


def rankers(values: pl.DataFrame) -> list[str]:
    """The rankers with a column in ``values``, after a check that these are complete.

    Raises:
        UserError: no rankers, no queries, ids that appear twice, a ranker that lacks queries.
    """
    names = [name for name in values.columns if name != "query_id"]
    if not names or not values.height:
        raise UserError("there are no rankers, or no queries, to compare")
    check_ids(values["query_id"])
    for name in names:
        absent = values["query_id"].filter(values[name].cast(pl.Float64).is_finite().fill_null(False).not_())
        if len(absent):
            raise UserError(f"{name}: lacks {len(absent):,} of {values.height:,} queries, {absent[0]!r} for one")
    return names
