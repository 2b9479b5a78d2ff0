"""Cells that several processes train together: real ones, without GPUs (gloo)."""

import json
import multiprocessing
import os
import re
import signal
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch.distributed.launcher import api
from transformers.models.bert.modeling_bert import BertEmbeddings

from baselines import systems
from baselines.cells.cell import Cell
from baselines.grid import torchrun
from baselines.grid.documents import describe
from baselines.grid.stages import Outcome, run_cell
from baselines.runners import local
from baselines.training.losses import gathered_flops
from baselines.training.trainer import MINI_BATCH, rank, share_of
from eval_kit.errors import UserError
from eval_kit.release import Release
from tests.baselines.tiny_cells import tiny_cell

pytestmark = pytest.mark.slow

IMPORTED = [f"sentence_transformers.{name}.trainer" for name in ("sparse_encoder", "cross_encoder", "base")]


@pytest.fixture
def forked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes that begin with the large imports behind them; torchrun takes ten seconds to start each anew."""
    multiprocessing.set_forkserver_preload([*IMPORTED, "baselines.training.trainer", "baselines.grid.torchrun"])
    monkeypatch.setattr(api, "LaunchConfig", partial(api.LaunchConfig, start_method="forkserver"))


def weights(cell: Cell) -> dict[str, torch.Tensor]:
    return load_file(cell.model / "model.safetensors")


def test_two_processes_share_the_batches_of_one(trainable_release: Release, tmp_path: Path):
    alone = {"negatives": 1, "in_batch_negatives": 0, "steps": 12}  # the loss of an example sees no other
    one, two = (tiny_cell("monobert", trainable_release, tmp_path / name, **alone) for name in ("one", "two"))
    assert run_cell(one).state == "done"
    describe(two)
    [outcome] = local.run([two], workers=1, threads=1, processes=2)
    assert outcome == Outcome(two.name, "done"), (two.folder / "log.txt").read_text()
    facts = [json.loads((cell.folder / "done.json").read_text())["training"] for cell in (one, two)]
    assert [one["processes"] for one in facts] == [1, 2]
    assert facts[0]["batch_size"] == facts[1]["batch_size"] == 8
    assert facts[0]["losses"] == pytest.approx(facts[1]["losses"], abs=1e-4)
    expected, trained = weights(one), weights(two)
    del expected["classifier.bias"], trained["classifier.bias"]  # no softmax depends on it: Adam steps by its rounding
    torch.testing.assert_close(trained, expected, atol=2e-3, rtol=0)  # Adam makes much of a last digit


WEIGHTS = torch.arange(12.0).reshape(4, 3)
"""Of three terms in four texts."""


def train_and_regularise(cell: Cell, connection: Connection) -> dict[str, Any]:
    """In a trainer's process: the training, then FLOPS of two of the four texts, with its gradient."""
    facts = torchrun.in_this_process(cell, connection)
    own = WEIGHTS.split(2)[rank()].clone().requires_grad_()
    flops = gathered_flops(torch.nn.Module()).compute_loss_from_embeddings(own)
    flops.backward()
    return facts | {"flops": flops.item(), "gradient": own.grad.tolist()}


