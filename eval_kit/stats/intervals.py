"""Queries in intervals of a similarity, with the loss in each: the data of Figures 4 to 6 of ECIR 2023."""

from itertools import pairwise
from typing import Any, Literal

import numpy as np
import polars as pl
from numpy.typing import ArrayLike, NDArray

from eval_kit.stats.losses import LEVEL, RESAMPLES, Floats, relative_loss

BINS = 10


def edges(r: ArrayLike, bins: int = BINS, how: Literal["quantile", "width"] = "quantile") -> Floats:
    """Cut the range of ``r`` into intervals of equal counts, or of equal width.

    Args:
        r: (n,) similarities, of all the systems or clusters that are to share the intervals.
        bins: how many intervals; fewer come out where many values are equal.
        how: ``quantile`` or ``width``.

    Returns:
        Ascending edges, one more than there are intervals; the first and last are the least and greatest value.

    Raises:
        ValueError: no values, values that are not finite, or no bins.
    """
    values = np.asarray(r, np.float64)
    if values.ndim != 1 or not values.size or not np.isfinite(values).all() or bins < 1:
        raise ValueError("a list of finite values and at least one bin are needed")
    if how == "quantile":
        cuts = np.quantile(values, np.linspace(0, 1, bins + 1))
    else:
        cuts = np.linspace(values.min(), values.max(), bins + 1)
    distinct = np.unique(cuts)
    return distinct if len(distinct) > 1 else np.repeat(distinct, 2)


def interval_of(r: ArrayLike, cuts: Floats) -> NDArray[np.int64]:
    """The number of the interval (from 0) that each value lies in: [low, high), the last [low, high].

    Raises:
        ValueError: a value outside all the intervals, or NaN.
    """
    values = np.asarray(r, np.float64)
    if not ((values >= cuts[0]) & (values <= cuts[-1])).all():
        raise ValueError(f"a value lies outside {cuts[0]}..{cuts[-1]}")
    return np.searchsorted(cuts[1:-1], values, side="right")


def per_query_loss(inside: ArrayLike, out: ArrayLike) -> pl.Series:
    """(In − Out) / In of each query; null where In is 0.

    Only for pictures of the spread: a query with a small In can lose any multiple of it.

    Args:
        inside: (n,) or (seeds, n); seeds are averaged first.
        out: in the same shape.
    """
    one, other = (np.atleast_2d(np.asarray(values, np.float64)).mean(axis=0) for values in (inside, out))
    frame = pl.DataFrame({"inside": one, "out": other})
    loss = pl.when(pl.col("inside") != 0).then((pl.col("inside") - pl.col("out")) / pl.col("inside"))
    return frame.select(loss=loss)["loss"]


def loss_by_interval(
    r: ArrayLike,
    inside: ArrayLike,
    out: ArrayLike,
    cuts: Floats,
    *,
    resamples: int = RESAMPLES,
    seed: int = 0,
    level: float = LEVEL,
) -> pl.DataFrame:
    """The loss of the queries in each interval of similarity (ECIR 2023, Figures 4, 5 and 6).

    Args:
        r: (n,) similarities.
        inside: In of the same queries, (n,) or (seeds, n), of one measure and system.
        out: Out, in the same shape.
        cuts: from :func:`edges`.
        resamples: of the bootstrap (see :func:`eval_kit.stats.losses.relative_losses`).
        seed: of the bootstrap.
        level: of the bootstrap's intervals.

    Returns:
        One row an interval: ``low`` and ``high`` (of the similarity), ``n`` (Figure 4); ``inside``, ``out`` and
        ``rel_loss`` (of the means, with ``rel_loss_low`` and ``rel_loss_high``; Figure 5); and the quartiles of the
        single queries' losses, ``query_loss_q1``, ``_median`` and ``_q3``, over the ``query_loss_n`` queries of
        which In is not 0 (Figure 6). Null where an interval is empty or In is 0.

    Raises:
        ValueError: shapes that differ, values that are not finite, or a similarity outside the intervals.
    """
    one, other = (np.asarray(values, np.float64) for values in (inside, out))
    number = interval_of(r, cuts)
    if not one.shape[-1:] == other.shape[-1:] == number.shape:
        raise ValueError(f"{len(number)} similarities, but shapes {one.shape} and {other.shape} of In and Out")
    rows = []
    for interval, (low, high) in enumerate(pairwise(cuts)):
        here = number == interval
        row: dict[str, Any] = {"low": low, "high": high, "n": int(here.sum())}
        if here.any():
            mine = one[..., here], other[..., here]
            loss = relative_loss(*mine, resamples=resamples, seed=seed, level=level)
            spread = per_query_loss(*mine).drop_nulls()
            row |= {
                "inside": loss.inside.value,
                "out": loss.out.value,
                "rel_loss": loss.rel_loss.value,
                "rel_loss_low": loss.rel_loss.low,
                "rel_loss_high": loss.rel_loss.high,
                "query_loss_n": len(spread),
                "query_loss_q1": spread.quantile(0.25, "linear"),
                "query_loss_median": spread.median(),
                "query_loss_q3": spread.quantile(0.75, "linear"),
            }
        rows.append(row)
    return pl.DataFrame(rows, schema=_INTERVALS)


_COUNTS = ("n", "query_loss_n")
_COLUMNS = ("low", "high", "n", "inside", "out", "rel_loss", "rel_loss_low", "rel_loss_high")
_QUARTILES = ("query_loss_n", "query_loss_q1", "query_loss_median", "query_loss_q3")
_INTERVALS = {name: pl.Int64() if name in _COUNTS else pl.Float64() for name in (*_COLUMNS, *_QUARTILES)}
