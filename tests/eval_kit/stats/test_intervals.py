"""Intervals of similarity: every query is in one of them, and each loss is that of its queries alone."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from eval_kit.stats.intervals import edges, interval_of, loss_by_interval
from eval_kit.stats.losses import relative_loss

numbers = st.lists(st.floats(-5, 5).map(lambda number: round(number, 2)), min_size=1, max_size=50)


@given(numbers)
def test_every_value_is_in_the_interval_that_holds_it(values):
    cuts = edges(values)
    assert 1 <= len(cuts) - 1 <= 10
    assert (cuts[0], cuts[-1]) == (min(values), max(values))
    for value, number in zip(values, interval_of(values, cuts), strict=True):
        last = number == len(cuts) - 2
        assert cuts[number] <= value and (value < cuts[number + 1] or (last and value <= cuts[-1]))


def test_intervals_hold_equal_counts_and_equal_values_are_one_interval():
    values = np.random.default_rng(0).normal(size=1_000)
    assert np.bincount(interval_of(values, edges(values))).tolist() == [100] * 10
    assert edges([2, 2, 2]).tolist() == [2, 2]
    assert loss_by_interval([2, 2], [1, 1], [0.5, 1], edges([2, 2]))["n"].to_list() == [2]


def test_each_interval_has_the_loss_of_its_queries():
    rng = np.random.default_rng(4)
    r, inside, out = rng.random((3, 60))
    inside[:20] = 0
    cuts = edges(r)
    table = loss_by_interval(r, inside, out, cuts, seed=3)
    assert table["n"].sum() == 60
    for number, row in enumerate(table.iter_rows(named=True)):
        here = interval_of(r, cuts) == number
        of_in, of_out, loss = relative_loss(inside[here], out[here], seed=3)
        assert (row["low"], row["high"], row["n"]) == (cuts[number], cuts[number + 1], here.sum())
        assert (row["inside"], row["out"], row["rel_loss"]) == (of_in.value, of_out.value, loss.value)
        assert (row["rel_loss_low"], row["rel_loss_high"]) == loss.interval


def test_empty_intervals_and_in_of_zero_have_no_loss_and_several_seeds_count_as_one_query():
    table = loss_by_interval([0, 3], [0, 0.5], [0.5, 0.25], np.array([0.0, 1, 2, 3]))
    assert table["n"].to_list() == [1, 0, 1]
    assert table["rel_loss"].to_list() == [None, None, 0.5]
    inside, out = np.array([[0.5, 1], [0.5, 0.5]]), np.array([[0.25, 1], [0.25, 0.2]])
    table = loss_by_interval([1, 2], inside, out, np.array([1.0, 2]))
    assert table["n"].to_list() == [2]
