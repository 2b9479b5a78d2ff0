"""Near and far parts: beside numpy and scipy written anew, with simulated losses whose truth is known."""

import numpy as np
import pytest
import scipy.optimize
import scipy.stats

from eval_kit.stats import parts

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


def test_the_contrast_is_that_of_a_mixed_model_computed_anew():
    random = np.random.default_rng(3)
    gain, part, far = simulated(random, 0.1, 0.05, 1_500)
    means = np.array([gain[part == each].mean() for each in range(40)])
    sizes = np.bincount(part)
    error = sum(((gain[part == each] - means[each]) ** 2).sum() for each in range(40)) / (len(gain) - 40)
    variance, is_far = error / sizes, np.arange(40) >= 20

    def fitted(spread: float) -> tuple[float, float, float]:
        weight = 1 / (variance + spread)
        near = np.average(means[~is_far], weights=weight[~is_far])
        distant = np.average(means[is_far], weights=weight[is_far])
        residual = means - np.where(is_far, distant, near)
        size = (weight * residual**2).sum()
        return distant - near, 1 / weight[is_far].sum() + 1 / weight[~is_far].sum(), size

    spread = scipy.optimize.brentq(lambda value: fitted(value)[2] - 38, 0, 1, xtol=1e-15)
    difference, squared, size = fitted(spread)
    reach = scipy.stats.t.ppf(0.975, 38) * np.sqrt(squared * size / 38)
    contrast = parts.contrast(gain, part, far)
    assert contrast is not None
    assert contrast.difference == pytest.approx(difference, abs=1e-9)
    assert (contrast.low, contrast.high) == pytest.approx((difference - reach, difference + reach), abs=1e-9)
    assert contrast.spread == pytest.approx(np.sqrt(spread), abs=1e-9)
    assert contrast.p == pytest.approx(2 * scipy.stats.t.sf(abs(difference) / contrast.error, 38), rel=1e-8)


def test_the_adjustment_predicts_each_near_part_from_the_others_alone():
    random = np.random.default_rng(5)
    part = np.repeat(np.arange(12), 30)
    near = part < 8
    covariates = random.normal(size=(360, 3))
    gain = covariates @ [0.3, -0.2, 0.0] + random.normal(0, 0.1, 360)
    ours = parts.adjusted_gain(gain, covariates, part, near)
    scaled = (covariates - covariates[near].mean(axis=0)) / covariates[near].std(axis=0)
    design = np.column_stack([np.ones(360), scaled])
    for each in range(12):
        fit = near & (part != each)
        penalty = np.diag([0.0, 1.0, 1.0, 1.0])
        weights = np.linalg.solve(design[fit].T @ design[fit] + penalty, design[fit].T @ gain[fit])
        rows = part == each
        assert ours[rows] == pytest.approx(gain[rows] - design[rows] @ weights, abs=1e-9)


@pytest.mark.parametrize("spread", [0.0, 0.2])
def test_false_alarms_come_at_their_rate_with_and_without_a_spread_of_kinds(spread: float):
    random = np.random.default_rng(11)
    contrasts = [parts.contrast(*simulated(random, 0.0, spread, 800)) for _ in range(500)]
    alarms = np.mean([contrast is not None and contrast.p < 0.05 for contrast in contrasts])
    assert 0.025 <= alarms <= 0.075


def test_intervals_hold_the_planted_loss_and_the_stated_power_is_had():
    random = np.random.default_rng(13)
    contrasts = [parts.contrast(*simulated(random, 0.1, 0.05, 1_500)) for _ in range(300)]
    held = [contrast is not None and contrast.low <= -0.1 <= contrast.high for contrast in contrasts]
    assert 0.92 <= np.mean(held) <= 0.98
    least = float(np.mean([contrast.detectable for contrast in contrasts if contrast is not None]))
    again = [parts.contrast(*simulated(random, least, 0.05, 1_500)) for _ in range(300)]
    found = np.mean([contrast is not None and contrast.p < 0.05 for contrast in again])
    assert 0.72 <= found <= 0.88


def test_five_buckets_have_no_spread_to_judge_by():
    random = np.random.default_rng(19)
    assert parts.contrast(*simulated(random, 0.5, 0.05, 5_000, number=5)) is None


def test_quantiles_are_scipys():
    for degrees in (2, 9, 38, 300):
        assert parts.quantile_of_t(0.95, degrees) == pytest.approx(scipy.stats.t.ppf(0.975, degrees), rel=1e-9)
