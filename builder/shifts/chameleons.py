"""MS MARCO Chameleons: the queries on which all rankers do badly (CIKM 2021 §2.3-3.2).

Each ranker's queries are ordered by average precision; the bottom x % are its obstinate ones. A query that is
obstinate for all rankers is a *lesser* chameleon; for all but at most one, a *pygmy*; for all but at most two, a
*veiled* one (§3, Table 3).
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from builder.assembly import Build, ShiftResult
from eval_kit.authors.test_sets import CHAMELEON_SETS, LEVELS, OBSTINACY
from eval_kit.errors import UserError
from eval_kit.files.formats import SCORED_AS
from eval_kit.measures.definitions import parse, per_query
from eval_kit.runs.given import take
from eval_kit.runs.ranks import rank_judged
from eval_kit.sentences import counted
from eval_kit.shifts import main_split

RULE = (
    "the strictest set that holds the query: lesser if it is in the bottom x % by average precision of all rankers, "
    "pygmy of all but one, veiled of all but two; the bottom x % are round(x n / 100) queries, equal values ordered "
    "by mean average precision over the rankers, then by query id"
)
SOURCE = "CIKM 2021 §2.3-3.1"
LIMITS = (
    "The rankers' runs are on Google Drive, linked from the repository's README, and were not fetched; other runs of "
    "the same rankers differ.",
    "How equal values at the boundary were parted is not given (CIKM 2021 §2.3); here the lower mean over all "
    "rankers goes first, then the lower id.",
)
"""What no rebuild can reproduce of the published lists, and why."""
MEASURE = "AP@1000"
"""The paper's (§2.1: "over the top-1000 retrieved documents")."""


@dataclass(frozen=True)
class ChameleonParameters:
    """The paper's levels, in percent."""

    levels: tuple[int, ...] = LEVELS


def _average_precision(runs: Mapping[str, Path], qrels: pl.DataFrame, queries: pl.Series) -> pl.DataFrame:
    """The value of each ranker for each query.

    Returns ``query_id`` and a float64 column for each ranker, in the order of ``queries``.
    """
    pairs = qrels.filter(pl.col("query_id").is_in(queries.implode()))
    values = {"query_id": queries}
    [files] = take(runs=list(runs.values()))
    for ranker, run in zip(runs, files, strict=True):
        run_ranks = rank_judged(run, pairs)
        absent = queries.filter(~queries.is_in(run_ranks.queries["query_id"].implode()))
        if len(absent):
            raise UserError(f"{run} lacks {len(absent):,} of {counted(len(queries), 'query')}, such as {absent[0]!r}")
        with_ranks = pairs.join(run_ranks.judged, on=["query_id", "passage_id"], how="left")
        values[ranker] = per_query(parse(MEASURE), with_ranks, queries)
    return pl.DataFrame(values)


def assign(values: pl.DataFrame, parameters: ChameleonParameters = ChameleonParameters()) -> pl.DataFrame:
    """The set of each query, at each level, by ``query_id`` and a column of average precision for each ranker.

    Returns ``query_id`` and ``level_<x>`` (Enum none, veiled, pygmy, lesser: the strictest set that holds the query),
    in the order of ``values``.
    """
    names = [name for name in values.columns if name != "query_id"]
    if len(names) < len(CHAMELEON_SETS):
        raise UserError(f"Chameleons need at least three rankers, not {len(names)}")
    labels = pl.Enum(OBSTINACY)
    columns = []
    for level in parameters.levels:
        agreeing = obstinate(values, level).select(pl.sum_horizontal(pl.col(names).cast(pl.Int64))).to_series()
        strictness = (agreeing - len(names) + len(CHAMELEON_SETS)).clip(lower_bound=0)
        columns.append(pl.Series(OBSTINACY).gather(strictness).cast(labels).alias(f"level_{level}"))
    return values.select("query_id").with_columns(columns)


def obstinate(values: pl.DataFrame, level: int) -> pl.DataFrame:
    """H_x: whether each query is in the bottom ``level`` percent of each ranker (§2.3).

    The paper doesn't say which queries are left out where equal values cross the boundary, as they do (BM25 finds
    nothing for more than 10 % of dev). Here the query with the lower mean over all rankers goes first, then the lower
    id as a string. Returns ``query_id`` and a boolean column for each ranker, in the order of ``values``.
    """
    names = [name for name in values.columns if name != "query_id"]
    if not 1 <= level <= 100:
        raise UserError(f"The share of the hardest queries must be 1 to 100 percent, not {level}")
    count = round(values.height * level / 100)
    if not count:
        raise UserError(f"The bottom {level} % of {counted(values.height, 'query')} is empty")
    columns = [values["query_id"]]
    # rounded once, and to digits that fractions such as 1/3 + 1/6 and 1/2 share: no order of rankers decides a tie
    sums = [round(math.fsum(row), 12) for row in values.select(names).iter_rows()]
    mean = pl.Series("mean", sums, pl.Float64)
    for name in names:
        order = pl.DataFrame([values[name].alias("value"), mean, values["query_id"]])
        bottom = order.with_row_index("row").sort("value", "mean", "query_id")["row"].head(count)
        columns.append(pl.int_range(values.height, eager=True).is_in(bottom.implode()).alias(name))
    return pl.DataFrame(columns)


def lacking(build: Build) -> str:
    """What the collection or the user's runs lack for the Chameleons; empty if nothing."""
    split = main_split(build.collection.evaluation)
    if split is None:
        return f"{build.collection.name} has no dev or test split with judgements"
    return "" if build.runs else f"it needs runs over {split} (--run, at least three rankers)"


def rebuild(build: Build, parameters: ChameleonParameters) -> ShiftResult:
    """The sets of the dev (else test) queries."""
    split = main_split(build.collection.evaluation)
    assert split is not None
    queries = build.collection.evaluation[split]
    qrels = build.pairs(split).rename(SCORED_AS)
    values = _average_precision(build.runs, qrels, queries["query_id"])
    assignment = assign(values, parameters)
    rule = build.rule(RULE, SOURCE, parameters, rankers=list(build.runs))
    members = queries.join(assignment, on="query_id")
    return ShiftResult([build.table("chameleons", split, members, assignment.columns[1:], rule)])
