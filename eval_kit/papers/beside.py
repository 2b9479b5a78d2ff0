"""Our figures beside the papers', shift by shift."""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from operator import attrgetter, itemgetter
from pathlib import Path
from typing import Any

import polars as pl

from eval_kit import __version__
from eval_kit.authors.opening import ReleaseSource, open_release
from eval_kit.errors import UserError, parameter
from eval_kit.pages.report import Report
from eval_kit.papers import printed_table
from eval_kit.papers.figures import BesidePaper, own_figures
from eval_kit.protocols.grid_results import Protocols, of_cells
from eval_kit.release import Release
from eval_kit.release.reference import as_printed, ids, load, published_cells
from eval_kit.results import Result
from eval_kit.runs.given import Run, take
from eval_kit.runs.grids import in_cells
from eval_kit.runs.names import base, cell_of, control_of, grid, run_name
from eval_kit.sentences import counted
from eval_kit.shifts import SHIFTS, TRAINED_FOR
from eval_kit.tables.table import Column, Fields, Source, Table, Value, laid_out, of, or_dash, side_by_side

ALL = "all"
"""In place of a table's id: every table beside which a grid has figures."""
_VARIANTS = ("cikm2022-table8", "cikm2022-table9")
"""Tables of variants of a system, besides the latest table of each shift and of the control."""
_UNTRAINED = "bm25"
"""The one system of ours that learns from no training queries."""


@dataclass(frozen=True, repr=False)
class PapersBeside(Report):
    """A report on the grids of a folder of runs; where they are comparable, beside the papers' figures.

    Only figures on the published release are comparable. ``incomplete`` says of each grid that lacks a run what it
    lacks.
    """

    grid: Protocols
    incomplete: list[str] = field(default_factory=list)

    @property
    def comparisons(self) -> list[BesidePaper]:
        """With each of :attr:`_beside`, in its order."""
        return [comparison for comparisons in self._beside.values() for comparison in comparisons]

    @property
    def _beside(self) -> dict[str, list[BesidePaper]]:
        """By id, the latest table of each shift, and those of the control and of variants; all empty if the release is
        not the papers'."""
        ids = dict.fromkeys([*filter(None, map(attrgetter("published_table"), TRAINED_FOR.values())), *_VARIANTS])
        return {id: list(self.comparisons_of(id).values()) for id in ids}

    @property
    def comparable(self) -> str:
        """One sentence on whether the figures can be compared with the papers', and which system is in none."""
        systems = [base(system) for rows in self.grid.results.values() for system in rows["system"].unique()]
        ours = ". No paper has the system static" if "static" in systems else ""
        if self.release.manifest.kind == "published":
            return f"✓ the paper's figure lies inside our 95 % interval, ✗ outside it{ours}"
        kinds = {"mini": "synthetic", "lite": "lite, a part of the collection"}
        what = kinds.get(self.release.manifest.kind, "other queries than the papers'")
        return f"{what}: not comparable with the published figures{ours}"

    def comparisons_of(self, id: str) -> dict[printed_table.Key, BesidePaper]:
        """Our figures that a published table also prints, in its order; none if they are not comparable."""
        if self.release.manifest.kind != "published":
            return {}
        values = own_figures(self.grid)
        comparisons = {}
        for cell in published_cells(id):
            if (figure := values.get(printed_table.key(cell))) is not None:
                paper = float(cell["value"])
                paper = 0.0 - paper if cell["figure"] == "delta" else paper
                comparison = BesidePaper(**dataclasses.asdict(figure), paper=paper, source=cell["source"])
                comparisons[printed_table.key(cell)] = comparison
        return comparisons

    def content(self) -> dict[str, Any]:
        """Plain JSON values."""
        rest = {
            "comparisons": list(map(BesidePaper.as_json, self.comparisons)),
            "comparable": self.comparable,
            "incomplete": self.incomplete,
        }
        return rest | super().content()

    def tables(self) -> list[Table]:
        """The papers' tables, what our runs have beside them, and each comparison."""
        tables = super().tables()
        for id, comparisons in self._beside.items():
            for shift in dict.fromkeys(map(attrgetter("shift"), comparisons)):
                table = _beside(id, [row for row in comparisons if row.shift == shift])
                tables.append(dataclasses.replace(table, section="compared with the papers"))
        return tables

    def notes(self) -> list[str]:
        """Those of the report, what is left out, and whether the figures are comparable."""
        return [*super().notes(), *(f"Left out: {line}" for line in self.incomplete), self.comparable]


