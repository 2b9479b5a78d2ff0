"""Several judges: figures beside scipy's, every verdict, and a judge of its own runs."""

import itertools
import json
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

import eval_kit
from eval_kit.errors import UserError
from eval_kit.protocols.judges import DEPENDS, NOT_SHOWN, OWN, are_several

QUERIES = [f"q{i}" for i in range(40)]


def run(chance: float, seed: int) -> dict[str, dict[str, float]]:
    """The relevant passage of each query stands first with this chance, and third otherwise."""
    rng = np.random.default_rng(seed)
    orders = {query: ("yes", "no", "maybe") if rng.random() < chance else ("maybe", "no", "yes") for query in QUERIES}
    return {query: {f"{query}-{name}": 3.0 - at for at, name in enumerate(order)} for query, order in orders.items()}


RUNS = {"base": run(0.1, 1), "good": run(0.9, 2), "same": run(0.1, 3)}
STRICT = {query: {f"{query}-yes": 1, f"{query}-no": 0, f"{query}-maybe": 0} for query in QUERIES}
CONTRARY = {query: {f"{query}-yes": 0, f"{query}-no": 0, f"{query}-maybe": 1} for query in QUERIES}


def test_every_verdict_and_the_tests_over_queries_are_scipys() -> None:
    lenient = {query: dict.fromkeys(grades, 1) | {f"{query}-maybe": 0} for query, grades in STRICT.items()}
    agreeing = eval_kit.compare(RUNS, qrels={"one": STRICT, "two": lenient}, measures=["nDCG@10", "RR@10"])
    verdicts = dict(agreeing.rows.filter(measure="nDCG@10").select("system", "verdict").iter_rows())
    assert verdicts == {"base": None, "good": "better under all of them", "same": NOT_SHOWN}
    turned = eval_kit.compare(RUNS, baseline="good", qrels={"one": STRICT, "two": lenient}, measures=["nDCG@10"])
    assert set(turned.rows.filter(system="base")["verdict"]) == {"worse under all of them"}
    apart = eval_kit.compare(RUNS, qrels={"one": STRICT, "two": CONTRARY}, measures=["nDCG@10"])
    assert set(apart.rows.filter(system="good")["verdict"]) == {DEPENDS}
    assert "better under one, worse under two" in apart.summary()[0]

    judges = {"one": STRICT, "two": lenient}
    raw = {}
    for judge, system in itertools.product(judges, RUNS):
        values = eval_kit.score({system: RUNS[system]}, qrels=judges[judge], measures=["nDCG@10"]).per_query()
        raw[judge, system] = values.sort("query_id")["value"].to_numpy()
    p = {pair: stats.ttest_rel(value, raw[pair[0], "base"]).pvalue for pair, value in raw.items() if pair[1] != "base"}
    holm, highest = {}, 0.0
    for step, pair in enumerate(sorted(p, key=lambda each: p[each])):
        highest = max(highest, min(1.0, (len(p) - step) * p[pair]))
        holm[pair] = highest
    for row in agreeing.rows.filter(measure="nDCG@10").iter_rows(named=True):
        pair = row["judge"], row["system"]
        assert row["value"] == pytest.approx(raw[pair].mean(), abs=1e-12)
        if row["system"] != "base":
            assert row["p_holm"] == pytest.approx(holm[pair], rel=1e-9)
            assert (row["low"] > 0) == (row["p_holm"] < 0.05)


def test_only_queries_of_all_judges_are_compared_and_counted() -> None:
    fewer = dict(list(STRICT.items())[5:]) | {"strange": {"p": 1}}
    result = eval_kit.compare(RUNS, qrels={"all": STRICT, "fewer": fewer}, measures=["RR@10"], allow_missing=True)
    assert result.rows["queries"].unique().to_list() == [35] and result.left_out == 6
    kept = dict(list(STRICT.items())[5:])
    alone = eval_kit.score({"good": RUNS["good"]}, qrels=kept, measures=["RR@10"]).means[0].value
    assert result.rows.filter(system="good")["value"].unique().to_list() == [alone]
    with pytest.raises(UserError, match="judged by all"):
        eval_kit.compare(RUNS, qrels={"a": STRICT, "b": {"other": {"p": 1}}})


def test_a_run_that_its_judge_made_is_marked_and_no_other(tmp_path: Path) -> None:
    for name, each in RUNS.items():
        eval_kit.write_run(each, tmp_path / f"{name}.trec")
    declared = {"training_data": None, "models": ["openai/gpt-4o", "bge-reranker"]}
    (tmp_path / "good.training.json").write_text(json.dumps(declared))
    files = sorted(tmp_path.glob("*.trec"))
    judges = {"nist": STRICT, "GPT-4o": CONTRARY}
    result = eval_kit.compare(files, qrels=judges, measures=["RR@10"])
    marked = result.rows.filter("is_own_judge").select("system", "judge").rows()
    assert marked == [("good", "GPT-4o")]
    signs = [cell.mark.count(OWN) for table in result.tables() for row in table.rows() for cell in row]
    assert sum(signs) == 1 and any(note.startswith(OWN) for note in result.all_notes())
    assert r"$^\ddagger$" in result.to_latex()
    others = eval_kit.compare(files, qrels={"nist": STRICT, "gpt-4": CONTRARY}, measures=["RR@10"])
    assert not others.rows["is_own_judge"].any() and not any(note.startswith(OWN) for note in others.all_notes())


def test_many_judges_stand_side_by_side() -> None:
    judges = {f"j{number}": STRICT for number in range(5)}
    result = eval_kit.compare(RUNS, qrels=judges, measures=["RR@10"])
    [table] = result.tables()
    assert [column.group for column in table.columns if column.group] == list(judges)
    assert set(result.rows.filter(system="same")["p_holm"]) == {1.0}


def test_one_judge_or_what_none_of_them_takes_is_refused() -> None:
    assert are_several({"a": "x.txt", "b": STRICT}) and not are_several(STRICT) and not are_several("x.txt")
    with pytest.raises(UserError, match="one judge"):
        eval_kit.compare(RUNS, qrels={"a": STRICT})
    for argument in ({"by": ["words"]}, {"no_worse_than": 0.1}, {"panel": True}, {"release": STRICT}):
        with pytest.raises(UserError, match=f"Leave {next(iter(argument))} out"):
            eval_kit.compare(RUNS, qrels={"a": STRICT, "b": CONTRARY}, **argument)
    with pytest.raises(UserError, match="two snapshots"):
        eval_kit.compare(RUNS, qrels={"a": STRICT, "b": CONTRARY}, against=STRICT)
