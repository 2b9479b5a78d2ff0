"""k-means, and ReSTTest's buckets, which are its clusters."""

import numpy as np
import polars as pl
from planted_vectors import blobs
from sklearn.cluster import KMeans
from sklearn.metrics import adjusted_rand_score
from threadpoolctl import threadpool_limits

from builder.shifts.kmeans import kmeans
from builder.shifts.resttest import ResttestParameters, assign
from eval_kit.stats.vectors import Vectors

NOISE = blobs(20_000, 96, centres=400, spread=1.0)[0].values
"""No clear clusters: many vectors lie on a border, where the last bit of a distance decides."""


def test_membership_depends_on_the_seed_alone() -> None:
    with threadpool_limits(1):
        first = kmeans(NOISE, 50, seed=3)
    for count in (2, 5):
        with threadpool_limits(count):
            again = kmeans(NOISE, 50, seed=3)
        assert np.array_equal(first.labels, again.labels)
        assert np.array_equal(first.centroids, again.centroids)
    assert not np.array_equal(first.labels, kmeans(NOISE, 50, seed=2).labels)


def test_labels_are_the_nearest_centroids_and_centroids_the_means() -> None:
    queries, truth = blobs(3_000, 8, centres=4)
    found = kmeans(queries.values, 4, seed=1)
    distances = ((queries.values[:, None].astype(float) - found.centroids[None]) ** 2).sum(axis=2)
    assert np.array_equal(found.labels, distances.argmin(axis=1))
    means = np.array([queries.values[found.labels == i].mean(axis=0) for i in range(4)])
    assert np.allclose(means, found.centroids, atol=1e-5)
    assert adjusted_rand_score(truth, found.labels) == 1


def test_as_good_as_scikit_learn() -> None:
    peer = KMeans(50, n_init=1, max_iter=25, random_state=1).fit(NOISE)
    found = kmeans(NOISE, 50, seed=1)
    assert ((NOISE - found.centroids[found.labels]) ** 2).sum() < 1.01 * peer.inertia_


def test_equal_vectors_leave_no_cluster_unlabelled_wrongly() -> None:
    vectors = np.repeat(np.eye(3, dtype=np.float32), 5, axis=0)
    found = kmeans(vectors, 6, seed=1)
    assert adjusted_rand_score(np.repeat([0, 1, 2], 5), np.unique(found.labels, return_inverse=True)[1]) > 0
    assert found.sizes.sum() == 15 and np.isfinite(found.centroids).all()


def splits(n: int = 3_000, spread: float = 0.3) -> tuple[dict[str, Vectors], np.ndarray]:
    queries, truth = blobs(n, 8, centres=5, spread=spread)
    cuts = {"train": slice(0, n - 500), "dev": slice(n - 500, n - 60), "dl19": slice(n - 60, n)}
    parts = {name: (queries.query_ids[rows], queries.values[rows]) for name, rows in cuts.items()}
    return {name: Vectors("planted", *part) for name, part in parts.items()}, truth


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
