"""ReSTrain's sets by brute force: cosines and sorted lists in plain Python (CIKM 2022 §4.1.2; the authors' README)."""

import math
import random

import numpy as np
import polars as pl
import pytest

from builder.shifts.restrain import depths, regimes, solve
from eval_kit.stats.vectors import Vectors

SIZE = 120


def random_vectors(name: str, count: int, seed: int) -> dict[str, list[float]]:
    """Vectors whose lengths differ by a factor of ten, so that inner products order them otherwise."""
    draw = random.Random(seed)
    return {
        f"{name}{number:03d}": [draw.gauss(0.3, 1) * length for _ in range(6)]
        for number, length in enumerate(draw.choices([0.2, 1, 2], k=count))
    }


def cosine(left: list[float], right: list[float]) -> float:
    return sum(a * b for a, b in zip(left, right, strict=True)) / math.hypot(*left) / math.hypot(*right)


def as_vectors(rows: dict[str, list[float]]) -> Vectors:
    return Vectors("random", pl.Series(list(rows)), np.array(list(rows.values()), np.float32))


@pytest.mark.parametrize("seed", range(3))
def test_sets_by_brute_force(seed: int) -> None:
    train, tests = random_vectors("q", 400, seed), random_vectors("t", 15, seed + 100)
    rankings = [sorted(train, key=lambda query: (-cosine(vector, train[query]), query)) for vector in tests.values()]
    unions = [set().union(*(ranking[:cut] for ranking in rankings)) for cut in range(401)]
    near = min(unions[1:], key=lambda union: abs(len(union) - SIZE))
    outside = [set(train) - union for union in unions if 400 - len(union) >= len(near)]

    column = "regime_some"
    vectors = as_vectors(train)
    depth = depths(vectors, as_vectors(tests))
    result = regimes(vectors.query_ids, depth, [solve(depth, "some", SIZE)], seed)
    interpolation = set(result["query_id"].filter(result[column].cast(pl.String) == "interpolate"))
    extrapolation = set(result["query_id"].filter(result[column].cast(pl.String) == "extrapolate"))
    assert interpolation == near
    assert len(extrapolation) == len(near)
    assert extrapolation <= outside[-1]  # in no test query's top-E, E the greatest that leaves enough
    assert extrapolation >= set(train) - unions[len(outside)]  # the farthest of all are in it

    longest = max(train, key=lambda query: math.hypot(*train[query]))
    assert depths(as_vectors(train), as_vectors(tests))[list(train).index(longest)] == 1 + min(
        ranking.index(longest) for ranking in rankings
    )


def test_a_vector_of_zeros_is_near_to_nothing() -> None:
    train = as_vectors({"a": [0.0, 0.0], "b": [0.1, 0.0], "c": [-5.0, 0.0]})
    assert depths(train, as_vectors({"t": [1.0, 0.0]})).tolist() == [2, 1, 3]
