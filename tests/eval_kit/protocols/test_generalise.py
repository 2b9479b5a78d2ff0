"""Verdicts on trained models: real runs beside a recomputation, planted losses, and what is refused."""

import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import pytrec_eval

from bench.zoo_generalise import Shift, drawn
from eval_kit import generalise
from eval_kit.errors import UserError
from eval_kit.release import Release, open_release
from eval_kit.stats.far import cost_of_far
from tests.beir_folders import beir_folder
from tests.eval_kit.plain_runs import ranked_run

PARTS = 14


@pytest.fixture(scope="module")
def runs(shared: Path) -> list[Path]:
    """A trained system's real run, and its pivot's."""
    return [shared / f"real-slice/runs/{name}.dl19.trec" for name in ("tas-b", "bm25")]


def ranked(run: Path) -> dict[str, list[tuple[str, float]]]:
    """The lines of a run by query, in trec_eval's order."""
    rows: dict[str, list[tuple[str, float]]] = {}
    for line in run.read_text().splitlines():
        query, _, passage, _, score, _ = line.split()
        rows.setdefault(query, []).append((passage, float(score)))
    return {query: sorted(hits, key=lambda hit: (hit[1], hit[0]), reverse=True) for query, hits in rows.items()}


def ndcg(run: dict[str, list[tuple[str, float]]], grades: dict[str, dict[str, int]], queries: pl.Series) -> np.ndarray:
    evaluator = pytrec_eval.RelevanceEvaluator(grades, {"ndcg_cut_10"})
    values = evaluator.evaluate({query: dict(hits) for query, hits in run.items()})
    return np.array([values[query]["ndcg_cut_10"] for query in queries])


def test_real_runs_are_as_recomputed_from_their_files(runs: list[Path], published_release: Release) -> None:
    queries = published_release.queries("dl19")
    part = {query: str(number % PARTS) for number, query in enumerate(queries["query_id"])}
    far = [str(number) for number in range(7, PARTS)]
    result = generalise(*runs, published_release, test_set="dl19", by=[part], far=far)
    row = result.to_polars().row(by_predicate=pl.col("shift") == "parts", named=True)

    grades: dict[str, dict[str, int]] = {}
    for query, passage, grade in published_release.qrels("dl19").iter_rows():
        grades.setdefault(query, {})[passage] = grade
    system, pivot = map(ranked, runs)
    level, base = (ndcg(run, grades, queries["query_id"]) for run in (system, pivot))
    rows = []
    for (query, text), value in zip(queries.iter_rows(), base, strict=True):
        words = np.log(1 + len(text.split(" ")))
        hits = pivot[query]
        first = next((rank for rank, (passage, _) in enumerate(hits, 1) if grades[query].get(passage, 0) > 0), None)
        top, step = np.arcsinh(hits[0][1]), np.arcsinh(hits[0][1] - hits[1][1])
        success = [1 / (1 + np.log(first)) if first else 0.0, 1.0 if first else 0.0]
        rows.append([words, words**2, np.log(1 + len(grades[query])), value, top, step, *success])
    numbers = np.array([int(part[query]) for query in queries["query_id"]])
    is_far = numbers >= 7
    expected = cost_of_far(level, base, np.array(rows), numbers, is_far)
    assert expected is not None
    assert row["far_level"] == pytest.approx(level[is_far].mean(), abs=1e-9)
    assert row["near_pivot"] == pytest.approx(base[~is_far].mean(), abs=1e-9)
    assert (row["gain"], row["adjusted"]) == pytest.approx((expected.plain.value, expected.adjusted.value), abs=1e-9)
    assert (row["low"], row["high"]) == pytest.approx(expected.interval, abs=1e-8)
    tested = None if expected.refusal else pytest.approx(expected.p, rel=1e-6)
    assert (row["p"], row["p_holm"]) == (tested, tested)  # one row: nothing to correct
    assert row["detectable"] is None or row["detectable"] == pytest.approx(expected.detectable(1), rel=1e-6)


