"""Our figures beside the papers', shift by shift."""

import dataclasses
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Console

from baselines.systems import is_trained
from eval_kit.errors import UserError
from eval_kit.protocols.grid_results import Protocols, protocols
from eval_kit.release import Release
from eval_kit.release.reference import load, printed, published
from eval_kit.runs.names import cell_of, grid, named, run_name
from eval_kit.shifts import SHIFTS
from eval_kit.tables import published as published_table
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
CIKM_VARIANT_SYSTEMS = {"cikm2022-table8": "dr-advance", "cikm2022-table9": "dr-base"}
"""What these tables call the models of :data:`CIKM_VARIANTS`."""
CIKM_MEASURES = {"R(rel=2)@100": "R@100"}
"""CIKM 2022's names of our measures, where they differ."""
FIGURES = {"in": "avg_in", "out": "out", "loss": "rel_loss"}
CIKM_FIGURES = {"in": "inter", "out": "extra", "loss": "delta"}


class OwnFigure(NamedTuple):
    """One of our figures, in our words.

    Attributes:
        shift: of the grid.
        part: the cluster, or ReSTrain's size; empty for ReSTTest.
        system: that made the runs.
        measure: of the release's test sets.
        figure: ``in``, ``out`` or ``loss`` (CIKM 2022's Inter., Extra. and Δ, which is the loss with its sign
            turned); ``value`` for one model, or for BM25, on topic, wh and length.
        value: None where it is undefined.
        low: lower end of the 95 % interval.
        high: upper end.
    """

    shift: str
    part: str
    system: str
    measure: str
    figure: str
    value: float | None
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class Comparison:
    """One of our figures (see :class:`OwnFigure`) and the paper's, as printed, with its paper and table."""

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
        kind: of the release; only figures on the published one can be compared.
        incomplete: for each grid that lacks a run, what it lacks.
    """

    protocols: Protocols
    kind: str
    incomplete: list[str]

    @property
    def comparisons(self) -> list[Comparison]:
        """With the latest table of each shift and those of variants; empty where the release is not the papers'."""
        ids = dict.fromkeys([*(shift.published_table for shift in SHIFTS.values()), *CIKM_VARIANT_SYSTEMS])
        return [comparison for id in ids for comparison in self.compared(id).values()]

    @property
    def comparable(self) -> str:
        """Whether the figures can be compared with the papers', in words."""
        if self.kind == "published":
            return "✓ the paper's figure lies inside our 95 % interval, ✗ outside it"
        what = {"mini": "synthetic", "lite": "lite, a part of the collection"}.get(
            self.kind, "other queries than the papers'"
        )
        return f"{what}: not comparable with the published figures"

    def compared(self, id: str) -> dict[published_table.Key, Comparison]:
        """Our figures that a published table prints too, in its order; none where it is not comparable."""
        own = own_figures(self.protocols) if self.kind == "published" else {}
        comparisons = {}
        for cell in published(id):
            if (figure := own.get(published_table.key(cell))) is not None:
                paper = float(cell["value"])
                comparisons[published_table.key(cell)] = Comparison(
                    *figure, paper=0.0 - paper if cell["figure"] == "delta" else paper, source=cell["source"]
                )
        return comparisons

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
    return Results(_protocols(groups, release, seed, allow_missing), release.manifest["kind"], incomplete)


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


def published_beside(id: str, ours: Results | None) -> Table:
    """A published table as it is printed, with our figures below those of its cells that the grid gives.

    Args:
        id: as :func:`eval_kit.release.reference.load` takes it.
        ours: None prints the table alone.
    """
    reference = load(id)
    comparisons = ours.compared(id) if ours else {}
    own = {}
    for cell in reference["cells"]:
        comparison = comparisons.get(published_table.key(cell))
        if comparison is not None and comparison.ours is not None:
            value = 0.0 - comparison.ours if cell["figure"] == "delta" else comparison.ours
            rounded = round(value, cell["decimals"]) + 0.0  # no -0 %
            own[published_table.key(cell)] = f"ours {printed({**cell, 'value': rounded})}"
    return published_table.table(reference, own)


def own_figures(protocols_found: Protocols) -> dict[published_table.Key, OwnFigure]:
    """Every figure of a grid by the key that it has in a published table."""
    figures: dict[published_table.Key, OwnFigure] = {}
    for shift, frame in protocols_found.results.items():
        for row in frame.iter_rows(named=True):
            part = row.get("cluster") or row.get("size") or ""
            for figure, column in FIGURES.items():
                interval = (row[name] for name in (column, f"{column}_low", f"{column}_high"))
                at = _key(shift, part, row["system"], row["measure"], figure)
                figures[at] = OwnFigure(shift, part, row["system"], row["measure"], figure, *interval)
    for shift, matrix in protocols_found.matrices.items():
        for row in matrix.iter_rows(named=True):
            at = published_table.Key(row["system"], f"not-{row['held_out']}", row["test_set"], row["measure"], "value")
            part = row["test_set"].partition(".")[2]
            figures[at] = OwnFigure(shift, part, row["system"], row["measure"], "value", row["value"])
    for system, sets in protocols_found.untrained.items():
        for test_set, values in sets.items():
            shift, _, part = test_set.partition(".")
            for measure, value in values.items():
                at = published_table.Key(system, "", test_set, measure, "value")
                figures[at] = OwnFigure(shift, part, system, measure, "value", value)
    return figures


def _key(shift: str, part: str, system: str, measure: str, figure: str) -> published_table.Key:
    """ECIR 2023 has our names; CIKM 2022 its own, and the two TREC DL years together."""
    if SHIFTS[shift].clustered:
        return published_table.Key(system, "", f"{shift}.{part}", measure, figure)
    test_set = "dl19+dl20" if part else "dev"
    names = (test_set, CIKM_MEASURES.get(measure, measure), CIKM_FIGURES[figure])
    if system in CIKM_VARIANTS and CIKM_VARIANT_PARTS[test_set] == part:
        table, training = CIKM_VARIANTS[system]
        return published_table.Key(CIKM_VARIANT_SYSTEMS[table], training, *names)
    return published_table.Key(CIKM_SYSTEMS.get(system, system), part, *names)


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
