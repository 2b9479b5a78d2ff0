"""The papers' pictures as inline SVG: crisp in print, styled by the page, each point with its figure as a tooltip."""

import math
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import NamedTuple

import numpy as np
import polars as pl
from markupsafe import Markup

from eval_kit import svg
from eval_kit.markup import element

_NAMED = 20
"""Clusters up to which a figure has room for their names."""
_BINS = 40
"""Bars of each row of Figure 4."""


class Effect(NamedTuple):
    """A row of :func:`forest`: an estimate with its interval, from ``n`` queries; ``is_faint`` where they are few."""

    label: str
    estimate: float | None
    low: float | None
    high: float | None
    n: int
    is_faint: bool = False


def forest(rows: Sequence[Effect], axis: str, title: str) -> Markup:
    """Differences with their intervals, one below the other, beside a line at zero and their numbers.

    Args:
        rows: from top to bottom; those without an estimate are left out.
        axis: what is on the scale.
        title: of the picture, for those who do not see it.
    """
    rows = [row for row in rows if row.estimate is not None]
    ends = [end for row in rows for end in (row.estimate, row.low, row.high) if end is not None]
    ticks = svg.ticks(min([0.0, *ends]), max([0.0, *ends]), wider=True)
    x_range = (ticks[0], ticks[-1]) if len(ticks) > 1 else (-1.0, 1.0)
    height, left = 19, 16 + 6.6 * max((len(row.label) for row in rows), default=0)
    frame = svg.Frame(left + 510, 66 + height * len(rows), x_range, (0, 1), left=left, right=216, top=18)
    floor = frame.height - frame.bottom
    parts = [frame.x_axis(svg.with_labels(ticks), axis), svg.line(frame.x(0), frame.top, frame.x(0), floor, "zero")]
    parts.append(svg.label(frame.width, 12, "n", anchor="end"))
    for number, row in enumerate(rows):
        y = frame.top + height * (number + 0.5)
        interval = "" if row.low is None or row.high is None else f" [{row.low:+.4f}, {row.high:+.4f}]"
        figures = f"{row.estimate:+.4f}{interval}".replace("-", "\u2212")
        marks = [element("title", f"{row.label}: {figures}, {row.n:,} queries")]
        if row.low is not None and row.high is not None:
            marks.append(svg.line(frame.x(row.low), y, frame.x(row.high), y, "range"))
        marks.append(svg.marker(0, frame.x(float(row.estimate or 0)), y))
        texts = [svg.label(left - 10, y + 4, row.label, anchor="end")]
        texts.append(svg.label(frame.width - 48, y + 4, figures, anchor="end"))
        texts.append(svg.label(frame.width, y + 4, f"{row.n:,}", anchor="end"))
        parts.append(element("g", *texts, element("g", *marks, class_="s0"), class_="faint" if row.is_faint else None))
    return svg.picture(frame, parts, title)


def bars(rows: Sequence[tuple[str, float, str]], axis: str, title: str) -> Markup:
    """Values from zero as bars, one below the other.

    Args:
        rows: label, value (at least 0) and the value as it is shown.
        axis: what is on the scale.
        title: of the picture, for those who do not see it.
    """
    ticks = svg.ticks(0, max((value for _, value, _ in rows), default=0) or 1, wider=True)
    height, left = 19, 16 + 6.6 * max((len(label) for label, _, _ in rows), default=0)
    frame = svg.Frame(left + 400, 56 + height * len(rows), (0, ticks[-1]), (0, 1), left=left, right=90, top=4)
    parts = [frame.x_axis(svg.with_labels(ticks), axis)]
    for number, (name, value, shown) in enumerate(rows):
        y, end = frame.top + height * number + 3, frame.x(value)
        bar = element("rect", x=left, y=y, width=end - left, height=height - 6, class_="bar")
        parts.append(element("g", element("title", f"{name}: {shown}"), bar, class_="s0"))
        parts.append(svg.label(left - 8, y + 11, name, anchor="end"))
        parts.append(svg.label(end + 6, y + 11, shown, anchor="start"))
    return svg.picture(frame, parts, title)


def slopes(levels: Mapping[str, tuple[float, float]], axis: str, title: str) -> Markup:
    """Each series' level on near and on far queries, joined by a line.

    Args:
        levels: by name, in the order of their markers: near, far.
        axis: what is on the scale.
        title: of the picture, for those who do not see it.
    """
    at = svg.ticks(0, max(chain.from_iterable(levels.values())) or 1, wider=True)
    frame = svg.Frame(420, 260, (-0.35, 1.35), (0, at[-1]))
    parts = [frame.grid(svg.with_labels(at), axis), frame.x_axis([(0, "near"), (1, "far")], "")]
    for number, (name, ends) in enumerate(levels.items()):
        (x1, y1), (x2, y2) = ((frame.x(side), frame.y(level)) for side, level in enumerate(ends))
        marks = [svg.line(x1, y1, x2, y2, "link near-far")]
        for x, y, side, level in ((x1, y1, "near", ends[0]), (x2, y2, "far", ends[1])):
            tooltip = element("title", f"{name}, {side}: {level:.4f}")
            marks.append(element("g", tooltip, svg.marker(number, x, y)))
        parts.append(svg.series(number, marks))
    return svg.picture(frame, parts, title)


