"""Vectors with clusters planted in them."""

import numpy as np
import polars as pl
from numpy.typing import NDArray

from eval_kit.stats.vectors import Vectors


def blobs(n: int, d: int, centres: int, seed: int = 1, spread: float = 0.3) -> tuple[Vectors, NDArray[np.int64]]:
    """`n` vectors around random centres, and the centre of each."""
    rng = np.random.default_rng(seed)
    middle = rng.standard_normal((centres, d))
    truth = rng.integers(centres, size=n)
    vectors = (middle[truth] + spread * rng.standard_normal((n, d))).astype(np.float32)
    return Vectors("planted", pl.Series([f"q{i}" for i in range(n)]), vectors), truth


def shuffled(queries: Vectors, seed: int = 1) -> Vectors:
    """The same queries in another order."""
    order = np.random.default_rng(seed).permutation(len(queries))
    return Vectors("planted", queries.query_ids.gather(order), queries.values[order])
