"""The papers' protocols: what is compared with what. Plain dataframes in and out.

Functions take per-query values of grid runs, one row per value: ``system``, ``held_out``, ``seed``, ``test_set``,
``measure``, ``query_id``, ``value``, ``group``.
"""

from collections.abc import Iterator
from itertools import combinations
from typing import Any

import numpy as np
import polars as pl

from eval_kit.errors import UserError, choices
from eval_kit.measures.definitions import parse
from eval_kit.release import Release
from eval_kit.runs.names import RunName
from eval_kit.shifts import SHIFTS, Shift
from eval_kit.stats.figure import Figure
from eval_kit.stats.losses import (
    Integers,
    difference_of_losses,
    differing,
    error_of_loss,
    holm_corrected,
    p_equivalent,
    paired_t_test,
    relative_losses,
)
from eval_kit.stats.parts import Floats, heterogeneity

_PAIR = ("system", "measure", "part", "seed", "query_id")
_MEANS = {
    "inside": pl.col("value").filter(~pl.col("is_out")).mean(),
    "out": pl.col("value").filter(pl.col("is_out")).mean(),
}


_OF_PARTS = ("of_parts", "of_parts_low", "of_parts_high", "q", "p_q")
_FEWEST_DRAWN = 5
"""Parts below which nothing is said of others like them: their interval is as wide as all losses (docs/protocol.md)."""


def matrix(values: pl.DataFrame) -> pl.DataFrame:
    """The train × test matrix (arXiv 2205.02870v1, Table 2), seeds averaged.

    Returns:
        ``system``, ``measure``, ``held_out``, ``test_set``, ``value``, ``queries``, ``seeds``.
    """
    return values.group_by("system", "measure", "held_out", "test_set", maintain_order=True).agg(
        pl.col("value").mean(), pl.col("query_id").n_unique().alias("queries"), pl.col("seed").n_unique().alias("seeds")
    )


def losses(values: pl.DataFrame, shift: Shift, release: Release, seed: int = 0) -> pl.DataFrame:
    """What every system loses on a shift: In, Out and Rel Loss = (In − Out) / In.

    The shift's rule says which model is In and which Out for a query (:meth:`eval_kit.shifts.Shift.roles`). For each
    query, In is the mean over its In models; all else is over queries: ECIR 2023 §3.2, Tables 2 and 3 (by cluster),
    CIKM 2022 §4.1.2, Table 6 (by size, DL19 and DL20 pooled) and §4.1.3, Table 7 (all of dev-small).

    Args:
        values: of complete grids of this shift; rows of test sets that the shift is not evaluated on are left out.
        shift: that of the grids.
        release: the one that was scored on.
        seed: for the bootstrap.

    Returns:
        One row for each part that the shift reports (column ``cluster`` or ``size``; ReSTTest has none), system and
        measure: the ``test_sets`` covered (``dl19+dl20``), ``avg_in``, ``out``, ``rel_loss`` (null where In is 0), each
        with ``_low`` and ``_high`` (95 % paired bootstrap over queries, and over seeds where there are several); ``p``
        of the paired t-test and ``p_equivalent`` of equivalence (:func:`eval_kit.stats.losses.paired_t_test`), both
        with ``_holm``, corrected over the parts and systems of a measure; ``queries``, of how many of them In and Out
        ``differ``, ``seeds``. Clusters add ``models_in``; the others ``delta`` = Extra. / Inter. − 1.
    """
    if shift.has_clusters and len(shift.parts(release)) < 2:
        raise UserError(f"{release.name} has one part alone in {shift.name}", "A loss compares a part with the others")
    comparison = shift.roles(values, release)
    if shift.measures:
        comparison = comparison.filter(pl.col("measure").is_in(shift.measures))
    if not shift.group:
        comparison = comparison.with_columns(part=pl.lit(""))
    parts = shift.parts(release) if shift.has_clusters else comparison["part"].unique(maintain_order=True)
    covered = _covered(comparison, shift, release)
    rows: list[dict[str, Any]] = []
    for part in parts:
        in_part = comparison.filter(pl.col("part") == part)
        names = {shift.group: part} if shift.group else {}
        names["test_sets"] = f"{shift.name}.{part}" if shift.has_clusters else "+".join(covered)
        rows += [names | row for row, _ in _with_pairs(in_part, seed)]
    if not rows:
        raise UserError(f"No run covers a test set of the {shift.name} shift")
    table = pl.DataFrame(rows)
    if shift.has_clusters:
        models_in = len(shift.parts(release)) - 1
        return holm_corrected(table.with_columns(models_in=pl.lit(models_in)), ["measure"])
    return holm_corrected(table, ["measure"]).with_columns(delta=-pl.col("rel_loss").cast(pl.Float64))


