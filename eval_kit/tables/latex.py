"""A table in LaTeX."""

import re
from collections.abc import Iterable, Sequence
from itertools import groupby
from operator import attrgetter

from eval_kit.errors import printable
from eval_kit.tables.table import Column, Table, Value, as_cell

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
        "‡": r"$^\ddagger$",
        "−": "$-$",
        "≠": r"$\neq$",
        "≥": r"$\geq$",
        "≤": r"$\leq$",
        "ρ": r"$\rho$",
        "τ": r"$\tau$",
        "✓": r"$\surd$",
        "✗": r"$\times$",
    }
)
_UNKNOWN = re.compile("[^\\x00-\u017f–—‘’“”…]")
"""What pdflatex has no letter for: it would stop there."""
_SIGNED = re.compile(r"(?<![\w.])[+-]\d+([.,]\d+)*(\\%)?")


def to_latex(table: Table) -> str:
    """A table environment with the heading as its caption, set by booktabs; the table's notes in comments above it.

    A table that is wider than the text is set smaller, by graphicx.
    """
    lines = [f"% {printable(note)}" for note in table.notes]
    lines += [r"\begin{table}", r"\centering"]
    lines += [rf"\caption{{{escape(table.heading)}}}"] if table.heading else []
    columns = "".join("r" if column.kind == "number" else "l" for column in table.columns)
    lines += [r"\resizebox{\ifdim\width>\linewidth\linewidth\else\width\fi}{!}{%"]
    lines += [rf"\begin{{tabular}}{{{columns}}}", r"\toprule", *_header(table.columns), r"\midrule"]
    for number, group in enumerate(table.groups):
        lines += [r"\addlinespace"] * (number > 0)
        lines += [_line(map(_text, map(as_cell, row), table.columns)) for row in group]
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}}", r"\end{table}", ""])


def _header(columns: Sequence[Column]) -> list[str]:
    """The names; above those of groups the groups' own, each over a rule."""
    names = _line(escape(column.name) for column in columns)
    if not any(column.group for column in columns):
        return [names]
    cells, rules, at = [], [], 1
    for group, members in groupby(columns, attrgetter("group")):
        width = len(list(members))
        cells += [rf"\multicolumn{{{width}}}{{c}}{{{escape(group)}}}"] if group else [""] * width
        rules += [rf"\cmidrule(lr){{{at}-{at + width - 1}}}"] if group else []
        at += width
    return [_line(cells), " ".join(rules), names]


def escape(text: str) -> str:
    """Text on one line, escaped so that LaTeX sets it as it is."""
    return _UNKNOWN.sub(lambda sign: rf"\texttt{{U+{ord(sign[0]):04X}}}", printable(text).translate(_ESCAPES))


def _line(cells: Iterable[str]) -> str:
    return " & ".join(cells) + r" \\"


def _text(cell: Value, column: Column) -> str:
    """The cell; a number with a sign is set as mathematics, which has a proper minus."""
    text = escape(cell.text)
    if column.kind == "number":
        text = _SIGNED.sub(r"$\g<0>$", text)
    return (rf"\textbf{{{text}}}" if cell.bold else text) + escape(cell.mark)
