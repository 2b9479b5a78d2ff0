"""Configs of the kit, and what is said about wrong ones."""

import json
import pickle
import pkgutil
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from baselines import config, systems
from baselines.options import SYSTEMS, Biencoder, Bm25, Static
from eval_kit.errors import UserError
from eval_kit.papers.figures import CIKM_VARIANTS
from eval_kit.runs.names import base

BM25 = {"depth": 100}
FLOPS = {"passage_flops": 0, "query_flops": 0}
ENDLESS = {
    "backbone": "distilbert/distilbert-base-uncased",
    "batch_size": 8,
    "learning_rate": 1e-3,
    "warmup": 0.1,
    "negatives": 1,
    "checkpoint_every": 5,
    "depth": 100,
}
TRAINED = {**ENDLESS, "steps": 10}


def test_the_configs_of_the_kit_name_all_systems_that_there_are() -> None:
    named = {name: set(map(base, config.read(name).systems)) for name in config.names()}
    assert set.union(*named.values()) == set(SYSTEMS)
    for name in ("paper", "paper-cikm2022", "mini", "mini-long"):
        assert named[name] >= {"bm25", "biencoder", "splade", "colbert", "monobert"}


def test_the_papers_configs_are_as_the_papers_say() -> None:
    """Beside the options that docs/where-we-differ.json has a row for (tests/docs/test_differences.py)."""
    ecir, cikm = config.read("paper"), config.read("paper-cikm2022")
    assert (ecir.shifts, ecir.control, ecir.variations) == (["topic", "wh", "length"], True, [])
    assert config.read("cikm2022-tables8-9").shifts == ["resttest", "restrain.45k"]
    assert (cikm.shifts, cikm.control, cikm.variations) == (["resttest", "restrain"], False, [])
    options: Any = config.read("paper").systems
    stopped = {system for system, own in options.items() if getattr(own, "evaluate_every", None)}
    assert stopped == {"biencoder", "splade"}
    for system in ("biencoder", "splade"):  # the paper's best came at about 40k: 40k and patience < 100k
        own = options[system]
        assert 40_000 + own.evaluate_every * own.patience < own.steps == 100_000


@pytest.mark.parametrize(
    ("systems", "said"),
    [
        ({"bm25": {**BM25, "k2": 1}}, "k2"),
        ({"bm25": {}}, "depth"),
        ({"bm25": BM25, "dpr": TRAINED}, "dpr"),
        ({"bm25": BM25, "biencoder_2": TRAINED}, "biencoder_2"),
        ({"biencoder-x": {**TRAINED, "dimensions": 32}}, "dimensions"),
        ({"biencoder": {**TRAINED, "lerning_rate": 1}}, "lerning_rate"),
        ({"biencoder": {**TRAINED, "batch_size": 0}}, "batch_size: Expected `int` >= 1"),
        ({"biencoder": {**TRAINED, "backbone": {"layers": 1, "width": 32}}}, "heads"),
        ({"biencoder": {**TRAINED, "epochs": 2}}, "epochs"),
        ({"biencoder": ENDLESS}, "epochs"),
        ({"biencoder": {**TRAINED, "query_length": None}}, "query_length: it is null"),
        ({"biencoder": {**TRAINED, "teacher": "x"}}, "distillation"),
        ({"biencoder": {**TRAINED, "mine_every": 9, "negatives": 0}}, "at least 1 negative"),
        (
            {"monobert": {**TRAINED, "candidates": 9, "pair_length": 9, "negatives": 0, "in_batch_negatives": 0}},
            "alone",
        ),
        ({"biencoder": {**TRAINED, "mine_depth": 9}}, "mine_every"),
        ({"biencoder": {**TRAINED, "static_negatives": 1}}, "mine_every"),
        ({"biencoder": {**TRAINED, "starts_from": "biencoder-x", "negatives": 0}}, "biencoder-x"),
        ({"biencoder": {**TRAINED, "starts_from": "biencoder", "negatives": 0}}, "starts_from"),
        ({"biencoder": {**TRAINED, "starts_from": "splade"}, "splade": {**TRAINED, **FLOPS}}, "splade"),
        ({"biencoder": {**TRAINED, "starts_from": "x", "negatives": 0, "mine_every": 3}}, "mine_every"),
        ({"monobert": {**TRAINED, "candidates": 9, "pair_length": 64, "mine_every": 3}}, "mine_every"),
        ({"splade": {**TRAINED, **FLOPS, "share": 2, "teacher": "x", "distillation": "kl"}}, "share"),
        ({}, "length >= 1"),
        ({"biencoder": {**TRAINED, "batch_size": 8.0}}, "batch_size"),
        ({"biencoder": {**TRAINED, "negatives": True}}, "negatives"),
        ({"biencoder": [1]}, "biencoder"),
        ({"biencoder": {**TRAINED, "patience": 3}}, "evaluate_every"),
        ({"biencoder": {**TRAINED, "starts_from": ["x"]}}, "starts_from"),
        ({"static": {**TRAINED, "query_length": 9}}, "no lengths"),
    ],
)
def test_a_wrong_config_is_refused_in_one_sentence(tmp_path: Path, systems: Any, said: str) -> None:
    path = tmp_path / "mine.json"
    path.write_text(json.dumps({"systems": systems}))
    with pytest.raises(UserError) as error:
        config.read(path)
    assert str(error.value).startswith(f"{path}: $") and said in str(error.value) and "\n" not in str(error.value)


