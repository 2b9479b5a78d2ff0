"""Judgements and texts that Python has: one result with those of a file, and what is refused."""

import warnings
from pathlib import Path

import pandas as pd
import polars as pl
import pytest

from eval_kit import compare, score
from eval_kit.errors import UserError

QRELS = {"q1": {"p1": 2, "p2": 0}, "q2": {"p3": 1}}
TEXTS = {"q1": "what is a fen", "q2": "who made it"}
RUN = {"q1": {"p2": 2.0, "p1": 1.0}, "q2": {"p3": 1.0}}
ROWS = [(query, passage, grade) for query, grades in QRELS.items() for passage, grade in grades.items()]


def test_every_form_of_judgements_gives_one_result(tmp_path: Path) -> None:
    file = tmp_path / "qrels.txt"
    file.write_text("".join(f"{query} 0 {passage} {grade}\n" for query, passage, grade in ROWS))
    frame = pl.DataFrame(ROWS, ["qid", "docno", "label"], orient="row")
    forms = (file, str(file), QRELS, ROWS, frame, frame.to_pandas())
    found = [score(RUN, form, measures=["nDCG@10"]).means[0].value for form in forms]
    assert len(set(found)) == 1 and 0 < found[0] < 1
    texts = (TEXTS, list(TEXTS.items()), pd.DataFrame({"id": list(TEXTS), "text": list(TEXTS.values())}))
    for each in texts:
        parts = score(RUN, qrels=QRELS, queries=each, by=["question-word"]).parts
        assert set(parts["part"]) == {"what", "who"}
    assert compare({"a": RUN, "b": RUN}, QRELS).rows["difference"].drop_nulls().to_list() == [0.0] * 3


@pytest.mark.parametrize(
    "qrels", [{"q1": {"p1": "much"}}, [("q1", "p1")], {}, [("q1", "p1", 1), ("q1", "p1", 0)], [("q1", None, 1)], 5]
)
def test_what_is_no_table_of_judgements_is_refused(qrels: object) -> None:
    with pytest.raises(UserError, match="release"):
        score(RUN, qrels)


def test_grades_that_measures_do_not_tell_apart_are_said(tmp_path: Path) -> None:
    qrels = {"q1": {"p1": 3, "p2": 1}, "q2": {"p1": 1}}
    with pytest.warns(UserWarning, match=r"grades up to 3, and RR@10 .* RR\(rel=2\)@10"):
        score({"q1": {"p1": 1.0}, "q2": {"p1": 1.0}}, qrels, measures=["nDCG@10", "RR@10"])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        score({"q1": {"p1": 1.0}, "q2": {"p1": 1.0}}, qrels, measures=["nDCG@10", "RR(rel=2)@10"])
