"""Our figures beside the papers', shift by shift."""

import dataclasses
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from operator import attrgetter, itemgetter
from pathlib import Path
from typing import Any

import polars as pl

from eval_kit import __version__
from eval_kit.documents import FinishedCell
from eval_kit.errors import UserError
from eval_kit.files import strict_json
from eval_kit.pages.page import result_page
from eval_kit.pages.report import Report
from eval_kit.papers import benchmarks, commands, crossing, printed_table
from eval_kit.papers.figures import CIKM_VARIANT_SYSTEMS, Comparison, benchmark_figures, own_figures
from eval_kit.protocols.grid_results import Protocols, protocols, values_of
from eval_kit.protocols.scoring import score
from eval_kit.protocols.variations import score_variations, variations_of
from eval_kit.release import Release
from eval_kit.release.reference import as_printed, ids, load, published_cells
from eval_kit.results import Result
from eval_kit.runs.names import WordedRun, cell_of, cells_of, control_of, grid, run_name, wordings_of
from eval_kit.shifts import CONTROL, SHIFTS, TRAINED_FOR
from eval_kit.tables.table import Column, Table, Value, number_columns, text_columns

ALL = "all"
"""In place of a table's id: every table beside which a grid has figures."""
UNTRAINED = "bm25"
"""The one system of ours that learns from no training queries."""
SPLADE_WEIGHTS = {"query": 24, "passage": 130}
"""ECIR 2023 §5.1: SPLADE's mean number of non-zero weights."""


@dataclass(frozen=True, repr=False)
class Results(Result):
    """The figures of a folder of runs: the papers' tables from our runs; where they are comparable, beside theirs.

    Attributes:
        protocols: of every complete grid of a system on a shift.
        benchmarks: from :func:`eval_kit.papers.benchmarks.benchmarks`.
        sparsity: ``system``, ``shift``, ``cells``, ``query`` and ``passage``: the mean number of non-zero weights, for
            systems with sparse vectors.
        crossing: from :func:`eval_kit.papers.crossing.crossing`; None where the grid searched no variations.
        release: that the runs were scored on; only figures on the published one are comparable.
        incomplete: for each grid that lacks a run, what it lacks.
    """

    title = "What held-out parts cost, beside the papers"

    protocols: Protocols
    benchmarks: pl.DataFrame
    sparsity: pl.DataFrame
    crossing: pl.DataFrame | None
    release: Release
    incomplete: list[str]

    @property
    def comparisons(self) -> list[Comparison]:
        """With the latest table of each shift and those of variants; empty if the release is not the papers'."""
        ids = dict.fromkeys([*map(attrgetter("published_table"), TRAINED_FOR.values()), *CIKM_VARIANT_SYSTEMS])
        return [comparison for id in ids for comparison in self.comparisons_of(id).values()]

    @property
    def comparable(self) -> str:
        """One sentence on whether the figures can be compared with the papers', and which system is in none."""
        systems = [_base(system) for rows in self.protocols.results.values() for system in rows["system"].unique()]
        ours = "; static is no paper's system" if "static" in systems else ""
        if self.release.manifest.kind == "published":
            return f"✓ the paper's figure lies inside our 95 % interval, ✗ outside it{ours}"
        kinds = {"mini": "synthetic", "lite": "lite, a part of the collection"}
        what = kinds.get(self.release.manifest.kind, "other queries than the papers'")
        return f"{what}: not comparable with the published figures{ours}"

    def comparisons_of(self, id: str) -> dict[printed_table.Key, Comparison]:
        """Our figures that a published table also prints, in its order; none if they are not comparable."""
        if self.release.manifest.kind != "published":
            return {}
        values = own_figures(self.protocols) | benchmark_figures(self.benchmarks)
        comparisons = {}
        for cell in published_cells(id):
            if (figure := values.get(printed_table.key(cell))) is not None:
                paper = float(cell["value"])
                paper = 0.0 - paper if cell["figure"] == "delta" else paper
                comparison = Comparison(**dataclasses.asdict(figure), paper=paper, source=cell["source"])
                comparisons[printed_table.key(cell)] = comparison
        return comparisons

    @property
    def provenance(self) -> dict[str, Any]:  # type: ignore[override]
        """That of the scores."""
        return self.protocols.provenance

    def as_json(self) -> dict[str, Any]:
        """Plain JSON values."""
        rest = {
            "comparisons": list(map(Comparison.as_json, self.comparisons)),
            "comparable": self.comparable,
            "incomplete": self.incomplete,
        }
        more = {"benchmarks": self.benchmarks.to_dicts(), "sparsity": self.sparsity.to_dicts()}
        more["crossing"] = [] if self.crossing is None else self.crossing.to_dicts()
        return rest | self.protocols.as_json() | more

    def to_polars(self) -> pl.DataFrame:
        """The rows of ``protocols``."""
        return self.protocols.to_polars()

    def tables(self) -> list[Table]:
        """The papers' tables, what our runs have beside them, and each comparison."""
        tables = []
        if (self.benchmarks["training"] == CONTROL.name).any():
            tables.append(benchmarks.layout(self.benchmarks))
        if self.crossing is not None:
            tables.append(crossing.layout(self.crossing))
        if self.sparsity.height:
            tables.append(_sparsity_table(self.sparsity))
        by_source: dict[tuple[str, str], list[Comparison]] = {}
        for row in self.comparisons:
            by_source.setdefault((row.shift, row.source), []).append(row)
        tables += map(_beside, by_source.values())
        beside = [dataclasses.replace(table, section="beside the papers") for table in tables]
        return self.protocols.tables() + beside

    def notes(self) -> list[str]:
        """Those of ``protocols``, what is left out, and whether the figures are comparable."""
        return [*self.protocols.notes(), *(f"left out: {line}" for line in self.incomplete), self.comparable]


