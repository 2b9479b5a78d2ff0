import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from planted_vectors import blobs, shuffled, threads
from polars.testing import assert_frame_equal

from builder.shifts.restrain import RestrainParameters, depths, regimes, solve
from builder.sources.mini import Mini
from eval_kit.errors import UserError
from eval_kit.stats.vectors import Vectors

PAPER = RestrainParameters()
SIZES = {"small": 200, "medium": 500, "large": 900}


def assign(train: Vectors, tests: Vectors, parameters: RestrainParameters = PAPER) -> pl.DataFrame:
    depth = depths(train, tests)
    solutions = [solve(depth, name, size) for name, size in parameters.sizes.items()]
    return regimes(train.query_ids, depth, solutions, parameters.seed)


def queries(train: int = 2_000, tests: int = 20, seed: int = 1, d: int = 8) -> tuple[Vectors, Vectors]:
    rng = np.random.default_rng(seed)
    made = [
        Vectors("planted", pl.Series([f"{name}{i}" for i in range(n)]), rng.standard_normal((n, d), dtype=np.float32))
        for name, n in (("q", train), ("t", tests))
    ]
    return made[0], made[1]


def unit(values: np.ndarray) -> np.ndarray:
    return values / np.linalg.norm(values, axis=1, keepdims=True)


def sets(found: pl.DataFrame, size: str) -> tuple[set[str], set[str]]:
    column = found[f"regime_{size}"]
    return tuple(
        set(found["query_id"].filter((column == regime).fill_null(False))) for regime in ("interpolate", "extrapolate")
    )  # type: ignore[return-value]


def test_interpolation_is_the_union_of_the_top_i_and_extrapolation_outside_the_top_e() -> None:
    train, tests = queries()
    found = assign(train, tests, RestrainParameters(SIZES))
    order = np.argsort(-(tests.values @ unit(train.values).T), axis=1)
    for one in (solve(depths(train, tests), name, size) for name, size in SIZES.items()):
        interpolate, extrapolate = sets(found, one.size)
        assert interpolate == set(train.query_ids.gather(np.unique(order[:, : one.top_i])))
        assert not extrapolate & set(train.query_ids.gather(np.unique(order[:, : one.top_e])))
        assert len(interpolate) == len(extrapolate) == one.queries
        assert abs(one.queries - SIZES[one.size]) <= len(tests)
        # E is the greatest that leaves enough
        assert len(train) - len(np.unique(order[:, : one.top_e + 1])) < one.queries


@settings(max_examples=40, deadline=None)
@given(depth=st.lists(st.integers(1, 40), min_size=30, max_size=200), share=st.floats(0.1, 0.5))
def test_solved_sizes_are_the_nearest_there_are(depth: list[int], share: float) -> None:
    values = np.array(depth)
    size = max(1, round(share * len(values)))
    reachable = [(values <= i).sum() for i in range(1, 41)]
    best = min(abs(int(one) - size) for one in reachable)
    try:
        one = solve(values, "x", size)
    except UserError:
        assert best > 0.1 * size or 2 * (size - best) > len(values) or 2 * (size + best) > len(values)
        return
    assert abs(one.queries - size) == best
    assert (values <= one.top_i).sum() == one.queries
    assert (values > one.top_e).sum() >= one.queries > (values > one.top_e + 1).sum()
    assert one.top_i <= one.top_e


def test_sets_are_nested_and_regimes_disjoint_at_any_two_sizes_as_published() -> None:
    found = assign(*queries(), RestrainParameters(SIZES))
    (small, far_small), (medium, far_medium), (large, far_large) = (sets(found, size) for size in SIZES)
    assert small < medium < large and far_small < far_medium < far_large
    assert not large & far_large


def test_deterministic_whatever_threads_and_order_and_sampled_by_seed() -> None:
    sizes = {"small": 350, "medium": 700, "large": 950}
    train, tests = queries(tests=200)
    with threads(1):
        first = assign(train, tests, RestrainParameters(sizes))
    assert first.schema["regime_small"] == pl.Enum(["interpolate", "extrapolate"])
    assert first["query_id"].equals(train.query_ids)
    with threads(2):
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


def test_interpolation_is_nearer_to_the_tests_on_mini_at_every_size(
    mini: Mini, mini_embedded: dict[str, Vectors]
) -> None:
    train = mini_embedded["train"]
    dl = [mini_embedded["dl19"], mini_embedded["dl20"]]
    tests = Vectors("planted", pl.concat(one.query_ids for one in dl), np.concatenate([one.values for one in dl]))
    found = assign(train, tests, RestrainParameters({"350": 350, "700": 700, "1400": 1_400, "4000": 4_000}))
    similarity = pl.DataFrame({"query_id": train.query_ids, "similarity": (train.values @ tests.values.T).max(axis=1)})
    planted = mini.queries.select("query_id", "nearness").join(similarity, on="query_id")
    for size in ("350", "700", "1400", "4000"):
        near, far = (planted.filter(pl.col("query_id").is_in(ids)) for ids in sets(found, size))
        assert near["similarity"].mean() > far["similarity"].mean()
        assert near["nearness"].mean() > far["nearness"].mean()


@pytest.mark.parametrize(
    ("sizes", "sentence"),
    [
        ({"big": 2_001}, "ReSTrain size big .* cannot be reached twice without overlap: there are 2,000"),
        ({"huge": 200_000}, "ReSTrain size huge .200,000. cannot be reached: the nearest union of top-I has 2,000"),
        ({"tiny": 3}, "ReSTrain size tiny .3. cannot be reached"),
        ({"none": 0}, "ReSTrain size none .0. cannot be reached"),
        ({"half": 1_100}, "ReSTrain size half .1,100. cannot be reached twice without overlap"),
    ],
)
def test_sizes_that_cannot_be_reached(sizes: dict[str, int], sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        assign(*queries(), RestrainParameters(sizes))


def test_other_things_that_are_refused() -> None:
    train, tests = queries()
    with pytest.raises(UserError, match="one width, not 8 and 3"):
        assign(train, blobs(5, 3, centres=1)[0])
    with pytest.raises(UserError, match=r"not a table of vectors: its shape is \(0, 8\)"):
        assign(train, Vectors("planted", tests.query_ids[:0], tests.values[:0]))
