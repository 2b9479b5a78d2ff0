"""The axes of pictures."""

from hypothesis import given
from hypothesis import strategies as st

from eval_kit import plots


@given(st.floats(0, 1), st.floats(1e-4, 1))
def test_no_two_ticks_have_one_label(low: float, span: float):
    ticks = plots._ticks(low, low + span)
    labels = [format(tick, f".{plots._digits(ticks)}f") for tick in ticks]
    assert len(set(labels)) == len(ticks)
    _, percents = plots._percent_axis([-span, span])
    assert len({label for _, label in percents}) == len(percents)