@result_page.register
def _(ours: Results) -> str:
    return result_page(Report(ours.protocols, None, ours.release))


@dataclass(frozen=True, repr=False)
class PublishedBeside(Result):
    """A published table as printed, with a grid's figures below those of the cells they match.

    Attributes:
        id: as :func:`eval_kit.release.reference.load` takes it.
        ours: None for the table alone.
    """

    title = "A published table"

    id: str
    ours: Results | None = None

    def __post_init__(self) -> None:
        """Refuse an id that there is not.

        Raises:
            UserError: naming those that there are.
        """
        if self.id not in ids():
            raise UserError(f"--paper {self.id}: there is no such table; there are {', '.join(ids())}")

    @property
    def provenance(self) -> dict[str, Any]:  # type: ignore[override]
        """That of our scores, if there are any."""
        return self.ours.provenance if self.ours else {"kit_version": __version__}

    @property
    def comparisons(self) -> dict[printed_table.Key, Comparison]:
        """Our figures that the table also prints."""
        return self.ours.comparisons_of(self.id) if self.ours else {}

    def as_json(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {"published": load(self.id), "comparisons": list(map(Comparison.as_json, self.comparisons.values()))}

    def to_polars(self) -> pl.DataFrame:
        """The cells of the published table."""
        return pl.DataFrame(published_cells(self.id), infer_schema_length=None)

    def tables(self) -> list[Table]:
        """The table."""
        reference, comparisons, our_values = load(self.id), self.comparisons, {}
        for cell in reference["cells"]:
            comparison = comparisons.get(printed_table.key(cell))
            if comparison is not None and comparison.ours is not None:
                # 0.0 - x turns the sign without making -0.0
                value = 0.0 - comparison.ours if cell["figure"] == "delta" else comparison.ours
                figure = round(value, cell["decimals"]) + 0.0  # no -0 %
                our_values[printed_table.key(cell)] = f"ours {as_printed({**cell, 'value': figure})}"
        return [printed_table.table(reference, our_values)]

    def notes(self) -> list[str]:
        """How to compute the table's figures oneself, where ours are not beside them."""
        return [] if self.comparisons else [commands.own_figures(self.id)]


def of_paper(
    paper: str, runs: Sequence[Path], release: Release | None, seed: int = 0, allow_missing: bool = False
) -> Results | PublishedBeside:
    """A published table with a grid's figures in it, or for ``all`` the grid's figures beside every paper's.

    Args:
        paper: id of the table, or ``all``.
        runs: the folder of the grid's runs; without runs and ``release``, the published table alone.
        release: as for :func:`results`, like the rest.

    Raises:
        UserError: an unknown table, or not one folder; and as :func:`results` does.
    """
    if paper != ALL:
        PublishedBeside(paper)  # an unknown table is refused before anything is scored
        if release is None:
            return PublishedBeside(paper)
    if len(runs) != 1 or release is None:
        raise UserError(f"--paper {paper}: give the folder of a grid's runs, not {len(runs)} RUNs")
    ours = results(runs[0], release, seed, allow_missing)
    return ours if paper == ALL else PublishedBeside(paper, ours)


def results(folder: Path, release: Release, seed: int = 0, allow_missing: bool = False) -> Results:
    """Score the grid's runs in ``folder`` and put the figures beside the papers'.

    Args:
        folder: of runs named ``<system>.<shift>.<held-out>.trec``; other files are ignored. The folder ``control``
            beside it may hold runs of models trained on everything, ``<system>.all.none.trec``, and ``variations`` runs
            of the same models as in ``folder``, ``<system>.<shift>.<held-out>.<base>.<variation>.trec``.
        release: the one that the runs were made on.
        seed: of the bootstrap.
        allow_missing: as for :func:`eval_kit.protocols.scoring.score`.

    Raises:
        UserError: there are no runs, no grid is complete, or a run cannot be used.
    """
    runs = sorted(filter(cell_of, folder.glob("*.trec*")))
    if not runs:
        raise UserError(f"{folder}: holds no run named <system>.<shift>.<held-out>.trec")
    groups: dict[tuple[str, str], list[Path]] = {}
    for run, cell in cells_of(runs).items():
        groups.setdefault((cell.shift, cell.system), []).append(run)
    incomplete = []
    for key, members in list(groups.items()):
        try:
            grid(cells_of(members).values(), release)
        except UserError as error:
            incomplete.append(str(error))
            del groups[key]
    if not groups:
        raise UserError(f"{folder}: no grid is complete: {incomplete[0]}")
    of_grids = _protocols(groups, release, seed, allow_missing)
    control = {run: model for run in sorted(folder.parent.glob("control/*.trec*")) if (model := control_of(run))}
    of_control = of_grids.values.clear()
    if control:
        of_control = values_of(score(list(control), release, allow_missing), control)
    on_benchmarks = benchmarks.benchmarks(of_grids.values, of_control, seed)
    crossings = _crossing(chain.from_iterable(groups.values()), release, seed, allow_missing)
    return Results(of_grids, on_benchmarks, _sparsity(folder.parent, of_grids), crossings, release, incomplete)


def _base(system: str) -> str:
    """The system that a variant is of: ``biencoder`` for ``biencoder-roberta``."""
    return system.partition("-")[0]


def _is_trained(system: str) -> bool:
    return _base(system) != UNTRAINED


def _protocols(
    groups: dict[tuple[str, str], list[Path]], release: Release, seed: int, allow_missing: bool
) -> Protocols:
    """The protocols; as in ECIR 2023, an untrained system (BM25) has its own row among trained ones."""
    with_trained = {shift for shift, system in groups if _is_trained(system)}
    trained_runs: list[Path] = []
    untrained: dict[Path, str] = {}
    for (shift, system), runs in groups.items():
        if _is_trained(system) or not SHIFTS[shift].has_clusters or shift not in with_trained:
            trained_runs += runs
        else:
            untrained[runs[0]] = system
    figures = protocols(trained_runs, release, list(untrained), seed, allow_missing)
    rows: dict[str, dict[str, Any]] = {}
    for run, system in untrained.items():
        rows.setdefault(system, {}).update(figures.untrained[run_name(run)])
    return dataclasses.replace(figures, untrained=rows)


def _crossing(runs: Iterable[Path], release: Release, seed: int, allow_missing: bool) -> pl.DataFrame | None:
    """The crossing from the folder ``variations`` beside the runs' folder."""
    names = {run_name(run): run for run in runs}
    folders = dict.fromkeys(run.parent.parent / "variations" for run in names.values())
    of_variations = sorted(chain.from_iterable(folder.glob("*.trec*") for folder in folders))
    wordings = wordings_of(of_variations, release) if of_variations else []
    of_grids = [run for run in wordings if run.system in names and run.variation]
    if not of_grids:
        return None
    originals = {run.system: WordedRun(names[run.system], run.system, None) for run in of_grids}
    both = [*originals.values(), *of_grids]
    values, _ = score_variations(both, release, allow_missing=allow_missing)
    return crossing.crossing(values, variations_of(both), release, seed)


def _sparsity(grid_folder: Path, grid_protocols: Protocols) -> pl.DataFrame:
    """Of cells whose runs were scored: ``system``, ``shift``, ``cells``, mean weights of ``query`` and ``passage``."""
    runs = set(map(itemgetter("sha256"), grid_protocols.provenance["runs"]))
    rows = []
    for path in sorted(grid_folder.glob("*/done.json")):
        conclusion = strict_json.load(FinishedCell, path)
        if conclusion.run.sha256 in runs and (sparsity := conclusion.sparsity):
            rows.append((conclusion.cell.system, conclusion.cell.shift, sparsity.query, sparsity.passage))
    columns = {"system": pl.String, "shift": pl.String, "query": pl.Float64, "passage": pl.Float64}
    cells = pl.DataFrame(rows, columns, orient="row")
    return cells.group_by("system", "shift", maintain_order=True).agg(
        pl.len().cast(pl.Int64).alias("cells"), pl.col("query", "passage").mean()
    )


def _sparsity_table(sparsity: pl.DataFrame) -> Table:
    """ECIR 2023 §5.1 in a table: SPLADE's mean over its models, and the paper's figures."""
    columns = [Column("system", "heading"), Column("shift"), *number_columns("cells", "a query", "a passage")]
    lines: list[list[str]] = []
    for row in sparsity.iter_rows(named=True):
        lines.append([row["system"], row["shift"], str(row["cells"]), f"{row['query']:.0f}", f"{row['passage']:.0f}"])
    lines.append(["splade", "ECIR 2023 §5.1", "", *map(str, SPLADE_WEIGHTS.values())])
    return Table(columns, [lines], "weights that are not zero")


def _beside(rows: Sequence[Comparison]) -> Table:
    """One row for each system, part and measure: each figure, the paper's, and the difference."""
    kinds = set(map(attrgetter("figure"), rows))
    figures = [figure for figure in ("in", "out", "loss") if {figure, "value"} & kinds]
    reference = load(TRAINED_FOR[rows[0].shift].published_table)["paper"]
    columns = text_columns("system", "part", "measure", wrap="never")
    for figure in figures:
        columns += number_columns(figure, "paper", "difference", "", wrap="never")
    by_row: dict[tuple[str, str, str], dict[str, Comparison]] = {}
    for row in rows:
        figure = "in" if row.figure == "value" else row.figure
        by_row.setdefault((row.system, row.part, row.measure), {})[figure] = row
    lines = []
    for key, compared_figures in by_row.items():
        line: list[Value | str] = [*key]
        for figure in figures:
            line += _cells(compared_figures.get(figure))
        lines.append(line)
    title = f"{rows[0].shift}: ours beside {rows[0].source} (arXiv {reference['arxiv']})"
    return Table(columns, [lines], title)


def _cells(comparison: Comparison | None) -> list[Value | str]:
    if comparison is None:
        return [""] * 4
    style = "{:z.1%}" if comparison.figure == "loss" else "{:z.3f}"
    difference = "-" if comparison.difference is None else style.replace(":", ":+").format(comparison.difference)
    marks = {True: Value("✓", style="green"), False: Value("✗", style="red"), None: Value("")}
    ours = "-" if comparison.ours is None else style.format(comparison.ours)
    return [ours, Value(style.format(comparison.paper), style="dim"), difference, marks[comparison.inside]]
