"""The figures of MS MARCO Chameleons (CIKM 2021, Figures 1 to 4; Figure 2 is equation 1): their data and pictures.

Functions take the tables of :class:`eval_kit.protocols.chameleons.Chameleons`, by the names of its attributes.
"""

from collections.abc import Iterator
from itertools import combinations

import polars as pl

from eval_kit import plots
from eval_kit.protocols.obstinacy import rankers
from eval_kit.results import Picture
from eval_kit.svg import Point

DRAWN_QUERIES = 200
"""Points of a curve of Figure 1: more would not be visible."""
PAIRS = 10
"""Pairs of runs that Figures 2 and 4 draw; the tables and the JSON have all."""


def long_tails(precision: pl.DataFrame) -> dict[str, list[float]]:
    """Figure 1: each run's average precision of every query, the highest first."""
    return {run: precision[run].sort(descending=True).to_list() for run in rankers(precision)}


def against_all(averages: pl.DataFrame, performance: pl.DataFrame) -> pl.DataFrame:
    """Figure 3: each run's mean average precision on each set (``performance``) against that on all queries.

    Returns:
        ``run``, ``set``, ``level``, ``all`` and ``value``, of the runs that cover all queries, in their order.
    """
    everything = averages.filter(pl.col("measure") == "AP").select("run", all="mean")
    sets = performance.filter(pl.col("measure") == "AP").select("run", "set", "level", "value")
    return everything.join(sets, on="run", maintain_order="left_right").select("run", "set", "level", "all", "value")


def in_pairs(performance: pl.DataFrame) -> pl.DataFrame:
    """Figure 4, for every pair of runs: the mean average precision of both on each set at the highest level.

    Returns:
        ``first``, ``second`` (runs), ``set``, ``level``, ``first_value`` and ``second_value``; the sets by the first
        run's value, the most obstinate one first.
    """
    rows = performance.filter(pl.col("measure") == "AP", pl.col("level") == pl.col("level").max())
    frames = []
    for first, second in combinations(rows["run"].unique(maintain_order=True), 2):
        of_first, of_second = (rows.filter(pl.col("run") == run) for run in (first, second))
        both = of_first.join(of_second, on=["set", "level"]).sort("value")
        values = both.select("set", "level", first_value="value", second_value="value_right")
        frames.append(values.select(pl.lit(first).alias("first"), pl.lit(second).alias("second"), pl.all()))
    return pl.concat(frames) if frames else pl.DataFrame()


def figures(
    averages: pl.DataFrame, precision: pl.DataFrame, agreement: pl.DataFrame, performance: pl.DataFrame
) -> Iterator[Picture]:
    """The figures that the runs allow."""
    if precision.height:
        yield _figure_1(precision)
        if agreement.height:
            yield _figure_2(agreement)
        yield _figure_3(averages, performance)
    if performance["run"].n_unique() > 1:
        yield _figure_4(performance)


def _figure_1(precision: pl.DataFrame) -> Picture:
    series: dict[str, list[Point]] = {}
    for run, values in long_tails(precision).items():
        step = max(1, len(values) // DRAWN_QUERIES)
        series[run] = [Point(rank, value) for rank, value in list(enumerate(values, start=1))[::step]]
    title = "Chameleons, Figure 1: average precision of every query"
    picture = plots.points(series, "queries, sorted by average precision", "AP", title)
    caption = "Figure 1 of CIKM 2021: the average precision of every query, sorted for each run."
    return Picture(picture, caption, list(series))


def _figure_2(agreement: pl.DataFrame) -> Picture:
    series: dict[str, list[Point]] = {}
    for first, second, level, value in agreement.iter_rows():
        tooltip = f"{first} and {second}, {level} %: {value:.3f}"
        series.setdefault(f"{first} and {second}", []).append(Point(level, value, tooltip))
    return _of_pairs(
        series,
        "Figure 2 of CIKM 2021 (equation 1): of the most obstinate queries of either run, the share that is of both",
        ("most obstinate queries of each run, percent", "agreement"),
        "Chameleons, Figure 2: agreement of two runs on their most obstinate queries",
    )


def _figure_3(averages: pl.DataFrame, performance: pl.DataFrame) -> Picture:
    series: dict[str, list[Point]] = {}
    for run, name, level, everything, value in against_all(averages, performance).iter_rows():
        tooltip = f"{run} on {name}, {level} %: {value:.4f}; on all {everything:.4f}"
        series.setdefault(run, []).append(Point(everything, value, tooltip))
    title = "Chameleons, Figure 3: mean average precision on the sets against all queries"
    picture = plots.points(series, "MAP on all queries", "MAP on the sets", title, connect=False)
    caption = "Figure 3 of CIKM 2021: mean average precision on each Chameleons set against that on all queries."
    return Picture(picture, caption, list(series))


def _figure_4(performance: pl.DataFrame) -> Picture:
    series: dict[str, list[Point]] = {}
    for first, second, name, level, x, y in in_pairs(performance).iter_rows():
        tooltip = f"{name}, {level} %: {first} {x:.4f}, {second} {y:.4f}"
        series.setdefault(f"{first} (→) and {second} (↑)", []).append(Point(x, y, tooltip))
    return _of_pairs(
        series,
        "Figure 4 of CIKM 2021: mean average precision of two runs on the three sets at 50 %, easier sets further up",
        ("MAP of the first run", "MAP of the second run"),
        "Chameleons, Figure 4: two runs on the three sets",
    )


def _of_pairs(series: dict[str, list[Point]], caption: str, axes: tuple[str, str], title: str) -> Picture:
    """A line for each of the first pairs of runs."""
    series_shown = dict(list(series.items())[:PAIRS])
    first = f"; the first {PAIRS} of {len(series)} pairs" if len(series) > PAIRS else ""
    return Picture(plots.points(series_shown, *axes, title), f"{caption}{first}.", list(series_shown))
