"""Do systems' figures on MS MARCO tell how they do elsewhere? (Thakur et al. 2021, §5, the first finding)

The paper finds that "in-domain performance is not a good indicator" and prints no coefficient. Here it is Spearman's,
over systems, of nDCG@10 on MS MARCO with the mean nDCG@10 over the other datasets: in the paper's Table 2, and of the
systems in results of ``beir --json``.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from eval_kit import __version__
from eval_kit.errors import UserError
from eval_kit.files import strict_json
from eval_kit.files.digests import file_sha256
from eval_kit.protocols.align_results import beir_scores
from eval_kit.release.beir_suite import ANNOTATED, MS_MARCO, published_values
from eval_kit.results import Result
from eval_kit.stats.losses import RESAMPLES, correlations
from eval_kit.tables.table import Column, Table, number_columns

PUBLISHED = {
    "BEIR, Table 2": (),
    "BEIR, Table 2, trained": ("bm25",),
    "BEIR, Table 2, trained on MS MARCO": ("bm25", "dpr"),
}
"""Groups of the paper's systems, by those that are left out (§4)."""
GIVEN = "the given results"

type Scores = Mapping[str, Mapping[str, float]]
"""System -> dataset -> nDCG@10."""


@dataclass(frozen=True, repr=False)
class InDomain(Result):
    """Spearman's correlation in each group of systems, with 95 % bootstrap intervals over systems, and p."""

    title = "In-domain figures against out-of-domain ones"

    rows: pl.DataFrame
    provenance: dict[str, Any]

    def to_polars(self) -> pl.DataFrame:
        """``systems`` (the group), ``n``, ``datasets`` (besides MS MARCO), ``spearman``, ``low``, ``high``, ``p``."""
        return self.rows

    def tables(self) -> list[Table]:
        """A line for each group."""
        columns = [Column("systems"), *number_columns("n", "datasets", "Spearman", "95 %", "p")]
        lines = []
        for name, n, datasets, value, low, high, p in self.rows.iter_rows():
            interval = "" if low is None else f"{low:.2f} to {high:.2f}"
            figures = ["-", "", ""] if value is None else [f"{value:.2f}", interval, f"{p:.3f}"]
            lines.append([name, str(n), str(datasets), *figures])
        return [Table(columns, [lines])]

    def notes(self) -> list[str]:
        """What is correlated."""
        return ["Over systems: nDCG@10 on MS MARCO with the mean over the other datasets (BEIR, §5)."]


def lack_protocol(paths: Sequence[Path]) -> bool:
    """Whether files are results on BEIR alone, and so nothing that :mod:`eval_kit.protocols.align` compares."""
    for path in paths:
        document = strict_json.read(path) if path.suffix == ".json" else None
        if not isinstance(document, dict) or "protocols" in document:
            return False
    return True


def in_domain(paths: Sequence[Path] = (), seed: int = 0) -> InDomain:
    """Correlate figures on MS MARCO with those elsewhere, in the paper and in results.

    Args:
        paths: files of ``beir --json``, whose systems are taken together; none for the paper alone.
        seed: for the bootstrap.

    Raises:
        UserError: a file that no such command has written; systems that lack MS MARCO or one another's datasets.
    """
    paper: dict[str, dict[str, float]] = {}
    for (system, dataset), values in published_values().items():
        if dataset != ANNOTATED:
            paper.setdefault(system, {})[dataset] = values["nDCG@10"]
    groups: dict[str, Scores] = {}
    for name, without in PUBLISHED.items():
        groups[name] = {system: values for system, values in paper.items() if system not in without}
    if paths:
        groups[GIVEN] = beir_scores(paths)
    rows = pl.DataFrame([_row(name, scores, seed) for name, scores in groups.items()])
    files = [{"file": str(path), "sha256": file_sha256(path)} for path in paths]
    return InDomain(rows, {"kit_version": __version__, "files": files, "resamples": RESAMPLES, "seed": seed})


def _row(name: str, scores: Scores, seed: int) -> dict[str, Any]:
    datasets = {dataset for values in scores.values() for dataset in values} | {MS_MARCO}
    for system, values in scores.items():
        if lacking := sorted(datasets - values.keys()):
            raise UserError(f"{system} has no result on {lacking[0]}; all need {MS_MARCO} and the same others")
    if len(datasets) == 1:
        raise UserError(f"the results are on {MS_MARCO} alone; give some on other datasets, too")
    inside = [values[MS_MARCO] for values in scores.values()]
    outside = [(sum(values.values()) - values[MS_MARCO]) / (len(values) - 1) for values in scores.values()]
    correlation = correlations(inside, outside, kinds=("spearman",), seed=seed)["spearman"]
    value = correlation.estimate
    row = {"systems": name, "n": value.n, "datasets": len(datasets) - 1, "spearman": value.value}
    return {**row, "low": value.low, "high": value.high, "p": correlation.p}
