"""Pictures as inline SVG: crisp in print, styled by the page, each point with its figure as a tooltip.

Everywhere, ``axis`` says what is on the scale, ``title`` is for those who do not see the picture, and systems have
their markers in the order in which they are given.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import NamedTuple

import numpy as np
import polars as pl
from markupsafe import Markup
from rich.cells import cell_len, set_cell_size

from eval_kit import svg
from eval_kit.markup import element

_NAMED = 20
"""Clusters up to which a figure has room for their names."""
_WIDEST = 36
"""Columns of a screen that the label of a row takes at most."""
_BINS = 40
"""Bars of each row of Figure 4."""


class Effect(NamedTuple):
    """A row of :func:`forest`: an estimate with its interval, from ``n`` queries; hollow where it ``is_of_few``.

    Rows of several ``series`` have their colours; one without a label goes on with that of the row above.
    """

    label: str
    estimate: float | None
    low: float | None
    high: float | None
    n: int
    is_of_few: bool = False
    series: int = 0


def forest(rows: Sequence[Effect], axis: str, title: str, percent: bool = False, margin: float | None = None) -> Markup:
    """Differences with their intervals, or losses in ``percent``, one below the other beside a line at zero.

    Rows without an estimate are left out. ``margin`` is another line, the difference at which a gate fails.
    """
    rows = [row for row in rows if row.estimate is not None]
    form = "z.1%" if percent else "+.4f"
    ends = [margin, *(end for row in rows for end in (row.estimate, row.low, row.high))]
    frame, places, parts = _rows([row.label for row in rows], ends, axis, 252, percent)
    if margin is not None:
        parts.append(svg.line(frame.x(margin), frame.top, frame.x(margin), frame.height - frame.bottom, "margin"))
    series: dict[int, list[Markup]] = {}
    for y, row in zip(places, rows, strict=True):
        figures = format(row.estimate, form)
        marks = []
        if row.low is not None and row.high is not None:
            figures += f" [{row.low:{form}}, {row.high:{form}}]"
            marks.append(svg.line(frame.x(row.low), y, frame.x(row.high), y, "range"))
        figures = figures.replace("-", "\u2212")
        marks.append(svg.marker(row.series, frame.x(float(row.estimate or 0)), y))
        for x, text in ((frame.width - 48, figures), (frame.width, f"{row.n:,}")):
            marks.append(svg.label(x, y + 4, text, "end"))
        tooltip = element("title", f"{row.label or axis}: {figures}, {row.n:,} queries")
        group = element("g", tooltip, *marks, class_="few" if row.is_of_few else None)
        series.setdefault(row.series, []).append(group)
    parts += [svg.series(number, marks) for number, marks in sorted(series.items())]
    return svg.picture(frame, [*parts, svg.label(frame.width, 12, "n", "end")], title)


def bars(rows: Sequence[tuple[str, float, str]], axis: str, title: str, percent: bool = False) -> Markup:
    """Values from zero, or shares in ``percent``, as bars: each with its label, and with the value as it is shown."""
    labels, values, _ = zip(*rows, strict=True)
    frame, places, parts = _rows(labels, values, axis, 110, percent)
    for y, (name, value, shown) in zip(places, rows, strict=True):
        end = frame.x(value)
        bar = element("rect", x=frame.left, y=y - 6.5, width=end - frame.left, height=13.0, class_="bar")
        parts.append(element("g", element("title", f"{name}: {shown}"), bar, class_="s0"))
        parts.append(svg.label(end + 6, y + 4, shown, "start"))
    return svg.picture(frame, parts, title)


def slopes(levels: Mapping[str, tuple[float, float]], sides: tuple[str, str], axis: str, title: str) -> Markup:
    """Each series' levels on two ``sides``, such as near and far queries, joined by a line."""
    y_range, y_ticks = svg.axis(chain.from_iterable(levels.values()))
    frame = svg.Frame(420, 210, (-0.35, 1.35), y_range)
    series = {}
    for name, ends in levels.items():
        both = enumerate(zip(sides, ends, strict=True))
        series[name] = [svg.Point(at, level, f"{name}, {side}: {level:.4f}") for at, (side, level) in both]
    parts = [frame.grid(y_ticks, axis), frame.x_axis(list(enumerate(sides)), "")]
    return svg.picture(frame, [*parts, *svg.drawn(frame, series, connect=True)], title)


