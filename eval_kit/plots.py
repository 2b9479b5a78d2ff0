"""The papers' pictures as inline SVG: crisp in print, styled by the page, each point with its figure as a tooltip.

Systems differ by colour *and* by marker, so that no reader needs to tell colours apart.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import polars as pl
from markupsafe import Markup

from eval_kit.markup import element

MARKERS = 6
"""How many systems look different; the seventh looks like the first."""

_BINS = 40
"""Bars of each row of Figure 4."""

LONGEST_BAR = 1.0
"""Losses beyond 100 % are drawn as 100 %, or one ASL loss of 1000 % would flatten all other bars."""


class Point(NamedTuple):
    """A point of a series, with a marker if it has a tooltip."""

    x: float
    y: float
    tooltip: str = ""


@dataclass(frozen=True)
class Frame:
    """A plot area and its two linear scales, in the units of the picture."""

    width: float
    height: float
    x_range: tuple[float, float]
    y_range: tuple[float, float]
    left: float = 52
    right: float = 22
    top: float = 32
    bottom: float = 44

    def x(self, value: float) -> float:
        """The horizontal position of a value, from the left."""
        return _scaled(value, self.x_range, self.left, self.width - self.right)

    def y(self, value: float) -> float:
        """The vertical position of a value, from the top."""
        return _scaled(value, self.y_range, self.height - self.bottom, self.top)

    def grid(self, ticks: Sequence[tuple[float, str]], title: str) -> Markup:
        """Horizontal lines with their labels, and the axis' title above them."""
        parts = [_line(self.left, self.y(at), self.width - self.right, self.y(at), "grid") for at, _ in ticks]
        parts += [_label(self.left - 6, self.y(at) + 4, label, anchor="end") for at, label in ticks]
        parts.append(_label(0, 12, title, anchor="start"))
        if self.y_range[0] < 0 < self.y_range[1]:
            parts.append(_line(self.left, self.y(0), self.width - self.right, self.y(0), "zero"))
        return Markup().join(parts)

    def x_axis(self, ticks: Iterable[tuple[float, str]], title: str) -> Markup:
        """The line at the bottom, with ticks and the axis' title."""
        floor = self.height - self.bottom
        parts = [_line(self.left, floor, self.width - self.right, floor, "axis")]
        for at, label in ticks:
            parts.append(_line(self.x(at), floor, self.x(at), floor + 4, "axis"))
            parts.append(_label(self.x(at), floor + 16, label))
        parts.append(_label((self.left + self.width - self.right) / 2, self.height - 6, title))
        return Markup().join(parts)


def span(losses: Iterable[float | None]) -> tuple[float, float]:
    """The scale that the bars of one table share: zero and all the losses and their intervals, within ±100 %."""
    known = [max(-LONGEST_BAR, min(LONGEST_BAR, loss)) for loss in losses if loss is not None]
    low, high = min([0.0, *known]), max([0.0, *known])
    return (low, high) if low < high else (0.0, 1.0)


def loss_bar(
    value: float | None, low: float | None, high: float | None, scale: tuple[float, float], harm: int = 1
) -> Markup:
    """A loss as a small bar from zero with its interval as a whisker.

    Args:
        value: the loss; None draws nothing but the zero line.
        low: of its interval.
        high: of its interval.
        scale: from :func:`span`; what lies outside is cut there.
        harm: 1 if a positive value is harm, -1 if a negative one is.
    """
    frame = Frame(96, 14, scale, (0, 1), left=2, right=2, top=0, bottom=0)

    def at(loss: float) -> float:
        return frame.x(max(scale[0], min(scale[1], loss)))

    parts = []
    if value is not None:
        ends = sorted((at(0), at(value)))
        kind = "harm" if value * harm > 0 else "gain"
        parts.append(element("rect", x=ends[0], y=3, width=ends[1] - ends[0], height=8, class_=f"bar {kind}"))
        if low is not None and high is not None:
            parts.append(_line(at(low), 7, at(high), 7, "whisker"))
    parts.append(_line(at(0), 0, at(0), 14, "zero"))
    return element(
        "svg", *parts, class_="lossbar", viewBox="0 0 96 14", preserveAspectRatio="xMinYMid", aria_hidden="true"
    )


