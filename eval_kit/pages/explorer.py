"""Queries with two values each, such as In and Out, as data that the page's script sorts, searches and shows."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import polars as pl

from eval_kit.measures.definitions import parse
from eval_kit.protocols.grid_results import Protocols
from eval_kit.protocols.in_out import main_measure
from eval_kit.protocols.variations import Variations, beside_clean
from eval_kit.release import Release
from eval_kit.shifts import SHIFTS, union

MAX_ROWS = 4_000
"""Rows of the per-query explorer; a larger grid shows those with the greatest difference, either way."""


def explorer(
    grid: Protocols, pairs: Mapping[str, pl.DataFrame], systems: Sequence[str], release: Release, r: pl.DataFrame | None
) -> dict[str, Any]:
    """The data of explorer.js, one row for each query, system and cluster; ``r`` adds the nearness of each."""
    frames, groups = [], {}
    parts: list[str] = []
    for group, (shift, results) in enumerate(grid.results.items()):
        measure = main_measure(results)
        by_query = pairs[shift].filter(measure=measure).group_by("system", "part", "query_id", maintain_order=True)
        means = by_query.agg(pl.col("inside", "out").mean(), pl.col("in_rank", "out_rank").median())
        frames.append(means.with_columns(group=pl.lit(group), shift=pl.lit(shift)))
        groups[f"{SHIFTS[shift].title} ({measure})"] = parse(measure).cutoff
        parts += grid.clusters[shift] if SHIFTS[shift].group != "size" else []
    rows = pl.concat(frames).rename({"inside": "in"})
    if r is not None:
        rows = rows.join(r, on=["shift", "part", "query_id"], how="left", maintain_order="left")
    for frame in pairs.values():
        parts += frame["part"].unique().sort().to_list()
    return document(
        rows, groups, systems, list(dict.fromkeys(parts)), texts(release, list(grid.results), rows["query_id"].unique())
    )


def of_variations(changes: Variations, systems: Sequence[str], release: Release) -> dict[str, Any]:
    """The data of explorer.js, one row for each query, system and variation.

    Values are of each test set's main measure, ranks those of its reciprocal rank.
    """
    pairs = beside_clean(changes.values)
    rows, texts, groups = [], [], {}
    keys = ["system", "variation", "query_id"]
    for group, test_set in enumerate(changes.results["test_set"].unique(maintain_order=True)):
        names = release.test_sets[test_set].measures
        of_test_set = pairs.filter(pl.col("test_set") == test_set)
        main = of_test_set.filter(pl.col("measure") == names[0])
        reciprocal = next((name for name in names if parse(name).kind.ranks_from_value), None)
        ranks = of_test_set.filter(pl.col("measure") == reciprocal).select(
            *keys, in_rank=1 / pl.col("clean"), out_rank=1 / pl.col("value")
        )
        rows.append(main.join(ranks, on=keys, how="left", maintain_order="left").with_columns(group=pl.lit(group)))
        groups[f"{test_set} ({names[0]})"] = parse(reciprocal).cutoff if reciprocal else None
        texts.append(release.queries(test_set))
    every = pl.concat(rows)
    frame = pl.concat(
        release.wordings(release.variations[name]).select("query_id", pl.lit(name).alias("variation"), wording="text")
        for name in every["variation"].unique(maintain_order=True)
    )
    every = every.join(frame, on=["variation", "query_id"], how="left", maintain_order="left")
    return document(
        every.rename({"clean": "in", "value": "out", "variation": "part"}),
        groups,
        systems,
        every["variation"].unique(maintain_order=True).to_list(),
        pl.concat(texts),
    )


def texts(release: Release, shifts: Sequence[str], queries: pl.Series) -> pl.DataFrame:
    """``query_id`` and ``text`` of test queries; a release without a query's text gives it none."""
    names = {name for shift in shifts for name in SHIFTS[shift].test_sets(release)}
    entries = release.manifest.test_sets
    tables = {entry.table for entry in entries if entry.name in names or entry.shift in shifts}
    of_queries = union(release, sorted(tables)).filter(pl.col("query_id").is_in(queries.implode()))
    return of_queries.unique("query_id", keep="first", maintain_order=True)


def document(
    rows: pl.DataFrame,
    groups: Mapping[str, int | None],
    systems: Sequence[str],
    parts: Sequence[str],
    texts: pl.DataFrame,
) -> dict[str, Any]:
    """What explorer.js reads.

    Args:
        rows: ``group`` (a position in ``groups``), ``system``, ``part``, ``query_id``, ``in``, ``out``, ``in_rank`` and
            ``out_rank`` (infinite where nothing was found); perhaps ``r``, or ``wording``, the other text of the query.
        groups: the cutoff of the ranks in each group of rows; None for none.
        systems: all of them.
        parts: likewise.
        texts: ``query_id`` and ``text``.

    Returns:
        Each of ``rows`` has the values of ``columns``: group, system, part and query are positions in the lists of
        these names, and a rank of 0 says that nothing was found. ``total`` counts the rows before any were left out.
    """
    listed_rows = rows.with_columns(size=(pl.col("in") - pl.col("out")).abs())
    listed_rows = listed_rows.sort("size", descending=True, maintain_order=True).head(MAX_ROWS)
    ids = listed_rows["query_id"].unique(maintain_order=True)
    text_of = dict(texts.select("query_id", "text").iter_rows())
    columns = ["group", "system", "part", "query", "in", "out", "in_rank", "out_rank"]
    columns += [name for name in ("r", "wording") if name in rows.columns]
    values = listed_rows.with_columns(
        _position("system", systems),
        _position("part", parts),
        _position("query_id", ids).alias("query"),
        # polars rounds 0.58125 down, although it is stored as slightly more
        pl.col("in", "out").map_elements(partial(round, ndigits=4), pl.Float64),
        pl.col("in_rank", "out_rank").replace(float("inf"), 0).round(1),
        pl.col("^r$").round_sig_figs(5),
    )
    return {
        "groups": list(groups),
        "cutoffs": list(groups.values()),
        "systems": systems,
        "parts": parts,
        "queries": [[query_id, text_of.get(query_id) or ""] for query_id in ids],
        "reach": listed_rows["size"].max() or 1.0,
        "columns": columns,
        "rows": values.select(columns).rows(),
        "total": rows.height,
    }


def _position(column: str, names: Sequence[str] | pl.Series) -> pl.Expr:
    """The position of each value of a column among the names."""
    return pl.col(column).cast(pl.Enum(names)).to_physical()
