"""ReSTrain: training queries near to, and far from, the test queries (CIKM 2022 §4.1.2).

The interpolation set is the union of every test query's top-I training queries; the extrapolation set is what is in
no test query's top-E. "We can tune I and E to explore the influence of training set size": here they are solved for.

A training query's *depth* is the best rank that any test query gives it, so the union of the top-I is depth <= I and
what is in no top-E is depth > E: both are found exactly by binary search in the sorted depths, at every size.

The released sets are nested (14k in 45k in 200k, in both regimes) and no query is in both regimes at any two sizes.
This rule gives both properties; sampling from all but a small top-E would not.
"""

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from types import MappingProxyType
from typing import Annotated

import msgspec
import numpy as np
import polars as pl

from builder.assembly import Build, ShiftResult, lacks_train
from builder.collection import SPLIT
from builder.shifts.kmeans import Ints, Matrix
from eval_kit.console import counting
from eval_kit.errors import UserError
from eval_kit.search.processes import cores
from eval_kit.shifts import REGIMES, nearness_splits
from eval_kit.stats.vectors import Vectors

RULE = (
    "interpolate: in the top-I of a test query, I such that the set comes nearest to the size (the smaller I of two); "
    "extrapolate: in no test query's top-E, E the greatest that leaves enough, sampled (seeded) to the same number "
    "among the queries of depth E + 1; similarity is the cosine, equals ranked by training query id"
)
SOURCE = "CIKM 2022 §4.1.2"
LIMITS = (
    "The authors rank by 'the cosine-distance of the embeddings' of 'the query encoder of a Dense Retrieval model' "
    "(README of their repository; STAR and ADORE's by citation, CIKM 2022 §4.1.1). They release neither the model nor "
    "the vectors; any can be given as the encoder, and the rule names the one that was used.",
    "I and E are not given ('we can tune I and E'); here they are solved for from the sizes.",
    "How the extrapolation set was reduced to its size is not given. The released sets are nested, and no query is "
    "in both regimes at any two sizes, as here: the queries that are farthest, drawn at random among equals.",
    "The released sets of size 14k, 45k and 200k hold 13,175 to 13,763, 42,725 to 44,747 and 194,113 to 200,137 "
    "queries, interpolation fewer than extrapolation; here both regimes have the same number.",
)
"""What no rebuild can reproduce of the published lists, and why."""
_TESTS_AT_ONCE = 64
BLOCK = 2_048
TOLERANCE = 0.1
"""How far a set may stay from its target size, as a share of it."""


@dataclass(frozen=True)
class RestrainParameters:
    """The paper's three sizes (in queries); the seed is ours."""

    sizes: Mapping[Annotated[str, msgspec.Meta(pattern=f"^({SPLIT.pattern})$")], int] = MappingProxyType(
        {"14k": 14_000, "45k": 45_000, "200k": 200_000}
    )
    seed: int = 13


@dataclass(frozen=True)
class Solution:
    """The I and E for one size, and how many queries each regime then has."""

    size: str
    top_i: int
    top_e: int
    queries: int


def regimes(query_ids: pl.Series, depth: Ints, solutions: Sequence[Solution], seed: int) -> pl.DataFrame:
    """The regime of each training query at each size.

    Returns ``query_id`` and for each size ``regime_<size>`` (Enum interpolate, extrapolate; null for neither).
    """
    position = query_ids.rank("ordinal").to_numpy() - 1  # by id, so that the input order does not matter
    draw = np.random.Generator(np.random.PCG64(seed)).permutation(len(query_ids))[position]
    near_to_far = np.argsort(depth, kind="stable")
    far_to_near = np.lexsort((draw, -depth))
    columns: dict[str, pl.Series] = {"query_id": query_ids}
    for target in solutions:
        regime = np.full(len(query_ids), -1)
        regime[near_to_far[: target.queries]] = 0
        regime[far_to_near[: target.queries]] = 1
        columns[f"regime_{target.size}"] = pl.Series([*REGIMES, None]).gather(regime % 3).cast(pl.Enum(REGIMES))
    return pl.DataFrame(columns)