def loss_against_jaccard(
    points: pl.DataFrame,
    systems: Sequence[str],
    measure: str,
    title: str = "Figure 3: Rel Loss of {measure} against weighted Jaccard similarity",
) -> Markup:
    """ECIR 2023, Figure 3: the loss on each held-out cluster against its similarity to the other clusters.

    ``points`` has ``shift``, ``cluster``, ``system``, ``jaccard``, ``rel_loss``, ``low`` and ``high`` (of the loss).
    """
    bounds = points.select("rel_loss", "low", "high").unpivot()["value"].fill_nan(None)
    y_range, y_ticks = svg.axis(bounds, percent=True)
    jaccard = points["jaccard"].to_list()
    margin = 0.06 * (max(jaccard) - min(jaccard) or 0.1)
    frame = svg.Frame(520, 360, (min(jaccard) - margin, max(jaccard) + margin), y_range, top=62)
    parts = [frame.grid(y_ticks, f"Rel Loss of {measure}")]
    x_ticks = svg.with_labels(svg.ticks(*frame.x_range))
    parts.append(frame.x_axis(x_ticks, "weighted Jaccard similarity to the other clusters"))
    clusters = points.unique(["shift", "cluster"], maintain_order=True).sort("jaccard")
    row_ends = [-math.inf] * 3
    for cluster, at in clusters.select("cluster", "jaccard").iter_rows() if clusters.height <= _NAMED else ():
        x = frame.x(at)
        width = 7 * len(cluster) + 6
        row = next((row for row, end in enumerate(row_ends) if end < x - width / 2), 0)
        row_ends[row] = x + width / 2
        parts.append(svg.line(x, frame.top - 2, x, frame.height - frame.bottom, "guide"))
        parts.append(svg.label(x, frame.top - 6 - 13 * row, cluster))
    series: dict[str, list[svg.Point]] = {system: [] for system in systems}
    for each in points.filter(pl.col("rel_loss").is_not_null()).iter_rows(named=True):
        tooltip = f"{each['system']} on {each['cluster']}: {each['rel_loss']:z.1%} at {each['jaccard']:.3f}"
        point = svg.Point(each["jaccard"], each["rel_loss"], tooltip, each["low"], each["high"])
        series[each["system"]].append(point)
    parts += svg.drawn(frame, series, apart=4)  # all systems have the same x: they stand side by side
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
        heights = floor - (row_height - 6) / tallest * np.array([0, *np.repeat(share, 2), 0])
        hill = " ".join(f"{frame.x(x):.1f},{y:.1f}" for x, y in zip(np.repeat(cuts, 2), heights, strict=True))
        middle = frame.x(float(np.median(r[name])))
        tooltip = f"{name}: {len(r[name]):,} queries, median {np.median(r[name]):.4g}"
        parts.append(element("g", element("title", tooltip), element("polygon", points=hill, class_="hill")))
        parts.append(svg.line(middle, floor - row_height + 8, middle, floor, "median"))
        parts.append(svg.label(frame.left - 6, floor - 12, name, anchor="end"))
        parts.append(svg.label(frame.left - 6, floor, f"n={len(r[name]):,}", anchor="end", class_="small"))
    return svg.picture(frame, parts, "Figure 4: distribution of R(q, train) by held-out cluster")


def loss_by_interval(intervals: Mapping[str, pl.DataFrame], systems: Sequence[str], measure: str) -> Markup:
    """ECIR 2023, Figure 5: the loss of the queries in each interval of R, system beside system, with whiskers.

    Each system's table is :func:`eval_kit.stats.intervals.loss_by_interval`'s, all with the same intervals.
    """
    bounds = pl.concat(intervals.values()).select("rel_loss", "rel_loss_low", "rel_loss_high")
    y_range, y_ticks = svg.axis(bounds.unpivot()["value"], percent=True)
    first = next(iter(intervals.values()))
    frame = svg.Frame(420, 300, (0, first.height), y_range, bottom=52)
    series: dict[str, list[svg.Point]] = {system: [] for system in systems}
    for system, table in intervals.items():
        for interval, row in enumerate(table.iter_rows(named=True)):
            if row["rel_loss"] is not None:
                about = f"{system}, R {row['low']:.4g} to {row['high']:.4g}: {row['rel_loss']:z.1%}, n = {row['n']:,}"
                ends = row["rel_loss_low"], row["rel_loss_high"]
                series[system].append(svg.Point(interval + 0.5, row["rel_loss"], about, *ends))
    apart = (frame.x(1) - frame.x(0)) * min(0.16, 0.7 / len(systems))
    parts = [frame.grid(y_ticks, f"Rel Loss of {measure}"), _interval_axis(frame, first)]
    parts += svg.drawn(frame, series, connect=True, apart=apart)
    return svg.picture(frame, parts, f"Figure 5: Rel Loss of {measure} by interval of R")


