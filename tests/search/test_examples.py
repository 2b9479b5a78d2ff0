"""The draws of negatives: distinct, never relevant, and a query's own while there are enough."""

from hypothesis import given
from hypothesis import strategies as st

from search.examples import Judged, _Draws


@given(
    st.sets(st.integers(0, 30)), st.sets(st.integers(0, 30), min_size=1, max_size=5), st.integers(1, 6), st.booleans()
)
def test_negatives_of_an_example_are_distinct_and_never_relevant(
    own: set[int], relevant: set[int], width: int, random: bool
) -> None:
    ids = [str(one) for one in range(40)]
    judged = Judged({"q": "text"}, {"q": [str(one) for one in relevant]}, {"q": [str(one) for one in own - relevant]})
    draws = _Draws("q", judged, ids, 0, random)
    for turn in range(4):
        drawn = draws.turn(turn, width)
        assert len(drawn) == width
        assert not set(drawn) & set(judged.positives["q"])
        if not random:
            assert len(set(drawn)) == width or len(own - relevant) < width
            assert set(drawn) <= set(judged.negatives["q"]) or len(own - relevant) < width
