"""The figures of ECIR 2023 about a grid: what goes into each, with its caption and its correlations."""

from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl

from eval_kit.pages import report_tables
from eval_kit.pages.markup import Html, element, joined
from eval_kit.pages.plots import boxes, distribution, loss_against_jaccard, swatch
from eval_kit.pages.plots import loss_by_interval as picture_of_intervals
from eval_kit.pages.report_data import NAMES, capitalised, in_and_out, jaccards, lower_is_better, main_measure
from eval_kit.pages.report_tables import minus
from eval_kit.protocols.grid import Protocols
from eval_kit.release import Release
from eval_kit.shifts import CLUSTERED, SHIFTS
from eval_kit.stats.intervals import edges, interval_of, loss_by_interval, per_query_loss
from eval_kit.stats.losses import KINDS, Estimate, correlations


def figures(
    found: Protocols,
    pairs: Mapping[str, pl.DataFrame],
    systems: Sequence[str],
    release: Release,
    r: pl.DataFrame | None,
) -> Html:
    """The section of figures: those about R only where ``r``, the nearness of each query, is given."""
    shifts = [shift for shift in CLUSTERED if shift in found.results]
    if not shifts:
        return element("p", "The figures are about topic, wh and length shifts, of which no grid was given.")
    parts = [_figure_3(found, shifts, systems, release)]
    if r is None:
        parts.append(element("p", "Figures 4 to 6 need query vectors, which were not given.", class_="quiet"))
        return joined(*parts)
    near = {
        shift: pairs[shift].join(r.filter(pl.col("shift") == shift), on=["part", "query_id"], maintain_order="left")
        for shift in shifts
    }
    parts += [_figure_4(found, shifts, r), _figure_5(found, near, systems), _figure_6(found, near, systems)]
    return joined(*parts)


def _figure_3(found: Protocols, shifts: Sequence[str], systems: Sequence[str], release: Release) -> Html:
    """Topic and wh clusters in one picture, as in the paper; length clusters only where there are no others."""
    taken = [shift for shift in shifts if SHIFTS[shift].correlates] or list(shifts)
    measure = main_measure(found.results[taken[0]])
    losses = pl.concat(
        found.results[shift]
        .filter(pl.col("measure") == measure)
        .select("system", "cluster", "rel_loss", low="rel_loss_low", high="rel_loss_high", shift=pl.lit(shift))
        for shift in taken
    )
    points = losses.join(jaccards(found, release), on=["shift", "cluster"], maintain_order="left")
    rows = []
    for system in systems:
        mine = points.filter(pl.col("system") == system, pl.col("rel_loss").is_not_null())
        if mine.height:
            told = correlations(mine["jaccard"], mine["rel_loss"], seed=found.provenance["seed"]).values()
            rows.append([system, *(_correlation(one.estimate) for one in told), str(mine.height)])
    table = report_tables.plain(
        "Correlation of loss and similarity over clusters, with 95% bootstrap intervals",
        ["System", *(kind.capitalize() for kind in KINDS), "n"],
        rows,
        (1, 2, 3, 4),
    )
    caption = (
        f"Figure 3 of ECIR 2023: Rel Loss of {measure} on each held-out cluster against the weighted Jaccard "
        "similarity of its test queries to those of the other clusters. With so few clusters an interval is a "
        "rough guide at best."
    )
    plot = loss_against_jaccard(points, systems, measure)
    return joined(element("h3", "Loss against word overlap"), _figure([plot], caption, systems), table)


def _figure_4(found: Protocols, shifts: Sequence[str], r: pl.DataFrame) -> Html:
    panels = []
    for shift in shifts:
        here = r.filter(pl.col("shift") == shift)
        by_cluster = {one: here.filter(pl.col("part") == one)["r"].to_list() for one in found.clusters[shift]}
        panels.append(_panel(NAMES[shift], distribution(by_cluster)))
    caption = (
        "Figure 4 of ECIR 2023: R(q, train), each test query's mean dot product with the training queries of the other "
        "clusters. Left is far from the training; the line marks each cluster's median."
    )
    return joined(element("h3", "How near test queries are to the training"), _figure(panels, caption))


