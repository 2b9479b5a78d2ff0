"""The card of a trained baseline: what its YAML tells the Hub, and its text people."""

from typing import Any

import msgspec
import pytest
from huggingface_hub import ModelCard

from baselines.model_card import render
from eval_kit.documents import FinishedCell

DONE: dict[str, Any] = {
    "digest": "0" * 64,
    "cell": {"system": "splade", "shift": "topic", "held_out": "c0", "seed": 2},
    "release": {"version": "1.0.0", "kind": "published", "digest": "0123456789abcdef" * 4},
    "options": {"batch_size": 32, "learning_rate": 2e-5},
    "code_version": "0.1.0",
    "backbone_commit": "a" * 40,
    "training": {"steps": 15_000, "train_queries": 31_244, "device": "one GPU of 80 GB"},
    "seconds": {"training": 5_400.4},
    "index_bytes": 0,
    "run": {"file": "splade.topic.c0.seed2.trec", "sha256": "0" * 64, "lines": 1, "queries": 1},
    "figures": [
        {"test_set": "topic.c0", "measure": "RR@10", "value": 0.28125, "queries": 6_595},
        {"test_set": "topic.c0", "measure": "R@1000", "value": 0.875, "queries": 6_595},
        {"test_set": "topic.c1", "measure": "RR@10", "value": 0.34375, "queries": 5_960},
        {"test_set": "dev", "measure": "RR@10", "value": 1, "queries": 6_980},
    ],
    "device": "cpu",
    "threads": 1,
    "libraries": {"torch": "2.11.0", "sentence-transformers": "6.2.0"},
}
FACTS: dict[str, Any] = {
    "architecture": "SPLADE-max",
    "backbone": "distilbert-base-uncased",
    "title": "ms-marco-shift",
    "collection": "msmarco-passage",
}


def rendered(
    done: dict[str, Any] = DONE, *, cell: dict[str, Any] | None = None, kind: str = "published", **changes: Any
) -> ModelCard:
    """That of another cell, kind of release, title, collection or backbone."""
    other = {"cell": done["cell"] | (cell or {}), "release": done["release"] | {"kind": kind}}
    return ModelCard(render(msgspec.convert(done | other, FinishedCell), **FACTS | changes))


def table(text: str, heading: str) -> list[list[str]]:
    lines = text.split(f"## {heading}\n")[1].split("\n## ")[0].splitlines()
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("|")]


def test_yaml() -> None:
    data = rendered().data
    assert data.base_model == "distilbert-base-uncased" and data.datasets == ["ms_marco"]
    assert (data.license, data.library_name, data.language) == ("other", "sentence-transformers", "en")
    assert data.metrics == ["RR@10", "R@1000"] and data.model_name == "splade.topic.c0.seed2"
    found = [(one.dataset_config, one.metric_type, one.metric_value, one.metric_args) for one in data.eval_results]
    told = [(one["test_set"], one["measure"], one["value"], {"queries": one["queries"]}) for one in DONE["figures"]]
    assert found == told
    assert {one.dataset_revision for one in data.eval_results} == {"v1.0.0"}


def test_text() -> None:
    text = rendered().text
    assert "trained on every part of the shift `topic` but `c0`" in text
    rows = dict(table(text, "Training")[2:])
    assert rows["data"] == f"ms-marco-shift 1.0.0 (published), content digest `{DONE['release']['digest']}`"
    assert (rows["training queries"], rows["seed"], rows["time"]) == ("31,244", "2", "5,400 s")
    assert rows["hardware"] == "one GPU of 80 GB"
    assert rows["libraries"] == "sentence-transformers 6.2.0, torch 2.11.0"
    assert table(text, "Figures") == [
        ["test set", "", "queries", "RR@10", "R@1000"],
        ["---", "---", "---:", "---:", "---:"],
        ["topic.c0", "Out", "6,595", "0.2812", "0.8750"],
        ["topic.c1", "In", "5,960", "0.3438", "–"],
        ["dev", "", "6,980", "1.0000", "–"],
    ]
    assert "{{" not in text and "{%" not in text


@pytest.mark.parametrize(
    ("shift", "held_out", "said"),
    [
        ("restrain", "extrapolate_14k", "trained on the ReSTrain set `extrapolate_14k`"),
        ("all", "none", "trained on all training queries"),
        ("crossed", "m3", "as the crossed model `m3`: without half of the clusters"),
    ],
)
def test_models_of_other_shifts_hold_no_part_out(shift: str, held_out: str, said: str) -> None:
    text = rendered(cell={"shift": shift, "held_out": held_out}).text
    assert text.strip().startswith(f"# splade.{shift}.{held_out}.seed2\n")
    assert said in text and "held out" not in text and "Out" not in text
    assert table(text, "Figures")[2] == ["topic.c0", "6,595", "0.2812", "0.8750"]


def test_mini_models_say_so() -> None:
    card = rendered(kind="mini", collection=None, backbone=None)
    assert "*synthetic*" in card.text and "random weights" in card.text
    assert card.data.license == "apache-2.0" and card.data.datasets is None and card.data.base_model is None


def test_models_of_another_collection_say_which() -> None:
    card = rendered(kind="rebuilt", title="nfcorpus-shift", collection="nfcorpus")
    assert "MS MARCO" not in card.text and "The texts are those of nfcorpus" in card.text
    assert dict(table(card.text, "Training")[2:])["data"].startswith("nfcorpus-shift 1.0.0 (rebuilt), content digest")
    assert card.data.datasets is None and card.data.language is None
    assert {(one.dataset_type, one.dataset_name.split()[0]) for one in card.data.eval_results} == {
        ("nfcorpus-shift", "nfcorpus-shift")
    }


def test_only_models_of_the_hub_are_linked_to() -> None:
    """A folder may have a name like theirs; it has no commit."""
    assert rendered(DONE | {"backbone_commit": None}).data.base_model is None
