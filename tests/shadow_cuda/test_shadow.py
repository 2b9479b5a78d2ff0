"""Every CUDA path on a make-believe CUDA device: real dispatch, autograd, autocast and memory, the CPU's kernels."""

import math
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from eval_kit.release import Release
from tests.conftest import ROOT
from tests.shadow_cuda.conftest import SYSTEMS, Scenario
from tests.tiny_checkpoints import passages, tiny

pytestmark = pytest.mark.slow


def test_the_device_keeps_its_promises(scenario: Scenario) -> None:
    seen = scenario("device_itself", install={"devices": 2})
    assert seen["autocast"] == "torch.bfloat16"
    assert seen["gradient"] == seen["sparse"] == "cuda:0"
    assert "same device" in seen["mixed"] and "cuda:1" in seen["two"]
    assert seen["repeated"] and seen["host"]
    assert "out of memory" in seen["full"]
    assert seen["left"] == 0


EARLY_STOPPING = {"evaluate_every": 2, "patience": 3}


def test_all_systems_train_in_bfloat16_and_stop_early(
    scenario: Scenario, trainable_release: Release, tmp_path: Path
) -> None:
    options = {"precision": "bfloat16", "steps": 4, "checkpoint_every": 2}
    jobs = [(system, str(tmp_path / system), options) for system in SYSTEMS]
    jobs += [("biencoder", str(tmp_path / "early"), options | EARLY_STOPPING)]
    jobs += [("biencoder", str(tmp_path / "mined"), options | {"mine_every": 2, "mine_depth": 10})]
    for facts in scenario("train", release=str(trainable_release.folder), jobs=jobs):
        assert (facts["steps"], facts["device"], facts["mini_batch_size"]) == (4, "Shadow", None)
        assert 0 < facts["last_loss"] < 10
        assert facts["peak"] > 1_000_000


def test_compiled_layers_train_the_same_model_and_plain_ones_where_nothing_can_be_compiled(
    scenario: Scenario, trainable_release: Release, tmp_path: Path
) -> None:
    options = {"precision": "bfloat16", "steps": 2}
    systems = ("splade", "monobert")  # the layers are the same in all; their heads differ
    plain = [(system, str(tmp_path / system), options) for system in systems]
    compiled = [(system, str(tmp_path / f"{system}-compiled"), options | {"compile": True}) for system in systems]
    release = str(trainable_release.folder)
    facts = scenario("train", release=release, jobs=[*plain, *compiled], backend="aot_eager")
    without, within = facts[:2], facts[2:]
    assert without[-1]["compiled"] == 0 < within[0]["compiled"]
    for plainly, compiled_facts in zip(without, within, strict=True):
        for what in ("losses", "norms"):  # plain layers add groups' gradients in bfloat16
            assert compiled_facts[what] == pytest.approx(plainly[what], rel=0.01)
    options |= {"compile": True}  # the make-believe device has no compiler
    [facts] = scenario("train", release=release, jobs=[("splade", str(tmp_path / "failing"), options)])
    assert facts["losses"] == without[0]["losses"]


def test_students_learn_from_teachers_on_the_device(
    scenario: Scenario, trainable_release: Release, tmp_path: Path
) -> None:
    options = {"precision": "bfloat16", "steps": 2}
    jobs = [
        (
            "biencoder",
            str(tmp_path / "margins"),
            options | {"teacher": str(tiny("cross")), "distillation": "margin_mse"},
        ),
        ("biencoder", str(tmp_path / "batch"), options | {"teacher": str(tiny("multivector")), "distillation": "kl"}),
    ]
    for facts in scenario("train", release=str(trainable_release.folder), jobs=jobs):
        assert facts["device"] == "Shadow"
        assert all(map(math.isfinite, [*facts["losses"].values(), *facts["norms"]]))
    assert facts["teacher"] == ["cuda:0"]  # of late interaction: its MaxSim is computed where its model is


def test_float16_is_scaled_on_a_card_without_bfloat16(
    scenario: Scenario, trainable_release: Release, tmp_path: Path
) -> None:
    options = {"precision": "float16", "steps": 14}
    jobs = [(system, str(tmp_path / system), options) for system in SYSTEMS]
    for facts in scenario("train", release=str(trainable_release.folder), jobs=jobs, install={"capability": [7, 5]}):
        assert facts["steps"] == 14
        assert all(map(math.isfinite, [*facts["losses"].values(), *facts["norms"][12:]]))  # the scale is found by then
        assert facts["norms"][12:] and min(facts["norms"][12:]) > 0
    for system, root, _ in jobs:
        files = [*Path(root).rglob("*.safetensors")]
        tensors = [tensor for file in files for tensor in load_file(file).values()]
        assert tensors and all(np.isfinite(tensor).all() for tensor in tensors), system


def test_no_step_waits_for_the_device_in_the_projects_own_code(
    scenario: Scenario, trainable_release: Release, tmp_path: Path
) -> None:
    options = {"precision": "bfloat16", "steps": 6, "batch_size": 40}  # more texts than are embedded at once
    jobs = [(system, str(tmp_path / system), options) for system in SYSTEMS]
    release = str(trainable_release.folder)
    for (system, _, _), seen in zip(jobs, scenario("waits", release=release, jobs=jobs), strict=True):
        assert seen["steps"] >= 6
        assert not [place for place in seen["waits"] if str(ROOT) in place and ".venv" not in place], system
    jobs = [("biencoder", str(tmp_path / "control"), options)]
    [control] = scenario("waits", release=release, jobs=jobs, control=True)
    assert any("grouping.py" in place for place in control["waits"])


ARCHITECTURES = ("dense", "sparse", "multivector", "cross")


def test_models_search_in_float16_as_on_the_cpu(scenario: Scenario, tmp_path: Path) -> None:
    from eval_kit.models import retriever as retriever_of

    collection, queries = passages(300), [(f"q{number}", text) for number, (_, text) in enumerate(passages(20, seed=7))]
    models = [(architecture, str(tiny(architecture))) for architecture in ARCHITECTURES]
    seen = scenario("search", models=models, passages=collection, queries=queries, folder=str(tmp_path / "device"))
    import polars as pl

    frame = pl.DataFrame(queries, {"query_id": pl.String, "text": pl.String}, orient="row")
    for architecture, model in models:
        retriever = retriever_of(architecture, model, {})
        retriever.index(collection, tmp_path / "cpu" / architecture)
        on_cpu = dict(retriever.search(frame, tmp_path / "cpu" / architecture, 10))
        assert seen[architecture]["taken"] > 10_000
        shared = [
            len({passage for passage, _ in hits} & {passage for passage, _ in seen[architecture]["hits"][query]})
            for query, hits in on_cpu.items()
        ]
        assert sum(shared) / len(shared) > 9, architecture