def swatch(system: int) -> Markup:
    """A system's marker, for legends and tables."""
    kind = f"swatch s{system % MARKERS}"
    return element("svg", _marker(system, 7, 7), class_=kind, viewBox="0 0 14 14", aria_hidden="true")


def loss_against_jaccard(
    points: pl.DataFrame,
    systems: Sequence[str],
    measure: str,
    x_title: str = "weighted Jaccard similarity to the other clusters",
    title: str = "Figure 3: Rel Loss of {measure} against weighted Jaccard similarity",
) -> Markup:
    """ECIR 2023, Figure 3: the loss on each held-out cluster against its similarity to the other clusters.

    Args:
        points: ``shift``, ``cluster``, ``system``, ``jaccard``, ``rel_loss``, ``low`` and ``high`` (of the loss).
        systems: in the order of their markers.
        measure: of the loss.
        x_title: of the axis.
        title: of the picture, for those who do not see it.
    """
    bounds = points.select("rel_loss", "low", "high").to_numpy()
    y_range, y_ticks = _percent_axis(bounds[np.isfinite(bounds)].tolist())
    jaccard = points["jaccard"].to_list()
    margin = 0.06 * (max(jaccard) - min(jaccard) or 0.1)
    frame = Frame(520, 360, (min(jaccard) - margin, max(jaccard) + margin), y_range, top=62)
    x_ticks = _labelled(_ticks(*frame.x_range))
    parts = [frame.grid(y_ticks, f"Rel Loss of {measure}"), frame.x_axis(x_ticks, x_title)]
    clusters = points.unique(["shift", "cluster"], maintain_order=True).sort("jaccard")
    row_ends = [-math.inf] * 3
    for cluster, at in clusters.select("cluster", "jaccard").iter_rows():
        x = frame.x(at)
        width = 7 * len(cluster) + 6
        row = next((row for row, end in enumerate(row_ends) if end < x - width / 2), 0)
        row_ends[row] = x + width / 2
        parts.append(_line(x, frame.top - 2, x, frame.height - frame.bottom, "guide"))
        parts.append(_label(x, frame.top - 6 - 13 * row, cluster))
    for number, system in enumerate(systems):
        known = points.filter(pl.col("system") == system, pl.col("rel_loss").is_not_null())
        aside = 4 * (number - (len(systems) - 1) / 2)  # all systems have the same x: draw them side by side
        marks = []
        for point in known.iter_rows(named=True):
            x, y = frame.x(point["jaccard"]) + aside, frame.y(point["rel_loss"])
            if point["low"] is not None:
                marks.append(_line(x, frame.y(point["low"]), x, frame.y(point["high"]), "range"))
            tooltip = f"{system} on {point['cluster']}: {point['rel_loss']:.1%} at {point['jaccard']:.3f}"
            marks.append(element("g", element("title", tooltip), _marker(number, x, y)))
        parts.append(_series(number, marks))
    return _picture(frame, parts, title.format(measure=measure))


def distribution(r: Mapping[str, Sequence[float]]) -> Markup:
    """ECIR 2023, Figure 4: how R is distributed, one row of bars a held-out cluster, all on one scale."""
    pooled = np.concatenate([np.asarray(values) for values in r.values()])
    cuts = np.linspace(pooled.min(), pooled.max() or 1, _BINS + 1)
    if cuts[0] == cuts[-1]:
        cuts = np.linspace(cuts[0] - 0.5, cuts[0] + 0.5, _BINS + 1)
    row_height = 40
    frame = Frame(420, 48 + row_height * len(r), (float(cuts[0]), float(cuts[-1])), (0, 1), left=58, top=4)
    parts = [frame.x_axis(_labelled(_ticks(*frame.x_range)), "R(q, train)")]
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
        parts.append(_line(middle, floor - row_height + 8, middle, floor, "median"))
        parts.append(_label(frame.left - 6, floor - 12, name, anchor="end"))
        parts.append(_label(frame.left - 6, floor, f"n={len(r[name]):,}", anchor="end", class_="small"))
    return _picture(frame, parts, "Figure 4: distribution of R(q, train) by held-out cluster")


