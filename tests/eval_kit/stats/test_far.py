"""What far queries cost: a regression computed anew, and a table of what may be said; rates are in tests/bench."""

import numpy as np
import pytest

from bench.zoo_generalise import Shift, drawn
from eval_kit.stats import far
from eval_kit.stats.differences import CANNOT_TELL
from eval_kit.stats.far import DEGRADES, DOES_NOT


def test_the_prediction_of_a_near_part_comes_from_the_others_alone():
    random = np.random.default_rng(5)
    part = np.repeat(np.arange(12), 30)
    near = part < 8
    covariates = random.normal(size=(360, 3))
    values = covariates @ [0.3, -0.2, 0.0] + random.normal(0, 0.1, 360)
    ours = far.predicted(values, covariates, part, near)
    scaled = (covariates - covariates[near].mean(axis=0)) / covariates[near].std(axis=0)
    mean = values[near].mean()
    for each in range(12):
        fit = near & (part != each)
        weights = np.linalg.solve(scaled[fit].T @ scaled[fit] + np.eye(3), scaled[fit].T @ (values[fit] - mean))
        rows = part == each
        assert ours[rows] == pytest.approx(mean + scaled[rows] @ weights, abs=1e-9)


def test_the_slope_of_parts_is_that_of_what_makes_them_hard_and_not_of_the_pivots_luck():
    """Value and pivot are one difficulty, each with its own luck: a query's pivot value tells half, a part's all."""
    random = np.random.default_rng(7)
    part = np.repeat(np.arange(60), 400)
    difficulty = random.normal(0, 0.2, 60)[part] + random.normal(0, 0.4, len(part))
    pivot = difficulty + random.normal(0, 0.5, len(part))
    values = difficulty + random.normal(0, 0.1, len(part))
    cost = far.cost_of_far(values, pivot, pivot[:, None], part, part >= 30)
    assert cost is not None and not cost.refusal
    reliability = 0.2 / (0.2 + 0.25)  # of a query's pivot value, over all near queries
    assert cost.slope == pytest.approx(1 / reliability, abs=0.2) and cost.slope_error < 0.8


def test_no_word_where_the_pivot_says_nothing_or_far_is_unlike_anything_near():
    random = np.random.default_rng(9)
    draw = drawn(Shift(harder=1.5), random, 2_000)
    [[pivot, covariates]] = draw.pivots
    unlike = far.cost_of_far(draw.values, pivot, covariates, draw.parts, draw.far)
    nothing = far.cost_of_far(random.permutation(draw.values), pivot, covariates, draw.parts, draw.far)
    assert unlike is not None and "near" in unlike.refusal
    assert nothing is not None and "pivot" in nothing.refusal
    assert far.cost_of_far(draw.values, pivot, covariates, draw.parts % 10, draw.parts % 10 < 5) is None


@pytest.mark.parametrize(
    ("shift", "why"),
    [
        (Shift(share=0.6), "pivot"),  # r = 0.37
        (Shift(share=0.65), ""),  # 0.40
        (Shift(harder=1.0), ""),  # 1.99 standard deviations of near parts
        (Shift(harder=1.1), "near"),  # 2.20
    ],
)
def test_the_limits_are_those_whose_rates_are_known(shift: Shift, why: str) -> None:
    draw = drawn(shift, np.random.default_rng(3), 4_000)
    [[pivot, covariates]] = draw.pivots
    cost = far.cost_of_far(draw.values, pivot, covariates, draw.parts, draw.far)
    assert cost is not None and why in cost.refusal and bool(cost.refusal) == bool(why)


LOSS, GAIN, APART = -0.1, 0.1, 0.8


@pytest.mark.parametrize(
    ("p", "p_does_not", "adjusted", "farther", "refusal", "word", "is_explained"),
    [
        (0.01, 0.9, LOSS, APART, "", DEGRADES, False),
        (0.01, 0.01, LOSS, APART, "", DEGRADES, False),  # a loss that is shown, though smaller than the margin
        (0.01, 0.01, GAIN, APART, "", DOES_NOT, False),  # a gain is never "degrades"
        (0.01, 0.9, GAIN, APART, "", CANNOT_TELL, False),
        (0.5, 0.01, LOSS, APART, "", DOES_NOT, False),
        (0.5, 0.01, LOSS, 0.59, "", CANNOT_TELL, True),  # far queries that are not farther say nothing of a shift
        (0.5, 0.01, LOSS, 0.6, "", DOES_NOT, False),
        (0.01, 0.9, LOSS, 0.5, "", DEGRADES, False),
        (0.05, 0.05, LOSS, APART, "", CANNOT_TELL, False),
        (None, None, LOSS, APART, "r is low", CANNOT_TELL, True),
        (0.01, 0.01, LOSS, APART, "unlike anything near", CANNOT_TELL, True),
    ],
)
def test_what_may_be_said(p, p_does_not, adjusted, farther, refusal, word, is_explained) -> None:
    said, why = far.verdict(p, p_does_not, adjusted, farther, refusal)
    assert (said, bool(why)) == (word, is_explained)


@pytest.mark.parametrize(
    ("said", "word"),
    [
        ([DEGRADES], DEGRADES),
        ([DOES_NOT] * 2, DOES_NOT),
        ([DEGRADES, DOES_NOT], CANNOT_TELL),
        ([DEGRADES, CANNOT_TELL], CANNOT_TELL),
    ],
)
def test_pivots_that_do_not_agree_tell_nothing(said, word) -> None:
    assert far.agreed(said) == far.agreed(said[::-1]) == word


def test_the_chance_that_far_is_farther_counts_pairs() -> None:
    random = np.random.default_rng(3)
    distance, is_far = random.integers(0, 9, 40).astype(float), random.random(40) < 0.4
    pairs = [(a > b) + (a == b) / 2 for a in distance[is_far] for b in distance[~is_far]]
    assert far.chance_of_farther(distance, is_far) == pytest.approx(np.mean(pairs))
    assert far.chance_of_farther(distance, is_far | True) == 1
