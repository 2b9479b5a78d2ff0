"""Queries in intervals of a similarity, with the loss in each: the data of Figures 4 to 6 of ECIR 2023."""

from itertools import pairwise
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import ArrayLike, NDArray

from eval_kit.stats.losses import relative_loss
from eval_kit.stats.parts import Floats

_BINS = 10


def edges(r: ArrayLike) -> Floats:
    """Cut the range of similarities (n,) into ten intervals of equal counts; into fewer where many values are equal.

    Returns:
        Ascending edges, one more than there are intervals; the first and last are the least and greatest value.
    """
    distinct = np.unique(np.quantile(np.asarray(r, np.float64), np.linspace(0, 1, _BINS + 1)))
    return distinct if len(distinct) > 1 else np.repeat(distinct, 2)


def interval_of(r: ArrayLike, cuts: Floats) -> NDArray[np.int64]:
    """The number of the interval (from 0) that each value lies in: [low, high), the last [low, high]."""
    return np.searchsorted(cuts[1:-1], np.asarray(r, np.float64), side="right")


def loss_by_interval(r: ArrayLike, inside: ArrayLike, out: ArrayLike, cuts: Floats, seed: int = 0) -> pl.DataFrame:
    """The loss of the queries in each interval of similarity (ECIR 2023, Figures 4 and 5).

    Args:
        r: (n,) similarities.
        inside: In of the same queries, (n,) or (seeds, n), of one measure and system.
        out: Out, in the same shape.
        cuts: from :func:`edges`.
        seed: for the bootstrap (see :func:`eval_kit.stats.losses.relative_losses`).

    Returns:
        One row per interval: ``low`` and ``high`` (of the similarity), ``n`` (Figure 4); ``inside``, ``out`` and
        ``rel_loss`` (of the means, with ``rel_loss_low`` and ``rel_loss_high``; Figure 5). Null where an interval is
        empty or In is 0.
    """
    sides = np.asarray(inside, np.float64), np.asarray(out, np.float64)
    number = interval_of(r, cuts)
    rows = []
    for interval, (low, high) in enumerate(pairwise(cuts)):
        in_interval = number == interval
        row: dict[str, Any] = {"low": low, "high": high, "n": int(in_interval.sum())}
        if in_interval.any():
            of_in, of_out, loss = relative_loss(*(side[..., in_interval] for side in sides), seed=seed)
            row |= {"inside": of_in.value, "out": of_out.value} | loss.columns("rel_loss")
        rows.append(row)
    return pl.DataFrame(rows, _INTERVALS)


_COLUMNS = ("low", "high", "n", "inside", "out", "rel_loss", "rel_loss_low", "rel_loss_high")
_INTERVALS = {name: pl.Int64() if name == "n" else pl.Float64() for name in _COLUMNS}