def loss_by_interval(intervals: Mapping[str, pl.DataFrame], systems: Sequence[str], measure: str) -> Markup:
    """ECIR 2023, Figure 5: the loss of the queries in each interval of R, system beside system, with whiskers.

    Args:
        intervals: system → what :func:`eval_kit.stats.intervals.loss_by_interval` gives, all with the same intervals.
        systems: in the order of their markers.
        measure: of the loss.
    """
    bounds = pl.concat(intervals.values()).select("rel_loss", "rel_loss_low", "rel_loss_high")
    y_range, y_ticks = _percent_axis(bounds.unpivot()["value"].drop_nulls().to_list())
    first = next(iter(intervals.values()))
    frame = Frame(420, 300, (0, first.height), y_range, bottom=52)
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
                marks.append(_line(x, frame.y(row["rel_loss_low"]), x, frame.y(row["rel_loss_high"]), "range"))
            tooltip = f"{system}, R {row['low']:.4g} to {row['high']:.4g}: {row['rel_loss']:.1%}, n = {row['n']:,}"
            marks.append(element("g", element("title", tooltip), _marker(number, x, y)))
        parts.append(_series(number, [element("polyline", points=" ".join(line), class_="link"), *marks]))
    return _picture(frame, parts, f"Figure 5: Rel Loss of {measure} by interval of R")


def boxes(table: pl.DataFrame, measure: str, system: str) -> Markup:
    """ECIR 2023, Figure 6: the spread of single queries' relative losses in each interval of R.

    Args:
        table: one row per interval: ``low``, ``high``, ``n``, and ``p5``, ``q1``, ``median``, ``q3``, ``p95`` of the
            losses (null where no query has one).
        measure: of the losses.
        system: whose.
    """
    y_range, y_ticks = _percent_axis([*table["p5"].drop_nulls(), *table["p95"].drop_nulls()])
    frame = Frame(420, 280, (0, table.height), y_range, left=64, bottom=52)
    parts = [frame.grid(y_ticks, f"single queries' loss of {measure}"), _interval_axis(frame, table)]
    for interval, row in enumerate(table.iter_rows(named=True)):
        if row["median"] is None:
            continue
        x, half = frame.x(interval + 0.5), (frame.x(1) - frame.x(0)) * 0.3
        y = {name: frame.y(row[name]) for name in ("p5", "q1", "median", "q3", "p95")}
        tooltip = f"R {row['low']:.4g} to {row['high']:.4g}: median {row['median']:.1%}, "
        tooltip += f"quartiles {row['q1']:.1%} and {row['q3']:.1%}, n = {row['n']:,}"
        box = [
            element("title", tooltip),
            _line(x, y["p5"], x, y["p95"], "range"),
            element("rect", x=x - half, y=y["q3"], width=2 * half, height=max(1.0, y["q1"] - y["q3"]), class_="box"),
            _line(x - half, y["median"], x + half, y["median"], "median"),
        ]
        parts.append(element("g", *box))
    return _picture(frame, parts, f"Figure 6: spread of {system}'s losses of {measure} by interval of R")


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
    ticks = _ticks(min([0.0, *ends]), max([0.0, *ends]), wider=True)
    x_range = (ticks[0], ticks[-1]) if len(ticks) > 1 else (-1.0, 1.0)
    left = 20 + 6.4 * max(map(len, methods))
    frame = Frame(640, 52 + group_height * len(methods), x_range, (0, 1), left=left, top=4)
    parts = [frame.x_axis(_labelled(_ticks(*x_range)), f"change of {measure}, query by query")]
    parts.append(_line(frame.x(0), frame.top, frame.x(0), frame.height - frame.bottom, "zero"))
    for number, method in enumerate(methods):
        middle = frame.top + group_height * (number + 0.5)
        parts.append(_label(left - 8, middle + 4, method, anchor="end"))
    series: dict[str, list[Markup]] = {system: [] for system in systems}
    for row in spread.iter_rows(named=True):
        number = systems.index(row["system"])
        y = frame.top + group_height * methods.index(row["method"]) + gap / 2 + row_height * (number + 0.5)
        x = {name: frame.x(row[name]) for name in ("p5", "q1", "median", "q3", "p95", "mean")}
        tooltip = f"{row['system']}, {row['method']}: mean {row['mean']:+.4f}, median {row['median']:+.4f}, "
        tooltip += f"quartiles {row['q1']:+.4f} and {row['q3']:+.4f}, n = {row['n']:,}"
        box = [
            element("title", tooltip.replace("-", "\u2212")),
            _line(x["p5"], y, x["p95"], y, "range"),
            element("rect", x=x["q1"], y=y - 5, width=max(1.0, x["q3"] - x["q1"]), height=10.0, class_="box"),
            _line(x["median"], y - 5, x["median"], y + 5, "median"),
            _marker(number, x["mean"], y),
        ]
        series[row["system"]].append(element("g", *box))
    parts += [_series(number, series[system]) for number, system in enumerate(systems)]
    return _picture(frame, parts, f"Change of {measure} of single queries by method of variation")


