"""Crossed hold-outs as results: the loss over all clusters, that of each, and their correlation with similarity."""

from collections.abc import Iterator
from dataclasses import asdict, replace
from functools import partial

import polars as pl

from eval_kit import plots
from eval_kit.measures.definitions import parse
from eval_kit.results import Picture
from eval_kit.stats import crossed
from eval_kit.stats.losses import MARGIN, holm_corrected, spearman
from eval_kit.tables.table import (
    UNTESTED,
    Column,
    Fields,
    Table,
    Value,
    ends_shown,
    interval,
    laid_out,
    loss,
    of,
    side_by_side,
    significance,
    with_p,
)

NAME = "crossed"
NOTES = (
    "° not significant: two-sided, p ≥ 0.05 after Holm's correction over the systems of a measure. By cluster, it is "
    "over queries alone and over the clusters too",
    f"≈ equivalent: any change is under {100 * MARGIN:g} %, one-sided, p < 0.05 after the same correction",
    UNTESTED,
    "A query is In for the model trained on its cluster but not on it, and Out for models that never saw the cluster. "
    "Intervals are t over clusters, their queries and trainings, uncorrected",
    "SD clusters leaves out the noise of queries and trainings. ρ is Spearman's, and given size its partial one",
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
            "test_sets": NAME,
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
        columns = [
            Column("Models", "heading", "system"),
            Column("In", "number", "avg_in", show),
            Column("Out", "number", "out", show),
            Column("Rel Loss", "number", _rel_loss),
            Column("95 % interval", "number", partial(ends_shown, name="rel_loss")),
            Column("SE clusters", "number", "error_queries", loss),
            Column("SE trainings", "number", "error_trainings", loss),
            Column("SD clusters", "number", "spread", loss),
            Column("ρ with Jaccard", "number", partial(_rho, by_cluster)),
            Column("given size", "number", partial(_rho, by_cluster, given="queries")),
            Column("clusters × models", "number", lambda row: f"{row['clusters']} × {row['models'] * row['seeds']}"),
            Column("n", "number", "queries", ","),
        ]
        yield laid_out(of_measure, columns, title=str(measure))
    main = whole["measure"][0]
    yield _by_cluster(parts.filter(pl.col("measure") == main), f"{main} Rel Loss by cluster")


def _by_cluster(parts: pl.DataFrame, title: str) -> Table:
    systems = parts["system"].unique(maintain_order=True).to_list()
    by_first = pl.col("rel_loss").filter(pl.col("system") == systems[0]).first().over("cluster")
    in_order = parts.sort(by_first, descending=True, nulls_last=True, maintain_order=True)
    columns = [Column("Cluster", "heading", "cluster")]
    columns += [Column(system, "number", of(system, _of_cluster)) for system in systems]
    columns += [Column("Jaccard", "number", "jaccard", ".3f"), Column("n", "number", "queries", ",")]
    return laid_out(side_by_side(in_order, ["cluster", "jaccard", "queries"], "system"), columns, title=title)


def _rel_loss(row: Fields) -> Value | None:
    return None if row["rel_loss"] is None else Value(loss(row["rel_loss"]), mark=significance(row))


def _rho(by_cluster: pl.DataFrame, row: Fields, given: str = "") -> str | None:
    """A system's correlation of its losses by cluster with their similarity."""
    of_system = by_cluster.filter(pl.col("system") == row["system"]).drop_nulls("rel_loss")
    rho = spearman(of_system["jaccard"], of_system["rel_loss"], given=of_system[given] if given else None)
    return with_p(rho, 2)


def _of_cluster(row: Fields) -> Value | None:
    rel_loss = _rel_loss(row)
    ends = interval(row["rel_loss_low"], row["rel_loss_high"], row["queries"])
    return rel_loss and replace(rel_loss, tooltip=ends)
