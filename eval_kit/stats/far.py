"""What far queries cost a model, apart from what makes them hard: no word without two estimates that agree.

Far queries may be harder, or easier, for everybody. The gain over a pivot, such as BM25, takes off what is hard for
both alike (``plain``), but kinds of queries differ in how a model and its pivot get along. What the pivot's value *of a
query* predicts takes off more, but that value is difficulty plus luck, so its slope over queries is too small for the
difference of *parts* (regression dilution; Lord's paradox). The slope over the near parts says how much too small: it
is estimated without the noise of their means, and its doubt widens the interval where far is unlike near
(``adjusted``).

Each may be biased alone: ``plain`` where model and pivot do not share difficulty alike, ``adjusted`` where parts differ
for the pivot alone. A word needs both, so it is wrong more often than at its rate only if both are (intersection-union
test, Berger 1982, Technometrics 24). Experiments with a known truth are in docs/generalise.md.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from eval_kit.stats.differences import CANNOT_TELL
from eval_kit.stats.figure import LEVEL
from eval_kit.stats.parts import Contrast, Flags, Floats, Parts, between, contrast, within
from eval_kit.tables.table import ALPHA

DEGRADES, DOES_NOT = "degrades", "does not"
# the three limits are those whose rates of error are in docs/evidence.md ("Degrades, does not")
_LEAST_APART = 0.6
"""Chance that a far query is farther from training than a near one, below which "does not" says nothing of a shift."""
_LEAST_R = 0.38
"""Correlation of a model's values with what the pivot predicts of them, below which the pivot says too little."""
_FARTHEST = 2.0
"""Standard deviations of near parts, beyond which far is not like anything near."""
_SLOPES = np.linspace(-2.0, 6.0, 401)
# the slope is 1 / reliability of a query's pivot value, so 1.25 is that of values four fifths of which are difficulty;
# the doubt was 0.5 until the experiment of bench/zoo_generalise.py, whose rates are those of 0.8
_SLOPE, _DOUBT, _TAILS = 1.25, 0.8, 3
"""Before near parts are seen, their slope is 1.25 ± 0.8, by Student's t with three degrees of freedom."""


@dataclass(frozen=True)
class FarCost:
    """Far minus near, by both estimates.

    Attributes:
        plain: of the gain over the pivot.
        adjusted: of the value, minus what the pivot predicts for parts.
        slope: of near parts' values on what queries' pivot values predict; 1: no luck in the pivot's values.
        slope_error: its standard error.
        r: correlation of value and prediction over near queries.
        refusal: why neither may be turned into a word, or empty.
    """

    plain: Contrast
    adjusted: Contrast
    slope: float
    slope_error: float
    r: float
    refusal: str

    @property
    def interval(self) -> tuple[float, float]:
        """From the lower of the lower ends to the higher of the higher ends of both 95 % intervals."""
        ends = [end for each in (self.plain, self.adjusted) for end in each.interval if end is not None]
        return min(ends), max(ends)

    @property
    def p(self) -> float:
        """Of no difference that both estimates see, two-sided; 1 where they disagree on its direction."""
        agree = self.plain.value * self.adjusted.value > 0
        return self._greater(lambda each: each.p) if agree else 1.0

    def p_loses(self, margin: float) -> float:
        """One-sided p-value of a loss of ``margin`` or more, by whichever estimate excludes it less."""
        return self._greater(lambda each: each.p_loses(margin))

    def detectable(self, tests: int) -> float:
        """The least loss found in 80 % of cases at the first step of Holm's correction of so many tests."""
        apart = abs(self.plain.value - self.adjusted.value)
        return self._greater(lambda each: each.detectable(tests)) + apart

    def _greater(self, figure: Callable[[Contrast], float | None]) -> float:
        """The greater of both estimates' figures; a contrast varies, so it has them all."""
        return max(found for each in (self.plain, self.adjusted) if (found := figure(each)) is not None)


def verdict(
    p_holm: float | None, p_does_not_holm: float | None, adjusted: float, farther: float, refusal: str = ""
) -> tuple[str, str]:
    """What may be said of far queries, and why nothing may where something else would be.

    Args:
        p_holm: :attr:`FarCost.p` after correction.
        p_does_not_holm: :meth:`FarCost.p_loses` of the margin, likewise.
        adjusted: the difference; negative: a loss.
        farther: from :func:`chance_of_farther`; where far queries are not far, that they cost nothing says nothing.
        refusal: :attr:`FarCost.refusal`.
    """
    if refusal:
        return CANNOT_TELL, refusal
    if p_holm is not None and p_holm < ALPHA and adjusted < 0:
        return DEGRADES, ""
    if p_does_not_holm is None or p_does_not_holm >= ALPHA:
        return CANNOT_TELL, ""
    if farther < _LEAST_APART:
        return CANNOT_TELL, "near and far queries are about equally far from training"
    return DOES_NOT, ""


def agreed(said: Sequence[str]) -> str:
    """The word of several pivots: what each of them alone shows."""
    return said[0] if len(set(said)) == 1 else CANNOT_TELL


