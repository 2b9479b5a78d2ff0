import numpy as np
import polars as pl
from hypothesis import given, settings
from hypothesis import strategies as st
from planted_vectors import shuffled
from polars.testing import assert_frame_equal
from sklearn.preprocessing import normalize
from threadpoolctl import threadpool_limits

from builder.shifts.restrain import RestrainParameters, depths, regimes, solve
from eval_kit.errors import UserError
from eval_kit.stats.vectors import Vectors

PAPER = RestrainParameters()
SIZES = {"small": 200, "medium": 500, "large": 900}


def assign(train: Vectors, tests: Vectors, parameters: RestrainParameters = PAPER) -> pl.DataFrame:
    depth = depths(train, tests)
    solutions = [solve(depth, name, size) for name, size in parameters.sizes.items()]
    return regimes(train.query_ids, depth, solutions, parameters.seed)


def queries(train: int = 2_000, tests: int = 20) -> tuple[Vectors, Vectors]:
    rng = np.random.default_rng(1)

    def drawn(name: str, n: int) -> Vectors:
        ids = pl.Series([f"{name}{i}" for i in range(n)])
        return Vectors("planted", ids, rng.standard_normal((n, 8), dtype=np.float32))

    return drawn("q", train), drawn("t", tests)


def sets(found: pl.DataFrame, size: str) -> tuple[set[str], set[str]]:
    column = found[f"regime_{size}"]
    return tuple(
        set(found["query_id"].filter((column == regime).fill_null(False))) for regime in ("interpolate", "extrapolate")
    )  # type: ignore[return-value]


def test_interpolation_is_the_union_of_the_top_i_and_extrapolation_outside_the_top_e() -> None:
    """The sets are nested, and the regimes are disjoint at any two sizes, as published."""
    train, tests = queries()
    found = assign(train, tests, RestrainParameters(SIZES))
    order = np.argsort(-(tests.values @ normalize(train.values).T), axis=1)
    for name, size in SIZES.items():
        solved = solve(depths(train, tests), name, size)
        interpolate, extrapolate = sets(found, name)
        assert interpolate == set(train.query_ids.gather(np.unique(order[:, : solved.top_i])))
        assert not extrapolate & set(train.query_ids.gather(np.unique(order[:, : solved.top_e])))
        assert len(interpolate) == len(extrapolate) == solved.queries
        assert abs(solved.queries - size) <= len(tests)
        # E is the greatest that leaves enough
        assert len(train) - len(np.unique(order[:, : solved.top_e + 1])) < solved.queries
    (small, far_small), (medium, far_medium), (large, far_large) = (sets(found, size) for size in SIZES)
    assert small < medium < large and far_small < far_medium < far_large
    assert not large & far_large


@settings(max_examples=20)
@given(depth=st.lists(st.integers(1, 40), min_size=30, max_size=200), share=st.floats(0.1, 0.5))
def test_solved_sizes_are_the_nearest_there_are(depth: list[int], share: float) -> None:
    values = np.array(depth)
    size = max(1, round(share * len(values)))
    reachable = [(values <= i).sum() for i in range(1, 41)]
    best = min(abs(int(count) - size) for count in reachable)
    try:
        solved = solve(values, "x", size)
    except UserError:
        assert best > 0.1 * size or 2 * (size - best) > len(values) or 2 * (size + best) > len(values)
        return
    assert abs(solved.queries - size) == best
    assert (values <= solved.top_i).sum() == solved.queries
    assert (values > solved.top_e).sum() >= solved.queries > (values > solved.top_e + 1).sum()
    assert solved.top_i <= solved.top_e


def test_deterministic_whatever_threads_and_order_and_sampled_by_seed() -> None:
    sizes = {"small": 350, "medium": 700, "large": 950}
    train, tests = queries(tests=200)
    with threadpool_limits(1):
        first = assign(train, tests, RestrainParameters(sizes))
    assert first.schema["regime_small"] == pl.Enum(["interpolate", "extrapolate"])
    assert first["query_id"].equals(train.query_ids)
    with threadpool_limits(2):
        assert_frame_equal(first, assign(train, tests, RestrainParameters(sizes)))
    other_order = assign(shuffled(train), shuffled(tests), RestrainParameters(sizes))
    assert_frame_equal(first.sort("query_id"), other_order.sort("query_id"))
    other_seed = assign(train, tests, RestrainParameters(sizes, seed=14))
    assert not first.equals(other_seed)
    assert [sets(first, s)[0] for s in sizes] == [sets(other_seed, s)[0] for s in sizes]


def test_equal_similarities_are_ranked_by_id() -> None:
    train = Vectors("planted", pl.Series(["c", "a", "b", "d"]), np.ones((4, 2), np.float32))
    tests = Vectors("planted", pl.Series(["t"]), np.ones((1, 2), np.float32))
    assert depths(train, tests).tolist() == [3, 1, 2, 4]
