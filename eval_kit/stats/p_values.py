"""P-values of Student's t and of correlation coefficients, without scipy, which would be a third of an installation."""

import math
from collections.abc import Sequence
from itertools import count, permutations

import numpy as np
from numpy.typing import NDArray

_EXACT_SPEARMAN = 9
"""Pairs up to which Spearman's coefficient is compared with that of every order (9! = 362,880)."""

_ORDERS = 19_999
"""Orders that are drawn where pairs are of several groups: a p of 0.05 is known to ± 0.003."""


def of_t(t: float, degrees: float) -> float:
    """The two-sided p-value: the chance that Student's t with these degrees of freedom is at least as far from 0.

    It is the regularised incomplete beta function at degrees / (degrees + t²) with a = degrees / 2 and b = 1 / 2
    (Abramowitz and Stegun 26.5.27), whose continued fraction (26.5.8) converges fast on one side of its mean.
    """
    if t == 0 or math.isinf(t):
        return float(t == 0)
    a, square = degrees / 2, t * t
    front = math.sqrt(square / (degrees + square)) * math.exp(-a * math.log1p(square / degrees))
    front *= _gamma_ratio(a) / math.sqrt(math.pi)
    x = degrees / (degrees + square)
    if x < (a + 1) / (a + 2.5):
        return front * _beta_fraction(a, 0.5, x) / a
    return 1 - front * _beta_fraction(0.5, a, square / (degrees + square)) / 0.5


def above_f(f: float, above: float, below: float) -> float:
    """The chance that Fisher's F with these degrees of freedom is greater (Abramowitz and Stegun 26.6.2)."""
    a, b, x = below / 2, above / 2, below / (below + above * f)
    if x >= 1:
        return 1.0
    front = math.exp(math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x))
    if x < (a + 1) / (a + b + 2):
        return float(front * _beta_fraction(a, b, x) / a)
    return 1 - front * _beta_fraction(b, a, 1 - x) / b


def of_one_sign(n: float) -> float:
    """The sign test's two-sided p-value of n differences of one sign."""
    return min(1.0, math.exp2(-n) * 2)


def of_rho(x: NDArray[np.float64], y: NDArray[np.float64], rho: float) -> float:
    """The p-value of Spearman's coefficient of n ≥ 3 pairs, given their ranks, both (n,).

    Up to nine pairs it is the share of all orders of y whose coefficient is at least as far from 0; above, by its t,
    which finds twice too much with five.
    """
    n = len(x)
    if n <= _EXACT_SPEARMAN:
        centred = y - y.mean()
        products = np.array(list(permutations(centred))) @ (x - x.mean())
        return float((np.abs(products) >= abs(centred @ (x - x.mean())) - 1e-9).mean())
    return of_r(rho, n - 2)


def of_order_within(sides: Sequence[NDArray[np.float64]], groups: NDArray[np.intp], seed: int) -> float:
    """The p-value of a rank correlation of pairs of several groups: of orders within them, as groups differ anyway.

    Args:
        sides: ranks, each (n,): x, y, and what is given, which is taken out of both.
        groups: (n,), from 0.
        seed: of the orders that are drawn.
    """
    x, y, *given = (side - (np.bincount(groups, side) / np.bincount(groups))[groups] for side in sides)
    for other in given:
        x, y = (side - other * (side @ other) / (other @ other or 1.0) for side in (x, y))
    rng, orders = np.random.default_rng([seed, 2]), np.tile(y, (_ORDERS, 1))
    for group in range(groups.max() + 1):
        orders[:, groups == group] = rng.permuted(orders[:, groups == group], axis=1)
    for other in given:  # out of each order too, as it was of y (Freedman and Lane 1983)
        orders -= np.outer(orders @ other / (other @ other or 1.0), other)
    lengths = np.linalg.norm(orders, axis=1) / (np.linalg.norm(y) or 1.0)
    as_far = int((np.abs(orders @ x) >= (abs(y @ x) - 1e-9) * lengths).sum())
    return (as_far + 1) / (_ORDERS + 1)


def of_r(r: float, degrees: int) -> float:
    """The p-value of a correlation, by its t with these degrees of freedom: n − 2, or n − 3 of a partial one."""
    rest = (1 + r) * (1 - r)
    return of_t(r * math.sqrt(degrees / rest), degrees) if rest > 0 else 0.0


def _gamma_ratio(a: float) -> float:
    """Γ(a + 1/2) / Γ(a); by its asymptotic series where the difference of two logarithms would lose digits."""
    if a < 20:
        return math.exp(math.lgamma(a + 0.5) - math.lgamma(a))
    series = (-1 / 8, 1 / 192, -1 / 640, 17 / 14336)
    return math.sqrt(a) * math.exp(sum(term / a**power for power, term in zip((1, 3, 5, 7), series, strict=True)))


def _beta_fraction(a: float, b: float, x: float) -> float:
    """The continued fraction of the incomplete beta function, by Lentz's method."""
    fraction = last = 1 / (1 - (a + b) * x / (a + 1))
    ratio = 1.0
    for m in count(1):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        change = 1.0
        for term in (even, odd):
            last = 1 / (1 + term * last)
            ratio = 1 + term / ratio
            change = last * ratio
            fraction *= change
        if not abs(change - 1) >= 1e-16:  # a t that is no number would never end
            break
    return fraction
