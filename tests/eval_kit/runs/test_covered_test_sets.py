"""Which test sets a run is scored on: exact, nearly whole, partial, several, overlapping, unknown."""

import json
from pathlib import Path

import polars as pl
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from eval_kit.files.faults import RunError
from eval_kit.release import TestSet
from eval_kit.runs.covered_test_sets import coverage_of


def ids(letter, *ranges):
    return [f"{letter}{i}" for low, high in ranges for i in range(low, high)]


MEMBERS = {
    "big": ids("a", (0, 200)),
    "big.low": ids("a", (0, 50)),
    "big.high": ids("a", (150, 200)),
    "big.tiny": ids("a", (0, 2)),
    "other": ids("b", (0, 60)),
    "across": ids("a", (190, 200)) + ids("b", (0, 10)),
    "exact": ids("c", (0, 100)),
}
ALL = sorted(set().union(*MEMBERS.values()))
KNOWN = pl.Series([*ALL, *ids("u", (0, 5))])
BIG = ["big", "big.low", "big.high", "big.tiny"]


def sets_of(members: dict[str, list[str]], shift: str = "shift") -> dict[str, TestSet]:
    return {name: TestSet(name, shift, ("RR@10",), pl.Series(queries), "qrels") for name, queries in members.items()}


SETS = sets_of(MEMBERS)


def names(held, sets, known, allow_missing=False, run=Path("run.trec")):
    """The names of the sets that a run of these queries covers."""
    coverage = coverage_of(run, pl.Series(held), sets, pl.Series(known), allow_missing)
    return [test_set.name for test_set in coverage.test_sets]


def cover(tmp_path, held, allow_missing=False):
    """The covered sets' names and the count of unjudged queries, of a run that holds these backwards."""
    run = tmp_path / "run.trec"
    run.write_text("".join(f"{query} Q0 p{i} {i} {-i} t\n" for query in reversed(held) for i in (1, 2)))
    coverage = coverage_of(run, pl.Series(reversed(held)), SETS, KNOWN, allow_missing)
    return [test_set.name for test_set in coverage.test_sets], coverage.unjudged


@pytest.mark.parametrize(
    ("held", "expected"),
    [
        (MEMBERS["other"], ["other"]),
        (MEMBERS["big"], BIG),
        (MEMBERS["big.low"], ["big.low", "big.tiny"]),
        (MEMBERS["across"], ["across"]),
        (MEMBERS["big.low"] + MEMBERS["big.high"], ["big.low", "big.high", "big.tiny"]),
        (MEMBERS["big.high"] + ids("b", (0, 10)), ["big.high", "across"]),
        (MEMBERS["other"] + ids("a", (190, 200)), ["other", "across"]),
        (MEMBERS["exact"] + MEMBERS["other"], ["other", "exact"]),
        (ids("a", (1, 200)), BIG),  # a0 is in three sets; the parts of a covered set follow it
        (ids("a", (2, 200)), BIG),
        (ids("c", (1, 100)), ["exact"]),  # 1 of 100 missing
        (ids("b", (1, 60)), ["other"]),  # 1 of 60
        (ids("c", (1, 50), (51, 70), (71, 100)), ["exact"]),  # 3 of 100, scattered
        (ids("c", (3, 20), (21, 40), (41, 60), (61, 80), (81, 99)), ["exact"]),  # 8 of 100, at most 3 at an end
        (ALL, list(MEMBERS)),
    ],
)
def test_sets_that_are_covered(tmp_path, held, expected):
    for allow_missing in (False, True):
        assert cover(tmp_path, held, allow_missing) == (expected, 0)
        assert cover(tmp_path, held + ids("u", (1, 4)), allow_missing) == (expected, 3)


