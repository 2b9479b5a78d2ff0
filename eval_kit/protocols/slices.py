"""Slice a dev-small run by what is known of its queries: length, ReSTTest bucket, Chameleons level. No retraining."""

from collections.abc import Sequence

import polars as pl

from eval_kit.errors import UserError
from eval_kit.measures.definitions import parse
from eval_kit.release import Release
from eval_kit.tables.table import Column, Table

LABELS = {
    "length": ("length", "test", "cluster"),
    "bucket": ("resttest", "dev", "bucket"),
    **{f"chameleons{level}": ("chameleons", "dev", f"level_{level}") for level in (10, 20, 30, 40, 50)},
}
"""What a dev query can be sliced by: the table and column that tell its label."""


def labels(release: Release, by: Sequence[str]) -> pl.DataFrame:
    """Each dev query's labels.

    Returns:
        ``query_id`` and one column for each name in ``by``.

    Raises:
        UserError: an unknown name.
    """
    frame = release.table("resttest", "dev").select("query_id")
    for name in by:
        if name not in LABELS:
            raise UserError(f"cannot slice by {name!r}; there are {', '.join(LABELS)}")
        config, split, column = LABELS[name]
        label = release.table(config, split).select("query_id", pl.col(column).alias(name))
        frame = frame.join(label, on="query_id", how="left", maintain_order="left")
    return frame


def cross_table(values: pl.DataFrame, release: Release, by: Sequence[str]) -> pl.DataFrame:
    """Means of per-query values on dev, for each combination of labels.

    Args:
        values: ``run``, ``test_set``, ``measure``, ``query_id``, ``value``, as from
            :meth:`eval_kit.measures.score.Scores.per_query`; rows of the test set ``dev`` count.
        release: that was scored.
        by: one or more names of :data:`LABELS`.

    Returns:
        ``run``, ``measure``, a column for each name, ``value``, ``queries``; sorted by all but the last two.

    Raises:
        UserError: an unknown name, or no run that covers dev.
    """
    dev = values.filter(pl.col("test_set") == "dev")
    if dev.is_empty():
        raise UserError("slices are of dev-small, which no run covers")
    return (
        dev.join(labels(release, by), on="query_id")
        .group_by("run", "measure", *by)
        .agg(pl.col("value").mean(), pl.len().alias("queries"))
        .sort("run", "measure", *by)
    )


def layout(slices: pl.DataFrame, by: Sequence[str]) -> Table:
    """One row for each run and combination of labels, one column a measure."""
    measures = slices["measure"].unique(maintain_order=True).to_list()
    columns = [*map(Column, ("run", *by)), *(Column(name, "number") for name in ("queries", *measures))]
    wide = slices.pivot("measure", index=["run", *by, "queries"], values="value", maintain_order=True)
    lines = []
    for row in wide.iter_rows(named=True):
        values = [parse(name).show(row[name]) for name in measures]
        lines.append([row["run"], *(row[name] for name in by), f"{row['queries']:,}", *values])
    return Table(columns, [lines])
