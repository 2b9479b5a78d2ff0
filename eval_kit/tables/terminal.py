"""A table in a terminal."""

import rich.table
from rich.console import Console, OverflowMethod
from rich.text import Text

from eval_kit.errors import printable
from eval_kit.tables.table import Cell, Table

_OVERFLOW: dict[str, OverflowMethod] = {"words": "ellipsis", "anywhere": "fold", "never": "ellipsis"}


def show(table: Table, console: Console) -> None:
    """Print the table and its notes."""
    console.print(table)
    for note in table.notes:
        console.print(Text(printable(note), style="dim"), soft_wrap=True)


def to_rich(table: Table) -> rich.table.Table:
    """The table for rich, without its notes; a group's name stands above its first column."""
    title = Text(printable(table.title), "table.title") if table.title else None
    drawn = rich.table.Table(title=title, box=None, pad_edge=False, header_style="bold")
    group = ""
    for column in table.columns:
        lines = [column.group if column.group != group else "", column.name] if column.group else [column.name]
        group = column.group
        drawn.add_column(
            Text("\n".join(map(printable, lines))),
            justify="right" if column.kind == "number" else "left",
            no_wrap=column.wrap == "never",
            overflow=_OVERFLOW[column.wrap],
            min_width=column.min_width,
            style=column.style or None,
        )
    for row in table.rows():
        drawn.add_row(*map(_text, row))
    return drawn


def _text(cell: Cell) -> Text:
    text = Text(printable(cell.text + cell.mark), f"{'bold ' * cell.bold}{cell.style}".strip())
    return text.append(f"\n{printable(cell.below)}", "not bold dim") if cell.below else text
