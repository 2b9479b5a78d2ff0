"""Ranks of judged passages against a full sort written out here; repeated passages and ranks."""

import hashlib
import random
from functools import partial
from itertools import product
from pathlib import Path

import polars as pl
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from eval_kit.files.faults import SHOWN_FAULTS, RunError
from eval_kit.runs import given as taken
from eval_kit.runs import ranks
from eval_kit.runs.given import Run
from eval_kit.runs.ranks import rank_judged
from eval_kit.runs.reader import read_pieces

QUERIES = ["10", "9", "q", "é"]
# in UTF-16, "ｚ" would come after "😀"; in a locale, "é" before "z"
PASSAGES = ["1", "10", "9", "Z", "a", "ab", "z", "é", "e\u0301", "ｚ", "😀"]
SCORES = [-1e300, -2.5, -0.0, 0.0, 5e-324, 1.0, 1.0000000000000002, 1e300]

pairs = st.dictionaries(
    st.tuples(st.sampled_from(QUERIES), st.sampled_from(PASSAGES)), st.sampled_from(SCORES), min_size=1, max_size=40
)
orders = st.sampled_from(["as drawn", "by query", "by query and score", "scattered"])
piece_sizes = st.sampled_from([1, 60, 1 << 20])


@pytest.fixture(scope="module")
def path(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("ranks") / "run.trec"


@pytest.fixture(scope="module")
def ranked_in_pieces(path):
    """Rank the passages of these lines, read in pieces of so many bytes."""

    def rank(lines, piece_bytes, judged, columns=6):
        rows = (f"{q} Q0 {p} 0 {value!r} t" if columns == 6 else f"{q} {p} {value}" for q, p, value in lines)
        path.write_text("\n".join(rows) + "\n")
        wanted = pl.DataFrame(judged, {"query_id": pl.String, "passage_id": pl.String}, orient="row")
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(taken, "read_pieces", partial(read_pieces, piece_bytes=piece_bytes))
            patch.setattr(ranks, "LINES_AT_ONCE", 5 if piece_bytes == 60 else ranks.LINES_AT_ONCE)
            return rank_judged(Run(path, "run", "run"), wanted)

    return rank


def ordered(run, order, seed=0):
    lines = [(query, passage, score) for (query, passage), score in run.items()]
    if order == "scattered":
        random.Random(seed).shuffle(lines)
    elif order == "by query":
        lines.sort(key=lambda line: line[0])
    elif order == "by query and score":
        lines.sort(key=lambda line: (line[0], -line[2]))
    return lines


def sorted_out(run):
    """By a full sort: each pair's rank, tied_from, tied_to; each query's retrieved, and whether all have one score."""
    places, queries = {}, {}
    for query in {query for query, _ in run}:
        scores = {passage: score for (other, passage), score in run.items() if other == query}
        ranking = sorted(scores, key=lambda passage: (scores[passage], passage.encode()), reverse=True)
        values = [scores[passage] for passage in ranking]
        for rank, passage in enumerate(ranking, 1):
            tied = [other for other, value in enumerate(values, 1) if value == scores[passage]]
            places[query, passage] = (rank, tied[0], tied[-1])
        queries[query] = len(values), len(values) > 1 and len(set(values)) == 1
    return places, queries


@settings(max_examples=30, deadline=None)
@given(
    run=pairs,
    order=orders,
    piece_bytes=piece_sizes,
    judged=st.sets(st.tuples(*map(st.sampled_from, (QUERIES, PASSAGES)))),
)
@example({("q", "a"): -0.0, ("q", "b"): 0.0, ("q", "z"): -0.0}, "as drawn", 1, {("q", "a"), ("q", "b"), ("q", "z")})
@example({("q", one): 1.0 for one in PASSAGES}, "scattered", 1, {("q", one) for one in PASSAGES})
def test_ranks_are_those_of_a_full_sort(ranked_in_pieces, path, run, order, piece_bytes, judged):
    ranked = ranked_in_pieces(ordered(run, order), piece_bytes, sorted(judged))
    places, queries = sorted_out(run)
    assert {row[:2]: row[2:] for row in ranked.judged.iter_rows()} == {
        pair: place for pair, place in places.items() if pair in judged
    }
    assert ranked.judged.height == len(judged & run.keys())
    assert {row[0]: row[1:] for row in ranked.queries.iter_rows()} == queries
    assert ranked.queries.height == len(queries)
    assert ranked.queries.columns == ["query_id", "retrieved", "one_score"]
    assert ranked.lines == len(run)
    assert ranked.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()


def test_ranks_that_contradict_the_scores_are_counted(path):
    """Scores 5, 5 and 2: the first two are tied, so only the last one's rank can be wrong. Nothing is judged."""
    judged = pl.DataFrame(schema={"query_id": pl.String, "passage_id": pl.String})
    for numbers, contradictions in (((1, 2, 3), 0), ((0, 0, 0), 0), ((2, 1, 3), 0), ((1, 3, 2), 1), ((3, 2, 1), 1)):
        first, second, last = numbers
        path.write_text(f"r Q0 p 1 9 t\nq Q0 a {first} 5 t\nq Q0 b {second} 5 t\nq Q0 c {last} 2 t\n")
        ranked = rank_judged(Run(path, "run", "run"), judged)
        assert ranked.contradictions == contradictions, numbers
        assert ranked.judged.is_empty()
        assert sorted(ranked.queries.select("query_id", "retrieved").rows()) == [("q", 3), ("r", 1)]
    for numbers, contradictions in (((1, 2, 3), 2), ((1, 1, 1), 0)):  # no scores, but ranks
        lines = (
            f"{query} Q0 {passage} {rank} 0 t\n" for query in "qr" for passage, rank in zip("abc", numbers, strict=True)
        )
        path.write_text("".join(lines) + "s Q0 a 1 0 t\n")
        assert rank_judged(Run(path, "run", "run"), judged).contradictions == contradictions


def repeats(path, lines):
    """Each line whose passage an earlier line of its query has, as the message of a refusal."""
    seen, found = set(), []
    for number, line in enumerate(lines, 1):
        pair = line[:2]
        if pair in seen:
            found.append(f"{path}:{number}: passage {line[1]} appears twice for query {line[0]}")
        seen.add(pair)
    more = f"; and {len(found) - SHOWN_FAULTS} more" if len(found) > SHOWN_FAULTS else ""
    return "; ".join(found[:SHOWN_FAULTS]) + more


@settings(max_examples=20, deadline=None)
@given(
    lines=st.lists(
        st.tuples(st.sampled_from(QUERIES), st.sampled_from(PASSAGES), st.just(1.0)), min_size=1, max_size=30
    ),
    grouped=st.booleans(),
    piece_bytes=piece_sizes,
)
@example([("q", "a", 1.0), ("9", "a", 1.0), ("q", "b", 1.0), ("q", "a", 2.0)], False, 1)
def test_passages_that_come_twice_are_named_with_their_lines(ranked_in_pieces, path, lines, grouped, piece_bytes):
    lines = sorted(lines, key=lambda line: line[0]) if grouped else lines
    refusal = ""
    try:
        ranked_in_pieces(lines, piece_bytes, [])
    except RunError as refused:
        refusal = str(refused)
    assert refusal == repeats(path, lines)


@settings(max_examples=20, deadline=None)
@given(
    ranked=st.lists(st.tuples(st.sampled_from(QUERIES), st.integers(0, 12)), min_size=1, max_size=20),
    grouped=st.booleans(),
    piece_bytes=piece_sizes,
)
def test_a_stated_rank_is_the_place_as_in_ms_marcos_script(ranked_in_pieces, ranked, grouped, piece_bytes):
    ranked = sorted(ranked) if grouped else ranked
    lines = [(query, f"p{number}", rank) for number, (query, rank) in enumerate(ranked)]
    lines += [("zz", "p1", 1), ("zz", "p2", 2)]  # a run whose ranks all fall looks like one of scores
    places, strange = {}, set()
    for number, (query, passage, rank) in enumerate(lines):
        before = [other for each, _, other in lines[:number] if each == query]
        strange |= {query} if rank in before or (before and rank < before[-1]) else set()
        places[query, rank] = passage  # the script's list holds one passage at a place, the last
    first = {query: min(rank for other, rank in places if other == query) for query, _ in places}
    found = ranked_in_pieces(lines, piece_bytes, [line[:2] for line in lines], columns=3)
    expected = {(query, passage, rank + (first[query] == 0)) for (query, rank), passage in places.items()}
    assert {row[:3] for row in found.judged.iter_rows()} == expected
    assert found.judged.height == len(places) and found.contradictions == len(strange)


def test_a_faulty_line_is_told_before_a_passage_that_comes_twice(ranked_in_pieces, path):
    for bad, piece_bytes in product((1, 2, 5), (1, 1 << 20)):
        lines = [("q", passage, 1.0) for passage in ("a", "b", "c", "a")] + [("r", "a", 1.0), ("s", "a", 1.0)]
        lines[bad] = (*lines[bad][:2], float("nan"))
        with pytest.raises(RunError) as refused:
            ranked_in_pieces(lines, piece_bytes, [])
        assert str(refused.value) == f"{path}:{bad + 1}: the score 'nan' is not a finite number"
