"""A table in LaTeX."""

import re
from collections.abc import Iterable

from eval_kit.errors import printable
from eval_kit.tables.table import Column, Table, Value

_ESCAPES = str.maketrans(
    {sign: f"\\{sign}" for sign in "&%$#_{}"}
    | {
        "\\": r"\textbackslash{}",
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
        "<": r"\textless{}",
        ">": r"\textgreater{}",
        "|": r"\textbar{}",
        '"': r"\symbol{34}",
        "`": "{`}",
        "[": "{[}",
        "]": "{]}",
        "Δ": r"$\Delta$",
        "°": r"$^\circ$",
        "≈": r"$\approx$",
        "†": r"$^\dagger$",
    }
)
_SIGNED = re.compile(r"(?<![\w.])[+-]\d+([.,]\d+)*(\\%)?")


def to_latex(table: Table) -> str:
    """A tabular environment of the package booktabs, the table's heading and notes in comments above it."""
    lines = []
    for comment in filter(None, (table.heading, *table.notes)):
        lines.append(f"% {printable(comment)}")
    columns = "".join("r" if column.kind == "number" else "l" for column in table.columns)
    lines += [rf"\begin{{tabular}}{{{columns}}}", r"\toprule", _line(map(escape, table.headers)), r"\midrule"]
    for row in table.rows():
        lines.append(_line(map(_text, row, table.columns)))
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}", ""])


def escape(text: str) -> str:
    """Text on one line, escaped so that LaTeX sets it as it is."""
    return printable(text).translate(_ESCAPES)


def _line(cells: Iterable[str]) -> str:
    return " & ".join(cells) + r" \\"


def _text(cell: Value, column: Column) -> str:
    """The cell; a number with a sign is set as mathematics, which has a proper minus."""
    text = escape(cell.text)
    if column.kind == "number":
        text = _SIGNED.sub(r"$\g<0>$", text)
    return (rf"\textbf{{{text}}}" if cell.bold else text) + escape(cell.mark)
