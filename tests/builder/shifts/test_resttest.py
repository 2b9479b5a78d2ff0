import numpy as np
import polars as pl
import pytest
from planted_vectors import blobs
from sklearn.metrics import adjusted_rand_score

from builder.shifts.kmeans import kmeans
from builder.shifts.resttest import ResttestParameters, assign
from eval_kit.errors import UserError
from eval_kit.stats.vectors import Vectors


def splits(n: int = 3_000, spread: float = 0.3) -> tuple[dict[str, Vectors], np.ndarray]:
    queries, truth = blobs(n, 8, centres=5, spread=spread)
    cuts = {"train": slice(0, n - 500), "dev": slice(n - 500, n - 60), "dl19": slice(n - 60, n)}
    return {
        name: Vectors("planted", queries.query_ids[rows], queries.values[rows]) for name, rows in cuts.items()
    }, truth


def test_every_query_of_every_split_gets_one_bucket_largest_first() -> None:
    given, truth = splits()
    found = assign(given)
    assert list(found) == list(given)
    for name, frame in found.items():
        assert frame.schema == {"query_id": pl.String(), "bucket": pl.Enum(["b1", "b2", "b3", "b4", "b5"])}
        assert frame["query_id"].equals(given[name].query_ids)
    together = pl.concat(found.values())["bucket"]
    assert adjusted_rand_score(truth, together.to_list()) == 1
    sizes = together.value_counts().sort("bucket")["count"].to_list()
    assert sizes == sorted(sizes, reverse=True)


def test_training_and_test_queries_are_clustered_together() -> None:
    """A test query is in the bucket of the nearest centroid over all queries, not of the training queries alone."""
    given, _ = splits(spread=2.0)
    vectors = np.concatenate([queries.values for queries in given.values()])
    for k in (5, 3):
        labels = kmeans(vectors, k, ResttestParameters().seed).labels
        found = pl.concat(assign(given, ResttestParameters(k=k)).values())["bucket"].to_list()
        assert adjusted_rand_score(labels, found) == 1


def test_what_is_refused() -> None:
    given, _ = splits()
    with pytest.raises(UserError, match="k = 5 needs at least as many queries; there are 3"):
        assign({"train": blobs(3, 2, centres=1)[0]})
    with pytest.raises(UserError, match="the splits train, dev need vectors of one width, not of 2"):
        assign({"train": given["train"], "dev": blobs(9, 2, centres=1)[0]})
    with pytest.raises(UserError, match="the splits \\(none\\) need vectors"):
        assign({})
