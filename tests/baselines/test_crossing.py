"""Shift and variation crossed, on values whose means are written out."""

from itertools import product
from pathlib import Path

import polars as pl
import pytest

from eval_kit.documents import TestSetEntry
from eval_kit.papers.crossing import crossing, layout
from eval_kit.release import Release, Variation
from tests import manifests

TYPO = Variation("dev", "typo", None, 1, "dev_typo_1", None, "here", "none", 2)
CLEAN = {("b1", "b1"): [0.5, 0.5], ("b1", "b2"): [0.8, 1.0], ("b2", "b1"): [1.0, 0.6], ("b2", "b2"): [0.4, 0.4]}
"""Values of the model without the first bucket on the queries of the second."""
VARIED = {("b1", "b1"): [0.1, 0.2], ("b1", "b2"): [0.8, 0.9], ("b2", "b1"): [0.9, 0.5], ("b2", "b2"): [0.0, 0.1]}


@pytest.fixture(scope="module")
def release() -> Release:
    """Two ReSTTest buckets of two dev queries each."""
    queries = [(f"{bucket}-{number}", bucket) for bucket, number in product(("b1", "b2"), (0, 1))]
    table = pl.DataFrame(queries, ["query_id", "bucket"], orient="row")
    test_set = TestSetEntry(
        name="dev", shift="dev", config="resttest", split="dev", qrels="dev", measures=["RR@10"], queries=4
    )
    tables = [manifests.table("resttest", "dev", ("bucket", ["b1", "b2"]))]
    return Release(Path(), manifests.made_up(tables, [test_set]), {("resttest", "dev"): table})


def values() -> pl.DataFrame:
    rows = []
    for variation, cells in ((None, CLEAN), ("dev.typo.1", VARIED)):
        for (held_out, bucket), of_queries in cells.items():
            for number, value in enumerate(of_queries):
                run = f"splade.resttest.{held_out}"
                rows.append((run, "dev", "RR@10", f"{bucket}-{number}", value, run, variation))
    rows.append(("tas-b", "dev", "RR@10", "b1-0", 0.5, "tas-b", "dev.typo.1"))  # no cell of a grid
    names = ("run", "test_set", "measure", "query_id", "value", "system", "variation")
    return pl.DataFrame(rows, names, orient="row")


def test_out_and_in_are_compared_with_themselves(release: Release):
    results = crossing(values(), [TYPO], release)
    assert results is not None
    [row] = results.to_dicts()
    keys = ("shift", "part", "system", "method", "measure", "queries")
    assert [row[key] for key in keys] == ["resttest", "", "splade", "typo", "RR@10", 4]
    assert [row["in_clean"], row["in_varied"]] == pytest.approx([3.4 / 4, 3.1 / 4])
    assert [row["out_clean"], row["out_varied"]] == pytest.approx([1.8 / 4, 0.4 / 4])
    assert [row["in_loss"], row["out_loss"]] == pytest.approx([0.3 / 3.4, 1.4 / 1.8])
    assert row["out_loss_low"] <= row["out_loss"] <= row["out_loss_high"]
    assert row["difference"] == pytest.approx((1.4 - 0.3) / 4)
    assert 0 < row["p"] == row["p_holm"] < 0.05
    shown = [[cell.text + cell.mark for cell in line] for line in layout(results).rows()]
    assert shown == [["resttest", "splade", "typo", "RR@10", "0.8500", "8.8%", "0.4500", "77.8%", "+0.2750", "4"]]


def test_without_queries_of_a_shift_there_is_nothing_to_cross(release: Release):
    of_others = values().filter(pl.col("system") == "tas-b")
    assert crossing(of_others, [TYPO], release) is None
