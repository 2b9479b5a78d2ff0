"""Near and far parts: beside numpy and scipy written anew, with simulated losses whose truth is known."""

import numpy as np
import pytest
import scipy.optimize
import scipy.stats

from eval_kit.stats import parts
from eval_kit.stats.figure import quantile_of_t

type Floats = np.ndarray


def simulated(
    random: np.random.Generator, loss: float, spread: float, queries: int, number: int = 40
) -> tuple[Floats, Floats, Floats]:
    """Gains of queries of unequal parts, half of them far: the gain, the part, and whether it is far."""
    sizes = random.multinomial(queries, random.dirichlet(np.full(number, 3.0))) + 1
    part = np.repeat(np.arange(number), sizes)
    far = part >= number // 2
    kinds = random.normal(0, spread, number)
    return kinds[part] - loss * far + random.normal(0, 0.4, len(part)), part, far


def fitted_anew(means: Floats, variance: Floats) -> tuple[float, float, float]:
    """Mean, its variance by Knapp and Hartung, and τ² by Paule and Mandel."""

    def fit(tau2: float) -> tuple[float, float, float]:
        weight = 1 / (variance + tau2)
        mean = np.average(means, weights=weight)
        return mean, (weight * (means - mean) ** 2).sum(), weight.sum()

    count = len(means) - 1
    tau2 = scipy.optimize.brentq(lambda value: fit(value)[1] - count, 0, 1, xtol=1e-15) if fit(0)[1] > count else 0.0
    mean, size, weight = fit(tau2)
    return mean, size / count / weight, tau2


def test_the_contrast_is_that_of_two_sides_computed_anew():
    random = np.random.default_rng(3)
    gain, part, far = simulated(random, 0.1, 0.05, 1_500)
    sides = []
    for names in (range(20), range(20, 40)):
        columns = [gain[part == each] for each in names]
        noise = sum(((column - column.mean()) ** 2).sum() for column in columns) / (sum(map(len, columns)) - 20)
        sides.append(fitted_anew(np.array([column.mean() for column in columns]), noise / np.bincount(part)[names]))
    (near, near_variance, near_tau2), (distant, far_variance, far_tau2) = sides
    variance = near_variance + far_variance
    degrees = variance**2 / ((near_variance**2 + far_variance**2) / 19)
    contrast = parts.contrast(gain, part, far)
    assert contrast is not None
    assert contrast.value == pytest.approx(distant - near, abs=1e-9)
    assert (contrast.error, contrast.degrees) == pytest.approx((np.sqrt(variance), degrees), rel=1e-7)
    reach = scipy.stats.t.ppf(0.975, degrees) * np.sqrt(variance)
    assert contrast.interval == pytest.approx((distant - near - reach, distant - near + reach), abs=1e-8)
    assert contrast.spread == pytest.approx((np.sqrt(near_tau2), np.sqrt(far_tau2)), abs=1e-9)
    assert contrast.p == pytest.approx(2 * scipy.stats.t.sf(abs(distant - near) / np.sqrt(variance), degrees), rel=1e-6)


def test_heterogeneity_is_that_of_a_meta_analysis_computed_anew():
    """With the variance within parts pooled; the interval also covers that of the parts' plain mean."""
    random = np.random.default_rng(2)
    columns = [random.normal(mean, 0.2, n) for mean, n in ((0.3, 12), (-0.2, 40), (0.05, 25), (-0.1, 90), (0.2, 15))]
    means, errors, sizes = np.array([(each.mean(), scipy.stats.sem(each), len(each)) for each in columns]).T
    found = parts.heterogeneity(means, errors, sizes)
    assert found is not None
    pooled = sum(((each - each.mean()) ** 2).sum() for each in columns) / (sizes.sum() - 5)
    mean, variance, tau2 = fitted_anew(means, pooled / sizes)
    assert (found.value, found.error, found.spread) == pytest.approx((mean, np.sqrt(variance), np.sqrt(tau2)), rel=1e-7)
    t = scipy.stats.t.ppf(0.975, 4)
    low, high = scipy.stats.t.interval(0.95, 4, means.mean(), scipy.stats.sem(means))
    ends = min(low, mean - t * np.sqrt(variance)), max(high, mean + t * np.sqrt(variance))
    assert found.interval == pytest.approx(ends, rel=1e-7)
    assert parts.heterogeneity(means[:1], errors[:1], sizes[:1]) is None


def test_parts_that_lose_nothing_count_and_agreement_is_not_certainty():
    """Seven parts of twenty lose one of ten queries; where all lose one, the doubt is that of their queries."""
    for lost, mean in ((7, -0.035), (20, -0.1)):
        hurt = np.arange(20) < lost
        found = parts.heterogeneity(-0.1 * hurt, 0.1 * hurt, np.full(20, 10.0))
        assert found is not None and found.value == pytest.approx(mean)
        assert found.interval[1] - found.interval[0] > 0.04
    nothing = np.zeros(20)
    assert parts.heterogeneity(nothing, nothing, np.full(20, 10.0)) is None


def test_parts_of_equal_size_differ_by_the_f_test_of_an_analysis_of_variance():
    """Brown and Forsythe's F is that of scipy there; theirs has other degrees."""
    random = np.random.default_rng(8)
    columns = random.normal(0, 0.2, (8, 30)) + random.normal(0, 0.06, (8, 1))
    found = parts.heterogeneity(columns.mean(axis=1), scipy.stats.sem(columns, axis=1), np.full(8, 30.0))
    theirs = scipy.stats.f_oneway(*columns)
    assert found is not None and found.q == pytest.approx(theirs.statistic)
    assert found.p_q == pytest.approx(theirs.pvalue, rel=0.2)


@pytest.mark.parametrize("spread", [0.0, 0.2])
def test_false_alarms_come_at_their_rate_with_and_without_a_spread_of_kinds(spread: float):
    random = np.random.default_rng(11)
    contrasts = [parts.contrast(*simulated(random, 0.0, spread, 800)) for _ in range(500)]
    alarms = np.mean([contrast is not None and contrast.p < 0.05 for contrast in contrasts])
    assert 0.025 <= alarms <= 0.075


def test_intervals_hold_the_planted_loss_and_the_stated_power_is_had():
    random = np.random.default_rng(13)
    contrasts = [parts.contrast(*simulated(random, 0.1, 0.05, 1_500)) for _ in range(300)]
    held = [contrast is not None and contrast.interval[0] <= -0.1 <= contrast.interval[1] for contrast in contrasts]
    assert 0.92 <= np.mean(held) <= 0.98
    for tests in (1, 5):  # at the first step of Holm's correction
        least = float(np.mean([contrast.detectable(tests) for contrast in contrasts if contrast is not None]))
        again = [parts.contrast(*simulated(random, least, 0.05, 1_500)) for _ in range(300)]
        found = np.mean([contrast is not None and contrast.p < 0.05 / tests for contrast in again])
        assert 0.72 <= found <= 0.88


def test_five_buckets_have_no_spread_to_judge_by():
    random = np.random.default_rng(19)
    assert parts.contrast(*simulated(random, 0.5, 0.05, 5_000, number=5)) is None


def test_quantiles_are_scipys():
    for degrees in (2, 9, 38.5, 300):
        assert quantile_of_t(0.95, degrees) == pytest.approx(scipy.stats.t.ppf(0.975, degrees), rel=1e-9)
