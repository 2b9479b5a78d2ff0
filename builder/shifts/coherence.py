"""How coherent clusters of vectors are: whether another seed finds the same ones, beside vectors without structure."""

import numpy as np

from builder.shifts.kmeans import kmeans
from eval_kit.stats.vectors import Vectors

MOST = 5_000
"""Queries looked at, at most."""
ITERATIONS = 25
WEAK = 2.0
"""Agreement below this multiple of the shuffled one is remarked on as hardly better than chance."""


def remark(shift: str, queries: Vectors, parts: int, seed: int) -> str:
    """One sentence: the agreement of k-means by two seeds, and on shuffled vectors.

    Agreement is the adjusted mutual information (0 by chance, 1 for equal clusters) of two k-means into as many
    clusters as the shift has parts, over at most 5,000 queries. In the shuffled vectors every dimension is permuted on
    its own, which keeps its values and destroys what they have in common.

    Args:
        shift: its name, for the sentence.
        queries: that are clustered.
        parts: how many parts the shift has.
        seed: of the sample and of both k-means.
    """
    rng = np.random.Generator(np.random.PCG64(seed))
    by_id = queries.query_ids.arg_sort().to_numpy()  # so that the input order does not matter
    rows = by_id[np.sort(rng.permutation(len(by_id))[:MOST])]
    sample = np.asarray(queries.values[rows], np.float32)
    shuffled = np.stack([rng.permutation(column) for column in sample.T], axis=1)
    lengths = np.linalg.norm(shuffled, axis=1, keepdims=True)
    real, chance = (_agreement(values, parts, seed) for values in (sample, shuffled / np.maximum(lengths, 1e-9)))
    weak = "; hardly better than chance: do not read them as topics" if real < WEAK * max(chance, 0.05) else ""
    return f"{shift}: two seeds of k-means agree by {real:.2f} (1 is the same clusters), {chance:.2f} if shuffled{weak}"


def _agreement(values: np.ndarray, parts: int, seed: int) -> float:
    from sklearn.metrics import adjusted_mutual_info_score

    first, second = (kmeans(values, parts, seed + more, ITERATIONS, threads=1).labels for more in (0, 1))
    return float(adjusted_mutual_info_score(first, second))
