"""Protocol results in the layout of the papers' own tables, so that the two can be laid side by side.

Functions take the results of :func:`eval_kit.protocols.in_out.losses`, unless they say otherwise.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import polars as pl

from eval_kit.measures.definitions import Measure, parse
from eval_kit.protocols.scores import system_of_sides
from eval_kit.runs import contamination
from eval_kit.tables.table import (
    Column,
    Fields,
    LossBar,
    Table,
    Value,
    ends_shown,
    figure_columns,
    interval,
    laid_out,
    loss,
    of,
    p_value,
    side_by_side,
    sides,
    significance,
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
    lines = []
    for system, values in untrained.items():
        lines.append({"system": system, "label": ""} | _by(clusters, values, measure_shown.show_as_ecir_2023))
    figures = {
        "Avg In": partial(_mean, "avg_in", measure_shown, best),
        "Out": partial(_mean, "out", measure_shown, best),
        "Rel Loss": partial(_rel_loss, measure_shown, best),
    }
    for row in side_by_side(rows, ["system"], "cluster"):
        by_cluster = {each["cluster"]: each for each in sides(row)}
        for name, cell in figures.items():
            lines.append({"system": system_of_sides(row), "label": name} | _by(clusters, by_cluster, cell))
    columns = [Column("Models", "heading", "system"), Column("", "label", "label")]
    columns += [Column(cluster, "number", ("cluster", cluster)) for cluster in clusters]
    return laid_out(lines, columns, block="system", title=measure)


def overall(results: pl.DataFrame) -> Table:
    """In, Out and Rel Loss of each system over all parts of a shift (:func:`eval_kit.protocols.in_out.overall`)."""
    show = parse(results["measure"][0]).show_as_ecir_2023
    over_queries = [
        Column("Rel Loss", "number", lambda row: Value(loss(row["rel_loss"]), mark=_mark(row)), group="over queries"),
        Column("95 %", "number", partial(ends_shown, name="rel_loss"), group="over queries"),
    ]
    over_parts = figure_columns("of_parts", loss, "Rel Loss", group="over parts")
    columns = [
        Column("Models", "heading", "system"),
        Column("In", "number", "avg_in", show),
        Column("Out", "number", "out", show),
        *over_queries,
        *(over_parts if results["of_parts"].count() else []),
        Column("F (p)", "number", lambda row: None if row["q"] is None else f"{row['q']:.1f} ({p_value(row['p_q'])})"),
        Column("parts", "number"),
        Column("n", "number", "queries", ","),
    ]
    return laid_out(results, columns, title=f"{results['measure'][0]} over all parts")


def differences(results: pl.DataFrame) -> Table:
    """Each two systems' Rel Losses, the first less the other's (:func:`eval_kit.protocols.in_out.differences`)."""
    columns = [
        Column("Models", source="system"),
        Column("less", source="other"),
        Column("Rel Loss", "number", "difference", loss),
        Column("95 % interval", "number", ends_shown),
        Column("p", "number", format=p_value),
        Column("p (Holm)", "number", "p_holm", p_value),
    ]
    return laid_out(results, columns, title=f"{results['measure'][0]}: differences of losses, over queries")


def inter_extra(results: pl.DataFrame, marks: bool = False) -> Table:
    """CIKM 2022, Tables 6 and 7: Inter., Extra. and Δ by system, for ReSTrain below the size of the training sets; the
    title has the test sets that were covered.

    Fractions are times 100, as in the tables of other shifts beside them. With ``marks``, every Δ that is not
    significant is marked, which the paper does not.
    """
    sizes = ["size"] * ("size" in results.columns)
    columns = [*(Column("#Q", "heading", size) for size in sizes), Column("Models", "heading", system_of_sides)]
    for measure in results["measure"].unique(maintain_order=True):
        show = parse(measure).show_as_ecir_2023
        columns += [
            Column("Inter.", "number", of(measure, "avg_in"), show, group=measure),
            Column("Extra.", "number", of(measure, "out"), show, group=measure),
            Column("Δ", "number", of(measure, partial(_delta, marks)), group=measure),
        ]
    rows = side_by_side(results, [*sizes, "system"], "measure")
    title = f"{in_words(results['test_sets'][0])}, {results['queries'][0]:,} queries"
    return laid_out(rows, columns, title=title, block="".join(sizes))


def in_words(test_sets: str) -> str:
    """The test sets of a row (``dl19+dl20``) in a sentence."""
    return test_sets.replace("+", " and ")


def matrix(values: pl.DataFrame, test_sets: Sequence[str], measure: str, system: str) -> Table:
    """arXiv 2205.02870v1, Table 2: one row per model, one column per test set; the held-out cell of each row is shaded.

    ``values`` are from :func:`eval_kit.protocols.in_out.matrix`; the columns are ``test_sets``, such as ``topic.c0``.
    """
    clusters = [test_set.split(".", 1)[-1] for test_set in test_sets]
    of_system = values.filter(pl.col("held_out").is_in(clusters), measure=pl.lit(measure), system=pl.lit(system))
    rows = of_system.sort(pl.col("held_out").cast(pl.Enum(clusters)), maintain_order=True)
    columns = [Column("Trained", "heading", lambda row: f"without {row['held_out']}")]
    columns += [Column(name, "number", of(at, _of_model)) for name, at in zip(clusters, test_sets, strict=True)]
    return laid_out(side_by_side(rows, ["held_out"], "test_set"), columns, title=f"{system}, {measure}")


def every_loss(results: Mapping[str, pl.DataFrame]) -> Table:
    """All losses of all shifts, systems and measures with their statistics, one row each, sortable."""
    lines = [row | {"shift": shift} for shift, frame in results.items() for row in frame.iter_rows(named=True)]
    columns = [
        Column("shift"),
        Column("part", source=lambda row: row.get("cluster") or row.get("size")),
        Column("system", source=lambda row: Value(row["system"], mark=contamination.mark(row["trained_on"]))),
        Column("measure"),
        Column("Rel Loss", "number", partial(_sortable, "rel_loss", loss)),
        Column("low", "number", partial(_sortable, "rel_loss_low", loss)),
        Column("high", "number", partial(_sortable, "rel_loss_high", loss)),
        Column("In", "number", partial(_sortable, "avg_in", None)),
        Column("Out", "number", partial(_sortable, "out", None)),
        Column("p (Holm)", "number", partial(_sortable, "p_holm", p_value)),
        Column("n", "number", partial(_sortable, "queries", "{:,}".format)),
    ]
    return laid_out(lines, columns, title="Every loss", sorted_by="Rel Loss")


def with_direction(table: Table, measure: str) -> Table:
    """The table; its title says so where lower is better."""
    if parse(measure).kind.lower_is_better:
        return replace(table, title=f"{table.title} (lower is better: a negative loss is harm)")
    return table


def _by(clusters: Sequence[str], values: Mapping[str, Any], cell: Callable[[Any], Value | str]) -> dict[Any, Any]:
    """The cell of each cluster, as a field of a row, which no cluster's name can confuse with another."""
    return {("cluster", cluster): cell(values[cluster]) for cluster in clusters}


