"""MS MARCO Chameleons: the queries on which all rankers do badly (CIKM 2021 §2.3-3.2).

Each ranker's queries are ordered by average precision; the bottom 10, 20, ... 50 % are its obstinate ones. A query
that is obstinate for all rankers is a *lesser* chameleon, for all but one at least a *pygmy*, for all but two a
*veiled* one (§3, Table 3).

The paper doesn't say who is left out where equal values cross the boundary, as they do (BM25 finds nothing for more
than 10 % of dev). Here the query with the lower mean over all rankers goes first, then the lower id as a string.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from builder.assembly import Build, ShiftResult
from builder.test_sets import main_split
from eval_kit.errors import UserError
from eval_kit.measures.definitions import parse, per_query
from eval_kit.runs.ranks import rank_judged
from eval_kit.stats.vectors import check_ids

SETS = ("veiled", "pygmy", "lesser")
OBSTINACY = ("none", *SETS)
STRICTEST_FIRST = SETS[::-1]
RULE = (
    "the strictest set that holds the query: lesser if it is in the bottom x % by average precision of all rankers, "
    "pygmy of all but one, veiled of all but two; the bottom x % are round(x n / 100) queries, equal values ordered "
    "by mean average precision over the rankers, then by query id"
)
SOURCE = "CIKM 2021 §2.3-3.1"
LIMITS = (
    "The rankers' runs are not released with the lists; other runs of the same rankers differ.",
    "How equal values at the boundary were parted is not given (CIKM 2021 §2.3); here the lower mean over all "
    "rankers goes first, then the lower id.",
)
"""What no rebuilding can reproduce of the published lists, and why."""
MEASURE = "AP@1000"
"""The paper's (§2.1: "over the top-1000 retrieved documents")."""


@dataclass(frozen=True)
class ChameleonParameters:
    """The paper's levels, in percent."""

    levels: Sequence[int] = (10, 20, 30, 40, 50)


def average_precision(runs: Mapping[str, Path], qrels: pl.DataFrame, queries: pl.Series) -> pl.DataFrame:
    """The value of each ranker for each query.

    Args:
        runs: ranker -> run file (see :mod:`eval_kit.runs.reader`).
        qrels: ``query_id``, ``passage_id``, ``relevance``.
        queries: all query ids; each needs a relevant passage.

    Returns:
        ``query_id`` and a float64 column for each ranker, in the order of ``queries``.

    Raises:
        UserError: a run that cannot be read or lacks queries, a query without a relevant passage.
    """
    check_ids(queries)
    pairs = qrels.filter(pl.col("query_id").is_in(queries.implode()))
    unjudged = queries.filter(~queries.is_in(pairs.filter(pl.col("relevance") > 0)["query_id"].implode()))
    if len(unjudged):
        raise UserError(f"{len(unjudged):,} queries have no relevant passage, {unjudged[0]!r} for one")
    values = {"query_id": queries}
    for ranker, path in runs.items():
        ranked = rank_judged(path, pairs)
        absent = queries.filter(~queries.is_in(ranked.queries["query_id"].implode()))
        if len(absent):
            raise UserError(f"{path}: lacks {len(absent):,} of {len(queries):,} queries, {absent[0]!r} for one")
        judged = pairs.join(ranked.judged, on=["query_id", "passage_id"], how="left")
        values[ranker] = per_query(parse(MEASURE), judged, queries)
    return pl.DataFrame(values)


def assign(values: pl.DataFrame, parameters: ChameleonParameters | None = None) -> pl.DataFrame:
    """Which set each query is in, at each level.

    Args:
        values: ``query_id`` and a column of average precision for each ranker (three at least).
        parameters: the levels.

    Returns:
        ``query_id`` and ``level_<x>`` (Enum none, veiled, pygmy, lesser: the strictest set that holds the query), in
        the order of ``values``.

    Raises:
        UserError: as :func:`obstinate`; fewer than three rankers.
    """
    parameters = parameters or ChameleonParameters()
    rankers = _rankers(values)
    if len(rankers) < len(SETS):
        raise UserError(f"chameleons need three rankers at least, not {len(rankers)}")
    labels = pl.Enum(OBSTINACY)
    columns = []
    for level in parameters.levels:
        agreeing = obstinate(values, level).select(pl.sum_horizontal(pl.col(rankers).cast(pl.Int64))).to_series()
        strictness = (agreeing - len(rankers) + len(SETS)).clip(lower_bound=0)
        columns.append(pl.Series(OBSTINACY).gather(strictness).cast(labels).alias(f"level_{level}"))
    return values.select("query_id").with_columns(columns)


