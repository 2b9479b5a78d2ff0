"""``python -m baselines``: the reference systems. Every command only calls the library."""

import re
from pathlib import Path
from typing import Annotated, Literal

import typer

from eval_kit.errors import UserError, reporting
from eval_kit.options import JsonFile, argument, option
from eval_kit.program import commands
from eval_kit.sentences import joined
from eval_kit.shifts import SHIFTS, check_names

_ReleaseOption = Annotated[
    str | None, option("Release folder or Hub id. Default: $MS_MARCO_SHIFT_RELEASE, else ./ms-marco-shift.")
]

app = commands("Train, search and score the reference systems.")
_grid_app = commands("Train, search and score a grid of cells.")
app.add_typer(_grid_app, name="grid")


@_grid_app.command("run")
def run_grid(
    configs: Annotated[
        list[str],
        option(
            "Config: paper, day, mini, nfcorpus or another name in baselines/configs, or a JSON file. Repeatable.",
            None,
            "--config",
        ),
    ],
    out: Annotated[Path, option("Folder of the grid; an existing grid goes on where it stopped.")],
    release: _ReleaseOption = None,
    system: Annotated[list[str] | None, option("Train and run only this system. Repeatable.")] = None,
    backbone: Annotated[
        str | None, option("Start transformers from this Hub id or folder instead of the config's.")
    ] = None,
    precision: Annotated[
        Literal["float32", "bfloat16", "float16"] | None,
        option("Training precision on a GPU. Default: from the config, or float16 on cards without bfloat16."),
    ] = None,
    shift: Annotated[list[str] | None, option(f"Train only for this shift ({', '.join(SHIFTS)}). Repeatable.")] = None,
    seed: Annotated[list[int] | None, option("Training seed. Repeatable. Default: 0.", min=0, max=2**32 - 1)] = None,
    part: Annotated[
        str,
        option(
            "Run only one part of the cells, for an array of jobs: 3/8 is every eighth cell from the third. Of several "
            "GPUs it takes the third.",
            "I/N",
        ),
    ] = "1/1",
    threads: Annotated[
        int, option("Number of threads per process. Changing it may change the last digits of scores.", min=1, max=1024)
    ] = 1,
    by_ray: Annotated[
        bool, option("Run the cells at once on a Ray cluster, or by Ray on this machine.", None, "--ray")
    ] = False,
    check: Annotated[
        bool, option("Check the models and exit; negatives need not be drawn yet.", None, "--check")
    ] = False,
) -> None:
    """Run every cell that is not finished, one after the other. Exit status 1 if one fails."""
    from baselines.environment import restrict

    first, step = _part(part)
    if not by_ray:
        restrict(threads, first - 1)

    from baselines import config
    from baselines.grid import candidates, checks, grid
    from baselines.grid.status import changes
    from baselines.options import Trained
    from baselines.runners import ray
    from eval_kit.release import open_release
    from eval_kit.search.examples import refuse_without_negatives
    from eval_kit.search.gpus import instead_of_bfloat16

    shifts, seeds = list(dict.fromkeys(shift or ())), list(dict.fromkeys(seed or (0,)))
    check_names(shifts, "--shift")
    of_card = None if by_ray or precision else instead_of_bfloat16()
    if of_card is not None:
        typer.echo(f"The GPU has no bfloat16, so {of_card} replaces it in training", err=True)
    systems_of = {name: config.choose(name, system, backbone, precision, of_card) for name in configs}
    opened_release = open_release(release)
    for systems in systems_of.values():
        for options in systems.values():
            if not check and isinstance(options, Trained) and options.reads_negatives:
                refuse_without_negatives(opened_release)
    if by_ray:
        ray.connect()
    cells = []
    for name, systems in systems_of.items():
        plan = config.read(name)
        only = [one for one in plan.shifts or () if one.partition(".")[0] in shifts] or shifts or plan.shifts
        cells += grid.cells(systems, opened_release, out, only, seeds, plan.control, plan.variations)
    if len({cell.name for cell in cells}) < len(cells):
        raise UserError(f"The configs {joined(configs)} train the same cells", do="Run each with its own --out")
    cells = cells[first - 1 :: step]
    checks.refuse(cells)
    for line in [*grid.starts(cells), *changes(cells)]:
        typer.echo(line, err=True)
    if check:
        return
    candidates.find(cells)
    failures = 0
    for number, (cell, failure) in enumerate(ray.run(cells, threads) if by_ray else grid.run(cells), start=1):
        failures += failure is not None
        typer.echo(f"[{number}/{len(cells)}] {grid.ended(cell, failure)}", err=True)
    typer.echo(str(out / "runs"))
    if failures:
        raise typer.Exit(1)


def _part(text: str) -> tuple[int, int]:
    """I and N of ``--part``."""
    parts = re.fullmatch(r"([0-9]+)/([0-9]+)", text)
    if parts is None or not 1 <= int(parts[1]) <= int(parts[2]):
        raise UserError(f"--part {text} is not a part of the cells", do="Write 3/8 for the third of eight parts")
    return int(parts[1]), int(parts[2])


@_grid_app.command("status")
def grid_status(folder: Annotated[Path, argument("The grid's folder.", "FOLDER")], json_file: JsonFile = None) -> None:
    """Show which cells are done, under way, failed and open, with their seconds and losses."""
    from baselines.grid.status import layout, of_grid, summary
    from eval_kit.console import screen, write_json
    from eval_kit.tables import terminal

    cells = of_grid(folder)
    if write_json(cells, json_file):
        return
    console = screen()
    terminal.show(layout(cells), console)
    console.print(summary(cells), style="dim", highlight=False)


def main() -> None:
    """Run the command line; a user's mistake gives one sentence and exit status 2."""
    with reporting("baselines"):
        app()
