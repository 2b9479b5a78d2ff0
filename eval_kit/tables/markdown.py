"""A table in GitHub's Markdown."""

from eval_kit.errors import printable
from eval_kit.tables.table import Cell, Column, Table

_ESCAPES = str.maketrans({sign: f"\\{sign}" for sign in "\\`*_[]|~$#!"} | {"<": "&lt;", ">": "&gt;", "&": "&amp;"})


def to_markdown(table: Table) -> str:
    """The table under its heading, and its notes below it."""
    lines = [
        [escape(column.header) for column in table.columns],
        ["--:" if column.kind == "number" else ":--" for column in table.columns],
        *(list(map(_text, row, table.columns)) for row in table.rows()),
    ]
    heading = f"{escape(table.heading)}\n\n" if table.heading else ""
    notes = [f"\n{escape(note)}\n" for note in table.notes]
    return "".join([heading, *(f"| {' | '.join(line)} |\n" for line in lines), *notes])


def escape(text: str) -> str:
    """Text on one line, escaped so that Markdown, and the HTML made from it, shows it as it is."""
    return printable(text).translate(_ESCAPES)


def _text(cell: Cell, column: Column) -> str:
    return (cell.text if column.kind == "number" else escape(cell.text)) + cell.mark
