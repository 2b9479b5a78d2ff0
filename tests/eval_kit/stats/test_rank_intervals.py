"""Ranks against tests of scipy's corrected by hand, and what must hold of any confidence sets."""

from itertools import combinations

import numpy as np
import pytest
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from eval_kit.stats.losses import holm
from eval_kit.stats.ranks import Rank, ranking

RNG = np.random.default_rng(5)
quality = RNG.normal(0, 1, (60, 1)) + RNG.normal(0, 0.5, (60, 8)) + np.array([0, 0, 0.1, 0.2, 0.3, 0.5, 1, 1])


def told_apart(values) -> set[tuple[int, int]]:
    """Pairs, the better system first, whose difference scipy's paired t-test shows after Holm's correction."""
    pairs = list(combinations(range(values.shape[1]), 2))
    differences = [values[:, i] - values[:, j] for i, j in pairs]
    tests = [float(scipy.stats.ttest_1samp(each, 0).pvalue) if np.ptp(each) > 1e-9 else None for each in differences]
    corrected = zip(pairs, holm(tests), strict=True)
    means = values.mean(axis=0)
    return {(i, j) if means[i] > means[j] else (j, i) for (i, j), p in corrected if p is not None and p < 0.05}


def test_the_sets_are_those_of_scipys_tests():
    apart = told_apart(quality)
    assert 3 < len(apart) < 25
    for i, rank in enumerate(ranking([quality])):
        better, worse = ([pair for pair in apart if pair[side] == i] for side in (1, 0))
        assert (rank.low, rank.high) == (1 + len(better), 8 - len(worse))


def test_groups_by_hand():
    # a and b differ by chance, c lies between b and d; d is told apart from a and b, but not from c
    steps = np.array([0.0, 0.1, 0.35, 0.6])
    noise = np.random.default_rng(0).normal(0, 0.5, (40, 4))
    values = noise - noise.mean(axis=0) - steps
    assert told_apart(values) == {(0, 2), (0, 3), (1, 3)}
    assert ranking([values]) == [Rank(1, 2, (0, 0)), Rank(1, 3, (0, 1)), Rank(2, 4, (1, 2)), Rank(3, 4, (2, 2))]


def test_several_test_sets_count_alike_and_are_resampled_apart():
    one, other = quality[:30], quality[30:] * [1] * 8
    variance = sum((part[:, 0] - part[:, 7]).var(ddof=1) / 30 for part in (one, other)) / 4
    t = (one.mean(axis=0) + other.mean(axis=0)) @ [0.5, 0, 0, 0, 0, 0, 0, -0.5] / np.sqrt(variance)
    significant = 2 * scipy.stats.t.sf(abs(t), 29) < 0.05
    assert [rank.low for rank in ranking([one[:, [7, 0]], other[:, [7, 0]]])] == [1, 1 + significant]


@pytest.mark.parametrize("values", [np.ones((1, 3)), np.ones((9, 3)), np.ones((9, 1)), np.zeros((9, 3))])
def test_what_does_not_vary_is_not_told_apart(values):
    size = values.shape[1]
    assert ranking([values]) == [Rank(1, size, (0, 0))] * size


@settings(max_examples=60)
@given(arrays(np.float64, st.tuples(st.integers(2, 12), st.integers(1, 6)), elements=st.sampled_from([0, 0.2, 0.5, 1])))
def test_every_set_holds_the_rank_by_the_mean_and_groups_go_down_the_ranking(values):
    ranks = ranking([values])
    means = values.mean(axis=0)
    for rank, mean in zip(ranks, means, strict=True):
        first, last = 1 + int((means > mean + 1e-9).sum()), int((means >= mean - 1e-9).sum())
        assert rank.low <= last and first <= rank.high
    ordered = [ranks[i].groups for i in np.argsort(-means, kind="stable")]
    assert ordered == sorted(ordered)
    assert {number for first, last in ordered for number in range(first, last + 1)} == set(range(ordered[-1][1] + 1))
    apart = told_apart(values) if len(values) > 2 else set()
    for i, j in combinations(range(len(ranks)), 2):
        shared = max(ranks[i].groups[0], ranks[j].groups[0]) <= min(ranks[i].groups[1], ranks[j].groups[1])
        assert not (shared and {(i, j), (j, i)} & apart)
