"""Which queries of a release hang together, for tests that count groups of queries where that matters."""

from collections.abc import Iterable

import polars as pl

from eval_kit.divisions import Parts, divide
from eval_kit.release import Release
from eval_kit.stats.groups import groups_of


def grouped(release: Release, test_sets: Iterable[str], by: str | Parts | None = None) -> pl.DataFrame:
    """``test_set``, ``query_id`` and ``group`` of every query; no group reaches over two of these test sets.

    Args:
        release: has their texts and judgements.
        test_sets: by name.
        by: a division whose parts are the groups (:func:`eval_kit.divisions.divide`), and queries in none are alone; by
            default queries with one text, or with relevant passages in common.
    """
    frames: list[pl.DataFrame] = []
    for name in test_sets:
        queries = release.queries(name)
        if by is None:
            relevant = release.qrels(release.test_sets[name].qrels).filter(pl.col("relevance") > 0)
            groups = groups_of(queries, relevant.select("query_id", "passage_id"))
        else:
            parts = divide(by, release, queries).parts.unique("query_id", keep="first", maintain_order=True)
            own = pl.coalesce(pl.format("part {}", "part"), pl.format("query {}", "query_id"))
            groups = queries.join(parts, on="query_id", how="left", maintain_order="left")
            groups = groups.select("query_id", group=own.rank("dense").cast(pl.Int64))
        # numbered on, as the parts of a shift are tested together
        number = pl.col("group") + pl.lit(sum(frame["group"].n_unique() for frame in frames))
        frames.append(groups.select(pl.lit(name).alias("test_set"), "query_id", group=number))
    return pl.concat(frames)


def counted_groups(groups: pl.DataFrame, ratios: pl.DataFrame) -> dict[str, dict[str, float]]:
    """Of each test set where groups matter: how many queries and groups it has, and the greatest ratio of errors.

    Args:
        groups: from :func:`grouped`.
        ratios: ``test_set`` and ``ratio`` of errors by groups to those by queries.
    """
    greatest = ratios.drop_nulls().filter(pl.col("ratio") > 1).group_by("test_set", maintain_order=True).max()
    counts = groups.group_by("test_set").agg(queries=pl.len(), groups=pl.col("group").n_unique())
    rows = greatest.join(counts, on="test_set", maintain_order="left").iter_rows(named=True)
    return {row["test_set"]: {name: row[name] for name in ("queries", "groups", "ratio")} for row in rows}
