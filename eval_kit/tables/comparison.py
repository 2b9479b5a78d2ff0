"""A comparison as a table: on the screen, in Markdown, in LaTeX, and as CSV. Names come from strangers: all escaped."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from eval_kit.exchange.compare import Comparison
from eval_kit.exchange.safety import printable

_MARKDOWN = {sign: f"\\{sign}" for sign in "\\`*_[]|~$#!"} | {"<": "&lt;", ">": "&gt;", "&": "&amp;"}
_LATEX = {sign: f"\\{sign}" for sign in "&%$#_{}"} | {
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
}


@dataclass(frozen=True)
class _Style:
    """How one format writes text from elsewhere, numbers, and the two signs of the table."""

    text: Callable[[str], str]
    number: Callable[[str], str]
    delta: str
    mark: str


def markdown_text(text: str) -> str:
    """Text that Markdown, and the HTML made of it, shows as it is; on one line."""
    return "".join(_MARKDOWN.get(char, char) for char in printable(text))


def latex_text(text: str) -> str:
    """Text that LaTeX sets as it is; on one line."""
    return "".join(_LATEX.get(char, char) for char in printable(text))


def markdown(comparison: Comparison) -> str:
    """A table in GitHub's Markdown, with what it rests on below it."""
    header, rows = _cells(comparison, _Style(markdown_text, str, "Δ", "°"))
    right = [":--" if place < 2 else "--:" for place in range(len(header))]
    lines = ["| " + " | ".join(row) + " |" for row in (header, right, *rows)]
    notes = [markdown_text(note) for note in _notes(comparison)]
    return "\n".join([*lines, "", *(line for note in notes for line in (note, ""))])


def latex(comparison: Comparison) -> str:
    """A tabular environment that needs no package, with what it rests on in comments above it."""
    header, rows = _cells(comparison, _Style(latex_text, "${}$".format, r"$\Delta$", r"$^\circ$"))
    comments = [f"% {printable(note)}" for note in _notes(comparison)]
    body = [" & ".join(row) + r" \\" for row in rows]
    columns = "ll" + "r" * (len(header) - 2)
    top = [rf"\begin{{tabular}}{{{columns}}}", r"\hline", " & ".join(header) + r" \\", r"\hline"]
    return "\n".join([*comments, *top, *body, r"\hline", r"\end{tabular}", ""])


def csv(comparison: Comparison) -> str:
    """One row for each system, test set, figure and measure, every number in full; names as they are, quoted."""
    return comparison.rows.write_csv()


def show(comparison: Comparison, console: Console) -> None:
    """The table on the screen."""
    header, rows = _cells(comparison, _Style(printable, str, "Δ", "°"))
    table = Table(box=None, pad_edge=False, header_style="bold")
    for place, name in enumerate(header):
        table.add_column(Text(name), justify="left" if place < 2 else "right", overflow="fold")
    for row in rows:
        table.add_row(*map(Text, row))
    console.print(table)
    for note in _notes(comparison):
        console.print(Text(printable(note), style="dim"), soft_wrap=True)


FORMATS: dict[str, Callable[[Comparison], str]] = {"markdown": markdown, "latex": latex, "csv": csv}


def _cells(comparison: Comparison, style: _Style) -> tuple[list[str], list[list[str]]]:
    """Header and rows: test set, measure, n, the baseline's value, and value and difference of each other system."""
    base, *others = comparison.systems
    header = ["test set", "measure", "n", style.text(base)]
    for name in others:
        header += [style.text(name), f"{style.delta} {style.text('[95 % interval]')}"]
    found: dict[tuple[str, str, str], dict[str, dict[str, Any]]] = {}
    for row in comparison.rows.iter_rows(named=True):
        found.setdefault((row["test_set"], row["figure"], row["measure"]), {})[row["system"]] = row
    rows = []
    for (test_set, figure, measure), of in found.items():
        digits = 2 if measure.startswith("ASL") else 4
        first = of[base]
        cells = [style.text(f"{test_set} {figure}".strip()), style.text(measure), f"{first['queries']:,}"]
        cells.append(f"{first['value']:.{digits}f}")
        for name in others:
            cells += _pair(of.get(name), digits, style)
        rows.append(cells)
    return header, rows


def _pair(row: dict[str, Any] | None, digits: int, style: _Style) -> Sequence[str]:
    """A system's value, and its difference with the interval; empty where it does not cover the test set."""
    if row is None:
        return "", ""
    interval = "" if row["low"] is None else f" [{row['low']:+.{digits}f}, {row['high']:+.{digits}f}]"
    shown = style.number(f"{row['difference']:+.{digits}f}{interval}")
    significant = row["p_holm"] is not None and row["p_holm"] < 0.05
    return f"{row['value']:.{digits}f}", shown if significant else f"{shown}{style.mark}"


def _notes(comparison: Comparison) -> list[str]:
    release = comparison.provenance["release"]
    notes = [
        f"Differences are from {comparison.systems[0]}, with 95 % paired bootstrap intervals over queries "
        f"({comparison.provenance['resamples']:,} resamples, seed {comparison.provenance['seed']}). "
        "° not significant: paired t-test, p ≥ 0.05 after Holm's correction over the systems and test sets of a "
        "measure. Of ASL, lower is better.",
        f"{release['kind']} release {release['version']} ({release['digest'][:16]}), "
        f"eval_kit {comparison.provenance['kit_version']}; ties: {comparison.provenance['tie_rule']}",
    ]
    lacking = comparison.rows.filter(comparison.rows["missing"] > 0).unique(
        ["system", "test_set", "figure"], maintain_order=True
    )
    notes += [
        f"Missing from {row['system']}: {row['missing']:,} queries of {row['test_set']} (scored as empty)"
        for row in lacking.iter_rows(named=True)
    ]
    if comparison.left_out:
        notes.append(f"Not compared, as covered by one side only: {'; '.join(comparison.left_out)}")
    return notes
