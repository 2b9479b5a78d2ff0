"""Configs of the kit, and what is said about wrong ones."""

import json
import pickle
import pkgutil
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from baselines import config, systems
from baselines.grid import grid
from baselines.options import SYSTEMS, Biencoder, Bm25, Colbert, Monobert, Splade, Static, Trained
from baselines.systems import base
from eval_kit.errors import UserError
from eval_kit.papers.figures import CIKM_VARIANTS
from eval_kit.release import Release
from tests.conftest import ROOT, Run

BM25 = {"depth": 100}
FLOPS = {"passage_flops": 0, "query_flops": 0}
TRAINED = {
    "backbone": "distilbert/distilbert-base-uncased",
    "steps": 10,
    "batch_size": 8,
    "learning_rate": 1e-3,
    "warmup": 0.1,
    "negatives": 1,
    "checkpoint_every": 5,
    "depth": 100,
}


FIVE = {"bm25", "biencoder", "splade", "colbert", "monobert"}
"""The systems of ECIR 2023 and CIKM 2022."""


@pytest.mark.parametrize("name", config.names())
def test_each_config_of_the_kit_names_systems_that_there_are(name: str) -> None:
    named = set(map(base, config.load(name)))
    assert named <= set(SYSTEMS)
    if name in ("paper", "paper-cikm2022", "mini", "mini-long"):
        assert named >= FIVE


def test_each_system_is_in_a_config_of_the_kit() -> None:
    assert {base(system) for name in config.names() for system in config.load(name)} == set(SYSTEMS)


