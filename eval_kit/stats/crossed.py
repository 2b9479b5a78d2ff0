"""Losses of crossed hold-outs: many clusters of queries, each left out by half of a few models.

Every query is searched by one model that trained on its cluster without the query (In), and by all models that left its
cluster out (Out). In and Out are means over all such searches, and Rel Loss is (In − Out) / In (ECIR 2023 §3.2). Two
things are random draws: the clusters, with their queries, and the trainings. The variance is that of two crossed
factors (Cameron, Gelbach and Miller 2011, Journal of Business & Economic Statistics 29): what the clusters' sums vary
by, plus what the models' sums vary by, less what their cells vary by alone; each is of the linearised ratio. Intervals
are by Student's t, whose quantile is the mean of the clusters' and the trainings' quantiles, weighted by their
variances (Cochran 1964, Biometrics 20). The variance of M trainings counts M / 2 degrees of freedom, not M − 1, as
chance is subtracted from it: simulations (docs/results.md) show that the intervals then hold the truth as often as they
should.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import polars as pl

from eval_kit.stats.figure import Figure
from eval_kit.stats.losses import MARGIN

_CELL = ("part", "model", "is_out")


@dataclass(frozen=True)
class CrossedLoss:
    """A system's loss over all clusters.

    Attributes:
        inside: mean of the models that saw the query's cluster, but not the query.
        out: mean of the models that did not see its cluster.
        rel_loss: (In − Out) / In, None where In is 0, with the ends ``low`` and ``high`` of its 95 % interval.
        p: of no difference between In and Out, two-sided.
        p_equivalent: of a loss, or gain, of at least :data:`eval_kit.stats.losses.MARGIN`.
        error_queries: standard error of Rel Loss due to the clusters and their queries.
        error_trainings: that due to the trainings.
        spread: standard deviation of the clusters' own Rel Losses, without that of their estimates.
    """

    inside: float
    out: float
    rel_loss: float | None = None
    low: float | None = None
    high: float | None = None
    p: float | None = None
    p_equivalent: float | None = None
    error_queries: float | None = None
    error_trainings: float | None = None
    spread: float | None = None


def losses(values: pl.DataFrame) -> tuple[CrossedLoss, pl.DataFrame]:
    """The loss over all clusters, and that of each.

    Args:
        values: of one system and measure: ``query_id``, ``part``, ``model``, ``is_out`` and ``value``.

    Returns:
        The loss over all clusters; and by ``part``: ``queries``, ``avg_in``, ``out``, ``rel_loss`` with ``_low``
        and ``_high`` (None where In is 0), and ``p`` of no difference.
    """
    cells = values.group_by(_CELL).agg(pl.col("value").mean(), n=pl.len()).sort(_CELL)
    by_part, errors = _by_part(values, cells)
    whole = of_cells(cells)
    return whole if whole.rel_loss is None else replace(whole, spread=_spread(by_part, errors)), by_part


def of_cells(cells: pl.DataFrame) -> CrossedLoss:
    """The loss over all clusters, but for ``spread``; a cell is the mean ``value`` of ``n`` searches."""
    cells = cells.with_columns(share=pl.col("n") / pl.col("n").sum().over("is_out"))
    inside, out = (
        float(cells.filter(pl.col("is_out") == side).select(pl.col("share").dot("value")).item())
        for side in (False, True)
    )
    if not inside:
        return CrossedLoss(inside, out)
    rel_loss = 1 - out / inside
    error = _errors(cells, inside, out, to_in=out / inside**2, to_out=-1 / inside)
    of_difference = _errors(cells, inside, out, to_in=1.0, to_out=-1.0)
    p = Figure(inside - out, of_difference.whole, of_difference.degrees).p
    p_equivalent = Figure(-abs(rel_loss), error.whole, error.degrees).p_loses(MARGIN) if error.whole else None
    low, high = Figure(rel_loss, error.whole, error.degrees).interval
    return CrossedLoss(inside, out, rel_loss, low, high, p, p_equivalent, error.queries, error.trainings)


@dataclass(frozen=True)
class _Errors:
    queries: float
    trainings: float
    clusters: int
    models: int

    @property
    def whole(self) -> float:
        return float(np.hypot(self.queries, self.trainings))

    @property
    def degrees(self) -> int:
        """Those whose t is Cochran's weighted mean, as quantiles are nearly linear in 1 / degrees."""
        each = self.queries**2 / (self.clusters - 1) + self.trainings**2 / (self.models / 2)
        return max(1, int(self.whole**2 / each)) if each else 1


