import random
from fractions import Fraction

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from builder.shifts.chameleons import ChameleonParameters, assign, obstinate
from eval_kit.authors.test_sets import CHAMELEON_SETS, OBSTINACY
from eval_kit.errors import UserError
from tests.planted_rankers import planted

NAMES = [f"r{number}" for number in range(6)]
RULES = {6: "lesser", 5: "pygmy", 4: "veiled"}


def members(assigned: pl.DataFrame, name: str, level: int) -> set[str]:
    """The queries of one set at one level; the sets are nested."""
    at_least = OBSTINACY[OBSTINACY.index(name) :]
    return set(assigned.filter(pl.col(f"level_{level}").cast(pl.String).is_in(at_least))["query_id"])


def test_planted_hard_queries_are_recovered() -> None:
    """The sets are nested, and grow with the level."""
    values, truth = planted()
    found = assign(values)
    assert found.columns == ["query_id", *(f"level_{level}" for level in (10, 20, 30, 40, 50))]
    assert found["query_id"].equals(values["query_id"])
    assert found.schema["level_20"] == pl.Enum(["none", "veiled", "pygmy", "lesser"])
    assert {name: members(found, name, 20) for name in truth} == truth
    assert [len(truth[name]) for name in ("lesser", "pygmy", "veiled")] == [100, 160, 220]
    for level in (10, 20, 30, 40, 50):
        assert members(found, "lesser", level) <= members(found, "pygmy", level) <= members(found, "veiled", level)
    for name in CHAMELEON_SETS:
        for low, high in ((10, 20), (20, 30), (30, 40), (40, 50)):
            assert members(found, name, low) <= members(found, name, high)


def test_what_is_refused() -> None:
    values, _ = planted()
    for few, levels, place in ((values, [0], "not 0"), (values[:4], [10], "10 % of 4 queries")):
        with pytest.raises(UserError, match=place):
            assign(few, ChameleonParameters(levels=levels))


def test_bottom_share_is_exact_and_ties_go_by_mean_then_by_id() -> None:
    values = pl.DataFrame(
        {
            "query_id": ["9", "10", "2", "1", "3"],
            "a": [0.0, 0.0, 0.0, 0.0, 1.0],
            "b": [0.5, 0.1, 0.5, 0.5, 0.0],
            "c": [0.5, 0.1, 0.5, 0.5, 0.0],
        }
    )
    bottom = obstinate(values, 40)
    assert bottom.select(pl.col("a", "b", "c").sum()).row(0) == (2, 2, 2)
    # 10 has the lower mean; "1" is the lowest id among the equals
    assert set(bottom["query_id"].filter(bottom["a"])) == {"10", "1"}
    shuffled = obstinate(values[[4, 2, 0, 3, 1]], 40)
    assert_frame_equal(bottom.sort("query_id"), shuffled.sort("query_id"))


def test_rankers_may_have_any_name() -> None:
    values, _ = planted()
    renamed = values.rename({"ranker0": "mean", "ranker1": "row", "ranker2": "value"})
    assert obstinate(renamed, 20).to_numpy().tolist() == obstinate(values, 20).to_numpy().tolist()


def test_the_order_of_rankers_changes_no_label() -> None:
    """It parts no ties: sums of fractions that are equal stay equal as floats."""
    draw = random.Random(1)
    queries = [str(number) for number in draw.sample(range(10**6), 3_000)]
    ranks = (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 15, 20, 30, 50)
    exact = {
        name: [Fraction(0) if draw.random() < 0.25 else Fraction(1, draw.choice(ranks)) for _ in queries]
        for name in NAMES
    }
    values = {name: list(map(float, column)) for name, column in exact.items()}
    given, turned = (
        assign(pl.DataFrame({"query_id": queries, **{n: values[n] for n in o}})) for o in (NAMES, NAMES[::-1])
    )
    assert given.equals(turned)
    mean = [sum(exact[name][row] for name in NAMES) for row in range(len(queries))]
    for level in (10, 50):
        counts = dict.fromkeys(queries, 0)
        for name in NAMES:
            order = sorted(range(len(queries)), key=lambda row: (exact[name][row], mean[row], queries[row]))
            for row in order[: round(level * len(queries) / 100)]:
                counts[queries[row]] += 1
        assert given[f"level_{level}"].to_list() == [RULES.get(counts[query], "none") for query in queries]
