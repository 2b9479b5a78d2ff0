"""The axes of pictures."""

from hypothesis import given
from hypothesis import strategies as st

from eval_kit import plots


@given(st.floats(0, 1), st.floats(1e-4, 1))
def test_no_two_ticks_have_one_label(low: float, span: float):
    ticks = plots._ticks(low, low + span)
    assert len({label for _, label in plots._labelled(ticks)}) == len(ticks)
    _, percents = plots._percent_axis([-span, span])
    assert len({label for _, label in percents}) == len(percents)


def test_edges_that_differ_are_told_apart_by_as_few_digits_as_do():
    assert plots._told_apart([0.1, 0.25]) == ["0.1", "0.25"]
    assert plots._told_apart([0.3449, 0.3481, 0.3522]) == ["0.345", "0.348", "0.352"]
    assert plots._told_apart([-0.5, -0.5]) == ["\u22120.5", "\u22120.5"]
