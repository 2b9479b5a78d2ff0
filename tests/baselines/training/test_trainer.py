"""Trainings that are killed, run out of GPU memory, or fill the disk."""

import errno
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import sentence_transformers
import torch

from baselines import systems
from baselines.training import trainer
from baselines.training.trainer import last_checkpoint
from eval_kit.errors import UserError
from eval_kit.release import Release
from tests.baselines.tiny_cells import tiny_cell
from tests.conftest import ROOT

TRAIN = """
import json, os, resource, signal, sys
from pathlib import Path
from baselines import systems
from eval_kit.errors import UserError
from eval_kit.release import open_release
from tests.baselines.tiny_cells import tiny_cell

release, faults = open_release(sys.argv[1]), json.loads(sys.argv[2])


def progress(at):
    if at["step"] == faults.get("kill"):
        os.kill(os.getpid(), signal.SIGKILL)
    if at["step"] == faults.get("fill"):
        resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, resource.RLIM_INFINITY))


try:
    for system, root, options in json.loads(sys.argv[3]):
        print(json.dumps(systems.system(system).train(tiny_cell(system, release, Path(root), **options), progress)))
except UserError as error:
    sys.exit(str(error))
"""
TIMES = ("seconds", "samples_per_second")
TRAININGS: list[tuple[str, dict[str, Any]]] = [
    ("splade", {"steps": 16, "checkpoint_every": 5}),
    (
        "biencoder",
        {"steps": 16, "checkpoint_every": 5, "evaluate_every": 5, "patience": 9, "mine_every": 5, "mine_depth": 20},
    ),
]


def train(release: Release, *trainings: tuple[str, Path, Any], **faults: int) -> subprocess.CompletedProcess[str]:
    """Train in a process of its own, one after the other; a fault comes at the step that it names."""
    jobs = [(system, str(root), options) for system, root, options in trainings]
    return subprocess.run(
        [sys.executable, "-c", TRAIN, release.folder, json.dumps(faults), json.dumps(jobs)],
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"},
        capture_output=True,
        text=True,
        timeout=600,
    )


def weights(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*.safetensors"))}


@pytest.mark.slow
def test_a_killed_training_ends_with_the_model_of_one_that_was_not(trainable_release: Release, tmp_path: Path) -> None:
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    for system, options in TRAININGS:
        ended = train(trainable_release, (system, killed, options), kill=12)
        cell = tiny_cell(system, trainable_release, killed, **options)
        assert ended.returncode == -signal.SIGKILL, ended.stderr
        assert not cell.model.exists()
        checkpoints = cell.folder / "training" / "batch-8"
        assert last_checkpoint(checkpoints) == str(checkpoints / "checkpoint-10")
    jobs = [(system, root, options) for system, options in TRAININGS for root in (whole, killed)]
    ended = train(trainable_release, *jobs)
    assert ended.returncode == 0, ended.stderr
    for system, options in TRAININGS:
        expected, resumed = (tiny_cell(system, trainable_release, root, **options).model for root in (whole, killed))
        assert weights(resumed) == weights(expected) != {}
    told = [json.loads(line) for line in ended.stdout.splitlines()]
    for facts in told:
        for name in TIMES:
            del facts[name]
    assert told[0] == told[1]
    assert told[2] == told[3]


def test_a_full_disk_is_one_sentence_and_leaves_no_model(trainable_release: Release, tmp_path: Path) -> None:
    options = {"steps": 8, "checkpoint_every": 4}
    cell = tiny_cell("biencoder", trainable_release, tmp_path, **options)
    ended = train(trainable_release, ("biencoder", tmp_path, options), fill=3)
    assert ended.returncode == 1
    assert ended.stderr.splitlines()[-1].startswith(f"{cell.folder / 'training'}: cannot be written: ")
    assert "Traceback" not in ended.stderr
    assert not cell.model.exists()


LAST_STEPS: list[dict[str, Any]] = [
    {"steps": 4, "checkpoint_every": 2, "mine_every": 2, "mine_depth": 10},
    {"steps": 40, "evaluate_every": 2, "patience": 1, "learning_rate": 0.05},  # too fast to get any better
]


@pytest.mark.parametrize("options", LAST_STEPS, ids=["last", "early"])
def test_a_training_that_ended_is_not_done_further(
    trainable_release: Release, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any]
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    whole, cut = (tiny_cell("biencoder", trainable_release, tmp_path / name, **options) for name in ("whole", "cut"))
    expected = systems.system("biencoder").train(whole)
    with monkeypatch.context() as patched, pytest.raises(UserError, match="No space left"):
        patched.setattr(trainer, "_keep", full)
        systems.system("biencoder").train(cut)
    facts = systems.system("biencoder").train(cut)
    assert {name: facts[name] for name in facts if name not in TIMES} == {
        name: expected[name] for name in expected if name not in TIMES
    }
    assert weights(cut.model) == weights(whole.model) != {}


def test_a_checkpoint_that_was_not_finished_is_passed_over(tmp_path: Path) -> None:
    for step, state in ((5, "{}"), (10, "{}"), (100, '{"half')):
        (tmp_path / f"checkpoint-{step}").mkdir()
        (tmp_path / f"checkpoint-{step}" / "trainer_state.json").write_text(state)
    (tmp_path / "checkpoint-15").mkdir()
    assert last_checkpoint(tmp_path) == str(tmp_path / "checkpoint-10")
    assert last_checkpoint(tmp_path / "elsewhere") is None


def limited(most: int) -> type:
    class Limited(sentence_transformers.SentenceTransformerTrainer):
        """A GPU whose memory holds ``most`` queries."""

        def training_step(self, model: Any, inputs: dict[str, Any], *arguments: Any) -> Any:
            if len(inputs["query_input_ids"]) > most:
                raise torch.OutOfMemoryError("CUDA out of memory")
            return super().training_step(model, inputs, *arguments)

    return Limited


def test_a_batch_that_does_not_fit_is_halved_and_that_is_said(
    trainable_release: Release, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(sentence_transformers, "SentenceTransformerTrainer", limited(2))
    cell = tiny_cell("biencoder", trainable_release, tmp_path, steps=4)
    facts = systems.system("biencoder").train(cell)
    assert facts["batch_size"] == 2
    assert facts["steps"] == 4
    said = [record.getMessage() for record in caplog.records if "out of memory" in record.getMessage()]
    assert said == [
        f"{cell.place.file}: out of memory at a batch of {batch}; beginning again with {batch // 2}" for batch in (8, 4)
    ]
    assert cell.model.is_dir()


def test_a_batch_of_one_that_does_not_fit_is_one_sentence(
    trainable_release: Release, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sentence_transformers, "SentenceTransformerTrainer", limited(0))
    cell = tiny_cell("biencoder", trainable_release, tmp_path, steps=4, batch_size=1)
    with pytest.raises(UserError, match="does not hold a batch of one"):
        systems.system("biencoder").train(cell)
    assert not cell.model.exists()
