"""What is known of a run is said wherever it decides: by every command, in every form, before the answer."""

import csv
import inspect
import io
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import eval_kit
from eval_kit import known
from eval_kit.pages.page import result_page
from eval_kit.protocols import panel
from eval_kit.protocols.differences_shown import BETTER, WORSE, word
from eval_kit.release import Release, open_release
from eval_kit.results import Result
from eval_kit.runs.contamination import Seen, trained_on
from eval_kit.stats.differences import difference
from eval_kit.stats.groups import MATTERS, greater_error, groups_of
from eval_kit.stats.halves import Picked
from eval_kit.stats.losses import holm
from tests.beir_folders import beir_folder
from tests.eval_kit.plain_runs import plain_run, ranked_run

EXAMPLES = Path(__file__).parents[2] / "examples"
QUERIES, PARTS = 240, 8
FORMS: dict[str, Callable[[Result], str]] = {
    "terminal": repr,
    "page": lambda result: re.sub(r"(?s)<(style|script)>.*?</\1>|<[^>]+>", " ", result_page(result)),
    "JSON": lambda result: json.dumps(result.as_json(), ensure_ascii=False),
    "Markdown": lambda result: result.to_markdown(),
    "notebook": lambda result: re.sub("<[^>]+>", "", result._repr_html_()),
    "LaTeX": lambda result: result.to_latex(),
    "CSV": lambda result: result.to_csv(),
}


def letters(text: str) -> str:
    """The letters and digits, as forms escape the rest each in its way."""
    return re.sub(r"&[a-z#0-9]+;|[^a-z0-9]", "", text.lower())


def write(folder: Path, oddity: str) -> dict[str, Path]:
    """Runs of one ranking but for chance, of which ``new`` is odd."""
    rng = np.random.default_rng(5)
    ranks = {name: 1 + rng.geometric(0.5, QUERIES) % 6 for name in ("old", "new")}
    paths = {}
    for name, of_queries in ranks.items():
        found = [(f"q{n}", f"d{n}", int(rank)) for n, rank in enumerate(of_queries)]
        if oddity == "lacking" and name == "new":
            found = found[12:]
        paths[name] = ranked_run(folder / f"{name}.trec", found)
    lines = [line.split() for line in paths["new"].read_text().splitlines()]
    if oddity == "distances":
        lines = [[*line[:4], str(float(line[3])), line[5]] for line in lines]
    if oddity == "one score":
        lines = [[*line[:3], "0", "0.0", line[5]] for line in lines]
    paths["new"].write_text("".join(" ".join(line) + "\n" for line in lines))
    return paths