@pytest.mark.parametrize(
    ("held", "lacking", "of", "name", "allowed"),
    [
        (ids("c", (0, 80), (89, 100)), 9, 100, "exact", ["exact"]),
        (ids("b", (5, 60)), 5, 60, "other", ["other"]),
        (ids("a", (0, 180)), 20, 200, "big", BIG),
        (ids("a", (60, 120)), 140, 200, "big", BIG),
        (ids("a", (10, 50)), 10, 50, "big.low", ["big.low", "big.tiny"]),
        (MEMBERS["other"] + ids("a", (5, 50)), 5, 50, "big.low", ["big.low", "big.tiny", "other"]),
        (MEMBERS["exact"] + ids("b", (5, 60)), 5, 60, "other", ["other", "exact"]),
        (ids("b", (0, 1)), 19, 20, "across", ["across"]),  # in other too, which it fits less
        (ids("c", (0, 50)) + ids("b", (10, 60)), 10, 60, "other", ["other", "exact"]),
        (ids("u", (0, 5)) + ids("c", (0, 1)), 99, 100, "exact", ["exact"]),
    ],
)
def test_a_set_covered_in_part_is_named(tmp_path, held, lacking, of, name, allowed):
    with pytest.raises(RunError) as refused:
        cover(tmp_path, held)
    assert str(refused.value) == (
        f"{tmp_path / 'run.trec'}: {lacking} of the {of} queries of {name} are missing, more than 8 %; "
        "--allow-missing scores them as 0"
    )
    assert cover(tmp_path, held, allow_missing=True)[0] == allowed


def test_a_set_that_whole_sets_cover_by_chance_is_left_out():
    """As a run over the topic test queries of a small release that happen to hold most queries of a wh cluster."""
    sets = sets_of({"c0": ids("a", (0, 50)), "c1": ids("a", (50, 100)), "how": ids("a", (40, 98)) + ids("b", (0, 5))})
    known = ids("a", (0, 100)) + ids("b", (0, 5))
    assert names(ids("a", (0, 100)), sets, known) == ["c0", "c1"]
    with pytest.raises(RunError, match="5 of the 63 queries of how are missing, 5 of them together at an end"):
        names(ids("a", (0, 98)), {"c0": sets["c0"], "how": sets["how"]}, known)


def test_parts_without_a_whole_are_covered_together():
    """As NFCorpus's short queries in a release of length alone: BM25 finds nothing for 12 %, 6 % of both parts."""
    sets = sets_of({"length.short": ids("a", (0, 100)), "length.long": ids("b", (0, 100))}, "length")
    held = ids("a", (0, 40), (52, 100)) + ids("b", (0, 100))
    assert names(held, sets, held) == ["length.short", "length.long"]
    held = ids("a", (0, 40), (57, 100)) + ids("b", (0, 100))
    with pytest.raises(RunError, match=r"17 of the 100 queries of length\.short are missing"):
        names(held, sets, held)


@pytest.mark.parametrize(
    ("held", "lacking", "of", "name", "together"),
    [
        (ids("c", (0, 98)), 2, 100, "exact", 2),
        (ids("c", (2, 100)), 2, 100, "exact", 2),
        (ids("c", (0, 30), (31, 60), (61, 96)), 6, 100, "exact", 4),
        (ids("a", (3, 200)), 3, 200, "big", 3),
        (ids("a", (0, 190)), 10, 200, "big", 10),
        (ids("b", (0, 57)), 3, 60, "other", 3),
        # the last of the ids as text: a98, a99, a97
        (ids("a", (0, 97), (100, 200)), 3, 200, "big", 3),
    ],
)
def test_a_run_that_was_cut_short_is_named(tmp_path, held, lacking, of, name, together):
    with pytest.raises(RunError) as refused:
        cover(tmp_path, held)
    assert str(refused.value) == (
        f"{tmp_path / 'run.trec'}: {lacking} of the {of} queries of {name} are missing, {together} of them together "
        "at an end, as in a run cut short; --allow-missing scores them as 0"
    )
    assert name in cover(tmp_path, held, allow_missing=True)[0]


ORDERS = {
    "the test set's": list,
    "as text": sorted,
    "as numbers": lambda queries: sorted(queries, key=int),
    "as text, backwards": lambda queries: sorted(queries, reverse=True),
}


@settings(max_examples=100, deadline=None)
@given(
    queries=st.lists(st.integers(0, 10**7).map(str), min_size=20, max_size=400, unique=True),
    order=st.sampled_from(sorted(ORDERS)),
    empty=st.sets(st.integers(0, 399), max_size=8),
    share=st.floats(0.5, 0.9),
)
def test_a_run_cut_at_90_percent_is_refused_in_any_order(queries, order, empty, share):
    """Whatever the order and however many empty results stand before the cut."""
    listed = ORDERS[order](queries)[: int(share * len(queries))]
    held = [query for index, query in enumerate(listed) if index not in empty]
    assume(held)
    with pytest.raises(RunError, match="of set are missing"):
        names(held, sets_of({"set": queries}), queries)