def test_five_buckets_and_43_queries_cannot_tell(runs: list[Path], published_release: Release) -> None:
    system, pivot = runs
    training = published_release.queries("topic.c0")["text"].to_list()
    systems = [system, system.with_name("splade-pp-ed.dl19.trec")]
    result = generalise(systems, pivot, published_release, test_set="dl19", trained_on=training)
    frame = result.to_polars()
    assert set(frame["shift"]) == {"distance", "resttest"}
    buckets = frame.filter(pl.col("shift") == "resttest")
    assert buckets["p_holm"].null_count() == buckets["verdict"].null_count() == 2
    of_distance = frame.filter(pl.col("shift") == "distance")
    assert set(of_distance["verdict"]) == {"cannot tell"}
    assert (of_distance["far_distance"] > of_distance["near_distance"]).all()
    for row in of_distance.iter_rows(named=True):
        assert row["why"] if row["p"] is None else row["detectable"] > 0.1
    assert [note for note in result.notes() if "resttest" in note] == [
        "resttest has 3 near and 2 far parts, too few to say anything about other kinds of query"
    ]
    assert [fact.about.partition(", ")[2] for fact in result.facts()] == ["distance"] * 2


def planted(folder: Path, shift: Shift, size: int) -> tuple[list[Path], Release, dict[str, str], list[str]]:
    """A model's run and those of its pivots, what they are scored on, the part of each query, and the far parts."""
    draw = drawn(shift, np.random.default_rng(1), size)
    queries = [f"q{number}" for number in range(size)]
    passages = [{"_id": f"p{query}", "text": "t"} for query in queries]
    beir_folder(folder, passages, dict.fromkeys(queries, "t"), [(query, f"p{query}") for query in queries])
    paths = []
    for number, values in enumerate([draw.values, *(pivot for pivot, _ in draw.pivots)]):
        ranks = [round(1 / value) if value else 11 for value in values]
        found = [(query, f"p{query}", rank) for query, rank in zip(queries, ranks, strict=True)]
        paths.append(ranked_run(folder / f"run{number}.trec", found, 11))
    part = dict(zip(queries, map(str, draw.parts), strict=True))
    return paths, open_release(folder), part, sorted({part[q] for q, far in zip(queries, draw.far, strict=True) if far})


def test_each_pivot_alone_must_show_what_is_said(tmp_path: Path) -> None:
    """What makes far queries easier for one pivot alone looks like a loss beside it, and not beside the other."""
    (model, *pivots), release, part, far = planted(tmp_path, Shift(of_pivots=(-0.8, 0.0), share=0.9), 1_500)
    alone = [generalise(model, pivot, release, by=[part], far=far).to_polars().row(0, named=True) for pivot in pivots]
    assert [row["verdict"] for row in alone] == ["degrades", "cannot tell"]
    both = generalise(model, pivots, release, by=[part], far=far).to_polars()
    assert both["pivot"].to_list() == ["run1", "run2"] and set(both["verdict"]) == {"cannot tell"}
    assert both["p"].to_list() == pytest.approx([row["p"] for row in alone])
    assert set(both["p_holm"]) == {max(both["p"])}
    assert set(both["detectable"]) == {max(row["detectable"] for row in alone)}


def test_pieces_of_kinds_have_no_word_of_their_own(runs: list[Path], published_release: Release) -> None:
    queries = published_release.queries("dl19")["query_id"]
    pieces, kinds = ({query: str(number % each) for number, query in enumerate(queries)} for each in (PARTS, 7))
    far = [str(number) for number in range(1, PARTS, 2)]
    pair = runs[0], runs[1], published_release
    alone = generalise(*pair, test_set="dl19", by=[pieces], far=far).to_polars().row(0, named=True)
    beside = generalise(*pair, test_set="dl19", by=[pieces, kinds], far=far).to_polars().row(0, named=True)
    assert alone["verdict"] == "cannot tell" and beside["verdict"] is None and "pieces" in beside["why"]
    assert beside["adjusted"] == alone["adjusted"]


def in_two_parts(release: Release) -> dict[str, str]:
    return {query: str(number % 2) for number, query in enumerate(release.queries("dl19")["query_id"])}


def test_two_kinds_of_query_have_figures_of_these_queries_and_no_word(
    runs: list[Path], published_release: Release
) -> None:
    result = generalise(*runs, published_release, test_set="dl19", by=[in_two_parts(published_release)], far=["1"])
    [row] = result.to_polars().to_dicts()
    assert (row["near_parts"], row["far_parts"]) == (7, 7) and row["low"] < row["adjusted"] < row["high"]
    assert (row["p"], row["detectable"], row["verdict"]) == (None, None, None)
    assert "has 1 near and 1 far part, " in row["why"] and any(row["why"] in note for note in result.notes())


