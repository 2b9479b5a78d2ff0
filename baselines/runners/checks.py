"""Checks before a grid starts for what would stop it after hours: its models and its GPUs."""

from collections.abc import Sequence

from baselines.cells.cell import Cell
from baselines.options import Colbert, Trained
from baselines.training.distillation import ARCHITECTURES
from eval_kit.files import checkpoint
from eval_kit.search.gpus import refuse_old_gpus, refuse_small_gpus
from eval_kit.search.late import engine_for
from eval_kit.search.passages import how_many


def refuse(cells: Sequence[Cell]) -> None:
    """Refuse a grid that cannot finish.

    Raises:
        UserError: a backbone or teacher that neither the Hub nor the cache has; a backbone that is no transformer; a
            teacher of another architecture; a GPU that is too old, or too small for PLAID's index.
    """
    unfinished_cells = [cell for cell in cells if not cell.is_finished]
    trained = [cell.options for cell in unfinished_cells if isinstance(cell.options, Trained)]
    for backbone in {options.backbone for options in trained}:
        if isinstance(backbone, str):
            checkpoint.check_start(backbone)
    for teacher, distillation in {(options.teacher, options.distillation) for options in trained}:
        if teacher is not None and distillation is not None:
            checkpoint.check(teacher, ARCHITECTURES[distillation])
    if trained:
        refuse_old_gpus(bfloat16=any(options.precision == "bfloat16" for options in trained))
    engines = {options.engine for options in trained if isinstance(options, Colbert)}
    if engines:
        passages = how_many(unfinished_cells[0].release) or 0
        if any(engine_for(passages, engine) == "plaid" for engine in engines):
            refuse_small_gpus(passages)
