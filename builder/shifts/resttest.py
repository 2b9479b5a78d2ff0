"""ReSTTest: training and test queries in buckets of similar queries (CIKM 2022 §4.1.3).

"ReSTTest clusters training queries and test queries into k buckets with k-means. [...] In this paper, k is set to 5."
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import polars as pl

from builder.assembly import FEWEST_TESTED, Build, ShiftResult, interval_remark
from builder.shifts.kmeans import kmeans
from eval_kit.errors import UserError
from eval_kit.sentences import joined
from eval_kit.shifts import main_split
from eval_kit.stats.vectors import Vectors

RULE = (
    "the bucket that k-means over the training and test queries together puts the query in, largest bucket first; by "
    "Euclidean distance, of the vectors as the encoder gives them"
)
SOURCE = "CIKM 2022 §4.1.3"
LIMITS = (
    "The authors' vectors are those of 'the query encoder of a Dense Retrieval model' (README of their repository), "
    "which is not released. Whether they scaled them before k-means is not said (here they are not); the seed is not "
    "given, and buckets are numbered in no stated order.",
    "Which training queries were clustered with the test queries is not given.",
)
"""What no rebuild can reproduce of the published lists, and why."""


@dataclass(frozen=True)
class ResttestParameters:
    """The paper's k; seed and iterations are ours, as the paper gives neither."""

    k: int = 5
    seed: int = 13
    iterations: int = 25


def assign(
    splits: Mapping[str, Vectors], parameters: ResttestParameters = ResttestParameters()
) -> dict[str, pl.DataFrame]:
    """The bucket of every query of every split.

    Returns for each split ``query_id`` and ``bucket`` (Enum b1 to bk, b1 the bucket with most queries), in its order.
    """
    widths = {queries.values.shape[1] for queries in splits.values()}
    if len(widths) != 1:
        raise UserError(
            f"The splits {joined(list(splits)) or '(none)'} need vectors of one width, not of {len(widths)}"
        )
    vectors = np.concatenate([queries.values for queries in splits.values()])
    clusters = kmeans(vectors, parameters.k, parameters.seed, parameters.iterations)
    number = np.empty(parameters.k, np.int64)
    number[np.argsort(-clusters.sizes, kind="stable")] = np.arange(parameters.k)
    names = "b" + pl.int_range(1, parameters.k + 1, eager=True).cast(pl.String)
    buckets = names.gather(number[clusters.labels]).cast(pl.Enum(names))
    assignment, start = {}, 0
    for split, queries in splits.items():
        assignment[split] = pl.DataFrame({"query_id": queries.query_ids, "bucket": buckets.slice(start, len(queries))})
        start += len(queries)
    return assignment


def rebuild(build: Build, parameters: ResttestParameters) -> ShiftResult:
    """The buckets of the training queries and of every evaluation split."""
    assignment = assign(build.vectors_by_split, parameters)
    rule = build.rule(RULE, SOURCE, parameters, from_vectors=True)
    tables = []
    for split, queries in build.splits.items():
        members = queries.join(assignment[split], on="query_id", maintain_order="left")
        tables.append(build.table("resttest", split, members, ["bucket"], rule))
    main = main_split(build.collection.evaluation)
    return ShiftResult(tables, _size_remarks(assignment[main]["bucket"]) if main else ())


def _size_remarks(buckets: pl.Series) -> list[str]:
    """How many test queries the buckets have, and which have too few to test on."""
    names = pl.Series("bucket", buckets.dtype.categories, buckets.dtype).to_frame()  # type: ignore[attr-defined]
    sizes = names.join(buckets.value_counts(), on="bucket", how="left", maintain_order="left").fill_null(0)
    few = ", ".join(f"{name} ({size})" for name, size in sizes.filter(pl.col("count") < FEWEST_TESTED).iter_rows())
    remark = f"resttest: fewer than {FEWEST_TESTED} test queries, too few to conclude from: {few}"
    return [
        interval_remark("resttest", sizes["count"].replace(0, None).drop_nulls().to_list()),
        *([remark] if few else []),
    ]