def test_each_system_has_a_module() -> None:
    assert {*SYSTEMS} == {module.name for module in pkgutil.iter_modules(systems.__path__)}


def test_options_that_were_pickled_are_written_as_before() -> None:
    options = Static(**TRAINED, scale=20.0)
    assert options.as_json() == pickle.loads(pickle.dumps(options)).as_json() == TRAINED
    assert Static(**TRAINED, scale=1.0).as_json() == {**TRAINED, "scale": 1.0}


def test_shared_options_come_to_the_trained_systems_only_and_own_ones_win(tmp_path: Path) -> None:
    path = tmp_path / "mine.json"
    path.write_text(json.dumps({"neural": TRAINED, "systems": {"bm25": BM25, "biencoder": {"steps": 99}}}))
    assert config.read(path).systems == {"bm25": Bm25(**BM25), "biencoder": Biencoder(**{**TRAINED, "steps": 99})}


def test_candidates_are_from_the_bm25_of_the_same_config_unless_they_say_from_which() -> None:
    monobert = {**TRAINED, "candidates": 9, "pair_length": 64}

    def of_monobert(bm25: dict[str, Any], **own: float) -> dict[str, Any]:
        options = config.parse(
            {"systems": {"bm25": {"depth": 9, **bm25}, "monobert": {**monobert, **own}}}, "test"
        ).systems
        return {name: value for name, value in options["monobert"].as_json().items() if name not in monobert}

    assert of_monobert({"k1": 0.82, "b": 0.68}) == {"k1": 0.82, "b": 0.68}
    assert of_monobert({"tune": True}) == {"tune": True}
    assert of_monobert({"tune": True}, k1=1.2) == {"k1": 1.2}
    assert of_monobert({"tune": True}, tune=False) == {}
    assert of_monobert({}) == {}


def test_the_variants_of_tables_8_and_9_are_those_that_are_compared() -> None:
    variants = config.read("cikm2022-tables8-9").systems
    assert set(variants) - {"biencoder-star"} == set(CIKM_VARIANTS) - {"biencoder"}  # which are in no table, in others
    base_options = config.read("paper-cikm2022").systems["biencoder"]
    for name in ("roberta", "ernie2", "condenser", "cocondenser-wiki", "cocondenser-marco"):
        variant = variants[f"biencoder-{name}"]
        assert isinstance(variant, Biencoder) and variant == replace(base_options, backbone=variant.backbone)
    assert variants["biencoder-rand"] == replace(base_options, random_weights=True)


def test_a_config_says_which_variations_are_searched(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    for written in ("all", ["dl19.typo"]):
        path.write_text(json.dumps({"variations": written, "systems": {"bm25": BM25}}))
        plan = config.read(path)
        assert (plan.shifts, plan.control, plan.variations) == (None, False, written)
    path.write_text(json.dumps({"variations": "dl19.typo", "systems": {"bm25": BM25}}))
    with pytest.raises(UserError, match=r"config.json: \$\.variations"):
        config.read(path)


@pytest.mark.parametrize("more", [{"shifts": None}, {"shifts": ["wh", "wh"]}, {"neural": 1}, {"control": 1}, {"x": 1}])
def test_other_wrong_fields(more: dict[str, Any]) -> None:
    with pytest.raises(UserError, match=rf"^test: \$.*{next(iter(more))}"):
        config.parse({"systems": {"bm25": BM25}, **more}, "test")


def test_a_config_that_is_not_there_or_not_json(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"papper .* paper"):
        config.read("papper")
    (tmp_path / "broken.json").write_text("{")
    with pytest.raises(UserError, match=r"broken\.json:1: "):
        config.read(tmp_path / "broken.json")


@pytest.mark.parametrize("name", ["nfcorpus", "squad", "mini"])
def test_another_backbone_is_for_transformers_and_word_vectors_still_learn_from_scratch(name: str) -> None:
    expected = config.read(name).systems
    for system, options in expected.items():
        if system not in ("bm25", "static"):
            expected[system] = replace(options, backbone="some/model")
    assert config.choose(name, backbone="some/model") == expected
