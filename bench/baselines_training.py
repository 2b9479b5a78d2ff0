"""Our training and encoding beside the same model, data and loss in a plain sentence-transformers trainer."""

import contextlib
import io
import itertools
import shutil
import time
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

from baselines import config, systems
from baselines.grid.cell import Cell
from baselines.training.trainer import Build, Parts
from bench.baselines_data import mini_release
from bench.turns import Figures, in_turn, medians, overhead, timed
from eval_kit.release import Release
from eval_kit.runs import names
from search.passages import passages
from search.retriever import Retriever

NEURAL = ("biencoder", "splade", "colbert", "monobert")
ENCODERS = {"biencoder": "SentenceTransformer", "splade": "SparseEncoder", "colbert": "MultiVectorEncoder"}
PLACE = ("topic", "c0")
STEPS, CHECKPOINT_EVERY = 60, 50
"""Checkpoints are twice as frequent as in the mini config."""
WARM_UP_STEPS = 3


class Clock:
    """Times a training from the end of step ``first`` to the end of the last step; called with each step.

    On a GPU it waits for queued work at these two steps only.
    """

    def __init__(self, steps: int, first: int = 1) -> None:
        self.steps, self.first = steps, first
        self._at: dict[int, tuple[float, float]] = {}

    def __call__(self, step: int) -> None:
        """Record the time, if this is one of the two steps."""
        import torch

        if step in (self.first, self.steps):
            if torch.cuda.is_available():
                torch.cuda.synchronize()
            self._at[step] = (time.perf_counter(), time.process_time())

    def figures(self, batch: int) -> Figures:
        """Seconds between the two steps, and samples per second."""
        (wall, cpu), (wall_end, cpu_end) = self._at[self.first], self._at[self.steps]
        samples = (self.steps - self.first) * batch
        return {
            "wall_s": wall_end - wall,
            "cpu_s": cpu_end - cpu,
            "samples_per_second": samples / (wall_end - wall),
            "samples_per_cpu_second": samples / (cpu_end - cpu),
        }


def ours(cell: Cell) -> Figures:
    """Train the cell as the grid does, from scratch."""
    shutil.rmtree(cell.folder, ignore_errors=True)
    clock = Clock(cell.options["steps"])
    began = time.perf_counter()
    systems.system(cell.name.system).train(cell, lambda progress: clock(progress["step"]))
    whole = time.perf_counter() - began
    figures = clock.figures(cell.options["batch_size"])
    return figures | {"outside_s": whole - figures["wall_s"]}


def parts_of(cell: Cell) -> Build:
    """The builder of model, data and loss for the cell's training, which is not begun."""
    caught: list[Build] = []

    def catch(cell: Cell, steps: int, build: Build, progress: Any = None) -> dict[str, Any]:
        caught.append(build)
        return {}

    with patch("baselines.training.session.fit", catch):
        systems.system(cell.name.system).train(cell)
    return caught[0]


def plain_trainer(cell: Cell, parts: Parts, folder: Path, steps: int) -> Any:
    """The library's own trainer with its defaults: texts in memory, no checkpoints, no logs."""
    from datasets import Dataset
    from sentence_transformers.sentence_transformer.training_args import BatchSamplers
    from transformers.trainer_callback import PrinterCallback

    options = cell.options
    precision = options.get("precision", "float32")
    texts = Dataset.from_dict(parts.dataset[: len(parts.dataset)])
    trainer = parts.trainer(
        model=parts.model,
        args=parts.arguments(
            output_dir=str(folder),
            max_steps=steps,
            per_device_train_batch_size=options["batch_size"],
            learning_rate=options["learning_rate"],
            warmup_steps=options["warmup"],
            weight_decay=options.get("weight_decay", 0.0),
            bf16=precision == "bfloat16",
            fp16=precision == "float16",
            seed=cell.name.seed,
            batch_sampler=BatchSamplers.NO_DUPLICATES,
            router_mapping={name: "query" if name == "query" else "document" for name in texts.column_names},
            dataloader_pin_memory=False,
            save_strategy="no",
            logging_strategy="no",
            report_to="none",
            disable_tqdm=True,
        ),
        train_dataset=texts,
        loss=parts.loss,
        callbacks=list(parts.callbacks),
    )
    trainer.remove_callback(PrinterCallback)
    return trainer