def _errors(cells: pl.DataFrame, inside: float, out: float, to_in: float, to_out: float) -> _Errors:
    """Standard errors of a function of In and Out, whose derivatives are ``to_in`` and ``to_out``."""
    weight = pl.col("share") * pl.when("is_out").then(to_out).otherwise(to_in)
    off = pl.col("value") - pl.when("is_out").then(out).otherwise(inside)
    side = ("part", "is_out")
    number = pl.len().over(side)
    off_side = (pl.col("value") - pl.col("value").mean().over(side)) * number / (number - 1)
    terms = cells.with_columns(
        of_cluster=weight * off, of_training=pl.when(number > 1).then(weight * off_side).otherwise(0)
    )
    clusters = terms.group_by("part", maintain_order=True).agg(pl.col("of_cluster").sum())["of_cluster"]
    models = terms.group_by("model", maintain_order=True).agg(pl.col("of_training").sum())["of_training"]
    of_clusters = float((clusters**2).sum()) * len(clusters) / max(len(clusters) - 1, 1)
    of_models = max(float((models**2).sum()) - float((terms["of_training"] ** 2).sum()), 0.0)
    return _Errors(of_clusters**0.5, of_models**0.5, max(len(clusters), 2), max(len(models), 2))


def _by_part(values: pl.DataFrame, cells: pl.DataFrame) -> tuple[pl.DataFrame, list[float]]:
    """The loss of each cluster as it is: only its queries and the trainings are random; and the losses' errors."""
    training = _between_trainings(values.filter("is_out"), cells.filter("is_out"))
    queries = values.group_by("part", "query_id", maintain_order=True).agg(
        avg_in=pl.col("value").filter(~pl.col("is_out")).mean(), out=pl.col("value").filter("is_out").mean()
    )
    models = cells.group_by("part", maintain_order=True).agg(
        of_out=pl.col("is_out").sum(), of_in=pl.col("is_out").not_().sum()
    )
    parts = queries.group_by("part", maintain_order=True).agg(
        pl.col("avg_in", "out").mean(),
        pl.col("avg_in", "out").var().name.suffix("_variance"),
        pl.cov("avg_in", "out").alias("covariance"),
        queries=pl.len(),
    )
    rows, errors = [], []
    for row in parts.join(models, on="part").sort("part").iter_rows(named=True):
        inside, out, degrees = row["avg_in"], row["out"], row["queries"] - 1
        figures = {name: row[name] for name in ("part", "queries", "avg_in", "out")}
        if inside and degrees:
            error = _error_of_part(row, training, to_in=out / inside**2, to_out=1 / inside)
            errors.append(error)
            figures |= Figure(1 - out / inside, error, degrees).columns("rel_loss")
        if degrees:
            figures["p"] = Figure(inside - out, _error_of_part(row, training, to_in=1.0, to_out=1.0), degrees).p
        rows.append(figures)
    numbers = dict.fromkeys(("avg_in", "out", "rel_loss", "rel_loss_low", "rel_loss_high", "p"), pl.Float64)
    return pl.DataFrame(rows, {"part": pl.String, "queries": pl.Int64, **numbers}), errors


def _between_trainings(values: pl.DataFrame, cells: pl.DataFrame) -> float:
    """The variance of trainings' values on the queries of a part, without that of the queries themselves."""
    by_query = values.group_by("part", "query_id", maintain_order=True).agg(pl.col("value").var())
    of_parts = by_query.group_by("part", maintain_order=True).agg(cell=pl.col("value").mean(), n=pl.len())
    of_means = cells.group_by("part", maintain_order=True).agg(pl.col("value").var())
    both = of_parts.join(of_means, on="part").filter(pl.col("n") > 1)
    # cell: trainings, and how each gets along with a query; of means, the second counts 1 / n
    own = ((pl.col("n") * pl.col("value") - pl.col("cell")) / (pl.col("n") - 1)).mean()
    return max(both.select(own).item() or 0.0, 0.0)


def _error_of_part(row: Mapping[str, Any], training: float, to_in: float, to_out: float) -> float:
    """Standard error of a cluster's loss: of its queries' differences, and of the few models on each side."""
    of_queries = to_in**2 * row["avg_in_variance"] + to_out**2 * row["out_variance"]
    of_queries -= 2 * to_in * to_out * row["covariance"]
    of_models = to_in**2 / row["of_in"] + to_out**2 / row["of_out"]
    return float(max(of_queries / row["queries"] + training * of_models, 0.0) ** 0.5)


def _spread(by_part: pl.DataFrame, errors: list[float]) -> float | None:
    """Standard deviation of the losses beyond that of their errors."""
    defined_losses = by_part["rel_loss"].drop_nulls().to_numpy()
    if len(defined_losses) < 3:
        return None
    return float(max(defined_losses.var(ddof=1) - np.square(errors).mean(), 0.0) ** 0.5)