@dataclass(frozen=True, repr=False)
class PublishedBeside(Result):
    """A published table as printed, with a grid's figures, if there is one, below those of the cells they match."""

    title = "A published table"

    id: str
    ours: PapersBeside | None = None

    def __post_init__(self) -> None:
        """Refuse an id that there is not."""
        if self.id not in ids():
            raise UserError(f"Unknown {parameter('paper')} {self.id}", do=f"Choose from: {', '.join(ids())}")

    @property
    def provenance(self) -> Mapping[str, Any]:  # type: ignore[override]
        """That of our scores, if there are any."""
        return self.ours.provenance if self.ours else {"kit_version": __version__}

    @property
    def comparisons(self) -> dict[printed_table.Key, BesidePaper]:
        """Our figures that the table also prints."""
        return self.ours.comparisons_of(self.id) if self.ours else {}

    def content(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {"published": load(self.id), "comparisons": list(map(BesidePaper.as_json, self.comparisons.values()))}

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

    def summary(self) -> list[str]:
        """How many figures the table has, and of ours beside them; of runs without any, what they were scored on."""
        reference, beside = load(self.id), self.comparisons.values()
        venue = "{venue} {year}".format_map(reference["paper"])
        has = f"{venue}, {reference['table']}, has {counted(len(reference['cells']), 'figure')}"
        if self.ours is None:
            return [f"{has}, as printed."]
        if beside:
            inside = [each.inside for each in beside if each.inside is not None]
            said = f"{sum(inside)} of {len(inside)} lie inside our 95 % interval"
            return [f"{has}, and ours stand beside {len(beside)}: {said}."]
        frames = [frame.select("test_sets", "queries") for frame in self.ours.grid.results.values()]
        scored = pl.concat(frames).unique(maintain_order=True).iter_rows()
        on = ", ".join(f"{test_sets} ({queries:,} queries)" for test_sets, queries in scored)
        return [f"{has}, and none for what these runs were scored on: {on}."]


def of_paper(
    paper: str, runs: Sequence[Path] = (), release: ReleaseSource = None, *, seed: int = 0, allow_missing: bool = False
) -> PapersBeside | PublishedBeside:
    """A published table with a grid's figures in it, or for ``all`` the grid's figures beside every paper's.

    ``runs`` is the folder of the grid's runs; without it, there is the published table alone.
    """
    if paper != ALL:
        PublishedBeside(paper)  # an unknown table is refused before anything is scored
        if not runs and release is None:
            return PublishedBeside(paper)
    if len(runs) != 1:
        raise UserError(
            f"{parameter('paper')} {paper} is compared with the folder of a grid, not with {counted(len(runs), 'run')}",
            do="Give the folder",
        )
    ours = results(runs[0], open_release(release), seed, allow_missing)
    return ours if paper == ALL else PublishedBeside(paper, ours)


def results(folder: Path, release: Release, seed: int = 0, allow_missing: bool = False) -> PapersBeside:
    """Score the grid's runs in ``folder`` and put the figures beside the papers'.

    Runs are named ``<system>.<shift>.<held-out>.trec``; those of the control, ``<system>.all.none.trec``, stand there
    or, as a grid leaves them, in the folder ``control`` beside it. Other files are ignored.
    """
    files = [file for place in (folder, folder.parent / "control") for file in sorted(place.glob("*.trec*"))]
    controls = [file for file in files if control_of(run_name(file))]
    runs, of_control = take(
        runs=[file for file in files if file.parent == folder and cell_of(run_name(file))], untrained=controls
    )
    if not runs:
        raise UserError(f"{folder} has no run named <system>.<shift>.<held-out>.trec")
    groups: dict[tuple[str, str], list[Run]] = {}
    for run in in_cells(runs):
        if run.cell:
            groups.setdefault((run.cell.shift, run.cell.system), []).append(run)
    incomplete = []
    for key, members in list(groups.items()):
        try:
            grid((run.cell for run in members if run.cell), release)
        except UserError as error:
            incomplete.append(str(error))
            del groups[key]
    if not groups:
        raise UserError(f"{folder} has no complete grid", incomplete[0])
    of_grids = _protocols(groups, of_control, release, seed, allow_missing)
    return PapersBeside(of_grids, None, release, incomplete=incomplete)


def _is_trained(system: str) -> bool:
    return base(system) != _UNTRAINED


def _protocols(
    groups: dict[tuple[str, str], list[Run]],
    of_control: Sequence[Run],
    release: Release,
    seed: int,
    allow_missing: bool,
) -> Protocols:
    """The protocols; as in ECIR 2023, an untrained system (BM25) has its own row among trained ones."""
    with_trained = {shift for shift, system in groups if _is_trained(system)}
    trained_runs: list[Run] = []
    untrained = {run: run.own_name for run in of_control}
    for (shift, system), runs in groups.items():
        if _is_trained(system) or not SHIFTS[shift].has_clusters or shift not in with_trained:
            trained_runs += runs
        else:
            untrained[runs[0]] = system
    figures = of_cells(trained_runs, release, list(untrained), seed=seed, allow_missing=allow_missing)
    rows: dict[str, dict[str, Any]] = {}
    for run, system in untrained.items():
        rows.setdefault(system, {}).update(figures.untrained[run.name])
    return dataclasses.replace(figures, untrained=rows)


def _beside(id: str, rows: Sequence[BesidePaper]) -> Table:
    """One row for each system, part and measure: each figure, the paper's, and the difference."""
    kinds = set(map(attrgetter("figure"), rows))
    figures = [figure for figure in ("in", "out", "loss") if {figure, "value"} & kinds]
    reference = load(id)
    is_delta = "delta" in map(itemgetter("figure"), reference["cells"])  # a loss with the opposite sign
    keys = ["system", "part", "measure"]
    columns = [Column(name, wrap="never") for name in keys]
    for figure in figures:
        form = "z.1%" if figure == "loss" else "z.3f"
        sources: dict[str, Source] = {
            "Δ" if is_delta and figure == "loss" else figure: partial(_number, "ours", form),
            "paper": partial(_printed, form),
            "difference": partial(_number, "difference", f"+{form}"),
            "": lambda row: _MARKS[row["inside"]],
        }
        columns += [Column(name, "number", of(figure, each), none="", wrap="never") for name, each in sources.items()]
    frame = pl.DataFrame([row.as_json() for row in rows], infer_schema_length=None)
    frame = frame.with_columns(pl.col("figure").replace("value", "in"))
    if is_delta:
        sign = pl.when(pl.col("figure") == "loss").then(-1.0).otherwise(1.0)
        frame = frame.with_columns(pl.col("ours", "paper", "difference") * sign)
    title = f"{rows[0].shift}: ours compared with {rows[0].source} (arXiv {reference['paper']['arxiv']})"
    return laid_out(side_by_side(frame, keys, "figure"), columns, title=title)


_MARKS = {True: Value("✓", style="green"), False: Value("✗", style="red"), None: Value("")}


def _number(name: str, form: str, row: Fields) -> str:
    return or_dash(row[name], form)


def _printed(form: str, row: Fields) -> Value:
    return Value(format(row["paper"], form), style="dim")
