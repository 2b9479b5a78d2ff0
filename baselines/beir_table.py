"""Several systems on the datasets of BEIR, laid out as the paper's Tables 2 and 9, with its figures beside."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from eval_kit.measures.beir import HOLE, Report, average_of, open_all, score_all
from eval_kit.measures.beir import Row as DatasetRow
from eval_kit.measures.definitions import parse
from eval_kit.release import beir_suite
from eval_kit.tables.table import Cell, Column, Row, Table

BM25 = ("bm25-multifield", "bm25")
"""The first of these among the systems is the one that others are compared with: the paper's BM25 has two fields."""
TITLES = {
    "nDCG@10": "nDCG@10 (Table 2)",
    "R@100": "R@100 (Table 9)",
    HOLE: f"{HOLE} (Table 4)",
}
CAPPED = "trec-covid"
"""The dataset for which Table 9 has capped recall."""


@dataclass(frozen=True)
class Suite:
    """Each system's report over the same datasets, against BM25 if that is one of the systems.

    Attributes:
        reports: by system.
        published_as: the paper's name of a system, where it differs.
    """

    reports: Mapping[str, Report]
    published_as: Mapping[str, str]

    def as_json(self) -> dict[str, Any]:
        """Plain JSON values: one report per system."""
        return {"systems": {system: report.as_json() for system, report in self.reports.items()}}

    def print(self, console: Console) -> None:
        """One table per measure, and remarks."""
        for measure in TITLES:
            console.print(self.table(measure))
        for report in self.reports.values():
            for note in report.notes():
                console.print(Text(note))

    def table(self, measure: str) -> Table:
        """One row per dataset; for each system our figure and, where there is one, the paper's."""
        columns = [Column("dataset", wrap="anywhere")]
        for system in self.reports:
            columns.append(Column("ours", "number", group=system, wrap="never"))
            if self._is_published(system, measure):
                columns.append(Column("BEIR", "number", group=system, wrap="never"))
        ours = {system: report.by_dataset() for system, report in self.reports.items()}
        rows = [self._row(dataset, measure, ours) for dataset in next(iter(ours.values()))]
        compared = measure == "nDCG@10" and _bm25(self.reports) and len(self.reports) > 1
        groups = [rows, [self._against_bm25()]] if compared else [rows]
        return Table(columns, groups, title=TITLES[measure])

    def _row(self, dataset: str, measure: str, ours: Mapping[str, Mapping[str, DatasetRow]]) -> Row:
        shown = "R_cap@100" if measure == "R@100" and dataset == CAPPED else measure
        cells: list[Cell | str] = [f"{dataset} ({shown})" if shown != measure else dataset]
        for system, by_dataset in ours.items():
            cells.append(_shown(by_dataset[dataset].values.get(shown), shown))
            if self._is_published(system, measure):
                cells.append(_shown(self._published(system, dataset).get(shown), shown))
        return cells

    def _against_bm25(self) -> Row:
        """The ratio of the means less 1; the paper's own row is left out, as it does not follow from its cells."""
        reference = _bm25(self.reports)
        cells = [f"Avg. vs. {reference}"]
        for system, report in self.reports.items():
            relative = report.average.relative if report.average and system != reference else None
            cells.append("" if relative is None else f"{relative:+.1%}")
            cells += [""] * self._is_published(system, "nDCG@10")
        return cells

    def _published(self, system: str, dataset: str) -> Mapping[str, float]:
        return beir_suite.published_values().get((self.published_as.get(system, system), dataset), {})

    def _is_published(self, system: str, measure: str) -> bool:
        name = self.published_as.get(system, system)
        return any(name == key and measure in values for (key, _), values in beir_suite.published_values().items())


def suite(
    runs: Mapping[str, Sequence[Path]],
    folders: Sequence[Path],
    published_as: Mapping[str, str] | None = None,
    on_run: Callable[[Path], object] = lambda run: None,
) -> Suite:
    """Score systems on the same datasets.

    Args:
        runs: of each system, one per dataset, in the order of ``folders``.
        folders: in BEIR's format.
        published_as: the paper's name of a system, where it differs.
        on_run: called with each run before it is read.

    Raises:
        UserError: what :func:`eval_kit.measures.beir.open_all` and :func:`eval_kit.measures.beir.score` refuse.
    """
    datasets = open_all(folders)
    scores = {system: score_all(files, datasets, on_run) for system, files in runs.items()}
    bm25 = scores.get(_bm25(scores) or "", [])
    reports = {system: Report(entries, [], average_of(entries, bm25)) for system, entries in scores.items()}
    return Suite(reports, published_as or {})


def _bm25(systems: Mapping[str, object]) -> str | None:
    """The system that stands for the paper's BM25, if there is one."""
    return next((name for name in BM25 if name in systems), None)


def _shown(value: float | None, measure: str) -> str:
    if value is None:
        return "-"
    return f"{value:.1%}" if measure == HOLE else parse(measure).show_as_cikm_2022(value)