def _figure_5(found: Protocols, near: Mapping[str, pl.DataFrame], systems: Sequence[str]) -> Html:
    panels = []
    for shift, pairs in near.items():
        measure = main_measure(found.results[shift])
        cuts = edges(pairs["r"])
        tables = {}
        for (system,), group in pairs.filter(pl.col("measure") == measure).group_by("system", maintain_order=True):
            ordered = group.sort("seed", "part", "query_id")
            r = ordered["r"].head(ordered.height // ordered["seed"].n_unique())
            tables[str(system)] = loss_by_interval(r, *in_and_out(group), cuts, seed=found.provenance["seed"])
        panels.append(_panel(NAMES[shift], picture_of_intervals(tables, systems, measure)))
    caption = (
        "Figure 5 of ECIR 2023: the loss of the queries in each interval of R (equal counts), from the furthest from "
        "the training (left) to the nearest (right), with 95% bootstrap intervals."
    )
    return joined(element("h3", "Loss by nearness to the training"), _figure(panels, caption, systems))


def _figure_6(found: Protocols, near: Mapping[str, pl.DataFrame], systems: Sequence[str]) -> Html:
    parts: list[Html] = []
    for system in systems:
        panels = []
        for shift, pairs in near.items():
            cuts = edges(pairs["r"])
            results = found.results[shift]
            searched = [str(one) for one in results["measure"].unique(maintain_order=True) if lower_is_better(one)]
            for measure in [main_measure(results), *searched[:1]]:
                mine = pairs.filter(pl.col("measure") == measure, pl.col("system") == system)
                if mine.height:
                    panels.append(_panel(f"{NAMES[shift]}, {measure}", boxes(_spread(mine, cuts), measure, system)))
        if panels:
            inside = element("div", *panels, class_="panels")
            parts.append(element("details", element("summary", system), inside, open=not parts))
    caption = (
        "Figure 6 of ECIR 2023: single queries' losses (In − Out) / In in the same intervals, of the queries with In "
        "above 0. Boxes are quartiles, the thick line the median, whiskers the 5th and 95th percentile. Of ASL, where "
        "lower is better, negative losses are harm."
    )
    return joined(element("h3", "How single queries' losses spread"), _figure(parts, caption, panels=False))


def _spread(pairs: pl.DataFrame, cuts: Any) -> pl.DataFrame:
    """Percentiles of the queries' own losses in each interval, seeds averaged."""
    means = pairs.group_by("part", "query_id", maintain_order=True).agg(
        pl.col("inside", "out").mean(), pl.col("r").first()
    )
    losses = means.with_columns(loss=per_query_loss(means["inside"], means["out"]), bin=interval_of(means["r"], cuts))
    percentiles = {"p5": 0.05, "q1": 0.25, "median": 0.5, "q3": 0.75, "p95": 0.95}
    summed = losses.group_by("bin").agg(
        pl.col("loss").count().alias("n"),
        *(pl.col("loss").quantile(at, "linear").alias(name) for name, at in percentiles.items()),
    )
    bins = pl.DataFrame({"low": cuts[:-1], "high": cuts[1:]}).with_row_index("bin").cast({"bin": pl.Int64})
    return bins.join(summed, on="bin", how="left", maintain_order="left").with_columns(pl.col("n").fill_null(0))


def _correlation(one: Estimate) -> str:
    if one.value is None:
        return "–"
    ends = "" if one.low is None else f" ({one.low:.2f} to {one.high:.2f})"
    return minus(f"{one.value:.2f}{ends}")


def _figure(inside: Sequence[Html], caption: str, systems: Sequence[str] = (), panels: bool = True) -> Html:
    """A figure; with several systems, a legend of buttons that show and hide them."""
    buttons = [
        element("li", element("button", swatch(place), system, type="button", aria_pressed="true", data_system=place))
        for place, system in enumerate(systems)
    ]
    legend = element("ul", *buttons, class_="legend", aria_label="Systems shown") if buttons else Html()
    shown = element("div", *inside, class_="panels") if panels and len(inside) > 1 else joined(*inside)
    return element("figure", legend, shown, element("figcaption", caption))


def _panel(title: str, inside: Html) -> Html:
    return element("div", element("h4", capitalised(title)), inside)
