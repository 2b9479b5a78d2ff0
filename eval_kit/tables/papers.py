"""Protocol results in the layout of the papers' own tables, so that the two can be laid side by side."""

from collections.abc import Mapping, Sequence

import polars as pl
from rich.table import Table
from rich.text import Text

PERCENT_MEASURES = ("RR",)
"""Measures that ECIR 2023 prints as percentages."""


def ms_shift(
    losses: pl.DataFrame, clusters: Sequence[str], measure: str, untrained: Mapping[str, Mapping[str, float]]
) -> Table:
    """ECIR 2023, Tables 2 and 3: three rows a system, one column a cluster.

    Args:
        losses: from :func:`eval_kit.protocols.in_out.losses`.
        clusters: the columns.
        measure: the one to print.
        untrained: system → cluster → value, for systems without a training set (BM25): one row each.
    """
    table = Table(title=measure, box=None, pad_edge=False, header_style="bold")
    table.add_column("Models")
    table.add_column("")
    for cluster in clusters:
        table.add_column(cluster, justify="right")
    for system, values in untrained.items():
        table.add_row(Text(system), "", *[_value(values[cluster], measure) for cluster in clusters])
    here = losses.filter(pl.col("measure") == measure)
    for system in here["system"].unique(maintain_order=True):
        rows = {row["cluster"]: row for row in here.filter(pl.col("system") == system).iter_rows(named=True)}
        cells = [rows[cluster] for cluster in clusters]
        table.add_row(Text(system), "Avg In", *[_value(cell["avg_in"], measure) for cell in cells])
        table.add_row("", "Out", *[_value(cell["out"], measure) for cell in cells])
        table.add_row("", "Rel Loss", *[_loss(cell["rel_loss"], cell["p_holm"]) for cell in cells], end_section=True)
    return table


def restrain(results: pl.DataFrame) -> Table:
    """CIKM 2022, Table 6: Inter., Extra. and Δ by size and system."""
    table = _inter_extra(results, ["#Q", "Models"])
    for size in results["size"].unique(maintain_order=True):
        here = results.filter(pl.col("size") == size)
        for i, system in enumerate(here["system"].unique(maintain_order=True)):
            table.add_row(size if i == 0 else "", Text(system), *_cells(here.filter(pl.col("system") == system)))
    return table


def resttest(results: pl.DataFrame) -> Table:
    """CIKM 2022, Table 7: Inter., Extra. and Δ by system."""
    table = _inter_extra(results, ["Models"])
    for system in results["system"].unique(maintain_order=True):
        table.add_row(Text(system), *_cells(results.filter(pl.col("system") == system)))
    return table


def _inter_extra(results: pl.DataFrame, names: Sequence[str]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in names:
        table.add_column(name)
    for measure in results["measure"].unique(maintain_order=True):
        table.add_column(f"{measure}\nInter.", justify="right")
        table.add_column("\nExtra.", justify="right")
        table.add_column("\nΔ", justify="right")
    return table


def _cells(rows: pl.DataFrame) -> list[str]:
    return [
        text
        for row in rows.iter_rows(named=True)
        for text in (
            f"{row['avg_in']:.3f}",
            f"{row['out']:.3f}",
            "-" if row["delta"] is None else f"{row['delta']:+.0%}".replace("+0%", "0%").replace("-0%", "0%"),
        )
    ]


def _value(value: float, measure: str) -> str:
    if measure.startswith("ASL"):
        return f"{value:.1f}"
    return f"{100 * value:.1f}" if measure.startswith(PERCENT_MEASURES) else f"{value:.3f}"


def _loss(loss: float | None, p: float | None) -> str:
    """The loss in percent, marked where the corrected test does not show it (p ≥ 0.05)."""
    if loss is None:
        return "-"
    return f"{loss:.1%}" + ("" if p is not None and p < 0.05 else "°")
