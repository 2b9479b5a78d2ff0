"""p-values against scipy's."""

import math

import numpy as np
import pytest
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st

from eval_kit.stats import p_values


@settings(max_examples=300, deadline=None)
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


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 60), st.integers(0, 60)), min_size=3, max_size=45))
def test_kendalls_tau(pairs):
    x, y = np.array(pairs, dtype=float).T
    if np.ptp(x) and np.ptp(y):
        expected = scipy.stats.kendalltau(x, y).pvalue
        assert p_values.of_tau(x, y) == pytest.approx(expected, rel=1e-11)


@pytest.mark.parametrize("n", [3, 4, 12, 33, 34, 60])
@pytest.mark.parametrize("swaps", [0, 1, 2, 9])
def test_kendalls_tau_without_ties(n, swaps):
    x, y = np.arange(n, dtype=float), np.arange(n, dtype=float)
    for start in range(min(swaps, n - 1)):
        y[[start, start + 1]] = y[[start + 1, start]]
    for signed in (y, -y):
        assert p_values.of_tau(x, signed) == pytest.approx(scipy.stats.kendalltau(x, signed).pvalue, rel=1e-11)


@pytest.mark.parametrize("n", [3, 5, 40])
def test_pearson_and_spearman(n):
    for r in (-1.0, -0.9, 0.0, 0.3, 0.999999, 1.0):
        halves = scipy.stats.beta(n / 2 - 1, n / 2 - 1, loc=-1, scale=2)  # as scipy.stats.pearsonr
        assert p_values.of_r(r, n) == pytest.approx(2 * halves.sf(abs(r)), rel=1e-11)
