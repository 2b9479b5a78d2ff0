"""Protocol results in the layout of the papers' own tables, so that the two can be laid side by side.

Functions take the results of :func:`eval_kit.protocols.in_out.losses`, unless they say otherwise.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import polars as pl

from eval_kit.measures.definitions import Measure, parse
from eval_kit.runs import contamination
from eval_kit.tables.table import (
    Column,
    LossBar,
    Row,
    Table,
    Value,
    interval,
    loss,
    number_columns,
    significance,
    text_columns,
)


def ms_shift(
    losses: pl.DataFrame,
    clusters: Sequence[str],
    measure: str,
    untrained: Mapping[str, Mapping[str, float]],
    best_in_bold: bool = False,
) -> Table:
    """ECIR 2023, Tables 2 and 3: three rows per system, one column per cluster.

    Systems without a training set, such as BM25, have a row each: ``untrained`` is system → cluster → value. With
    ``best_in_bold``, the best of several systems is bold; the best loss is the least harmful.
    """
    rows = losses.filter(pl.col("measure") == measure)
    measure_shown = parse(measure)
    best = _best(rows, measure_shown.kind.lower_is_better) if best_in_bold else {}
    groups: list[list[Row]] = []
    for system, values in untrained.items():
        groups.append([[system, "", *(measure_shown.show_as_ecir_2023(values[cluster]) for cluster in clusters)]])
    for system in rows["system"].unique(maintain_order=True):
        by_cluster = rows.filter(system=system).rows_by_key("cluster", named=True, unique=True, include_key=True)
        cells = list(map(by_cluster.__getitem__, clusters))
        inside: list[Value | str] = [_system(cells), "Avg In"]
        out: list[Value | str | None] = [None, "Out"]
        rel_loss: list[Value | str | None] = [None, "Rel Loss"]
        for cell in cells:
            inside.append(_mean(cell, "avg_in", measure_shown, best))
            out.append(_mean(cell, "out", measure_shown, best))
            rel_loss.append(_rel_loss(cell, measure_shown, best))
        groups.append([inside, out, rel_loss])
    columns = [Column("Models", "heading"), Column("", "label"), *number_columns(*clusters)]
    return Table(columns, groups, title=measure)


def overall(results: pl.DataFrame) -> Table:
    """In, Out and Rel Loss of each system over all parts of a shift (:func:`eval_kit.protocols.in_out.overall`).

    What is expected of a part leads where the parts of a system differ beyond their queries (Q, p < 0.05).
    """
    show = parse(results["measure"][0]).show_as_ecir_2023
    lines: list[list[Value | str]] = []
    parts_lead = bool((results["p_q"] < 0.05).any())
    for row in results.iter_rows(named=True):
        pooled: list[Value | str] = [
            Value(loss(row["rel_loss"]), mark=_mark(row)),
            _ends(row["rel_loss_low"], row["rel_loss_high"]),
        ]
        of_parts = [loss(row["of_parts"]), _ends(row["of_parts_low"], row["of_parts_high"])]
        both = [*of_parts, *pooled] if parts_lead else [*pooled, *of_parts]
        chance = "-" if row["q"] is None else f"{row['q']:.1f} ({_p(row['p_q'])})"
        figures = [show(row["avg_in"]), show(row["out"]), *both, loss(row["spread"]), chance]
        lines.append([row["system"], *figures, str(row["parts"]), f"{row['queries']:,}"])
    columns = [Column("Models", "heading"), *number_columns("In", "Out")]
    for group in ("over parts", "over queries") if parts_lead else ("over queries", "over parts"):
        columns += number_columns("Rel Loss", "95 %", group=group)
    columns += number_columns("τ", "Q (p)", "parts", "n")
    return Table(columns, [lines], f"{results['measure'][0]} over all parts")


def differences(results: pl.DataFrame) -> Table:
    """Each two systems' Rel Losses, the first less the other's (:func:`eval_kit.protocols.in_out.differences`)."""
    lines: list[list[Value | str]] = []
    for row in results.iter_rows(named=True):
        figures = (loss(row["difference"]), _ends(row["low"], row["high"]), _p(row["p"]), _p(row["p_holm"]))
        lines.append([row["system"], row["other"], *figures])
    columns = [*text_columns("Models", "less"), *number_columns("Rel Loss", "95 % interval", "p", "p (Holm)")]
    return Table(columns, [lines], f"{results['measure'][0]}: differences of losses, over queries")


def inter_extra(results: pl.DataFrame, marks: bool = False) -> Table:
    """CIKM 2022, Tables 6 and 7: Inter., Extra. and Δ by system, for ReSTrain below the size of the training sets.

    Fractions are times 100, as in the tables of other shifts beside them. With ``marks``, every Δ that is not
    significant is marked, which the paper does not.
    """
    measures = results["measure"].unique(maintain_order=True)
    columns = [Column("Models", "heading")]
    for measure in measures:
        columns += number_columns("Inter.", "Extra.", "Δ", group=measure)
    if "size" not in results.columns:
        return Table(columns, [_inter_extra(results, marks)])
    groups = []
    for size in results["size"].unique(maintain_order=True):
        rows = _inter_extra(results.filter(pl.col("size") == size), marks)
        groups.append([[None if number else size, *row] for number, row in enumerate(rows)])
    return Table([Column("#Q", "heading"), *columns], groups)


def matrix(values: pl.DataFrame, test_sets: Sequence[str], measure: str, system: str) -> Table:
    """arXiv 2205.02870v1, Table 2: one row per model, one column per test set; the held-out cell of each row is shaded.

    ``values`` are from :func:`eval_kit.protocols.in_out.matrix`; the columns are ``test_sets``, such as ``topic.c0``.
    """
    rows = values.filter(pl.col("measure") == measure, pl.col("system") == system)
    by_cell = rows.rows_by_key(["held_out", "test_set"], named=True, unique=True)
    show = parse(measure).show_as_ecir_2023
    columns = [Column("Trained", "heading")]
    lines: list[Row] = []
    for test_set in test_sets:
        held_out = test_set.split(".", 1)[-1]
        columns.append(Column(held_out, "number"))
        line: list[Value | str] = [f"without {held_out}"]
        for name in test_sets:
            line.append(Value(show(by_cell[held_out, name]["value"]), shaded=name == test_set))
        lines.append(line)
    return Table(columns, [lines], title=f"{system}, {measure}")


def every_loss(results: Mapping[str, pl.DataFrame]) -> Table:
    """All losses of all shifts, systems and measures with their statistics, one row each, sortable."""
    words = ("shift", "part", "system", "measure")
    numbers = ("Rel Loss", "low", "high", "In", "Out", "p (Holm)", "n")
    lines = []
    for shift, frame in results.items():
        for row in frame.iter_rows(named=True):
            lines.append(_statistics(shift, row))
    columns = [*text_columns(*words), *number_columns(*numbers)]
    return Table(columns, [lines], title="Every loss", sorted_by="Rel Loss")


def with_direction(table: Table, measure: str) -> Table:
    """The table; its title says so where lower is better."""
    if parse(measure).kind.lower_is_better:
        return replace(table, title=f"{table.title} (lower is better: a negative loss is harm)")
    return table


def _system(rows: Sequence[Mapping[str, Any]]) -> Value:
    """The system of these results, marked if one of its models was trained on queries that it is scored on."""
    return Value(rows[0]["system"], mark=max(contamination.mark(row["trained_on"]) for row in rows))


def _mean(row: Mapping[str, Any], figure: str, measure: Measure, best: Mapping[tuple[str, str], float]) -> Value:
    shown, of_best = measure.show_as_ecir_2023(row[figure]), best.get((row["cluster"], figure))
    return Value(shown, bold=of_best is not None and measure.show_as_ecir_2023(of_best) == shown)


def _rel_loss(row: Mapping[str, Any], measure: Measure, best: Mapping[tuple[str, str], float]) -> Value:
    value, low, high = row["rel_loss"], row["rel_loss_low"], row["rel_loss_high"]
    return Value(
        loss(value),
        mark=_mark(row),
        bold=value is not None and loss(best.get((row["cluster"], "rel_loss"))) == loss(value),
        tooltip=interval(low, high, row["queries"]),
        bar=LossBar(value, low, high, harm=measure.sign),
    )


def _statistics(shift: str, row: Mapping[str, Any]) -> list[Value | str]:
    show = parse(row["measure"]).show_as_ecir_2023
    ends = [Value(loss(row[name]), sort=row[name]) for name in ("rel_loss", "rel_loss_low", "rel_loss_high")]
    return [
        shift,
        row.get("cluster") or row.get("size") or "",
        _system([row]),
        row["measure"],
        *ends,
        Value(show(row["avg_in"]), sort=row["avg_in"]),
        Value(show(row["out"]), sort=row["out"]),
        Value(_p(row["p_holm"]), sort=row["p_holm"]),
        Value(f"{row['queries']:,}", sort=float(row["queries"])),
    ]


def _inter_extra(results: pl.DataFrame, marks: bool) -> list[Row]:
    """One row per system: Inter., Extra. and Δ of every measure."""
    lines: list[Row] = []
    for _, rows in results.group_by("system", maintain_order=True):
        cells: list[Value | str] = [_system(rows.to_dicts())]
        for row in rows.iter_rows(named=True):
            show = parse(row["measure"]).show_as_ecir_2023
            cells += [show(row["avg_in"]), show(row["out"]), _delta(row, marks)]
        lines.append(cells)
    return lines


def _delta(row: Mapping[str, Any], marks: bool) -> Value:
    """Δ and its interval are those of the loss with the sign reversed."""
    low, high = (None if row[name] is None else -row[name] for name in ("rel_loss_high", "rel_loss_low"))
    delta = row["delta"]
    return Value(
        "-" if delta is None else f"{delta:+.0%}".replace("+0%", "0%").replace("-0%", "0%"),
        mark=_mark(row) if marks else "",
        tooltip=interval(low, high, row["queries"]),
        bar=LossBar(delta, low, high, harm=-1),
    )


def _mark(row: Mapping[str, Any]) -> str:
    return "" if row["rel_loss"] is None else significance(row)


def _ends(low: float | None, high: float | None) -> str:
    return "-" if low is None or high is None else f"{loss(low)} to {loss(high)}"


def _best(losses: pl.DataFrame, lower_is_better: bool) -> dict[tuple[str, str], float]:
    """(cluster, figure) → the best value where the systems differ; the best loss is the least harmful."""
    best: dict[tuple[str, str], float] = {}
    for (cluster,), rows in losses.group_by("cluster"):
        for figure in ("avg_in", "out", "rel_loss"):
            values = rows[figure].drop_nulls().to_list()
            if len(set(values)) > 1:
                best[str(cluster), figure] = min(values) if (figure == "rel_loss") != lower_is_better else max(values)
    return best


def _p(value: float | None) -> str:
    if value is None:
        return "-"
    return "< 0.001" if value < 0.001 else f"{value:.3f}"
