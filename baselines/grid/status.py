"""The state of a grid's cells, from their folders alone, and a grid as it runs on a terminal."""

import filecmp
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import msgspec
from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from baselines.cells.cell import Cell, published
from baselines.cells.journal import STAGES, State, in_use, read
from baselines.grid.documents import description
from baselines.grid.grid import Runner, run
from baselines.grid.stages import Outcome
from eval_kit.errors import UserError
from eval_kit.files import strict_json
from eval_kit.runs import names
from eval_kit.shifts import TRAINED_FOR
from eval_kit.tables import terminal
from eval_kit.tables.table import Column, Row, Table, Value, number_columns, text_columns

_STATES = ("finished", *STAGES, "interrupted", "failed", "waiting")
DEFAULT, OTHER = "at its default", "other weights to start from"
_STYLES = {"finished": "green", "failed": "red", "interrupted": "yellow", "waiting": "dim"}


@dataclass(frozen=True)
class Standing:
    """The state of one cell.

    Attributes:
        name: of the cell.
        digest: of the cell; its folder is named after it.
        state: ``waiting``, ``training``, ``indexing``, ``searching``, ``scoring``, ``interrupted``, ``finished`` or
            ``failed``.
        journal: what its attempts have left.
        settings: what decides it beside its name.
        in_runs: whether the grid's runs have its run.
    """

    name: names.RunName
    digest: str
    state: str
    journal: State
    settings: dict[str, Any]
    in_runs: bool

    def loss(self, which: str) -> float | None:
        """The ``first`` or ``last`` loss of training."""
        return self.journal.facts.get("training", {}).get(f"{which}_loss")

    def as_json(self) -> dict[str, Any]:
        """One flat entry, which includes the parts of the name and the run's file name."""
        entry = {**asdict(self.name), "run": self.name.file, "digest": self.digest, "state": self.state}
        entry["in_runs"] = self.in_runs
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
        settings = _settings(document)
        own_name = names.run_name(Path(name.file))
        if name not in (names.cell_of(own_name), names.control_of(own_name)):
            raise TypeError
    except (KeyError, TypeError) as error:
        raise UserError(f"{folder / 'cell.json'}: does not describe a cell; remove {folder}") from error
    journal = read(folder)
    state: str = journal.state
    if state in STAGES and not in_use(folder):
        state = "interrupted"
    if state == "finished" and not (folder / name.file).is_file():
        state = "waiting"
    run, target = folder / name.file, published(folder.parent, name)
    in_runs = run.is_file() and target.is_file() and filecmp.cmp(run, target)
    return Standing(name, digest, state, journal, settings, in_runs)


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


def changes(cells: Iterable[Cell]) -> list[str]:
    """A line for each change of settings that makes new cells beside old ones of their names."""
    new = [cell for cell in cells if not (cell.folder / "cell.json").is_file()]
    old: dict[names.RunName, Standing] = {}
    for path in sorted(new[0].root.glob("*/cell.json") if new else ()):
        standing = of_cell(path.parent)
        if standing.in_runs or standing.name not in old:
            old[standing.name] = standing
    changed = defaultdict[str, list[str]](list)
    for cell in new:
        if cell.name in old:
            before, now = old[cell.name].settings, _settings(description(cell))
            keys = _differing([before, now])
            pairs = [f"{key} {before.get(key, DEFAULT)} → {now.get(key, DEFAULT)}" for key in keys]
            changed[", ".join(pairs) or OTHER].append(cell.name.file.removesuffix(".trec"))
    lines = []
    for change, (first, *rest) in changed.items():
        also = f" and {len(rest):,} more" if rest else ""
        lines.append(f"{first}{also}: new beside cells of that name, which are kept: {change}")
    return lines


def _settings(document: Mapping[str, Any]) -> dict[str, Any]:
    others = {key: document.get(key) for key in ("code_version", "backbone_commit", "teacher_commit")}
    return {**document["options"], "release": document["release"]["digest"][:8], **others}


def _differing(settings: Sequence[Mapping[str, Any]]) -> list[str]:
    """The names of those that differ; what is at its default is not among an entry's."""
    names = dict.fromkeys(chain.from_iterable(settings))
    return [name for name in names if any(one.get(name) != settings[0].get(name) for one in settings)]


def _told_apart(standings: Sequence[Standing]) -> dict[str, str]:
    """By digest, the settings in which cells of one name differ, and which of them the grid's runs are of."""
    groups = defaultdict[names.RunName, list[Standing]](list)
    for standing in standings:
        groups[standing.name].append(standing)
    said = {}
    for group in groups.values():
        differing = _differing([one.settings for one in group])
        for one in group if len(group) > 1 else ():
            settings = ", ".join(f"{key} {one.settings.get(key, DEFAULT)}" for key in differing) or OTHER
            said[one.digest] = f"{settings}{'; in runs' if one.in_runs else ''}"
    return said


def layout(standings: Sequence[Standing]) -> Table:
    """One row per cell; several of one name are told apart by their settings."""
    said = _told_apart(standings)
    columns = text_columns("shift", "held out", "system", "seed", "state", wrap="never")
    columns += number_columns("seconds", "loss", wrap="never")
    columns.append(Column("", wrap="anywhere"))
    lines: list[Row] = []
    for standing in standings:
        cell = standing.name
        state = Value(standing.state, style=_STYLES.get(standing.state, "bold"))
        journal = standing.journal
        seconds = f"{sum(journal.seconds.values()):,.1f}" if journal.seconds else ""
        names = [cell.shift, cell.held_out, cell.system, str(cell.seed)]
        texts = [text for text in (journal.reason or _progress(journal), said.get(standing.digest)) if text]
        lines.append([*names, state, seconds, _losses(standing), "; ".join(texts)])
    return Table(columns, [lines])


def summary(standings: Iterable[Standing]) -> str:
    """How many cells there are in each state."""
    count = Counter(standing.state for standing in standings)
    return ", ".join(f"{count[state]:,} {state}" for state in _STATES if count[state])


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
