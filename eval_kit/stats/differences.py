"""Paired differences between two systems, in all queries and in each part of a division; and a gate."""

import numpy as np
from numpy.typing import NDArray

from eval_kit.stats import p_values
from eval_kit.stats.figure import Figure
from eval_kit.stats.parts import Floats

type Integers = NDArray[np.int64]

WORSE, NOT_WORSE, CANNOT_TELL = "worse", "not worse", "cannot tell"
ALPHA = 0.05
"""Family-wise error rate of verdicts."""


def differences(values: Floats, parts: Integers, count: int) -> tuple[list[Figure], list[float | None]]:
    """The mean difference in each part, and how far chance is from explaining that it is not that of the rest.

    Args:
        values: (m,) the difference of the query of each membership; a query may be in several parts.
        parts: (m,) the number of its part, from 0.
        count: of parts.

    Returns:
        One difference a part (negative: a loss), and the two-sided p (Welch's t-test) of no difference to the queries
        of other parts; None where that cannot be tested.
    """
    sizes = np.bincount(parts, minlength=count)
    sums, squares = (np.bincount(parts, each, minlength=count) for each in (values, values**2))
    of_parts: list[Figure] = []
    to_rest: list[float | None] = []
    for n, total, square in zip(sizes.tolist(), sums.tolist(), squares.tolist(), strict=True):
        mean, variance = _moments(n, total, square)
        of_parts.append(Figure(mean, None if n < 2 else (variance / n) ** 0.5, n - 1))
        rest = len(values) - n
        other, variance_of_rest = _moments(rest, values.sum() - total, (values**2).sum() - square)
        noise = (variance / n, variance_of_rest / rest) if min(n, rest) > 1 else (0.0, 0.0)
        if not sum(noise):
            to_rest.append(None)
            continue
        degrees = sum(noise) ** 2 / (noise[0] ** 2 / (n - 1) + noise[1] ** 2 / (rest - 1))
        to_rest.append(p_values.of_t((mean - other) / sum(noise) ** 0.5, degrees))
    return of_parts, to_rest


def verdict(p_worse: float | None, p_loses: float | None, mean: float) -> str:
    """What is shown of a loss, by p-values after correction: less than the margin, some, or neither.

    Args:
        p_worse: two-sided, of no difference.
        p_loses: one-sided, of a loss of the margin or more.
        mean: the difference; negative: a loss.
    """
    if p_loses is not None and p_loses < ALPHA:
        return NOT_WORSE
    return WORSE if p_worse is not None and p_worse < ALPHA and mean < 0 else CANNOT_TELL


def _moments(n: int, total: float, square: float) -> tuple[float, float]:
    """The mean and variance of n values of that sum and sum of squares."""
    if not n:
        return 0.0, 0.0
    mean = total / n
    rounding = 1e-12 * square
    variance = square - n * mean**2
    return mean, max(variance, 0.0) / (n - 1) if n > 1 and variance > rounding else 0.0
