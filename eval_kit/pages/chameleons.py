"""MS MARCO Chameleons on a page: the tables and the four figures of CIKM 2021, of your own runs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from markupsafe import Markup

from eval_kit import plots
from eval_kit.files import atomic
from eval_kit.pages.page import render
from eval_kit.plots import Point
from eval_kit.protocols.chameleon_figures import against_all, in_pairs, long_tails
from eval_kit.protocols.chameleons import Chameleons
from eval_kit.tables.chameleons import tables
from eval_kit.tables.html import to_html

DRAWN_QUERIES = 200
"""Points of a curve of Figure 1: more would not be visible."""
PAIRS = 10
"""Pairs of runs that Figures 2 and 4 draw; the tables and the JSON have all."""

type Series = Mapping[str, Sequence[Point]]


@dataclass(frozen=True)
class Figure:
    """A picture, its caption, and the names of its series in the order of their markers."""

    caption: str
    picture: Markup
    series: list[str]


@dataclass(frozen=True)
class Section:
    """The figures, and each table with its notes."""

    figures: list[Figure]
    tables: list[tuple[Markup, Sequence[str]]]


def section(results: Chameleons) -> Section:
    """The figures (those of all queries only where a run covers them) and the tables."""
    drawn = []
    if results.precision.height:
        drawn += [_figure_1(results), *([_figure_2(results)] if results.agreement.height else []), _figure_3(results)]
    if results.performance["run"].n_unique() > 1:
        drawn.append(_figure_4(results))
    return Section(drawn, [(to_html(table), table.notes) for table in tables(results)])


def write_page(results: Chameleons, out: Path) -> None:
    """Write the figures and tables as a separate page.

    Raises:
        UserError: the file cannot be written.
    """
    atomic.write_text(out, render("chameleons.html.j2", [], chameleons=section(results), provenance=results.provenance))


def _figure_1(results: Chameleons) -> Figure:
    series: dict[str, list[Point]] = {}
    for run, values in long_tails(results.precision).items():
        step = max(1, len(values) // DRAWN_QUERIES)
        series[run] = [Point(rank, value) for rank, value in list(enumerate(values, start=1))[::step]]
    title = "Chameleons, Figure 1: average precision of every query"
    return Figure(
        "Figure 1 of CIKM 2021: the average precision of every query, sorted for each run.",
        plots.points(series, "queries, sorted by average precision", "AP", title),
        list(series),
    )


def _figure_2(results: Chameleons) -> Figure:
    shared = results.agreement
    series: dict[str, list[Point]] = {}
    for first, second, level, value in shared.iter_rows():
        tooltip = f"{first} and {second}, {level} %: {value:.3f}"
        series.setdefault(f"{first} and {second}", []).append(Point(level, value, tooltip))
    return _of_pairs(
        series,
        "Figure 2 of CIKM 2021 (equation 1): of the most obstinate queries of either run, the share that is of both",
        ("most obstinate queries of each run, percent", "agreement"),
        "Chameleons, Figure 2: agreement of two runs on their most obstinate queries",
    )


def _figure_3(results: Chameleons) -> Figure:
    series: dict[str, list[Point]] = {}
    for run, name, level, everything, value in against_all(results.averages, results.performance).iter_rows():
        tooltip = f"{run} on {name}, {level} %: {value:.4f}; on all {everything:.4f}"
        series.setdefault(run, []).append(Point(everything, value, tooltip))
    title = "Chameleons, Figure 3: mean average precision on the sets against all queries"
    return Figure(
        "Figure 3 of CIKM 2021: mean average precision on each Chameleons set against that on all queries.",
        plots.points(series, "MAP on all queries", "MAP on the sets", title, linked=False),
        list(series),
    )


def _figure_4(results: Chameleons) -> Figure:
    series: dict[str, list[Point]] = {}
    for first, second, name, level, x, y in in_pairs(results.performance).iter_rows():
        tooltip = f"{name}, {level} %: {first} {x:.4f}, {second} {y:.4f}"
        series.setdefault(f"{first} (→) and {second} (↑)", []).append(Point(x, y, tooltip))
    return _of_pairs(
        series,
        "Figure 4 of CIKM 2021: mean average precision of two runs on the three sets at 50 %, easier sets further up",
        ("MAP of the first run", "MAP of the second run"),
        "Chameleons, Figure 4: two runs on the three sets",
    )


def _of_pairs(series: dict[str, list[Point]], caption: str, axes: tuple[str, str], title: str) -> Figure:
    """A line for each of the first pairs of runs."""
    drawn = dict(list(series.items())[:PAIRS])
    first = f"; the first {PAIRS} of {len(series)} pairs" if len(series) > PAIRS else ""
    return Figure(f"{caption}{first}.", plots.points(drawn, *axes, title), list(drawn))