def chance_of_farther(distance: Floats, far: Flags) -> float:
    """The chance that a far query is farther from training than a near one; 1 where there are not both.

    Args:
        distance: (n,) of each query.
        far: (n,) whether its part is far.
    """
    near, distant = np.sort(distance[~far]), distance[far]
    if not len(near) or not len(distant):
        return 1.0
    below = np.searchsorted(near, distant) + np.searchsorted(near, distant, side="right")
    return float(below.mean() / 2 / len(near))


def cost_of_far(values: Floats, pivot: Floats, covariates: Floats, parts: Parts, far: Flags) -> FarCost | None:
    """Compare far with near queries; None with too few parts on a side (:func:`eval_kit.stats.parts.contrast`).

    Args:
        values: (n,) the model's, of each query.
        pivot: (n,) the mean of the pivots'.
        covariates: (n, k) what tells easy queries from hard ones: the pivots' values, ranks and scores, lengths.
        parts: (n,) the number of each query's part.
        far: (n,) whether that is far.
    """
    plain, near = contrast(values - pivot, parts, far), ~far
    if plain is None:
        return None
    prediction = predicted(values, covariates, parts, near)
    slope, doubt = _slope(values[near], prediction[near], parts[near])
    apart, adjusted = contrast(prediction, parts, far), contrast(values - slope * prediction, parts, far)
    if apart is None or adjusted is None or not prediction[near].std():
        return None
    extra, own = (doubt * apart.value) ** 2, adjusted.error**2
    near_parts = len(np.unique(parts[near]))
    degrees = (own + extra) ** 2 / (own**2 / adjusted.degrees + extra**2 / (near_parts - 1))
    adjusted = replace(adjusted, error=float(np.sqrt(own + extra)), degrees=degrees)
    r = float(np.corrcoef(values[near], prediction[near])[0, 1])
    refusal = ""
    if r < _LEAST_R:
        refusal = f"the pivot hardly predicts this model's results (r = {r:.2f}), so difficulty cannot be removed"
    elif abs(apart.value) > _FARTHEST * apart.spread[0] and (apart.p or 0.0) < 1 - LEVEL:
        harder = "harder" if apart.value < 0 else "easier"
        refusal = f"far queries are {harder} than any near part, so near parts predict nothing for them"
    return FarCost(plain, adjusted, slope, doubt, r, refusal)


def predicted(values: Floats, covariates: Floats, parts: Parts, near: Flags) -> Floats:
    """What the covariates predict of each value, (n,), by a ridge regression that is fitted on near parts.

    The penalty is 1 on each standardised covariate: nothing with hundreds of queries, a brake with twenty. Each near
    part is predicted by slopes from the other near parts alone, so that its figure is as out-of-sample as a far part's
    (cross-fitting, Chernozhukov et al. 2018), around one mean of all.
    """
    scale = covariates[near].std(axis=0)
    standard = (covariates - covariates[near].mean(axis=0))[:, scale > 0] / scale[scale > 0]
    mean = values[near].mean()
    products = standard[near].T @ standard[near] + np.eye(standard.shape[1])
    moments = standard[near].T @ (values[near] - mean)
    prediction = standard @ np.linalg.solve(products, moments)
    for part in np.unique(parts[near]):
        rows = parts == part
        own = standard[rows]
        prediction[rows] = own @ np.linalg.solve(products - own.T @ own, moments - own.T @ (values[rows] - mean))
    return np.asarray(prediction + mean)


def _slope(values: Floats, prediction: Floats, parts: Parts) -> tuple[float, float]:
    """The slope of parts' mean values on their mean predictions, and its standard error.

    It is where the covariance of (value − slope × prediction) with the prediction, over parts, is 0 after that of their
    queries' noise is taken out. The likelihood of each slope is that of the parts' own covariances (a t-test of their
    mean), so that none of them needs to be normal; with the prior it gives a mean and a standard deviation.
    """
    _, index, sizes = np.unique(parts, return_inverse=True, return_counts=True)
    y, x = (np.bincount(index, each) / sizes for each in (values, prediction))
    noise, noise_of_both = (within(each, prediction, index) / sizes for each in (prediction, values))
    weights = 1 / (between(x, np.maximum(noise, 1e-12)) + np.maximum(noise, 1e-12))
    weights = weights / weights.sum()
    y_off, x_off = y - weights @ y, x - weights @ x
    chance = weights * (1 - weights)
    moments = weights * y_off * x_off - chance * noise_of_both
    moments = moments - _SLOPES[:, None] * (weights * x_off**2 - chance * noise)
    count = len(y)
    t2 = moments.sum(axis=1) ** 2 / (moments.var(axis=1, ddof=1) * count + 1e-30)
    log = -count / 2 * np.log1p(t2 / (count - 1))
    log -= (_TAILS + 1) / 2 * np.log1p(((_SLOPES - _SLOPE) / _DOUBT) ** 2 / _TAILS)
    chances = np.exp(log - log.max())
    chances = chances / chances.sum()
    slope = float(chances @ _SLOPES)
    return slope, float(np.sqrt(chances @ (_SLOPES - slope) ** 2))
