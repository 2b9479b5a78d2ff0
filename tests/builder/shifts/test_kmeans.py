import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from planted_vectors import blobs, threads
from sklearn.cluster import KMeans
from sklearn.metrics import adjusted_rand_score

from builder.shifts.kmeans import kmeans
from eval_kit.errors import UserError

NOISE = blobs(20_000, 96, centres=400, spread=1.0)[0].values
"""No clear clusters: many vectors lie on a border, where the last bit of a distance decides."""


@pytest.mark.parametrize("count", [2, 3, 5])
def test_membership_does_not_depend_on_the_threads(count: int) -> None:
    with threads(1):
        one = kmeans(NOISE, 50, seed=3)
    with threads(count):
        more = kmeans(NOISE, 50, seed=3)
    assert np.array_equal(one.labels, more.labels)
    assert np.array_equal(one.centroids, more.centroids)


@pytest.mark.slow
def test_membership_does_not_depend_on_the_threads_of_the_process(tmp_path: Path) -> None:
    program = """
import hashlib, sys
import numpy as np
from builder.shifts.kmeans import kmeans
print(hashlib.sha256(kmeans(np.load(sys.argv[1]), 50, seed=3).labels.tobytes()).hexdigest())
"""
    np.save(tmp_path / "noise.npy", NOISE)
    printed = {
        subprocess.run(
            [sys.executable, "-c", program, str(tmp_path / "noise.npy")],
            env={**os.environ, "OMP_NUM_THREADS": count, "OPENBLAS_NUM_THREADS": count},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for count in ("1", "2")
    }
    assert len(printed) == 1


def test_the_seed_decides() -> None:
    first, again, other = (kmeans(NOISE, 20, seed=seed) for seed in (1, 1, 2))
    assert np.array_equal(first.labels, again.labels)
    assert not np.array_equal(first.labels, other.labels)


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
