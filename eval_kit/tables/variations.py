"""Tables of what systems lose through query variations: one for each test set and measure."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import chain
from typing import Any

import polars as pl
from rich.console import Console

from eval_kit.measures.definitions import Measure, parse
from eval_kit.protocols.wordings import Changes
from eval_kit.tables import terminal
from eval_kit.tables.frames import to_csv
from eval_kit.tables.latex import to_latex
from eval_kit.tables.markdown import to_markdown
from eval_kit.tables.table import Cell, Column, Table, loss, significance

_NOTES = (
    "° not significant: paired t-test over queries, p ≥ 0.05 after Holm's correction",
    "n: queries, and × replicas; Rel Loss: (clean − varied) / clean, LongEval's RC, with its 95 % interval; "
    "RI: robustness index, helped − hurt; valid: of the wordings that people judged to ask the same",
)
_PIVOT_NOTE = "ER, ΔRI: effect ratio and difference of the relative improvement over {}"


def tables(changes: Changes) -> list[Table]:
    """The tables of :func:`by_test_set` in a row, with :func:`notes` below the last."""
    shown = list(chain.from_iterable(by_test_set(changes)))
    return [*shown[:-1], replace(shown[-1], notes=notes(changes))]


def by_test_set(changes: Changes) -> list[list[Table]]:
    """The tables of each test set, one for each measure; then CIKM 2021's, where ours can stand beside it.

    A row is a method and system. ER and ΔRI are shown where there is a pivot.
    """
    shown: dict[str, list[Table]] = {}
    for (test_set, measure), rows in changes.results.group_by("test_set", "measure", maintain_order=True):
        table = _table(rows, f"{test_set}, {measure}", parse(str(measure)), changes.pivot)
        shown.setdefault(str(test_set), []).append(table)
    return [*shown.values(), *([[_beside_published(changes.published)]] if changes.published.height else [])]


def notes(changes: Changes) -> list[str]:
    """What the marks and the columns mean."""
    return [*_NOTES, *([_PIVOT_NOTE.format(changes.pivot)] if changes.pivot else [])]


def markdown(changes: Changes) -> str:
    """Tables in GitHub's Markdown."""
    return "\n".join(f"{table.title}\n\n{to_markdown(table)}" for table in tables(changes))


def latex(changes: Changes) -> str:
    """Tabular environments that need no package."""
    return "\n".join(f"% {table.title}\n{to_latex(table)}" for table in tables(changes))


def csv(changes: Changes) -> str:
    """One row for each method, system and measure, every number in full."""
    return to_csv(changes.results)


def show(changes: Changes, console: Console) -> None:
    """The tables on the screen."""
    for table in tables(changes):
        terminal.show(table, console)


FORMATS: dict[str, Callable[[Changes], str]] = {"markdown": markdown, "latex": latex, "csv": csv}


def _table(results: pl.DataFrame, title: str, measure: Measure, pivot: str | None) -> Table:
    keys = ["method", "system"]
    valid = results.filter(pl.col("queries_are") == "valid")
    by_key = {(row["method"], row["system"]): row for row in valid.iter_rows(named=True)}
    numbers = ["n", "clean", "varied", "worst", "change", "Rel Loss", "95 %", "helped", "unhurt", "hurt", "RI"]
    numbers += ["ER", "ΔRI"] if pivot else []
    numbers += ["valid n", "valid Rel Loss"] if by_key else []
    columns = [Column("variation", "heading", wrap="anywhere"), Column("system", wrap="anywhere")]
    columns += [Column(name, "number") for name in numbers]
    groups = []
    for _, rows in results.filter(pl.col("queries_are") == "all").group_by("method", maintain_order=True):
        lines = []
        for number, row in enumerate(rows.iter_rows(named=True)):
            line = [None if number else row["method"], row["system"], *_figures(row, measure)]
            line += [_decimals(row["effect_ratio"]), _decimals(row["delta_ri"])] if pivot else []
            line += _validity(by_key.get(tuple(row[key] for key in keys))) if by_key else []
            lines.append(line)
        groups.append(lines)
    return Table(columns, groups, title=title)


def _beside_published(published: pl.DataFrame) -> Table:
    """CIKM 2021, Table 7: one row per method; our system's figure after that of the ranker it stands for."""
    systems = list(published.select("ranker", "system").unique(maintain_order=True).iter_rows())
    rows = {(row["method"], row["ranker"], row["system"]): row for row in published.iter_rows(named=True)}
    columns = [Column("method", "heading")]
    for ranker, system in systems:
        columns += [Column("published", "number", group=ranker), Column(system, "number", group=ranker)]
        columns.append(Column("n", "number", group=ranker))
    lines = []
    for method in published["method"].unique(maintain_order=True):
        line: list[Cell | str] = [method]
        for ranker, system in systems:
            row = rows.get((method, ranker, system))
            line += [f"{row['published']:.4f}", f"{row['value']:.4f}", f"{row['queries']:,}"] if row else ["", "", ""]
        lines.append(line)
    return Table(columns, [lines], title="CIKM 2021, Table 7: AP on chameleons.veiled.50")


def _figures(row: Mapping[str, Any], measure: Measure) -> list[Cell | str]:
    n = f"{row['queries']:,}" + (f" × {row['replicas']}" if row["replicas"] > 1 else "")
    means = [measure.show(row[name]) for name in ("clean", "varied", "worst")]
    means.append(measure.show(row["change"], signed=True))
    interval = f"{loss(row['rel_loss_low'])} to {loss(row['rel_loss_high'])}"
    shares = [f"{row[name]:.0%}" for name in ("helped", "unhurt", "hurt")]
    return [n, *means, _rel_loss(row), interval, *shares, _decimals(row["robustness_index"])]


def _rel_loss(row: Mapping[str, Any]) -> Cell:
    return Cell(loss(row["rel_loss"]), mark=significance(row))


def _validity(row: Mapping[str, Any] | None) -> list[Cell | str]:
    return ["", ""] if row is None else [f"{row['queries']:,}", _rel_loss(row)]


def _decimals(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"
