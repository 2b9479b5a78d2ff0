"""A comparison as a table: on the screen, in Markdown, in LaTeX, and as CSV."""

from collections.abc import Callable
from typing import Any

from rich.console import Console

from eval_kit.exchange.compare import Comparison
from eval_kit.measures.definitions import LOWER_IS_BETTER, Measure, parse
from eval_kit.runs import contamination
from eval_kit.stats.losses import MARGIN
from eval_kit.tables import terminal
from eval_kit.tables.frames import to_csv
from eval_kit.tables.latex import to_latex
from eval_kit.tables.markdown import to_markdown
from eval_kit.tables.table import Cell, Column, Table, significance


def table(comparison: Comparison) -> Table:
    """One row per test set and measure: n, the baseline's value, and value and difference of every other system."""
    base, *compared = comparison.systems
    columns = [Column(name, wrap="never") for name in ("test set", "measure")]
    columns += [Column(name, "number", wrap="anywhere") for name in ("n", base)]
    for system in compared:
        columns.append(Column(system, "number", wrap="anywhere"))
        columns.append(Column("Δ [95 % interval]", "number", wrap="anywhere", beside_last=True))
    by_key: dict[tuple[str, str, str], dict[str, dict[str, Any]]] = {}
    for row in comparison.rows.iter_rows(named=True):
        by_key.setdefault((row["test_set"], row["figure"], row["measure"]), {})[row["system"]] = row
    lines = []
    for (test_set, figure, name), by_system in by_key.items():
        measure = parse(name)
        line: list[Cell | str] = [f"{test_set} {figure}".strip(), name, f"{by_system[base]['queries']:,}"]
        line.append(_value(by_system[base], measure))
        for system in compared:
            line += _value_and_difference(by_system.get(system), measure)
        lines.append(line)
    return Table(columns, [lines], notes=_notes(comparison))


def markdown(comparison: Comparison) -> str:
    """A table in GitHub's Markdown, with what it rests on below it."""
    return to_markdown(table(comparison))


def latex(comparison: Comparison) -> str:
    """A tabular environment that needs no package, with what it rests on in comments above it."""
    return to_latex(table(comparison))


def csv(comparison: Comparison) -> str:
    """One row for each system, test set, figure and measure, every number in full."""
    return to_csv(comparison.rows)


def show(comparison: Comparison, console: Console) -> None:
    """The table on the screen."""
    terminal.show(table(comparison), console)


FORMATS: dict[str, Callable[[Comparison], str]] = {"markdown": markdown, "latex": latex, "csv": csv}


def _value(row: dict[str, Any], measure: Measure) -> Cell:
    return Cell(measure.show(row["value"]), mark=contamination.mark(row["trained_on"]))


def _value_and_difference(row: dict[str, Any] | None, measure: Measure) -> tuple[str | Cell, str | Cell]:
    """A system's value, and its difference with the interval; empty where it does not cover the test set."""
    if row is None:
        return "", ""
    difference = measure.show(row["difference"], signed=True)
    if row["low"] is not None:
        difference += f" [{measure.show(row['low'], signed=True)}, {measure.show(row['high'], signed=True)}]"
    return _value(row, measure), Cell(difference, mark=significance(row))


def _notes(comparison: Comparison) -> list[str]:
    release = comparison.provenance["release"]
    notes = [
        f"Differences are from {comparison.systems[0]}, with 95 % paired bootstrap intervals over queries "
        f"({comparison.provenance['resamples']:,} resamples, seed {comparison.provenance['seed']}). "
        "° not significant: paired t-test, p ≥ 0.05 after Holm's correction over the systems and test sets of a "
        f"measure. ≈ equivalent: within {MARGIN:.0%} of {comparison.systems[0]}, by two one-sided t-tests, p < 0.05 "
        f"after the same correction. For {', '.join(LOWER_IS_BETTER)}, lower is better.",
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
    notes += contamination.notes(comparison.rows.select("system", "trained_on").iter_rows())
    if comparison.left_out:
        notes.append(f"Not compared, as covered by one side only: {'; '.join(comparison.left_out)}")
    return notes
