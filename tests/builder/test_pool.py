"""The fidelity of a pool: real systems whose levels it moves, beside plain Python."""

import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from builder import pool
from eval_kit.release import Release
from tests.conftest import Run


@pytest.fixture(scope="module")
def systems(shared: Path, published_release: Release) -> dict[str, pl.DataFrame]:
    return pool.read_systems(sorted((shared / "real-slice/runs").glob("*.trec")), published_release)


def reciprocal_rank(passages: list[str], relevant: set[str]) -> float:
    return next((1 / rank for rank, passage in enumerate(passages[:10], 1) if passage in relevant), 0.0)


def test_levels_on_all_labels_are_those_of_plain_python(systems: dict[str, pl.DataFrame], published_release: Release):
    others = {name: systems[name] for name in ("tas-b", "splade-pp-ed")}
    fidelity = pool.measure_fidelity(others, {"bm25": systems["bm25"]}, published_release, depth=20)
    assert (fidelity.measure, fidelity.queries, len(fidelity.levels)) == ("RR(rel=2)@10", 97, 2)
    qrels = pl.concat([published_release.qrels("dl19"), published_release.qrels("dl20")])
    relevant: dict[str, set[str]] = {}
    for query, passage, grade in qrels.iter_rows():
        if grade >= 2:
            relevant.setdefault(query, set()).add(passage)
    best = set(systems["bm25"].filter(pl.col("rank") <= 20)["passage_id"]) | set(qrels["passage_id"])
    for system, *levels in fidelity.levels.iter_rows():
        run = systems[system].sort("rank").group_by("query_id")
        ranked = {query: rows["passage_id"].to_list() for (query,), rows in run}
        whole = np.mean([reciprocal_rank(ranked[query], passages) for query, passages in relevant.items()])
        in_pool = {query: [passage for passage in passages if passage in best] for query, passages in ranked.items()}
        pooled = np.mean([reciprocal_rank(in_pool[query], passages) for query, passages in relevant.items()])
        assert levels == pytest.approx([whole, pooled, pooled - whole], abs=1e-12)


def test_one_label_and_a_pool_of_bm25_lift_dense_systems(
    systems: dict[str, pl.DataFrame], published_release: Release, monkeypatch: pytest.MonkeyPatch
):
    """With the deep labels of TREC DL the fault does not show, and the result says so; with the first label it does."""
    others = {name: systems[name] for name in ("tas-b", "splade-pp-ed")}
    arguments = (others, {"bm25": systems["bm25"]}, published_release, 20)
    deep = pool.measure_fidelity(*arguments)
    assert deep.levels["shift"].abs().max() < 0.01 and "says nothing" in deep.notes()[0]
    whole = Release.qrels
    first = {year: whole(published_release, year).filter(pl.col("relevance") >= 2) for year in ("dl19", "dl20")}
    first = {year: rows.unique("query_id", keep="first", maintain_order=True) for year, rows in first.items()}
    monkeypatch.setattr(Release, "qrels", lambda release, split: first.get(split, whole(release, split)))
    sparse = pool.measure_fidelity(*arguments)
    assert sparse.levels["shift"].min() > 0.03 and "says nothing" not in sparse.notes()[0]
    json.loads(json.dumps(sparse.as_json(), allow_nan=False))


def test_a_caution_is_of_queries_with_few_labels(published_release: Release, monkeypatch: pytest.MonkeyPatch):
    alone, several = (pool.cautions(names, published_release) for names in (["bm25"], ["bm25", "tas-b"]))
    assert len(alone) == len(several) == 1 and alone != several
    monkeypatch.setattr(Release, "configs", {"qrels": ["dl19", "dl20"]})
    assert not pool.cautions(["bm25"], published_release)


def test_what_cannot_be_measured_is_one_sentence(shared: Path, published_release: Release, command: Run):
    runs = shared / "real-slice/runs"
    for arguments, place in (
        (["--pool", runs / "bm25.dl19.trec"], "the run of a system"),
        (["--pool", runs / "bm25.dl19.trec", "--run", runs / "bm25.dl19.trec"], "bm25"),
        (["--pool", runs / "bm25.dl19.trec", "--run", runs / "tas-b.dl20.trec"], "no test set"),
    ):
        done = command("builder", "fidelity", published_release.folder, *arguments)
        assert (done.returncode, len(done.stderr.strip().splitlines())) == (2, 1), done.stderr
        assert place in done.stderr