@pytest.mark.usefixtures("forked")
def test_two_processes_gather_what_one_has(trainable_release: Release, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    one, two = (tiny_cell("biencoder", trainable_release, tmp_path / name, steps=6) for name in ("one", "two"))
    expected = systems.system("biencoder").train(one)
    monkeypatch.setattr(torchrun, "in_this_process", train_and_regularise)
    facts = torchrun.train(two, 2, lambda at: None)
    assert facts["losses"] == pytest.approx(expected["losses"], abs=1e-4)
    for name, trained in weights(two).items():
        torch.testing.assert_close(trained, weights(one)[name], atol=2e-3, rtol=0)  # Adam makes much of a last digit
    means = WEIGHTS.mean(dim=0)
    assert facts["flops"] == means.square().sum()
    assert facts["gradient"] == [(2 * (2 * means / 4)).tolist()] * 2  # of both, of which DDP takes the mean


def train_and_say_which_process(cell: Cell, connection: Connection) -> dict[str, Any]:
    """In a trainer's process: its number is written for who would kill it."""
    cell.folder.mkdir(parents=True, exist_ok=True)
    (cell.folder / f"pid-{rank()}").write_text(str(os.getpid()))
    return torchrun.in_this_process(cell, connection)


@pytest.mark.usefixtures("forked")
def test_progress_comes_from_the_first_and_a_killed_process_ends_the_others(
    trainable_release: Release, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(torchrun, "in_this_process", train_and_say_which_process)
    cell = tiny_cell("biencoder", trainable_release, tmp_path, steps=12, checkpoint_every=5)
    seen: list[int] = []

    def kill_one(at: dict[str, Any]) -> None:
        seen.append(at["step"])
        if at["step"] == 7:
            os.kill(int((cell.folder / "pid-1").read_text()), signal.SIGKILL)

    with pytest.raises(UserError, match=r"one of 2 processes was ended: .*SIGKILL|[Cc]onnection"):
        torchrun.train(cell, 2, kill_one)
    assert seen[:7] == [1, 2, 3, 4, 5, 6, 7]
    assert not cell.model.exists()
    seen.clear()
    facts = torchrun.train(cell, 2, lambda at: seen.append(at["step"]))
    assert seen == list(range(seen[0], 13))
    assert seen[0] in (6, 11)
    assert facts["steps"] == 12
    assert cell.model.is_dir()


def train_with_a_small_second_gpu(cell: Cell, connection: Connection) -> dict[str, Any]:
    """In a trainer's process: the second one's memory holds the activations of a single text."""
    forward = BertEmbeddings.forward

    def limited(module: Any, *inputs: Any, **named: Any) -> Any:
        if rank() == 1 and torch.is_grad_enabled() and len(named["input_ids"]) > 1:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return forward(module, *inputs, **named)

    BertEmbeddings.forward = limited  # type: ignore[method-assign]
    return torchrun.in_this_process(cell, connection)


@pytest.mark.usefixtures("forked")
def test_all_go_on_in_mini_batches_when_one_runs_out_of_memory(
    trainable_release: Release, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(torchrun, "in_this_process", train_with_a_small_second_gpu)
    cell = tiny_cell("biencoder", trainable_release, tmp_path, steps=4, batch_size=4)
    facts = torchrun.train(cell, 2, lambda at: None)
    assert (facts["batch_size"], facts["mini_batch_size"], facts["processes"], facts["steps"]) == (4, 1, 2, 4)


def train_with_a_small_gpu_for_evaluations(cell: Cell, connection: Connection) -> dict[str, Any]:
    """In a trainer's process: an evaluation may encode eight texts at once on the rank that the grid is named after."""
    from sentence_transformers import SentenceTransformer

    inference = SentenceTransformer._inference

    def limited(model: Any, inputs: Any, **options: Any) -> Any:
        with (cell.folder / f"sizes-{rank()}").open("a") as sizes:
            sizes.write(f"{options['batch_size']}\n")
        if rank() == int(cell.root.name) and options["batch_size"] > 8:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return inference(model, inputs, **options)

    SentenceTransformer._inference = limited  # type: ignore[method-assign]
    return torchrun.in_this_process(cell, connection)


@pytest.mark.usefixtures("forked")
@pytest.mark.parametrize("short", [0, 1])
def test_an_evaluation_goes_on_with_less_at_once_when_either_runs_out_of_memory(
    trainable_release: Release, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, short: int
):
    monkeypatch.setattr(torchrun, "in_this_process", train_with_a_small_gpu_for_evaluations)
    options = {"steps": 4, "evaluate_every": 2, "patience": 3, "encode_batch": 32}
    cell = tiny_cell("biencoder", trainable_release, tmp_path / str(short), **options)
    facts = torchrun.train(cell, 2, lambda at: None)
    assert (facts["steps"], facts["mini_batch_size"], facts["processes"]) == (4, None, 2)
    assert facts["best_step"] in (2, 4) and facts["best"] >= 0
    for process in (0, 1):
        sizes = list(map(int, (cell.folder / f"sizes-{process}").read_text().split()))
        assert sizes[:4] == [8, 32, 16, 8] and set(sizes[4:]) == {8}  # the first looks at the backbone


@pytest.mark.usefixtures("forked")
@pytest.mark.parametrize("mini_batch", [None, 2])
@pytest.mark.parametrize("system", ["splade", "colbert"])
def test_three_processes_have_the_losses_of_one(
    trainable_release: Release, tmp_path: Path, system: str, mini_batch: int | None
):
    """SPLADE gathers its regularisation, ColBERT embeddings of different lengths."""
    options = {"batch_size": 12, "steps": 4}
    one, three = (tiny_cell(system, trainable_release, tmp_path / name, **options) for name in ("one", "three"))
    for cell in (one, three) if mini_batch else ():
        (cell.folder / "training").mkdir(parents=True)
        (cell.folder / "training" / MINI_BATCH).write_text(str(mini_batch))
    expected, facts = systems.system(system).train(one), torchrun.train(three, 3, lambda at: None)
    assert (facts["processes"], facts["mini_batch_size"], facts["batch_size"]) == (3, mini_batch, 12)
    assert facts["losses"] == pytest.approx(expected["losses"], abs=1e-4)


def test_a_batch_that_cannot_be_shared_is_one_sentence(
    trainable_release: Release, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("WORLD_SIZE", "2")
    cell = tiny_cell("biencoder", trainable_release, tmp_path, batch_size=5)
    with pytest.raises(UserError, match=f"{cell.name.file}: 2 processes cannot share a batch of 5 equally"):
        systems.system("biencoder").train(cell)


def test_processes_that_would_train_another_model_are_refused(trainable_release: Release, tmp_path: Path):
    distilled = {"distillation": "kl", "teacher": "none"}
    for processes, options, reason in (
        (4, {"share": 4}, "4 processes train on 2 queries each, which the option share (4) does not divide"),
        (2, distilled, "distillation by kl is over all passages of a batch; train it in one process"),
    ):
        cell = tiny_cell("splade", trainable_release, tmp_path, **options)
        with pytest.raises(UserError, match=re.escape(f"{cell.name.file}: {reason}")):
            torchrun.train(cell, processes, lambda at: None)
    assert not list(tmp_path.iterdir())
    assert share_of(tiny_cell("splade", trainable_release, tmp_path, share=4), 2) == 4
