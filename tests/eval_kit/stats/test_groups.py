"""Queries that hang together are counted as groups where that matters, and a group alone says nothing."""

from itertools import combinations
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from eval_kit.divisions import Division
from eval_kit.protocols import by_part
from eval_kit.stats.differences import difference, differences
from eval_kit.stats.groups import groups_of
from eval_kit.stats.halves import worst


def alike(groups: int, size: int) -> tuple[np.ndarray, np.ndarray]:
    """Values that are the same in a group but for a little, and the groups."""
    rng, of_query = np.random.default_rng(0), np.repeat(np.arange(groups), size)
    return rng.normal(size=groups)[of_query] + 0.1 * rng.normal(size=groups * size), of_query


def test_groups_of_five_that_fare_alike_count_as_one_each() -> None:
    values, groups = alike(40, 5)
    found, alone = difference(values, groups=groups), difference(values)
    of_means = values.reshape(40, 5).mean(axis=1).std(ddof=1) / 40**0.5
    assert (found.error, found.degrees) == (pytest.approx(of_means), 39)
    assert found.ratio == pytest.approx(of_means / (alone.error or 0)) and found.ratio > 2
    few = difference(*alike(4, 5)[:1], groups=alike(4, 5)[1])
    assert few.degrees == 3, "of few groups the error is too rough to say that they do not matter"


def test_a_part_of_a_single_group_is_not_tested() -> None:
    values, groups = alike(21, 20)
    parts = np.minimum(groups, 1)  # the first group, and all others
    (first, others), to_rest = differences(values, parts, 2, values, groups=groups)
    assert (first.error, first.p, first.interval) == (None, None, (None, None)) and others.p is not None
    ids = [str(number) for number in range(420)]
    sides = [
        pl.DataFrame({"query_id": ids, "value": side, "group": groups, "system": name})
        for name, side in (("a", 0 * values), ("b", values))
    ]
    frame = pl.concat(sides).with_columns(test_set=pl.lit("test"), measure=pl.lit("RR@10"), searched=True)
    division = Division("d", pl.DataFrame({"query_id": ids, "part": [str(part) for part in parts]}), "")
    rows, _ = by_part.compared(frame, ("a", "b"), {"test": [division]}, 0.02)
    verdicts = dict(zip(rows["part"], rows["verdict"], strict=True))
    assert verdicts["0"] == "cannot tell" and len(to_rest) == 2


def test_a_kind_of_few_groups_is_not_looked_for() -> None:
    values, groups = alike(20, 50)
    kinds = {str(each): np.flatnonzero((groups == each) | (groups == each + 1)) for each in range(19)}
    assert worst(values, kinds, 10, groups=groups) == []
    assert worst(values, kinds, 10)


def test_a_chain_of_needs_that_share_a_little_is_no_group(shared: Path) -> None:
    """Of each query all pairs by hand: half of what is relevant to either is so to both; in NFCorpus few are."""
    needs = {"a": "12", "b": "12", "c": "123", "d": "3456", "e": "56789", "f": "x", "g": "xy", "h": "xyz", "i": "z"}
    pairs = [(query, each) for query, own in needs.items() for each in own]
    relevant = pl.DataFrame(pairs, ["query_id", "passage_id"], orient="row")
    queries = pl.DataFrame({"query_id": [*needs, "j"]}).with_columns(text=pl.lit(None, pl.String))
    groups = dict(groups_of(queries, relevant).iter_rows())
    assert len({groups[each] for each in "abc"}) == len({groups[each] for each in "fgh"}) == 1
    assert len(set(groups.values())) == 10 - 2 - 2
    file = shared / "beir/nfcorpus/qrels/test.tsv"
    relevant = pl.read_csv(file, separator="\t", new_columns=["query_id", "passage_id", "grade"])
    own = {query: set(rows["passage_id"]) for (query,), rows in relevant.group_by("query_id")}
    ids = relevant.select("query_id").unique(maintain_order=True).with_columns(text=pl.lit(None, pl.String))
    found = dict(groups_of(ids, relevant.select("query_id", "passage_id")).iter_rows())
    leader = {query: query for query in own}
    for one, other in combinations(own, 2):
        if 2 * len(own[one] & own[other]) >= len(own[one] | own[other]):
            old, new = leader[one], leader[other]
            leader = {query: new if led == old else led for query, led in leader.items()}
    assert len(set(found.values())) == len({(found[query], led) for query, led in leader.items()}) == 287, "not 6"
