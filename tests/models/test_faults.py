"""What models were asked for and gave silently, or with a traceback, before."""

from pathlib import Path
from typing import Any

import polars as pl
import pytest

from baselines.training.trainer import _arguments
from builder import mini
from builder import release as releases
from eval_kit.errors import UserError
from eval_kit.models.dense import Dense
from eval_kit.models.opening import open_retriever, retriever
from eval_kit.models.run import run
from eval_kit.release import Release, open_release
from eval_kit.search.examples import JudgedQueries, tables
from tests.baselines.tiny_cells import tiny_options
from tests.conftest import Run
from tests.tiny_checkpoints import tiny


def test_a_second_release_in_the_same_folder_is_searched_in_its_own_passages(tmp_path: Path) -> None:
    found = {}
    for out in ("shared", "shared", "fresh"):
        seed = len(found) and 5
        folder = tmp_path / f"release{seed}"
        if not folder.exists():
            releases.write(mini.draft(seed=seed, queries=500), folder)
        card = run("bm25", open_release(folder), tmp_path / out, test_sets=["dl19"])
        found[out, seed] = card.to_polars()["value"].to_list()
    assert found["shared", 5] == found["fresh", 5] != found["shared", 0]


def test_a_test_set_that_is_named_is_the_only_one_beside_a_pivot_too(mini_release: Release, tmp_path: Path) -> None:
    card = run("bm25", mini_release, tmp_path, test_sets=["dev"])
    pivot = tmp_path / "bm25.trec"
    beside = run("bm25", mini_release, tmp_path / "other", [pivot], ["dev"], name="other", options={"k1": 1.2})
    assert set(beside.to_polars()["test_set"]) == set(card.to_polars()["test_set"]) == {"dev"}


SIZES = ("encode_batch", "query_length", "passage_length")
OPTIONS = [
    *(("bm25", {"k1": k1}, "k1") for k1 in (-1.0, float("nan"), True)),
    ("bm25", {"b": 7}, "k1"),
    *(("dense", {name: size}, f"^{name} must be at least 1, not {size}$") for name in SIZES for size in (0, -3)),
    ("dense", {"passage_length": 1_000}, "1,000 tokens are more than the model's 128 positions"),
    ("cross", {"pair_length": 129}, "129 tokens are more"),
    ("bert", {"pooling": "foo"}, "foo"),
]


@pytest.mark.parametrize(("name", "options", "sentence"), OPTIONS)
def test_options_out_of_range_are_one_sentence(name: str, options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        if name == "bm25":
            open_retriever(name, options)
        made: Any = retriever("dense" if name == "bert" else name, tiny(name), options)
        _ = made._model if name == "cross" else made.encode_passages(["a"])


def test_a_length_of_as_many_tokens_as_there_are_positions_is_taken() -> None:
    assert Dense(str(tiny("dense")), passage_length=128).encode_passages(["alpha"])["vectors"].shape == (1, 32)


def test_an_output_in_the_models_folder_is_refused(mini_release: Release, tmp_path: Path) -> None:
    (tmp_path / "model").symlink_to(tiny("dense"), target_is_directory=True)
    with pytest.raises(UserError, match="lies in the model's folder"):
        run(str(tmp_path / "model"), mini_release, tmp_path / "model" / "runs")


def test_more_negatives_than_passages_are_one_sentence() -> None:
    few = JudgedQueries({"q": "x"}, {"q": ["a"]}, {"q": ["b"]})
    with pytest.raises(UserError, match="query q cannot have 2 negatives: the collection has 2 passages"):
        pl.concat(tables(few, [("a", ""), ("b", "")], 2, 1, 0, False))


def test_a_loss_is_logged_by_the_first_evaluation(tmp_path: Path) -> None:
    options = tiny_options("static", steps=4_000, evaluate_every=3, patience=1)
    assert _arguments(options, 0, 4_000, tmp_path)["logging_steps"] <= 3


def test_a_seed_named_twice_is_one(trainable_release: Release, command: Run, tmp_path: Path) -> None:
    arguments = ("grid", "run", "--config", "mini", "--release", trainable_release.folder, "--out", tmp_path, "--check")
    done = command("baselines", *arguments, "--seed", 1, "--seed", 1, "--system", "static")
    assert "train the same cells" not in done.stderr
