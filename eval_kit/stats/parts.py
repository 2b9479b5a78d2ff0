"""Parts of the queries as random draws of kinds: what holds of kinds like these, and far parts beside near ones.

Kinds of queries differ in how well a system and its pivot get along, whether or not the system was trained on them.
Resampling queries cannot see that spread, so it finds a loss in a quarter of the parts that a model *was* trained on.
Here a part's mean is its expected value, plus a draw of its kind (variance τ²), plus the draw of its queries: the
random-effects model of meta-analysis, with τ² by Paule and Mandel (1982) and the t-test of Knapp and Hartung (2003,
Statistics in Medicine 22), which keeps its rate with few parts.

The variance of queries within parts is pooled over parts. A part's own goes with its mean where losses are rare or
skewed (a part that happens to lose nothing has no variance), so that weights by it would favour parts without a loss.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from eval_kit.stats import p_values
from eval_kit.stats.figure import LEVEL, Figure, quantile_of_t

type Floats = NDArray[np.float64]
type Flags = NDArray[np.bool_]
type Parts = NDArray[np.int64]

FEWEST_PARTS = 6
"""Near parts, and far parts, below which their spread cannot be told from chance."""
_STEPS, _ROUNDING = 64, 1e-9


@dataclass(frozen=True)
class Heterogeneity(Figure):
    """What is expected of a part that is a random draw of its kind, and how much such parts differ.

    Attributes:
        spread: τ, the standard deviation of the kinds of parts.
        q: F* of Brown and Forsythe (1974, Technometrics 16): about 1 if the parts differ by chance alone.
        p_q: that of F*, with the degrees of Mehrotra (1997, Communications in Statistics 26).
        parts: how many.
    """

    value: float = 0.0
    error: float = 0.0
    spread: float = 0.0
    q: float = 0.0
    p_q: float = 1.0
    parts: int = 0


@dataclass(frozen=True)
class Contrast(Figure):
    """Far parts minus near parts, each side with its own spread (Welch); negative: less on the far parts.

    The degrees are Welch's and Satterthwaite's; ``spread`` is τ of the near and of the far parts.
    """

    value: float = 0.0
    error: float = 0.0
    spread: tuple[float, float] = (0.0, 0.0)


def heterogeneity(means: Floats, errors: Floats, sizes: Floats) -> Heterogeneity | None:
    """What parts say of kinds like theirs; None with fewer than two, or where none of them varies.

    The interval covers two: that of the mean weighted by precision, and that of the parts' plain mean, which holds
    also where the figures go with the parts' sizes. With parts of one size they are the same.

    Args:
        means: (parts,) of each part's figure: a mean, a difference, a Rel Loss.
        errors: (parts,) the standard error of each, over its queries; 0 where they do not vary.
        sizes: (parts,) the queries of each, at least two.
    """
    count = len(means)
    if count < 2 or not errors.any():
        return None
    own = errors**2 * sizes
    noise = own @ (sizes - 1) / (sizes - 1).sum() / sizes
    mean, variance, spread = _of_kinds(means, noise)
    # parts that happen to agree are not without doubt
    doubt = float(noise.mean()) / count
    error, of_plain = (float(np.sqrt(each or doubt)) for each in (variance, means.var(ddof=1) / count))
    reach, plain = quantile_of_t(LEVEL, count - 1), float(means.mean())
    ends = min(mean - reach * error, plain - reach * of_plain), max(mean + reach * error, plain + reach * of_plain)
    q, chance = _differ(means, own, sizes)
    return Heterogeneity(mean, error, count - 1, ends, spread=spread, q=q, p_q=chance, parts=count)


def _differ(means: Floats, variances: Floats, sizes: Floats) -> tuple[float, float]:
    """F* and the chance that it is greater if parts of those means and variances of queries differ by chance alone.

    Neither skew nor parts of unequal noise raise its rate (bench/zoo.py), as they do that of Cochran's Q.
    """
    shares = sizes / sizes.sum()
    expected = (1 - shares) * variances
    f = float(sizes @ (means - shares @ means) ** 2 / expected.sum())
    below = expected.sum() ** 2 / (expected**2 / (sizes - 1)).sum()
    above = expected.sum() ** 2 / (variances @ variances + (shares @ variances) ** 2 - 2 * shares @ variances**2)
    return f, p_values.above_f(f, float(above), float(below))


def contrast(values: Floats, parts: Parts, far: Flags) -> Contrast | None:
    """Far parts minus near parts; None with fewer than :data:`FEWEST_PARTS` parts on a side, or if nothing varies.

    Args:
        values: (n,) of each query.
        parts: (n,) the number of its part.
        far: (n,) whether that is far.
    """
    sides = []
    for side in (~far, far):
        _, index, sizes = np.unique(parts[side], return_inverse=True, return_counts=True)
        if len(sizes) < FEWEST_PARTS:
            return None
        means = np.bincount(index, values[side]) / sizes
        noise = within(values[side], values[side], index) / sizes
        sides.append((*_of_kinds(means, np.maximum(noise, _least(means))), len(means) - 1))
    (near, of_near, near_spread, near_degrees), (distant, of_far, far_spread, far_degrees) = sides
    variance = of_near + of_far
    if not variance:
        return None
    degrees = variance**2 / (of_near**2 / near_degrees + of_far**2 / far_degrees)
    return Contrast(distant - near, float(np.sqrt(variance)), degrees, spread=(near_spread, far_spread))


def within(a: Floats, b: Floats, index: NDArray[np.integer]) -> float:
    """The covariance of queries of one part, pooled over parts; ``index`` (n,) numbers the parts from 0."""
    sizes = np.bincount(index)
    a_off, b_off = (each - (np.bincount(index, each) / sizes)[index] for each in (a, b))
    return float(a_off @ b_off) / max(len(a) - len(sizes), 1)


def between(means: Floats, variances: Floats) -> float:
    """τ² by Paule and Mandel, at which the weighted residuals have their expected size: by Newton's method from 0."""
    spread = 0.0
    for _ in range(_STEPS):
        weights = 1 / (variances + spread)
        residual = weights * (means - weights @ means / weights.sum())
        excess = float(residual @ (residual / weights)) - (len(means) - 1)
        if excess <= _ROUNDING:
            break
        spread += excess / float(residual @ residual)
    return spread


def _of_kinds(means: Floats, variances: Floats) -> tuple[float, float, float]:
    """The expected mean, its variance by Knapp and Hartung, and τ."""
    tau2 = between(means, variances)
    weights = 1 / (variances + tau2)
    variance = _misfit(means, variances + tau2) / (len(means) - 1) / weights.sum()
    return float(weights @ means / weights.sum()), float(variance), float(np.sqrt(tau2))


def _misfit(means: Floats, variances: Floats) -> float:
    """The weighted squares of the parts' distances to their weighted mean: Cochran's Q, with their own variances."""
    weights = 1 / variances
    return float(weights @ (means - weights @ means / weights.sum()) ** 2)


def _least(means: Floats) -> float:
    """A variance to divide by, where the queries of parts do not vary."""
    # an error of a millionth of the figures' size, far below any spread that queries have, and above 0 where all
    # figures are 0; chosen to divide by, not by an experiment
    return 1e-12 * float((means**2).mean()) + 1e-30
