"""Does interpolation or extrapolation performance predict how models do out of distribution? (CIKM 2022 §4.2, Table 5).

Each trained model has one score on the test set in question (the paper's: nDCG@10 on TREC DL 2019 and 2020) and one
on each BEIR dataset. The models trained for interpolation and those trained for extrapolation are correlated
with each dataset separately: the paper has 24 of each. A system that was not trained twice, such as one evaluated by
ReSTTest, has two rows that differ in ``training`` and ``score`` alone.
"""

import csv
import io
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from eval_kit import __version__, plots
from eval_kit.errors import UserError
from eval_kit.files.digests import file_sha256
from eval_kit.files.faults import Faults
from eval_kit.files.text import read_utf8
from eval_kit.protocols.align_results import read_results
from eval_kit.release.beir_suite import datasets
from eval_kit.results import Picture, Result
from eval_kit.stats.losses import RESAMPLES, correlations
from eval_kit.svg import Point
from eval_kit.tables.table import Column, Table, Value, number_columns

TRAININGS = ("interpolation", "extrapolation")
KINDS = ("spearman", "kendall")
COLUMNS = ("system", "training", "score")
BOLD_FROM = 0.3
"""The better of two correlations is bold from here: the paper leaves "very low" ones plain (its highest is 0.283)."""

DOMAINS = {dataset.published_as: dataset.in_table_5 for dataset in datasets().values() if dataset.in_table_5}
"""Table 5's names and domains, by the names that the reference tables give BEIR's datasets."""

_TEXT, _FLOAT = pl.String(), pl.Float64()
_MODELS = {"system": _TEXT, "training": _TEXT, "score": _FLOAT, "dataset": _TEXT, "value": _FLOAT}
_CORRELATIONS = {
    **dict.fromkeys(("dataset", "training", "kind"), _TEXT),
    "n": pl.Int64(),
    **dict.fromkeys(("value", "low", "high", "p"), _FLOAT),
}
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)


@dataclass(frozen=True, repr=False)
class Alignment(Result):
    """Correlations by dataset, training and kind, the models they are of (see :func:`align`), and their files."""

    title = "Do interpolation and extrapolation tell how models do on BEIR?"

    models: pl.DataFrame
    correlations: pl.DataFrame
    provenance: dict[str, Any]

    def as_json(self) -> dict[str, Any]:
        """Plain JSON values, one row per correlation."""
        return {"alignment": self.correlations.to_dicts(), "provenance": self.provenance}

    def to_polars(self) -> pl.DataFrame:
        """One row per correlation."""
        return self.correlations

    def tables(self) -> list[Table]:
        """Table 5."""
        return [layout(self.correlations)]

    def notes(self) -> list[str]:
        """What the table counts."""
        return ["n: models of interpolation / extrapolation; 95 % bootstrap intervals over models."]

    def figures(self) -> list[Picture]:
        """Figure 2, which the paper draws for TREC-COVID, for each dataset and training."""
        figures = []
        for (dataset, training), models in self.models.group_by("dataset", "training", maintain_order=True):
            title = DOMAINS.get(str(dataset), (str(dataset), ""))[0]
            points = []
            for system, score, value in models.select("system", "score", "value").iter_rows():
                points.append(Point(score, value, f"{system}: {score:.3f}, {title} {value:.3f}"))
            heading = f"CIKM 2022, Figure 2: {title} against {training}"
            picture = plots.points({str(training): points}, f"{training} score", "nDCG@10", heading, connect=False)
            figures.append(Picture(picture))
        return figures


def align_files(paths: Sequence[Path], seed: int = 0) -> Alignment:
    """Correlate models' scores.

    Args:
        paths: one file as :func:`read` takes it, or results as :func:`eval_kit.protocols.align_results.read_results`
            does; both raise a UserError for what they refuse.
        seed: for the bootstrap.
    """
    is_table = len(paths) == 1 and paths[0].suffix.lower() != ".json"
    models = read(paths[0]) if is_table else pl.DataFrame(read_results(paths), _MODELS, orient="row")
    provenance = {
        "kit_version": __version__,
        "files": [{"file": str(path), "sha256": file_sha256(path)} for path in paths],
        "resamples": RESAMPLES,
        "seed": seed,
    }
    return Alignment(models, align(models, seed=seed), provenance)