def obstinate(values: pl.DataFrame, level: int) -> pl.DataFrame:
    """H_x: whether each query is in the bottom ``level`` percent of each ranker (§2.3).

    Returns:
        ``query_id`` and a boolean column for each ranker, in the order of ``values``.

    Raises:
        UserError: ids that come twice, a ranker without a value for some query, a level out of 1 to 100 or so low
            that it holds no query.
    """
    rankers = _rankers(values)
    if not 1 <= level <= 100:
        raise UserError(f"the share of most obstinate queries must be 1 to 100 percent, not {level}")
    count = round(values.height * level / 100)
    if not count:
        raise UserError(f"the bottom {level} % of {values.height:,} queries are none")
    order = values.select("query_id", *rankers, mean=pl.mean_horizontal(rankers)).with_row_index("row")
    picked = []
    for ranker in rankers:
        worst = order.sort(ranker, "mean", "query_id")["row"].head(count)
        picked.append(order["row"].is_in(worst.implode()).alias(ranker))
    return values.select("query_id").with_columns(picked)


def agreement(values: pl.DataFrame, level: int) -> pl.DataFrame:
    """Equation 1 for each pair of rankers: shared obstinate queries over all obstinate queries of the two.

    Returns:
        ``ranker`` and a float64 column for each ranker; symmetric, 1 on the diagonal.
    """
    bottom = obstinate(values, level)
    ids = {ranker: set(bottom["query_id"].filter(bottom[ranker])) for ranker in _rankers(values)}
    columns = {"ranker": pl.Series(list(ids))}
    for ranker, queries in ids.items():
        columns[ranker] = pl.Series([len(queries & rival) / len(queries | rival) for rival in ids.values()])
    return pl.DataFrame(columns)


def members(assigned: pl.DataFrame, name: str, level: int) -> pl.Series:
    """The query ids of one set at one level; the sets are nested, so *veiled* holds *pygmy* holds *lesser*."""
    at_least = pl.Series(OBSTINACY[OBSTINACY.index(name) :])
    strict = assigned[f"level_{level}"].cast(pl.String).is_in(at_least.implode())
    return assigned["query_id"].filter(strict)


def strictly_more_obstinate(first: Mapping[str, float], second: Mapping[str, float], same_ranker: bool = False) -> bool:
    """Definition 1: whether every ranker does worse on the first set of queries than any ranker on the second.

    As it is written, the definition compares all pairs: P(R_i(Q1)) < P(R_j(Q2)) for all R_i, R_j. The paper's own sets
    don't meet it so (Table 4: ANCE's MAP on Lesser, 0.0286, is above BM25's on Pygmy, 0.0215), though they do if each
    ranker is compared with itself.

    Args:
        first: ranker -> performance on Q1.
        second: ranker -> performance on Q2; the same rankers.
        same_ranker: compare each ranker only with itself (i = j).

    Raises:
        UserError: no rankers, or not the same.
    """
    if not first or first.keys() != second.keys():
        raise UserError("two sets of queries can be compared only on the same rankers, one at least")
    if same_ranker:
        return all(first[ranker] < second[ranker] for ranker in first)
    return max(first.values()) < min(second.values())


def worst(values: pl.DataFrame, levels: Sequence[int] = (10, 20, 30, 40, 50, 100)) -> pl.DataFrame:
    """Table 2: each ranker's mean over its own bottom x % of queries.

    Returns:
        ``ranker`` and a float64 column ``level_<x>`` for each level.
    """
    rankers = _rankers(values)
    columns = {"ranker": pl.Series(rankers)}
    for level in levels:
        bottom = obstinate(values, level)
        columns[f"level_{level}"] = pl.Series([values[ranker].filter(bottom[ranker]).mean() for ranker in rankers])
    return pl.DataFrame(columns)


def sizes(assigned: pl.DataFrame) -> pl.DataFrame:
    """Table 3: ``set`` (lesser, pygmy, veiled) and its number of queries at each level, as ``level_<x>``."""
    columns = {"set": pl.Series(STRICTEST_FIRST)}
    for level in _levels(assigned):
        columns[f"level_{level}"] = pl.Series([len(members(assigned, name, level)) for name in STRICTEST_FIRST])
    return pl.DataFrame(columns)


