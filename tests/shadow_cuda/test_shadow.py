"""Every CUDA path on a make-believe CUDA device: real dispatch, autograd, autocast and memory, the CPU's kernels."""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock

from eval_kit.release import Release
from tests.conftest import ROOT
from tests.tiny_checkpoints import passages, tiny

pytestmark = pytest.mark.slow

SYSTEMS = ("biencoder", "splade", "colbert", "monobert")
type Scenario = Callable[..., Any]


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The device, compiled once for all workers."""
    if shutil.which("g++") is None:
        pytest.skip("no C++ compiler: NOTHING of the CUDA paths is tested here")
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "shadow-cuda"
    with FileLock(f"{folder}.lock"):
        if not (folder / "shadow_cuda.so").exists():
            code = (
                "import pathlib, sys; from tests.shadow_cuda import device; device.compiled(pathlib.Path(sys.argv[1]))"
            )
            subprocess.run([sys.executable, "-c", code, str(folder)], cwd=ROOT, check=True, capture_output=True)
    return folder


@pytest.fixture(scope="session")
def scenario(built: Path) -> Scenario:
    """Run a scenario in a process of its own, and return what it printed."""

    def run(name: str, killed: bool = False, **arguments: Any) -> Any:
        command = [sys.executable, "-m", "tests.shadow_cuda.scenarios", str(built), name, json.dumps(arguments)]
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
        ended = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=600)
        assert ended.returncode == (-signal.SIGKILL if killed else 0), ended.stderr
        return None if killed else json.loads(ended.stdout.splitlines()[-1])

    return run


def weights(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*.safetensors"))}


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
        assert facts["last_loss"] == facts["last_loss"]


def test_float16_is_scaled_on_a_card_without_bfloat16(
    scenario: Scenario, trainable_release: Release, tmp_path: Path
) -> None:
    options = {"precision": "float16", "steps": 6}
    jobs = [(system, str(tmp_path / system), options) for system in SYSTEMS]
    for facts in scenario("train", release=str(trainable_release.folder), jobs=jobs, install={"capability": [7, 5]}):
        assert facts["steps"] == 6
        assert facts["last_loss"] == facts["last_loss"]  # no NaN


@pytest.mark.parametrize("system", SYSTEMS)
def test_a_killed_training_ends_with_the_same_weights(
    scenario: Scenario, trainable_release: Release, tmp_path: Path, system: str
) -> None:
    backbone = str(tiny("masked"))  # with dropout, so that the random state of the device matters
    options = {"precision": "bfloat16", "steps": 6, "checkpoint_every": 2, "backbone": backbone}
    release = str(trainable_release.folder)
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    scenario("train", release=release, jobs=[(system, str(whole), options)])
    scenario("train", killed=True, release=release, jobs=[(system, str(killed), options)], kill=3)
    scenario("train", release=release, jobs=[(system, str(killed), options)], disturb=True)
    expected = {name: data for name, data in weights(whole).items() if "checkpoint" not in name}
    resumed = {name: data for name, data in weights(killed).items() if "checkpoint" not in name}
    assert resumed == expected != {}


@pytest.mark.parametrize("system", SYSTEMS)
def test_too_little_memory_takes_mini_batches_or_ends_in_one_sentence(
    scenario: Scenario, trainable_release: Release, tmp_path: Path, system: str
) -> None:
    shares = [0.4, 0.7, 0.9, 1.1]
    facts = scenario(
        "limits", release=str(trainable_release.folder), system=system, folder=str(tmp_path), shares=shares
    )
    *limited, enough = facts["limited"]
    assert enough["mini_batch_size"] is None
    for row in limited:
        if "sentence" in row:
            assert "memory cannot hold" in row["sentence"]
        else:
            assert row["mini_batch_size"] < row["batch_size"] == 16
            assert row["peak"] <= row["share"] * facts["whole"]["peak"]
        assert row["left"] == 0
    assert any("sentence" not in row for row in limited)


@pytest.mark.parametrize("system", SYSTEMS)
def test_mini_batches_draw_the_same_dropout_twice(
    scenario: Scenario, trainable_release: Release, tmp_path: Path, system: str
) -> None:
    arguments = {"release": str(trainable_release.folder), "system": system, "backbone": str(tiny("masked"))}
    real = scenario("replay", **arguments, root=str(tmp_path / "real"), control=False)
    control = scenario("replay", **arguments, root=str(tmp_path / "control"), control=True)
    assert real["passes"] > 2
    assert real["difference"] == 0.0
    assert control["difference"] > 0.01


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
        assert seen[architecture]["launched"] > 100
        shared = [
            len({passage for passage, _ in hits} & {passage for passage, _ in seen[architecture]["hits"][query]})
            for query, hits in on_cpu.items()
        ]
        assert sum(shared) / len(shared) > 9, architecture
