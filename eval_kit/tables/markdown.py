"""A table in GitHub's Markdown."""

from collections.abc import Iterable

from eval_kit.errors import printable
from eval_kit.tables.table import Column, Table, Value

_ESCAPES = str.maketrans({sign: f"\\{sign}" for sign in "\\`*_[]|~$#!"} | {"<": "&lt;", ">": "&gt;", "&": "&amp;"})


def to_markdown(table: Table) -> str:
    """The table under its heading, and its notes below it."""
    text = f"{escape(table.heading)}\n\n" if table.heading else ""
    text += _line(map(escape, table.headers))
    text += _line("--:" if column.kind == "number" else ":--" for column in table.columns)
    for row in table.rows():
        text += _line(map(_text, row, table.columns))
    for note in table.notes:
        text += f"\n{escape(note)}\n"
    return text


def escape(text: str) -> str:
    """Text on one line, escaped so that Markdown, and the HTML made from it, shows it as it is."""
    return printable(text).translate(_ESCAPES)


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |\n"


def _text(cell: Value, column: Column) -> str:
    text = cell.text if column.kind == "number" else escape(cell.text)
    return (f"**{text}**" if cell.bold and text else text) + cell.mark
