"""Crossed hold-outs as results: the loss over all clusters, that of each, and their correlation with similarity."""

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

import polars as pl

from eval_kit import plots
from eval_kit.measures.definitions import parse
from eval_kit.results import Picture
from eval_kit.stats import crossed
from eval_kit.stats.losses import MARGIN, holm_corrected, spearman
from eval_kit.tables.table import Column, Table, Value, interval, loss, number_columns, significance

NAME = "crossed"
NOTES = (
    "crossed hold-outs: each query is In for the one model that saw its cluster without it, and Out for those that did "
    "not see its cluster; over clusters, their queries and trainings, by Student's t",
    "° not significant: two-sided, p ≥ 0.05 after Holm's correction over the systems of a measure (over queries alone, "
    "and over the clusters too, by cluster); "
    f"≈ equivalent: a loss or gain of {100 * MARGIN:g} % or more is excluded, one-sided, p < 0.05 after the same "
    "correction",
    "SD clusters is without the noise of queries and trainings; ρ is Spearman's, and given size its partial one",
)
COLUMNS = {"inside": "avg_in", "low": "rel_loss_low", "high": "rel_loss_high"}


def losses(comparison: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """What each system loses.

    Args:
        comparison: has ``part``, ``held_out``, ``seed`` and ``is_out``, by
            :meth:`eval_kit.shifts.CrossedHoldOuts.roles`.

    Returns:
        The losses over all clusters, by ``system`` and ``measure``, with the figures of
        :class:`eval_kit.stats.crossed.CrossedLoss`, ``queries``, ``clusters``, ``models`` and ``seeds``; and those of
        each ``cluster``. Both have ``p_holm``, corrected over the systems (and clusters) of a measure.
    """
    model = pl.concat_str("held_out", pl.col("seed").cast(pl.String), separator=".")
    whole, parts = [], []
    for (system, measure), group in comparison.group_by("system", "measure", maintain_order=True):
        names = {"system": system, "measure": measure}
        total, by_cluster = crossed.losses(group.with_columns(model=model))
        counts = {
            "queries": group["query_id"].n_unique(),
            "clusters": by_cluster.height,
            "models": group["held_out"].n_unique(),
            "seeds": group["seed"].n_unique(),
        }
        figures = {COLUMNS.get(name, name): value for name, value in asdict(total).items()}
        whole.append(names | figures | counts)
        parts.append(by_cluster.select(*(pl.lit(value).alias(name) for name, value in names.items()), pl.all()))
    losses_of = ("rel_loss", "rel_loss_low", "rel_loss_high", "error_queries", "error_trainings", "spread")
    numbers = dict.fromkeys(("p", "p_equivalent", *losses_of), pl.Float64)
    # columns that other shifts have: no interval of In alone
    nothing = (f"{name}_{end}" for name in ("avg_in", "out") for end in ("low", "high"))
    table = pl.DataFrame(whole, schema_overrides=numbers).with_columns(
        *(pl.lit(None, pl.Float64).alias(name) for name in nothing), delta=-pl.col("rel_loss")
    )
    by_cluster = pl.concat(parts).rename({"part": "cluster"})
    return holm_corrected(table, ["measure"]), holm_corrected(by_cluster, ["measure"])


def figure(parts: pl.DataFrame) -> Picture:
    """The main measure's loss on each cluster against the cluster's ``jaccard``, as :func:`tables` takes them."""
    main = parts["measure"][0]
    points = parts.filter(pl.col("measure") == main, pl.col("rel_loss").is_not_null()).with_columns(
        shift=pl.lit(NAME), low="rel_loss_low", high="rel_loss_high"
    )
    systems = points["system"].unique(maintain_order=True).to_list()
    caption = (
        f"Rel Loss of {main} on each cluster against the weighted Jaccard similarity of its queries to all others."
    )
    return Picture(plots.loss_against_jaccard(points, systems, main, title=caption), caption, systems)


def tables(whole: pl.DataFrame, parts: pl.DataFrame) -> Iterator[Table]:
    """The losses of each measure over all clusters, and by cluster, the greatest first."""
    for measure in whole["measure"].unique(maintain_order=True):
        of_measure, by_cluster = whole.filter(measure=measure), parts.filter(measure=measure)
        show = parse(str(measure)).show_as_ecir_2023
        lines: list[list[Value | str]] = []
        for row in of_measure.iter_rows(named=True):
            of_system = by_cluster.filter(pl.col("system") == row["system"]).drop_nulls("rel_loss")
            pair = of_system["jaccard"], of_system["rel_loss"]
            correlations = spearman(*pair), spearman(*pair, given=of_system["queries"])
            low, high = row["rel_loss_low"], row["rel_loss_high"]
            mark = significance(row) if row["rel_loss"] is not None else ""
            rel_loss = Value(loss(row["rel_loss"]), mark=mark)
            line: list[Value | str] = [row["system"], show(row["avg_in"]), show(row["out"]), rel_loss]
            line.append(f"{loss(low)} to {loss(high)}")
            line += map(loss, (row["error_queries"], row["error_trainings"], row["spread"]))
            for rho in (each.estimate for each in correlations):
                line.append("-" if rho.value is None else f"{rho.value:.2f} ({rho.low:.2f} to {rho.high:.2f})")
            lines.append([*line, f"{row['clusters']} × {row['models'] * row['seeds']}", f"{row['queries']:,}"])
        numbers = ("In", "Out", "Rel Loss", "95 % interval", "SE clusters", "SE trainings", "SD clusters")
        names = (*numbers, "ρ with Jaccard", "given size", "clusters × models", "n")
        yield Table([Column("Models", "heading"), *number_columns(*names)], [lines], str(measure))
    main = whole["measure"][0]
    yield _by_cluster(parts.filter(pl.col("measure") == main), f"{main} Rel Loss by cluster")


def _by_cluster(parts: pl.DataFrame, title: str) -> Table:
    systems = parts["system"].unique(maintain_order=True).to_list()
    order = parts.filter(pl.col("system") == systems[0]).sort("rel_loss", descending=True, nulls_last=True)
    by_key = parts.rows_by_key(["cluster", "system"], named=True, unique=True)
    lines: list[list[Value | str]] = []
    for cluster, queries, jaccard in order.select("cluster", "queries", "jaccard").iter_rows():
        cells = [_of_cluster(by_key[cluster, system]) for system in systems]
        lines.append([cluster, *cells, f"{jaccard:.3f}", f"{queries:,}"])
    names = (*systems, "Jaccard", "n")
    return Table([Column("Cluster", "heading"), *number_columns(*names)], [lines], title)


def _of_cluster(row: dict[str, Any]) -> Value:
    if row["rel_loss"] is None:
        return Value("-")
    ends = interval(row["rel_loss_low"], row["rel_loss_high"], row["queries"])
    return Value(loss(row["rel_loss"]), mark=significance(row), tooltip=ends)
