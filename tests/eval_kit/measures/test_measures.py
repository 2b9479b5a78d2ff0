"""Measures against trec_eval (through pytrec_eval); ASL against a definition written out here.

With grades and on real runs they are compared with ir_measures, in test_score.py.
"""

import itertools
import math
from operator import mul

import ir_measures
import polars as pl
import pytest
import pytrec_eval
from hypothesis import given, settings
from hypothesis import strategies as st

from eval_kit.errors import UserError
from eval_kit.measures import definitions
from eval_kit.measures.definitions import measure_named, parse, per_query
from eval_kit.runs import rows
from eval_kit.runs.writer import ranking

QUERIES = [f"q{i}" for i in range(3)]
PASSAGES = [f"{i}" for i in range(12)]
# halves are exact in the float32 that pytrec_eval compares scores in
SCORES = st.integers(-4, 4).map(lambda n: n / 2)

runs = st.fixed_dictionaries(
    {}, optional={query: st.dictionaries(st.sampled_from(PASSAGES), SCORES, min_size=1) for query in QUERIES}
)
qrels = st.fixed_dictionaries(
    {query: st.dictionaries(st.sampled_from(PASSAGES), st.integers(0, 3), min_size=1) for query in QUERIES}
)

TREC_NAMES = (
    *("recip_rank", "map", "ndcg", "ndcg_cut_5", "recall_5", "recall_100", "map_cut_5"),
    *("P_5", "P_100", "success_1", "success_5", "Rprec", "bpref"),
)


def judged_frame(run, judged):
    """All judged passages with their rank in the run, by a full sort: no code shared with eval_kit.runs.ranks."""
    rows = []
    for query, grades in judged.items():
        scores = run.get(query, {})
        order = sorted(scores, key=lambda passage: (scores[passage], passage.encode()), reverse=True)
        ranks = {passage: rank for rank, passage in enumerate(order, start=1)}
        for passage, grade in grades.items():
            rows.append((query, passage, grade, ranks.get(passage)))
    kinds = {"query_id": pl.String, "passage_id": pl.String, "relevance": pl.Int64, "rank": pl.UInt32}
    return pl.DataFrame(rows, kinds, orient="row")


def values(name, frame):
    return dict(zip(QUERIES, per_query(parse(name), frame, pl.Series(QUERIES)), strict=True))


@settings(max_examples=50, deadline=None)
@given(runs, qrels, st.sampled_from([1, 2]))
def test_agrees_with_trec_eval(run, judged, grade):
    theirs = pytrec_eval.RelevanceEvaluator(judged, set(TREC_NAMES), relevance_level=grade).evaluate(run)
    frame = judged_frame(run, judged)
    for trec_name in TREC_NAMES:
        measure = measure_named(trec_name)
        with_grade = grade > 1 and measure.kind.takes_grade
        name = measure.name.replace(measure.kind.name, f"{measure.kind.name}(rel=2)") if with_grade else measure.name
        mine = values(name, frame)
        for query in QUERIES:
            expected = theirs[query][trec_name] if query in theirs else 0.0  # trec_eval -c
            assert mine[query] == pytest.approx(expected, abs=1e-9), (name, query)


@settings(max_examples=15, deadline=None)
@given(runs, qrels)
def test_gdevals_measures_agree_with_it(run, judged):
    """The script of TREC's Web track, which ir_measures runs; it prints five digits, and knows queries by number."""
    numbered = [{query[1:]: scores for query, scores in each.items()} for each in (judged, run)]
    names = ["ERR@5", "ERR@100", "nDCG(dcg='exp-log2')@3", "nDCG(dcg='exp-log2')@100"]
    theirs = dict.fromkeys(itertools.product(names, QUERIES), 0.0)
    for value in ir_measures.iter_calc(list(map(ir_measures.parse_measure, names)), *numbered):
        theirs[str(value.measure), f"q{value.query_id}"] = value.value
    for name in names:
        for query, value in values(name, judged_frame(run, judged)).items():
            assert value == pytest.approx(theirs[name, query], abs=6e-6), (name, query)


