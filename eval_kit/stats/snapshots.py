"""What systems keep from one snapshot of queries to another: LongEval's figures, with intervals over queries.

Columns are a system's value on each query of either snapshot, NaN where a snapshot lacks the query: a query of both is
one draw, whose values belong together; the others are independent. Intervals are by Student's t, with the degrees of
freedom of the smaller snapshot: of a ratio by Fieller (1954, JRSS B 16), which says where chance could make its
denominator 0; of other figures linearised.
"""

import numpy as np

from eval_kit.stats.differences import ROUNDING
from eval_kit.stats.figure import LEVEL, Figure, quantile_of_t
from eval_kit.stats.parts import Floats
from eval_kit.tables.table import ALPHA


def effect_ratio(columns: Floats) -> Figure:
    """ER: the difference of means from the pivot's, after / before (Breuer et al., SIGIR 2020). 1: all is kept.

    Undefined where the difference before is not shown to be one: any ratio is possible then.

    Args:
        columns: (4, queries) a system before and after, then the pivot.
    """
    means, covariance, degrees = _moments(columns)
    after, before = np.array([[0.0, 1, 0, -1], [1, 0, -1, 0]])
    shown = Figure(float(before @ means), _error(before, covariance), degrees).p
    return Figure() if shown is None or shown >= ALPHA else _ratio(after, before, means, covariance, degrees)


def delta_ri(columns: Floats) -> Figure:
    """ΔRI: the relative improvement of means over the pivot's, before − after (Breuer et al., SIGIR 2020). 0: all kept.

    Args:
        columns: as for :func:`effect_ratio`.
    """
    means, covariance, degrees = _moments(columns)
    before, after, pivot_before, pivot_after = means.tolist()
    if not pivot_before or not pivot_after:
        return Figure()
    value = before / pivot_before - after / pivot_after
    slopes = [1 / pivot_before, -1 / pivot_after, -before / pivot_before**2, after / pivot_after**2]
    return Figure(value, _error(np.array(slopes), covariance), degrees)


def _moments(columns: Floats) -> tuple[Floats, Floats, int]:
    """The means (k,), the covariance (k, k) of the means (NaN of a single query), and degrees of freedom."""
    counts = (~np.isnan(columns)).sum(axis=1)
    means = np.nansum(columns, axis=1) / counts
    with np.errstate(divide="ignore", invalid="ignore"):
        off = np.nan_to_num(columns - means[:, None]) / np.sqrt(counts * (counts - 1.0))[:, None]
    return means, off @ off.T, int(counts.min()) - 1


def _error(weights: Floats, covariance: Floats) -> float | None:
    """The standard error of a weighted sum of means; 0 where it is but rounding; None of a single query."""
    square = float(weights @ covariance @ weights)
    scale = float(np.abs(weights) @ np.abs(covariance) @ np.abs(weights))
    return None if np.isnan(square) else 0.0 if square <= 1e-12 * scale else square**0.5


def _ratio(above: Floats, below: Floats, means: Floats, covariance: Floats, degrees: int) -> Figure:
    """The ratio of two weighted sums of means: all ratios r for which above − r · below may be 0."""
    a, b = float(above @ means), float(below @ means)
    if not b:
        return Figure()
    if degrees < 1:
        return Figure(a / b)
    t2 = quantile_of_t(LEVEL, degrees) ** 2
    square, middle, rest = (
        x - t2 * float(v @ covariance @ w)
        for x, v, w in ((b * b, below, below), (a * b, above, below), (a * a, above, above))
    )
    if square <= 1e-12 * b * b:
        return Figure(a / b)
    root = max(middle * middle - square * rest, 0.0) ** 0.5
    if root <= ROUNDING * abs(square):  # nothing varies
        return Figure(a / b)
    return Figure(a / b, ends=((middle - root) / square, (middle + root) / square))
