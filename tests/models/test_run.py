"""From a model to its figures in one command."""

import json
from pathlib import Path

import pytest

import eval_kit
from eval_kit.release import Release
from tests.conftest import Run
from tests.tiny_checkpoints import tiny


@pytest.mark.parametrize("architecture", ["dense", "sparse", "cross"])
def test_a_model_of_any_kind_is_searched_scored_and_compared(
    trainable_release: Release, tmp_path: Path, command: Run, architecture: str
) -> None:
    out, page = tmp_path / "runs", tmp_path / "card.html"
    arguments = ["--release", trainable_release.folder, "--test-set", "dl19", "--out", out, "--name", "mine"]
    done = command("eval_kit", "run", tiny(architecture), *arguments, "--json", "-", "--page", page)
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)["comparison"]
    scores = eval_kit.score([out / "bm25.trec", out / "mine.trec"], trainable_release, allow_missing=True)
    for run, test_set, measure, value in scores.to_polars().select("run", "test_set", "measure", "value").iter_rows():
        [row] = [row for row in rows if (row["system"], row["test_set"], row["measure"]) == (run, test_set, measure)]
        assert row["value"] == pytest.approx(value, rel=1e-12)
    assert "mine" in page.read_text()


def test_what_cannot_be_searched_is_one_sentence(
    trainable_release: Release, published_release: Release, tmp_path: Path, command: Run
) -> None:
    for model, release, sentence in (
        (tiny("bert"), trainable_release, "is a bare transformer"),
        (tiny("dense"), published_release, "holds no passages to search; make a small release of it with"),
        (tmp_path / "nothing", trainable_release, "cannot be loaded: there is no such folder"),
    ):
        done = command("eval_kit", "run", model, "--release", release.folder, "--out", tmp_path / "runs")
        assert done.returncode == 2
        assert sentence in done.stderr.splitlines()[-1]
        assert "Traceback" not in done.stderr
