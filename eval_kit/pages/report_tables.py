"""The papers' tables as HTML, with each loss as a bar and its interval as a whisker."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import polars as pl
from markupsafe import Markup

from eval_kit.measures.definitions import parse
from eval_kit.pages.markup import Html
from eval_kit.tables import papers
from eval_kit.tables.html import scroll as scroll
from eval_kit.tables.html import sort_header as sort_header
from eval_kit.tables.html import to_html, typographic
from eval_kit.tables.table import Column, Table, loss


def ms_shift(
    losses: pl.DataFrame, clusters: Sequence[str], measure: str, untrained: Mapping[str, Mapping[str, float]]
) -> Html:
    """As :func:`eval_kit.tables.papers.ms_shift`, with the best of several systems in bold."""
    table = papers.ms_shift(losses, clusters, measure, untrained, best_in_bold=True)
    return Html(to_html(replace(table, title=_with_direction(table.title, measure))))


def restrain(results: pl.DataFrame) -> Html:
    """As :func:`eval_kit.tables.papers.restrain`, with marks."""
    return Html(
        to_html(replace(papers.restrain(results, marks=True), title="Inter., Extra. and Δ over TREC DL 2019 and 2020"))
    )


def resttest(results: pl.DataFrame) -> Html:
    """As :func:`eval_kit.tables.papers.resttest`, with marks."""
    return Html(to_html(replace(papers.resttest(results, marks=True), title="Inter., Extra. and Δ over dev")))


def matrix(values: pl.DataFrame, test_sets: Sequence[str], measure: str, system: str) -> Html:
    """As :func:`eval_kit.tables.papers.matrix`."""
    table = papers.matrix(values, test_sets, measure, system)
    return Html(to_html(replace(table, title=_with_direction(table.title, measure))))


def every_loss(results: Mapping[str, pl.DataFrame]) -> Html:
    """As :func:`eval_kit.tables.papers.every_loss`."""
    return Html(to_html(papers.every_loss(results)))


def plain(title: str, columns: Sequence[str], rows: Iterable[Sequence[str]], numbers: Sequence[int] = ()) -> Html:
    """A table of words, with some columns of numbers; a cell that is markup stays so."""
    kinds = [Column(name, "number" if i in numbers else "text") for i, name in enumerate(columns)]
    lines = [[Markup(cell) if isinstance(cell, Html) else cell for cell in row] for row in rows]
    return Html(to_html(Table(kinds, [lines], title)))


def number(value: float, measure: str) -> str:
    """A mean in the unit of the papers: reciprocal ranks times 100, search lengths plain."""
    return parse(measure).show_as_ecir_2023(value)


def percent(value: float | None) -> str:
    """A loss for people: ``12.3%``, or a dash where there is none."""
    return typographic(loss(value))


def minus(shown: str) -> str:
    """The number with a proper minus sign."""
    return shown.replace("-", "−")


def _with_direction(title: str, measure: str) -> str:
    return f"{title} (lower is better: a negative loss is harm)" if parse(measure).lower_is_better else title