def align(models: pl.DataFrame, seed: int = 0) -> pl.DataFrame:
    """Spearman's and Kendall's correlation (tau-b) of the models' scores with each dataset's.

    Args:
        models: ``system``, ``training`` (interpolation or extrapolation), ``score``, ``dataset``, ``value``; a row
            for each model and dataset.
        seed: for the bootstrap over models.

    Returns:
        ``dataset``, ``training``, ``kind``, ``n`` (models), ``value``, ``low``, ``high`` (95 %), ``p`` (against no
        correlation); values are null for fewer than three models, or where all have the same score.
    """
    rows = []
    for dataset in models["dataset"].unique(maintain_order=True):
        for training in TRAININGS:
            of_training = models.filter(pl.col("dataset") == dataset, pl.col("training") == training)
            if of_training.is_empty():
                continue
            pair = of_training["score"].to_numpy(), of_training["value"].to_numpy()
            for kind, correlation in correlations(*pair, kinds=KINDS, seed=seed).items():
                value = correlation.estimate
                rows.append((dataset, training, kind, value.n, value.value, value.low, value.high, correlation.p))
    return pl.DataFrame(rows, _CORRELATIONS, orient="row")


def layout(table: pl.DataFrame) -> Table:
    """Table 5 of the rows of :func:`align`: Spearman and Kendall, each Inter. and Extra., the better one bold."""
    columns = [Column("Datasets", wrap="anywhere"), Column("Domain"), Column("n", "number")]
    for kind in ("Spearman", "Kendall"):
        columns += number_columns("Inter.", "Extra.", group=kind, wrap="never")
    lines = []
    for dataset in table["dataset"].unique(maintain_order=True):
        rows = table.filter(pl.col("dataset") == dataset).rows_by_key(["kind", "training"], named=True, unique=True)
        name, domain = DOMAINS.get(dataset.removeprefix("beir."), (dataset, ""))
        counts = dict.fromkeys(str(row["n"]) for row in rows.values())
        line: list[Value | str] = [name, domain, "/".join(counts)]
        for kind in KINDS:
            line += _cells([rows.get((kind, training)) for training in TRAININGS])
        lines.append(line)
    return Table(columns, [lines])


def _cells(rows: Sequence[dict[str, Any] | None]) -> Iterator[Value]:
    values = [-math.inf if row is None or row["value"] is None else row["value"] for row in rows]
    best = max(values) if max(values) >= BOLD_FROM and min(values) < max(values) else math.inf
    for row, value in zip(rows, values, strict=True):
        if row is None or value == -math.inf:
            yield Value("-")
        else:
            interval = "" if row["low"] is None else f"[{row['low']:.2f}, {row['high']:.2f}]"
            yield Value(f"{value:.3f}", below=interval, bold=value == best)


def read(path: Path) -> pl.DataFrame:
    """Read models' scores: the header ``system,training,score`` and then one column for each dataset.

    Returns:
        As :func:`align` takes it.

    Raises:
        UserError: ``file:line`` of the first faults, and how many more there are.
    """
    if path.suffix.lower() != ".csv":
        raise UserError(f"{path}: expected a .csv file of models' scores")
    return pl.DataFrame(_read_csv(path, read_utf8(path)), _MODELS, orient="row")


def _read_csv(path: Path, text: str) -> list[tuple[str, str, float, str, float]]:
    faults = Faults(path)
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    rows: list[tuple[str, str, float, str, float]] = []
    keys: set[tuple[str, str]] = set()
    datasets: list[str] = []
    try:
        header = next(reader, [])
        datasets = header[len(COLUMNS) :]
        if tuple(header[: len(COLUMNS)]) != COLUMNS or not all(datasets) or len(set(header)) < len(header):
            faults.add(1, "expected the header system,training,score and one column for each dataset")
        elif not datasets:
            faults.add(1, "has no dataset column after system,training,score")
        faults.raise_any()
        for fields in reader:
            what = _fault_of_fields(fields, len(header)) or _fault_of_model(fields[0], fields[1], keys)
            if what:
                faults.add(reader.line_num, what)
                continue
            score, *values = map(float, fields[2:])
            rows += [(fields[0], fields[1], score, *pair) for pair in zip(datasets, values, strict=True)]
    except csv.Error as error:
        faults.add(reader.line_num, f"is not CSV: {error}")
    if not rows and not faults.count:
        faults.add(2, "no model follows the header")
    faults.raise_any()
    return rows


def _fault_of_fields(fields: Sequence[str], columns: int) -> str:
    if len(fields) != columns:
        return f"{len(fields)} columns, the header has {columns}"
    wrong = next(
        (field for field in fields[2:] if not (_NUMBER.fullmatch(field) and math.isfinite(float(field)))), None
    )
    return "" if wrong is None else f"{wrong[:40]!r} is not a finite number"


def _fault_of_model(system: str, training: str, keys: set[tuple[str, str]]) -> str:
    """What is wrong with a model's name, which is noted as seen if nothing is."""
    if not system.strip():
        return "the system has no name"
    if training not in TRAININGS:
        return f"the training {training[:40]!r} is neither {' nor '.join(TRAININGS)}"
    if (system, training) in keys:
        return f"{system} appears twice for {training}"
    keys.add((system, training))
    return ""