def solve(depth: Ints, name: str, size: int) -> Solution:
    """I and E for a size."""
    counts = np.bincount(depth).cumsum()  # by I: queries in the union
    top_i = 1 + int(np.abs(counts[1:] - size).argmin())
    queries = int(counts[top_i])
    if size < 1 or abs(queries - size) > TOLERANCE * size:
        raise UserError(
            f"The ReSTrain size {name} ({size:,}) cannot be reached",
            f"The nearest union of top-I has {queries:,} of {len(depth):,} training queries",
        )
    if 2 * queries > len(depth):
        raise UserError(
            f"The ReSTrain size {name} ({size:,}) cannot be reached twice without overlap",
            f"There are {len(depth):,} training queries",
        )
    top_e = int(np.searchsorted(counts, len(depth) - queries, side="right")) - 1
    return Solution(name, top_i, top_e, queries)


def depths(train: Vectors, tests: Vectors) -> Ints:
    """(n,) the best rank, from 1, that any test query gives each training query by cosine (exact).

    A vector of zeros has a cosine of 0 with all others.
    """
    from threadpoolctl import threadpool_limits

    if train.values.shape[1] != tests.values.shape[1]:
        raise UserError(
            f"Training and test queries need vectors of one width, not {train.values.shape[1]} and "
            f"{tests.values.shape[1]}"
        )
    by_id = train.query_ids.arg_sort().to_numpy()
    best = np.full(len(train), len(train))
    ranks = np.arange(1, len(train) + 1)
    with (
        threadpool_limits(1),
        ThreadPoolExecutor(cores()) as pool,
        counting("ranking training queries", "queries", len(tests)) as advance,
    ):
        for start in range(0, len(tests), _TESTS_AT_ONCE):
            scores = _similarities(pool, train.values, tests.values[start : start + _TESTS_AT_ONCE])
            for order in pool.map(lambda row: by_id[np.argsort(-row[by_id], kind="stable")], scores):
                best[order] = np.minimum(best[order], ranks)
                advance(1)
    return best


def lacking(build: Build) -> str:
    """What the collection lacks for ReSTrain; empty if nothing."""
    if not build.train.height:
        return lacks_train(build)
    enough = nearness_splits(build.collection.evaluation)
    return "" if enough else f"{build.collection.name} has no dl19, dl20, test or dev split with judgements"


def rebuild(build: Build, parameters: RestrainParameters) -> ShiftResult:
    """A table of training queries for each regime and size, and its judgements."""
    train, splits = build.vectors_by_split["train"], nearness_splits(build.collection.evaluation)
    parts = [build.vectors_by_split[split] for split in splits]
    query_ids = pl.concat(part.query_ids for part in parts)
    tests = Vectors(train.source, query_ids, np.concatenate([part.values for part in parts]))
    depth = depths(train, tests)
    solutions, reasons = [], []
    for name, size in parameters.sizes.items():
        try:
            solutions.append(solve(depth, name, size))
        except UserError as error:
            if "restrain" in build.set_by_user:
                raise
            reasons.append(str(error))
    if not solutions:
        raise UserError("; ".join(reasons))
    assignment = regimes(train.query_ids, depth, solutions, build.seed)
    tables = []
    for target in solutions:
        cut = {"tests": splits, "top_i": target.top_i, "top_e": target.top_e}
        rule = build.rule(RULE, SOURCE, parameters, from_vectors=True, **cut)
        for regime in REGIMES:
            ids = assignment["query_id"].filter(assignment[f"regime_{target.size}"].cast(pl.String) == regime)
            queries = build.train.filter(pl.col("query_id").is_in(ids.implode()))
            tables.append(build.table("restrain", f"{regime}_{target.size}", queries, [], rule))
            tables += build.qrels(f"restrain_{regime}_{target.size}", "train", queries)
    return ShiftResult(tables, [f"left out: {reason}" for reason in reasons])


def _similarities(pool: ThreadPoolExecutor, train: Matrix, tests: Matrix) -> Matrix:
    """(tests, n) cosines times the tests' lengths: the same order.

    In blocks of a fixed size, one thread each: the same bits for any number of threads.
    """
    from sklearn.preprocessing import normalize

    scores = np.empty((len(tests), len(train)), np.float32)

    def fill(rows: slice) -> None:
        scores[:, rows] = np.asarray(tests) @ normalize(train[rows]).T

    list(pool.map(fill, (slice(start, start + BLOCK) for start in range(0, len(train), BLOCK))))
    return scores
