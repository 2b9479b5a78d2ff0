"""What a grid would cost on one kind of device: throughput that was measured there, times what the config asks for."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from baselines.grid.cell import Cell
from baselines.training import queries as training_data
from eval_kit.errors import UserError
from eval_kit.files import schemas
from search.passages import how_many

MS_MARCO_PASSAGES = 8_841_823
"""Of msmarco-passage, where ir_datasets does not say it."""


@dataclass(frozen=True)
class Cost:
    """Projected device hours of one system's cells.

    Attributes:
        system: its name.
        cells: how many trainings.
        training: hours, if none ends early; without evaluations on the way.
        indexing: hours of encoding and indexing passages; 0 for a re-ranker.
        searching: hours.
    """

    system: str
    cells: int
    training: float
    indexing: float
    searching: float

    @property
    def hours(self) -> float:
        """In all."""
        return self.training + self.indexing + self.searching


def measured(path: Path, config: str) -> dict[str, Any]:
    """Read throughputs (schemas/throughput.schema.json).

    Raises:
        UserError: not readable, not of that schema, or measured with another config.
    """
    document: dict[str, Any] = schemas.read("throughput", path)
    if document["config"] != config:
        raise UserError(f"{path}: was measured with the config {document['config']}, not {config}")
    return document


def projected(cells: Sequence[Cell], throughput: Mapping[str, Any]) -> list[Cost]:
    """The cost of each trained system that was measured, in the order of ``cells``; BM25 needs no such device.

    Raises:
        UserError: a system was not measured; the release lacks the training queries of a cell that trains by epochs.
    """
    costs = []
    for system in dict.fromkeys(cell.place.system for cell in cells if cell.place.system != "bm25"):
        speeds = throughput["systems"].get(system, {})
        needed = ("samples_per_second", "queries_per_second", "passages_per_second")[: 2 if system == "monobert" else 3]
        for name in needed:
            if name not in speeds:
                raise UserError(f"{name} of {system} was not measured; --system leaves systems out")
        mine = [cell for cell in cells if cell.place.system == system]
        costs.append(
            Cost(
                system,
                len(mine),
                sum(map(_examples, mine)) / speeds["samples_per_second"] / 3600,
                0.0 if system == "monobert" else sum(map(_passages, mine)) / speeds["passages_per_second"] / 3600,
                sum(cell.test_queries().height for cell in mine) / speeds["queries_per_second"] / 3600,
            )
        )
    return costs


def show(costs: Sequence[Cost], device: str, console: Console) -> None:
    """Print the projection as one."""
    table = Table(title=f"projected hours of {device}, none measured", box=None, pad_edge=False, header_style="bold")
    table.add_column("system")
    for name in ("cells", "training", "indexing", "searching", "in all"):
        table.add_column(name, justify="right")
    for one in costs:
        hours = (one.training, one.indexing, one.searching, one.hours)
        table.add_row(one.system, str(one.cells), *[f"{value:,.1f}" for value in hours])
    total = sum(one.hours for one in costs)
    table.add_row("in all", str(sum(one.cells for one in costs)), "", "", "", f"{total:,.1f}", style="bold")
    console.print(table)
    console.print(
        "measured samples, passages and queries a second, times what the config asks for; training that ends early "
        "costs less, and its evaluations on the way are not counted",
        style="dim",
        soft_wrap=True,
    )


def _examples(cell: Cell) -> int:
    pairs = training_data.pairs(cell) if "epochs" in cell.options else 0
    return training_data.steps(cell, pairs) * training_data.examples_a_step(cell)


def _passages(cell: Cell) -> int:
    return how_many(cell.release) or MS_MARCO_PASSAGES
