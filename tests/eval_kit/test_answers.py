"""A terminal begins with the answer, as pages do."""

from pathlib import Path

import pytest

import eval_kit

EXAMPLES = Path(__file__).parents[2] / "examples"
RUNS = [EXAMPLES / "bm25.trec", EXAMPLES / "noisy.trec"]


@pytest.mark.parametrize(
    "compute",
    [
        lambda: eval_kit.score(RUNS, EXAMPLES),
        lambda: eval_kit.compare(RUNS, EXAMPLES),
        lambda: eval_kit.compare(RUNS, EXAMPLES, by=["metadata.topic"], no_worse_than=0.02),
    ],
)
def test_the_first_line_is_the_answer_and_no_note_repeats_it(compute) -> None:
    result = compute()
    answer, printed = result.said(), repr(result).splitlines()
    assert answer and printed[: len(answer)] == answer
    assert not set(answer).intersection(printed[len(answer) :])


def test_the_parts_that_a_change_hurts_are_named_first() -> None:
    result = eval_kit.compare(RUNS, EXAMPLES, by=["metadata.topic"], measures=["nDCG@10"])
    worst = result.parts.sort("p_holm").row(0, named=True)["part"]
    assert worst in result.summary()[-1] and all(part not in result.summary()[-1] for part in ("c0", "c1", "c2", "c4"))
