"""``python -m baselines grid``: do a grid of cells, and say how far it is."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from eval_kit.shifts import SHIFTS, check_names

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Train, search and score a grid of cells.")


class Runner(StrEnum):
    """Where cells are done."""

    local = "local"
    ray = "ray"


@app.command()
def run(
    config: Annotated[
        list[str],
        typer.Option(help="paper, paper-cikm2022, mini, mini-long, or a JSON file of your own; repeatable."),
    ],
    out: Annotated[Path, typer.Option(help="The grid's folder; a grid that stands there goes on.")],
    release: Annotated[str | None, typer.Option(help="Release folder or Hub id; else as for eval_kit.")] = None,
    system: Annotated[list[str] | None, typer.Option(help="Only this system; repeatable.")] = None,
    shift: Annotated[list[str] | None, typer.Option(help=f"Only this shift; repeatable: {', '.join(SHIFTS)}.")] = None,
    seed: Annotated[list[int] | None, typer.Option(help="Of training; repeatable. Default: 0.")] = None,
    runner: Annotated[Runner, typer.Option(help="Processes of this machine, or a Ray cluster.")] = Runner.local,
    workers: Annotated[
        int | None, typer.Option(min=1, help="Cells at once (local); default: as many as the GPUs, or CPUs, are for.")
    ] = None,
    processes: Annotated[
        int, typer.Option(min=1, help="That train a cell together (torchrun), sharing its batch, each with a GPU.")
    ] = 1,
    threads: Annotated[int, typer.Option(min=1, help="Threads of each process; a run's last digits depend on it.")] = 1,
) -> None:
    """Do every cell that is not finished; exit status 1 if one fails."""
    from functools import partial

    from rich.console import Console

    from baselines import config as configs
    from baselines.grid import grid
    from baselines.grid.display import watched
    from baselines.runners import local
    from baselines.runners import ray as cluster
    from eval_kit.errors import UserError
    from eval_kit.release import open_release

    chosen = {one: configs.chosen(one, system) for one in config}
    every = [options for systems in chosen.values() for options in systems.values()]
    check_names(shift or [])
    opened = open_release(release)
    grid.refuse_without_negatives(opened, every)
    if runner is Runner.ray:
        cluster.connect()
    cells = [
        cell
        for one, systems in chosen.items()
        for cell in grid.cells(systems, opened, out, shift or configs.shifts(one), seed or (0,))
    ]
    if len({cell.place for cell in cells}) < len(cells):
        raise UserError(f"--config: {' and '.join(config)} train the same cells; choose the --shift of each")
    if runner is Runner.ray:
        do = partial(cluster.run, threads=threads, processes=processes)
    else:
        workers = workers or local.most_workers(threads, processes)
        do = partial(local.run, workers=workers, threads=threads, processes=processes)
    failed = watched(cells, do, Console(stderr=True))
    typer.echo(str(out / "runs"))
    if failed:
        raise typer.Exit(1)


@app.command()
def status(
    folder: Annotated[Path, typer.Argument(help="The grid's folder.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for programs.")] = False,
) -> None:
    """Each cell's state, seconds and losses."""
    import json

    from baselines.grid.status import layout, of_grid, summary
    from eval_kit.console import screen

    standings = of_grid(folder)
    if as_json:
        typer.echo(json.dumps([one.as_json() for one in standings], ensure_ascii=False))
        return
    console = screen()
    console.print(layout(standings))
    console.print(summary(standings), style="dim", highlight=False)