def peer(cell: Cell, folder: Path) -> Figures:
    """The same training by :func:`plain_trainer`, with the final model saved to ``folder``."""
    from transformers import TrainerCallback, set_seed

    clock = Clock(cell.options["steps"])

    class Timed(TrainerCallback):
        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            clock(state.global_step)

    shutil.rmtree(folder, ignore_errors=True)
    began = time.perf_counter()
    build = parts_of(cell)
    set_seed(cell.name.seed)
    with patch("baselines.architectures.token_ids.stored", lambda model, passages, prompt=None: passages):
        parts = build(None)  # the peer reads texts
    trainer = plain_trainer(cell, parts, folder / "training", cell.options["steps"])
    trainer.add_callback(Timed())
    with contextlib.redirect_stdout(io.StringIO()):
        trainer.train()
        parts.model.save_pretrained(str(folder / "model"), create_model_card=False)
    whole = time.perf_counter() - began
    figures = clock.figures(cell.options["batch_size"])
    return figures | {"outside_s": whole - figures["wall_s"]}


def training(release: Release, root: Path, repeats: int, most_steps: int) -> dict[str, Any]:
    """Each neural system of the mini config, trained by us and by the plain trainer in turn."""
    figures = {}
    for system in NEURAL:
        cell = _mini_cell(system, release, root, most_steps)
        warm = _mini_cell(system, release, root, WARM_UP_STEPS)
        plain = root / "plain" / system
        calls = {"ours": lambda cell=cell: ours(cell), "peer": lambda cell=cell, plain=plain: peer(cell, plain)}
        if most_steps > WARM_UP_STEPS:
            ours(warm)
            peer(warm, plain)
        turns = in_turn(calls, repeats)
        figures[system] = {
            "steps": cell.options["steps"],
            "batch_size": cell.options["batch_size"],
            "checkpoint_every": CHECKPOINT_EVERY,
            **medians(turns),
            "overhead": overhead(turns),
            "largest_weight_difference": weight_difference(cell.model, plain / "model"),
        }
    return figures


def encoding(release: Release, root: Path, repeats: int, most_steps: int, count: int) -> dict[str, Any]:
    """Encode passages with the models from :func:`training`, into shards and by the library's ``encode`` in turn."""
    import sentence_transformers

    texts = list(itertools.islice(passages(release), count))
    figures = {}
    for system, kind in ENCODERS.items():
        cell = _mini_cell(system, release, root, most_steps)
        loaded = getattr(sentence_transformers, kind)(str(cell.model))
        retriever = systems.system(system).retriever(cell.model, cell.options)
        figures[system] = encoded(retriever, loaded, texts, cell.options["encode_batch"], root, repeats)
    return figures


def encoded(
    retriever: Retriever, loaded: Any, pairs: list[tuple[str, str]], batch: int, root: Path, repeats: int
) -> dict[str, Any]:
    """Passages per second of ``retriever.index`` into a new folder, and of ``loaded.encode_document``."""
    numbers = itertools.count()
    texts = [text for _, text in pairs]

    def index(passages: list[tuple[str, str]] = pairs) -> Figures:
        folder = root / f"shards-{next(numbers)}"
        seconds = timed(lambda: retriever.index(passages, folder))
        shutil.rmtree(folder)
        return seconds

    def encode(passages: list[str] = texts) -> Figures:
        return timed(lambda: loaded.encode_document(passages, batch_size=batch, show_progress_bar=False))

    index(pairs[:64])
    encode(texts[:64])
    turns = in_turn({"ours": index, "peer": encode}, repeats)
    speeds = {
        name: times | {"passages_per_second": len(pairs) / times["wall_s"]} for name, times in medians(turns).items()
    }
    return {"passages": len(pairs), **speeds, "overhead": overhead(turns)}


def measure(root: Path, quick: bool, repeats: int) -> dict[str, Any]:
    """Every measurement of this module, below ``root``."""
    release = mini_release(root / "release" / "ms-marco-shift", 500 if quick else 1_500)
    steps, count = (WARM_UP_STEPS, 100) if quick else (STEPS, 3_000)
    trained = training(release, root / "cells", repeats, steps)
    return {"training": trained, "encoding": encoding(release, root / "cells", repeats, steps, count)}


def cell_of(system: str, release: Release, options: dict[str, Any], root: Path) -> Cell:
    """A cell of the topic shift, with its options checked."""
    checked = config.checked({"systems": {system: options}}, "bench")[system]
    return Cell(names.Cell(system, *PLACE), release, checked, root)


def _mini_cell(system: str, release: Release, root: Path, most_steps: int) -> Cell:
    options = config.load("mini")[system]
    fewer = {"steps": min(options["steps"], most_steps), "checkpoint_every": CHECKPOINT_EVERY}
    return cell_of(system, release, options | fewer, root)


def weight_difference(model: Path, peer: Path) -> float:
    """The greatest difference between the weights of two saved models; 0 if both trainings did the same."""
    from safetensors.numpy import load_file

    differences = []
    for path in sorted(model.rglob("*.safetensors")):
        weights, weights_of_peer = load_file(path), load_file(peer / path.relative_to(model))
        differences += [float(np.abs(weights[name] - weights_of_peer[name]).max()) for name in weights]
    return max(differences)
