"""The grid: every system on every part of every shift, run on as many processes and machines as a runner has."""

import itertools
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from baselines.cells.cell import Cell
from baselines.cells.journal import in_use
from baselines.grid.documents import describe
from baselines.grid.stages import Outcome, publish, retract
from baselines.options import Options, Trained
from eval_kit.files import checkpoint
from eval_kit.models.checkpoints import declared_data
from eval_kit.models.runs import variation_queries
from eval_kit.release import Release
from eval_kit.runs import names
from eval_kit.shifts import BENCHMARKS, CONTROL, SHIFTS, TRAINED_FOR

_SECONDS_BETWEEN_LOOKS = 1.0

type Runner = Callable[[Sequence[Cell]], Iterator[Outcome]]
"""Attempts every cell once and yields how each ended, in any order."""


def cells(
    options: Mapping[str, Options],
    release: Release,
    root: Path,
    shifts: Sequence[str] | None = None,
    seeds: Sequence[int] = (0,),
    control: bool = False,
    variations: Sequence[str] = (),
    benchmarks: bool = True,
) -> list[Cell]:
    """The cells of a grid: for each system, topic 5, wh 3, length 2, ReSTTest 5 and ReSTrain two for each size.

    Args:
        options: of each system, from a checked config.
        release: the one to train and test on.
        root: the grid's folder.
        shifts: which; None for all that the release holds.
        seeds: of training; each makes separate cells.
        control: whether each trained system is also trained on all queries, for :mod:`eval_kit.papers.benchmarks`.
        variations: names as :func:`eval_kit.models.runs.variation_queries` takes them; each cell searches those
            of its test sets.
            ``all``, alone or among them, may match none.
        benchmarks: whether every cell also searches dev and TREC DL.

    Raises:
        UserError: the release does not hold a shift or a variation.
    """
    shift_names = [shift for shift in SHIFTS if shift in release.configs] if shifts is None else shifts
    names_of_variations = (
        list(release.variations) if "all" in variations else variation_queries(release, variations, [])
    )
    grid = []
    for seed, name in itertools.product(seeds, [*shift_names, *([CONTROL.name] if control else [])]):
        shift = TRAINED_FOR[name]
        test_sets = {*shift.test_sets(release), *BENCHMARKS}
        own_variations = tuple(name for name in names_of_variations if release.variations[name].base in test_sets)
        for part, system in itertools.product(shift.parts(release), options):
            if shift is not CONTROL or isinstance(options[system], Trained):
                cell_name = names.RunName(system, name, part, seed)
                grid.append(Cell(cell_name, release, options[system], root, own_variations, benchmarks))
    return grid


def starts(grid: Sequence[Cell]) -> list[str]:
    """A line for each system that begins with pretrained weights: what these were trained on."""
    lines = {}
    for cell in grid:
        backbone = cell.named_models.get("backbone")
        if backbone and not cell.options_as(Trained).random_weights:
            training_data = declared_data(backbone, checkpoint.card(backbone))
            source = "on data that nobody declared" if training_data is None else f"on {', '.join(training_data)}"
            lines[cell.name.system] = f"{cell.name.system} starts from {backbone}, which was trained {source}"
    return [*lines.values()]


def run(grid: Sequence[Cell], runner: Runner) -> Iterator[Outcome]:
    """Run what is left of a grid, and yield how each cell ended: ``done`` or ``failed``.

    Cells that another process is running are waited for; if it dies, they are resumed here.

    Raises:
        UserError: the grid's folder cannot be made.
    """
    for cell in grid:
        describe(cell)
        retract(cell)
    waiting = {cell.name: cell for cell in grid}
    while waiting:
        for cell_name, cell in list(waiting.items()):
            if cell.is_finished:
                publish(cell)
                del waiting[cell_name]
                yield Outcome(cell_name, "done")
        free = [cell for cell in waiting.values() if not in_use(cell.folder)]
        for outcome in runner(free) if free else ():
            if outcome.state != "in use":
                del waiting[outcome.name]
                yield outcome
        if waiting and not free:
            time.sleep(_SECONDS_BETWEEN_LOOKS)
