"""Near and far parts of queries compared, with the parts as random draws, not the queries alone.

Kinds of queries differ in how well a system and its pivot get along, whether or not the system was trained on them.
Resampling queries cannot see that spread, so it finds a loss in a quarter of the parts that a model *was* trained on.
Here a part's mean is its expected value, plus a draw of its kind (variance τ²), plus the draw of its queries (σ² / n):
the random-effects model of meta-regression, with τ² by Paule and Mandel (1982) and the t-test of Knapp and Hartung
(2003, Statistics in Medicine 22), which keeps its rate with few parts.

Arrays have an element for each query: ``parts`` is the number of its part, ``near`` or ``far`` whether that is one.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from eval_kit.stats import p_values

type Floats = NDArray[np.float64]
type Flags = NDArray[np.bool_]
type Parts = NDArray[np.int64]

LEVEL, POWER = 0.95, 0.8
FEWEST_PARTS = 6
"""Near parts, and far parts, below which their spread cannot be told from chance."""
_STEPS = 64


@dataclass(frozen=True)
class Contrast:
    """Far parts less near parts.

    Attributes:
        difference: of the expected part means; negative: less on the far parts.
        low: lower end of the 95 % interval.
        high: upper end.
        error: standard error of the difference.
        p: of no difference, two-sided.
        degrees: of freedom: parts − 2.
        spread: τ, the standard deviation of the kinds of parts.
        detectable: the least difference that this design finds in 80 % of cases.
    """

    difference: float
    low: float
    high: float
    error: float
    p: float
    degrees: int
    spread: float
    detectable: float

    def p_worse_than(self, loss: float) -> float:
        """One-sided p-value of a difference below −``loss``: small where the far parts lose less than that."""
        return p_values.above_t((self.difference + loss) / self.error, self.degrees)


def adjusted_gain(gain: Floats, covariates: Floats, parts: Parts, near: Flags) -> Floats:
    """The gain less what the covariates predict, by a ridge regression fitted on near parts.

    The penalty is 1 on each standardised covariate: nothing with hundreds of queries, a brake with twenty. Each near
    part is predicted from the other near parts alone, so that its figure is as out-of-sample as a far part's
    (cross-fitting, Chernozhukov et al. 2018). ``covariates`` (n, k) are what makes queries easy, such as the pivots'
    values.
    """
    scale = covariates[near].std(axis=0)
    standard = (covariates - covariates[near].mean(axis=0))[:, scale > 0] / scale[scale > 0]
    design = np.column_stack([np.ones(len(gain)), standard])
    ridge = np.diag([0.0, *np.ones(standard.shape[1])])
    products, moments = design[near].T @ design[near] + ridge, design[near].T @ gain[near]
    predictions = design @ _solve(products, moments)
    for part in np.unique(parts[near]):
        rows = parts == part
        rest = _solve(products - design[rows].T @ design[rows], moments - design[rows].T @ gain[rows])
        predictions[rows] = design[rows] @ rest
    return gain - predictions


def contrast(values: Floats, parts: Parts, far: Flags) -> Contrast | None:
    """Far parts less near parts; None with fewer than :data:`FEWEST_PARTS` parts on a side, or if nothing varies."""
    means, variances, of_far = _part_means(values, parts, far)
    if min(of_far.sum(), (~of_far).sum()) < FEWEST_PARTS or not variances.any():
        return None
    design = np.column_stack([np.ones(len(means)), of_far])
    spread = _between(means, variances, design)
    coefficients, covariance = _weighted_regression(means, variances + spread, design)
    degrees, error = len(means) - 2, float(np.sqrt(covariance[1, 1]))
    difference, reach = float(coefficients[1]), quantile_of_t(LEVEL, degrees) * error
    return Contrast(
        difference=difference,
        low=difference - reach,
        high=difference + reach,
        error=error,
        p=p_values.of_t(difference / error, degrees),
        degrees=degrees,
        spread=float(np.sqrt(spread)),
        detectable=reach + quantile_of_t(2 * POWER - 1, degrees) * error,
    )


def quantile_of_t(level: float, degrees: int) -> float:
    """The t that a share ``level`` of Student's distribution lies within, on both sides of 0."""
    return _root(lambda t: p_values.of_t(t, degrees) - (1 - level), 1e4)  # the widest, of 0.95 and one degree, is 12.7


def _part_means(values: Floats, parts: Parts, far: Flags) -> tuple[Floats, Floats, Flags]:
    """Mean of each part, its variance by the pooled variance of queries, and whether it is far."""
    _, index, sizes = np.unique(parts, return_inverse=True, return_counts=True)
    means = np.bincount(index, values) / sizes
    residual = values - means[index]
    variance = float(residual @ residual) / max(len(values) - len(means), 1)
    return means, variance / sizes, np.bincount(index, far) > 0


def _between(means: Floats, variances: Floats, design: Floats) -> float:
    """τ² by Paule and Mandel: the value at which the weighted residuals have their expected size."""

    def excess(spread: float) -> float:
        coefficients, _ = _weighted_regression(means, variances + spread, design)
        residual = means - design @ coefficients
        size = float((residual**2 / (variances + spread)).sum())
        return size - float(len(means) - design.shape[1])

    if excess(0.0) <= 0:
        return 0.0
    return _root(excess, float(means.var()) * len(means) + 1e-12)


def _root(falling: Callable[[float], float], high: float) -> float:
    """Where a falling function is 0, between 0 and ``high``."""
    low = 0.0
    for _ in range(_STEPS):
        middle = (low + high) / 2
        low, high = (middle, high) if falling(middle) > 0 else (low, middle)
    return (low + high) / 2


def _weighted_regression(means: Floats, variances: Floats, design: Floats) -> tuple[Floats, Floats]:
    """Coefficients of the weighted regression, and their covariance after Knapp and Hartung."""
    weights = 1 / variances
    inverse = np.linalg.inv((design * weights[:, None]).T @ design)
    coefficients = inverse @ (design.T @ (weights * means))
    residual = means - design @ coefficients
    size = float((residual**2 * weights).sum()) / (len(means) - design.shape[1])
    return coefficients, inverse * size


def _solve(products: Floats, moments: Floats) -> Floats:
    solution: Floats = np.linalg.lstsq(products, moments, rcond=None)[0]
    return solution