def performance(values: pl.DataFrame, assigned: pl.DataFrame, level: int = 50) -> pl.DataFrame:
    """Table 4: each ranker's mean of a measure over the queries of each set, and over all.

    Args:
        values: ``query_id`` and the measure's values for each ranker, for every query of ``assigned``.
        assigned: from :func:`assign`.
        level: the paper's table is for 50.

    Returns:
        ``set`` (lesser, pygmy, veiled, all) and a float64 column for each ranker; null for an empty set.

    Raises:
        UserError: a query of ``assigned`` without a value.
    """
    rankers = _rankers(values)
    _require(values["query_id"], assigned["query_id"], "value")
    return _means(values.select("query_id", *rankers), assigned, level)


def properties(texts: pl.DataFrame, qrels: pl.DataFrame, assigned: pl.DataFrame, level: int) -> pl.DataFrame:
    """Tables 5 and 6: mean number of relevant passages, and mean number of words, of each set and of all.

    Words are what white space separates (``len(text.split())``): every cell of the paper's Table 6 then comes out
    within 0.01 (most are cut to two digits, some rounded: 5.9246 is printed 5.92, 6.4566 as 6.45). Splitting at single
    spaces, as the length shift does, gives up to 0.02 more than the table.

    Args:
        texts: ``query_id``, ``text``, for every query of ``assigned``.
        qrels: ``query_id``, ``passage_id``, ``relevance``.
        assigned: ``query_id`` and ``level_<level>``; queries outside every set may be among them.
        level: which level.

    Returns:
        ``set`` (lesser, pygmy, veiled, all), ``relevant`` and ``words`` (float64; null for an empty set).

    Raises:
        UserError: a query of ``assigned`` without text.
    """
    _require(texts["query_id"], assigned["query_id"], "text")
    relevant = qrels.filter(pl.col("relevance") > 0).group_by("query_id").agg(pl.len().alias("relevant"))
    counted = texts.join(relevant, on="query_id", how="left").select(
        "query_id",
        pl.col("relevant").fill_null(0).cast(pl.Float64),
        pl.col("text").str.count_matches(r"\S+").cast(pl.Float64).alias("words"),
    )
    return _means(counted, assigned, level)


def lacking(build: Build) -> str:
    """What the collection or the user's runs lack for the Chameleons; empty if nothing."""
    split = main_split(build.collection.evaluation)
    if split is None:
        return f"{build.collection.name} has no dev or test split with judgements"
    return "" if build.runs else f"no runs over {split} are given (--run, three rankers at least)"


def rebuild(build: Build, parameters: ChameleonParameters) -> ShiftResult:
    """The sets of the dev (else test) queries."""
    split = main_split(build.collection.evaluation)
    assert split is not None
    queries = build.collection.evaluation[split]
    qrels = build.pairs(split).rename({"query-id": "query_id", "corpus-id": "passage_id", "score": "relevance"})
    values = average_precision(build.runs, qrels, queries["query_id"])
    assigned = queries.join(assign(values, parameters), on="query_id")
    levels = [name for name in assigned.columns if name.startswith("level_")]
    rule = build.rule(RULE, SOURCE, parameters, rankers=list(build.runs))
    return ShiftResult([build.table("chameleons", split, assigned, levels, rule)])


def _means(columns: pl.DataFrame, assigned: pl.DataFrame, level: int) -> pl.DataFrame:
    """The mean of each column over the queries of each set, and over all assigned ones."""
    sets = {name: members(assigned, name, level) for name in STRICTEST_FIRST} | {"all": assigned["query_id"]}
    means = [
        columns.filter(pl.col("query_id").is_in(ids.implode())).select(pl.exclude("query_id").mean())
        for ids in sets.values()
    ]
    return pl.DataFrame({"set": list(sets)}).hstack(pl.concat(means))


def _levels(assigned: pl.DataFrame) -> list[int]:
    return [int(name.removeprefix("level_")) for name in assigned.columns if name.startswith("level_")]


def _rankers(values: pl.DataFrame) -> list[str]:
    """The columns of values, each complete.

    Raises:
        UserError: no rankers, no queries, ids that come twice, a ranker that lacks queries.
    """
    rankers = [name for name in values.columns if name != "query_id"]
    if not rankers or not values.height:
        raise UserError("there are no rankers, or no queries, to compare")
    check_ids(values["query_id"])
    for ranker in rankers:
        absent = values["query_id"].filter(values[ranker].cast(pl.Float64).is_finite().fill_null(False).not_())
        if len(absent):
            raise UserError(f"{ranker}: lacks {len(absent):,} of {values.height:,} queries, {absent[0]!r} for one")
    return rankers


def _require(known: pl.Series, required: pl.Series, what: str) -> None:
    unknown = required.filter(~required.is_in(known.implode()))
    if len(unknown):
        raise UserError(f"{len(unknown):,} of {len(required):,} queries have no {what}, {unknown[0]!r} for one")
