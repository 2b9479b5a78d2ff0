import numpy as np
import pytest
from planted_vectors import blobs, threads
from sklearn.cluster import KMeans
from sklearn.metrics import adjusted_rand_score

from builder.shifts.kmeans import kmeans
from eval_kit.errors import UserError

NOISE = blobs(20_000, 96, centres=400, spread=1.0)[0].values
"""No clear clusters: many vectors lie on a border, where the last bit of a distance decides."""


def test_membership_depends_on_the_seed_alone() -> None:
    with threads(1):
        first = kmeans(NOISE, 50, seed=3)
    for count in (2, 5):
        with threads(count):
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


@pytest.mark.parametrize("k", [0, 11])
def test_k_out_of_range(k: int) -> None:
    with pytest.raises(UserError, match=f"k-means with k = {k} needs at least as many queries; there are 10"):
        kmeans(np.zeros((10, 2), np.float32), k, seed=1)
