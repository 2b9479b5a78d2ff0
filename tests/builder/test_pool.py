"""The fidelity of a pool: real systems whose levels it moves, beside plain Python."""

import json
import warnings
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from builder import pool
from eval_kit.errors import UserError
from eval_kit.release import Release
from tests.conftest import Run


@pytest.fixture(scope="module")
def systems(shared: Path, published_release: Release) -> dict[str, pl.DataFrame]:
    return pool.read_systems(sorted((shared / "real-slice/runs").glob("*.trec")), published_release)


def reciprocal_rank(passages: list[str], relevant: set[str]) -> float:
    return next((1 / rank for rank, passage in enumerate(passages[:10], 1) if passage in relevant), 0.0)


def test_levels_on_all_labels_are_those_of_plain_python(systems: dict[str, pl.DataFrame], published_release: Release):
    fidelity = pool.measure_fidelity(systems, published_release, ["bm25"], depth=20)
    assert (fidelity.measure, fidelity.queries) == ("RR(rel=2)@10", 97)
    qrels = pl.concat([published_release.qrels("dl19"), published_release.qrels("dl20")])
    relevant: dict[str, set[str]] = {}
    for query, passage, grade in qrels.iter_rows():
        if grade >= 2:
            relevant.setdefault(query, set()).add(passage)
    best = set(systems["bm25"].filter(pl.col("rank") <= 20)["passage_id"]) | set(qrels["passage_id"])
    for system, run in systems.items():
        ranked = {query: rows["passage_id"].to_list() for (query,), rows in run.sort("rank").group_by("query_id")}
        whole = [reciprocal_rank(ranked[query], passages) for query, passages in relevant.items()]
        pooled = [
            reciprocal_rank([passage for passage in ranked[query] if passage in best], passages)
            for query, passages in relevant.items()
        ]
        row = fidelity.levels.row(by_predicate=pl.col("system") == system, named=True)
        assert row["whole"] == pytest.approx(np.mean(whole), abs=1e-12)
        assert row["pooled"] == pytest.approx(np.mean(pooled), abs=1e-12)
        assert row["shift"] == pytest.approx(np.mean(pooled) - np.mean(whole), abs=1e-12)


def test_one_label_and_a_pool_of_bm25_lift_dense_systems_and_leave_bm25(
    systems: dict[str, pl.DataFrame], published_release: Release, monkeypatch: pytest.MonkeyPatch
):
    """With the deep labels of TREC DL the fault does not show, and the result says so; with the first label it does."""
    deep = pool.measure_fidelity(systems, published_release, ["bm25"], depth=20)
    assert deep.levels["shift"].abs().max() < 0.01 and "says nothing of test sets with one label" in deep.in_short()
    whole = Release.qrels
    first = {year: whole(published_release, year).filter(pl.col("relevance") >= 2) for year in ("dl19", "dl20")}
    first = {year: rows.unique("query_id", keep="first", maintain_order=True) for year, rows in first.items()}
    monkeypatch.setattr(Release, "qrels", lambda release, split: first[split])
    sparse = pool.measure_fidelity(systems, published_release, ["bm25"], depth=20)
    levels = {row["system"]: row for row in sparse.levels.iter_rows(named=True)}
    assert levels["bm25"]["shift"] == 0
    for system in ("tas-b", "splade-pp-ed"):
        assert levels[system]["shift"] > 0.03
    assert "says nothing" not in sparse.in_short()


def test_two_systems_have_levels_but_no_order_and_each_is_scored_on_the_others_pool(
    systems: dict[str, pl.DataFrame], published_release: Release
):
    two = {name: systems[name] for name in ("bm25", "tas-b")}
    fidelity = pool.measure_fidelity(two, published_release, depth=20)
    assert fidelity.tau is None
    alone = pool.measure_fidelity(two, published_release, ["bm25"], depth=20)
    assert fidelity.levels.filter(system="tas-b").equals(alone.levels.filter(system="tas-b"))
    assert "these systems have no order; order not to be trusted" in fidelity.in_short()
    json.loads(json.dumps(fidelity.as_json(), allow_nan=False))
    with pytest.raises(UserError, match="two systems or more"):
        pool.measure_fidelity({"bm25": systems["bm25"]}, published_release)


def test_equal_systems_have_no_order(systems: dict[str, pl.DataFrame], published_release: Release):
    equal = dict.fromkeys(("one", "two", "three"), systems["bm25"])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fidelity = pool.measure_fidelity(equal, published_release, ["one"])
    assert fidelity.tau is None and fidelity.levels["shift"].abs().max() == 0
    json.loads(json.dumps(fidelity.as_json(), allow_nan=False))


def test_what_cannot_be_measured_is_one_sentence(shared: Path, published_release: Release, command: Run):
    runs = shared / "real-slice/runs"
    for arguments, sentence in (
        (["--pool", runs / "bm25.dl19.trec"], "needs runs of two systems or more"),
        (["--pool", runs / "bm25.dl19.trec", "--run", runs / "bm25.dl19.trec"], "bm25 is in --pool and in --run"),
        (["--pool", runs / "bm25.dl19.trec", "--run", runs / "tas-b.dl20.trec"], "has no test set that all of bm25"),
    ):
        done = command("builder", "fidelity", published_release.folder, *arguments)
        assert (done.returncode, len(done.stderr.strip().splitlines())) == (2, 1), done.stderr
        assert sentence in done.stderr
