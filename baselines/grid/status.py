"""The state of a grid's cells, from their folders alone, and a grid as it runs on a terminal."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import msgspec
from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from baselines.cells.cell import Cell
from baselines.cells.journal import STAGES, State, in_use, read
from baselines.grid.grid import Runner, run
from baselines.grid.stages import Outcome
from eval_kit.errors import UserError
from eval_kit.files import strict_json
from eval_kit.runs import names
from eval_kit.shifts import TRAINED_FOR
from eval_kit.tables import terminal
from eval_kit.tables.table import Column, Row, Table, Value, number_columns, text_columns

STATES = ("finished", *STAGES, "interrupted", "failed", "waiting")
STYLES = {"finished": "green", "failed": "red", "interrupted": "yellow", "waiting": "dim"}


@dataclass(frozen=True)
class Standing:
    """The state of one cell.

    Attributes:
        name: of the cell.
        digest: of the cell; its folder is named after it.
        state: ``waiting``, ``training``, ``indexing``, ``searching``, ``scoring``, ``interrupted``, ``finished`` or
            ``failed``.
        journal: what its attempts have left.
    """

    name: names.RunName
    digest: str
    state: str
    journal: State

    def loss(self, which: str) -> float | None:
        """The ``first`` or ``last`` loss of training."""
        return self.journal.facts.get("training", {}).get(f"{which}_loss")

    def as_json(self) -> dict[str, Any]:
        """One flat entry, which includes the parts of the name and the run's file name."""
        entry = {**asdict(self.name), "run": self.name.file, "digest": self.digest, "state": self.state}
        for name in ("attempts", "seconds", "progress", "reason"):
            entry[name] = msgspec.to_builtins(getattr(self.journal, name))
        for which in ("first", "last"):
            loss = self.loss(which)
            entry[f"{which}_loss"] = None if loss != loss else loss  # NaN is no JSON
        return entry


def of_cell(folder: Path) -> Standing:
    """The standing of the cell in ``folder``."""
    document = strict_json.read(folder / "cell.json")
    try:
        name, digest = names.RunName(**document["cell"]), str(document["digest"])
        if name not in (names.cell_of(Path(name.file)), names.control_of(Path(name.file))):
            raise TypeError
    except (KeyError, TypeError) as error:
        raise UserError(f"{folder / 'cell.json'}: does not describe a cell; remove {folder}") from error
    journal = read(folder)
    state: str = journal.state
    if state in STAGES and not in_use(folder):
        state = "interrupted"
    if state == "finished" and not (folder / name.file).is_file():
        state = "waiting"
    return Standing(name, digest, state, journal)


def of_grid(root: Path) -> list[Standing]:
    """All cells below ``root``, by shift, held-out part, system and seed.

    Raises:
        UserError: there is no grid.
    """
    standings = [of_cell(path.parent) for path in root.glob("*/cell.json")]
    if not standings:
        raise UserError(f"{root}: holds no grid; 'python -m baselines grid run --config mini --out DIR' makes one")
    order = list(TRAINED_FOR)
    return sorted(standings, key=lambda standing: (order.index(standing.name.shift), standing.name))


def layout(standings: Iterable[Standing]) -> Table:
    """One row per cell."""
    columns = text_columns("shift", "held out", "system", "seed", "state", wrap="never")
    columns += number_columns("seconds", "loss", wrap="never")
    columns.append(Column("", wrap="anywhere"))
    lines: list[Row] = []
    for standing in standings:
        cell = standing.name
        state = Value(standing.state, style=STYLES.get(standing.state, "bold"))
        journal = standing.journal
        seconds = f"{sum(journal.seconds.values()):,.1f}" if journal.seconds else ""
        names = [cell.shift, cell.held_out, cell.system, str(cell.seed)]
        lines.append([*names, state, seconds, _losses(standing), journal.reason or _progress(journal)])
    return Table(columns, [lines])


def summary(standings: Iterable[Standing]) -> str:
    """How many cells there are in each state."""
    count = Counter(standing.state for standing in standings)
    return ", ".join(f"{count[state]:,} {state}" for state in STATES if count[state])


def watch(cells: Sequence[Cell], runner: Runner, console: Console) -> list[Outcome]:
    """Run a grid and show it; where ``console`` is no terminal, print one line for each cell that ends.

    Returns:
        The cells that failed.

    Raises:
        UserError: the grid's folder cannot be made.
    """
    outcomes: dict[str, Outcome] = {}

    def picture() -> Group:
        standings = [of_cell(cell.folder) for cell in cells if (cell.folder / "cell.json").is_file()]
        running = [standing for standing in standings if standing.state in STAGES]
        tables = terminal.rich_tables(layout(running), console.width) if running else [""]
        return Group(*tables, Text(summary(standings), "dim"))

    with Live(get_renderable=picture, console=console, refresh_per_second=2, transient=True):
        for outcome in run(cells, runner):
            outcomes[outcome.name.file] = outcome
            line = Text(f"[{len(outcomes)}/{len(cells)}] {outcome.name.file.removesuffix('.trec')}: {outcome.state}")
            if outcome.reason:
                line.append(f": {outcome.reason}", "red")
            console.print(line, highlight=False, soft_wrap=True)
    return [outcome for outcome in outcomes.values() if outcome.state == "failed"]


def _losses(standing: Standing) -> str:
    first, last = standing.loss("first"), standing.loss("last")
    if first is not None and last is not None:
        return f"{first:.3f} → {last:.3f}"
    now = standing.journal.progress.loss
    return f"{now:.3f}" if isinstance(now, float) else ""


def _progress(journal: State) -> str:
    progress = journal.progress
    return f"{progress.step:,} of {progress.steps:,}" if progress.steps else ""