def _of_model(row: Fields) -> Value:
    show = parse(row["measure"]).show_as_ecir_2023
    return Value(show(row["value"]), shaded=row["test_set"].split(".", 1)[-1] == row["held_out"])


def _mean(figure: str, measure: Measure, best: Mapping[tuple[str, str], float], row: Fields) -> Value:
    shown, of_best = measure.show_as_ecir_2023(row[figure]), best.get((row["cluster"], figure))
    return Value(shown, bold=of_best is not None and measure.show_as_ecir_2023(of_best) == shown)


def _rel_loss(measure: Measure, best: Mapping[tuple[str, str], float], row: Fields) -> Value:
    value, low, high = row["rel_loss"], row["rel_loss_low"], row["rel_loss_high"]
    return Value(
        loss(value),
        mark=_mark(row),
        bold=value is not None and loss(best.get((row["cluster"], "rel_loss"))) == loss(value),
        tooltip=interval(low, high, row["queries"]),
        bar=LossBar(value, low, high, harm=measure.sign),
    )


def _sortable(name: str, show: Callable[[Any], str] | None, row: Fields) -> Value:
    """A figure that a page sorts by; without ``show``, as the row's measure shows means."""
    shown = (show or parse(row["measure"]).show_as_ecir_2023)(row[name])
    return Value(shown, sort=None if row[name] is None else float(row[name]))


def _delta(marks: bool, row: Fields) -> Value:
    """Δ and its interval are those of the loss with the sign reversed."""
    low, high = (None if row[name] is None else -row[name] for name in ("rel_loss_high", "rel_loss_low"))
    delta = row["delta"]
    return Value(
        "-" if delta is None else f"{delta:+.0%}".replace("+0%", "0%").replace("-0%", "0%"),
        mark=_mark(row) if marks else "",
        tooltip=interval(low, high, row["queries"]),
        bar=LossBar(delta, low, high, harm=-1),
    )


def _mark(row: Fields) -> str:
    return "" if row["rel_loss"] is None else significance(row)


def _best(losses: pl.DataFrame, lower_is_better: bool) -> dict[tuple[str, str], float]:
    """(cluster, figure) → the best value where the systems differ; the best loss is the least harmful."""
    best: dict[tuple[str, str], float] = {}
    for (cluster,), rows in losses.group_by("cluster"):
        for figure in ("avg_in", "out", "rel_loss"):
            values = rows[figure].drop_nulls().to_list()
            if len(set(values)) > 1:
                best[str(cluster), figure] = min(values) if (figure == "rel_loss") != lower_is_better else max(values)
    return best