def overall(values: pl.DataFrame, shift: str, release: Release, measure: str, seed: int = 0) -> pl.DataFrame:
    """What every system loses over the queries of all parts of a shift together, each extrapolated to once.

    So ReSTTest sums up its buckets (CIKM 2022 §4.1.3); ECIR 2023 prints clusters alone.

    Returns:
        One row a system, with the columns of :func:`losses`, corrected over the systems; and with parts as random
        (:class:`eval_kit.stats.parts.Heterogeneity`, null with fewer than two that have a loss): ``parts``, ``q``,
        ``p_q``, and from five on ``of_parts`` (the Rel Loss expected of a part) with ``_low`` and ``_high``.
    """
    comparison = SHIFTS[shift].roles(values, release).filter(pl.col("measure") == measure)
    rows = []
    for row, pairs in _with_pairs(comparison, seed):
        losses, errors, sizes = [], [], []
        for _, part in pairs.group_by("part", maintain_order=True):
            inside, out = in_and_out(part)
            if inside.shape[1] > 1 and (error := error_of_loss(inside, out, groups_in(part))) is not None:
                losses.append(1 - out.mean() / inside.mean())
                errors.append(error[0])
                sizes.append(inside.shape[1])
        kinds = heterogeneity(*map(np.array, (losses, errors, sizes)))
        drawn = kinds if kinds and len(losses) >= _FEWEST_DRAWN else Figure()
        row |= {"parts": len(losses)} | drawn.columns("of_parts")
        rows.append(row | {"q": kinds and kinds.q, "p_q": kinds and kinds.p_q})
    return holm_corrected(pl.DataFrame(rows, schema_overrides=dict.fromkeys(_OF_PARTS, pl.Float64)), ["measure"])


def differences(values: pl.DataFrame, shift: str, release: Release, measure: str) -> pl.DataFrame:
    """Whether systems lose different shares of a shift, over the queries of all of its parts.

    Returns:
        One row for each two systems: ``system``, ``other``, ``measure``, ``difference`` (the first's Rel Loss less the
        other's) with ``low`` and ``high`` (95 %), ``p`` and ``p_holm``, over all pairs
        (:func:`eval_kit.stats.losses.difference_of_losses`); null where seeds differ in number or an In is 0.
    """
    comparison = SHIFTS[shift].roles(values, release).filter(pl.col("measure") == measure)
    pairs = {row["system"]: in_and_out(group) for row, group in _with_pairs(comparison)}
    rows = []
    for (system, first), (other, second) in combinations(pairs.items(), 2):
        found = difference_of_losses(first, second)
        rows.append((system, other, measure, found.value, *found.interval, found.p))
    names = dict.fromkeys(("system", "other", "measure"), pl.String)
    numbers = dict.fromkeys(("difference", "low", "high", "p"), pl.Float64)
    table = pl.DataFrame(rows, {**names, **numbers}, orient="row")
    return holm_corrected(table, ["measure"]) if rows else table  # one system


def in_and_out_by_query(values: pl.DataFrame, shift: str, release: Release) -> pl.DataFrame:
    """In and Out of every query of a shift, for every system, measure and seed.

    Args:
        values: of grid runs, as ``Protocols.values`` holds them.
        shift: its name.
        release: the one that was scored on.

    Returns:
        ``system``, ``measure``, ``part`` (cluster, bucket or size), ``seed``, ``query_id``, ``inside``, ``out``, and
        ``in_rank`` and ``out_rank``: the median over models of the rank that a reciprocal rank stands for (infinite
        where nothing was found, null for other measures).
    """
    comparison = SHIFTS[shift].roles(values.filter(pl.col("shift") == shift), release)
    reciprocal = [name for name in comparison["measure"].unique() if parse(name).kind.ranks_from_value]
    rank = pl.when(pl.col("measure").is_in(reciprocal)).then(1 / pl.col("value"))
    in_rank, out_rank = (pl.col("rank").filter(pl.col("is_out") == is_out).median() for is_out in (False, True))
    pairs = comparison.with_columns(rank=rank).group_by(_PAIR, maintain_order=True)
    return pairs.agg(**_MEANS, in_rank=in_rank, out_rank=out_rank)


