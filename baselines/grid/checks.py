"""Checks before a grid starts for what would stop it after hours."""

from collections.abc import Sequence

from baselines.cell import Cell
from baselines.options import Trained
from baselines.training.distillation import ARCHITECTURES
from baselines.training.queries import updates
from eval_kit.files import checkpoint


def refuse(cells: Sequence[Cell]) -> None:
    """Refuse a grid that cannot finish."""
    trained = [cell.options for cell in cells if not cell.is_finished and isinstance(cell.options, Trained)]
    for backbone in {options.backbone for options in trained}:
        if isinstance(backbone, str):
            checkpoint.check_start(backbone)
    for teacher, distillation in {(options.teacher, options.distillation) for options in trained}:
        if teacher is not None and distillation is not None:
            checkpoint.check(teacher, ARCHITECTURES[distillation])
    for cell in cells:
        if not cell.is_finished and {"mine_every", "evaluate_every"} & cell.options.as_json().keys():
            updates(cell)
