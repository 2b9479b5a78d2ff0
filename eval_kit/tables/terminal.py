"""A table in a terminal."""

from collections.abc import Sequence

import rich.table
from rich.cells import cell_len
from rich.console import Console, OverflowMethod
from rich.text import Text

from eval_kit.errors import printable
from eval_kit.tables.table import Column, Table, Value

_OVERFLOW: dict[str, OverflowMethod] = {"words": "ellipsis", "anywhere": "fold", "never": "ellipsis"}
_LEAST_TEXT = 8
_GAP = 2


def show(table: Table, console: Console) -> None:
    """Print the table, in as many parts as the screen's width needs, and its notes."""
    for number, part in enumerate(rich_tables(table, console.width)):
        console.print(*[""] * (number > 0), part, sep="\n")
    show_notes(table.notes, console)


def show_notes(notes: Sequence[str], console: Console, style: str = "dim") -> None:
    """Print notes, each on one line however long."""
    for note in notes:
        console.print(Text(printable(note), style), soft_wrap=True)


def rich_tables(table: Table, width: int) -> list[rich.table.Table]:
    """The table for rich, without its notes; a group's name stands above its first column.

    A table that is too wide loses its spare columns; one that still is comes in several parts, each with the columns
    that name the rows. No number is broken, and a name only where it alone is too wide.
    """
    cells = [list(map(_text, row)) for row in table.rows()]
    columns = table.columns
    every = list(range(len(columns)))
    needed = [index for index in every if not columns[index].spare]
    for among, whole in ((every, True), (needed, True), (needed, False)):
        spans = []
        for index, column in enumerate(columns):
            starts_group = index == 0 or column.group != columns[index - 1].group
            header = [column.group, column.name] if starts_group else [column.name]
            spans.append(_span(column, list(map(printable, header)), [row[index].plain for row in cells], whole))
        indexes_of_parts = _parts(columns, among, spans, width)
        fits = max(_room(spans, indexes) for indexes in indexes_of_parts) <= width
        if fits and (len(indexes_of_parts) == 1 or among is needed):
            break
    parts = []
    for indexes in indexes_of_parts:
        widths = _fit([spans[index] for index in indexes], width)
        parts.append(_part(table, indexes, widths, cells))
    if table.title:
        parts[0].title = Text(printable(table.title), "table.title")
    return parts


def _part(
    table: Table, indexes: Sequence[int], widths: Sequence[int], cells: Sequence[Sequence[Text]]
) -> rich.table.Table:
    part = rich.table.Table(box=None, pad_edge=False, header_style="bold")
    group = ""
    for index, width in zip(indexes, widths, strict=True):
        column = table.columns[index]
        lines = [column.group if column.group != group else "", column.name] if column.group else [column.name]
        group = column.group
        part.add_column(
            Text("\n".join(map(printable, lines))),
            justify="right" if column.kind == "number" else "left",
            no_wrap=column.wrap == "never",
            overflow=_OVERFLOW[column.wrap],
            width=max(width, cell_len(lines[0])) if column.group else width,
            style=column.style or None,
        )
    for row in cells:
        part.add_row(*(row[index] for index in indexes))
    return part


def _span(column: Column, header: Sequence[str], texts: Sequence[str], whole: bool) -> tuple[int, int]:
    """The least width of a column and the one in which nothing of it wraps; numbers never do.

    A text wraps between words; inside one, such as a system's name, only where it need not be ``whole``.
    """
    full = max(column.min_width or 0, _longest([*header, *texts]))
    if column.wrap == "never":
        return full, full
    unbroken = _longest(texts) if column.kind == "number" else 0
    if column.wrap == "words" or whole:
        unbroken = max(unbroken, _longest(" ".join([*header, *texts]).split()))
    return min(full, max(column.min_width or _LEAST_TEXT, unbroken)), full


def _longest(texts: Sequence[str]) -> int:
    return max(map(cell_len, "\n".join(texts).splitlines()), default=0)


def _parts(
    columns: Sequence[Column], among: Sequence[int], spans: Sequence[tuple[int, int]], width: int
) -> list[list[int]]:
    """The columns of each part, so that their least widths fit; those before the first number are in every part."""
    names: list[int] = []
    blocks: list[list[int]] = []
    for index in among:
        column = columns[index]
        if not blocks and column.kind != "number":
            names.append(index)
        elif blocks and column.beside_last:
            blocks[-1].append(index)
        else:
            blocks.append([index])
    parts = [list(names)]
    for block in blocks:
        if _room(spans, parts[-1] + block) > width and len(parts[-1]) > len(names):
            parts.append(list(names))
        parts[-1] += block
    return parts


def _room(spans: Sequence[tuple[int, int]], indexes: Sequence[int]) -> int:
    """What columns take at least, with the gaps behind them."""
    return sum(spans[index][0] + _GAP for index in indexes)


def _fit(spans: Sequence[tuple[int, int]], width: int) -> list[int]:
    """Full widths, the widest made smaller until all fit."""
    widths = [full for _, full in spans]
    while sum(widths) + _GAP * len(widths) > width:
        wider = [index for index, (least, _) in enumerate(spans) if widths[index] > least]
        if not wider:
            break
        widths[max(wider, key=widths.__getitem__)] -= 1
    return widths


def _text(cell: Value) -> Text:
    text = Text(printable(cell.text + cell.mark), f"{'bold ' * cell.bold}{cell.style}".strip())
    return text.append(f"\n{printable(cell.below)}", "not bold dim") if cell.below else text
