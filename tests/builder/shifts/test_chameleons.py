from pathlib import Path

import numpy as np
import polars as pl
import pytest
from polars.testing import assert_frame_equal

from builder.shifts import chameleons
from builder.shifts.chameleons import (
    ChameleonParameters,
    agreement,
    assign,
    average_precision,
    members,
    obstinate,
    performance,
    properties,
    sizes,
    strictly_more_obstinate,
    worst,
)
from eval_kit.errors import UserError
from eval_kit.release import Release

RANKERS = [f"ranker{i}" for i in range(6)]
TABLE_4 = {  # MAP, CIKM 2021
    "lesser": {"BM25": 0.0066, "DeepCT": 0.0122, "DocT5": 0.0185, "RepBERT": 0.0212, "ANCE": 0.0286, "ColBERT": 0.0267},
    "pygmy": {"BM25": 0.0215, "DeepCT": 0.0241, "DocT5": 0.0403, "RepBERT": 0.0398, "ANCE": 0.0546, "ColBERT": 0.0462},
    "veiled": {"BM25": 0.0392, "DeepCT": 0.0401, "DocT5": 0.0664, "RepBERT": 0.0560, "ANCE": 0.0847, "ColBERT": 0.0785},
}
TABLE_5 = {
    "lesser": (1.06, 1.09, 1.08, 1.09, 1.09),
    "pygmy": (1.05, 1.08, 1.082, 1.08, 1.08),
    "veiled": (1.06, 1.07, 1.08, 1.07, 1.07),
}
TABLE_6 = {
    "lesser": (6.30, 6.72, 6.62, 6.51, 6.45),
    "pygmy": (6.56, 6.71, 6.64, 6.51, 6.35),
    "veiled": (6.73, 6.70, 6.54, 6.37, 6.24),
}


def planted(n: int = 1_000, seed: int = 1) -> tuple[pl.DataFrame, dict[str, set[str]]]:
    """Six rankers; 100 queries are hard for all, 60 for all but one, 60 for all but two; the others are easy.

    Each ranker's hard queries are the bottom 20 % exactly: where too few are planted for it, others of its own fill up.
    """
    rng = np.random.default_rng(seed)
    hard = np.zeros((n, 6), bool)
    hard[:100] = True
    for row in range(100, 160):
        hard[row] = np.arange(6) != row % 6
    for row in range(160, 220):
        hard[row] = ~np.isin(np.arange(6), [row % 6, (row + 1) % 6])
    own = 220
    for ranker in range(6):
        lacking = n // 5 - hard[:, ranker].sum()
        hard[own : own + lacking, ranker] = True
        own += lacking
    values = np.where(hard, rng.uniform(0, 0.1, hard.shape), rng.uniform(0.2, 1, hard.shape))
    order = rng.permutation(n)
    ids = [f"q{i}" for i in range(n)]
    frame = pl.DataFrame({"query_id": ids, **{r: values[:, i] for i, r in enumerate(RANKERS)}})[order.tolist()]
    return frame, {"lesser": set(ids[:100]), "pygmy": set(ids[:160]), "veiled": set(ids[:220])}


def test_planted_hard_queries_are_recovered() -> None:
    values, truth = planted()
    found = assign(values, ChameleonParameters(levels=[20]))
    assert {name: set(members(found, name, 20)) for name in truth} == truth
    assert found["query_id"].equals(values["query_id"])
    assert found.schema["level_20"] == pl.Enum(["none", "veiled", "pygmy", "lesser"])
    assert sizes(found).rows() == [("lesser", 100), ("pygmy", 160), ("veiled", 220)]


def test_sets_are_nested_and_grow_with_the_level() -> None:
    values, _ = planted()
    found = assign(values)
    assert found.columns == ["query_id", *(f"level_{level}" for level in (10, 20, 30, 40, 50))]
    held = {
        (name, level): set(members(found, name, level))
        for name in chameleons.SETS
        for level in ChameleonParameters().levels
    }
    for level in ChameleonParameters().levels:
        assert held["lesser", level] <= held["pygmy", level] <= held["veiled", level]
    for name in chameleons.SETS:
        for low, high in ((10, 20), (20, 30), (30, 40), (40, 50)):
            assert held[name, low] <= held[name, high]


def test_bottom_share_is_exact_and_ties_go_by_mean_then_by_id() -> None:
    values = pl.DataFrame(
        {
            "query_id": ["9", "10", "2", "1", "3"],
            "a": [0.0, 0.0, 0.0, 0.0, 1.0],
            "b": [0.5, 0.1, 0.5, 0.5, 0.0],
            "c": [0.5, 0.1, 0.5, 0.5, 0.0],
        }
    )
    held = obstinate(values, 40)
    assert held.select(pl.col("a", "b", "c").sum()).row(0) == (2, 2, 2)
    # 10 has the lower mean; "1" is the lowest id among the equals
    assert set(held["query_id"].filter(held["a"])) == {"10", "1"}
    shuffled = obstinate(values[[4, 2, 0, 3, 1]], 40)
    assert_frame_equal(held.sort("query_id"), shuffled.sort("query_id"))


def test_agreement_is_equation_1() -> None:
    values, _ = planted()
    found = agreement(values, 20)
    held = obstinate(values, 20)
    one, two = (set(held["query_id"].filter(held[r])) for r in RANKERS[:2])
    assert found["ranker"].to_list() == RANKERS
    assert found[RANKERS[1]][0] == pytest.approx(len(one & two) / len(one | two))
    matrix = found.select(RANKERS).to_numpy()
    assert (matrix == matrix.T).all() and (matrix.diagonal() == 1).all() and (matrix < 1).sum() == 30
    assert agreement(values, 100).select(RANKERS).to_numpy().min() == 1


