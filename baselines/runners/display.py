"""A grid as it runs, on a terminal: the running cells with their progress, and how much is done."""

from collections.abc import Sequence

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from baselines.cells.cell import Cell
from baselines.cells.journal import STAGES
from baselines.grid.grid import Runner, run
from baselines.grid.stages import Outcome
from baselines.grid.status import layout, of_cell, summary
from baselines.runners import candidates
from eval_kit.tables import terminal


def watch(cells: Sequence[Cell], runner: Runner, console: Console) -> list[Outcome]:
    """Run a grid and show it; where ``console`` is no terminal, print one line for each cell that ends.

    Returns:
        The cells that failed.

    Raises:
        UserError: the grid's folder cannot be made.
    """
    candidates.find(cells)
    outcomes: dict[str, Outcome] = {}

    def picture() -> Group:
        standings = [of_cell(cell.folder) for cell in cells if (cell.folder / "cell.json").is_file()]
        running = [standing for standing in standings if standing.state in STAGES]
        tables = terminal.rich_tables(layout(running), console.width) if running else [""]
        return Group(*tables, Text(summary(standings), "dim"))

    with Live(get_renderable=picture, console=console, refresh_per_second=2, transient=True):
        for outcome in run(cells, runner):
            outcomes[outcome.name.file] = outcome
            console.print(_line(outcome, len(outcomes), len(cells)), highlight=False, soft_wrap=True)
    return [outcome for outcome in outcomes.values() if outcome.state == "failed"]


def _line(outcome: Outcome, number: int, of: int) -> Text:
    name = outcome.name.file.removesuffix(".trec")
    line = Text(f"[{number}/{of}] {name}: {outcome.state}")
    return line.append(f": {outcome.reason}", "red") if outcome.reason else line
