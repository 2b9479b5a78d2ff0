"""From grid runs to protocol results: score, group by shift, compare, and lay out."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl
from rich.console import Console

from eval_kit.errors import UserError
from eval_kit.measures.score import Scores, run_name, score
from eval_kit.protocols import in_out as protocol
from eval_kit.release import Release
from eval_kit.runs.names import Cell, grid, named, parts
from eval_kit.tables import papers as paper_tables

MS_SHIFT = ("topic", "wh", "length")


@dataclass(frozen=True)
class Protocols:
    """Results by shift, what they rest on, and the values of untrained systems.

    ``values`` are the grid runs' per-query values, with ``system``, ``shift``, ``held_out`` and ``seed``.
    """

    values: pl.DataFrame
    results: dict[str, pl.DataFrame]
    matrices: dict[str, pl.DataFrame]
    untrained: dict[str, dict[str, dict[str, float]]]
    clusters: dict[str, list[str]]
    provenance: dict[str, Any]

    def as_json(self) -> dict[str, Any]:
        """Plain JSON values: one list of rows a shift."""
        return {
            "protocols": {shift: frame.to_dicts() for shift, frame in self.results.items()},
            "matrices": {shift: frame.to_dicts() for shift, frame in self.matrices.items()},
            "untrained": self.untrained,
            "provenance": self.provenance,
        }

    def print(self, console: Console) -> None:
        """The papers' tables, one shift after the other."""
        for shift, results in self.results.items():
            console.rule(shift)
            if shift == "restrain":
                console.print(paper_tables.restrain(results))
            elif shift == "resttest":
                console.print(paper_tables.resttest(results))
            else:
                for measure in results["measure"].unique(maintain_order=True):
                    untrained = {
                        system: {cluster: sets[f"{shift}.{cluster}"][measure] for cluster in self.clusters[shift]}
                        for system, sets in self._untrained_on(shift).items()
                    }
                    console.print(paper_tables.ms_shift(results, self.clusters[shift], measure, untrained))
        console.print("° not significant: paired t-test, p ≥ 0.05 after Holm's correction", style="dim")

    def _untrained_on(self, shift: str) -> dict[str, dict[str, dict[str, float]]]:
        wanted = {f"{shift}.{cluster}" for cluster in self.clusters[shift]}
        return {system: sets for system, sets in self.untrained.items() if wanted <= set(sets)}


def protocols(
    runs: Sequence[Path] | Mapping[Path, Cell],
    release: Release,
    untrained: Sequence[Path] = (),
    seed: int = 0,
    allow_missing: bool = False,
    on_run: Callable[[Path], object] = lambda run: None,
) -> Protocols:
    """Every protocol that the given grid runs make complete.

    Args:
        runs: files named ``<system>.<shift>.<held-out>.trec``, or files with their cells.
        release: whose test sets.
        untrained: runs of systems that nothing was held out from, for a row of their own.
        seed: of the bootstrap.
        allow_missing: as for :func:`eval_kit.measures.score.score`.
        on_run: called with each run before it is read.

    Raises:
        UserError: a name that tells no cell, a missing cell (with the file name expected), or a run that does not
            cover the test sets of its shift.
    """
    cells = dict(runs) if isinstance(runs, Mapping) else named(runs)
    grid(cells.values(), release)
    scores = score([*runs, *untrained], release, allow_missing, on_run)
    values = _values(scores, cells)
    results: dict[str, pl.DataFrame] = {}
    matrices: dict[str, pl.DataFrame] = {}
    clusters: dict[str, list[str]] = {}
    for shift in dict.fromkeys(cell.shift for cell in cells.values()):
        here = values.filter(pl.col("shift") == shift)
        clusters[shift] = parts(release, shift)
        _refuse_foreign_runs(shift, cells, here)
        matrices[shift] = protocol.matrix(here)
        if shift in MS_SHIFT:
            results[shift] = protocol.losses(here, clusters[shift], shift, seed)
        elif shift == "restrain":
            results[shift] = protocol.restrain(here, seed)
        else:
            results[shift] = protocol.resttest(here, release.table("resttest", "dev"), seed)
    provenance = {**scores.provenance, "seed": seed}
    return Protocols(values, results, matrices, _untrained(scores, untrained), clusters, provenance)


def _values(scores: Scores, cells: dict[Path, Cell]) -> pl.DataFrame:
    by_name = {run_name(run): cell for run, cell in cells.items()}
    by_name |= {str(run): cell for run, cell in cells.items()}
    of_runs = pl.DataFrame(
        [(name, cell.system, cell.shift, cell.held_out, cell.seed) for name, cell in by_name.items()],
        {"run": pl.String, "system": pl.String, "shift": pl.String, "held_out": pl.String, "seed": pl.Int64},
        orient="row",
    )
    return scores.per_query().join(of_runs, on="run", how="inner", maintain_order="left")


def _refuse_foreign_runs(shift: str, cells: dict[Path, Cell], values: pl.DataFrame) -> None:
    """A run that covers no test set of the shift in its name was made on something else."""
    own = {"restrain": ["dl19", "dl20"], "resttest": ["dev"]}.get(shift)
    on_shift = pl.col("test_set").is_in(own) if own else pl.col("test_set").str.starts_with(f"{shift}.")
    covered = {tuple(row) for row in values.filter(on_shift).select("system", "held_out", "seed").unique().iter_rows()}
    for run, cell in cells.items():
        if cell.shift == shift and (cell.system, cell.held_out, cell.seed) not in covered:
            raise UserError(f"{run}: covers no test set of the {shift} shift, which it was trained on")


def _untrained(scores: Scores, runs: Sequence[Path]) -> dict[str, dict[str, dict[str, float]]]:
    names = {run_name(run) for run in runs} | {str(run) for run in runs}
    values: dict[str, dict[str, dict[str, float]]] = {}
    for one in scores.figures:
        if one.run in names:
            values.setdefault(one.run, {}).setdefault(one.test_set, {})[one.measure] = one.value
    return values
