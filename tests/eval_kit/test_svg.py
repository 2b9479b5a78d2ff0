"""The axes and labels of pictures."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eval_kit import plots, svg


@given(st.floats(-100, 100), st.floats(1e-12, 1e12))
def test_no_two_ticks_have_one_label(spans_below: float, span: float):
    low = spans_below * span
    for ticks in (svg.ticks(low, low + span), svg.ticks(low, low + span, wider=True)):
        labels = [label for _, label in svg.with_labels(ticks)]
        numbers = [float(label.replace(",", "").replace("\u2212", "-")) for label in labels]
        assert len(set(labels)) == len(ticks)
        assert numbers == pytest.approx(ticks, rel=1e-6, abs=1e-6 * span)
    _, percents = svg.axis([-span, span], percent=True)
    assert len({label for _, label in percents}) == len(percents)


@given(st.lists(st.floats(-1e9, 1e9), min_size=1))
def test_edges_have_one_label_only_if_they_are_equal(edges: list[float]):
    edges = [edge + 0.0 for edge in edges]  # −0.0 equals 0.0 and has a label of its own
    assert len(set(svg.told_apart(edges))) == len(set(edges))


def test_labels_have_as_few_digits_as_tell_them_apart():
    for high, last in ((1e6, "1,000,000"), (1, "1.0"), (0.3, "0.3"), (12, "10.0")):
        assert svg.with_labels(svg.ticks(0, high))[-1][1] == last
    assert svg.told_apart([0.1, 0.25]) == ["0.1", "0.25"]
    assert svg.told_apart([0.3449, 0.3481, 0.3522]) == ["0.345", "0.348", "0.352"]
    assert svg.told_apart([150.2, 161.0]) == ["150", "160"]
    assert svg.told_apart([-0.5, -0.5]) == ["\u22120.5", "\u22120.5"]


@pytest.mark.parametrize("ends", [(0, 0), (0, 1e-320), (-3.0, -1.0), (-1e-5, 0), (-1e308, 1e308), (2.5, 2.5)])
def test_ticks_hold_any_range(ends: tuple[float, float]) -> None:
    low, high = ends
    ticks = svg.ticks(min(0, low), max(0, high), wider=True)
    assert 2 <= len(ticks) <= 12 and ticks[0] <= low + 1e-9 * abs(low) and ticks[-1] >= high - 1e-9 * abs(high)


def test_labels_of_long_names_that_differ_in_the_middle_are_told_apart():
    names = [f"a{'m' * 60}{number}{'m' * 60}y" for number in (1, 2)]
    for labels in (names, [*names, "another"]):
        effects = [plots.Effect(label, 0.1, 0.0, 0.2, 9) for label in labels]
        shown = re.findall(r'text-anchor="end"[^>]*>([^<]+)<', str(plots.forest(effects, "RR@10", "t")))
        assert len({label for label in shown if label[0] in "a…"}) == len(labels), shown
