"""The gate and ≠ rest beside numpy and scipy, and a table of what may be said."""

import math

import numpy as np
import pytest
from scipy import stats

from eval_kit.stats.differences import (
    CANNOT_TELL,
    NOT_WORSE,
    UNCHANGED,
    WORSE,
    difference,
    differences,
    overall,
    verdict,
)

LOSS, GAIN = -0.1, 0.1


def lost(n: int, count: int, each: float = 1.0) -> np.ndarray:
    return -each * (np.arange(n) < count).astype(float)


@pytest.mark.parametrize("count", [0, 1, 19, 20, 43])
@pytest.mark.parametrize("jitter", [0.0, 1e-3])
def test_a_loss_of_the_margin_has_at_least_the_variance_of_few_that_lose_all(count: int, jitter: float) -> None:
    """However many queries differ, or by how little: no count decides."""
    values = lost(43, count, 0.02) + jitter * np.resize([1, -1], 43)
    error = max(stats.sem(values), math.sqrt(0.05 / 43))
    ours = difference(values)
    assert ours.p_loses(0.05) == pytest.approx(stats.t.sf((values.mean() + 0.05) / error, 42), rel=1e-6)
    assert ours.p_loses(0.05) > 0.05


def test_an_interval_is_students_whatever_differs() -> None:
    for values in (lost(43, 3, 0.1), lost(43, 30, 0.1)):
        theirs = stats.t.interval(0.95, 42, values.mean(), stats.sem(values))
        assert difference(values).interval == pytest.approx(theirs, rel=1e-6)
        found = difference(values).detectable(1)
        assert difference(values).detectable_loss(1) == pytest.approx(max(found, (found / stats.sem(values)) ** 2 / 43))
    assert difference(np.zeros(43)).interval == (None, None) and difference(np.zeros(43)).detectable(1) is None


def test_the_most_that_a_query_can_lose_is_the_measures() -> None:
    """A hundred passages, of a search length."""
    values = np.zeros(200)
    assert difference(values).p_loses(0.05) < 0.05 < difference(values, most=100).p_loses(0.05)


def test_a_loss_of_the_margin_itself_is_not_less() -> None:
    for values in (np.full(50, -0.1), np.full(50, 0.4) - 0.5):
        assert difference(values).p_loses(0.1) == 0.5 and difference(values).p == pytest.approx(2 * 0.5**50)


@pytest.mark.parametrize(("n", "margin", "tests"), [(43, 0.02, 1), (200, 0.02, 7), (1_000, 0.01, 1)])
def test_needed_queries_are_those_of_a_normal_distribution(n: int, margin: float, tests: int) -> None:
    values = np.random.default_rng(1).normal(0, 0.2, n)
    counted = max(values.std(ddof=1), margin**0.5)
    z = stats.norm.ppf(1 - 0.05 / tests) * counted + stats.norm.ppf(0.8) * values.std(ddof=1)
    expected = (z / margin) ** 2
    assert difference(values).needed(margin, tests) == math.ceil(expected)
    least = stats.norm.ppf(1 - 0.05 / tests) ** 2 / margin
    assert difference(np.zeros(n)).needed(margin, tests) == math.ceil(least), "135 for .02"


def test_the_rest_is_tested_by_the_greater_of_two_t_tests_and_holds_no_query_of_the_part() -> None:
    random = np.random.default_rng(2)
    own, other = random.normal(0, 0.3, 20), random.normal(0.2, 0.05, 80)
    both = random.normal(0, 0.1, 10)  # in the part and in another too
    values = np.concatenate([own, both, other, both])
    parts = np.repeat([0, 0, 1, 1], [20, 10, 80, 10])
    _, to_rest = differences(values, parts, 2, np.concatenate([own, both, other]))
    inside = np.concatenate([own, both])
    theirs = [stats.ttest_ind(inside, other, equal_var=pooled).pvalue for pooled in (True, False)]
    assert to_rest[0] == pytest.approx(max(theirs), rel=1e-6) and theirs[0] != pytest.approx(theirs[1])
    unchanged = np.concatenate([np.zeros(10), lost(190, 20)])
    _, to_rest = differences(unchanged, (np.arange(200) >= 10).astype(int), 2, unchanged)
    assert to_rest[0] > 0.2


@pytest.mark.parametrize(
    ("p_worse", "p_loses", "mean", "differ", "word"),
    [
        (0.01, 0.9, LOSS, 30, WORSE),
        (0.01, 0.01, LOSS, 30, NOT_WORSE),  # a loss that is shown to be smaller than the margin
        (0.01, 0.9, GAIN, 30, CANNOT_TELL),  # a gain is never worse
        (0.5, 0.01, LOSS, 30, NOT_WORSE),
        (0.05, 0.05, LOSS, 30, CANNOT_TELL),
        (None, None, 0.0, 30, CANNOT_TELL),
        (None, 0.001, 0.0, 0, UNCHANGED),
    ],
)
def test_what_may_be_said(p_worse, p_loses, mean, differ, word) -> None:
    assert verdict(p_worse, p_loses, mean, differ) == word


@pytest.mark.parametrize(
    ("words", "word"),
    [
        ([NOT_WORSE, CANNOT_TELL, WORSE], WORSE),
        ([NOT_WORSE, CANNOT_TELL, UNCHANGED], CANNOT_TELL),
        ([UNCHANGED, NOT_WORSE], NOT_WORSE),
        ([UNCHANGED, UNCHANGED], UNCHANGED),
        ([], CANNOT_TELL),
    ],
)
def test_the_worst_part_decides(words, word) -> None:
    assert overall(words) == word
