"""The draws of negatives: distinct, never relevant, and a query's own while there are enough."""

from collections.abc import Iterator
from unittest.mock import patch

from hypothesis import given
from hypothesis import strategies as st

from eval_kit.search import examples
from eval_kit.search.examples import Example, JudgedQueries, generator, lines, tables

IDS = [str(number) for number in range(40)]
PASSAGES = [(passage, "text") for passage in IDS]
QUERIES = st.dictionaries(
    st.sampled_from(["a", "b", "é"]),
    st.tuples(st.sets(st.sampled_from(IDS), min_size=1, max_size=5), st.sets(st.sampled_from(IDS))),
    min_size=1,
)
"""By query: its relevant passages, and its negatives with some of those."""


def judged(queries: dict[str, tuple[set[str], set[str]]]) -> JudgedQueries:
    return JudgedQueries(
        dict.fromkeys(queries, "text"),
        {query: sorted(relevant) for query, (relevant, _) in queries.items()},
        {query: sorted(negatives - relevant) for query, (relevant, negatives) in queries.items()},
    )


def one_by_one(queries: JudgedQueries, width: int, count: int, seed: int, random: bool) -> Iterator[Example]:
    """The examples as they are defined: each draw a call of its own, each turn over all pairs."""
    pairs = [(query, positive) for query in queries.texts for positive in queries.positives[query]]
    most = max(map(len, queries.negatives.values()))
    turns = -(-count // len(pairs)) if width else 1
    for turn in range(turns if random or not width else min(turns, max(1, most // width))):
        for query, positive in pairs:
            own = [] if random else queries.negatives[query]
            order = generator(seed, query).permutation(len(own))
            if len(own) >= width:
                yield query, positive, *(own[order[(turn * width + i) % len(own)]] for i in range(width))
                continue
            rng, negatives = generator(seed, query, turn), [own[number] for number in order]
            while len(negatives) < width:
                passage = IDS[int(rng.integers(len(IDS)))]
                if passage not in queries.positives[query] and passage not in own:
                    negatives.append(passage)
            yield query, positive, *negatives


@given(QUERIES, st.integers(0, 6), st.integers(1, 40), st.integers(0, 3), st.booleans(), st.integers(1, 3))
def test_examples_are_those_that_are_drawn_one_by_one(
    queries: dict[str, tuple[set[str], set[str]]], width: int, count: int, seed: int, random: bool, at_once: int
) -> None:
    with patch.object(examples, "AT_ONCE", at_once):
        parts = list(tables(judged(queries), PASSAGES, width, count, seed, random))
    expected = list(one_by_one(judged(queries), width, count, seed, random))
    assert [row for part in parts for row in part.iter_rows()] == expected
    assert b"".join(map(lines, parts)) == "".join("\t".join(example) + "\n" for example in expected).encode()


@given(QUERIES, st.integers(1, 6), st.booleans())
def test_negatives_of_an_example_are_distinct_and_never_relevant(
    queries: dict[str, tuple[set[str], set[str]]], width: int, random: bool
) -> None:
    known = judged(queries)
    for part in tables(known, PASSAGES, width, 40, 0, random):
        for query, _, *drawn in part.iter_rows():
            assert len(drawn) == width
            assert not set(drawn) & set(known.positives[query])
            own = known.negatives[query]
            if not random:
                assert len(set(drawn)) == width or len(own) < width
                assert set(drawn) <= set(own) or len(own) < width
