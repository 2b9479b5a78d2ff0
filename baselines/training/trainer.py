"""The pattern of all trainings: a sentence-transformers trainer, which evaluates, stops early and resumes by itself.

Here stands what it lacks: a model on disk whole or not at all, batches that do not fit into a GPU's memory, and
checkpoints whose writing was killed.
"""

import json
import logging
import shutil
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from baselines.cell import Cell
from baselines.options import Colbert, Monobert, Trained
from baselines.training.batches import Texts, sampler
from baselines.training.distillation import teacher
from baselines.training.early_stopping import METRIC, evaluator
from baselines.training.mining import Opener, miner
from baselines.training.queries import Lookup, dataset, passage_texts, training, updates
from eval_kit.errors import UserError
from eval_kit.files import atomic
from eval_kit.search.encoders import free_memory

if TYPE_CHECKING:
    from datasets import Dataset
    from transformers import TrainerCallback

LOG = logging.getLogger(__name__)
_LOSSES_LOGGED = 20
"""How many mean losses a training records, at least: a curve can be drawn of a short one too."""
MINI_BATCH = "mini_batch_size.json"
_SMALLER = "Shorten the texts, or use a smaller backbone"
_SCHEDULES = {"linear": "linear", "constant": "constant_with_warmup"}


@dataclass(frozen=True)
class Trainee:
    """What a system trains, made anew for every attempt: ``trainer`` is a class of sentence-transformers."""

    trainer: Any
    model: Any
    loss: Any
    callbacks: "Sequence[TrainerCallback]" = ()


type Build = Callable[[Cell, list[str], int | None], Trainee]
"""Takes a cell, the texts of its training queries, and the number of texts embedded at once; None for whole batches."""


def train_by(build: Build, opener: Opener, cell: Cell, callbacks: "Sequence[TrainerCallback]" = ()) -> dict[str, Any]:
    """Train, and put the model in ``cell.model``, whole or not at all.

    A killed training resumes from its last checkpoint; on a CPU, it gives the same model as if it had not been killed.
    One that does not fit into the GPU's memory resumes from there too, with the same batch embedded in mini-batches
    (GradCache, Gao et al., 2021: the same gradients in less memory), and logs it.

    ``build`` makes the parts, with a loss that embeds the given number of texts at once; it is called after the random
    numbers have been seeded. ``opener`` makes a retriever of a saved model. Checkpoints go to the cell's folder
    ``training``, which is removed in the end. ``callbacks`` come before the training's own. Returns ``steps`` done,
    ``first_loss`` and ``last_loss`` (means over the first and last logged steps), ``losses`` (step → mean),
    ``batch_size``, ``mini_batch_size`` (None where a batch fits), ``device``, ``seconds`` and ``samples_per_second`` of
    the last attempt, ``train_queries``, the number of ``examples`` and the sha256 over their ids, and with early
    stopping ``best_step`` and ``best`` (the metric's value).
    """
    import torch

    folder, conclusion = cell.folder / "training", cell.folder / "training.json"
    if cell.model.is_dir() and conclusion.is_file():
        shutil.rmtree(folder, ignore_errors=True)
        facts: dict[str, Any] = json.loads(conclusion.read_text(encoding="utf-8"))
        return facts
    options, judged = cell.options_as(Trained), training(cell)
    steps = updates(cell, judged)
    of_teacher = teacher(options, cell.commit("teacher"))
    alone = cell.start is not None
    lookup = Lookup(judged.texts, passage_texts(cell), of_teacher, options.static_negatives, alone)
    examples, sha256 = dataset(cell, judged, lookup, steps * options.batch_size)
    of_examples = {"train_queries": len(judged.texts), "examples": len(examples), "examples_sha256": sha256}
    callbacks = [*callbacks]
    if options.mine_every is not None:
        callbacks.append(miner(cell, options.mine_every, judged, lookup, opener))
    stopping = evaluator(cell, lookup.texts)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / MINI_BATCH  # the size that an earlier attempt left to try
    while True:
        mini_batch = int(json.loads(path.read_text(encoding="utf-8"))) if path.is_file() else None
        try:
            parts = partial(build, cell, [*judged.texts.values()], mini_batch)
            model, facts = _attempt(cell, parts, examples, steps, stopping, callbacks)
            facts |= {"mini_batch_size": mini_batch, **of_examples}
            _keep(model, facts, cell)
            shutil.rmtree(folder)
            return facts
        except _StepTooLargeError as error:
            smaller = (mini_batch or options.batch_size) // 2
            if smaller == 0:
                raise UserError(
                    f"The GPU's memory is too small to train {cell.name.file}, even with one text in a mini-batch",
                    do=_SMALLER,
                ) from error
            LOG.warning("The GPU ran out of memory for %s. Mini-batches now have %d texts", cell.name.file, smaller)
            atomic.write_text(path, json.dumps(smaller) + "\n")
        except torch.OutOfMemoryError as error:
            what = f"The GPU's memory is too small for the model of {cell.name.file}"
            raise UserError(what, do="Free the GPU's memory, or use a smaller backbone") from error
        free_memory()


class _StepTooLargeError(Exception):
    """A step did not fit into the GPU's memory."""


