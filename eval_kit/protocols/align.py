"""Does interpolation or extrapolation performance predict how models do out of distribution? (CIKM 2022 §4.2, Table 5).

Each trained model has one score on the test set in question (the paper's: nDCG@10 on TREC DL 2019 and 2020) and one
on each BEIR dataset. The models trained for interpolation and those trained for extrapolation are correlated
with each dataset separately: the paper has 24 of each. A system that was not trained twice, such as one evaluated by
ReSTTest, has two rows that differ in ``training`` and ``score`` alone.
"""

from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import ArrayLike

from eval_kit import __version__, plots
from eval_kit.errors import UserError
from eval_kit.files.digests import file_sha256
from eval_kit.files.faults import Faults
from eval_kit.files.numbers import finite_number
from eval_kit.files.records import Layout, records
from eval_kit.results import Picture, Result
from eval_kit.stats.figure import Figure
from eval_kit.stats.losses import FEWEST_PAIRS, RESAMPLES, spearman
from eval_kit.svg import Point
from eval_kit.tables.table import Column, Fields, Table, Value, laid_out, of, or_dash, p_said, side_by_side, sides

TRAININGS = ("interpolation", "extrapolation")
COLUMNS = ("system", "training", "score")
_LAYOUT = Layout(
    names=[[name] for name in COLUMNS],
    places={},
    expected="columns named system, training and score, and one for each dataset",
)

_TEXT, _FLOAT = pl.String(), pl.Float64()
_MODELS = {"system": _TEXT, "training": _TEXT, "score": _FLOAT, "dataset": _TEXT, "value": _FLOAT}
_CORRELATIONS = {
    **dict.fromkeys(("dataset", "training"), _TEXT),
    "n": pl.Int64(),
    **dict.fromkeys(("value", "low", "high", "p", "kendall"), _FLOAT),
}


@dataclass(frozen=True, repr=False)
class Alignment(Result):
    """Spearman's and Kendall's correlations by dataset and training, their models (see :func:`align`) and the file."""

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
        """Table 5: Spearman's and Kendall's coefficients by dataset, Inter. and Extra."""
        columns = [Column("Datasets", source="dataset", wrap="anywhere"), Column("n", "number", _counts)]
        shows = {"Spearman": _correlation, "Kendall": lambda row: Value(or_dash(row["kendall"], ".3f"))}
        for coefficient, show in shows.items():
            for name, training in zip(("Inter.", "Extra."), TRAININGS, strict=True):
                columns.append(Column(name, "number", of(training, show), group=coefficient, wrap="never"))
        return [laid_out(side_by_side(self.correlations, ["dataset"], "training"), columns)]

    def method(self) -> list[str]:
        """What the table counts."""
        of = f"From {FEWEST_PAIRS} models on, correlations have 95 % bootstrap intervals over models"
        return [f"n counts the models of interpolation / extrapolation. {of}. Kendall's is τ-b"]

    def figures(self) -> list[Picture]:
        """Figure 2, which the paper draws for TREC-COVID, for each dataset and training."""
        figures = []
        for (dataset, training), models in self.models.group_by("dataset", "training", maintain_order=True):
            points = []
            for system, score, value in models.select("system", "score", "value").iter_rows():
                points.append(Point(score, value, f"{system}: {score:.3f}, {dataset} {value:.3f}"))
            heading = f"CIKM 2022, Figure 2: {dataset} against {training}"
            picture = plots.points({str(training): points}, f"{training} score", "nDCG@10", heading)
            figures.append(Picture(picture))
        return figures


def align(scores: str | PathLike[str], seed: int = 0) -> Alignment:
    """Correlate models' scores.

    Args:
        scores: a file as :func:`read` takes it.
        seed: for the bootstrap.

    Raises:
        UserError: what :func:`read` refuses.
    """
    path = Path(scores)
    models = read(path)
    file = {"file": str(path), "sha256": file_sha256(path)}
    provenance = {"kit_version": __version__, "files": [file], "resamples": RESAMPLES, "seed": seed}
    return Alignment(models, correlations(models, seed=seed), provenance)


