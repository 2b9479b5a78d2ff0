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
def test_where_few_queries_differ_one_more_that_loses_all_is_counted(count: int) -> None:
    values = lost(43, count, 0.02) if count else np.zeros(43)
    ours = difference(values)
    counted = values if count >= 20 else np.append(values, -1.0)
    theirs = 0.5**43  # where all lose .02: the sign test
    if count < 43:
        theirs = stats.ttest_1samp(counted, -0.05, alternative="greater").pvalue
    assert (ours.differ, ours.hurt, ours.helped) == (count, count, 0)
    assert ours.p_loses(0.05) == pytest.approx(theirs, rel=1e-6)


def test_among_many_tests_more_may_be_unseen() -> None:
    """The rule of three at the corrected level: (3 + ln tests) / n."""
    values = np.zeros(150)
    more = 1 + math.log(20) / 3
    weights = np.append(np.ones(150), more)
    mean = np.average(np.append(values, -1.0), weights=weights)
    variance = (weights * (np.append(values, -1.0) - mean) ** 2).sum() / (weights.sum() - 1)
    t = (mean + 0.05) / np.sqrt(variance / weights.sum())
    assert difference(values).p_loses(0.05, 20) == pytest.approx(stats.t.sf(t, weights.sum() - 1), rel=1e-6)
    assert difference(values).p_loses(0.05, 20) > difference(values).p_loses(0.05)


def test_an_interval_of_few_that_differ_reaches_to_what_was_not_drawn() -> None:
    few, many = lost(43, 3, 0.1), lost(43, 30, 0.1)
    [low, _], [_, high] = (stats.t.interval(0.95, 43, each.mean(), stats.sem(each)) for each in more_than(few))
    assert difference(few).interval == pytest.approx((low, high), rel=1e-6)
    theirs = stats.t.interval(0.95, 42, many.mean(), stats.sem(many))
    assert difference(many).interval == pytest.approx(theirs, rel=1e-6)
    assert difference(np.zeros(43)).interval == (None, None)
    assert difference(few).detectable(1) is None and difference(many).detectable(1) > 0


def more_than(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """With one more query that loses all, and with one that gains all."""
    return np.append(values, -1.0), np.append(values, 1.0)


def test_the_most_that_a_query_can_lose_is_the_measures() -> None:
    """A hundred passages, of a search length."""
    values = np.zeros(200)
    assert difference(values).p_loses(0.05) < 0.05 < difference(values, most=100).p_loses(0.05)


def test_a_loss_of_the_margin_itself_is_not_less() -> None:
    for values in (np.full(50, -0.1), np.full(50, 0.4) - 0.5):
        assert difference(values).p_loses(0.1) == 1 and difference(values).p == pytest.approx(2 * 0.5**50)


@pytest.mark.parametrize(("n", "margin", "tests"), [(43, 0.02, 1), (200, 0.02, 7), (1_000, 0.01, 1)])
def test_needed_queries_are_those_of_a_normal_distribution(n: int, margin: float, tests: int) -> None:
    values = np.random.default_rng(1).normal(0, 0.2, n)
    z = stats.norm.ppf(1 - 0.05 / tests) + stats.norm.ppf(0.8)
    expected = (z * values.std(ddof=1) / margin) ** 2
    assert difference(values).needed(margin, tests) == math.ceil(expected)
    assert difference(np.zeros(n)).needed(margin, tests) is None


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
