"""k-means (Lloyd's) whose result depends on the seed alone, not on the number of threads.

faiss's own ``Kmeans`` leaves the blocking of its matrix products to the BLAS, where it varies with the number of
threads: distances then differ in their last bits, and with them the clusters. Here the vectors are cut into blocks of a
fixed size; each is searched by faiss and summed on one thread, and the blocks' sums are added in order. Threads only
divide up the blocks. Training uses all vectors (faiss would draw 256 per cluster).

Another processor, or another version of the BLAS, may still round differently.
"""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from eval_kit.console import counting
from eval_kit.errors import UserError

type Matrix = NDArray[np.float32]
type Ints = NDArray[np.int64]

BLOCK = 2_048
SEEDING = 256
"""Vectors per cluster, drawn at random, from which k-means++ chooses the first centroids."""


@dataclass(frozen=True)
class Clusters:
    """The result of k-means.

    Attributes:
        labels: (n,) the cluster of each vector: the nearest centroid, the lowest of equals.
        centroids: (k, d) float32.
    """

    labels: Ints
    centroids: Matrix

    @property
    def sizes(self) -> Ints:
        """(k,) how many vectors each cluster has."""
        return np.bincount(self.labels, minlength=len(self.centroids))


def kmeans(vectors: Matrix, k: int, seed: int, iterations: int = 25) -> Clusters:
    """Cluster ``vectors``.

    Args:
        vectors: (n, d) float32, finite; a memory map will do.
        k: how many clusters.
        seed: of the first centroids (k-means++) and of what replaces an empty cluster.
        iterations: at most; fewer if no vector changes its cluster.

    Raises:
        UserError: k is less than 1 or greater than the number of vectors, or there would be no iteration.
    """
    import faiss
    from faiss.contrib.clustering import reassign_centroids
    from threadpoolctl import threadpool_limits

    if not 1 <= k <= len(vectors):
        raise UserError(f"k-means with k = {k:,} needs at least as many queries; there are {len(vectors):,}")
    if iterations < 1:
        raise UserError(f"k-means needs at least one iteration, not {iterations}")
    workers = faiss.omp_get_max_threads()
    rng = np.random.RandomState(seed)  # faiss and scikit-learn take no newer generator here
    pool = ThreadPoolExecutor(workers, initializer=faiss.omp_set_num_threads, initargs=(1,))  # of the calling thread
    with threadpool_limits(1), pool:
        centroids = _first(vectors, k, rng)
        labels = np.full(len(vectors), -1)
        with counting(f"k-means (k = {k})", "rounds", iterations + 1) as advance:
            for iteration in range(iterations + 1):
                before, (labels, sums) = labels, _assign(pool, vectors, centroids)
                advance(1)
                if iteration == iterations or np.array_equal(labels, before):
                    break
                sizes = np.bincount(labels, minlength=k)
                centroids = (sums / np.maximum(sizes, 1)[:, None]).astype(np.float32)
                reassign_centroids(sizes, centroids, rng)  # type: ignore[no-untyped-call]
    return Clusters(labels, centroids)


def blocks(count: int) -> Iterator[slice]:
    """Rows 0 to ``count`` in slices of a fixed size."""
    return (slice(start, start + BLOCK) for start in range(0, count, BLOCK))


def _first(vectors: Matrix, k: int, rng: np.random.RandomState) -> Matrix:
    from sklearn.cluster import kmeans_plusplus

    sample = vectors
    if len(vectors) > k * SEEDING:
        sample = vectors[np.sort(rng.choice(len(vectors), k * SEEDING, replace=False))]
    return np.ascontiguousarray(kmeans_plusplus(np.asarray(sample), k, random_state=rng)[0], np.float32)


def _assign(pool: ThreadPoolExecutor, vectors: Matrix, centroids: Matrix) -> tuple[Ints, NDArray[np.float64]]:
    """Each vector's cluster, and the sum of each cluster's vectors (k, d)."""
    import faiss
    from scipy.sparse import csr_array

    k = len(centroids)

    def search(rows: slice) -> tuple[Ints, Matrix]:
        part = np.ascontiguousarray(vectors[rows], np.float32)
        labels = faiss.knn(part, centroids, 1)[1][:, 0]
        count = len(part)
        member = csr_array((np.ones(count, np.float32), (labels, np.arange(count))), shape=(k, count))
        return labels, member @ part

    labels, sums = [], np.zeros(centroids.shape)
    for part_labels, part_sums in pool.map(search, blocks(len(vectors))):
        labels.append(part_labels)
        sums += part_sums
    return np.concatenate(labels), sums