def _attempt(
    cell: Cell, build: Callable[[], Trainee], examples: "Dataset", steps: int, evaluator: Any, callbacks: Sequence[Any]
) -> tuple[Any, dict[str, Any]]:
    """Train from the last checkpoint, if any: the model and the facts about it."""
    import torch
    from transformers import EarlyStoppingCallback, set_seed
    from transformers.trainer_callback import PrinterCallback, TrainerState

    options = cell.options_as(Trained)
    set_seed(cell.name.seed)
    parts = build()
    checkpoints = cell.folder / "training" / "checkpoints"
    stopping = [EarlyStoppingCallback(options.patience)] if options.patience is not None else []
    # the others are embedded in groups by length (baselines.training.grouping), which leaves little to save
    passages = passage_texts(cell).of if isinstance(options, Colbert | Monobert) else None
    roles = {name: "query" if name == "query" else "document" for name in examples.column_names}
    prompts = getattr(parts.model, "prompts", {})
    trainer = _without_card(parts.trainer)(
        model=parts.model,
        args=parts.trainer.training_args_class(
            **_arguments(options, cell.name.seed, steps, checkpoints, passages),
            router_mapping=roles,  # gives each role its own length
            prompts={name: prompt for name, role in roles.items() if (prompt := prompts.get(role))},
        ),
        train_dataset=examples,
        loss=parts.loss,
        evaluator=evaluator,
        callbacks=[*callbacks, *parts.callbacks, *stopping],
    )
    trainer.remove_callback(PrinterCallback)
    last, speed = last_checkpoint(checkpoints), {}
    try:
        if last is not None and _is_whole(last):  # the library would do one more step
            trainer.state = TrainerState.load_from_json(f"{last}/trainer_state.json")
            best = trainer.state.best_model_checkpoint if evaluator is not None else last
            trainer._load_from_checkpoint(str(checkpoints / Path(best).name))
        else:
            speed = trainer.train(resume_from_checkpoint=last).metrics
    except torch.OutOfMemoryError as error:
        raise _StepTooLargeError from error
    except Exception as error:
        if last is None or trainer.state.global_step > int(last.rpartition("-")[2]) or isinstance(error, UserError):
            raise
        why = str(error).strip().partition("\n")[0].rstrip(".:")
        raise UserError(f"Training cannot continue from {last}", why, "Remove it to train from the start") from error
    losses = [(entry["step"], entry["loss"]) for entry in trainer.state.log_history if "loss" in entry]
    facts = {
        "steps": trainer.state.global_step,
        "first_loss": losses[0][1],
        "last_loss": losses[-1][1],
        "losses": {str(step): loss for step, loss in losses},
        "batch_size": options.batch_size,
        "device": device(),
        "seconds": speed.get("train_runtime", 0.0),
        "samples_per_second": speed.get("train_samples_per_second", 0.0),
    }
    if evaluator is not None:
        facts |= {"best_step": trainer.state.best_global_step, "best": trainer.state.best_metric}
    return trainer.model, facts


def last_checkpoint(folder: Path) -> str | None:
    """The newest complete checkpoint; the library writes a checkpoint's state last, and takes any for complete."""
    from transformers.trainer_utils import get_last_checkpoint

    last: str | None = None
    while folder.is_dir() and (last := get_last_checkpoint(folder)) is not None:  # type: ignore[no-untyped-call]
        try:
            json.loads(Path(last, "trainer_state.json").read_text(encoding="utf-8"))
            break
        except (OSError, ValueError):
            shutil.rmtree(last)
    return last


def _is_whole(checkpoint: str) -> bool:
    """Whether training ended with this checkpoint: at its last step, or early."""
    state = json.loads(Path(checkpoint, "trainer_state.json").read_text(encoding="utf-8"))
    return bool(state["stateful_callbacks"]["TrainerControl"]["args"]["should_training_stop"])


def _without_card(trainer: Any) -> Any:
    """The library's trainer without its model card, which reads examples and is written at every checkpoint."""

    class WithoutCard(trainer):  # type: ignore[misc]
        def add_model_card_callback(self, default_args_dict: dict[str, Any]) -> None:
            """Add none."""

        def _save(self, output_dir: str | None = None, state_dict: Any = None) -> None:
            self.model.save_pretrained(output_dir or self.args.output_dir, create_model_card=False)

    return WithoutCard


def _arguments(options: Trained, seed: int, steps: int, folder: Path, texts: Texts | None = None) -> dict[str, Any]:
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
        "batch_sampler": sampler(texts),
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


def _keep(model: Any, facts: dict[str, Any], cell: Cell) -> None:
    """Write the facts before the model: a model that exists is finished."""
    with atomic.folder(cell.model) as staging:
        model.save_pretrained(str(staging), create_model_card=False)
        shutil.rmtree(cell.model, ignore_errors=True)
        atomic.write_text(cell.folder / "training.json", json.dumps(facts) + "\n")


def device() -> str:
    """The GPU's name, or cpu: what has not imported torch has no GPU."""
    torch = sys.modules.get("torch")
    return str(torch.cuda.get_device_name()) if torch is not None and torch.cuda.is_available() else "cpu"