def loss_against_jaccard(
    points: pl.DataFrame,
    systems: Sequence[str],
    measure: str,
    title: str = "Figure 3: Rel Loss of {measure} against weighted Jaccard similarity",
) -> Markup:
    """ECIR 2023, Figure 3: the loss on each held-out cluster against its similarity to the other clusters.

    Args:
        points: ``shift``, ``cluster``, ``system``, ``jaccard``, ``rel_loss``, ``low`` and ``high`` (of the loss).
        systems: in the order of their markers.
        measure: of the loss.
        title: of the picture, for those who do not see it.
    """
    bounds = points.select("rel_loss", "low", "high").to_numpy()
    y_range, y_ticks = svg.percent_axis(bounds[np.isfinite(bounds)].tolist())
    jaccard = points["jaccard"].to_list()
    margin = 0.06 * (max(jaccard) - min(jaccard) or 0.1)
    frame = svg.Frame(520, 360, (min(jaccard) - margin, max(jaccard) + margin), y_range, top=62)
    x_ticks = svg.with_labels(svg.ticks(*frame.x_range))
    x_axis = frame.x_axis(x_ticks, "weighted Jaccard similarity to the other clusters")
    parts = [frame.grid(y_ticks, f"Rel Loss of {measure}"), x_axis]
    clusters = points.unique(["shift", "cluster"], maintain_order=True).sort("jaccard")
    row_ends = [-math.inf] * 3
    for cluster, at in clusters.select("cluster", "jaccard").iter_rows() if clusters.height <= _NAMED else ():
        x = frame.x(at)
        width = 7 * len(cluster) + 6
        row = next((row for row, end in enumerate(row_ends) if end < x - width / 2), 0)
        row_ends[row] = x + width / 2
        parts.append(svg.line(x, frame.top - 2, x, frame.height - frame.bottom, "guide"))
        parts.append(svg.label(x, frame.top - 6 - 13 * row, cluster))
    for number, system in enumerate(systems):
        points_of_system = points.filter(pl.col("system") == system, pl.col("rel_loss").is_not_null())
        aside = 4 * (number - (len(systems) - 1) / 2)  # all systems have the same x: draw them side by side
        marks = []
        for point in points_of_system.iter_rows(named=True):
            x, y = frame.x(point["jaccard"]) + aside, frame.y(point["rel_loss"])
            if point["low"] is not None:
                marks.append(svg.line(x, frame.y(point["low"]), x, frame.y(point["high"]), "range"))
            tooltip = f"{system} on {point['cluster']}: {point['rel_loss']:z.1%} at {point['jaccard']:.3f}"
            marks.append(element("g", element("title", tooltip), svg.marker(number, x, y)))
        parts.append(svg.series(number, marks))
    return svg.picture(frame, parts, title.format(measure=measure))


def distribution(r: Mapping[str, Sequence[float]]) -> Markup:
    """ECIR 2023, Figure 4: how R is distributed, one row of bars a held-out cluster, all on one scale."""
    all_values = np.concatenate(list(map(np.asarray, r.values())))
    cuts = np.linspace(all_values.min(), all_values.max() or 1, _BINS + 1)
    if cuts[0] == cuts[-1]:
        cuts = np.linspace(cuts[0] - 0.5, cuts[0] + 0.5, _BINS + 1)
    row_height = 40
    frame = svg.Frame(420, 48 + row_height * len(r), (float(cuts[0]), float(cuts[-1])), (0, 1), left=58, top=4)
    parts = [frame.x_axis(svg.with_labels(svg.ticks(*frame.x_range)), "R(q, train)")]
    shares = {name: np.histogram(values, cuts)[0] / len(values) for name, values in r.items()}
    tallest = max(float(share.max()) for share in shares.values())
    for row, (name, share) in enumerate(shares.items(), start=1):
        floor = frame.top + row_height * row
        steps = [f"M{frame.x(cuts[0]):.1f} {floor}"]
        for low, high, fraction in zip(cuts[:-1], cuts[1:], share, strict=True):
            y = floor - (row_height - 6) * fraction / tallest
            steps.append(f"L{frame.x(low):.1f} {y:.1f}L{frame.x(high):.1f} {y:.1f}")
        steps.append(f"L{frame.x(cuts[-1]):.1f} {floor}Z")
        middle = frame.x(float(np.median(r[name])))
        tooltip = f"{name}: {len(r[name]):,} queries, median {np.median(r[name]):.4g}"
        parts.append(element("g", element("title", tooltip), element("path", d="".join(steps), class_="hill")))
        parts.append(svg.line(middle, floor - row_height + 8, middle, floor, "median"))
        parts.append(svg.label(frame.left - 6, floor - 12, name, anchor="end"))
        parts.append(svg.label(frame.left - 6, floor, f"n={len(r[name]):,}", anchor="end", class_="small"))
    return svg.picture(frame, parts, "Figure 4: distribution of R(q, train) by held-out cluster")


