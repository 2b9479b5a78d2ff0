"""Similarity of test queries to training queries, by their words or by their vectors.

Means over all pairs of two sets are taken as one product with a mean vector, since the mean of dot products is the
dot product with the mean: no work or memory ever grows with the product of two sizes.
"""

from collections.abc import Sequence

import numpy as np
import polars as pl

from eval_kit.errors import UserError
from eval_kit.release import Release
from eval_kit.shifts import SHIFTS
from eval_kit.stats.parts import Floats
from eval_kit.stats.vectors import Matrix, Vectors, blocks
from eval_kit.words import all_spaced

_WORD = r"[^\s\x1c-\x1f]+"
"""A word: what is between blanks, as Python's ``str.split()`` sees them, in a text that is spaced."""


def word_counts(texts: pl.Series) -> pl.DataFrame:
    """``word`` and ``count`` (Int64) of the words of some texts, in no order.

    Words are lower-cased and separated by blanks, or pairs of characters in a script without spaces
    (:mod:`eval_kit.words`); a text that appears twice counts twice.
    """
    words = all_spaced(texts).str.to_lowercase().str.extract_all(_WORD).explode().drop_nulls()
    return words.alias("word").value_counts().cast({"count": pl.Int64})


def weighted_jaccard(source: pl.DataFrame, target: pl.DataFrame) -> float:
    """Weighted Jaccard similarity of two sets of texts, from their :func:`word_counts` (ECIR 2023 §5.2; BEIR, app. F).

    Σ min(S_k, T_k) / Σ max(S_k, T_k) over all words k of either, where S_k is the share of word k among the words of
    ``source``: from 0 (no word in common) to 1 (equal shares).

    Raises:
        ValueError: a side without any word.
    """
    source_total, target_total = int(source["count"].sum()), int(target["count"].sum())
    if not (source_total and target_total):
        raise ValueError("texts without any word have no similarity")
    both = source.join(target, on="word").cast({"count": pl.Int128, "count_right": pl.Int128})
    smaller = pl.min_horizontal(pl.col("count") * target_total, pl.col("count_right") * source_total)
    least = int(both.select(smaller.sum()).item())  # Σ min, of shares times both totals: whole numbers, exact
    return least / (2 * source_total * target_total - least)  # Σ max = Σ S + Σ T - Σ min


def mean_dot(queries: Matrix, training: Matrix) -> Floats:
    """R(q, train) of ECIR 2023 §5.2, equation 1: each query's mean dot product with all training queries, (n,)."""
    if queries.shape[1] != training.shape[1]:
        raise UserError(f"Vectors of {queries.shape[1]} and of {training.shape[1]} dimensions cannot be compared")
    mean = _sum(training) / len(training)
    return np.concatenate([block.astype(np.float64) @ mean for block in blocks(queries)])


def by_cluster(
    release: Release, shift: str, vectors: Vectors | None = None, splits: Sequence[str] = ("test",)
) -> pl.DataFrame:
    """Similarity of each cluster of a shift to all its other clusters together.

    A query counts once in each cluster that it belongs to; as wh clusters overlap a little, one of theirs may be
    on both sides. The papers give the figures of whole clusters: :func:`cluster_splits`.

    Args:
        release: from :func:`eval_kit.release.open_release`.
        shift: ``topic``, ``wh`` or ``length``.
        vectors: of all the queries; adds the cosine.
        splits: whose queries together make up the clusters.

    Returns:
        ``cluster``, ``n`` (its queries), ``others`` (those of the other clusters), ``jaccard``, and with vectors
        ``cosine``, the mean over all pairs of a query inside and one outside (arXiv:2205.02870 §3.1); one row per
        cluster, in the release's order.
    """
    clusters = _clusters(release, shift, splits)
    if len(clusters) == 1:
        raise UserError(f"{shift} has only the cluster {next(iter(clusters))}, and nothing to compare it with")
    words, sums = {}, {}
    for cluster, queries in clusters.items():
        words[cluster] = word_counts(queries["text"])
        if vectors is not None:
            sums[cluster] = _sum(vectors.of(queries["query_id"]), unit=True)
    all_words = pl.concat(words.values()).group_by("word").agg(pl.col("count").sum())
    all_queries = sum(queries.height for queries in clusters.values())
    rows = []
    for cluster, own_words in words.items():
        n, others = clusters[cluster].height, all_queries - clusters[cluster].height
        rest = pl.col("count") - pl.col("count_right").fill_null(0)
        other_words = all_words.join(own_words, on="word", how="left").select("word", rest)
        row = {"cluster": cluster, "n": n, "others": others, "jaccard": weighted_jaccard(own_words, other_words)}
        if vectors is not None:
            total = np.sum([sums[name] for name in clusters if name != cluster], axis=0)
            row["cosine"] = float(sums[cluster] @ total) / (n * others)
        rows.append(row)
    return pl.DataFrame(rows)


def cluster_splits(release: Release, shift: str) -> list[str]:
    """The splits that hold the whole clusters of a shift: test and train; test alone where train is missing."""
    return [split for split in ("test", "train") if split in release.configs.get(shift, [])]


def test_and_training(release: Release, shift: str, cluster: str) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The test queries of a cluster, and the training queries of the model that never saw it.

    The latter are those of :meth:`eval_kit.shifts.Shift.training`; both are ``query_id`` and ``text``, each query once.
    """
    test = _clusters(release, shift, ["test"]).get(cluster)
    others = _clusters(release, shift, ["train"]).keys() - {cluster}
    if test is None or not others:
        raise UserError(f"{shift} has no cluster {cluster} with test queries and training queries outside it")
    return test.select("query_id", "text"), SHIFTS[shift].training(release, cluster).queries


def _clusters(release: Release, shift: str, splits: Sequence[str]) -> dict[str, pl.DataFrame]:
    """The queries of each cluster, in the release's order, each once."""
    tables = [release.table(shift, split) for split in splits]
    if any("cluster" not in table.columns for table in tables):
        raise UserError(f"{shift} is not a shift with clusters", do="Use topic, wh or length")
    queries = pl.concat(table.select("query_id", "text", "cluster") for table in tables)
    queries = queries.unique(["query_id", "cluster"], keep="first", maintain_order=True)
    return {part["cluster"][0]: part for part in queries.partition_by("cluster", maintain_order=True)}


def _sum(values: Matrix, unit: bool = False) -> Floats:
    """Sum of the rows, each first scaled to length 1 if ``unit``."""
    total = np.zeros(values.shape[1])
    for block in blocks(values):
        exact = block.astype(np.float64)
        if unit:
            lengths = np.linalg.norm(exact, axis=1, keepdims=True)
            if not lengths.all():
                raise UserError("A vector of zeros has no cosine with others")
            exact /= lengths
        total += exact.sum(axis=0)
    return total
