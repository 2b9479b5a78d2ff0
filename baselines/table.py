"""Our figures beside the papers', shift by shift."""

import dataclasses
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from rich.console import Console

from baselines.systems import is_trained
from eval_kit.errors import UserError
from eval_kit.protocols.grid_results import Protocols, protocols
from eval_kit.release import Release
from eval_kit.release.reference import load, published
from eval_kit.runs.names import cell_of, grid, named, run_name
from eval_kit.shifts import SHIFTS
from eval_kit.tables.table import Cell, Column, Table

CIKM_SYSTEMS = {
    "bm25": "bm25",
    "biencoder": "dr-base",
    "splade": "splade",
    "colbert": "colbert",
    "monobert": "reranker",
}
"""CIKM 2022's names of our systems; ECIR 2023's are ours."""
CIKM_VARIANTS = {
    "biencoder-rand": ("cikm2022-table9", "rand"),
    "biencoder-roberta": ("cikm2022-table9", "roberta"),
    "biencoder-ernie2": ("cikm2022-table9", "ernie2.0"),
    "biencoder-condenser": ("cikm2022-table9", "condenser"),
    "biencoder-cocondenser-wiki": ("cikm2022-table9", "cocon-wiki"),
    "biencoder-cocondenser-marco": ("cikm2022-table8", "cocon-marco+randneg"),
    "biencoder-star": ("cikm2022-table8", "bert+hardneg"),
    "biencoder-tct": ("cikm2022-table8", "bert+distill"),
}
"""Table and training of CIKM 2022's other dense retrieval models: the variants of the config cikm2022-tables8-9."""
CIKM_VARIANT_PARTS = {"dl19+dl20": "45k", "dev": ""}
"""What these tables show: ReSTrain of one size on TREC DL, and ReSTTest."""
CIKM_MEASURES = {"R(rel=2)@100": "R@100"}
"""CIKM 2022's names of our measures, where they differ."""
FIGURES = {"in": "avg_in", "out": "out", "loss": "rel_loss"}
CIKM_FIGURES = {"in": "inter", "out": "extra", "loss": "delta"}


@dataclass(frozen=True)
class Comparison:
    """One of our figures and the paper's.

    Attributes:
        shift: of the grid.
        part: the cluster, or ReSTrain's size; empty for ReSTTest.
        system: ours.
        measure: ours.
        figure: ``in``, ``out`` or ``loss`` (CIKM 2022's Inter., Extra. and Δ, which is the loss with its sign
            turned); for BM25 on topic, wh and length ``value``.
        ours: None where it is undefined.
        low: lower end of our 95 % interval.
        high: upper end.
        paper: as printed.
        source: paper and table.
    """

    shift: str
    part: str
    system: str
    measure: str
    figure: str
    ours: float | None
    low: float | None
    high: float | None
    paper: float
    source: str

    @property
    def difference(self) -> float | None:
        """Ours less the paper's."""
        return None if self.ours is None else self.ours - self.paper

    @property
    def inside(self) -> bool | None:
        """Whether the paper's figure lies inside our interval; None where there is no interval."""
        return None if self.low is None or self.high is None else self.low <= self.paper <= self.high

    def as_json(self) -> dict[str, Any]:
        """Plain JSON values."""
        return dataclasses.asdict(self) | {"difference": self.difference, "inside": self.inside}


@dataclass(frozen=True)
class Results:
    """What a folder of runs shows.

    Attributes:
        protocols: of every complete grid of a system on a shift.
        comparisons: with the papers; empty where the release is not the papers'.
        comparable: in words, or why not.
        incomplete: for each grid that lacks a run, what it lacks.
    """

    protocols: Protocols
    comparisons: list[Comparison]
    comparable: str
    incomplete: list[str]

    def as_json(self) -> dict[str, Any]:
        """Plain JSON values."""
        rows = [row.as_json() for row in self.comparisons]
        rest = {"comparable": self.comparable, "incomplete": self.incomplete}
        return {"comparisons": rows} | rest | self.protocols.as_json()

    def print(self, console: Console) -> None:
        """The papers' tables from our runs; then, where they are comparable, ours beside theirs."""
        self.protocols.print(console)
        tables: dict[tuple[str, str], list[Comparison]] = {}
        for row in self.comparisons:
            tables.setdefault((row.shift, row.source), []).append(row)
        for rows in tables.values():
            console.print(_beside(rows))
        for line in self.incomplete:
            console.print(f"left out: {line}", style="yellow", soft_wrap=True)
        console.print(self.comparable, style="dim", soft_wrap=True)


