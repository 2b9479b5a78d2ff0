"""Every wording is searched in one index; on mini's planted typos BM25 and a word-piece bi-encoder lose.

That a run which ignores the wording loses nothing is in tests/eval_kit/runs/test_worded_runs.py.
"""

import json
from pathlib import Path

import pytest
from tiny_checkpoints import bag_of_word_pieces

from eval_kit import models
from eval_kit.errors import UserError
from eval_kit.models.runs import make_runs, varied
from eval_kit.protocols.variations import variations
from eval_kit.release import Release
from eval_kit.search.passages import passages


@pytest.mark.slow
def test_bm25_loses_by_typos(mini_release: Release, tmp_path: Path, command):
    arguments = [
        "--release",
        mini_release.folder,
        "--test-set",
        "dl19",
        "--out",
        tmp_path,
        "--json",
        tmp_path / "m.json",
    ]
    done = command("baselines", "search", "bm25", "--variation", "all", *arguments)
    assert done.returncode == 0, done.stderr
    runs = [Path(line) for line in done.stdout.split()]
    assert [run.name for run in runs] == ["bm25.trec", *(f"bm25.{name}.trec" for name in mini_release.variations)]
    measured = json.loads((tmp_path / "m.json").read_text())
    assert [facts["queries"] for facts in measured["variations"]] == [43] * 5
    results = variations(runs, mini_release, allow_missing=True).results.filter(measure="nDCG@10")
    assert results.height == 5
    assert (results["rel_loss_low"] > 0).all() and (results["robustness_index"] < 0).all()


def test_a_word_piece_bi_encoder_loses_by_typos(mini_release: Release, tmp_path: Path):
    texts = mini_release.table("passages", "passages")["text"]
    retriever = models.retriever("dense", str(bag_of_word_pieces(texts, tmp_path / "model")), {})
    wordings = varied(mini_release, ["dl19.typo"], []) | {"dl19": mini_release.queries("dl19")}
    runs = {tmp_path / f"pieces.{name}.trec": queries for name, queries in wordings.items()}
    make_runs(retriever, passages(mini_release), runs, tmp_path / "index", depth=100)
    results = variations(list(runs), mini_release).results.filter(measure="nDCG@10")
    assert results.height == 5
    assert (results["rel_loss"] > 0.25).all() and (results["rel_loss_low"] > 0).all()
    assert (results["robustness_index"] < 0).all()


def test_names_of_variations(mini_release: Release):
    assert len(varied(mini_release, ["all"], [])) == len(varied(mini_release, ["dl19.typo"], ["dl19"])) == 5
    assert list(varied(mini_release, ["dl19.typo.swap_key"], [])) == ["dl19.typo.swap_key.1"]
    assert varied(mini_release, [], []) == {}
    for names, test_sets in ((["dl19.typo.swap"], []), (["all"], ["dev"])):
        with pytest.raises(UserError, match="has no variation"):
            varied(mini_release, names, test_sets)
