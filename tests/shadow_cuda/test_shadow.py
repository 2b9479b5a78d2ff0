"""Every CUDA path on a make-believe CUDA device: real dispatch, autograd, autocast and memory, the CPU's kernels."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from safetensors.numpy import load_file

from eval_kit.models.opening import retriever as retriever_of
from eval_kit.release import Release
from tests.conftest import ROOT
from tests.shadow_cuda.conftest import SYSTEMS, Scenario
from tests.tiny_checkpoints import passages, tiny

pytestmark = pytest.mark.slow


@pytest.fixture
def release(trainable_release: Release) -> str:
    return str(trainable_release.folder)


def jobs_of(folder: Path, options: dict[str, Any], systems: Sequence[str] = SYSTEMS) -> list[Any]:
    return [(system, str(folder / system), options) for system in systems]


def test_the_device_keeps_its_promises(scenario: Scenario) -> None:
    seen = scenario("device_itself", install={"devices": 2})
    assert seen["autocast"] == "torch.bfloat16"
    assert seen["gradient"] == seen["sparse"] == "cuda:0"
    assert "same device" in seen["mixed"] and "cuda:1" in seen["two"]
    assert seen["repeated"] and seen["host"]
    assert "out of memory" in seen["full"]
    assert seen["left"] == 0


def test_all_systems_train_in_bfloat16_and_stop_early(scenario: Scenario, release: str, tmp_path: Path) -> None:
    options = {"precision": "bfloat16", "steps": 4, "checkpoint_every": 2}
    jobs = jobs_of(tmp_path, options)
    jobs += [("biencoder", str(tmp_path / "early"), options | {"evaluate_every": 2, "patience": 3})]
    jobs += [("biencoder", str(tmp_path / "mined"), options | {"mine_every": 2, "mine_depth": 10})]
    for facts in scenario("train", release=release, jobs=jobs):
        assert (facts["steps"], facts["device"], facts["mini_batch_size"]) == (4, "Shadow", None)
        assert 0 < facts["last_loss"] < 10
        assert facts["peak"] > 1_000_000


def test_batches_of_similar_length_have_fewer_tokens(scenario: Scenario, release: str, tmp_path: Path) -> None:
    common = {"precision": "bfloat16", "steps": 16, "batch_size": 8, "negatives": 1}
    options = {"colbert": {**common, "passage_length": 100}, "monobert": {**common, "pair_length": 110}}
    tokens = {}
    for window in (1, 8):
        jobs = [(system, str(tmp_path / f"{system}{window}"), own) for system, own in options.items()]
        tokens[window] = [facts["tokens"] for facts in scenario("train", release=release, jobs=jobs, window=window)]
    assert all(alike < 0.98 * drawn for alike, drawn in zip(tokens[8], tokens[1], strict=True)), tokens


def test_students_learn_from_teachers_on_the_device(scenario: Scenario, release: str, tmp_path: Path) -> None:
    options = {"precision": "bfloat16", "steps": 2}
    teachers = {"margin_mse": tiny("cross"), "kl": tiny("multivector")}
    jobs = [
        ("biencoder", str(tmp_path / kind), options | {"teacher": str(teacher), "distillation": kind})
        for kind, teacher in teachers.items()
    ]
    for facts in scenario("train", release=release, jobs=jobs):
        assert facts["device"] == "Shadow"
        assert all(map(math.isfinite, [*facts["losses"].values(), *facts["norms"]]))
    assert facts["teacher"] == ["cuda:0"]  # of late interaction: its MaxSim is computed where its model is


def test_float16_is_scaled_on_a_card_without_bfloat16(scenario: Scenario, release: str, tmp_path: Path) -> None:
    options = {"precision": "float16", "steps": 14}
    jobs = jobs_of(tmp_path, options)
    for facts in scenario("train", release=release, jobs=jobs, install={"capability": [7, 5]}):
        assert facts["steps"] == 14
        assert all(map(math.isfinite, [*facts["losses"].values(), *facts["norms"][12:]]))  # the scale is found by then
        assert facts["norms"][12:] and min(facts["norms"][12:]) > 0
    for system, root, _ in jobs:
        files = [*Path(root).rglob("*.safetensors")]
        tensors = [tensor for file in files for tensor in load_file(file).values()]
        assert tensors and all(np.isfinite(tensor).all() for tensor in tensors), system


def test_a_step_waits_for_the_device_only_where_lengths_are_read(
    scenario: Scenario, release: str, tmp_path: Path
) -> None:
    options = {"precision": "bfloat16", "steps": 6, "batch_size": 40}  # more texts than are embedded at once
    jobs = jobs_of(tmp_path, options)
    places = {}
    for (system, _, _), seen in zip(jobs, scenario("waits", release=release, jobs=jobs), strict=True):
        assert seen["steps"] >= 6
        places[system] = [place for place in seen["waits"] if str(ROOT) in place and ".venv" not in place]
    assert places["biencoder"] and all("grouping.py" in place for own in places.values() for place in own), places


def test_models_search_in_float16_as_on_the_cpu(scenario: Scenario, tmp_path: Path) -> None:
    collection, queries = passages(300), [(f"q{number}", text) for number, (_, text) in enumerate(passages(20, seed=7))]
    models = [(architecture, str(tiny(architecture))) for architecture in ("dense", "sparse", "multivector", "cross")]
    seen = scenario("search", models=models, passages=collection, queries=queries, folder=str(tmp_path / "device"))
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


def weights(folder: Path) -> dict[str, bytes]:
    paths = [path for path in sorted(folder.rglob("*.safetensors")) if "checkpoint" not in str(path)]
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths}


def test_a_killed_training_ends_with_the_same_weights(scenario: Scenario, release: str, tmp_path: Path) -> None:
    backbone = str(tiny("masked"))  # with dropout, so that the random state of the device matters
    options = {"precision": "bfloat16", "steps": 6, "checkpoint_every": 2, "backbone": backbone}
    whole = jobs_of(tmp_path / "whole", options)
    killed = jobs_of(tmp_path / "killed", options)
    scenario("train", release=release, jobs=whole)
    for job in killed:
        scenario("train", killed=True, release=release, jobs=[job], kill=3)
    scenario("train", release=release, jobs=killed, disturb=True)
    for system in SYSTEMS:
        assert weights(tmp_path / "killed" / system) == weights(tmp_path / "whole" / system) != {}, system


def test_too_little_memory_takes_mini_batches_or_ends_in_one_sentence(
    scenario: Scenario, release: str, tmp_path: Path
) -> None:
    arguments = {"systems": SYSTEMS, "folder": str(tmp_path), "shares": [0.4, 0.9, 1.1]}
    seen = scenario("limits", release=release, **arguments)
    for system in SYSTEMS:
        *limited, enough = seen[system]["limited"]
        assert enough["mini_batch_size"] is None
        for row in limited:
            if "sentence" in row:
                assert "memory is too small" in row["sentence"]
            else:
                assert row["mini_batch_size"] < row["batch_size"] == 16
                assert row["peak"] <= row["share"] * seen[system]["whole"]["peak"]
            assert row["left"] == 0
        assert any("sentence" not in row for row in limited), system


def test_mini_batches_draw_the_same_dropout_twice(scenario: Scenario, release: str, tmp_path: Path) -> None:
    arguments = {"systems": SYSTEMS, "folder": str(tmp_path), "backbone": str(tiny("masked"))}
    seen = scenario("replay", release=release, **arguments)
    for system in SYSTEMS:
        assert seen[f"{system} real"]["passes"] > 2
        assert seen[f"{system} real"]["difference"] == 0.0
        assert seen[f"{system} control"]["difference"] > 0.01
