"""Which test sets a run is scored on: exact, nearly whole, partial, several, overlapping, unknown."""

import json
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eval_kit.files.faults import RunError
from eval_kit.release import TestSet
from eval_kit.runs.covered_test_sets import complete, coverage_of


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
BIG = ["big", "big.low", "big.high", "big.tiny"]


def sets_of(members: dict[str, list[str]], shift: str = "shift") -> dict[str, TestSet]:
    return {name: TestSet(name, shift, ("RR@10",), pl.Series(queries), "qrels") for name, queries in members.items()}


SETS = sets_of(MEMBERS)


def names(held, sets):
    """The names of the sets that a run of these queries covers."""
    coverage = coverage_of(Path("run.trec"), pl.Series(held), sets, "mini")
    return [test_set.name for test_set in coverage.test_sets]


def cover(tmp_path, held, allow_missing=False):
    """The covered sets' names and the count of unjudged queries, of a run that holds these backwards."""
    run = tmp_path / "run.trec"
    run.write_text("".join(f"{query} Q0 p{i} {i} {-i} t\n" for query in reversed(held) for i in (1, 2)))
    coverage = coverage_of(run, pl.Series(reversed(held)), SETS, "mini", allow_missing)
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
        (ids("b", (5, 60)), 5, 60, "other", ["other"]),  # 8.3 %
        (ids("a", (0, 180)), 20, 200, "big", BIG),
        (ids("a", (60, 120)), 140, 200, "big", BIG),
        (ids("a", (10, 50)), 10, 50, "big.low", ["big.low", "big.tiny"]),
        (MEMBERS["other"] + ids("a", (5, 50)), 5, 50, "big.low", ["big.low", "big.tiny", "other"]),
        (MEMBERS["exact"] + ids("b", (5, 60)), 5, 60, "other", ["other", "exact"]),
        (ids("b", (0, 1)), 19, 20, "across", ["across"]),  # in other too, which it fits less
        (ids("c", (0, 50)) + ids("b", (10, 60)), 10, 60, "other", ["other", "exact"]),
        (ids("u", (0, 5)) + ids("c", (0, 5)), 95, 100, "exact", ["exact"]),
    ],
)
def test_a_set_covered_in_part_is_named(tmp_path, held, lacking, of, name, allowed):
    with pytest.raises(RunError) as refused:
        cover(tmp_path, held)
    said = str(refused.value)
    assert said.startswith(f"{tmp_path / 'run.trec'} lacks {lacking} of the {of} queries of {name}, ")
    assert "allow_missing" in said
    assert cover(tmp_path, held, allow_missing=True)[0] == allowed


def test_a_set_that_whole_sets_cover_by_chance_is_left_out():
    """As a run over the topic test queries of a small release that happen to hold most queries of a wh cluster."""
    sets = sets_of({"c0": ids("a", (0, 50)), "c1": ids("a", (50, 100)), "how": ids("a", (40, 98)) + ids("b", (0, 5))})
    assert names(ids("a", (0, 100)), sets) == ["c0", "c1"]
    assert names(ids("a", (0, 98)), {"c0": sets["c0"], "how": sets["how"]}) == ["c0", "how"]


@settings(max_examples=50, deadline=None)
@given(data=st.data(), size=st.integers(1, 400))
def test_up_to_8_percent_may_be_missing_wherever_they_are(data, size):
    """The first, the last, or scattered; one more is refused."""
    queries = ids("q", (0, size))
    most = int(0.08 * size)
    order = data.draw(st.permutations(queries))
    assert names(order[most:], sets_of({"set": queries})) == ["set"]
    if size > most + 1:
        with pytest.raises(RunError, match=f"lacks {most + 1} of the {size} queries of set"):
            names(order[most + 1 :], sets_of({"set": queries}))


@pytest.mark.parametrize("allow_missing", [False, True])
def test_a_run_that_nobody_judged_is_refused(tmp_path, allow_missing):
    with pytest.raises(RunError, match=r"None of the 5 queries of .*run\.trec"):
        cover(tmp_path, ids("u", (0, 5)), allow_missing)


def test_a_run_of_which_few_queries_are_known_is_of_another_release(tmp_path):
    held = ids("u", (0, 7)) + ids("c", (0, 3))
    with pytest.raises(RunError, match=r"Only 3 of the 10 queries of .*run\.trec"):
        cover(tmp_path, held)
    assert cover(tmp_path, held, allow_missing=True) == (["exact"], 7)


def test_a_set_that_a_run_was_to_cover_is_answered_with_those_that_it_does():
    with pytest.raises(RunError, match="test_sets exact"):
        complete(Path("run.trec"), pl.Series(MEMBERS["exact"]), [SETS["other"]], others=SETS.values())


def test_the_command_counts_what_is_missing_and_scores_it_as_0(mini_release, tmp_path, command):
    """A perfect run without some queries: the mean falls by exactly their share."""
    run, out, dev = tmp_path / "dev.trec", tmp_path / "scores.json", mini_release.test_sets["dev"]
    judged = mini_release.qrels(dev.qrels).filter(pl.col("relevance") > 0).unique("query_id")
    best = dict(judged.select("query_id", "passage_id").iter_rows())
    size = len(dev.queries)
    most = int(0.08 * size)
    for lacking, options in ((most, []), (most + 1, []), (most + 1, ["--allow-missing"])):
        run.write_text("".join(f"{query} Q0 {best[query]} 1 1 t\n" for query in dev.queries[lacking:]))
        done = command("eval_kit", "score", run, "--release", mini_release.folder, "--json", out, *options)
        if lacking > most and not options:
            assert (done.returncode, done.stdout) == (2, "")
            assert f"{run} lacks {lacking} of the {size} queries of dev" in done.stderr and not out.exists()
            continue
        assert done.returncode == 0, done.stderr
        figures = [figure for figure in json.loads(out.read_text())["measures"] if figure["test_set"] == "dev"]
        assert {(figure["queries"], figure["missing"]) for figure in figures} == {(size, lacking)}
        [value] = [figure["value"] for figure in figures if figure["measure"] == "RR@10"]
        assert value == pytest.approx(1 - lacking / size)
        assert f"dev has no results for {lacking} of the {size} queries of dev" in done.stdout
        out.unlink()
