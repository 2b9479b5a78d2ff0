"""The data of the figures of MS MARCO Chameleons (CIKM 2021, Figures 1, 3 and 4; Figure 2 is equation 1)."""

from itertools import combinations

import polars as pl

from eval_kit.protocols.obstinacy import rankers


def long_tails(precision: pl.DataFrame) -> dict[str, list[float]]:
    """Figure 1: each run's average precision of every query, the highest first.

    Args:
        precision: ``query_id`` and a column of average precision for each run.
    """
    return {run: precision[run].sort(descending=True).to_list() for run in rankers(precision)}


def against_all(averages: pl.DataFrame, performance: pl.DataFrame) -> pl.DataFrame:
    """Figure 3: each run's mean average precision on each set against that on all queries.

    Args:
        averages: from :func:`eval_kit.protocols.chameleons.averages`.
        performance: from :func:`eval_kit.protocols.chameleons.chameleons`.

    Returns:
        ``run``, ``set``, ``level``, ``all`` and ``value``, of the runs that cover all queries, in their order.
    """
    everything = averages.filter(pl.col("measure") == "AP").select("run", all="mean")
    sets = performance.filter(pl.col("measure") == "AP").select("run", "set", "level", "value")
    return everything.join(sets, on="run", maintain_order="left_right").select("run", "set", "level", "all", "value")


def in_pairs(performance: pl.DataFrame) -> pl.DataFrame:
    """Figure 4, for every pair of runs: the mean average precision of both on each set at the highest level.

    Args:
        performance: from :func:`eval_kit.protocols.chameleons.chameleons`.

    Returns:
        ``first``, ``second`` (runs), ``set``, ``level``, ``first_value`` and ``second_value``; the sets by the first
        run's value, the most obstinate one first.
    """
    rows = performance.filter(pl.col("measure") == "AP", pl.col("level") == pl.col("level").max())
    frames = []
    for first, second in combinations(rows["run"].unique(maintain_order=True), 2):
        of_first, of_second = (rows.filter(pl.col("run") == run) for run in (first, second))
        both = of_first.join(of_second, on=["set", "level"]).sort("value")
        values = both.select("set", "level", first_value="value", second_value="value_right")
        frames.append(values.select(pl.lit(first).alias("first"), pl.lit(second).alias("second"), pl.all()))
    return pl.concat(frames) if frames else pl.DataFrame()