def correlations(models: pl.DataFrame, seed: int = 0) -> pl.DataFrame:
    """Spearman's correlation of the models' scores with each dataset's.

    Args:
        models: ``system``, ``training`` (interpolation or extrapolation), ``score``, ``dataset``, ``value``; a row
            for each model and dataset.
        seed: for the bootstrap over models.

    Returns:
        ``dataset``, ``training``, ``n`` (models), ``value``, ``low``, ``high`` (95 %), ``p`` (against no
        correlation), ``kendall``; values are null for fewer than three models, or where all have the same score.
    """
    rows = []
    for dataset in models["dataset"].unique(maintain_order=True):
        for training in TRAININGS:
            of_training = models.filter(pl.col("dataset") == dataset, pl.col("training") == training)
            if of_training.is_empty():
                continue
            pair = of_training["score"].to_numpy(), of_training["value"].to_numpy()
            rho = spearman(*pair, seed=seed)
            tau = None if rho.value is None else _kendall(*pair)
            rows.append((dataset, training, of_training.height, rho.value, *rho.interval, rho.p, tau))
    return pl.DataFrame(rows, _CORRELATIONS, orient="row")


def _kendall(x: ArrayLike, y: ArrayLike) -> float:
    """Kendall's τ-b: pairs in the same order less those in the other, by the pairs that no tie leaves without one."""
    orders = [np.sign(np.subtract.outer(side, side)) for side in (x, y)]
    of_both, of_x, of_y = (np.sum(one * other) for one, other in (orders, orders[:1] * 2, orders[1:] * 2))
    return float(of_both / np.sqrt(of_x * of_y))


def read(path: Path) -> pl.DataFrame:
    """Read models' scores: columns ``system``, ``training`` and ``score``, and one for each dataset.

    Returns:
        As :func:`correlations` takes it.

    Raises:
        UserError: what is wrong with the file, with the lines.
    """
    faults = Faults(path)
    rows: list[tuple[str, str, float, str, float]] = []
    models: set[tuple[str, str]] = set()
    for number, record in records(path, _LAYOUT, faults):
        if not isinstance(record, dict) or len(record) < 4 or not all(name in record for name in COLUMNS):
            faults.add(number, f"expected {_LAYOUT.expected}")
            continue
        system, training = (str(record.pop(name)) for name in COLUMNS[:2])
        numbers = {name: finite_number(str(value)) for name, value in record.items()}
        finite = {name: value for name, value in numbers.items() if value is not None}
        if training not in TRAININGS:
            faults.add(number, f"the training {training[:40]!r} is neither {' nor '.join(TRAININGS)}")
        elif (system, training) in models:
            faults.add(number, f"{system} appears twice for {training}")
        elif len(finite) < len(numbers):
            name = next(name for name in numbers if name not in finite)
            faults.add(number, f"the {name} {str(record[name])[:40]!r} is not a finite number")
        else:
            score = finite.pop("score")
            rows += [(system, training, score, dataset, value) for dataset, value in finite.items()]
        models.add((system, training))
    faults.raise_any()
    if not rows:
        raise UserError(f"{path} contains no model")
    return pl.DataFrame(rows, _MODELS, orient="row")


def _counts(row: Fields) -> str:
    return "/".join(dict.fromkeys(str(each["n"]) for each in sides(row)))


def _correlation(row: Fields) -> Value | None:
    if row["value"] is None:
        return None
    below = p_said(row["p"]) if row["low"] is None else f"[{row['low']:.2f}, {row['high']:.2f}]"
    return Value(f"{row['value']:.3f}", below=below)


def with_p(rho: Figure, digits: int = 3) -> str:
    """A correlation with its p and, where it has one, its interval."""
    if rho.value is None or rho.p is None:
        return "-"
    low, high = rho.interval
    ends = "" if low is None or high is None else f" ({low:+.{digits}f} to {high:+.{digits}f})"
    return f"{rho.value:+.{digits}f}{ends}, {p_said(rho.p)}"