def in_and_out(pairs: pl.DataFrame) -> tuple[Floats, Floats]:
    """(seeds, queries) arrays of one system and measure, both in the order of part and query id."""
    in_order = pairs.sort("seed", "part", "query_id")
    shape = (in_order["seed"].n_unique(), -1)
    return in_order["inside"].to_numpy().reshape(shape), in_order["out"].to_numpy().reshape(shape)


def groups_in(pairs: pl.DataFrame) -> Integers | None:
    """(queries,) the group of each query of :func:`in_and_out`; None where each stands alone."""
    of_queries = pairs.filter(pl.col("seed") == pl.col("seed").min()).sort("part", "query_id")["group"]
    return of_queries.to_numpy() if of_queries.is_duplicated().any() else None


def main_measure(results: pl.DataFrame) -> str:
    """The measure that sums up a shift: its first for which higher is better."""
    measures = results["measure"].unique(maintain_order=True).to_list()
    return next((str(measure) for measure in measures if not parse(measure).kind.lower_is_better), str(measures[0]))


def _covered(comparison: pl.DataFrame, shift: Shift, release: Release) -> list[str]:
    """The test sets that every model has values on; refuses models whose figures would be of different queries."""
    models = comparison.group_by("system", "held_out", "seed", maintain_order=True).agg(pl.col("test_set").unique())
    all_needed = shift.all_test_sets_needed
    wanted = [name for name in shift.test_sets(release) if all_needed or name in comparison["test_set"]]
    for system, held_out, seed, test_sets in models.iter_rows():
        if lacking := [name for name in wanted if name not in test_sets]:
            run = RunName(system, shift.name, held_out, seed).file
            others = "" if all_needed else f", which other runs of {shift.name} cover"
            raise UserError(f"{run} does not cover {choices(lacking)}{others}", do="Give runs of the same queries")
    return wanted


def _with_pairs(comparison: pl.DataFrame, seed: int = 0) -> Iterator[tuple[dict[str, Any], pl.DataFrame]]:
    """A row for each system and measure, over all queries, and its In and Out by part, seed and query.

    ``comparison`` is from :meth:`Shift.roles`.
    """
    means = comparison.group_by(_PAIR, maintain_order=True).agg(
        **_MEANS, searched=pl.col("searched").any(), group=pl.col("group").first()
    )
    groups, pairs = {}, {}
    for (system, measure), group in means.group_by("system", "measure", maintain_order=True):
        groups[str(system), str(measure)] = group
        pairs[str(system), str(measure)] = in_and_out(group)
    # the queries of all are the same, and so are their groups
    together = groups_in(next(iter(groups.values()))) if groups else None
    for (system, measure), loss in relative_losses(pairs, seed=seed, groups=together).items():
        inside, out = pairs[system, measure]
        row: dict[str, Any] = {"system": system, "measure": measure}
        for name, figure in zip(("avg_in", "out", "rel_loss"), loss, strict=True):
            row |= figure.columns(name)
        group = groups[system, measure].sort("seed", "part", "query_id")
        searched = group["searched"].to_numpy().reshape(inside.shape).any(axis=0)
        most, among = parse(measure).most(np.stack([inside, out])), None if together is None else together[searched]
        alike = p_equivalent(inside[:, searched], out[:, searched], most, among) if searched.any() else None
        row |= {"p": paired_t_test(inside, out, together).p, "p_equivalent": alike}
        row["ratio"] = (error_of_loss(inside, out, together) or (0.0, 1.0))[1]
        row |= {"queries": inside.shape[1], "differ": differing(inside, out), "seeds": inside.shape[0]}
        yield row, groups[system, measure]
