"""Hard negatives mined by the model itself while it trains.

Every ``mine_every`` steps the current model searches all passages for its training queries; the highest-ranked ones
not judged relevant are the negatives from then on, as in ANCE. With ``static_negatives`` this happens once, and random
ones stay beside them, as in STAR (Zhan et al., 2021); ADORE, which searches at every step, is
:mod:`baselines.training.adore`.
"""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import polars as pl

from baselines.cell import Cell
from baselines.options import Trained
from baselines.training.queries import Lookup, MinedNegatives, passage_texts
from eval_kit.errors import UserError
from eval_kit.files import atomic
from eval_kit.search.encoders import is_out_of_memory
from eval_kit.search.examples import JudgedQueries
from eval_kit.search.retriever import Retriever

type Opener = Callable[..., Retriever]
"""Takes a saved model and the options of its system."""


def miner(cell: Cell, every: int, examples: JudgedQueries, lookup: Lookup, opener: Opener) -> Any:
    """A callback that mines every so many steps, and after a resume restores the negatives last mined.

    What was mined is kept beside the checkpoints.
    """
    from transformers import TrainerCallback

    once = cell.options_as(Trained).static_negatives is not None

    def last_mined(step: int) -> int:
        """The step of those in force."""
        return min(step // every, 1) * every if once else step // every * every

    class Miner(TrainerCallback):
        def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            folder = Path(args.output_dir)
            # the loader is one batch ahead: that batch was made before this step's passages were mined
            step = state.global_step
            lookup.mined_negatives = _read(folder, last_mined(step - 1))
            lookup.mined_next = _read(folder, step) if step == last_mined(step) else None

        def on_step_end(self, args: Any, state: Any, control: Any, model: Any = None, **_: Any) -> None:
            if state.global_step == args.max_steps or state.global_step != last_mined(state.global_step):
                return
            folder = Path(args.output_dir)
            path = _path(folder, state.global_step)
            if not path.exists():
                negatives = _negatives(cell, examples, model, folder / "mining", opener)
                atomic.write_text(path, json.dumps(negatives))
            lookup.mined_negatives = _read(folder, state.global_step)

    return Miner()


def _negatives(cell: Cell, examples: JudgedQueries, model: Any, folder: Path, opener: Opener) -> dict[str, list[str]]:
    import torch

    shutil.rmtree(folder, ignore_errors=True)
    queries = pl.DataFrame({"query_id": list(examples.texts), "text": list(examples.texts.values())})
    options = cell.options_as(Trained)
    try:
        with torch.random.fork_rng():  # mining leaves the random numbers as they are: a resumed training mines no more
            model.save_pretrained(str(folder / "model"), create_model_card=False)
            retriever = opener(folder / "model", options.as_json())
            retriever.index(passage_texts(cell), folder / "index")
            negatives = {}
            for query, hits in retriever.search(queries, folder / "index", options.mine_depth):
                negatives[query] = [passage for passage, _ in hits if passage not in examples.positives[query]]
    except RuntimeError as error:  # says nothing about the size of a step
        if not is_out_of_memory(error):
            raise
        what = f"The GPU ran out of memory while it mined negatives for {cell.name.file}"
        raise UserError(what, do="Lower encode_batch") from error
    shutil.rmtree(folder)
    return negatives


def _read(folder: Path, step: int) -> MinedNegatives | None:
    if step <= 0:
        return None
    return msgspec.json.decode(_path(folder, step).read_bytes(), type=dict[str, list[str]])


def _path(folder: Path, step: int) -> Path:
    return folder / f"mined-{step}.json"
