"""Each ranker's own worst queries, and how far two share them, on rankers with planted failures."""

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from eval_kit.errors import UserError
from eval_kit.protocols.obstinacy import agreement, obstinate, strictly_more_obstinate
from eval_kit.release.reference import published_cells
from tests.planted_rankers import RANKERS, planted


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


def test_agreement_is_equation_1(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("eval_kit.protocols.obstinacy.LEVELS", (20, 100))
    values, _ = planted()
    shared = agreement(values)
    bottom = obstinate(values, 20)
    first, second = (set(bottom["query_id"].filter(bottom[ranker])) for ranker in RANKERS[:2])
    pairs = shared.filter(level=20)
    assert pairs.height == 15
    assert pairs.row(0)[:3] == (RANKERS[0], RANKERS[1], 20)
    assert pairs["agreement"][0] == pytest.approx(len(first & second) / len(first | second))
    assert (pairs["agreement"] < 1).all()
    assert (shared.filter(level=100)["agreement"] == 1).all()


def test_definition_1_as_written_and_ranker_by_ranker_on_table_4() -> None:
    means = {"lesser": {}, "pygmy": {}, "veiled": {}}
    for cell in published_cells("cikm2021-table4"):
        if cell["measure"] == "AP":
            means[cell["test_set"].split(".")[1]][cell["system"]] = cell["value"]
    lesser, pygmy, veiled = means.values()
    for harder, easier in ((lesser, pygmy), (pygmy, veiled), (lesser, veiled)):
        assert strictly_more_obstinate(harder, easier, same_ranker=True)
        assert not strictly_more_obstinate(easier, harder, same_ranker=True)
    assert not strictly_more_obstinate(lesser, pygmy)
    assert strictly_more_obstinate(lesser, veiled)
    assert not strictly_more_obstinate({"a": 0.1}, {"a": 0.1})
    with pytest.raises(UserError, match="only on the same rankers"):
        strictly_more_obstinate({"a": 0.1}, {"b": 0.1})