def results(folder: Path, release: Release, seed: int = 0, allow_missing: bool = False) -> Results:
    """Score the grid's runs in ``folder`` and put the figures beside the papers'.

    Args:
        folder: of runs named ``<system>.<shift>.<held-out>.trec``; files of other names are not looked at.
        release: what the runs were made on.
        seed: of the bootstrap.
        allow_missing: as for :func:`eval_kit.measures.score.score`.

    Raises:
        UserError: no runs, not one complete grid, or a run that cannot be used.
    """
    runs = sorted(run for run in folder.glob("*.trec*") if cell_of(run))
    if not runs:
        raise UserError(f"{folder}: holds no run named <system>.<shift>.<held-out>.trec")
    groups: dict[tuple[str, str], list[Path]] = {}
    for run, cell in named(runs).items():
        groups.setdefault((cell.shift, cell.system), []).append(run)
    refuse_unequal_batches(groups)
    incomplete = []
    for key, members in list(groups.items()):
        try:
            grid(named(members).values(), release)
        except UserError as error:
            incomplete.append(str(error))
            del groups[key]
    if not groups:
        raise UserError(f"{folder}: no grid is complete: {incomplete[0]}")
    figures = _protocols(groups, release, seed, allow_missing)
    kind = release.manifest["kind"]
    if kind != "published":
        what = "synthetic" if kind == "mini" else "other queries than the papers'"
        return Results(figures, [], f"{what}: not comparable with the published figures", incomplete)
    comparisons = list(chain.from_iterable(compared(figures, shift) for shift in SHIFTS))
    return Results(figures, comparisons, "✓ the paper's figure lies inside our 95 % interval, ✗ outside it", incomplete)


def refuse_unequal_batches(groups: Mapping[tuple[str, str], Sequence[Path]]) -> None:
    """Refuse to average cells that were trained in different batches, as far as the grid that holds the runs says so.

    Args:
        groups: shift and system → their runs, in the folder ``runs`` of a grid.

    Raises:
        UserError: naming the system, the shift and the batches.
    """
    for (shift, system), runs in groups.items():
        batches: dict[int, Path] = {}
        for run in runs:
            for done in run.parent.parent.glob("*/done.json"):
                if (done.parent / run.name).exists() and run.samefile(done.parent / run.name):
                    training = json.loads(done.read_text(encoding="utf-8"))["training"]
                    batches.setdefault(training.get("batch_size", 0), run)
        if len(batches) > 1:
            sizes = ", ".join(f"{run.name} in batches of {size}" for size, run in sorted(batches.items()))
            raise UserError(f"the cells of {system} on {shift} were trained differently: {sizes}; train them alike")


def compared(figures: Protocols, shift: str) -> Iterator[Comparison]:
    """Our figures of a shift that the papers print too."""
    cikm = not SHIFTS[shift].clustered
    printed = _printed(shift)
    for row in figures.results[shift].iter_rows(named=True) if shift in figures.results else ():
        part = row.get("cluster") or row.get("size") or ""
        measure = CIKM_MEASURES.get(row["measure"], row["measure"]) if cikm else row["measure"]
        for figure, column in FIGURES.items():
            cell = printed.get((row["system"], part, measure, CIKM_FIGURES[figure] if cikm else figure))
            if cell is None:
                continue
            ours, low, high = (row[name] for name in (column, f"{column}_low", f"{column}_high"))
            paper = float(cell["value"])
            if cikm and figure == "loss":
                paper = 0.0 - paper
            yield Comparison(shift, part, row["system"], row["measure"], figure, ours, low, high, paper, cell["source"])
    for system, sets in figures.untrained.items():
        for test_set, values in sets.items():
            for measure, value in values.items():
                of_shift, _, part = test_set.partition(".")
                cell = printed.get((system, part, measure, "value"))
                if of_shift == shift and cell is not None:
                    paper = float(cell["value"])
                    yield Comparison(shift, part, system, measure, "value", value, None, None, paper, cell["source"])