@settings(max_examples=25, deadline=None)
@given(runs, qrels, st.sampled_from([("RBP", None, 0.8), ("RBP(p=0.5)", None, 0.5), ("RBP(rel=2,p=.95)@5", 2, 0.95)]))
def test_rank_biased_precision_is_its_geometric_sum(run, judged, measure):
    name, grade, persistence = measure
    frame = judged_frame(run, judged)
    highest = max((each for of_query in judged.values() for each in of_query.values()), default=1)
    for query, value in values(name, frame).items():
        relevant = frame.filter(pl.col("relevance") >= (grade or 1), query_id=pl.lit(query)).drop_nulls("rank")
        ranked = [row for row in relevant.to_dicts() if "@5" not in name or row["rank"] <= 5]
        gains = [1 if grade else row["relevance"] / highest for row in ranked]
        read = [persistence ** (row["rank"] - 1) for row in ranked]
        assert value == pytest.approx((1 - persistence) * sum(map(mul, gains, read)), abs=1e-12)


def test_trec_evals_ties_in_32_bits_are_none_here():
    """As docs/where-we-differ.md says."""
    run, judged = {"q": {"a": 20.00000001, "b": 20.0}}, {"q": {"a": 1}}
    assert pytrec_eval.RelevanceEvaluator(judged, {"recip_rank"}).evaluate(run)["q"]["recip_rank"] == 0.5
    assert ranking(rows.lines("run", run))["passage_id"].to_list() == ["a", "b"]


def search_length(run, grades, bound):
    """ASL as ECIR 2023 §4 tells it, by walking down the ranking."""
    ranking = sorted(run, key=lambda passage: (run[passage], passage.encode()), reverse=True)
    lengths = []
    for passage, grade in grades.items():
        if grade < 1:
            continue
        if passage not in ranking:
            lengths.append(bound)
            continue
        above = ranking[: ranking.index(passage)]
        lengths.append(min(bound, sum(grades.get(other, 0) < 1 for other in above)))
    return sum(lengths) / len(lengths) if lengths else bound


@settings(max_examples=50, deadline=None)
@given(runs, qrels, st.sampled_from([1, 3, 100]))
def test_asl_against_its_definition(run, judged, bound):
    mine = values(f"ASL@{bound}", judged_frame(run, judged))
    for query in QUERIES:
        assert mine[query] == pytest.approx(search_length(run.get(query, {}), judged[query], bound), abs=1e-9)


UNKNOWN = "Unknown measure .* cutoffs from 1 to 9,999,999$"


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        *((name, UNKNOWN) for name in ("MRR@10", "RR@0", "RR@10 ", "RR(rel=0)@10", "")),
        *((name, f"'{name}' needs a cutoff") for name in ("R", "R_cap", "ASL", "P", "Judged")),
        *((name, "take") for name in ("nDCG(rel=2)@10", "RR(p=0.5)@10", "R(dcg='exp-log2')@10")),
        *((name, "takes no cutoff") for name in ("Rprec@10", "Bpref(rel=2)@5")),
        *((name, UNKNOWN) for name in ("RBP(p=1.5)", "RBP(p=0.5,p=0.6)", "RBP()", "nDCG(dcg=exp)@5", "RBP(=)")),
    ],
)
def test_unknown_measures_are_refused(name, sentence):
    with pytest.raises(UserError, match=sentence):
        parse(name)


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("ndcg_cut_10", "nDCG@10"),
        ("ndcg_cut.10", "nDCG@10"),  # what pytrec_eval's evaluator takes
        ("ndcg_at_10", "nDCG@10"),  # MTEB's
        ("MRR@10", "RR@10"),
        ("hit_rate@10", "Success@10"),  # ranx's
        ("hit@10", "Success@10"),
        ("accuracy@1", "Success@1"),  # that of sentence-transformers' evaluator
        ("r_cap@100", "R_cap@100"),
        ("Rprec", "Rprec"),
        ("ndcg_burges@10", "nDCG(dcg='exp-log2')@10"),  # ranx's
        (ir_measures.RBP(rel=2, p=0.5), "RBP(rel=2,p=0.5)"),
        (ir_measures.nDCG(dcg="exp-log2") @ 10, "nDCG(dcg='exp-log2')@10"),
        ("RR(rel=2)@10", "RR(rel=2)@10"),
    ],
)
def test_the_names_that_other_tools_use(typed, meant):
    assert measure_named(typed).name == meant


def test_a_persistence_that_ranx_writes_as_a_cutoff_is_refused():
    with pytest.raises(UserError, match="RBP with that persistence"):
        measure_named("rbp.95")


def test_values_beyond_the_possible_are_refused():
    judged = pl.DataFrame({"query_id": ["q", "q"], "relevance": [3, 3], "rank": [1, 1]})
    values = per_query(parse("nDCG@10"), judged, pl.Series(["q"]))
    with pytest.raises(UserError, match="passage is judged twice, or polars"):
        definitions.check_values(parse("nDCG@10"), values)
    definitions.check_values(parse("ASL@100"), pl.Series([100.0]))
    for value in (100.5, float("nan")):
        with pytest.raises(UserError, match="at most 100 is possible"):
            definitions.check_values(parse("ASL@100"), pl.Series([value]))


