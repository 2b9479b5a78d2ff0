"""Paired differences between two systems, in all queries and in each part of a division; and a gate."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from eval_kit.stats import p_values
from eval_kit.stats.figure import POWER, Figure, quantile_of_t
from eval_kit.stats.groups import greater_error
from eval_kit.stats.parts import Floats
from eval_kit.tables.table import ALPHA

type Integers = NDArray[np.int64]

WORSE, NOT_WORSE, UNCHANGED, CANNOT_TELL = "worse", "not worse", "no query changed", "cannot tell"
_MANY = 1e6
"""Degrees of freedom of a normal distribution."""
UNDRAWN = 100
"""Queries below which an interval says nothing of great losses that were not drawn: of 43, one in 15 may lose all."""
FEW_DRAWN = f"Intervals of fewer than {UNDRAWN} queries say nothing of great losses in queries that were not drawn"
ROUNDING = 1e-9
"""Values of the same ranks may differ by so much, in the last bit."""


@dataclass(frozen=True)
class Difference(Figure):
    """The mean gain of some queries (negative: a loss).

    Attributes:
        helped: queries with a gain.
        hurt: with a loss.
        most: what a query can lose at most, in the measure's unit.
        queries: how many.
        ratio: of its error to that of as many independent queries (:mod:`eval_kit.stats.groups`).
    """

    helped: int = 0
    hurt: int = 0
    most: float = 1.0
    queries: int = 0
    ratio: float = 1.0

    @property
    def differ(self) -> int:
        """Queries that differ."""
        return self.helped + self.hurt

    def p_loses(self, margin: float) -> float | None:
        """As of a figure, with the error that a loss of the margin has at least where few queries lose all.

        A broken shard costs few queries everything: a sample without one of them says little of the next. If a loss of
        the margin is that of few queries, the variance of a query is at least the margin times ``most``.
        """
        if self.error is None:
            return None
        least = math.sqrt(margin * self.most / self.queries)
        return Figure(self.value, max(self.error, least), self.degrees).p_loses(margin)

    def needed_to_show(self, tests: int) -> int | None:
        """Queries with which this difference is found in 80 % of cases, among so many tests; None if nothing varies."""
        found = self.detectable(tests)
        ratio = abs(found / self.value) if found and self.value else 0.0
        return math.ceil(self.queries * ratio**2) if 0 < ratio < _MANY else None

    def detectable_loss(self, tests: int) -> float | None:
        """The least loss that is found in 80 % of cases also where it is that of few queries, as in :meth:`p_loses`."""
        found = self.detectable(tests)
        return found and max(found, (found / (self.error or 1.0)) ** 2 * self.most / self.queries)

    def needed(self, margin: float, tests: int) -> int:
        """Queries with which less than ``margin`` is shown in 80 % of cases where nothing is lost.

        At the first step of Holm's correction of so many tests. Where nothing varies, 2.7 / margin show it always.
        """
        reach = quantile_of_t(1 - 2 * ALPHA / tests, _MANY)
        deviation = (self.error or 0.0) * self.queries**0.5
        counted = max(deviation, (margin * self.most) ** 0.5)  # as in p_loses
        needed: float = ((reach * counted + quantile_of_t(2 * POWER - 1, _MANY) * deviation) / margin) ** 2
        return math.ceil(needed)


def difference(gains: Floats, most: float = 1.0, groups: Integers | None = None) -> Difference:
    """The mean gain of queries (n,); the arguments are those of :func:`differences`."""
    [found], _ = differences(gains, np.zeros(len(gains), np.int64), 1, gains, most, groups)
    return found


def differences(
    values: Floats, parts: Integers, count: int, every: Floats, most: float = 1.0, groups: Integers | None = None
) -> tuple[list[Difference], list[float | None]]:
    """The mean gain in each part, and how far chance is from explaining that it is not that of the rest.

    Args:
        values: (m,) the gain of the query of each membership; a query may be in several parts, once in each.
        parts: (m,) the number of its part, from 0.
        count: of parts.
        every: (n,) that of every query in a part, each once.
        most: what a query can lose at most, in the measure's unit.
        groups: (m,) the number of the group of each membership's query, if queries may hang together.

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
    ends = np.bincount(parts, minlength=count).cumsum()[:-1]
    by_part = np.argsort(parts, kind="stable")
    off = np.split(values[by_part], ends)
    # one group of all queries, as in a test of a single passage, tells nothing apart
    divides = groups is not None and len(np.unique(groups)) > 1
    together = np.split(groups[by_part], ends) if groups is not None and divides else None
    for part, n in enumerate(np.bincount(parts, minlength=count).tolist()):
        own = _moments(n, sums[part], squares[part])
        own_error = None if n < 2 else math.sqrt(own[1] / n)
        of_groups = None if together is None else together[part]
        error, degrees, ratio = greater_error(own_error, n - 1.0, off[part] - own[0], of_groups)
        found = Difference(own[0], error, degrees, helped=int(helped[part]), hurt=int(hurt[part]))
        of_parts.append(replace(found, most=most, queries=n, ratio=ratio))
        rest = number - n
        of_rest = _moments(rest, total - sums[part], square - squares[part])
        of_both = [(mean, variance * ratio**2) for mean, variance in (own, of_rest)]
        to_rest.append(_apart(of_both[0], of_both[1], n, rest))
    return of_parts, to_rest


def _apart(one: tuple[float, float], other: tuple[float, float], n: int, m: int) -> float | None:
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