def boxes(table: pl.DataFrame, measure: str, system: str) -> Markup:
    """ECIR 2023, Figure 6: the spread of single queries' relative losses in each interval of R.

    ``table`` has a row an interval: ``low``, ``high``, ``n``, and ``p5``, ``q1``, ``median``, ``q3``, ``p95`` of the
    losses (null where no query has one).
    """
    y_range, y_ticks = svg.axis([*table["p5"], *table["p95"]], percent=True)
    frame = svg.Frame(420, 280, (0, table.height), y_range, left=64, bottom=52)
    parts = [frame.grid(y_ticks, f"single queries' loss of {measure}"), _interval_axis(frame, table)]
    for interval, row in enumerate(table.iter_rows(named=True)):
        if row["median"] is None:
            continue
        x, half = frame.x(interval + 0.5), (frame.x(1) - frame.x(0)) * 0.3
        y = {name: frame.y(row[name]) for name in ("p5", "q1", "median", "q3", "p95")}
        tooltip = f"R {row['low']:.4g} to {row['high']:.4g}: median {row['median']:z.1%}, "
        tooltip += f"quartiles {row['q1']:z.1%} and {row['q3']:z.1%}, n = {row['n']:,}"
        box = element("rect", x=x - half, y=y["q3"], width=2 * half, height=max(1, y["q1"] - y["q3"]), class_="box")
        whisker = svg.line(x, y["p5"], x, y["p95"], "range")
        middle = svg.line(x - half, y["median"], x + half, y["median"], "median")
        parts.append(element("g", element("title", tooltip), whisker, box, middle))
    return svg.picture(frame, parts, f"Figure 6: spread of {system}'s losses of {measure} by interval of R")


def points(
    series: Mapping[str, Sequence[svg.Point]], x_title: str, y_title: str, title: str, diagonal: bool = False
) -> Markup:
    """Any number of series on two linear scales that hold zero, with the ``diagonal`` of equal values."""
    x, y, *_ = zip(*chain.from_iterable(series.values()), strict=True)
    (x_range, x_ticks), (y_range, y_ticks) = svg.axis(x), svg.axis(y)
    frame = svg.Frame(520, 320, x_range, y_range)
    parts = [frame.grid(y_ticks, y_title), frame.x_axis(x_ticks, x_title)]
    if diagonal:
        end = min(x_range[1], y_range[1])
        parts.append(svg.line(frame.x(0), frame.y(0), frame.x(end), frame.y(end), "zero"))
    return svg.picture(frame, [*parts, *svg.drawn(frame, series)], title)


def _rows(
    labels: Sequence[str], values: Iterable[float | None], axis: str, right: float, percent: bool = False
) -> tuple[svg.Frame, list[float], list[Markup]]:
    """A frame for rows one below the other, where each is, and their labels, the line at zero and the axis."""
    height = 19
    labels = _told_apart(labels)
    left = 16 + 7.2 * max(map(cell_len, labels), default=0)
    x_range, ticks = svg.axis(values, percent)
    frame = svg.Frame(left + 290 + right, 66 + height * len(labels), x_range, (0, 1), left=left, right=right, top=18)
    floor = frame.height - frame.bottom
    parts = [frame.x_axis(ticks, axis), svg.line(frame.x(0), frame.top, frame.x(0), floor, "zero")]
    places = [frame.top + height * (number + 0.5) for number in range(len(labels))]
    for y, label in zip(places, labels, strict=True):
        parts.append(svg.label(left - 10, y + 4, label, "end"))
    return frame, places, parts


def _told_apart(labels: Sequence[str]) -> list[str]:
    """The labels, none too long: without what they all begin and end with, then cut; two that differ stay so."""
    if all(cell_len(label) <= _WIDEST for label in labels):
        return list(labels)
    names = sorted(set(labels))
    start = _shared_start(names)
    end = _shared_start([name[start:][::-1] for name in names])
    rests = {name: f"{'…' * bool(start)}{name[start : len(name) - end]}{'…' * bool(end)}" for name in names}
    shown = {name: rest if cell_len(rest) <= _WIDEST else _cut(rest) for name, rest in rests.items()}
    times = Counter(shown.values())
    of_name = {
        name: f"{text} ({place})" if times[text] > 1 else text for place, (name, text) in enumerate(shown.items(), 1)
    }
    return [of_name[label] for label in labels]


def _shared_start(names: Sequence[str]) -> int:
    """How many characters all names begin with; none of a single name."""
    alike = [len(set(column)) == 1 for column in zip(*names, strict=False)] if names[1:] else []
    return [*alike, False].index(False)


def _cut(label: str) -> str:
    """Both ends of a label that is too long: names of parts often differ in their last words alone."""
    half = _WIDEST // 2
    return f"{set_cell_size(label, half).rstrip()}…{set_cell_size(label[::-1], half)[::-1].lstrip()}"


def _interval_axis(frame: svg.Frame, table: pl.DataFrame) -> Markup:
    """The edges of the intervals of R, as many as fit, evenly spaced."""
    edges = [*table["low"], table["high"][-1]]
    step = math.ceil(len(edges) / 6)
    ticks = list(zip(range(0, len(edges), step), svg.told_apart(edges[::step]), strict=True))
    sizes = sorted(set(table["n"]))
    each = f"{sizes[0]:,}" if len(sizes) == 1 else f"{sizes[0]:,} to {sizes[-1]:,}"
    return frame.x_axis(ticks, f"intervals of R(q, train), {each} queries each")