def test_a_library_that_computes_wrongly_is_refused(monkeypatch):
    """As polars 1.28 to 1.32 did, which sorted wrongly inside of groups; the known values are those of the formulas."""
    ranks = {3: 3, 1: 1, 2: 2}
    shifts = [query % 2 for query in range(definitions.KNOWN_QUERIES)]
    ideal = sum(grade / math.log2(place + 2) for place, grade in enumerate((3, 2, 1)))
    gains = [sum(grade / math.log2(rank + shift + 1) for rank, grade in ranks.items()) / ideal for shift in shifts]
    precisions = [sum(place / (place + shift) for place in (1, 2, 3)) / 3 for shift in shifts]
    assert pytest.approx({"nDCG@10": sum(gains), "AP": sum(precisions)}, abs=1e-9) == definitions.KNOWN_VALUES
    definitions.check_library.cache_clear()
    definitions.check_library()
    definitions.check_library.cache_clear()
    monkeypatch.setattr(definitions, "per_query", lambda measure, judged, queries: pl.Series([1.0]))
    with pytest.raises(UserError, match=r"computes nDCG@10 wrongly: 1\.0000, not 28\.0765"):
        definitions.check_library()
    monkeypatch.undo()
    definitions.check_library.cache_clear()


def test_a_measure_typed_without_its_sign_is_guessed_with_it():
    for typed, meant in {
        "NDCG10": "nDCG@10",
        "MRR10": "RR@10",
        "P5": "P@5",
        "Recall100": "R@100",
        "nDGC10": "nDCG@10",
    }.items():
        with pytest.raises(UserError, match=rf"did you mean {meant}\?"):
            measure_named(typed)
    with pytest.raises(UserError) as unknown:
        measure_named("qqqqq@10")
    assert "did you mean" not in str(unknown.value)


EVERY = (
    "RR",
    "RR@2",
    "R@2",
    "R_cap@2",
    "P@3",
    "Success@1",
    "AP",
    "AP(rel=2)@3",
    "nDCG",
    "nDCG@3",
    "nDCG(dcg='exp-log2')@3",
)
EVERY += ("Rprec", "Bpref", "ERR@3", "RBP(p=0.5)", "ASL@3", "hole@2")


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 1), st.sampled_from([None, -1, 0, 1, 2, 3])), min_size=1, max_size=6),
    st.integers(0, 2),
)
def test_no_order_of_tied_passages_gives_more_than_the_best_or_less_than_the_worst(passages, not_found) -> None:
    """By all orders: each passage is its score and its grade; some relevant ones are not found."""
    ids = [str(number) for number in range(len(passages))]
    scores = {id: score for id, (score, _) in zip(ids, passages, strict=True)}
    grades = {id: grade for id, (_, grade) in zip(ids, passages, strict=True) if grade is not None}
    grades |= {f"x{number}": 1 for number in range(not_found)}
    orders = [sum(each, ()) for each in itertools.product(*map(itertools.permutations, (
        [id for id in ids if scores[id] == score] for score in (1, 0))))]  # fmt: skip
    firsts = {1: (1, sum(scores.values())), 0: (sum(scores.values()) + 1, len(ids))}
    rows = [(id, grade, *firsts.get(scores.get(id, -1), (None, None))) for id, grade in grades.items()]
    schema = {"passage_id": pl.String, "relevance": pl.Int64, "tied_from": pl.UInt32, "tied_to": pl.UInt32}
    judged = pl.DataFrame(rows, schema, orient="row").with_columns(query_id=pl.lit("q"), retrieved=pl.lit(len(ids)))

    def with_ranks(order):
        places = {id: rank for rank, id in enumerate(order, 1)}
        ranks = [places.get(id) for id in judged["passage_id"]]
        return judged.with_columns(rank=pl.Series(ranks, dtype=pl.UInt32), query_id=pl.lit(" ".join(order)))

    ordered = pl.concat(map(with_ranks, orders))
    for name in EVERY:
        measure = parse(name)
        found = per_query(measure, ordered, pl.Series(map(" ".join, orders)))
        ends = [
            per_query(measure, definitions.with_ties_resolved(judged, best), pl.Series(["q"]))[0]
            for best in (False, True)
        ]
        assert sorted(ends) == pytest.approx([found.min(), found.max()]), name