def points(
    series: Mapping[str, Sequence[Point]], x_title: str, y_title: str, title: str, linked: bool = True
) -> Markup:
    """Any number of series on two linear scales from zero.

    Args:
        series: by name, in the order of their markers.
        x_title: of the axis.
        y_title: likewise.
        title: of the picture, for those who do not see it.
        linked: whether to draw lines from point to point.
    """
    every = [point for of_series in series.values() for point in of_series]
    at_x = _ticks(0, max(point.x for point in every) or 1, wider=True)
    at_y = _ticks(0, max(point.y for point in every) or 1, wider=True)
    frame = Frame(520, 320, (0, at_x[-1]), (0, at_y[-1]))
    parts = [
        frame.grid(_labelled(at_y), y_title),
        frame.x_axis(_labelled(at_x), x_title),
    ]
    for number, of_series in enumerate(series.values()):
        marks = []
        if linked:
            line = " ".join(f"{frame.x(point.x):.1f},{frame.y(point.y):.1f}" for point in of_series)
            marks.append(element("polyline", points=line, class_="link"))
        for point in of_series:
            if point.tooltip:
                mark = _marker(number, frame.x(point.x), frame.y(point.y))
                marks.append(element("g", element("title", point.tooltip), mark))
        parts.append(_series(number, marks))
    return _picture(frame, parts, title)


def heatmap(names: Sequence[str], values: Mapping[tuple[str, str], float], title: str) -> Markup:
    """A square of similarities, each pair twice, darker the more alike; columns are numbered as the rows.

    Args:
        names: of the rows.
        values: from 0 to 1, by pair of names.
        title: of the picture, for those who do not see it.
    """
    cell, left, top = 30.0, 28 + 6.4 * max(map(len, names)), 20.0
    greatest = max(values.values(), default=1.0) or 1.0
    parts = []
    for number, name in enumerate(names):
        middle = top + (number + 0.5) * cell
        parts.append(_label(left - 6, middle + 4, f"{name} {number + 1}", anchor="end"))
        parts.append(_label(left + (number + 0.5) * cell, top - 6, str(number + 1)))
    for pair, value in values.items():
        tooltip = element("title", f"{pair[0]} and {pair[1]}: {value:.3f}")
        row, column = map(names.index, pair)
        for y, x in ((row, column), (column, row)):
            corner = {"x": left + x * cell, "y": top + y * cell, "width": cell - 1, "height": cell - 1}
            square = element("rect", class_="heat", fill_opacity=0.5 * value / greatest, **corner)
            shown = _label(corner["x"] + cell / 2, corner["y"] + cell / 2 + 4, f"{value:.2f}", class_="small")
            parts.append(element("g", tooltip, square, shown))
    size = cell * len(names)
    return _picture(Frame(left + size, top + size, (0, 1), (0, 1)), parts, title)


def _interval_axis(frame: Frame, table: pl.DataFrame) -> Markup:
    """The edges of the intervals of R, as many as fit, evenly spaced."""
    edges = [*table["low"], table["high"][-1]]
    step = math.ceil(len(edges) / 6)
    ticks = list(zip(range(0, len(edges), step), _told_apart(edges[::step]), strict=True))
    sizes = sorted(set(table["n"]))
    each = f"{sizes[0]:,}" if len(sizes) == 1 else f"{sizes[0]:,} to {sizes[-1]:,}"
    return frame.x_axis(ticks, f"intervals of R(q, train), {each} queries each")


