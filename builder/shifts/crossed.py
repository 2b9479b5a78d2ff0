"""Crossed hold-outs: many small clusters of queries, each left out of training by half of a few models.

The models' roles are the rows of a Hadamard matrix and their complements: every cluster is left out by half of the
models, and every model leaves out half of the clusters. Within a cluster, the queries are dealt at random to the models
that train on it; each leaves out those dealt to it, so that every query is tested unseen by one of them.
"""

from dataclasses import dataclass

import numpy as np
import polars as pl

from builder.assembly import TESTED, Build, ShiftResult, interval_remark
from builder.shifts import length, wh
from builder.shifts.given import merge, without_part
from builder.shifts.kmeans import kmeans
from eval_kit.authors.test_sets import models_in
from eval_kit.errors import UserError
from eval_kit.sentences import counted
from eval_kit.shifts import ROLES

RULE = (
    "clusters by k-means of the queries' vectors, or the given parts, merged by their mean vectors; roles of the "
    "models by a Hadamard matrix, in-domain test queries dealt at random (seeded)"
)
_MOST_IN_A_CLUSTER = 0.2
"""Share of the queries; a cluster that holds more is no kind of queries, and leaves too little to train on."""
CELLS = 2 * (len(wh.CLUSTERS) + 1)
"""Divisions of a topic by wh word and length."""
LIMITS = ("There are no published lists to reproduce.",)


@dataclass(frozen=True)
class CrossedParameters:
    """Numbers of clusters (at most) and of models (4, 8 or 16); our seed.

    With ``cells``, clusters are cells of topic, wh word and length: an eighth as many topics, or given parts, each
    divided into what, how, who and other queries, and these into short and long ones.
    """

    clusters: int = 64
    models: int = 8
    cells: bool = False
    seed: int = 13
    iterations: int = 25


def assign(parts: pl.DataFrame, parameters: CrossedParameters) -> pl.DataFrame:
    """The role of each query for each model, where ``parts`` holds each query once, with any text.

    Returns ``query_id``, ``cluster`` (Enum, the largest first) and a column for each model, m1, m2, ... (Enum of
    :data:`eval_kit.shifts.ROLES`), by cluster.
    """
    from scipy.linalg import hadamard

    models = parameters.models
    if models not in (4, 8, 16):
        raise UserError(f"crossed.models must be 4, 8 or 16, not {models}", "The kit has designs for these alone")
    sizes = parts.group_by("part").agg(n=pl.len()).sort("n", "part", descending=[True, False])
    if sizes.height < 2 * models:
        raise UserError(f"{models} crossed models need at least {2 * models} clusters, but there are {sizes.height}")
    rows = hadamard(models)[1:] > 0
    random = np.random.default_rng(parameters.seed)
    names = [f"m{model + 1}" for model in range(models)]
    frames = []
    for number, part in enumerate(sizes["part"]):
        trains = rows[number // 2 % len(rows)]
        trains = ~trains if number % 2 else trains  # neighbours in size have opposite roles
        queries = parts.filter(pl.col("part") == part)["query_id"].sort()
        dealt = random.permutation(np.arange(len(queries)) % (models // 2))
        turn = np.cumsum(trains) - 1
        roles = np.where(trains[:, None], np.where(dealt == turn[:, None], "in", "train"), "out")
        of_models = pl.DataFrame(roles, names, orient="col").cast(pl.Enum(ROLES))
        frames.append(pl.select(queries, pl.lit(f"c{number:02d}").alias("cluster")).hstack(of_models))
    assignment = pl.concat(frames)
    return assignment.with_columns(pl.col("cluster").cast(pl.Enum(assignment["cluster"].unique(maintain_order=True))))


def cells(parts: pl.DataFrame, queries: pl.DataFrame) -> pl.DataFrame:
    """Each part divided by wh word (a query with several has the first) and by length (in halves as even as can be).

    Returns ``query_id`` and ``part``: "3 how long".
    """
    texts = parts.join(queries, on="query_id", maintain_order="left")["text"]
    word = pl.lit("other")
    for cluster in reversed(wh.CLUSTERS):
        word = pl.when(wh.member(texts, cluster)).then(pl.lit(cluster)).otherwise(word)
    size = length.cluster(texts, length.even_cut(texts)).cast(pl.String)
    return parts.with_columns(part=pl.concat_str("part", word, pl.lit(size), separator=" "))


def _check_largest(parts: pl.DataFrame, by_hand: bool) -> None:
    name, largest = parts["part"].value_counts(sort=True).row(0)
    if largest <= _MOST_IN_A_CLUSTER * parts.height:
        return
    holds = f"holds {largest:,} of {parts.height:,} queries"
    if by_hand:
        raise UserError(f"The part {name!r} {holds}, over {_MOST_IN_A_CLUSTER:.0%}", do="Divide it")
    raise UserError(
        f"One cluster {holds}",
        "Their vectors do not distinguish them",
        "Choose a model with --encoder, or parts with --parts",
    )


def rebuild(build: Build, parameters: CrossedParameters) -> ShiftResult:
    """The table of the shift."""
    fewest = 2 * parameters.models * TESTED
    if build.train.height < fewest or parameters.clusters < 1:
        models = f"{parameters.models} crossed models of {parameters.clusters:,} clusters"
        raise UserError(
            f"{counted(build.train.height, 'training query')} are too few for {models}, which need {fewest:,}"
        )
    vectors, user_parts = build.vectors_by_split["train"], build.collection.parts
    count = min(parameters.clusters, build.train.height // TESTED)
    count = max(2, count // CELLS) if parameters.cells else count
    if user_parts is None:
        clusters = kmeans(vectors.values, count, parameters.seed, parameters.iterations)
        parts = build.train.select("query_id", part=pl.Series(clusters.labels).cast(pl.String))
    else:
        train_parts = user_parts.join(build.train, on="query_id", how="semi")
        parts = merge(train_parts, vectors, count, parameters.seed)
    parts = cells(parts, build.train) if parameters.cells else parts
    test_parts = parts.filter(pl.len().over("part") >= parameters.models)
    remarks = [] if user_parts is None else without_part("crossed", parts, build.train)
    if left_out := parts.height - test_parts.height:
        remarks.append(f"crossed: {left_out:,} queries of clusters with fewer than {parameters.models} are left out")
    assignment = assign(test_parts, parameters)
    if user_parts is not None and not parameters.cells:
        _check_largest(train_parts, by_hand=True)
    _check_largest(test_parts, by_hand=False)
    sizes = assignment.group_by("cluster").len()["len"].to_list()
    remarks.append(interval_remark("crossed", sizes))
    members = assignment.join(build.train, on="query_id", maintain_order="left")
    rule = build.rule(RULE, "docs/results.md", parameters, from_vectors=True)
    return ShiftResult([build.table("crossed", "train", members, ["cluster", *models_in(assignment)], rule)], remarks)