def test_definition_1_as_written_and_ranker_by_ranker_on_table_4() -> None:
    for harder, easier in (("lesser", "pygmy"), ("pygmy", "veiled"), ("lesser", "veiled")):
        assert strictly_more_obstinate(TABLE_4[harder], TABLE_4[easier], same_ranker=True)
        assert not strictly_more_obstinate(TABLE_4[easier], TABLE_4[harder], same_ranker=True)
    assert not strictly_more_obstinate(TABLE_4["lesser"], TABLE_4["pygmy"])
    assert strictly_more_obstinate(TABLE_4["lesser"], TABLE_4["veiled"])
    assert not strictly_more_obstinate({"a": 0.1}, {"a": 0.1})
    with pytest.raises(UserError, match="only on the same rankers"):
        strictly_more_obstinate({"a": 0.1}, {"b": 0.1})


def test_performance_and_worst() -> None:
    values, truth = planted()
    found = assign(values)
    table = performance(values, found, level=20)
    assert table["set"].to_list() == ["lesser", "pygmy", "veiled", "all"]
    expected = values.filter(pl.col("query_id").is_in(truth["lesser"]))["ranker3"].mean()
    assert table["ranker3"][0] == pytest.approx(expected)
    assert table["ranker3"][3] == pytest.approx(values["ranker3"].mean())
    table = worst(values)
    assert table["level_20"][2] == pytest.approx(values["ranker2"].sort()[:200].mean())
    assert table["level_100"][2] == pytest.approx(values["ranker2"].mean())
    empty = performance(values, found.with_columns(level_20=pl.lit("none", found.schema["level_20"])), 20)
    assert empty.row(0) == ("lesser", *[None] * 6)


def test_average_precision_of_runs(tmp_path: Path) -> None:
    runs = {}
    for name, lines in {
        "good": ["1 Q0 a 1 2.0 r", "1 Q0 b 2 1.0 r", "2 Q0 c 1 1.0 r"],
        "bad": ["1 Q0 b 1 2.0 r", "1 Q0 a 2 1.0 r", "2 Q0 a 1 1.0 r"],
    }.items():
        runs[name] = tmp_path / f"{name}.trec"
        runs[name].write_text("\n".join(lines) + "\n")
    qrels = pl.DataFrame({"query_id": ["1", "2"], "passage_id": ["a", "c"], "relevance": [1, 1]})
    found = average_precision(runs, qrels, pl.Series(["1", "2"]))
    assert found.to_dict(as_series=False) == {"query_id": ["1", "2"], "good": [1.0, 1.0], "bad": [0.5, 0.0]}
    more = pl.concat([qrels, pl.DataFrame({"query_id": ["3"], "passage_id": ["a"], "relevance": [1]})])
    with pytest.raises(UserError, match=r"good.trec: lacks 1 of 3 queries, '3' for one"):
        average_precision(runs, more, pl.Series(["1", "2", "3"]))
    with pytest.raises(UserError, match="1 queries have no relevant passage, '3' for one"):
        average_precision(runs, qrels, pl.Series(["1", "2", "3"]))


@pytest.mark.parametrize("bad", [None, float("nan")])
def test_a_ranker_that_lacks_queries(bad: float | None) -> None:
    values, _ = planted()
    lacking = values.with_columns(ranker2=pl.when(pl.col("query_id") == "q7").then(bad).otherwise("ranker2"))
    with pytest.raises(UserError, match=r"^ranker2: lacks 1 of 1,000 queries, 'q7' for one$"):
        assign(lacking)


def test_other_things_that_are_refused() -> None:
    values, _ = planted()
    with pytest.raises(UserError, match=r"query id 'q.*' comes more than once"):
        assign(pl.concat([values, values[:1]]))
    with pytest.raises(UserError, match="three rankers at least, not 2"):
        assign(values.select("query_id", *RANKERS[:2]))
    with pytest.raises(UserError, match="1 to 100 percent, not 0"):
        assign(values, ChameleonParameters(levels=[0]))
    with pytest.raises(UserError, match="the bottom 10 % of 4 queries are none"):
        assign(values[:4])
    with pytest.raises(UserError, match="no rankers"):
        assign(values.select("query_id"))
    with pytest.raises(UserError, match="1 of 1,000 queries have no value, 'q7' for one"):
        performance(values.filter(pl.col("query_id") != "q7"), assign(values))


def test_tables_3_5_and_6_of_the_published_sets(published_release: Release) -> None:
    table = published_release.table("chameleons", "dev")
    qrels = published_release.qrels("dev")
    assert sizes(table).rows() == [
        ("lesser", 95, 359, 705, 1170, 1693),
        ("pygmy", 223, 615, 1154, 1763, 2473),
        ("veiled", 400, 982, 1640, 2390, 3119),
    ]
    dev = published_release.table("resttest", "dev")
    everything = dev.select("query_id").join(table.drop("text"), on="query_id", how="left").fill_null("none")
    for place, level in enumerate((10, 20, 30, 40, 50)):
        found = {row[0]: row[1:] for row in properties(dev, qrels, everything, level).iter_rows()}
        assert found["all"] == (pytest.approx(1.06, abs=0.01), pytest.approx(5.92, abs=0.01))
        for name in chameleons.SETS:
            relevant, length = found[name]
            assert relevant == pytest.approx(TABLE_5[name][place], abs=0.01)
            assert length == pytest.approx(TABLE_6[name][place], abs=0.01)