def _series(system: int, marks: Sequence[Markup]) -> Markup:
    return element("g", *marks, class_=f"series s{system % MARKERS}", data_system=system)


def _picture(frame: Frame, parts: Sequence[Markup], label: str) -> Markup:
    box = f"0 0 {frame.width:.0f} {frame.height:.0f}"
    return element("svg", *parts, class_="plot", viewBox=box, role="img", aria_label=label)


def _marker(system: int, x: float, y: float) -> Markup:
    """Circle, square, triangle, diamond, triangle on its tip, cross."""
    size = 4.5
    kind = system % MARKERS
    if kind == 0:
        return element("circle", cx=x, cy=y, r=size, class_="mark")
    turns = {1: (45, 4), 2: (-90, 3), 3: (0, 4), 4: (90, 3)}
    if kind in turns:
        start, corners = turns[kind]
        angles = [math.radians(start + 360 * corner / corners) for corner in range(corners)]
        ends = (f"{x + 1.25 * size * math.cos(angle):.1f},{y + 1.25 * size * math.sin(angle):.1f}" for angle in angles)
        return element("polygon", points=" ".join(ends), class_="mark")
    cross = f"M{x - size:.1f} {y - size:.1f}l{2 * size} {2 * size}m0 {-2 * size}l{-2 * size} {2 * size}"
    return element("path", d=cross, class_="mark cross")


def _line(x1: float, y1: float, x2: float, y2: float, kind: str) -> Markup:
    return element("line", x1=float(x1), y1=float(y1), x2=float(x2), y2=float(y2), class_=kind)


def _label(x: float, y: float, shown: str, anchor: str = "middle", class_: str | None = None) -> Markup:
    return element("text", shown, x=float(x), y=float(y), text_anchor=anchor, class_=class_)


def _percent_axis(values: Sequence[float]) -> tuple[tuple[float, float], list[tuple[float, str]]]:
    """A range that holds zero and all the values, with its ticks in percent."""
    low, high = min([0.0, *values]), max([0.0, *values])
    if low == high:
        high = 0.01
    at = _ticks(low, high, wider=True)
    digits = max(0, _digits(at) - 2)
    return (at[0], at[-1]), [(value, format(value, f",.{digits}%").replace("-", "\u2212")) for value in at]


def _ticks(low: float, high: float, wider: bool = False) -> list[float]:
    """About five round numbers in a range, or just around it."""
    rough = (high - low) / 5 or 1.0
    unit = 10 ** math.floor(math.log10(rough))
    step = next(unit * factor for factor in (1, 2, 2.5, 5, 10) if unit * factor >= rough * 0.999)
    first = math.floor(low / step + 1e-9) if wider else math.ceil(low / step - 1e-9)
    last = math.ceil(high / step - 1e-9) if wider else math.floor(high / step + 1e-9)
    return [number * step for number in range(first, last + 1)]


def _digits(ticks: Sequence[float]) -> int:
    """The fewest decimals that show the step between ticks exactly: no two ticks have one label."""
    step = ticks[1] - ticks[0] if len(ticks) > 1 else 1.0
    return next(digits for digits in range(300) if abs(round(step, digits) - step) < 1e-6 * step)


def _labelled(ticks: Sequence[float]) -> list[tuple[float, str]]:
    digits = _digits(ticks)
    return [(at, format(at, f",.{digits}f").replace("-", "\u2212")) for at in ticks]


def _told_apart(values: Sequence[float]) -> list[str]:
    """With the fewest significant digits, at least two, in which values that differ have different labels."""
    for digits in range(2, 18):
        labels = [np.format_float_positional(value, digits, fractional=False, trim="-") for value in values]
        if len(set(labels)) == len(set(values)):
            break
    return [label.replace("-", "\u2212") for label in labels]


def _scaled(value: float, span: tuple[float, float], start: float, end: float) -> float:
    return float(start + (end - start) * (value - span[0]) / (span[1] - span[0]))