def loss_by_interval(intervals: Mapping[str, pl.DataFrame], systems: Sequence[str], measure: str) -> Markup:
    """ECIR 2023, Figure 5: the loss of the queries in each interval of R, system beside system, with whiskers.

    Args:
        intervals: system → what :func:`eval_kit.stats.intervals.loss_by_interval` gives, all with the same intervals.
        systems: in the order of their markers.
        measure: of the loss.
    """
    bounds = pl.concat(intervals.values()).select("rel_loss", "rel_loss_low", "rel_loss_high")
    y_range, y_ticks = svg.percent_axis(bounds.unpivot()["value"].drop_nulls().to_list())
    first = next(iter(intervals.values()))
    frame = svg.Frame(420, 300, (0, first.height), y_range, bottom=52)
    parts = [frame.grid(y_ticks, f"Rel Loss of {measure}"), _interval_axis(frame, first)]
    for system, table in intervals.items():
        number = systems.index(system)
        aside = (number - (len(systems) - 1) / 2) * min(0.16, 0.7 / len(systems))
        marks, line = [], []
        for interval, row in enumerate(table.iter_rows(named=True)):
            if row["rel_loss"] is None:
                continue
            x, y = frame.x(interval + 0.5 + aside), frame.y(row["rel_loss"])
            line.append(f"{x:.1f},{y:.1f}")
            if row["rel_loss_low"] is not None:
                marks.append(svg.line(x, frame.y(row["rel_loss_low"]), x, frame.y(row["rel_loss_high"]), "range"))
            tooltip = f"{system}, R {row['low']:.4g} to {row['high']:.4g}: {row['rel_loss']:z.1%}, n = {row['n']:,}"
            marks.append(element("g", element("title", tooltip), svg.marker(number, x, y)))
        parts.append(svg.series(number, [element("polyline", points=" ".join(line), class_="link"), *marks]))
    return svg.picture(frame, parts, f"Figure 5: Rel Loss of {measure} by interval of R")


def boxes(table: pl.DataFrame, measure: str, system: str) -> Markup:
    """ECIR 2023, Figure 6: the spread of single queries' relative losses in each interval of R.

    Args:
        table: one row per interval: ``low``, ``high``, ``n``, and ``p5``, ``q1``, ``median``, ``q3``, ``p95`` of the
            losses (null where no query has one).
        measure: of the losses.
        system: whose.
    """
    y_range, y_ticks = svg.percent_axis([*table["p5"].drop_nulls(), *table["p95"].drop_nulls()])
    frame = svg.Frame(420, 280, (0, table.height), y_range, left=64, bottom=52)
    parts = [frame.grid(y_ticks, f"single queries' loss of {measure}"), _interval_axis(frame, table)]
    for interval, row in enumerate(table.iter_rows(named=True)):
        if row["median"] is None:
            continue
        x, half = frame.x(interval + 0.5), (frame.x(1) - frame.x(0)) * 0.3
        y = {name: frame.y(row[name]) for name in ("p5", "q1", "median", "q3", "p95")}
        tooltip = f"R {row['low']:.4g} to {row['high']:.4g}: median {row['median']:z.1%}, "
        tooltip += f"quartiles {row['q1']:z.1%} and {row['q3']:z.1%}, n = {row['n']:,}"
        box = [
            element("title", tooltip),
            svg.line(x, y["p5"], x, y["p95"], "range"),
            element("rect", x=x - half, y=y["q3"], width=2 * half, height=max(1.0, y["q1"] - y["q3"]), class_="box"),
            svg.line(x - half, y["median"], x + half, y["median"], "median"),
        ]
        parts.append(element("g", *box))
    return svg.picture(frame, parts, f"Figure 6: spread of {system}'s losses of {measure} by interval of R")


