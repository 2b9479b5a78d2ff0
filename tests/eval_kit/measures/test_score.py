"""Whole scores: the golden values of real runs, and the documents that the command writes."""

import gzip
import json
from pathlib import Path

import ir_measures
import polars as pl
import pytest

from eval_kit.protocols.scoring import score
from eval_kit.release import Release, open_release
from tests.beir_folders import beir_folder
from tests.schemas import validate

MEASURES = ("nDCG@10", "RR(rel=2)@10", "R(rel=2)@100", "AP(rel=2)@100")
# ir_measures on the full NIST judgements
GOLDEN = {
    ("bm25", "dl19"): (0.5058, 0.7024, 0.4910, 0.2476),
    ("bm25", "dl20"): (0.4796, 0.6533, 0.5599, 0.2685),
    ("bm25-rm3", "dl19"): (0.5216, 0.6725, 0.5259, 0.2807),
    ("bm25-rm3", "dl20"): (0.4896, 0.6164, 0.6182, 0.2821),
    ("tas-b", "dl19"): (0.7210, 0.8754, 0.6097, 0.4050),
    ("tas-b", "dl20"): (0.6854, 0.8323, 0.7135, 0.4520),
    ("splade-pp-ed", "dl19"): (0.7308, 0.9186, 0.6390, 0.4464),
    ("splade-pp-ed", "dl20"): (0.7197, 0.8422, 0.7653, 0.4826),
}


@pytest.fixture(scope="module")
def real_scores(shared: Path, published_release: Release):
    runs = sorted((shared / "real-slice" / "runs").glob("*.trec"))
    assert len(runs) == 8
    return score(runs, published_release)


def test_real_runs_give_the_golden_values(real_scores):
    found = {(one.run, one.test_set, one.measure): one.value for one in real_scores.means}
    for (system, track), values in GOLDEN.items():
        for measure, value in zip(MEASURES, values, strict=True):
            assert round(found[f"{system}.{track}", track, measure], 4) == value, (system, track, measure)


def per_query_of_ir_measures(shared: Path, run: str, names) -> dict[tuple[str, str], float]:
    """By measure and query, on the full NIST judgements."""
    track = run.rpartition(".")[2]
    judged = shared / f"upstream/castorini/anserini-tools/qrels/qrels.{track}-passage.txt"
    metrics = ir_measures.iter_calc(
        map(ir_measures.parse_measure, names),
        list(ir_measures.read_trec_qrels(str(judged))),
        list(ir_measures.read_trec_run(str(shared / f"real-slice/runs/{run}.trec"))),
    )
    return {(str(metric.measure), metric.query_id): metric.value for metric in metrics}


def test_real_runs_and_measures_that_are_asked_for_agree_with_ir_measures_query_by_query(
    real_scores, shared: Path, published_release: Release
):
    asked = (
        "P@5",
        "P(rel=2)@20",
        "Judged@10",
        "Success(rel=2)@1",
        "Success@5",
        "nDCG@20",
        "RR",
        "AP(rel=2)@50",
        "Rprec",
        "Bpref(rel=2)",
    )
    run = shared / "real-slice" / "runs" / "splade-pp-ed.dl19.trec"
    with pytest.warns() as said:
        scores = score([run], published_release, asked)
    levels = {str(one.message).split()[0]: str(one.message) for one in said if "as relevant" in str(one.message)}
    assert levels.keys() == {"P@5", "Success@5", "RR", "Rprec"} and levels["RR"].endswith("RR(rel=2)@10")
    for name, track, measures, values in (
        ("tas-b", "dl20", MEASURES, real_scores.per_query()),
        ("splade-pp-ed", "dl19", asked, scores.per_query()),
    ):
        theirs = per_query_of_ir_measures(shared, f"{name}.{track}", measures)
        own = values.filter(pl.col("measure").is_in(measures), run=f"{name}.{track}", test_set=track)
        assert set(own["measure"]) == set(measures) and own.height == {"dl19": 43, "dl20": 54}[track] * len(measures)
        for _, _, measure, query_id, value in own.iter_rows():
            key = (str(ir_measures.parse_measure(measure)), query_id)
            assert value == pytest.approx(theirs[key], abs=1e-9), key
    assert scores.per_query()["measure"].unique(maintain_order=True).to_list() == list(asked)


def perfect_run(release: Release, name: str) -> str:
    test_set = release.test_sets[name]
    judged = release.qrels(test_set.qrels).filter(pl.col("query_id").is_in(test_set.queries.implode()))
    best = judged.sort("query_id", "relevance", descending=[False, True])
    return "".join(f"{query} Q0 {passage} 1 {grade} tag\n" for query, passage, grade in best.iter_rows())


def test_every_test_set_of_a_perfect_run_is_perfect(mini_release: Release, tmp_path: Path):
    run = tmp_path / "perfect.trec"
    names = ("topic.c3", "dev", "dl19")
    run.write_text("".join(perfect_run(mini_release, name) for name in names))
    means = score([run], mini_release).means
    for name in names:
        figures = [mean for mean in means if mean.test_set == name]
        assert {mean.measure for mean in figures} == set(mini_release.test_sets[name].measures)
        for mean in figures:
            assert mean.value == (0.0 if mean.measure.startswith("ASL") else pytest.approx(1.0)), mean
            assert mean.missing == 0


def test_the_documents_of_the_command(mini_release: Release, tmp_path: Path, command):
    run = tmp_path / "perfect.dl20.trec.gz"
    run.write_bytes(gzip.compress(perfect_run(mini_release, "dl20").encode()))
    json_file, values = tmp_path / "scores.json", tmp_path / "values.tsv"
    options = ("--release", mini_release.folder, "--json", json_file, "--per-query", values)
    done = command("eval_kit", "score", run, *options, status=0)
    assert "dl20" in done.stdout
    assert "1.0000" in done.stdout
    document = json.loads(json_file.read_text())
    validate("scores", document)
    assert document["provenance"]["release"]["digest"] == mini_release.digest
    [source] = document["provenance"]["runs"]
    assert (source["run"], source["queries"]) == ("perfect.dl20", 54)
    assert {one["queries"] for one in document["measures"]} == {54}
    per_query = pl.read_csv(values, separator="\t", schema_overrides={"query_id": pl.String})
    assert per_query.height == 54 * len(document["measures"])
    for one in document["measures"]:
        mean = per_query.filter(pl.col("measure") == one["measure"])["value"].mean()
        assert mean == pytest.approx(one["value"])


def test_ties_across_the_cutoff_are_noted_where_they_could_change_the_mean(tmp_path: Path) -> None:
    release = open_release(beir_folder(tmp_path / "toy", [{"_id": "p", "text": "t"}], {"q": "t"}, [("q", "p")]))
    for name, second, is_noted in (("matters", "p", True), ("does not", "y", False)):
        run = tmp_path / f"{name}.trec"
        run.write_text(f"q Q0 x 1 3 t\nq Q0 {second} 2 2 t\nq Q0 z 3 2 t\n")
        scores = score(run, release, ["RR@2"])
        assert scores.to_polars()["tied"].item() == is_noted
        assert any("order of tied passages" in note for note in scores.said()) == is_noted
