"""A terminal begins with the answer, as pages do."""

from pathlib import Path

import pytest

import eval_kit
from eval_kit.results import SIGNS

EXAMPLES = Path(__file__).parents[2] / "examples"
RUNS = [EXAMPLES / "bm25.trec", EXAMPLES / "noisy.trec"]


@pytest.mark.parametrize(
    "compute",
    [
        lambda: eval_kit.score(RUNS, EXAMPLES),
        lambda: eval_kit.compare(RUNS, EXAMPLES),
        lambda: eval_kit.compare(RUNS, EXAMPLES, by=["metadata.topic"], no_worse_than=0.02),
        lambda: eval_kit.discover(RUNS, EXAMPLES),
        lambda: eval_kit.clean(EXAMPLES / "queries.jsonl", EXAMPLES),
    ],
)
def test_the_first_line_is_the_answer_and_no_note_repeats_it(compute) -> None:
    result = compute()
    answer, printed = result.said(), repr(result).splitlines()
    assert answer and printed[: len(answer)] == answer
    assert not set(answer).intersection(printed[len(answer) :])


def test_of_the_method_a_terminal_has_what_its_signs_need_and_json_has_all() -> None:
    with pytest.warns(UserWarning, match="the same run"):
        result = eval_kit.compare({"one": RUNS[0], "two": RUNS[0]}, EXAMPLES)
    printed, method = repr(result).splitlines(), result.method()
    marks = {cell.mark for table in result.tables() for row in table.rows() for cell in row} - {""}
    assert marks and {note[0] for note in printed if note[0] in SIGNS} == marks
    assert not set(method) <= set(printed)
    assert result.as_json()["notes"][-len(method) :] == method


def test_the_last_line_is_the_next_command(command) -> None:
    arguments = (*RUNS, f"--release={EXAMPLES}", "--baseline", "noisy")
    *_, kinds, last = command("eval_kit", "compare", *arguments).stdout.splitlines()
    assert kinds.endswith(f": eval_kit discover {RUNS[1]} {RUNS[0]} --release {EXAMPLES}"), "the baseline is first"
    assert last.startswith("Next (") and last.endswith(" --baseline noisy --page compare.html")
    piped = command("eval_kit", "score", "-", "--release", EXAMPLES, input=RUNS[0].read_text())
    assert "Next" not in piped.stdout, "a pipe can be read once"


def test_the_next_command_names_few_files_and_none_raw(command, tmp_path: Path) -> None:
    runs = [tmp_path / f"{number}\x1b[31m\u202e\n.trec" for number in range(9)]
    for number, run in enumerate(runs):
        lines = RUNS[0].read_text().splitlines()
        run.write_text("\n".join(line for at, line in enumerate(lines) if at != number))
    [*_, last] = command("eval_kit", "score", *runs, f"--release={EXAMPLES}").stdout.splitlines()
    assert last.isprintable() and last.endswith(f" … --release={EXAMPLES} --page score.html")
    assert last.count(".trec") == 1 and r"\x1b[31m\u202e\n.trec" in last


def test_a_grouping_that_is_named_twice_counts_once() -> None:
    once, twice = (eval_kit.compare(RUNS, EXAMPLES, by=["words"] * times) for times in (1, 2))
    assert once.parts.equals(twice.parts)


def test_a_gate_that_any_run_would_pass_is_refused() -> None:
    with pytest.raises(eval_kit.UserError, match="no_worse_than below 1"):
        eval_kit.compare(RUNS, EXAMPLES, no_worse_than=5)


def test_the_parts_that_a_change_hurts_are_named_first() -> None:
    result = eval_kit.compare(RUNS, EXAMPLES, by=["metadata.topic"], measures=["nDCG@10"])
    worst = result.parts.sort("p_holm").row(0, named=True)["part"]
    assert worst in result.summary()[-1] and all(part not in result.summary()[-1] for part in ("c0", "c1", "c2", "c4"))