def test_what_cannot_be_compared_is_one_sentence_and_what_is_far_is_never_guessed(
    runs: list[Path], published_release: Release
) -> None:
    halves = in_two_parts(published_release)
    for options, message in (
        ({"pivots": []}, "A pivot is needed"),
        ({"test_set": "nosuch"}, "test set 'nosuch'"),
        ({"by": [{"none": "1"}]}, "no part for any of the 43 queries of d.*, such as '.*'none'"),
        ({"by": [halves], "far": ["1", "2"]}, "far '2' is not a part"),
        ({"far": ["1"]}, "far '1' is not a part"),
        ({"by": [halves]}, "which queries are far .* trained_on FILE, or by and far"),
        ({}, "which queries are far"),
    ):
        given = {"pivots": runs[1], "test_set": "dl19", "far": []} | options
        with pytest.raises(UserError, match=message):
            generalise(runs[0], release=published_release, **given)


def test_a_side_without_parts_has_no_level(runs: list[Path], published_release: Release) -> None:
    result = generalise(*runs, published_release, test_set="dl19", by=[in_two_parts(published_release)], far=["0", "1"])
    row = json.loads(json.dumps(result.as_json(), allow_nan=False))["rows"][0]
    assert (row["near_level"], row["near_pivot"], row["gain"], row["low"]) == (None, None, None, None)
    assert row["far_level"] > 0 and row["verdict"] == "cannot tell" and "cannot tell" in result.to_markdown()


def test_by_default_the_main_test_set_is_divided(tmp_path: Path) -> None:
    """A folder in BEIR's format has test, or a split of another name, and no dev."""
    texts = {f"q{number}": f"word{number}" for number in range(12)}
    passages = [{"_id": query.replace("q", "p"), "text": text} for query, text in texts.items()]
    run = tmp_path / "run.trec"
    run.write_text("".join(f"{query} Q0 {query.replace('q', 'p')} 1 1 run\n" for query in texts))
    part = {query: query.removeprefix("q") for query in texts}
    for split in ("test", "validation"):
        judged = [(query, query.replace("q", "p")) for query in texts]
        folder = beir_folder(tmp_path / split, passages, texts, judged, split)
        result = generalise(run, run, folder, by=[part], far=["0", "1"])
        assert result.to_polars()["queries"].to_list() == [12]
    (folder / "qrels" / "dev.tsv").write_text("query-id\tcorpus-id\tscore\nq99\tp99\t1\n")  # which no run searched
    with (folder / "queries.jsonl").open("a") as queries:
        queries.write('{"_id": "q99", "text": "of dev"}\n')
    (folder / "qrels" / "validation.tsv").rename(folder / "qrels" / "test.tsv")
    assert generalise(run, run, folder, by=[part], far=["0"]).to_polars()["queries"].to_list() == [12]


def test_what_the_lengths_of_relevant_passages_predict_is_taken_out(tmp_path: Path) -> None:
    """The model finds long passages, wherever they are, and the pivot finds what it finds by chance."""
    random = np.random.default_rng(2)
    numbers = range(240)
    is_long, rank_of_pivot, part = random.random(240) < 0.5, random.integers(1, 9, 240), random.integers(0, 24, 240)
    passages = [{"_id": f"p{n}", "text": "word " * (400 if is_long[n] else 4)} for n in numbers]
    judged = [(f"q{n}", f"p{n}") for n in numbers]
    folder = beir_folder(tmp_path / "lengths", passages, {f"q{n}": "a query" for n in numbers}, judged)
    found = []
    for name, ranks in (("model", np.where(is_long, 1, 8)), ("pivot", rank_of_pivot)):
        found.append(ranked_run(tmp_path / f"{name}.trec", [(f"q{n}", f"p{n}", ranks[n]) for n in numbers], 8))
    division = {f"q{n}": str(part[n]) for n in numbers}
    [row] = generalise(*found, folder, by=[division], far=list(map(str, range(12)))).to_polars().to_dicts()
    assert row["r"] > 0.9
