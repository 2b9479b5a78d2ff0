"""The figures of ECIR 2023 about a grid: what goes into each."""

from collections.abc import Mapping, Sequence
from itertools import islice, product
from typing import Any

import polars as pl
from markupsafe import Markup

from eval_kit import plots
from eval_kit.measures.definitions import parse
from eval_kit.protocols.grid_results import Protocols
from eval_kit.protocols.in_out import in_and_out, main_measure
from eval_kit.protocols.similarity import figure_3
from eval_kit.release import Release
from eval_kit.shifts import CLUSTERED, SHIFTS
from eval_kit.stats.intervals import edges, interval_of, loss_by_interval


def figures(
    grid: Protocols, pairs: Mapping[str, pl.DataFrame], systems: Sequence[str], release: Release, r: pl.DataFrame | None
) -> dict[str, Any] | None:
    """The figures of topic, wh and length shifts, as figures.html.j2 reads them; None without any.

    Those about R, the nearness ``r`` of each query, are missing without it.
    """
    shifts = [shift for shift in CLUSTERED if shift in grid.results]
    overlap = figure_3(grid, release)
    if overlap is None:
        return None
    pictures = {
        "measure": overlap.measure,
        "queries": " or ".join(overlap.points["queries"].unique(maintain_order=True)),
        "by_overlap": plots.loss_against_jaccard(overlap.points, systems, overlap.measure),
        "correlations": overlap.table(),
    }
    if r is None:
        return pictures
    near, measures = {}, {}
    for shift in shifts:
        near[shift] = pairs[shift].join(r.filter(shift=shift), on=["part", "query_id"], maintain_order="left")
        measures[shift] = _measures(grid.results[shift])
    return pictures | {
        "distributions": _figure_4(grid, shifts, r),
        "by_nearness": _figure_5(measures, near, systems, grid.provenance["seed"]),
        "spreads": _figure_6(measures, near, systems),
    }


def _measures(results: pl.DataFrame) -> list[str]:
    """The main measure of a shift, and its first one of which lower is better."""
    lower = filter(lambda name: parse(name).kind.lower_is_better, results["measure"].unique(maintain_order=True))
    return [main_measure(results), *islice(lower, 1)]


def _figure_4(grid: Protocols, shifts: Sequence[str], r: pl.DataFrame) -> dict[str, Markup]:
    panels = {}
    for shift in shifts:
        by_cluster = {cluster: r.filter(shift=shift, part=cluster)["r"].to_list() for cluster in grid.clusters[shift]}
        panels[SHIFTS[shift].title] = plots.distribution(by_cluster)
    return panels


def _figure_5(
    measures: Mapping[str, list[str]], near: Mapping[str, pl.DataFrame], systems: Sequence[str], seed: int
) -> dict[str, Markup]:
    panels = {}
    for shift, pairs in near.items():
        measure, *_ = measures[shift]
        cuts = edges(pairs["r"])
        tables = {}
        for (system,), group in pairs.filter(measure=measure).group_by("system", maintain_order=True):
            in_order = group.sort("seed", "part", "query_id")
            r = in_order["r"].head(in_order.height // in_order["seed"].n_unique())
            tables[str(system)] = loss_by_interval(r, *in_and_out(group), cuts, seed=seed)
        panels[SHIFTS[shift].title] = plots.loss_by_interval(tables, systems, measure)
    return panels


def _figure_6(
    measures: Mapping[str, list[str]], near: Mapping[str, pl.DataFrame], systems: Sequence[str]
) -> dict[str, dict[str, Markup]]:
    """By system: all ``measures`` of each shift."""
    spreads: dict[str, dict[str, Markup]] = {system: {} for system in systems}
    for shift, pairs in near.items():
        for measure, system in product(measures[shift], systems):
            losses = pairs.filter(measure=measure, system=system)
            if losses.height:
                picture = plots.boxes(_spread(losses, edges(pairs["r"])), measure, system)
                spreads[system][f"{SHIFTS[shift].title}, {measure}"] = picture
    return {system: panels for system, panels in spreads.items() if panels}


def _spread(pairs: pl.DataFrame, cuts: Any) -> pl.DataFrame:
    """Percentiles of the queries' own losses in each interval, seeds averaged."""
    means = pairs.group_by("part", "query_id", maintain_order=True).agg(
        pl.col("inside", "out").mean(), pl.col("r").first()
    )
    loss = pl.when(pl.col("inside") != 0).then((pl.col("inside") - pl.col("out")) / pl.col("inside"))
    losses = means.with_columns(loss=loss, bin=interval_of(means["r"], cuts))
    percentiles = {"p5": 0.05, "q1": 0.25, "median": 0.5, "q3": 0.75, "p95": 0.95}
    sums = losses.group_by("bin").agg(
        pl.col("loss").count().alias("n"),
        *(pl.col("loss").quantile(at, "linear").alias(name) for name, at in percentiles.items()),
    )
    bins = pl.DataFrame({"low": cuts[:-1], "high": cuts[1:]}).with_row_index("bin").cast({"bin": pl.Int64})
    return bins.join(sums, on="bin", how="left", maintain_order="left").with_columns(pl.col("n").fill_null(0))
