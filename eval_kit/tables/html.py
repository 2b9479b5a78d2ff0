"""A table in HTML."""

import re
from collections.abc import Sequence
from itertools import chain, groupby
from operator import attrgetter

from markupsafe import Markup

from eval_kit.markup import element, visible
from eval_kit.svg import loss_bar, span
from eval_kit.tables.table import Column, Row, Table, Value, as_cell

_CLASSES = {"heading": "who", "label": "label", "text": "", "number": "num"}


def to_html(table: Table, bars: bool = True, mark: str = "") -> Markup:
    """The table, without its notes, in a region that scrolls where the page is narrow.

    ``bars`` are drawn for pages, whose styles they need; a ``mark`` stands behind the title.
    """
    title = ", ".join(filter(None, (table.title, mark)))
    caption = element("caption", title) if title else ""
    ends: list[float | None] = []
    for cell in chain.from_iterable(table.rows()):
        if cell.bar:
            ends += [cell.bar.loss, cell.bar.low, cell.bar.high]
    scale = span(ends) if bars else None
    bodies = [_body(table, group, scale) for group in table.groups]
    whole = element("table", caption, _head(table), *bodies, data_sortable=bool(table.sorted_by))
    return visible(
        element(
            "div", whole, class_="scroll", role="region", tabindex="0", aria_label=title or ", ".join(table.headers)
        )
    )


def sort_header(name: str, classes: str, sorted_by: str | None = None, key: str | None = None) -> Markup:
    """A column's header with a button that sorts by it."""
    button = element("button", name, type="button")
    return element("th", button, scope="col", class_=classes or None, aria_sort=sorted_by, data_key=key)


def typographic(number: str) -> str:
    """A number for readers: with a proper minus sign, and a dash where there is none."""
    return re.sub(r"(?<!\S)-(?!\S)", "–", number).replace("-", "−")


def _head(table: Table) -> Markup:
    rows = 2 if any(map(attrgetter("group"), table.columns)) else None
    cells, below = [], []
    for group, columns in groupby(table.columns, attrgetter("group")):
        if group:
            names = [_header(column, _place(column, table)) for column in columns]
            cells.append(element("th", group, scope="colgroup", colspan=len(names), class_="num"))
            below += names
        else:
            cells += [_header(column, _place(column, table), table.sorted_by, rows) for column in columns]
    return element("thead", element("tr", *cells), element("tr", *below) if below else "")


def _place(column: Column, table: Table) -> str:
    """The classes of a column's cells: whether its numbers are aligned, and whether it stays in sight."""
    return f"{_CLASSES[column.kind]}{' first' * (column is table.columns[0])}".strip()


def _header(column: Column, classes: str, sorted_by: str = "", rows: int | None = None) -> Markup:
    if sorted_by:
        return sort_header(column.name, classes, "descending" if column.name == sorted_by else None)
    if not column.name:
        return element("td", rowspan=rows, class_=classes or None)
    return element("th", column.name, scope="col", rowspan=rows, class_=classes or None)


def _body(table: Table, group: Sequence[Row], scale: tuple[float, float] | None) -> Markup:
    """The rows of a group; a cell that those below it continue spans them."""
    rows: list[Markup] = []
    heights = [1] * len(table.columns)
    for row in reversed(group):
        line = []
        for index, (cell, column) in enumerate(zip(row, table.columns, strict=True)):
            if cell is None:
                heights[index] += 1
            else:
                place = _place(column, table)
                line.append(_cell(as_cell(cell), column, place, heights[index], scale, bool(table.sorted_by)))
                heights[index] = 1
        rows.insert(0, element("tr", *line))
    return element("tbody", *rows, class_="group" if len(table.groups) > 1 else None)


def _cell(
    cell: Value, column: Column, place: str, rows: int, scale: tuple[float, float] | None, sortable: bool
) -> Markup:
    number = column.kind == "number"
    text = typographic(cell.text) if number else cell.text
    inside = [element("strong", text) if cell.bold else text]
    for sign in cell.mark:  # on a page a link to its note
        inside.append(element("span", sign) if scale is None else element("a", sign, href=f"#note-{sign}"))
    if cell.below:
        inside.append(element("div", typographic(cell.below), class_="quiet"))
    if (bar := cell.bar) and scale:
        inside.append(loss_bar(bar.loss, bar.low, bar.high, scale, bar.harm))
    classes = f"{place}{' diagonal' * cell.shaded} {cell.word}".strip()
    heading = column.kind == "heading"
    return element(
        "th" if heading else "td",
        *inside,
        scope=("rowgroup" if rows > 1 else "row") if heading else None,
        rowspan=rows if rows > 1 else None,
        class_=classes or None,
        title=typographic(cell.tooltip) or None,
        data_value=("" if cell.sort is None else repr(cell.sort)) if sortable and number else None,
    )
