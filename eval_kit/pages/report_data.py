"""The data of a report on a grid: In and Out of each query, and one loss per system and shift."""

from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl

from eval_kit.measures.definitions import parse
from eval_kit.protocols.grid_results import Protocols
from eval_kit.protocols.in_out import main_measure
from eval_kit.release import Release
from eval_kit.shifts import SHIFTS
from eval_kit.stats.losses import Floats, relative_losses


@dataclass(frozen=True)
class Standing:
    """How much one system loses on one shift (of ReSTrain: with one size of training set)."""

    shift: str
    part: str
    system: str
    measure: str
    inside: float
    out: float
    loss: float | None
    low: float | None
    high: float | None
    queries: int


def paired(values: pl.DataFrame, shift: str, release: Release) -> pl.DataFrame:
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
    compared = SHIFTS[shift].roles(values.filter(pl.col("shift") == shift), release)
    reciprocal = [name for name in compared["measure"].unique() if parse(name).ranks_from_value]
    rank = pl.when(pl.col("measure").is_in(reciprocal)).then(1 / pl.col("value"))
    keys = ["system", "measure", "part", "seed", "query_id"]
    return (
        compared.with_columns(rank=rank)
        .group_by(keys, maintain_order=True)
        .agg(
            inside=pl.col("value").filter(~pl.col("is_out")).mean(),
            out=pl.col("value").filter(pl.col("is_out")).mean(),
            in_rank=pl.col("rank").filter(~pl.col("is_out")).median(),
            out_rank=pl.col("rank").filter(pl.col("is_out")).median(),
        )
    )


def standings(grid: Protocols, shift: str, pairs: pl.DataFrame) -> list[Standing]:
    """One loss for each system (and ReSTrain size) of a shift, of its main measure.

    For topic, wh and length it is the loss over the queries of all clusters together, each extrapolated to once, as in
    ReSTTest's protocol with its buckets.
    """
    results = grid.results[shift]
    measure = main_measure(results)
    if not SHIFTS[shift].clustered:
        rows = results.filter(pl.col("measure") == measure).iter_rows(named=True)
        return [
            Standing(
                shift, str(row.get("size", "")), row["system"], measure, row["avg_in"], row["out"], row["rel_loss"],
                row["rel_loss_low"], row["rel_loss_high"], row["queries"],
            )
            for row in rows
        ]  # fmt: skip
    arrays = {
        str(system): in_and_out(group)
        for (system,), group in pairs.filter(pl.col("measure") == measure).group_by("system", maintain_order=True)
    }
    losses = relative_losses(arrays, seed=grid.provenance["seed"])
    return [
        Standing(
            shift, "", system, measure, loss.inside.value or 0.0, loss.out.value or 0.0, loss.rel_loss.value,
            loss.rel_loss.low, loss.rel_loss.high, loss.rel_loss.n,
        )
        for system, loss in losses.items()
    ]  # fmt: skip


def in_and_out(pairs: pl.DataFrame) -> tuple[Floats, Floats]:
    """(seeds, queries) arrays of one system and measure, both in the order of part and query id."""
    ordered = pairs.sort("seed", "part", "query_id")
    shape = (ordered["seed"].n_unique(), -1)
    return ordered["inside"].to_numpy().reshape(shape), ordered["out"].to_numpy().reshape(shape)


def texts(release: Release, shifts: Sequence[str], queries: pl.Series) -> pl.DataFrame:
    """``query_id`` and ``text`` of test queries; a release without a query's text gives it none."""
    names = {name for shift in shifts for name in SHIFTS[shift].test_sets(release)}
    frames = [pl.DataFrame(schema={"query_id": pl.String, "text": pl.String})]
    tables = set()
    for entry in release.manifest.test_sets:
        if entry.name in names or entry.shift in shifts:
            tables.add((entry.config, entry.split))
    for config, split in sorted(tables):
        table = release.table(config, split)
        if "text" in table.columns:
            frames.append(table.filter(pl.col("query_id").is_in(queries.implode())).select("query_id", "text"))
    return pl.concat(frames).unique("query_id", keep="first", maintain_order=True)
