"""Paired differences between two systems, in all queries and in each part of a division; and a gate."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from eval_kit.stats import p_values
from eval_kit.stats.figure import POWER, Figure, quantile_of_t
from eval_kit.stats.parts import Floats
from eval_kit.tables.table import ALPHA

type Integers = NDArray[np.int64]

WORSE, NOT_WORSE, UNCHANGED, CANNOT_TELL = "worse", "not worse", "no query changed", "cannot tell"
# 20: with fewer a loss of the margin passed the gate in up to 42 % of draws (docs/evidence.md)
FEW_DIFFER = 20
"""Queries that differ below which nothing is known of the losses that were not drawn."""
_MANY = 1e6
"""Degrees of freedom of a normal distribution."""
ROUNDING = 1e-9
"""Values of the same ranks may differ by so much, in the last bit."""


@dataclass(frozen=True)
class Difference(Figure):
    """The mean gain of some queries (negative: a loss).

    Attributes:
        helped: queries with a gain.
        hurt: with a loss.
        most: what a query can lose at most, in the measure's unit.
    """

    helped: int = 0
    hurt: int = 0
    most: float = 1.0

    @property
    def differ(self) -> int:
        """Queries that differ."""
        return self.helped + self.hurt

    def interval_of(self, tests: int) -> tuple[float, float] | tuple[None, None]:
        """As of a figure; where few queries differ, with more that lose all at one end, or gain all at the other."""
        if self.differ >= FEW_DIFFER or not self.differ or self.error is None:
            return super().interval_of(tests)
        low, _ = self._with_more(-self.most, tests).interval_of(tests)
        _, high = self._with_more(self.most, tests).interval_of(tests)
        return (None, None) if low is None or high is None else (low, high)

    def p_loses(self, margin: float, tests: int = 1) -> float | None:
        """As of a figure, among so many tests; where few queries differ, with more that lose all.

        A broken shard costs few queries everything: a sample without one of them says little of the next.
        """
        if self.differ >= FEW_DIFFER or self.error is None:
            return super().p_loses(margin)
        return self._with_more(-self.most, tests).p_loses(margin)

    def detectable(self, tests: int) -> float | None:
        """As of a figure; None where so few queries differ that their variance says little."""
        return super().detectable(tests) if self.differ >= FEW_DIFFER else None

    def needed(self, margin: float, tests: int) -> int | None:
        """Queries with which less than ``margin`` is shown in 80 % of cases where nothing is lost; None if none vary.

        At the first step of Holm's correction of so many tests.
        """
        if not self.error or not self.differ:
            return None
        n = self.degrees + 1
        reach = quantile_of_t(1 - 2 * ALPHA / tests, _MANY)
        fewest = n * ((reach + quantile_of_t(2 * POWER - 1, _MANY)) * self.error / margin) ** 2
        # with so many some 20 differ, or one more that loses all is outweighed
        enough = min(1.25 * FEW_DIFFER * n / self.differ, fewest + (1 + reach) * _more(tests) * self.most / margin)
        return math.ceil(max(fewest, enough))

    def _with_more(self, value: float, tests: int) -> Figure:
        """The figure, had one more query this value, or as many as its chance of being unseen in all tests needs."""
        n, more = self.degrees + 1, _more(tests)
        mean = float(self.value or 0.0)
        squares = self.degrees * n * float(self.error or 0.0) ** 2 + (mean - value) ** 2 * n * more / (n + more)
        degrees = n + more - 1
        error = math.sqrt(squares / degrees / (n + more))
        return Figure((n * mean + more * value) / (n + more), error, degrees)


def _more(tests: int) -> float:
    """Losses of all that may be unseen: their share is below 3 / n at 95 %, and (3 + ln tests) / n at the corrected."""
    return 1 + math.log(tests) / 3


def difference(gains: Floats, most: float = 1.0) -> Difference:
    """The mean gain of queries (n,); the arguments are those of :func:`differences`."""
    [found], _ = differences(gains, np.zeros(len(gains), np.int64), 1, gains, most)
    return found


def differences(
    values: Floats, parts: Integers, count: int, every: Floats, most: float = 1.0
) -> tuple[list[Difference], list[float | None]]:
    """The mean gain in each part, and how far chance is from explaining that it is not that of the rest.

    Args:
        values: (m,) the gain of the query of each membership; a query may be in several parts, once in each.
        parts: (m,) the number of its part, from 0.
        count: of parts.
        every: (n,) that of every query in a part, each once.
        most: what a query can lose at most, in the measure's unit.

    Returns:
        One difference a part, and the two-sided p of no difference to the queries that are not in the part: the
        greater of Welch's t-test, which keeps its rate where the noise differs, and of that with a pooled variance,
        which keeps it where a part happens not to vary. None where that cannot be tested.
    """
    values, every = (np.where(np.abs(each) > ROUNDING, each, 0.0) for each in (values, every))
    columns = values, values**2, values > 0, values < 0
    sums, squares, helped, hurt = (np.bincount(parts, each, minlength=count).tolist() for each in columns)
    total, square, number = float(every.sum()), float((every**2).sum()), len(every)
    of_parts, to_rest = [], []
    for part, n in enumerate(np.bincount(parts, minlength=count).tolist()):
        own = _moments(n, sums[part], squares[part])
        error = None if n < 2 else math.sqrt(own[1] / n)
        counts = int(helped[part]), int(hurt[part])
        of_parts.append(Difference(own[0], error, n - 1, helped=counts[0], hurt=counts[1], most=most))
        rest = number - n
        to_rest.append(_apart(own, n, _moments(rest, total - sums[part], square - squares[part]), rest))
    return of_parts, to_rest


def _apart(one: tuple[float, float], n: int, other: tuple[float, float], m: int) -> float | None:
    """The p of equal means of n and m values, given both means and variances."""
    if min(n, m) < 2 or not one[1] + other[1]:
        return None
    noise = one[1] / n, other[1] / m
    degrees = sum(noise) ** 2 / (noise[0] ** 2 / (n - 1) + noise[1] ** 2 / (m - 1))
    pooled = ((n - 1) * one[1] + (m - 1) * other[1]) / (n + m - 2) * (1 / n + 1 / m)
    apart = one[0] - other[0]
    return max(p_values.of_t(apart / sum(noise) ** 0.5, degrees), p_values.of_t(apart / pooled**0.5, n + m - 2))


def verdict(p_worse: float | None, p_loses: float | None, mean: float, differ: int) -> str:
    """What is shown of a loss, by p-values after correction: less than the margin, some, or neither.

    Args:
        p_worse: two-sided, of no difference.
        p_loses: one-sided, of a loss of the margin or more.
        mean: the gain; negative: a loss.
        differ: queries that differ.
    """
    if not differ:
        return UNCHANGED
    if p_loses is not None and p_loses < ALPHA:
        return NOT_WORSE
    return WORSE if p_worse is not None and p_worse < ALPHA and mean < 0 else CANNOT_TELL


def overall(words: Sequence[str]) -> str:
    """The word of all parts together: one that is worse, or that cannot be told, decides."""
    return next((word for word in (WORSE, CANNOT_TELL, NOT_WORSE, UNCHANGED) if word in words), CANNOT_TELL)


def _moments(n: int, total: float, square: float) -> tuple[float, float]:
    """The mean and variance of n values of that sum and sum of squares."""
    if not n:
        return 0.0, 0.0
    mean = total / n
    rounding = 1e-12 * square
    variance = square - n * mean**2
    return mean, max(variance, 0.0) / (n - 1) if n > 1 and variance > rounding else 0.0
