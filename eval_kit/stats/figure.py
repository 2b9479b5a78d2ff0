"""A figure and what its uncertainty says: interval, p, p of a margin, and what would be found; in one place for all."""

import math
from dataclasses import dataclass
from functools import cache

from eval_kit.stats import p_values

LEVEL, POWER = 0.95, 0.8
# halvings of 10,000, after which nothing is left but a float's last digit
_STEPS = 64


@dataclass(frozen=True)
class Figure:
    """A mean, a difference, a loss, a correlation; tests are of it being 0, by Student's t unless they are given.

    Attributes:
        value: None where it is undefined.
        error: its standard error: 0 where nothing varies, None where nothing can be said, as of a single query.
        degrees: of freedom; of a mean of n, n − 1.
        ends: of its 95 % interval, where that is not by ``error``: percentiles of resamples.
        chance: its p, likewise.
        undefined: resamples in which it had no value; the interval is that of the others.
    """

    value: float | None = None
    error: float | None = None
    degrees: float = math.inf
    ends: tuple[float, float] | None = None
    chance: float | None = None
    undefined: int = 0

    @property
    def interval(self) -> tuple[float, float] | tuple[None, None]:
        """The 95 % interval; none where nothing varies, as what is certain of these queries is not so of others."""
        return self.ends or self.interval_of(1)

    def interval_of(self, tests: int) -> tuple[float, float] | tuple[None, None]:
        """The interval, as wide as so many need that hold all together in 95 % of cases (Bonferroni)."""
        if self.value is None or not self.error:
            return None, None
        level = 1 - (1 - LEVEL) / tests
        reach = quantile_of_t(level, self.degrees)
        return self.value - reach * self.error, self.value + reach * self.error

    @property
    def p(self) -> float | None:
        """Of no difference, two-sided; where all differ by the same, of the sign test; None where nothing differs."""
        if self.chance is not None or self.value is None or self.error is None:
            return self.chance
        if self.error:
            return p_values.of_t(self.value / self.error, self.degrees)
        # t would be infinite, of three queries as of three thousand; the signs still say how many there are
        return p_values.of_one_sign(self.degrees + 1) if self.value else None

    def p_loses(self, margin: float) -> float | None:
        """One-sided, of a value of −``margin`` or less: small where less is lost; None where nothing can be said."""
        if self.value is None or self.error is None:
            return None
        beyond = self.value + margin
        if abs(beyond) < 1e-12:  # a loss of the margin itself, but for the last digit
            beyond = 0.0
        two_sided = p_values.of_one_sign(self.degrees + 1)
        if self.error:
            two_sided = p_values.of_t(beyond / self.error, self.degrees)
        if beyond <= 0:
            return 1 - two_sided / 2 if self.error else 1.0
        return two_sided / 2

    def detectable(self, tests: int) -> float | None:
        """The least loss that is found in 80 % of cases, at the first step of Holm's correction of so many tests.

        None where nothing varies.
        """
        if not self.error:
            return None
        # the test's own t, and the one below which 80 % of draws stay: 60 % lie between it and its negative
        found = quantile_of_t(1 - (1 - LEVEL) / tests, self.degrees) + quantile_of_t(2 * POWER - 1, self.degrees)
        return found * self.error

    def columns(self, name: str) -> dict[str, float | None]:
        """The figure and its interval as the columns of a row."""
        low, high = self.interval
        return {name: self.value, f"{name}_low": low, f"{name}_high": high}


@cache
def quantile_of_t(level: float, degrees: float) -> float:
    """The t that a share ``level`` of Student's distribution lies within, on both sides of 0."""
    low, high = 0.0, 1e4  # the widest, of 0.95 and one degree, is 12.7
    for _ in range(_STEPS):
        middle = (low + high) / 2
        low, high = (middle, high) if p_values.of_t(middle, degrees) > 1 - level else (low, middle)
    return (low + high) / 2