def change_by_method(spread: pl.DataFrame, systems: Sequence[str], measure: str) -> Markup:
    """How single queries change when they are worded differently: a box for each method and system.

    Args:
        spread: ``method``, ``system``, ``n``, and of the changes ``mean``, ``p5``, ``q1``, ``median``, ``q3``, ``p95``.
        systems: in the order of their markers.
        measure: of the changes.
    """
    methods = spread["method"].unique(maintain_order=True).to_list()
    row_height, gap = 15, 9
    group_height = row_height * len(systems) + gap
    ends = spread.select("mean", "p5", "p95").unpivot()["value"].to_list()
    ticks = svg.ticks(min([0.0, *ends]), max([0.0, *ends]), wider=True)
    x_range = (ticks[0], ticks[-1]) if len(ticks) > 1 else (-1.0, 1.0)
    left = 20 + 6.4 * max(map(len, methods))
    frame = svg.Frame(640, 52 + group_height * len(methods), x_range, (0, 1), left=left, top=4)
    parts = [frame.x_axis(svg.with_labels(svg.ticks(*x_range)), f"change of {measure}, query by query")]
    parts.append(svg.line(frame.x(0), frame.top, frame.x(0), frame.height - frame.bottom, "zero"))
    for number, method in enumerate(methods):
        middle = frame.top + group_height * (number + 0.5)
        parts.append(svg.label(left - 8, middle + 4, method, anchor="end"))
    series: dict[str, list[Markup]] = {system: [] for system in systems}
    for row in spread.iter_rows(named=True):
        number = systems.index(row["system"])
        y = frame.top + group_height * methods.index(row["method"]) + gap / 2 + row_height * (number + 0.5)
        x = {name: frame.x(row[name]) for name in ("p5", "q1", "median", "q3", "p95", "mean")}
        tooltip = f"{row['system']}, {row['method']}: mean {row['mean']:+.4f}, median {row['median']:+.4f}, "
        tooltip += f"quartiles {row['q1']:+.4f} and {row['q3']:+.4f}, n = {row['n']:,}"
        box = [
            element("title", tooltip.replace("-", "\u2212")),
            svg.line(x["p5"], y, x["p95"], y, "range"),
            element("rect", x=x["q1"], y=y - 5, width=max(1.0, x["q3"] - x["q1"]), height=10.0, class_="box"),
            svg.line(x["median"], y - 5, x["median"], y + 5, "median"),
            svg.marker(number, x["mean"], y),
        ]
        series[row["system"]].append(element("g", *box))
    parts += [svg.series(number, series[system]) for number, system in enumerate(systems)]
    return svg.picture(frame, parts, f"Change of {measure} of single queries by method of variation")


def points(
    series: Mapping[str, Sequence[svg.Point]],
    x_title: str,
    y_title: str,
    title: str,
    connect: bool = True,
    diagonal: bool = False,
) -> Markup:
    """Any number of series on two linear scales that hold zero.

    Args:
        series: by name, in the order of their markers.
        x_title: of the axis.
        y_title: likewise.
        title: of the picture, for those who do not see it.
        connect: whether to draw lines from point to point.
        diagonal: whether to draw the line of equal values.
    """
    x, y, _ = zip(*chain.from_iterable(series.values()), strict=True)
    at_x, at_y = (svg.ticks(min(0, *each), max(0, *each), wider=True) for each in (x, y))
    frame = svg.Frame(520, 320, (at_x[0], at_x[-1]), (at_y[0], at_y[-1]))
    parts = [frame.grid(svg.with_labels(at_y), y_title), frame.x_axis(svg.with_labels(at_x), x_title)]
    if diagonal:
        end = min(at_x[-1], at_y[-1])
        parts.append(svg.line(frame.x(0), frame.y(0), frame.x(end), frame.y(end), "zero"))
    for number, of_series in enumerate(series.values()):
        marks = []
        if connect:
            line = " ".join(f"{frame.x(point.x):.1f},{frame.y(point.y):.1f}" for point in of_series)
            marks.append(element("polyline", points=line, class_="link"))
        for point in of_series:
            if point.tooltip:
                mark = svg.marker(number, frame.x(point.x), frame.y(point.y))
                marks.append(element("g", element("title", point.tooltip), mark))
        parts.append(svg.series(number, marks))
    return svg.picture(frame, parts, title)


def _interval_axis(frame: svg.Frame, table: pl.DataFrame) -> Markup:
    """The edges of the intervals of R, as many as fit, evenly spaced."""
    edges = [*table["low"], table["high"][-1]]
    step = math.ceil(len(edges) / 6)
    ticks = list(zip(range(0, len(edges), step), svg.told_apart(edges[::step]), strict=True))
    sizes = sorted(set(table["n"]))
    each = f"{sizes[0]:,}" if len(sizes) == 1 else f"{sizes[0]:,} to {sizes[-1]:,}"
    return frame.x_axis(ticks, f"intervals of R(q, train), {each} queries each")
