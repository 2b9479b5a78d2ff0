"""One self-contained HTML file about a grid: what each system loses, the papers' tables and figures, every query."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
from markupsafe import Markup

from eval_kit.files import atomic
from eval_kit.pages.explorer import explorer
from eval_kit.pages.figures import figures
from eval_kit.pages.page import render
from eval_kit.pages.plots import span
from eval_kit.pages.report_data import Standing, lower_is_better, nearness, paired, standings
from eval_kit.protocols.grid_results import Protocols
from eval_kit.protocols.in_out import main_measure
from eval_kit.release import Release
from eval_kit.shifts import SHIFTS
from eval_kit.stats.vectors import Vectors
from eval_kit.tables import papers
from eval_kit.tables.html import to_html
from eval_kit.tables.table import Column, Table


def write_report(
    grid: Protocols,
    release: Release,
    out: Path,
    vectors: Vectors | Mapping[str, Vectors] | None = None,
) -> None:
    """Write the report; the same arguments give the same bytes.

    Args:
        grid: from :func:`eval_kit.protocols.grid_results.protocols`.
        release: that was scored on.
        out: the file to write.
        vectors: of the queries, for the figures about R; see :func:`eval_kit.pages.report_data.nearness`.

    Raises:
        UserError: vectors that lack a query, or a file that cannot be written.
    """
    grid = replace(grid, results={shift: grid.results[shift] for shift in SHIFTS if shift in grid.results})
    pairs = {shift: paired(grid.values, shift, release) for shift in grid.results}
    r = None if vectors is None else nearness(grid, release, vectors)
    systems = pl.concat(results["system"] for results in grid.results.values()).unique(maintain_order=True).to_list()
    sources = [vectors] if isinstance(vectors, Vectors) else (vectors or {}).values()
    by_shift = {shift: standings(grid, shift, pairs[shift]) for shift in grid.results}
    every = [standing for of_shift in by_shift.values() for standing in of_shift]
    page = render(
        "report.html.j2",
        ["tables.js", "explorer.js"],
        systems=systems,
        shifts=[SHIFTS[shift] for shift in grid.results],
        summaries={shift: _summaries(grid.results[shift], of_shift) for shift, of_shift in by_shift.items()},
        scale=span(end for standing in every for end in (standing.loss, standing.low, standing.high)),
        tables={shift: _tables(grid, shift) for shift in grid.results},
        matrices={shift: _matrices(grid, shift) for shift in grid.results if SHIFTS[shift].clustered},
        contaminated=grid.contaminated(),
        every_loss=to_html(papers.every_loss(grid.results)),
        figures=figures(grid, pairs, systems, release, r),
        explorer=explorer(grid, pairs, systems, release, r),
        provenance=grid.provenance,
        runs=_runs(grid),
        vectors=list(dict.fromkeys(Path(source.source).name for source in sources)),
    )
    atomic.write_text(out, page)


def _summaries(results: pl.DataFrame, of_shift: list[Standing]) -> list[tuple[Standing, list[dict[str, Any]]]]:
    """The greatest loss first, each with its results by cluster, the least loss first."""
    summaries = []
    for standing in sorted(of_shift, key=lambda standing: (standing.part, -(standing.loss or 0))):
        known = results.filter(
            pl.col("system") == standing.system, pl.col("measure") == standing.measure, pl.col("rel_loss").is_not_null()
        )
        summaries.append((standing, known.sort("rel_loss").to_dicts() if "cluster" in results.columns else []))
    return summaries


def _tables(grid: Protocols, shift: str) -> list[tuple[str, Markup]]:
    """The tables of a shift as in the papers, with their measures, the main one first."""
    results = grid.results[shift]
    if not SHIFTS[shift].clustered:
        test_queries = "TREC DL 2019 and 2020" if SHIFTS[shift].group else "dev"
        table = papers.inter_extra(results, marks=True)
        return [("", to_html(replace(table, title=f"Inter., Extra. and Δ over {test_queries}")))]
    tables = []
    for measure in dict.fromkeys([main_measure(results), *results["measure"]]):
        untrained = grid.untrained_on(shift, measure)
        table = papers.ms_shift(results, grid.clusters[shift], measure, untrained, best_in_bold=True)
        tables.append((measure, _with_direction(table, measure)))
    return tables


def _matrices(grid: Protocols, shift: str) -> list[Markup]:
    sets = [f"{shift}.{cluster}" for cluster in grid.clusters[shift]]
    results = grid.results[shift]
    measure = main_measure(results)
    return [
        _with_direction(papers.matrix(grid.matrices[shift], sets, measure, system), measure)
        for system in results["system"].unique(maintain_order=True)
    ]


def _with_direction(table: Table, measure: str) -> Markup:
    """The table; its title says so where lower is better."""
    if lower_is_better(measure):
        table = replace(table, title=f"{table.title} (lower is better: a negative loss is harm)")
    return to_html(table)


def _runs(grid: Protocols) -> Markup:
    rows = []
    for run in grid.provenance["runs"]:
        digest = Markup("<code>{}</code>").format(run["sha256"])
        rows.append([Path(run["run"]).name, f"{run['lines']:,}", f"{run['queries']:,}", digest])
    columns = [Column("Run"), Column("Lines", "number"), Column("Queries", "number"), Column("sha256")]
    return to_html(Table(columns, [rows], "Runs"))
