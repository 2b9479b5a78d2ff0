"""The paired protocol of query variations, by hand, as properties, and on mini's planted typos."""

import dataclasses

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from eval_kit.errors import UserError
from eval_kit.protocols.variations import changes, robustness, variations
from eval_kit.release import Release, Variation
from tests.eval_kit.plain_runs import plain_run

CLEAN = {"q1": 1.0, "q2": 0.5, "q3": 0.5, "q4": 0.0}
TYPO_1 = {"q1": 0.5, "q2": 0.5, "q3": 0.0, "q4": 0.2}
TYPO_2 = {"q1": 0.5, "q2": 0.0, "q3": 0.5, "q4": 0.0}


def variation(family="typo", replica=None, method=None, invalid=None):
    return Variation("dl19", family, method, replica, "split", invalid, "source", "licence", 43)


def frame(*wordings, measure="nDCG@10"):
    """Values by query of each system and wording."""
    rows = []
    for system, wording, by_query in wordings:
        rows += [(system, "dl19", wording, measure, query, value) for query, value in by_query.items()]
    names = ("system", "test_set", "variation", "measure", "query_id", "value")
    schema = dict.fromkeys(names, pl.String) | {"value": pl.Float64}
    return pl.DataFrame(rows, schema, orient="row")


def only(results, **where):
    (row,) = results.filter(**where).to_dicts()
    return row


ONE_REPLICA = [variation(replica=1)]
TWO_REPLICAS = [variation(replica=1), variation(replica=2)]


def test_two_replicas_by_hand():
    values = frame(("s", None, CLEAN), ("s", "dl19.typo.1", TYPO_1), ("s", "dl19.typo.2", TYPO_2))
    row = only(changes(values, TWO_REPLICAS))
    assert (row["test_set"], row["method"], row["queries"], row["replicas"]) == ("dl19", "typo", 4, 2)
    assert row["clean"] == pytest.approx(0.5)
    assert row["varied"] == pytest.approx((1.2 + 1.0) / 8)
    assert row["change"] == pytest.approx(-0.225)
    assert row["rel_loss"] == pytest.approx(0.45)
    assert row["worst"] == pytest.approx(0.25)
    assert (row["helped"], row["hurt"], row["unhurt"]) == pytest.approx((1 / 8, 4 / 8, 3 / 8))
    assert row["robustness_index"] == pytest.approx(-3 / 8)
    assert row["rel_loss_low"] < row["rel_loss"] < row["rel_loss_high"]
    assert row["p_holm"] == row["p"]


def test_lower_is_better_turns_worst_helped_and_hurt_around():
    values = frame(
        ("s", None, {"q1": 10.0, "q2": 20.0}),
        ("s", "dl19.typo.1", {"q1": 30.0, "q2": 20.0}),
        ("s", "dl19.typo.2", {"q1": 5.0, "q2": 20.0}),
        measure="ASL@100",
    )
    row = only(changes(values, TWO_REPLICAS))
    assert (row["worst"], row["helped"], row["hurt"]) == (25.0, 0.25, 0.25)
    assert row["rel_loss"] < 0


def test_valid_wordings_are_told_apart_and_only_the_queries_that_were_varied_count():
    values = frame(("s", None, CLEAN), ("s", "dl19.wording.t5", TYPO_1))
    results = changes(values, [variation("wording", method="t5", invalid=frozenset({"q3", "q4"}))])
    assert results["queries_are"].to_list() == ["all", "valid"]
    row = only(results, queries_are="valid")
    assert (row["queries"], row["clean"], row["varied"]) == (2, 0.75, 0.5)
    some = values.filter(pl.col("variation").is_null() | (pl.col("query_id") != "q4"))
    row = only(changes(some, [variation("wording", method="t5")]))
    assert (row["queries"], row["clean"]) == (3, pytest.approx(2 / 3))


def test_wordings_that_people_judged_are_scored(mini_release, tmp_path):
    first = mini_release.test_sets["dl19"].queries[0]
    judged = [replace(each, invalid=[first]) for each in mini_release.manifest.variations]
    release = Release(mini_release.folder, replace(mini_release.manifest, variations=judged))
    runs = [tmp_path / "s.trec", tmp_path / f"s.{judged[0].full_name}.trec"]
    for run in runs:
        run.write_text(plain_run(release, "dl19"))
    found = variations(runs, release)
    assert set(found.results["queries_are"]) == {"all", "valid"}
    for loss, said in ((0.2, "most by typo"), (0.0, "nothing"), (-0.2, "nothing")):
        changed = dataclasses.replace(found, results=found.results.with_columns(rel_loss=pl.lit(loss)))
        assert f"s loses {said}" in changed.summary()[0], loss


def test_nothing_to_lose_gives_null_and_nothing_lost_gives_zero():
    zero = dict.fromkeys(CLEAN, 0.0)
    row = only(changes(frame(("s", None, zero), ("s", "dl19.typo.1", zero)), ONE_REPLICA))
    assert (row["rel_loss"], row["p"], row["p_holm"], row["unhurt"]) == (None, None, None, 1.0)
    row = only(changes(frame(("s", None, CLEAN), ("s", "dl19.typo.1", CLEAN)), ONE_REPLICA))
    assert (row["change"], row["rel_loss"], row["hurt"], row["p"]) == (0, 0, 0, None)


def test_holms_family_is_the_test_set_and_measure():
    values = frame(("s", None, CLEAN), ("s", "dl19.typo.1", TYPO_1), ("s", "dl19.wording.t5", TYPO_2))
    results = changes(values, [*ONE_REPLICA, variation("wording", method="t5")])
    lowest = min(results["p"])
    assert only(results, p=lowest)["p_holm"] == pytest.approx(2 * lowest)


@given(st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), min_size=1, max_size=30))
def test_shares_add_up_and_swapping_sides_turns_them_around(pairs):
    clean, varied = np.array(pairs).T
    forth, back = robustness(clean, varied), robustness(varied, clean)
    assert forth["helped"] + forth["unhurt"] + forth["hurt"] == pytest.approx(1)
    assert (forth["helped"], forth["hurt"]) == (back["hurt"], back["helped"])
    assert forth == robustness(-clean, -varied, lower_is_better=True)


def test_systems_are_compared_on_the_queries_that_all_have_in_every_replica():
    values = frame(
        *[(system, None, CLEAN) for system in ("s", "t")],
        *[("s", "dl19.typo.1", TYPO_1), ("s", "dl19.typo.2", TYPO_2)],
        ("t", "dl19.typo.1", {"q1": 0.0, "q2": 0.5}),
    )
    results = changes(values, TWO_REPLICAS)
    assert results["queries"].to_list() == [2, 2] and results["replicas"].to_list() == [2, 1]
    assert only(results, system="t")["rel_loss"] == pytest.approx(2 / 3)
    apart = frame(("s", None, CLEAN), ("s", "dl19.typo.1", {"q1": 1.0}), ("s", "dl19.typo.2", {"q2": 1.0}))
    with pytest.raises(UserError, match="is in every replica"):
        changes(apart, TWO_REPLICAS)
