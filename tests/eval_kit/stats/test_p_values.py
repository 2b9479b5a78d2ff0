"""p-values against scipy's."""

import math
from itertools import permutations

import numpy as np
import pytest
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st

from eval_kit.stats import p_values
from eval_kit.stats.losses import spearman


@settings(max_examples=150, deadline=None)
@given(st.floats(0.01, 40), st.one_of(st.integers(1, 100), st.integers(100, 8_000)))
def test_students_t(t, degrees):
    expected = 2 * scipy.stats.t.sf(t, degrees)
    for signed in (t, -t):
        assert p_values.of_t(signed, degrees) == pytest.approx(expected, rel=1e-12, abs=1e-300)


@pytest.mark.parametrize("t", [1e-300, 1e-9, 1e-3, 1.0, 1e3])
def test_one_degree_of_freedom_is_cauchys_distribution(t):  # scipy itself loses a t of 1e-9
    assert p_values.of_t(t, 1) == pytest.approx(2 / math.pi * math.atan2(1, t), rel=1e-12)
    assert math.isnan(p_values.of_t(math.nan, 1))


def test_where_the_two_sides_of_the_fraction_meet():
    for degrees in (1, 2, 5, 39, 40, 41, 97, 6979):  # 40: from where gamma functions are a series
        near = np.sqrt(degrees * 1.5 / (degrees / 2 + 1))
        for t in (0.0, near - 1e-9, near + 1e-9, np.inf):
            assert p_values.of_t(t, degrees) == pytest.approx(2 * scipy.stats.t.sf(t, degrees), rel=1e-12)


@pytest.mark.parametrize("degrees", [(1, 9), (4.3, 51.7), (39, 1_160), (7, 2.5)])
def test_fishers_f(degrees):
    for f in (0.0, 0.1, 0.9, 1.0, 1.4, 7.0, 60.0):
        assert p_values.above_f(f, *degrees) == pytest.approx(scipy.stats.f.sf(f, *degrees), rel=1e-9)


def test_spearmans_is_the_share_of_all_orders_of_few_pairs():
    """With five, 10 of the 120 orders have a coefficient of at least 0.9; ties have fewer distinct orders."""
    ranks = np.arange(1.0, 6)
    assert p_values.of_rho(ranks, ranks[[0, 1, 2, 4, 3]], 0.9) == pytest.approx(10 / 120)
    assert p_values.of_rho(ranks, -ranks, -1.0) == pytest.approx(2 / 120)
    tied = np.array([1.5, 1.5, 3, 4, 5])
    every = [abs(np.corrcoef(ranks, order)[0, 1]) for order in permutations(tied)]
    rho = np.corrcoef(ranks, tied)[0, 1]
    assert p_values.of_rho(ranks, tied, rho) == pytest.approx(np.mean(np.array(every) >= rho - 1e-12))


def test_of_two_groups_it_is_the_share_of_orders_within_them():
    """Counted one by one: 4! × 3! orders, of the sum of products of ranks."""
    x, y = np.array([1.0, 2, 3, 4, 5, 6, 7]), np.array([2.0, 1, 4, 3, 5, 7, 6])
    every = [[*a, *b] @ x for a in permutations(y[:4]) for b in permutations(y[4:])]
    centre = np.mean(every)
    expected = np.mean(np.abs(np.array(every) - centre) >= abs(y @ x - centre) - 1e-9)
    groups = np.array([0, 0, 0, 0, 1, 1, 1])
    assert p_values.of_order_within([x, y], groups, seed=3) == pytest.approx(expected, abs=0.01)
    assert spearman(x, y, within=groups, resamples=10).p == pytest.approx(expected, abs=0.01)
    assert spearman(x, y, within=["topic"] * 7, resamples=10).p == p_values.of_rho(x, y, 0.0)  # one group: all orders
    assert spearman(x, y, given=y[::-1], resamples=10).value is None  # fewer than eight


def test_given_a_third_thing_orders_are_as_free_of_it_as_the_ranks_are():
    """Of one group its p is near the one by t of the partial coefficient; orders of mere residuals give 0.035."""
    rng, size = np.random.default_rng(3), np.arange(10.0)
    x = size + 4 * rng.normal(size=10)
    y = size + 4 * rng.normal(size=10) - 0.6 * (x - size)
    ranks = [scipy.stats.rankdata(side) for side in (x, y, size)]
    left = [side - np.polyval(np.polyfit(ranks[2], side, 1), ranks[2]) for side in ranks[:2]]
    by_t = p_values.of_r(np.corrcoef(*left)[0, 1], 7)
    assert p_values.of_order_within(ranks, np.zeros(10, int), seed=0) == pytest.approx(by_t, abs=0.005)


@pytest.mark.parametrize("n", [3, 5, 40])
def test_a_correlation(n):
    for r in (-1.0, -0.9, 0.0, 0.3, 0.999999, 1.0):
        halves = scipy.stats.beta(n / 2 - 1, n / 2 - 1, loc=-1, scale=2)  # as scipy.stats.pearsonr
        assert p_values.of_r(r, n - 2) == pytest.approx(2 * halves.sf(abs(r)), rel=1e-11)
