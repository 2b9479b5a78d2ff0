"""k-means (Lloyd's) whose result depends on the seed alone: scikit-learn's, on one thread, over all vectors.

With more threads the sums of a cluster's vectors are added in another order: distances then differ in their last bits,
and with them the clusters. Another processor, or another version of the BLAS, may still round differently.
"""

import warnings
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from eval_kit.errors import UserError

type Matrix = NDArray[np.float32]
type Ints = NDArray[np.int64]

_SEEDING = 256
"""Vectors per cluster, drawn at random, from which k-means++ chooses the first centroids."""


@dataclass(frozen=True)
class Clusters:
    """The result of k-means: ``labels`` are the nearest centroid of each vector."""

    labels: Ints
    centroids: Matrix

    @property
    def sizes(self) -> Ints:
        """(k,) how many vectors each cluster has."""
        return np.bincount(self.labels, minlength=len(self.centroids))


def kmeans(vectors: Matrix, k: int, seed: int, iterations: int = 25) -> Clusters:
    """Cluster ``vectors``.

    The vectors are finite; a memory map will do. Fewer ``iterations`` do where no vector changes its cluster. The first
    centroids are those of k-means++.
    """
    from sklearn.cluster import KMeans, kmeans_plusplus
    from sklearn.exceptions import ConvergenceWarning
    from threadpoolctl import threadpool_limits

    if not 1 <= k <= len(vectors):
        raise UserError(f"k-means with k = {k:,} needs at least {k:,} queries, but there are {len(vectors):,}")
    if iterations < 1:
        raise UserError(f"k-means needs at least one iteration, not {iterations}")
    rng = np.random.RandomState(seed)  # scikit-learn takes no newer generator
    sample = vectors
    if len(vectors) > k * _SEEDING:
        sample = vectors[np.sort(rng.choice(len(vectors), k * _SEEDING, replace=False))]
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # equal vectors, fewer than k of them distinct
        first = np.ascontiguousarray(kmeans_plusplus(np.asarray(sample), k, random_state=rng)[0], np.float32)
        model = KMeans(k, init=first, n_init=1, tol=0, max_iter=iterations).fit(vectors)
    return Clusters(model.labels_.astype(np.int64), model.cluster_centers_)
