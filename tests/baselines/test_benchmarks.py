"""Means over a shift's models beside the model trained on everything, against sums written out."""

import polars as pl
import pytest

from eval_kit.papers.benchmarks import benchmarks, layout


def rows(system: str, shift: str, held_out: str, values: list[float], test_set: str = "dev") -> pl.DataFrame:
    return pl.DataFrame(
        {"query_id": [str(number) for number in range(len(values))], "value": values}
    ).select(
        *(
            pl.lit(value).alias(name)
            for name, value in {"system": system, "shift": shift, "held_out": held_out, "seed": 0}.items()
        ),
        pl.lit(test_set).alias("test_set"),
        pl.lit("RR@10").alias("measure"),
        "query_id",
        "value",
    )  # fmt: skip


GRID = pl.concat(
    [
        rows("splade", "wh", "how", [1.0, 0.5, 0.0, 0.25]),
        rows("splade", "wh", "who", [0.5, 0.5, 0.0, 0.75]),
        rows("splade", "topic", "c0", [0.5, 0.5, 0.5, 0.5]),
        rows("splade", "topic", "c0", [0.5, 0.5], "topic.c0"),
        rows("colbert", "wh", "how", [1.0, 1.0, 1.0, 1.0]),
        rows("colbert", "wh", "who", [1.0, 1.0], "dl19"),
        rows("splade", "restrain", "extrapolate_14k", [1.0, 1.0, 1.0, 1.0]),
    ]
)
CONTROL = rows("splade", "all", "none", [1.0, 0.5, 0.5, 1.0])


def test_means_over_models_and_what_they_lose_against_everything():
    results = benchmarks(GRID, CONTROL)
    found = {row["training"]: row for row in results.to_dicts()}
    assert list(found) == ["topic", "wh", "all"]  # colbert's models cover no test set together, ReSTrain is left out
    assert set(results["system"]) == {"splade"}
    assert [found[name]["value"] for name in found] == pytest.approx([0.5, 0.4375, 0.75])
    assert [found[name]["models"] for name in found] == [1, 2, 1]
    assert [found[name]["rel_loss"] for name in ("topic", "wh")] == pytest.approx([1 - 0.5 / 0.75, 1 - 0.4375 / 0.75])
    assert found["all"]["rel_loss"] is found["all"]["p_holm"] is None
    for name in ("topic", "wh"):
        assert found[name]["rel_loss_low"] <= found[name]["rel_loss"] <= found[name]["rel_loss_high"]
        assert found[name]["p"] <= found[name]["p_holm"] <= 1


def test_without_a_control_there_are_means_but_no_losses():
    results = benchmarks(GRID, GRID.clear())
    assert results["training"].to_list() == ["topic", "wh"]
    assert results["rel_loss"].null_count() == 2
    assert benchmarks(GRID.clear(), GRID.clear()).columns == results.columns


def test_the_table():
    table = layout(benchmarks(GRID, CONTROL))
    assert [column.header for column in table.columns] == ["system", "trained on", "dev RR@10", "dev loss"]
    shown = [[cell.text + cell.mark for cell in row] for row in table.rows()]
    assert shown == [["splade", "topic", "0.500", "33.3%°"], ["", "wh", "0.438", "41.7%°"], ["", "all", "0.750", ""]]
