"""Expected figures: the real runs give them, and a wrong one is seen."""

import json
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest
from typer.testing import CliRunner

from baselines.cli import app
from baselines.reproduce import Figure, Reproduction, Verdict, reproduced, reproductions, verdict
from eval_kit.measures.definitions import parse, per_query
from eval_kit.release import Release
from eval_kit.runs.ranks import rank_judged
from tests.conftest import Run


@pytest.mark.parametrize(
    ("value", "tolerance", "expected"),
    [
        (0.50584, 0, Verdict.OK),
        (0.50576, 0, Verdict.OK),
        (0.50586, 0, Verdict.FAIL),
        (0.5065, 0.001, Verdict.WITHIN_TOLERANCE),
        (0.5049, 0.001, Verdict.WITHIN_TOLERANCE),
        (0.5069, 0.001, Verdict.FAIL),
    ],
)
def test_verdicts(value: float, tolerance: float, expected: Verdict) -> None:
    assert verdict(value, Figure("nDCG@10", 0.5058, tolerance)) is expected


def test_every_tolerance_has_its_reason_and_every_row_its_source() -> None:
    rows = reproductions()
    assert len({row.command for row in rows}) == len(rows) >= 10
    for row in rows:
        assert row.source
        assert row.figures
        assert all(figure.reason for figure in row.figures if figure.tolerance)


@pytest.mark.slow
def test_real_runs_give_what_is_expected_and_a_wrong_figure_fails(
    command: Run, shared: Path, published_release: Release, tmp_path: Path
) -> None:
    arguments = ["baselines", "reproduce", "--shared", shared, "--release", published_release.folder]
    done = command(*arguments, "--json", tmp_path / "results.json")
    assert done.returncode == 0, done.stdout + done.stderr
    results = json.loads((tmp_path / "results.json").read_text())
    on_dl = [result for result in results if result["test_set"] in ("dl19", "dl20")]
    assert len(on_dl) == 4 * 2 * 4
    assert {result["verdict"] for result in on_dl} == {"OK"}
    assert all(len(result["digest"]) == 64 for result in on_dl)
    assert {result["verdict"] for result in results if result["test_set"] == "test"} == {"OK"}
    assert ["tas-b.dl19.trec", "dl19", "nDCG@10", "0.7210", "0.7210", "OK"] in [
        line.split()[:6] for line in done.stdout.splitlines()
    ]
    assert f"digest {published_release.digest}" in done.stdout


def test_a_folder_that_is_not_there(command: Run, tmp_path: Path) -> None:
    done = command("baselines", "reproduce", "--shared", tmp_path / "nowhere")
    assert done.returncode == 2
    assert done.stderr == f"baselines: --shared {tmp_path / 'nowhere'}: there is no such folder\n"


@pytest.mark.slow
def test_a_wrong_figure_is_seen_and_an_absent_run_is_no_failure(shared: Path, published_release: Release) -> None:
    first = reproductions()[0]
    wrong = replace(first, figures=[replace(figure, expected=figure.expected + 0.0001) for figure in first.figures])
    results = list(reproduced([wrong], shared, published_release))
    assert [result.verdict for result in results] == [Verdict.FAIL] * 4
    absent = replace(first, command=first.command.replace("bm25", "no-such-run"))
    elsewhere = replace(first, test_set="no-such-set")
    for row, note in ((absent, "it is not there"), (elsewhere, "the release has no test set no-such-set")):
        results = list(reproduced([row], shared, published_release))
        assert {(result.verdict, result.note) for result in results} == {(Verdict.NOT_AT_HAND, note)}
    unscored = replace(first, figures=[Figure("RR@7", 0.5)])
    [result] = reproduced([unscored], shared, published_release)
    assert (result.verdict, result.note) == (Verdict.FAIL, "no RR@7 came out")


def test_the_exit_status_of_a_wrong_figure(
    shared: Path, published_release: Release, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong = replace(reproductions()[0], figures=[Figure("nDCG@10", 0.6, 0.01, "none")])
    monkeypatch.setattr("baselines.reproduce.reproductions", lambda: [wrong])
    arguments = ["reproduce", "--shared", str(shared), "--release", str(published_release.folder)]
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 1
    assert "0.6000  0.5058  FAIL" in done.stdout


def test_a_command_that_fails_is_a_failure_with_its_sentence(shared: Path, published_release: Release) -> None:
    run = "{shared}/upstream/castorini/anserini-tools"
    figures = [Figure("nDCG@10", 0.5)]
    row = Reproduction(f"eval_kit score {run} --release {{release}} --json -", "dl19", "nowhere", figures)
    [result] = reproduced([row], shared, published_release)
    assert result.verdict is Verdict.FAIL
    assert result.note.startswith("eval_kit: ")


def test_dl_hard_gives_its_figures_on_its_own_judgements(shared: Path) -> None:
    """Without a release: the runs and qrels as DL-HARD has them."""
    folder = shared / "upstream" / "grill-lab" / "DL-Hard" / "dataset"
    names = ["query_id", "iteration", "passage_id", "relevance"]
    text = (folder / "dl_hard-passage.qrels").read_text()
    rows = [line.split() for line in text.splitlines()]
    qrels = pl.DataFrame(rows, names, orient="row").with_columns(pl.col("relevance").cast(pl.Int64)).drop("iteration")
    for row in (row for row in reproductions() if row.test_set == "dlhard"):
        run = folder / "baselines" / "passage" / row.command.split("/passage/")[1].split("'")[0]
        judged = qrels.join(rank_judged(run, qrels).judged, on=["query_id", "passage_id"], how="left")
        queries = qrels["query_id"].unique()
        for figure in row.figures:
            value = per_query(parse(figure.measure), judged, queries).mean()
            assert isinstance(value, float)
            assert verdict(value, figure) is Verdict.OK, (run.name, figure, value)
