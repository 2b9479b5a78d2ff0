"""One self-contained HTML file about a grid, query variations, or both: losses, tables, figures, every query."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import polars as pl
from markupsafe import Markup

from eval_kit.authors.opening import ReleaseSource, open_release
from eval_kit.console import status
from eval_kit.errors import UserError, parameter
from eval_kit.pages.figures import figures
from eval_kit.pages.page import section
from eval_kit.protocols import papers
from eval_kit.protocols.grid_results import Protocols, of_cells
from eval_kit.protocols.in_out import in_and_out_by_query
from eval_kit.protocols.similarity import nearness, queries_to_encode, vectors_beside
from eval_kit.protocols.variations import Variations, variations
from eval_kit.release import Release
from eval_kit.results import Picture, Result, Section
from eval_kit.runs.given import GivenRuns, take
from eval_kit.runs.grids import in_cells
from eval_kit.runs.wordings import grid_and_worded
from eval_kit.sentences import counted
from eval_kit.shifts import SHIFTS, Shift
from eval_kit.stats.typical import about
from eval_kit.stats.vectors import Vectors, get
from eval_kit.svg import span
from eval_kit.tables.table import Column, Table, laid_out


@dataclass(frozen=True, repr=False)
class Report(Result):
    """A grid, query variations, or both; their page has a summary, figures and every query besides the tables.

    Attributes:
        grid: None for a report on query variations alone.
        changes: what query variations cost; None for a report on a grid alone.
        release: the one that was scored on.
        vectors: for the figures about R, as :func:`eval_kit.protocols.similarity.nearness` takes them, or a model or
            file as :func:`eval_kit.stats.vectors.get` does; by default the vectors that stand beside the runs.
    """

    title = "What the shift costs"

    grid: Protocols | None
    changes: Variations | None
    release: Release
    vectors: str | Vectors | Mapping[str, Vectors] | None = None

    @property
    def parts(self) -> list[Protocols | Variations]:
        """The grid and the changes, as far as they are there."""
        return list(filter(None, (self.grid, self.changes)))

    @property
    def provenance(self) -> Mapping[str, Any]:  # type: ignore[override]
        """That of the grid, or of the changes where there is no grid; with the runs of both."""
        if not self.parts:
            raise UserError("A report needs the runs of a grid or of query variations")
        runs = {run["file"]: run for part in self.parts for run in part.provenance["runs"]}
        return {**self.parts[0].provenance, "runs": list(runs.values())}

    @property
    def otherwise(self) -> Sequence[str]:  # type: ignore[override]
        """Those of the grid and of the changes."""
        return list(chain.from_iterable(part.otherwise for part in self.parts))

    def query_vectors(self) -> Vectors | Mapping[str, Vectors]:
        """The vectors for the figures about R; empty if there are none."""
        if isinstance(self.vectors, str):
            if self.grid is None:
                why = "Only a grid's figures need vectors, and no run is of a grid"
                raise UserError(f"Could not use {parameter('vectors')} {self.vectors}", why)
            return get(self.vectors, queries_to_encode(self.grid, self.release))
        if self.vectors is None and self.grid is not None:
            return vectors_beside(self.grid, self.release)
        return self.vectors or {}

    @property
    def heading(self) -> str:
        """The systems."""
        if self.grid is None and self.changes is not None:
            return self.changes.heading
        systems = _systems(self.parts)
        return f"{self.title} {', '.join(systems) if len(systems) < 5 else f'{len(systems)} systems'}"

    @property
    def subject(self) -> str:
        """How many systems, and on what."""
        systems = _systems(self.parts)
        subjects = [shift.title for shift in _shifts(self.grid)] if self.grid else []
        subjects += ["query variations"] if self.changes else []
        return f"{counted(len(systems), 'system')} on {', '.join(subjects)}"

    def sections(self) -> list[Section]:
        """Losses, tables and figures of a grid; what other wordings cost; and what all rests on."""
        vectors, changes, provenance = self.query_vectors(), self.changes, self.provenance
        with status("drawing figures"):
            sections = _of_grid(self.grid, self.release, vectors) if self.grid else []
            if changes is not None:
                systems = _systems([changes])
                values = {"changes": changes, "varied_systems": systems, "alone": self.grid is None}
                sections.append(section("Variations", "wordings.html.j2", provenance, **values))
        sources = [vectors] if isinstance(vectors, Vectors) else vectors.values()
        names = list(dict.fromkeys(Path(source.source).name for source in sources))
        runs = _runs(self.parts)
        return [*sections, section("Provenance", "provenance.html.j2", provenance, vectors=names, runs=runs)]

    def summary(self) -> list[str]:
        """What both have to say."""
        return list(chain.from_iterable(part.summary() for part in self.parts))

    def to_polars(self) -> pl.DataFrame:
        """The rows of the grid and of the changes."""
        return pl.concat([part.to_polars() for part in self.parts], how="diagonal_relaxed")

    def tables(self) -> list[Table]:
        """The tables of the grid and of the changes."""
        return list(chain.from_iterable(part.tables() for part in self.parts))

    def figures(self) -> list[Picture]:
        """The pictures of the changes; those of a grid are on the page alone."""
        return list(chain.from_iterable(part.figures() for part in self.parts))

    def notes(self) -> list[str]:
        """The notes of both."""
        return list(chain.from_iterable(part.notes() for part in self.parts))

    def method(self) -> list[str]:
        """The method of both."""
        return list(chain.from_iterable(part.method() for part in self.parts))

    def content(self) -> dict[str, Any]:
        """The document of the grid, with that of the changes as ``variations``; of one alone, its own."""
        if self.grid is None or self.changes is None:
            return self.parts[0].content()
        return self.grid.content() | {"variations": self.changes.as_json()}


def report(
    runs: GivenRuns,
    release: ReleaseSource = None,
    untrained: GivenRuns = (),
    *,
    vectors: str | None = None,
    seed: int = 0,
    allow_missing: bool = False,
) -> Report:
    """A grid, query variations, or both, with a page of figures besides the tables.

    Args:
        runs: as for :func:`eval_kit.protocols.grid_results.protocol`, like the rest; or of variations, recognised by
            name: ``<system>.<base>.<variation>`` and ``<system>`` for the original queries.
        release: the one whose test sets are scored.
        untrained: runs of systems that nothing was held out from.
        vectors: model or file for the figures about R, as for similarity; by default those beside the runs.
        seed: for the bootstrap.
        allow_missing: score test sets that a run covers only in part.

    Raises:
        UserError: as :func:`eval_kit.protocols.grid_results.protocol` and
            :func:`eval_kit.protocols.variations.variations`.
    """
    taken, without_cells = take(runs=runs, untrained=untrained)
    if not taken:
        raise UserError("No runs were given", do="Add the RUN files of a grid")
    opened_release = open_release(release)
    of_grid, worded = grid_and_worded([*taken, *without_cells], opened_release)
    of_grid = in_cells([run for run in of_grid if run not in without_cells])
    grid = changes = None
    if of_grid:
        grid = of_cells(of_grid, opened_release, without_cells, seed=seed, allow_missing=allow_missing)
    if worded:
        changes = variations(worded, opened_release, seed=seed, allow_missing=allow_missing)
    result = Report(grid, changes, opened_release, vectors)
    # those that were named are taken at once, as a result without a page would never find them wrong
    return result if vectors is None else replace(result, vectors=result.query_vectors())


def _of_grid(grid: Protocols, release: Release, vectors: Vectors | Mapping[str, Vectors]) -> list[Section]:
    """The sections about a grid."""
    shifts = _shifts(grid)
    grid = replace(grid, results={shift.name: grid.results[shift.name] for shift in shifts})
    pairs, summaries = {}, {}
    ends: list[float | None] = []
    for name, results in grid.results.items():
        pairs[name] = in_and_out_by_query(grid.values, name, release)
        losses = grid.standings(name)
        summaries[name] = _summaries(results, losses)
        ends.extend(losses.select("rel_loss", "rel_loss_low", "rel_loss_high").unpivot()["value"])
    systems = _systems([grid])
    r = nearness(grid, release, vectors) if vectors else None
    described = {shift: replace(table, title="") for shift, table in about(release).items()}
    of_grid = partial(section, provenance=grid.provenance, grid=grid, shifts=shifts, systems=systems)
    return [
        of_grid("Summary", "summary.html.j2", summaries=summaries, scale=span(ends), in_words=papers.in_words),
        of_grid("Tables", "tables.html.j2", about=described, every_loss=papers.every_loss(grid.results)),
        of_grid("Figures", "figures.html.j2", figures=figures(grid, pairs, systems, release, r)),
    ]


def _shifts(grid: Protocols) -> list[Shift]:
    return [shift for shift in SHIFTS.values() if shift.name in grid.results]


def _systems(parts: Sequence[Protocols | Variations]) -> list[str]:
    """In the order of the pages' markers: those of a grid by shift, then those of variations."""
    frames: list[pl.DataFrame] = []
    for part in parts:
        if isinstance(part, Protocols):
            frames += [part.results[shift.name] for shift in _shifts(part)]
        else:
            frames.append(part.results)
    return pl.concat(frame.select("system") for frame in frames)["system"].unique(maintain_order=True).to_list()


def _summaries(results: pl.DataFrame, of_shift: pl.DataFrame) -> list[tuple[dict[str, Any], list[dict[str, Any]]]]:
    """The greatest loss first, each with its results by cluster, the least loss first."""
    summaries = []
    for row in sorted(of_shift.to_dicts(), key=lambda row: (row.get("size", ""), -(row["rel_loss"] or 0))):
        clusters = results.filter(pl.col("rel_loss").is_not_null(), system=row["system"], measure=row["measure"])
        summaries.append((row, clusters.sort("rel_loss").to_dicts() if "cluster" in results.columns else []))
    return summaries


def _runs(parts: Sequence[Result]) -> Table:
    """Every run that was read, once."""
    rows = {}
    for part in parts:
        for run in part.provenance["runs"]:
            rows[run["file"]] = run
    columns = [
        Column("Run", source=lambda run: Path(run["run"]).name),
        Column("Lines", "number", "lines", ","),
        Column("Queries", "number", "queries", ","),
        Column("sha256", source=lambda run: Markup("<code>{}</code>").format(run["sha256"])),
    ]
    return laid_out(rows.values(), columns, title="Runs")
