"""``python -m bench.training``: our training beside the same model, data and loss in the library's plain trainer.

Both run on one thread and in turn; the plain trainer is sentence-transformers' own, with texts in memory and neither
checkpoints nor logs. Replaces the part ``training`` of ``bench/results/baselines.json``.
"""

import contextlib
import io
import os
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from msgspec.structs import replace

from baselines import config, systems
from baselines.cells.cell import Cell
from baselines.options import Trained
from baselines.training.session import Session
from baselines.training.trainer import Parts
from bench.measuring import Figures, in_turn, keep
from bench.rehearsal import release as made_up
from bench.rehearsal.sizes import Sizes
from eval_kit.release import Release, open_release
from eval_kit.runs import names

NEURAL = ("biencoder", "splade", "colbert", "monobert")
PASSAGES, QUERIES, STEPS, REPEATS = 5_000, 1_000, 60, 5
CHECKPOINT_EVERY = 50
"""Checkpoints are twice as frequent as in the mini config, to make their cost visible."""


class Clock:
    """Times a training from the end of its first step to the end of its last; called with each step.

    On a GPU it waits for queued work at these two steps only.
    """

    def __init__(self, steps: int) -> None:
        self.steps = steps
        self._at: dict[int, Figures] = {}

    def __call__(self, step: int) -> None:
        """Record the time, if this is one of the two steps."""
        import torch

        if step in (1, self.steps):
            if torch.cuda.is_available():
                torch.cuda.synchronize()
            self._at[step] = {"wall_s": time.perf_counter(), "cpu_s": time.process_time()}

    def figures(self, batch: int) -> Figures:
        """Seconds between the two steps, and samples per second."""
        seconds = {name: self._at[self.steps][name] - start for name, start in self._at[1].items()}
        return seconds | {"samples_per_second": (self.steps - 1) * batch / seconds["wall_s"]}


def ours(cell: Cell) -> Figures:
    """Train the cell as the grid does, from scratch."""
    shutil.rmtree(cell.folder, ignore_errors=True)
    clock = Clock(cell.options_as(Trained).steps)
    systems.system(cell.name.system).train(cell, lambda progress: clock(progress["step"]))
    return clock.figures(cell.options_as(Trained).batch_size)


def peer(cell: Cell, folder: Path) -> Figures:
    """The same training by :func:`plain_trainer`, with the final model saved in ``folder``."""
    from transformers import TrainerCallback, set_seed

    clock = Clock(cell.options_as(Trained).steps)

    class Timer(TrainerCallback):
        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            clock(state.global_step)

    shutil.rmtree(folder, ignore_errors=True)
    system: Any = systems.system(cell.name.system)
    session = Session(cell, system.retriever)
    set_seed(cell.name.seed)
    parts = system.build(session, None)
    trainer = plain_trainer(cell, parts, folder / "training")
    trainer.add_callback(Timer())
    with contextlib.redirect_stdout(io.StringIO()):
        trainer.train()
        parts.model.save_pretrained(str(folder / "model"), create_model_card=False)
    return clock.figures(cell.options_as(Trained).batch_size)


def plain_trainer(cell: Cell, parts: Parts, folder: Path) -> Any:
    """The library's own trainer with its defaults: texts in memory, no checkpoints, no logs."""
    from datasets import Dataset
    from sentence_transformers.sentence_transformer.training_args import BatchSamplers
    from transformers.trainer_callback import PrinterCallback

    options = cell.options_as(Trained)
    texts = Dataset.from_dict(parts.dataset[: len(parts.dataset)])
    arguments = parts.trainer.training_args_class(
        output_dir=str(folder),
        max_steps=options.steps,
        per_device_train_batch_size=options.batch_size,
        learning_rate=options.learning_rate,
        warmup_steps=options.warmup,
        weight_decay=options.weight_decay,
        seed=cell.name.seed,
        batch_sampler=BatchSamplers.NO_DUPLICATES,
        router_mapping={name: "query" if name == "query" else "document" for name in texts.column_names},
        dataloader_pin_memory=False,
        save_strategy="no",
        logging_strategy="no",
        report_to="none",
        disable_tqdm=True,
    )
    trainer = parts.trainer(
        model=parts.model, args=arguments, train_dataset=texts, loss=parts.loss, callbacks=list(parts.callbacks)
    )
    trainer.remove_callback(PrinterCallback)
    return trainer


def measure(folder: Path, queries: int = QUERIES, steps: int = STEPS, repeats: int = REPEATS) -> dict[str, Any]:
    """Each neural system of the mini config, trained by us and by the plain trainer in turn."""
    made_up.make(folder / "release", Sizes(PASSAGES, queries, test=40, validation=20, examples=1), negatives=True)
    release = open_release(folder / "release")
    figures = {}
    for system in NEURAL:
        cell = mini_cell(system, release, folder, steps)
        plain = folder / "plain" / system
        calls = {"ours": lambda cell=cell: ours(cell), "peer": lambda cell=cell, plain=plain: peer(cell, plain)}
        figures[system] = {
            "steps": cell.options_as(Trained).steps,
            "batch_size": cell.options_as(Trained).batch_size,
            "checkpoint_every": CHECKPOINT_EVERY,
            **in_turn(calls, repeats),
            "largest_weight_difference": weight_difference(cell.model, plain / "model"),
        }
    return {"training": figures, "repeats": repeats}


def mini_cell(system: str, release: Release, root: Path, most_steps: int) -> Cell:
    """The cell of the topic shift that never sees c0, with the mini config's options."""
    options = config.load("mini")[system]
    assert isinstance(options, Trained) and options.steps is not None
    fewer = replace(options, steps=min(options.steps, most_steps), checkpoint_every=CHECKPOINT_EVERY)
    return Cell(names.RunName(system, "topic", "c0"), release, fewer, root)


def weight_difference(model: Path, peer: Path) -> float:
    """The greatest difference between the weights of two saved models; 0 if both trainings did the same."""
    from safetensors.numpy import load_file

    differences = []
    for path in sorted(model.rglob("*.safetensors")):
        weights, weights_of_peer = load_file(path), load_file(peer / path.relative_to(model))
        differences += [float(np.abs(weights[name] - weights_of_peer[name]).max()) for name in weights]
    return max(differences)


def main() -> None:
    """Measure on one thread, print and keep the figures."""
    import torch

    os.environ["TQDM_DISABLE"] = "1"
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        keep("training", measure(Path(folder)))


if __name__ == "__main__":
    main()
