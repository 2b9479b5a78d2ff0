"""The grid: a list of cells, every system on every part of every shift, done in order."""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from filelock import Timeout

from baselines.cell import Cell
from baselines.grid.documents import describe
from baselines.grid.work import attempt, retract
from baselines.options import Options, Trained
from eval_kit.errors import UserError
from eval_kit.files import checkpoint
from eval_kit.models.checkpoints import declared_data
from eval_kit.models.runs import variation_queries
from eval_kit.release import Release
from eval_kit.runs import names
from eval_kit.sentences import joined
from eval_kit.shifts import BENCHMARKS, CONTROL, SHIFTS, TRAINED_FOR


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

    ``shifts`` may be parts of them, such as ``topic.c0`` and ``restrain.45k``; None stands for all that the release
    holds. Each seed makes cells of its own, and each cell searches those of the ``variations`` that are of its test
    sets (``all`` may match none). ``control`` adds models trained on all queries, for :mod:`eval_kit.papers.beside`;
    ``benchmarks`` adds dev and TREC DL to every search.
    """
    shift_names = [shift for shift in SHIFTS if shift in release.configs] if shifts is None else shifts
    names_of_variations = (
        list(release.variations) if "all" in variations else variation_queries(release, variations, [])
    )
    grid = []
    for seed, listed in itertools.product(seeds, [*shift_names, *([CONTROL.name] if control else [])]):
        name, _, only = listed.partition(".")
        shift = TRAINED_FOR[name]
        test_sets = {*shift.test_sets(release), *BENCHMARKS}
        own_variations = tuple(name for name in names_of_variations if release.variations[name].base in test_sets)
        parts = [part for part in shift.parts(release) if only in ("", part, part.partition("_")[2])]
        if only and not parts:
            raise UserError(f"{release.folder} has no part {only} of {name}", do="Choose its shifts with --shift")
        for part, system in itertools.product(parts, options):
            if shift is not CONTROL or isinstance(options[system], Trained):
                cell_name = names.RunName(system, name, part, seed)
                start = options.get(getattr(options[system], "starts_from", None) or "")
                grid.append(Cell(cell_name, release, options[system], root, own_variations, benchmarks, start))
    return grid


def starts(grid: Sequence[Cell]) -> list[str]:
    """A line for each system that begins with pretrained weights: what these were trained on."""
    lines = {}
    for cell in grid:
        backbone = cell.named_models.get("backbone")
        if backbone and cell.start is None and not cell.options_as(Trained).random_weights:
            training_data = declared_data(backbone, checkpoint.card(backbone))
            source = "whose training data nobody declared"
            if training_data is not None:
                source = f"which was trained on {joined(training_data) or 'no queries'}"
            lines[cell.name.system] = f"{cell.name.system} starts from {backbone}, {source}"
    return [*lines.values()]


def prepare(grid: Sequence[Cell]) -> None:
    """Make the cells' folders, and take the files of cells with other options out of the grid's."""
    for cell in grid:
        describe(cell)
        retract(cell)


def run(grid: Sequence[Cell]) -> Iterator[tuple[Cell, str | None]]:
    """Do what is left of a grid in this process, and yield each cell as it ends, with why it failed, if it did.

    Cells that another process has are left for the end; if it has not done them by then, they are done here.
    """
    prepare(grid)
    elsewhere = []
    for cell in grid:
        try:
            failure = attempt(cell, wait=False)
        except Timeout:
            elsewhere.append(cell)
        else:
            yield cell, failure
    for cell in elsewhere:
        yield cell, attempt(cell)


def ended(cell: Cell, failure: str | None) -> str:
    """How a cell ended, in a line."""
    return f"{cell.name.file.removesuffix('.trec')}: {'done' if failure is None else f'failed: {failure}'}"
