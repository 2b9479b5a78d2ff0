"""Every query of a grid with its In and Out, as data that the page's script sorts, searches and shows."""

from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl

from eval_kit.pages.report_data import cutoff, texts
from eval_kit.protocols.grid_results import Protocols
from eval_kit.protocols.in_out import main_measure
from eval_kit.release import Release
from eval_kit.shifts import SHIFTS

MAX_ROWS = 4_000
"""Rows of the per-query explorer; of a larger grid those with the greatest difference, either way."""


def explorer(
    grid: Protocols,
    pairs: Mapping[str, pl.DataFrame],
    systems: Sequence[str],
    release: Release,
    r: pl.DataFrame | None,
) -> dict[str, Any]:
    """The data of explorer.js, one row for each query, system and cluster; ``r`` adds the nearness of each.

    Each of ``rows`` has the values of ``columns``: group, system, part and query are positions in the lists of these
    names, and a rank of 0 says that nothing was found. ``total`` counts the rows before any were left out.
    """
    measures = {shift: main_measure(results) for shift, results in grid.results.items()}
    every = pl.concat(
        pairs[shift]
        .filter(pl.col("measure") == measure)
        .group_by("system", "part", "query_id", maintain_order=True)
        .agg(pl.col("inside", "out").mean(), pl.col("in_rank", "out_rank").median())
        .with_columns(group=pl.lit(group), shift=pl.lit(shift))
        for group, (shift, measure) in enumerate(measures.items())
    )
    rows = every.with_columns(size=(pl.col("inside") - pl.col("out")).abs())
    rows = rows.sort("size", descending=True, maintain_order=True).head(MAX_ROWS)
    columns = ["group", "system", "part", "query", "in", "out", "in_rank", "out_rank"]
    if r is not None:
        rows = rows.join(r, on=["shift", "part", "query_id"], how="left", maintain_order="left")
        columns.append("r")
    ids = rows["query_id"].unique(maintain_order=True)
    shown = dict(texts(release, list(measures), ids).iter_rows())
    parts = [part for shift in measures if SHIFTS[shift].group != "size" for part in grid.clusters[shift]]
    for frame in pairs.values():
        parts += frame["part"].unique().sort().to_list()
    parts = list(dict.fromkeys(parts))
    rows = rows.with_columns(
        _position("system", systems),
        _position("part", parts),
        _position("query_id", ids).alias("query"),
        pl.col("inside").map_elements(_rounded, pl.Float64).alias("in"),
        pl.col("out").map_elements(_rounded, pl.Float64),
        pl.col("in_rank", "out_rank").replace(float("inf"), 0).round(1),
        pl.col("^r$").round_sig_figs(5),
    )
    return {
        "groups": [f"{SHIFTS[shift].title} ({measure})" for shift, measure in measures.items()],
        "cutoffs": [cutoff(measure) for measure in measures.values()],
        "systems": systems,
        "parts": parts,
        "queries": [[query_id, shown.get(query_id) or ""] for query_id in ids],
        "reach": rows["size"].max() or 1.0,
        "columns": columns,
        "rows": rows.select(columns).rows(),
        "total": every.height,
    }


def _position(column: str, names: Sequence[str] | pl.Series) -> pl.Expr:
    """The position of each value of a column among the names."""
    return pl.col(column).cast(pl.Enum(names)).to_physical()


def _rounded(value: float) -> float:
    """To four decimals; polars rounds 0.58125 down, which is stored as a little more than that."""
    return round(value, 4)
