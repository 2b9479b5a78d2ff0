"""How near ReSTrain's training queries are, by brute force: cosines and lists in plain Python (CIKM 2022 §4.1.2).

What follows from the depths is in tests/builder/shifts/test_restrain.py.
"""

import math

import numpy as np
import polars as pl

from builder.shifts.restrain import depths
from eval_kit.stats.vectors import Vectors


def as_vectors(rows: dict[str, list[float]]) -> Vectors:
    return Vectors("random", pl.Series(list(rows)), np.array(list(rows.values()), np.float32))


def cosine(left: list[float], right: list[float]) -> float:
    return sum(a * b for a, b in zip(left, right, strict=True)) / math.hypot(*left) / math.hypot(*right)


def test_depths_by_brute_force() -> None:
    """Vectors' lengths differ by a factor of ten, so that inner products order them otherwise."""
    draw = np.random.default_rng(0)
    train, tests = (draw.normal(0.3, 1, (count, 6)) * draw.choice([0.2, 1, 2], (count, 1)) for count in (400, 15))
    rows = {f"q{number:03d}": vector for number, vector in enumerate(train.tolist())}
    nearest = dict.fromkeys(rows, 400)
    for vector in tests.tolist():
        ranking = sorted(rows, key=lambda query, vector=vector: (-cosine(vector, rows[query]), query))
        for rank, query in enumerate(ranking, start=1):
            nearest[query] = min(nearest[query], rank)
    tested = as_vectors({str(number): vector for number, vector in enumerate(tests.tolist())})
    assert depths(as_vectors(rows), tested).tolist() == list(nearest.values())


def test_a_vector_of_zeros_is_near_to_nothing() -> None:
    train = as_vectors({"a": [0.0, 0.0], "b": [0.1, 0.0], "c": [-5.0, 0.0]})
    assert depths(train, as_vectors({"t": [1.0, 0.0]})).tolist() == [2, 1, 3]
