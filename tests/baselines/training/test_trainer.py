"""Trainings that are killed, run out of GPU memory, or fill the disk."""

import errno
import json
import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import Mock, patch

import clients
import pytest
import torch
import transformers
from sentence_transformers.sentence_transformer.evaluation import InformationRetrievalEvaluator
from transformers import TrainerCallback
from transformers.models.bert.modeling_bert import BertEmbeddings

from baselines import systems
from baselines.cell import Cell
from baselines.training import trainer
from baselines.training.trainer import last_checkpoint
from eval_kit.errors import UserError
from eval_kit.models.dense import Dense
from eval_kit.release import Release
from tests.baselines.tiny_cells import tiny_cell, tiny_options
from tests.conftest import ROOT

TRAIN = """
import json, os, resource, signal, sys
from pathlib import Path
from baselines import systems
from eval_kit.errors import UserError
from eval_kit.release import open_release
from tests.baselines.tiny_cells import tiny_cell
from transformers import TrainerCallback

folder, root, options, faults = sys.argv[1:]
faults = json.loads(faults)


class Faults(TrainerCallback):
    def on_step_end(self, args, state, control, **_):
        if state.global_step == faults.get("kill"):
            os.kill(os.getpid(), signal.SIGKILL)
        if state.global_step == faults.get("fill"):
            resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, resource.RLIM_INFINITY))


cell = tiny_cell("biencoder", open_release(folder), Path(root), **json.loads(options))
try:
    print(json.dumps(systems.system("biencoder").train(cell, [Faults()])))
except UserError as error:
    sys.exit(str(error))
"""
TIMES = ("seconds", "samples_per_second")


