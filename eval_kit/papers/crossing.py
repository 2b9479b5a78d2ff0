"""Shift and variation crossed: does another wording of a query hurt a model more if it never saw queries of that kind?

Each query is compared with itself twice: its original wording with the variation, and the model for which it is
out of domain (*Out*) with those for which it is in domain (*In*).
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from eval_kit.measures.definitions import parse
from eval_kit.protocols.variations import beside_clean
from eval_kit.release import Release, Variation
from eval_kit.runs.names import cell_of
from eval_kit.shifts import SHIFTS, Shift
from eval_kit.stats.losses import holm_corrected, paired_t_test, relative_losses
from eval_kit.tables.table import Column, Table, Value, interval, loss, number_columns, significance, text_columns

_KEYS = ("shift", "part", "system", "method", "measure")


def crossing(
    values: pl.DataFrame, variations: Sequence[Variation], release: Release, seed: int = 0
) -> pl.DataFrame | None:
    """What variations cost In and Out, over the queries of a shift's test sets whose wording they change.

    Args:
        values: of grid runs and their variations, as :func:`eval_kit.protocols.variations.score_variations` gives them;
            ``system`` is the run's name, ``<system>.<shift>.<held-out>``. Other runs are left out.
        variations: those in ``values``.
        release: the one scored on.
        seed: of the bootstrap.

    Returns:
        One row for each shift, part (of ReSTrain the size, else empty), system, method and measure: ``queries``;
        ``in_clean``, ``in_varied`` and ``in_loss`` = (clean − varied) / clean, means over models and replicas, and
        over queries; ``out_…`` likewise; each loss with ``_low`` and ``_high`` (95 % paired bootstrap over queries);
        ``difference``, how much more Out drops than In, in the measure's unit; ``p`` of the paired t-test of the two
        drops over queries, ``p_holm`` corrected over the rows of a shift and measure, ``d`` (Cohen's d_z). None if no
        query of a shift has another wording.
    """
    rows: list[dict[str, Any]] = []
    methods = {variation.full_name: variation.group for variation in variations}
    method = pl.col("variation").replace_strict(methods, return_dtype=pl.String)
    pairs = _of_cells(beside_clean(values).with_columns(method=method))
    for (name,), of_shift in pairs.group_by("shift", maintain_order=True):
        shift = SHIFTS[str(name)]
        rows += [{"shift": name, **row} for row in _of_shift(of_shift, shift, release, seed)]
    return holm_corrected(pl.DataFrame(rows, infer_schema_length=None), ["shift", "measure"]) if rows else None


def layout(results: pl.DataFrame) -> Table:
    """One row for each shift, system and method, for the shift's first measure where higher is better.

    Args:
        results: from :func:`crossing`.
    """
    columns = [Column("shift", "heading"), *text_columns("system", "variation", "")]
    for side in ("In", "Out"):
        columns += number_columns("clean", "loss", group=side)
    columns += number_columns("Out drops more by", "n")
    lines = []
    for (shift, *_), of_shift in results.group_by("shift", maintain_order=True):
        measure = next(name for name in of_shift["measure"] if not parse(name).kind.lower_is_better)
        for row in of_shift.filter(measure=measure).iter_rows(named=True):
            figures: list[Value | str] = []
            for side in ("in", "out"):
                ends = interval(row[f"{side}_loss_low"], row[f"{side}_loss_high"], row["queries"])
                figures += [parse(measure).show(row[f"{side}_clean"]), Value(loss(row[f"{side}_loss"]), tooltip=ends)]
            more = Value(parse(measure).show(row["difference"], with_sign=True), mark=significance(row))
            of = f"{measure} {row['part']}".strip()
            lines.append([str(shift), row["system"], row["method"], of, *figures, more, f"{row['queries']:,}"])
    notes = ("° not significant: paired t-test of the two drops, p ≥ 0.05 after Holm's correction over a shift's rows",)
    return Table(columns, [lines], "shift and variation crossed", notes=notes)


def _of_cells(pairs: pl.DataFrame) -> pl.DataFrame:
    """The rows of grid runs, with ``system``, ``shift`` and ``held_out`` of their cells."""
    rows = []
    for run in pairs["system"].unique(maintain_order=True):
        if cell := cell_of(Path(f"{run}.trec")):
            rows.append((run, cell.system, cell.shift, cell.held_out))
    names = dict.fromkeys(("run", "system", "shift", "held_out"), pl.String())
    cells = pl.DataFrame(rows, names, orient="row")
    return pairs.drop("run", strict=False).rename({"system": "run"}).join(cells, on="run", maintain_order="left")


def _of_shift(pairs: pl.DataFrame, shift: Shift, release: Release, seed: int) -> Iterator[dict[str, Any]]:
    on_test_sets = []
    for name in shift.test_sets(release):
        of_test_set = pairs.filter(pl.col("query_id").is_in(release.test_sets[name].queries.implode()))
        on_test_sets.append(of_test_set.with_columns(test_set=pl.lit(name)))
    part = pl.col("part") if shift.group == "size" else pl.lit("").alias("part")
    sides = shift.roles(pl.concat(on_test_sets), release).with_columns(part)
    means = []
    for side, is_out in (("in", False), ("out", True)):
        means.append(pl.col("clean", "value").filter(pl.col("is_out") == is_out).mean().name.suffix(f"_{side}"))
    by_query = sides.group_by(*_KEYS[1:], "query_id", maintain_order=True).agg(means).drop_nulls().sort("query_id")
    for keys, group in by_query.group_by(*_KEYS[1:], maintain_order=True):
        columns = {name: group[name].to_numpy() for name in ("clean_in", "value_in", "clean_out", "value_out")}
        arrays = {side: (columns[f"clean_{side}"], columns[f"value_{side}"]) for side in ("in", "out")}
        row: dict[str, Any] = dict(zip(_KEYS[1:], keys, strict=True)) | {"queries": group.height}
        for side, loss_of_side in relative_losses(arrays, seed=seed).items():
            row |= {f"{side}_clean": loss_of_side.inside.value, f"{side}_varied": loss_of_side.out.value}
            row |= loss_of_side.rel_loss.columns(f"{side}_loss")
        drop_in, drop_out = (clean - variant for clean, variant in (arrays["in"], arrays["out"]))
        test = paired_t_test(drop_out, drop_in)
        yield row | {"difference": test.difference, "p": test.p, "d": test.d}