SAID = {
    "lacking": "new has no results for 12 of the 240 queries",
    "distances": "new has ranks that contradict its scores or lines for 240 queries",
    "one score": "new gives all passages one score in 240 of 240 queries",
}
COMMANDS: dict[str, Callable[[dict[str, Path], dict[str, Any]], Result]] = {
    "score": lambda runs, on: eval_kit.score(runs, **on),
    "score by": lambda runs, on: eval_kit.score(runs, by=["words"], **on),
    "compare": lambda runs, on: eval_kit.compare(runs, **on),
    "gate": lambda runs, on: eval_kit.compare(runs, no_worse_than=0.2, by=["words"], **on),
    "discover": lambda runs, on: eval_kit.discover(list(runs.values()), **on),
    "generalise": lambda runs, on: eval_kit.generalise(
        [runs["new"]], [runs["old"]], by=[{f"q{n}": f"p{n % PARTS}" for n in range(QUERIES)}], far=["p0", "p1"], **on
    ),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("oddity", SAID)
def test_every_command_says_it_first_and_in_every_form(oddity: str, tmp_path: Path) -> None:
    runs = write(tmp_path, oddity)
    on = {
        "qrels": {f"q{n}": {f"d{n}": 1} for n in range(QUERIES)},
        "queries": {f"q{n}": f"word{n % 7} word{n % 11} word{n}" for n in range(QUERIES)},
    }
    for name, command in COMMANDS.items():
        result = command(runs, on)
        assert result.said()[0].startswith(SAID[oddity]), name
        for form in FORMS.keys() - {"CSV"}:  # rows, and nothing else
            shown = letters(FORMS[form](result))
            assert letters(SAID[oddity]) in shown, (name, form)
            assert letters(result.summary()[0] if result.summary() else str(result.facts()[0])) in shown, (name, form)
    gate = COMMANDS["gate"](runs, on)
    assert (gate.verdict, gate.exit_status) == (("cannot tell", 3) if oddity != "lacking" else (gate.verdict, 0)), (
        oddity
    )


def kinds(of: type[Result]) -> Iterator[type[Result]]:
    """The classes of results that stand for something themselves."""
    for each in of.__subclasses__():
        yield from kinds(each)
        if not inspect.isabstract(each):
            yield each


@pytest.mark.filterwarnings("ignore")
def test_every_result_has_every_form(mini_release: Release, tmp_path: Path) -> None:
    pytest.importorskip("pyserini")
    pytest.importorskip("builder.fidelity", exc_type=ImportError)
    from builder import fidelity
    from eval_kit.papers.beside import of_paper
    from eval_kit.protocols.grid_results import protocol

    runs = write(tmp_path, "")
    on = {
        "qrels": {f"q{n}": {f"d{n}": 1} for n in range(QUERIES)},
        "queries": {f"q{n}": f"word{n % 7} word{n % 11} word{n}" for n in range(QUERIES)},
    }
    varied = next(iter(mini_release.variations.values()))
    (tmp_path / "grid").mkdir()
    grid = [tmp_path / "grid" / f"s.length.{part}.trec" for part in ("short", "long")]
    wordings = [tmp_path / "v.trec", tmp_path / f"v.{varied.full_name}.trec"]
    for file in grid:
        file.write_text(plain_run(mini_release, "length.short", "length.long"))
    for file in wordings:
        file.write_text(plain_run(mini_release, varied.base))
    whole = tmp_path / "all.trec"
    whole.write_text(plain_run(mini_release, *mini_release.test_sets))
    toy = beir_folder(tmp_path / "toy", [], {"q1": "a b", "q2": "a"}, [("q1", "d1"), ("q2", "d1")])
    (tmp_path / "toy.trec").write_text("q1 Q0 d1 1 2.0 t\nq2 Q0 d1 1 2.0 t\n")
    results: list[Result] = [
        *(make(runs, on) for make in COMMANDS.values()),
        eval_kit.clean(EXAMPLES / "queries.jsonl", EXAMPLES),
        eval_kit.similarity(mini_release),
        eval_kit.variations(wordings, mini_release),
        eval_kit.chameleons([whole], mini_release),
        eval_kit.report(grid, mini_release),
        protocol(grid, mini_release),
        of_paper("ecir2023-table2"),
        of_paper("all", [tmp_path / "grid"], mini_release),
        eval_kit.beir([tmp_path / "toy.trec"], [toy]),
        *(
            eval_kit.run("bm25", mini_release, tmp_path / "out", test_sets=["dl19"], check=check)
            for check in (True, False)
        ),
        fidelity.compare(mini_release, mini_release),
    ]
    assert {type(each) for each in results} == {
        kind for kind in kinds(Result) if not kind.__module__.startswith("test")
    }
    for result in results:
        for form, text in FORMS.items():
            assert text(result), (result, form)
        assert len(list(csv.reader(io.StringIO(result.to_csv())))) == 1 + result.to_polars().height, result


@pytest.mark.filterwarnings("ignore")
def test_every_form_begins_with_the_answer(tmp_path: Path) -> None:
    runs = write(tmp_path, "")
    on = {
        "qrels": {f"q{n}": {f"d{n}": 1} for n in range(QUERIES)},
        "queries": {f"q{n}": f"word{n % 7} word{n % 11} word{n}" for n in range(QUERIES)},
    }
    for name, command in COMMANDS.items():
        result = command(runs, on)
        answer = letters(result.said()[0])[:40]
        for form in ("terminal", "JSON", "Markdown", "notebook", "LaTeX"):
            assert answer in letters(FORMS[form](result)[:200]), (name, form)


def test_a_word_that_depends_on_how_runs_are_read_is_none(tmp_path: Path) -> None:
    """What lacks the queries that it would lose is better only if they count; what ties them, only in one order."""
    qrels = {f"q{n}": {f"d{n}": 1} for n in range(60)}
    old = {f"q{n}": {f"d{n}": 3.0 if n < 50 else 1.0, "x": 2.0} for n in range(60)}
    better = {f"q{n}": {f"d{n}": 3.0, "x": 2.0} for n in range(60)}
    cases = {
        "": better,
        "queries that a run lacks": {query: old[query] for query in list(old)[:50]},
        "ties": {query: dict.fromkeys(old[query], 1.0) for query in old},
    }
    for decides, new in cases.items():
        result = eval_kit.compare(
            {"old": old, "new": new}, qrels=qrels, measures=["RR@10"], no_worse_than=0.02, allow_missing=True
        )
        [row] = result.rows.filter(system="new").to_dicts()
        assert (row["decides"] or "") == decides
        assert result.exit_status == (3 if decides else 0), decides
        if decides == "queries that a run lacks":
            assert (row["difference"], row["on_shared"]) == (pytest.approx(-5 / 60), 0.0)


def test_the_weightiest_is_said_and_how_many_more_there_are() -> None:
    runs = [
        {"run": f"r{n}", "scored": {"t": {"queries": 100, "missing": n, "trained_on": "no"}}, "depth": 9}
        for n in range(1, 7)
    ]
    said = known.first({"runs": runs})
    assert [sentence.split()[0] for sentence in said[:3]] == ["r6", "r5", "r4"]
    assert said[3:] == ["The same holds for 3 more runs"]


def test_names_of_many_runs_are_no_list() -> None:
    runs = [{"run": f"r{n}", "depth": 9, "cutoff": 100, "judged": {"t": n / 9}} for n in range(9)]
    judged, cut = known.further({"runs": runs})
    assert cut.startswith("r0, r1, r2, r3 and 5 more have at most 9")
    assert "r0 0.00 to r8 0.89." in judged and "r5" not in judged


def test_queries_hang_together_by_text_or_passage_and_by_both() -> None:
    import polars as pl

    queries = pl.DataFrame({"query_id": list("abcdef"), "text": ["x", "x", "y", "z", None, None]})
    relevant = pl.DataFrame({"query_id": list("bcdf"), "passage_id": ["p", "p", "q", "r"]})
    groups = dict(groups_of(queries, relevant).iter_rows())
    assert groups["a"] == groups["b"] == groups["c"] and len(set(groups.values())) == 4
    off = np.tile([1.0, -1.0], 50)
    assert greater_error(0.1, 99, off, np.arange(100)) == (0.1, 99, 1.0), "each alone"
    _, degrees, ratio = greater_error(0.1, 99, np.repeat(off[:20], 5), np.repeat(np.arange(20), 5))
    assert degrees == 19 and ratio == pytest.approx((20 / 19 * 20 * 25) ** 0.5 / 100 / 0.1) and ratio > MATTERS
    assert greater_error(0.1, 99, off, np.repeat(np.arange(50), 2)) == (0.1, 99, 1.0), "sharing that narrows"


@pytest.mark.parametrize(("measure", "change", "said"), [("ASL@10", -1.0, BETTER), ("RR@10", -0.1, WORSE)])
def test_less_is_better_where_lower_is(measure: str, change: float, said: str) -> None:
    assert word({"p_holm": 0.001, "difference": change, "measure": measure}) == said
    assert word({"p_holm": 0.001, "difference": change, "measure": measure, "decides": "ties"}) == ""


def test_a_gain_is_no_kind_that_loses() -> None:
    gained = difference(np.linspace(0.1, 0.3, 40))
    assert not Picked("k", 1, -0.2, np.arange(40), gained, p=0.001).loses


def test_places_are_corrected() -> None:
    rng = np.random.default_rng(0)
    gains = {str(number): rng.normal(0, 0.2, 40) for number in range(40)}
    tests = [difference(each).p for each in gains.values()]
    assert min(tests) < 0.05 < min(holm(tests)), "one of forty differs by chance"
    assert panel.apart(gains) == ([], [])


def test_what_was_compared_counts_for_its_release_and_beyond_chance(mini_release: Release) -> None:
    from eval_kit.documents.training import Compared

    test_set = mini_release.test_sets["dl19"]
    for share, release, seen in ((0.02, "", Seen.NO), (0.2, "", Seen.YES), (0.2, "f" * 64, Seen.UNKNOWN)):
        same = round(share * len(test_set.queries))
        compared = Compared(
            source="log", release=release or mini_release.digest, queries=9, sha256="0" * 64, test_sets={"dl19": same}
        )
        assert trained_on(["log"], test_set, mini_release, compared) == seen


def test_a_door_of_python_answers_in_a_sentence() -> None:
    qrels, run = {"q1": {"a": 1}, "q2": {"d": 1}}, {"q1": {"a": 3.0}, "q2": {"d": 1.0}}
    odd: list[dict[str, Any]] = [
        *({"by": each} for each in (3, [None], [3.5], [[1]])),
        *({"trained_on": each, "by": ["distance"]} for each in ([], [1], [("a", 1)])),
        *({"qrels": each} for each in ({"q1": {"a": 0.5}}, {"q1": 3}, {"q1": {"a": "1"}}, {"q1": {"a": True}})),
    ]
    for arguments in odd:
        with pytest.raises(eval_kit.UserError):
            eval_kit.score(run, **{"qrels": qrels, "queries": {"q1": "t", "q2": "u"}} | arguments)
    for margin in ("0.02", float("nan"), -1):
        with pytest.raises(eval_kit.UserError, match="no_worse_than"):
            eval_kit.compare({"a": run, "b": run}, qrels=qrels, no_worse_than=margin)
    [mean] = eval_kit.score(run, qrels={"q1": {"a", "b"}, "q2": {"d"}}, measures=["R@10"], by={"q1": "x"}).means
    assert mean.value == 0.75, "a set is of relevant passages"


def test_a_release_knows_its_test_sets_by_one_name(mini_release: Release) -> None:
    release = open_release(mini_release.folder)
    for take in (release.queries, release.qrels, release.test_sets.__getitem__):
        with pytest.raises(eval_kit.UserError, match="did you mean dl19"):
            take("dl-19")
    own = release.qrels("topic.c0")
    assert (
        set(own["query_id"]) == set(release.queries("topic.c0")["query_id"]) == release.test_sets["topic.c0"].query_ids
    )


def test_published_topics_have_their_names_beside_their_ids(published_release: Release, mini_release: Release) -> None:
    for release, has in ((published_release, True), (mini_release, False)):
        queries = release.test_sets["topic.c3"].queries
        notes = eval_kit.score({"x": {query: {"p": 1.0} for query in queries}}, release).cautions()
        assert any("c3 Medical Treatments" in note for note in notes) == has
        assert not any("c0" in note for note in notes)