def train(cell: Cell, options: dict[str, Any], **faults: int) -> subprocess.CompletedProcess[str]:
    """Train the bi-encoder in a process of its own; a fault comes at the step that it names."""
    arguments = [str(cell.release.folder), str(cell.root), json.dumps(options), json.dumps(faults)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
    return clients.run(["-c", TRAIN, *arguments], environment, ROOT, neural=True)


def untimed(facts: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in facts.items() if name not in TIMES}


def weights(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*.safetensors"))}


@pytest.mark.slow
def test_a_killed_training_ends_with_the_model_of_one_that_was_not(trainable_release: Release, tmp_path: Path) -> None:
    """All that a checkpoint keeps: the best step by validation, and mined negatives."""
    options = {"steps": 16, "checkpoint_every": 5, "evaluate_every": 5, "patience": 9}
    options |= {"mine_every": 5, "mine_depth": 20}
    whole, killed = (
        tiny_cell("biencoder", trainable_release, tmp_path / name, **options) for name in ("whole", "killed")
    )
    ended = train(killed, options, kill=12)
    assert ended.returncode == -signal.SIGKILL, ended.stderr
    assert not killed.model.exists()
    checkpoints = killed.folder / "training" / "checkpoints"
    assert last_checkpoint(checkpoints) == str(checkpoints / "checkpoint-10")
    facts = []
    for cell in (whole, killed):
        ended = train(cell, options)
        assert ended.returncode == 0, ended.stderr
        facts.append(untimed(json.loads(ended.stdout)))
    assert weights(killed.model) == weights(whole.model) != {}
    assert facts[0] == facts[1]


@pytest.mark.slow
def test_a_full_disk_leaves_no_model(trainable_release: Release, tmp_path: Path) -> None:
    options = {"steps": 8, "checkpoint_every": 4}
    cell = tiny_cell("biencoder", trainable_release, tmp_path, **options)
    ended = train(cell, options, fill=3)
    assert ended.returncode == 1, ended.stderr
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
    with monkeypatch.context() as patched, pytest.raises(OSError, match="No space left"):
        patched.setattr(trainer, "_keep", full)
        systems.system("biencoder").train(cut)
    assert untimed(systems.system("biencoder").train(cut)) == untimed(expected)
    assert weights(cut.model) == weights(whole.model) != {}


def test_a_checkpoint_that_was_not_finished_is_passed_over(tmp_path: Path) -> None:
    for step, state in ((5, "{}"), (10, "{}"), (100, '{"half')):
        (tmp_path / f"checkpoint-{step}").mkdir()
        (tmp_path / f"checkpoint-{step}" / "trainer_state.json").write_text(state)
    (tmp_path / "checkpoint-15").mkdir()
    assert last_checkpoint(tmp_path) == str(tmp_path / "checkpoint-10")
    assert last_checkpoint(tmp_path / "elsewhere") is None


@pytest.mark.parametrize("name", ["rng_state.pth", "config.json"])
def test_a_damaged_checkpoint_is_named(trainable_release: Release, tmp_path: Path, name: str) -> None:
    class Stop(TrainerCallback):
        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            if state.global_step == 3:
                raise KeyboardInterrupt

    cell = tiny_cell("biencoder", trainable_release, tmp_path, steps=4, checkpoint_every=2)
    with pytest.raises(KeyboardInterrupt):
        systems.system("biencoder").train(cell, [Stop()])
    checkpoint = cell.folder / "training" / "checkpoints" / "checkpoint-2"
    (checkpoint / name).write_bytes(b"")
    with pytest.raises(UserError, match=f"{checkpoint}\\."):
        systems.system("biencoder").train(cell)
    shutil.rmtree(checkpoint)
    assert systems.system("biencoder").train(cell)["steps"] == 4


@contextmanager
def memory(most: int, until: Callable[[], bool] = lambda: True) -> Iterator[None]:
    """A GPU whose memory holds the activations of ``most`` texts while a model trains, as long as ``until`` says."""
    forward = BertEmbeddings.forward

    def limited(module: Any, *inputs: Any, **named: Any) -> Any:
        texts = named.get("input_ids", inputs[0] if inputs else None)
        if torch.is_grad_enabled() and len(texts) > most and until():
            raise torch.OutOfMemoryError("CUDA out of memory")
        return forward(module, *inputs, **named)

    with patch.object(BertEmbeddings, "forward", limited):
        yield


class Gradients(TrainerCallback):
    """Keeps the gradients of each step, clipped."""

    def __init__(self) -> None:
        self.steps: list[dict[str, torch.Tensor]] = []

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, model: Any = None, **_: Any) -> None:
        parameters = model.named_parameters()
        self.steps.append({name: one.grad.clone() for name, one in parameters if one.grad is not None})


TRAINED = [
    ("biencoder", {}),
    ("splade", {}),
    pytest.param("colbert", {}, marks=pytest.mark.slow),
    pytest.param("monobert", {}, marks=pytest.mark.slow),
    pytest.param("biencoder", {"distillation": "margin_mse"}, marks=pytest.mark.slow),
    pytest.param("splade", {"share": 4, "pooling": "sum"}, marks=pytest.mark.slow),
    pytest.param("colbert", {"in_batch_negatives": False, "similarity": "l2"}, marks=pytest.mark.slow),
    pytest.param("monobert", {"in_batch_negatives": 0, "negatives": 1}, marks=pytest.mark.slow),
]


@pytest.mark.parametrize(("system", "options"), TRAINED, ids=lambda one: one if isinstance(one, str) else "-".join(one))
def test_a_batch_that_does_not_fit_has_the_same_gradients_in_mini_batches(
    trainable_release: Release, tmp_path: Path, system: str, options: dict[str, Any]
) -> None:
    if "distillation" in options:
        teacher = tiny_cell("monobert", trainable_release, tmp_path / "teacher", steps=1)
        systems.system("monobert").train(teacher)
        options = {**options, "teacher": str(teacher.model)}
    facts, kept = [], []
    for most in (1_000, 4):
        gradients = Gradients()
        cell = tiny_cell(system, trainable_release, tmp_path / str(most), steps=1, **options)
        with memory(most):
            facts.append(systems.system(system).train(cell, [gradients]))
        kept.append(gradients.steps[-1])
    assert [one["mini_batch_size"] for one in facts] == [None, 4]
    assert [one["batch_size"] for one in facts] == [8, 8]
    assert facts[1]["first_loss"] == pytest.approx(facts[0]["first_loss"], rel=1e-4)
    whole, mini = kept
    assert set(mini) == set(whole) != set()
    for name in whole:
        torch.testing.assert_close(mini[name], whole[name], rtol=1e-3, atol=1e-6)


def test_out_of_memory_goes_on_from_the_last_checkpoint_and_says_so(
    trainable_release: Release, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    done: list[int] = []

    class Steps(TrainerCallback):
        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            done.append(state.global_step)

    cell = tiny_cell("biencoder", trainable_release, tmp_path, steps=8, checkpoint_every=4)
    with memory(4, until=lambda: len(done) >= 6):
        facts = systems.system("biencoder").train(cell, [Steps()])
    assert done == [1, 2, 3, 4, 5, 6, 5, 6, 7, 8]
    assert (facts["batch_size"], facts["mini_batch_size"], facts["steps"]) == (8, 4, 8)
    [said] = [record.getMessage() for record in caplog.records if "out of memory" in record.getMessage()]
    assert cell.name.file in said and " 4 " in said
    assert cell.model.is_dir()


def test_a_text_that_does_not_fit_is_one_sentence(trainable_release: Release, tmp_path: Path) -> None:
    cell = tiny_cell("biencoder", trainable_release, tmp_path, steps=4, batch_size=2)
    with memory(0), pytest.raises(UserError, match="one text"):
        systems.system("biencoder").train(cell)
    assert not cell.model.exists()


def test_memory_that_an_evaluation_lacks_is_not_taken_for_that_of_a_step(
    trainable_release: Release, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(InformationRetrievalEvaluator, "__call__", full)
    cell = tiny_cell("biencoder", trainable_release, tmp_path, steps=4, evaluate_every=2, patience=1)
    with pytest.raises(UserError, match="single text"):
        systems.system("biencoder").train(cell)
    cell = tiny_cell("biencoder", trainable_release, tmp_path, steps=4, mine_every=2, mine_depth=5)
    monkeypatch.setattr(Dense, "search", full)
    with pytest.raises(UserError, match=f"{cell.name.file}.* encode_batch"):
        systems.system("biencoder").train(cell)


def test_memory_that_the_optimiser_or_the_model_lacks(
    trainable_release: Release, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    step, failed = torch.optim.AdamW.step, []

    def full_once(self: torch.optim.AdamW, *arguments: Any) -> Any:
        if not failed:
            failed.append(self)
            raise torch.OutOfMemoryError("CUDA out of memory")
        return step(self, *arguments)

    monkeypatch.setattr(torch.optim.AdamW, "step", full_once)
    cell = tiny_cell("biencoder", trainable_release, tmp_path, steps=1)
    assert systems.system("biencoder").train(cell)["mini_batch_size"] == 4
    cell = tiny_cell("biencoder", trainable_release, tmp_path, steps=2)
    full = Mock(side_effect=torch.OutOfMemoryError("CUDA out of memory"))
    monkeypatch.setattr(transformers.Trainer, "_move_model_to_device", full)
    with pytest.raises(UserError, match=f"the model of {cell.name.file}"):
        systems.system("biencoder").train(cell)


def test_a_loss_is_logged_by_the_first_evaluation(tmp_path: Path) -> None:
    options = tiny_options("static", steps=4_000, evaluate_every=3, patience=1)
    assert trainer._arguments(options, 0, 4_000, tmp_path)["logging_steps"] <= 3
