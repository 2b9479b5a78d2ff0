"""Runs as the cells of a grid, by what their names say."""

from collections.abc import Sequence
from pathlib import Path

from eval_kit.errors import UserError
from eval_kit.runs.given import Run
from eval_kit.runs.names import RunName
from eval_kit.shifts import SHIFTS


def in_cells(runs: Sequence[Run]) -> list[Run]:
    """The runs, each of a cell of its own."""
    seen: set[RunName] = set()
    for run in runs:
        if run.cell is None:
            absent = "" if run.path is None or Path(run.path).exists() else f"{run} does not exist. "
            raise UserError(
                f"{absent}The name of {run} is not <system>.<shift>.<held-out>.trec, with a shift of "
                f"{', '.join(SHIFTS)}",
                do="Rename it",
            )
        if run.cell in seen:
            raise UserError(f"{run} is a second run of the cell {run.cell.file}", do="Give one of the two")
        seen.add(run.cell)
    return list(runs)
