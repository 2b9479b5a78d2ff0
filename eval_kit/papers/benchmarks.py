"""The cost on ordinary benchmarks of leaving a part out of training (arXiv:2205.02870v1 §4.3, Table 5)."""

from collections.abc import Iterable, Iterator
from itertools import product
from operator import attrgetter
from typing import Any

import polars as pl

from eval_kit.measures.definitions import parse
from eval_kit.shifts import BENCHMARKS, CONTROL, TRAINED_FOR
from eval_kit.stats.losses import holm, paired_t_test, relative_losses
from eval_kit.tables.table import Column, Row, Table, Value, loss, number_columns, significance

SHOWN = (*product(("dev", "test"), ("RR@10", "R@1000")), *product(("dl19", "dl20"), ("nDCG@10", "R(rel=2)@1000")))
"""What the paper's table shows; it does not say which grades of TREC DL count as relevant for recall."""
_SCHEMA = {
    **dict.fromkeys(("test_set", "measure", "system", "training"), pl.String()),
    **dict.fromkeys(("models", "queries"), pl.Int64()),
    **dict.fromkeys(("value", "rel_loss", "rel_loss_low", "rel_loss_high", "p", "p_holm", "d"), pl.Float64()),
}


def benchmarks(values: pl.DataFrame, control: pl.DataFrame, seed: int = 0) -> pl.DataFrame:
    """The mean over each shift's models on dev and TREC DL, beside the model trained on everything.

    ReSTrain is left out because its training sets differ in size; so is a shift whose models do not all cover a test
    set.

    Args:
        values: per query, of complete grids: ``system``, ``shift``, ``held_out``, ``seed``, ``test_set``, ``measure``,
            ``query_id``, ``value``.
        control: the same for models trained on everything; a system may be missing.
        seed: of the bootstrap.

    Returns:
        One row for each test set, measure, system and ``training`` (a shift, or ``all``): ``models`` (seeds counted),
        ``queries``, ``value``; and against that system's control ``rel_loss`` = (all − shift) / all with
        ``rel_loss_low`` and ``rel_loss_high`` (95 % paired bootstrap over queries), ``p`` of the paired t-test,
        ``p_holm``, corrected over the systems and shifts of a test set and measure, and ``d`` (Cohen's d_z). Without
        a control these are null.
    """
    all_values = pl.concat([values, control.select(values.columns)])
    models = all_values.group_by("system", "shift").agg(all_models=pl.struct("held_out", "seed").n_unique())
    means = (
        all_values.filter(pl.col("test_set").is_in(BENCHMARKS))
        .group_by("test_set", "measure", "system", "shift", "query_id", maintain_order=True)
        .agg(pl.col("value").mean(), models=pl.struct("held_out", "seed").n_unique())
        .join(models, on=["system", "shift"], maintain_order="left")
        .filter(pl.col("models") == pl.col("all_models"), pl.col("shift") != "restrain")
        .sort(_in_order("test_set", BENCHMARKS), _in_order("shift", TRAINED_FOR), maintain_order=True)
    )
    rows: list[dict[str, Any]] = []
    for (test_set, measure), group in means.group_by("test_set", "measure", maintain_order=True):
        rows += [{"test_set": test_set, "measure": measure, **row} for row in _of_measure(group, seed)]
    return pl.DataFrame(rows, _SCHEMA)


def layout(results: pl.DataFrame) -> Table:
    """arXiv:2205.02870v1, Table 5: one row for each system and training; each measure and its loss as columns.

    Args:
        results: from :func:`benchmarks`.
    """
    by_cell = {(row["system"], row["training"], row["test_set"], row["measure"]): row for row in results.to_dicts()}
    have = set(results.select("test_set", "measure").iter_rows())
    figures = [figure for figure in SHOWN if figure in have]
    columns = [Column("system", "heading"), Column("trained on", "label")]
    for test_set, measure in figures:
        columns += number_columns(measure, "loss", group=test_set)
    groups: list[list[Row]] = []
    for system in results["system"].unique(maintain_order=True):
        rows: list[Row] = []
        for training in results.filter(system=system)["training"].unique(maintain_order=True):
            cells: list[Value | str] = []
            for test_set, measure in figures:
                cells += _cells(by_cell.get((system, training, test_set, measure)), measure)
            rows.append([None if rows else system, training, *cells])
        groups.append(rows)
    notes = (
        "mean over the models of a shift; all: one model trained on all training queries; loss: (all − shift) / all",
        "° not significant: paired t-test, p ≥ 0.05 after Holm's correction over the systems and shifts of a measure",
    )
    return Table(columns, groups, "what leaving a part out costs on ordinary benchmarks", notes=notes)


def _of_measure(means: pl.DataFrame, seed: int) -> Iterator[dict[str, Any]]:
    """One row for each system and training; ``means`` are of one test set and measure."""
    by_model = {}
    for (system, shift), part in means.group_by("system", "shift", maintain_order=True):
        by_model[str(system), str(shift)] = part.sort("query_id")
    pairs, tests = {}, {}
    for (system, shift), part in by_model.items():
        control = by_model.get((system, CONTROL.name))
        if shift != CONTROL.name and control is not None:
            pair = (control["value"].to_numpy(), part["value"].to_numpy())
            pairs[system, shift], tests[system, shift] = pair, paired_t_test(*pair)
    losses = relative_losses(pairs, seed=seed)
    p_holm = dict(zip(tests, holm(list(map(attrgetter("p"), tests.values()))), strict=True))
    for key, part in by_model.items():
        row = dict(zip(("system", "training"), key, strict=True)) | {"models": part["models"][0]}
        row |= {"queries": part.height, "value": part["value"].mean()}
        if key in pairs:
            estimate, test = losses[key].rel_loss, tests[key]
            row |= estimate.columns("rel_loss") | {"p": test.p, "p_holm": p_holm[key], "d": test.d}
        yield row


def _in_order(column: str, names: Iterable[str]) -> pl.Expr:
    return pl.col(column).cast(pl.Enum(list(names)))


def _cells(row: dict[str, Any] | None, measure: str) -> list[Value | str]:
    if row is None:
        return ["", ""]
    cell = "" if row["rel_loss"] is None else Value(loss(row["rel_loss"]), mark=significance(row))
    return [parse(measure).show_as_cikm_2022(row["value"]), cell]
