"""The pattern of all trainings: a sentence-transformers trainer that resumes, stops early and fits the GPU."""

import json
import logging
import shutil
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from baselines.cells.cell import Cell
from baselines.cells.journal import Report
from baselines.options import Trained
from eval_kit.errors import UserError, in_one_sentence
from eval_kit.files import atomic
from eval_kit.search.encoders import free_memory

if TYPE_CHECKING:
    from datasets import Dataset
    from transformers import TrainerCallback

LOG = logging.getLogger(__name__)
_LOSSES_LOGGED = 20
"""How many mean losses a training records, at least."""
MINI_BATCH = "mini_batch_size.json"
VALIDATION = "validation"
METRIC = f"{VALIDATION}_RR@10"
"""What decides which step is the best: of :mod:`baselines.training.early_stopping`."""
_SCHEDULES = {"linear": "linear", "constant": "constant_with_warmup"}


class StepTooLargeError(Exception):
    """A step did not fit into the GPU's memory."""


@dataclass
class Parts:
    """The parts of one training, made anew for every attempt.

    Attributes:
        trainer: class of :mod:`baselines.training.trainers`.
        model: to be trained.
        loss: of the model.
        dataset: columns in the order of their roles.
        evaluator: on the validation queries; None without early stopping.
        callbacks: the system's own.
    """

    trainer: Any
    model: Any
    loss: Any
    dataset: "Dataset"
    evaluator: Any
    callbacks: "Sequence[TrainerCallback]"


type Build = Callable[[int | None], Parts]
"""Takes the number of texts embedded at once; None for whole batches."""


def fit(cell: Cell, steps: int, build: Build, progress: Report | None = None) -> dict[str, Any]:
    """Train, and put the model in ``cell.model``, whole or not at all.

    A killed training resumes from its last checkpoint; on a CPU, it gives the same model as if it had not been killed.
    One that does not fit into the GPU's memory resumes from there too, with the same batch embedded in mini-batches
    (GradCache, Gao et al., 2021: the same gradients in less memory), and logs it.

    Args:
        cell: with its options; checkpoints go to its folder ``training``, which is removed in the end.
        steps: updates of the weights, unless training ends early.
        build: makes the parts, with a loss that embeds the given number of texts at once, or a batch if given None; it
            is called after the random numbers have been seeded.
        progress: is called with ``step``, ``steps`` and ``loss``.

    Returns:
        ``steps`` done, ``first_loss`` and ``last_loss`` (means over the first and last logged steps), ``losses``
        (step → mean), ``batch_size``, ``mini_batch_size`` (None where a batch fits), ``device``, ``seconds`` and
        ``samples_per_second`` of this attempt, and with early stopping ``best_step`` and ``best`` (the metric's value).

    Raises:
        UserError: the memory does not hold a mini-batch of one text, or the last checkpoint is damaged.
    """
    import torch

    folder, conclusion = cell.folder / "training", cell.folder / "training.json"
    if cell.model.is_dir() and conclusion.is_file():
        shutil.rmtree(folder, ignore_errors=True)
        facts: dict[str, Any] = json.loads(conclusion.read_text(encoding="utf-8"))
        return facts
    folder.mkdir(parents=True, exist_ok=True)
    while True:
        path = folder / MINI_BATCH  # the size that an earlier attempt left to try
        mini_batch = int(json.loads(path.read_text(encoding="utf-8"))) if path.is_file() else None
        try:
            return _attempt(cell, steps, mini_batch, build, folder, progress)
        except StepTooLargeError as error:
            smaller = (mini_batch or cell.options_as(Trained).batch_size) // 2
            if smaller == 0:
                raise UserError(
                    f"{cell.name.file}: the GPU's memory cannot hold a mini-batch of one text beside the model "
                    "and its optimiser; shorten the texts, or take a smaller backbone"
                ) from error
            LOG.warning("%s: out of memory; continuing in mini-batches of %d", cell.name.file, smaller)
            atomic.write_text(path, json.dumps(smaller) + "\n")
        except torch.OutOfMemoryError as error:
            raise UserError(
                f"{cell.name.file}: the GPU's memory cannot hold the model; free it, or take a smaller backbone"
            ) from error
        free_memory()


def _attempt(
    cell: Cell, steps: int, mini_batch: int | None, build: Build, folder: Path, progress: Report | None
) -> dict[str, Any]:
    import torch
    from transformers import EarlyStoppingCallback, set_seed
    from transformers.trainer_callback import PrinterCallback, TrainerState

    options = cell.options_as(Trained)
    set_seed(cell.name.seed)
    parts = build(mini_batch)
    checkpoints = folder / "checkpoints"
    watch = _watch(steps, progress)
    callbacks = [watch, *parts.callbacks]
    if options.patience is not None:
        callbacks.append(EarlyStoppingCallback(options.patience))
    roles = {name: "query" if name == "query" else "document" for name in parts.dataset.column_names}
    prompts = getattr(parts.model, "prompts", {})
    trainer = parts.trainer(
        model=parts.model,
        args=parts.trainer.training_args_class(
            **_arguments(options, cell.name.seed, steps, checkpoints),
            router_mapping=roles,  # gives each role its own length
            prompts={name: prompt for name, role in roles.items() if (prompt := prompts.get(role))},
        ),
        train_dataset=parts.dataset,
        loss=parts.loss,
        evaluator=parts.evaluator,
        callbacks=callbacks,
    )
    trainer.remove_callback(PrinterCallback)
    last = last_checkpoint(checkpoints)
    try:
        if last is not None and _is_whole(last):  # the library would do one more step
            trainer.state = TrainerState.load_from_json(f"{last}/trainer_state.json")
            checkpoint = trainer.state.best_model_checkpoint if parts.evaluator is not None else last
            parts.model.load_state_dict(type(parts.model)(str(checkpoints / Path(checkpoint).name)).state_dict())
        else:
            trainer.train(resume_from_checkpoint=last)
    except torch.OutOfMemoryError as error:
        raise StepTooLargeError from error
    except Exception as error:
        if last is None or watch.steps_done or isinstance(error, UserError):
            raise
        raise UserError(f"{last}: training cannot go on from it, remove it: {in_one_sentence(error)}") from error
    losses = [(entry["step"], entry["loss"]) for entry in trainer.state.log_history if "loss" in entry]
    facts = {
        "steps": trainer.state.global_step,
        "first_loss": losses[0][1],
        "last_loss": losses[-1][1],
        "losses": {str(step): loss for step, loss in losses},
        "batch_size": options.batch_size,
        "mini_batch_size": mini_batch,
        "device": device(),
        "seconds": round(watch.seconds, 3),
        "samples_per_second": round(watch.steps_done * options.batch_size / max(watch.seconds, 1e-9), 2),
    }
    if parts.evaluator is not None:
        facts |= {"best_step": trainer.state.best_global_step, "best": trainer.state.best_metric}
    _keep(trainer.model, facts, cell)
    shutil.rmtree(folder)
    return facts


