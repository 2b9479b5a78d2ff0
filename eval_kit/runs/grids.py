"""Runs as the cells of a grid, by what their names or whoever gives them say."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from eval_kit.errors import UserError, parameter
from eval_kit.runs.given import Run
from eval_kit.runs.names import RunName
from eval_kit.sentences import counted
from eval_kit.shifts import SHIFTS, check_names


def in_cells(
    runs: Sequence[Run], systems: Sequence[str] = (), shifts: Sequence[str] = (), held_outs: Sequence[str] = ()
) -> list[Run]:
    """The runs with their cells: from the three lists if given, else from their names.

    Each list has an item for each run, in the order of the runs, or one for all of them; give all three or none.
    """
    if systems or shifts or held_outs:
        cells = _listed(len(runs), {"systems": systems, "shifts": shifts, "held_outs": held_outs})
        runs = [replace(run, cell=cell) for run, cell in zip(runs, cells, strict=True)]
    seen: set[RunName] = set()
    for run in runs:
        if run.cell is None:
            absent = "" if run.path is None or Path(run.path).exists() else f"{run} does not exist. "
            raise UserError(
                f"{absent}The name of {run} is not <system>.<shift>.<held-out>.trec, with a shift of "
                f"{', '.join(SHIFTS)}",
                do=f"Rename it, or give {_ALL_THREE}",
            )
        if run.cell in seen:
            raise UserError(f"{run} is a second run of the cell {run.cell.file}", do="Give one of the two")
        seen.add(run.cell)
    return list(runs)


_ALL_THREE = f"{parameter('systems')}, {parameter('shifts')} and {parameter('held_outs')}"


def _listed(runs: int, lists: dict[str, Sequence[str]]) -> list[RunName]:
    for name, values in lists.items():
        if not values:
            raise UserError(f"{parameter(name)} is missing", do=f"Give {_ALL_THREE} together, or none of them")
        if len(values) not in (1, runs):
            raise UserError(
                f"{parameter(name)} was given {len(values)} times for {counted(runs, 'run')}",
                do="Give it once for all of them, or once for each, in their order",
            )
    check_names(lists["shifts"])
    columns = [values if len(values) == runs else list(values) * runs for values in lists.values()]
    return [RunName(*row) for row in zip(*columns, strict=True)]