@settings(max_examples=100, deadline=None)
@given(data=st.data(), queries=st.lists(st.integers(0, 10**7).map(str), min_size=13, max_size=400, unique=True))
def test_scattered_empty_results_are_accepted(data, queries):
    """Up to 8 %, while both ends of every order are there."""
    ends = {query for order in ORDERS.values() for query in (*order(queries)[:1], *order(queries)[-1:])}
    inner = [query for query in queries if query not in ends]
    empty = data.draw(st.sets(st.sampled_from(inner), max_size=int(0.08 * len(queries)))) if inner else set()
    held = [query for query in queries if query not in empty]
    assert names(held, sets_of({"set": queries}), queries) == ["set"]


def test_a_run_over_all_topics_of_dl19_scores(tmp_path):
    """The 157 that nobody judged are known by their number and by being numbers."""
    queries, run = [str(i) for i in range(43)], tmp_path / "run.trec"
    numbers = [str(10**6 + i) for i in range(158)]
    test_set = sets_of({"dl19": queries}, "dl19")
    coverage = coverage_of(run, pl.Series(queries + numbers[:157]), test_set, pl.Series(queries))
    assert ([covered_set.name for covered_set in coverage.test_sets], coverage.unjudged) == (["dl19"], 157)
    for held in (
        queries[:42] + numbers[:157],
        queries + numbers[:156],
        queries + numbers,
        queries + [f"q{i}" for i in range(157)],
        queries + numbers[:1],
    ):
        run.write_text("".join(f"{query} Q0 p 1 1 t\n" for query in held))
        with pytest.raises(RunError, match="is in no test set of this release"):
            names(held, test_set, queries, run=run)


@pytest.mark.parametrize("allow_missing", [False, True])
def test_a_run_that_nobody_judged_is_refused(tmp_path, allow_missing):
    with pytest.raises(RunError, match=r"run\.trec: this release judges none of its 5 queries$"):
        cover(tmp_path, ids("u", (0, 5)), allow_missing)


@pytest.mark.parametrize("allow_missing", [False, True])
@pytest.mark.parametrize(("strangers", "more"), [(["x"], ""), (["x", "y", "z"], "; and 2 more")])
def test_unknown_queries_are_named_with_their_line(tmp_path, strangers, more, allow_missing):
    held = [*MEMBERS["other"][:40], *reversed(strangers), *MEMBERS["other"][40:]]
    with pytest.raises(RunError) as refused:
        cover(tmp_path, held, allow_missing)
    line = 2 * 20 + 1  # the run's order is reversed, two lines a query
    sentence = f":{line}: query x is in no test set of this release{more}; another --release?"
    assert str(refused.value) == f"{tmp_path / 'run.trec'}{sentence}"


def test_the_command_counts_what_is_missing_and_scores_it_as_0(mini_release, tmp_path, command):
    """A perfect run without some queries: the mean falls by exactly their share."""
    run, out, dev = tmp_path / "dev.trec", tmp_path / "scores.json", mini_release.test_sets["dev"]
    judged = mini_release.qrels(dev.qrels).filter(pl.col("relevance") > 0).unique("query_id")
    best = dict(judged.select("query_id", "passage_id").iter_rows())
    size = len(dev.queries)
    assert 100 <= size < 200  # one query is at most 1 %, two are more
    for lacking, options in ((1, []), (2, []), (2, ["--allow-missing"])):
        run.write_text("".join(f"{query} Q0 {best[query]} 1 1 t\n" for query in dev.queries[lacking:]))
        done = command("eval_kit", "score", run, "--release", mini_release.folder, "--json", out, *options)
        if lacking == 2 and not options:
            assert (done.returncode, done.stdout) == (2, "")
            assert done.stderr == (
                f"eval_kit: {run}: {lacking} of the {size} queries of dev are missing, {lacking} of them together "
                "at an end, as in a run cut short; --allow-missing scores them as 0\n"
            )
            assert not out.exists()
            continue
        assert done.returncode == 0, done.stderr
        figures = [figure for figure in json.loads(out.read_text())["measures"] if figure["test_set"] == "dev"]
        assert {(figure["queries"], figure["missing"]) for figure in figures} == {(size, lacking)}
        [value] = [figure["value"] for figure in figures if figure["measure"] == "RR@10"]
        assert value == pytest.approx(1 - lacking / size)
        assert f"{lacking} of the {size} queries of dev are missing" in done.stdout
        out.unlink()