def last_checkpoint(folder: Path) -> str | None:
    """The newest complete checkpoint; the trainer writes a checkpoint's state last."""
    for checkpoint in sorted(folder.glob("checkpoint-*"), key=lambda path: -int(path.name.rpartition("-")[2])):
        try:
            json.loads((checkpoint / "trainer_state.json").read_text(encoding="utf-8"))
        except (OSError, ValueError):
            shutil.rmtree(checkpoint, ignore_errors=True)
        else:
            return str(checkpoint)
    return None


def _is_whole(checkpoint: str) -> bool:
    """Whether training ended with this checkpoint: at its last step, or early."""
    state = json.loads(Path(checkpoint, "trainer_state.json").read_text(encoding="utf-8"))
    return bool(state["stateful_callbacks"]["TrainerControl"]["args"]["should_training_stop"])


def _arguments(options: Trained, seed: int, steps: int, folder: Path) -> dict[str, Any]:
    every = options.evaluate_every
    # with a teacher or mining, batches are made in the training process
    by_the_model = options.teacher is not None or options.mine_every is not None
    arguments: dict[str, Any] = {
        "output_dir": str(folder),
        "max_steps": steps,
        "per_device_train_batch_size": options.batch_size,
        "accelerator_config": {"non_blocking": device() != "cpu"},  # nothing waits for copies from pinned memory
        "learning_rate": options.learning_rate,
        "warmup_steps": options.warmup,
        "lr_scheduler_type": _SCHEDULES[options.schedule],
        "weight_decay": options.weight_decay,
        "bf16": options.precision == "bfloat16" and device() != "cpu",
        "fp16": options.precision == "float16" and device() != "cpu",
        "seed": seed,
        "batch_sampler": _sampler(),
        "dataloader_num_workers": 0 if by_the_model else options.loader_processes,
        "dataloader_pin_memory": device() != "cpu",
        "logging_strategy": "steps",
        "logging_steps": max(1, min(100, steps // _LOSSES_LOGGED, every or 100)),  # a loss by the first evaluation
        "logging_nan_inf_filter": False,
        "save_strategy": "steps",
        "save_steps": every or options.checkpoint_every,
        "save_total_limit": 1,
        "restore_callback_states_from_checkpoint": True,
        "report_to": "none",
        "disable_tqdm": True,
    }
    if every:
        arguments |= {
            "eval_strategy": "steps",
            "eval_steps": every,
            "load_best_model_at_end": True,
            "metric_for_best_model": METRIC,
            "greater_is_better": True,
        }
    return arguments


def _sampler() -> type:
    """Batches in which no query or passage appears twice, judged by their ids, before there are texts and labels."""
    from sentence_transformers.base.sampler import NoDuplicatesBatchSampler

    class Distinct(NoDuplicatesBatchSampler):
        def __init__(self, dataset: "Dataset", **options: Any) -> None:
            super().__init__(dataset.with_format(None), **options)

    return Distinct


def _watch(steps: int, progress: Report | None) -> Any:
    """A callback that times the training up to its last step and passes on its progress."""
    from transformers import TrainerCallback

    class Watch(TrainerCallback):
        steps_done = 0
        seconds = 0.0
        loss: float | None = None
        _begun = 0.0

        def on_train_begin(self, *_: Any, **__: Any) -> None:
            self._begun = time.monotonic()

        def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, Any] | None = None, **_: Any) -> None:
            self.loss = (logs or {}).get("loss", self.loss)

        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            self.steps_done += 1
            self.seconds = time.monotonic() - self._begun
            if progress is not None:
                progress({"step": state.global_step, "steps": steps, "loss": self.loss})

    return Watch()


def _keep(model: Any, facts: Mapping[str, Any], cell: Cell) -> None:
    """Write the facts before the model: a model that exists is finished."""
    with atomic.folder(cell.model) as staging:
        model.save_pretrained(str(staging), create_model_card=False)
        shutil.rmtree(cell.model, ignore_errors=True)
        atomic.write_text(cell.folder / "training.json", json.dumps(facts) + "\n")


def device() -> str:
    """The GPU's name, or cpu: what has not imported torch has no GPU."""
    torch = sys.modules.get("torch")
    return str(torch.cuda.get_device_name()) if torch is not None and torch.cuda.is_available() else "cpu"