def test_paper_is_as_ecir_2023_section_4_says() -> None:
    paper = config.load("paper")
    trained = {system: options for system, options in paper.items() if isinstance(options, Trained)}
    assert {system: (options.steps, options.batch_size) for system, options in trained.items()} == {
        "biencoder": (100_000, 128),
        "splade": (100_000, 128),
        "colbert": (150_000, 32),
        "monobert": (150_000, 32),
    }
    assert {options.backbone for options in trained.values()} == {"distilbert/distilbert-base-uncased"}
    bm25, biencoder, splade, colbert, monobert = (paper[system] for system in paper)
    assert isinstance(bm25, Bm25) and isinstance(biencoder, Biencoder) and isinstance(splade, Splade)
    assert isinstance(colbert, Colbert) and isinstance(monobert, Monobert)
    assert (bm25.k1, bm25.b) == (0.82, 0.68)
    assert (splade.passage_flops, splade.query_flops) == (1e-4, 3e-4)
    assert splade.flops_warmup * (splade.steps or 0) == 50_000
    assert monobert.warmup * (monobert.steps or 0) == pytest.approx(10_000, rel=1e-3)
    assert colbert.schedule == "constant"
    plan = config.read("paper")
    assert (plan.shifts, plan.control, plan.variations) == (["topic", "wh", "length"], True, [])
    for options in (biencoder, splade):  # the paper's best came at about 40k: 40k and patience < 100k
        assert 40_000 + (options.evaluate_every or 0) * (options.patience or 0) < (options.steps or 0)
    assert (splade.pooling, splade.share) == ("max", 128 // 4)  # its 4 GPUs
    assert colbert.similarity == "l2" and colbert.in_batch_negatives
    assert (monobert.k1, monobert.b) == (0.82, 0.68)
    assert {system for system, options in trained.items() if options.evaluate_every} == {"biencoder", "splade"}
    assert monobert.candidates == 1000


def test_paper_cikm2022_is_as_its_section_5_says() -> None:
    options: Any = config.load("paper-cikm2022")
    dense = options["biencoder"]
    assert dense.batch_size * dense.negatives == 1024
    assert dense.negatives_from == "random"
    assert options["monobert"].in_batch_negatives == 0
    assert options["monobert"].tune is options["bm25"].tune is True
    assert options["splade"].pooling == "sum"
    assert (options["colbert"].similarity, options["colbert"].in_batch_negatives) == ("l2", False)
    plan = config.read("paper-cikm2022")
    assert (plan.shifts, plan.control, plan.variations) == (["resttest", "restrain"], False, [])
    assert {own.epochs for system, own in options.items() if system != "bm25"} == {50}


@pytest.mark.parametrize(
    ("systems", "said"),
    [
        ({"bm25": {**BM25, "k2": 1}}, "k2"),
        ({"bm25": {}}, "depth"),
        ({"bm25": BM25, "dpr": TRAINED}, "dpr"),
        ({"bm25": BM25, "biencoder_2": TRAINED}, "biencoder_2"),
        ({"biencoder-x": {**TRAINED, "dimensions": 32}}, "dimensions"),
        ({"biencoder": {**TRAINED, "lerning_rate": 1}}, "lerning_rate"),
        ({"biencoder": {**TRAINED, "dimensions": 32}}, "dimensions"),
        ({"biencoder": {**TRAINED, "batch_size": 0}}, "less than the minimum"),
        ({"biencoder": {**TRAINED, "learning_rate": "fast"}}, "fast"),
        (
            {"biencoder": {**TRAINED, "backbone": {"layers": 1, "width": 32}}},
            "biencoder.backbone: 'heads' is a required",
        ),
        ({"biencoder": {**TRAINED, "epochs": 2}}, "so many steps or so many epochs: name one"),
        ({"biencoder": {**TRAINED, "query_length": None}}, "None is not of type 'integer'"),
        ({"biencoder": {**TRAINED, "teacher": "x"}}, "distillation"),
        ({"biencoder": {**TRAINED, "mine_depth": 9}}, "'mine_every' is a dependency of 'mine_depth'"),
        ({"biencoder": {**TRAINED, "evaluate_every": 5}}, "patience"),
        ({"splade": TRAINED}, "flops"),
        (
            {"monobert": {**TRAINED, "candidates": 9, "pair_length": 64, "mine_every": 3}},
            "monobert has neither distillation nor mined negatives",
        ),
        (
            {"splade": {**TRAINED, **FLOPS, "share": 2, "teacher": "x", "distillation": "kl"}},
            "distillation replaces the loss that share is of",
        ),
        ({}, "non-empty"),
    ],
)
def test_a_wrong_config_is_refused_in_one_sentence(tmp_path: Path, systems: Any, said: str) -> None:
    path = tmp_path / "mine.json"
    path.write_text(json.dumps({"systems": systems}))
    with pytest.raises(UserError) as error:
        config.load(path)
    assert said in str(error.value)
    assert str(error.value).startswith(f"{path}: $")
    assert "\n" not in str(error.value)


def test_the_published_schema_is_that_of_the_classes() -> None:
    published = json.loads((ROOT / "schemas" / "config.schema.json").read_text(encoding="utf-8"))
    assert published == config.schema(), "run: python docs/reference.py schemas"
    assert {*SYSTEMS} == {module.name for module in pkgutil.iter_modules(systems.__path__)}


def test_options_that_were_pickled_are_written_as_before() -> None:
    options = Static(**TRAINED, scale=20.0)
    assert options.as_json() == pickle.loads(pickle.dumps(options)).as_json() == TRAINED
    assert Static(**TRAINED, scale=1.0).as_json() == {**TRAINED, "scale": 1.0}


def test_shared_options_come_to_the_trained_systems_only_and_own_ones_win(tmp_path: Path) -> None:
    path = tmp_path / "mine.json"
    path.write_text(json.dumps({"neural": TRAINED, "systems": {"bm25": BM25, "biencoder": {"steps": 99}}}))
    assert config.load(path) == {"bm25": Bm25(**BM25), "biencoder": Biencoder(**{**TRAINED, "steps": 99})}


def test_candidates_are_from_the_bm25_of_the_same_config_unless_they_say_from_which() -> None:
    monobert = {**TRAINED, "candidates": 9, "pair_length": 64}

    def of_monobert(bm25: dict[str, Any], **own: float) -> dict[str, Any]:
        options = config.checked({"systems": {"bm25": {"depth": 9, **bm25}, "monobert": {**monobert, **own}}}, "test")
        return {name: value for name, value in options["monobert"].as_json().items() if name not in monobert}

    assert of_monobert({"k1": 0.82, "b": 0.68, "rm3": True}) == {"k1": 0.82, "b": 0.68}
    assert of_monobert({"tune": True}) == {"tune": True}
    assert of_monobert({"tune": True}, k1=1.2) == {"k1": 1.2}
    assert of_monobert({"tune": True}, tune=False) == {}
    assert of_monobert({}) == {}


def test_the_variants_of_tables_8_and_9_are_those_that_are_compared() -> None:
    variants = config.load("cikm2022-tables8-9")
    assert set(variants) == set(CIKM_VARIANTS)
    base_options = config.load("paper-cikm2022")["biencoder"]
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


def test_a_config_that_is_not_there_or_not_json(tmp_path: Path) -> None:
    with pytest.raises(
        UserError,
        match="no such config; there are cikm2022-tables8-9, day, doct5query, genq, mini, mini-long, nfcorpus, paper",
    ):
        config.load("papper")
    (tmp_path / "broken.json").write_text("{")
    with pytest.raises(UserError, match=r"broken\.json:1: is not JSON"):
        config.load(tmp_path / "broken.json")


def test_the_command_line_says_it_without_a_traceback(tmp_path: Path, command: Run) -> None:
    path = tmp_path / "mine.json"
    path.write_text(json.dumps({"systems": {"bm25": {**BM25, "k2": 1}}}))
    ended = command("baselines", "grid", "run", "--config", path, "--out", tmp_path / "grid")
    assert ended.returncode == 2
    assert ended.stderr.count("\n") == 1
    assert "k2" in ended.stderr


@pytest.mark.parametrize("name", ["nfcorpus", "squad", "mini"])
def test_another_backbone_is_for_transformers_and_word_vectors_still_learn_from_scratch(name: str) -> None:
    expected = config.load(name)
    for system, options in expected.items():
        if system not in ("bm25", "static"):
            expected[system] = replace(options, backbone="some/model")
    assert config.chosen(name, backbone="some/model") == expected


def test_nfcorpus_trains_each_system_on_each_topic_and_length(mini_release: Release, tmp_path: Path) -> None:
    plan = config.read("nfcorpus")
    planned = grid.cells(config.chosen("nfcorpus"), mini_release, tmp_path, plan.shifts)
    parts = [("topic", f"c{number}") for number in range(5)] + [("length", "short"), ("length", "long")]
    names = {(cell.name.system, cell.name.shift, cell.name.held_out) for cell in planned}
    assert names == {(system, *part) for system in FIVE - {"splade"} for part in parts}
