"""The papers' protocols: what is compared with what. Plain dataframes in and out.

All functions take per-query values of grid runs, one row a value: ``system``, ``held_out``, ``seed``, ``test_set``,
``measure``, ``query_id``, ``value``.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from eval_kit.errors import UserError
from eval_kit.stats.losses import holm, paired_t_test, relative_losses

type Pairs = dict[tuple[str, str], tuple[NDArray[np.float64], NDArray[np.float64]]]

RESTRAIN_MEASURES = ("nDCG@10", "R(rel=2)@100")
RESTTEST_MEASURES = ("RR@10", "R@100")


def matrix(values: pl.DataFrame) -> pl.DataFrame:
    """The train × test matrix (arXiv 2205.02870v1, Table 2), seeds averaged.

    Returns:
        ``system``, ``measure``, ``held_out``, ``test_set``, ``value``, ``queries``, ``seeds``.
    """
    return values.group_by("system", "measure", "held_out", "test_set", maintain_order=True).agg(
        pl.col("value").mean(), pl.col("query_id").n_unique().alias("queries"), pl.col("seed").n_unique().alias("seeds")
    )


def losses(values: pl.DataFrame, clusters: Sequence[str], shift: str, seed: int = 0) -> pl.DataFrame:
    """Avg In, Out and Rel Loss of every system on every cluster of an MS-Shift shift (ECIR 2023 §3.2, Tables 2, 3).

    Avg In is the mean over the models that saw the cluster in training, Out the model that did not.

    Args:
        values: of complete grids of this shift; rows of other test sets are not looked at.
        clusters: the shift's.
        shift: its name; the test sets are ``<shift>.<cluster>``.
        seed: of the bootstrap.

    Returns:
        One row for each system, measure and cluster: ``avg_in``, ``out``, ``rel_loss`` (null where In is 0), each
        with ``_low`` and ``_high`` (95 % paired bootstrap over queries, and over seeds where there are several);
        ``p`` of the paired t-test, ``p_holm`` corrected over the systems and clusters of a measure, ``d`` (Cohen's
        d_z), ``queries``, ``models_in``, ``seeds``.

    Raises:
        UserError: a cell whose run does not cover a cluster.
    """
    rows: list[dict[str, Any]] = []
    for cluster in clusters:
        here = values.filter(pl.col("test_set") == f"{shift}.{cluster}")
        pairs: Pairs = {}
        for (system, measure), group in here.group_by("system", "measure", maintain_order=True):
            lacking = sorted(set(clusters) - set(group["held_out"]))
            if lacking:
                raise UserError(f"{system}.{shift}.{lacking[0]}: does not cover {shift}.{cluster}")
            inside = _by_seed(group.filter(pl.col("held_out") != cluster))
            pairs[str(system), str(measure)] = (inside, _by_seed(group.filter(pl.col("held_out") == cluster)))
        rows += [{"cluster": cluster, **row} for row in _compared(pairs, seed)]
    if not rows:
        raise UserError(f"no run covers a test set of the {shift} shift")
    table = pl.DataFrame(rows).with_columns(models_in=pl.lit(len(clusters) - 1))
    return _holm_corrected(table, ["measure"])


def restrain(values: pl.DataFrame, seed: int = 0) -> pl.DataFrame:
    """Inter., Extra. and Δ of ReSTrain for each size (CIKM 2022 §4.1.2, Tables 6, 8 and 9).

    A model trained on the interpolation set is compared with one trained on the extrapolation set of the same size,
    over all queries of TREC DL 2019 and 2020 together (a mean over queries, not over tracks).

    Returns:
        As :func:`losses`, with ``size`` for ``cluster``, and ``delta`` = Extra. / Inter. − 1.
    """
    here = values.filter(pl.col("test_set").is_in(["dl19", "dl20"]), pl.col("measure").is_in(RESTRAIN_MEASURES))
    split = pl.col("held_out").str.split_exact("_", 1)
    here = here.with_columns(regime=split.struct[0], size=split.struct[1])
    rows: list[dict[str, Any]] = []
    for size in here["size"].unique(maintain_order=True):
        pairs: Pairs = {}
        for (system, measure), group in here.filter(pl.col("size") == size).group_by(
            "system", "measure", maintain_order=True
        ):
            inside, out = (_by_seed(group.filter(pl.col("regime") == one)) for one in ("interpolate", "extrapolate"))
            if inside.shape != out.shape:
                raise UserError(f"{system}: its two ReSTrain runs of {size} do not cover the same TREC DL queries")
            pairs[str(system), str(measure)] = (inside, out)
        rows += [{"size": size, **row} for row in _compared(pairs, seed)]
    if not rows:
        raise UserError("no ReSTrain run covers TREC DL 2019 or 2020")
    return _holm_corrected(pl.DataFrame(rows), ["measure"]).with_columns(delta=-pl.col("rel_loss").cast(pl.Float64))


def resttest(values: pl.DataFrame, buckets: pl.DataFrame, seed: int = 0) -> pl.DataFrame:
    """Inter., Extra. and Δ of ReSTTest on dev-small (CIKM 2022 §4.1.3, Table 7), over queries.

    A query's extrapolation value is that of the model trained without the query's bucket, its interpolation value
    the mean over the other models.

    Args:
        values: of complete grids; rows of the test set ``dev`` count.
        buckets: ``query_id`` and ``bucket`` of the dev queries.
        seed: of the bootstrap.

    Returns:
        As :func:`losses` without ``cluster``, with ``delta`` = Extra. / Inter. − 1.
    """
    here = values.filter(pl.col("test_set") == "dev", pl.col("measure").is_in(RESTTEST_MEASURES)).join(
        buckets.select("query_id", "bucket"), on="query_id"
    )
    pairs: Pairs = {}
    own = pl.col("bucket") == pl.col("held_out")
    for (system, measure), group in here.group_by("system", "measure", maintain_order=True):
        inside, out = _by_seed(group.filter(~own)), _by_seed(group.filter(own))
        if inside.shape != out.shape:
            raise UserError(f"{system}: a ReSTTest run does not cover dev")
        pairs[str(system), str(measure)] = (inside, out)
    if not pairs:
        raise UserError("no ReSTTest run covers dev")
    table = pl.DataFrame(list(_compared(pairs, seed)))
    return _holm_corrected(table, ["measure"]).with_columns(delta=-pl.col("rel_loss").cast(pl.Float64))


def _by_seed(values: pl.DataFrame) -> NDArray[np.float64]:
    """(seeds, queries): each query's mean over models, queries in the order of their ids."""
    means = values.group_by("seed", "query_id").agg(pl.col("value").mean()).sort("seed", "query_id")
    return means["value"].to_numpy().reshape(values["seed"].n_unique(), -1)


def _compared(pairs: Pairs, seed: int) -> Iterator[dict[str, Any]]:
    for (system, measure), loss in relative_losses(pairs, seed=seed).items():
        test = paired_t_test(*pairs[system, measure])
        row: dict[str, Any] = {"system": system, "measure": measure}
        for name, one in (("avg_in", loss.inside), ("out", loss.out), ("rel_loss", loss.rel_loss)):
            row |= {name: one.value, f"{name}_low": one.low, f"{name}_high": one.high}
        yield row | {"p": test.p, "d": test.d, "queries": test.n, "seeds": loss.rel_loss.seeds}


def _holm_corrected(table: pl.DataFrame, family: list[str]) -> pl.DataFrame:
    parts = [
        part.with_columns(pl.Series("p_holm", holm(part["p"].to_list()), pl.Float64))
        for part in table.with_row_index("row").partition_by(family)
    ]
    return pl.concat(parts).sort("row").drop("row")
