"""Whole scores: the golden values of real runs, and the documents that the command writes."""

import gzip
import json
from pathlib import Path

import ir_measures
import polars as pl
import pytest

from eval_kit.files.schemas import validate
from eval_kit.protocols.scoring import score, with_measures
from eval_kit.release import Release

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


def test_real_runs_agree_with_ir_measures_query_by_query(real_scores, shared: Path):
    judged = list(
        ir_measures.read_trec_qrels(str(shared / "upstream/castorini/anserini-tools/qrels/qrels.dl20-passage.txt"))
    )
    run = list(ir_measures.read_trec_run(str(shared / "real-slice/runs/tas-b.dl20.trec")))
    theirs = {
        (str(metric.measure), metric.query_id): metric.value
        for metric in ir_measures.iter_calc([ir_measures.parse_measure(one) for one in MEASURES], judged, run)
    }
    mine = real_scores.per_query().filter(pl.col("run") == "tas-b.dl20", pl.col("measure").is_in(MEASURES))
    assert mine.height == 54 * len(MEASURES)
    for _, _, measure, query_id, value in mine.iter_rows():
        assert value == pytest.approx(theirs[str(ir_measures.parse_measure(measure)), query_id], abs=1e-9)


def test_measures_that_are_asked_for_agree_with_ir_measures_on_real_runs(shared: Path, published_release: Release):
    names = ("P@5", "P(rel=2)@20", "Judged@10", "Success(rel=2)@1", "Success@5", "nDCG@20", "RR", "AP(rel=2)@50")
    run = shared / "real-slice" / "runs" / "splade-pp-ed.dl19.trec"
    qrels = shared / "upstream/castorini/anserini-tools/qrels/qrels.dl19-passage.txt"
    expected = {
        (metric.query_id, str(metric.measure)): metric.value
        for metric in ir_measures.iter_calc(
            map(ir_measures.parse_measure, names),
            list(ir_measures.read_trec_qrels(str(qrels))),
            list(ir_measures.read_trec_run(str(run))),
        )
    }
    scores = score([run], published_release, test_sets=with_measures(published_release.test_sets, names))
    values = scores.per_query().filter(pl.col("test_set") == "dl19")
    assert values["measure"].unique(maintain_order=True).to_list() == list(names)
    for _, _, measure, query_id, value in values.iter_rows():
        key = (query_id, str(ir_measures.parse_measure(measure)))
        assert value == pytest.approx(expected[key], abs=1e-9), key


def perfect_run(release: Release, test_set: str) -> list[str]:
    one = release.test_sets[test_set]
    judged = release.qrels(one.qrels).filter(pl.col("query_id").is_in(one.queries.implode()))
    best = judged.sort("query_id", "relevance", descending=[False, True])
    return [f"{query} Q0 {passage} 1 {grade} tag" for query, passage, grade in best.iter_rows()]


def test_every_test_set_of_a_perfect_run_is_perfect(mini_release: Release, tmp_path: Path):
    run = tmp_path / "perfect.trec"
    for name in ("topic.c3", "dev", "dl19"):
        run.write_text("\n".join(perfect_run(mini_release, name)) + "\n")
        figures = [one for one in score([run], mini_release).means if one.test_set == name]
        assert {one.measure for one in figures} == set(mini_release.test_sets[name].measures)
        for one in figures:
            assert one.value == (0.0 if one.measure.startswith("ASL") else pytest.approx(1.0)), one
            assert one.missing == 0


def test_the_documents_of_the_command(mini_release: Release, tmp_path: Path, command):
    run = tmp_path / "perfect.dl20.trec.gz"
    run.write_bytes(gzip.compress("\n".join(perfect_run(mini_release, "dl20")).encode()))
    json_file, values = tmp_path / "scores.json", tmp_path / "values.tsv"
    done = command(
        "eval_kit", "score", run, "--release", mini_release.folder, "--json", json_file, "--per-query", values
    )
    assert done.returncode == 0, done.stderr
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

    printed = command("eval_kit", "score", run, "--release", mini_release.folder, "--json", "-", "--measure", "P@1")
    [figure] = json.loads(printed.stdout)["measures"]
    assert (figure["measure"], figure["value"]) == ("P@1", 1.0)


def test_ties_across_a_cutoff_are_reported(mini_release: Release, tmp_path: Path):
    one = mini_release.test_sets["dl19"]
    judged = mini_release.qrels("dl19").filter(pl.col("relevance") >= 2)
    first = dict(judged.group_by("query_id").agg(pl.col("passage_id").first()).iter_rows())
    lines = []
    for query in one.queries:  # nine fillers, then the relevant passage tied with a tenth, whose id sorts above it
        lines += [f"{query} Q0 filler{i} {i} {50 - i} t" for i in range(1, 10)]
        lines += [f"{query} Q0 zzz 10 1 t", f"{query} Q0 {first[query]} 11 1 t"]
    run = tmp_path / "tied.trec"
    run.write_text("\n".join(lines) + "\n")
    figures = {figure.measure: figure for figure in score([run], mini_release).means if figure.test_set == "dl19"}
    tied = figures["RR(rel=2)@10"]
    assert (tied.value, tied.worst, tied.best) == (0.0, 0.0, pytest.approx(0.1))
    assert tied.ties_at_cutoff == 43
    assert figures["R(rel=2)@100"].ties_at_cutoff == 0
    assert figures["R(rel=2)@100"].worst is None