def _printed(shift: str) -> dict[tuple[str, str, str, str], dict[str, Any]]:
    """The cells of the published tables, by our name of the system, the part, and the paper's measure and figure."""
    clustered = SHIFTS[shift].clustered
    cells = published(SHIFTS[shift].published_table)
    ours = {} if clustered else {name: system for system, name in CIKM_SYSTEMS.items()}
    printed = {(ours.get(cell["system"], cell["system"]), *_row(cell)): cell for cell in cells}
    test_sets = {cell["test_set"] for cell in cells}
    for variant, (table, training) in ({} if clustered else CIKM_VARIANTS).items():
        for cell in published(table):
            if cell["training"] == training and cell["test_set"] in test_sets:
                printed[variant, CIKM_VARIANT_PARTS[cell["test_set"]], cell["measure"], cell["figure"]] = cell
    return printed


def _row(cell: Mapping[str, Any]) -> tuple[str, str, str]:
    """The cluster of a published cell, or the size of its training set; measure and figure."""
    training: str | None = cell.get("training")
    part = training if training is not None else str(cell["test_set"]).partition(".")[2]
    return part, cell["measure"], cell["figure"]


def _protocols(
    groups: dict[tuple[str, str], list[Path]], release: Release, seed: int, allow_missing: bool
) -> Protocols:
    """The protocols; what learns nothing, as BM25, has a row of its own where others are trained, as in ECIR 2023."""
    with_trained = {shift for shift, system in groups if is_trained(system)}
    trained: list[Path] = []
    untrained: dict[Path, str] = {}
    for (shift, system), runs in groups.items():
        if is_trained(system) or not SHIFTS[shift].clustered or shift not in with_trained:
            trained += runs
        else:
            untrained[runs[0]] = system
    figures = protocols(trained, release, list(untrained), seed, allow_missing)
    rows: dict[str, dict[str, Any]] = {}
    for run, system in untrained.items():
        rows.setdefault(system, {}).update(figures.untrained[run_name(run)])
    return dataclasses.replace(figures, untrained=rows)


def _beside(rows: Sequence[Comparison]) -> Table:
    """One row for each system, part and measure: each figure, the paper's, and the difference."""
    kinds = {row.figure for row in rows}
    figures = [figure for figure in ("in", "out", "loss") if {figure, "value"} & kinds]
    reference = load(SHIFTS[rows[0].shift].published_table)["paper"]
    columns = [Column(name, wrap="never") for name in ("system", "part", "measure")]
    for figure in figures:
        columns += [Column(name, "number", wrap="never") for name in (figure, "paper", "difference", "")]
    by_row: dict[tuple[str, str, str], dict[str, Comparison]] = {}
    for row in rows:
        figure = "in" if row.figure == "value" else row.figure
        by_row.setdefault((row.system, row.part, row.measure), {})[figure] = row
    lines = []
    for key, compared_figures in by_row.items():
        line: list[Cell | str] = [*key]
        for figure in figures:
            line += _cells(compared_figures.get(figure))
        lines.append(line)
    title = f"{rows[0].shift}: ours beside {rows[0].source} (arXiv {reference['arxiv']})"
    return Table(columns, [lines], title)


def _cells(comparison: Comparison | None) -> list[Cell | str]:
    if comparison is None:
        return [""] * 4
    style = "{:.1%}" if comparison.figure == "loss" else "{:.3f}"
    difference = "-" if comparison.difference is None else style.replace(":", ":+").format(comparison.difference)
    marks = {True: Cell("✓", style="green"), False: Cell("✗", style="red"), None: Cell("")}
    ours = "-" if comparison.ours is None else style.format(comparison.ours)
    return [ours, Cell(style.format(comparison.paper), style="dim"), difference, marks[comparison.inside]]
