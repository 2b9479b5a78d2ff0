"""BEIR datasets: the strict reader, R_cap, hole and Judged against brute force, the average against BM25."""

import json
import math
from pathlib import Path
from zlib import crc32

import numpy as np
import polars as pl
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy import stats as scipy_stats

import eval_kit
from eval_kit.errors import UserError
from eval_kit.files.beir import read_corpus
from eval_kit.protocols import beir
from eval_kit.protocols.beir import MEASURES
from eval_kit.protocols.scores import Scores
from eval_kit.protocols.scoring import score as score_release
from eval_kit.protocols.scoring import scores_of, with_measures
from eval_kit.release import Release, open_release
from eval_kit.release.beir_suite import ANNOTATED, dataset_named, datasets, published_values
from eval_kit.release.reference import load
from eval_kit.runs.given import take
from tests.beir_folders import beir_folder
from tests.schemas import validate

export = pytest.importorskip("builder.export", exc_type=ImportError).export

QUERIES = ["a0", "p5x", "q2"]  # as passages, they stand last, amid and first in a tie
PASSAGES = [f"p{i}" for i in range(14)]
FEW_SCORES = st.integers(-4, 4).map(lambda n: n / 2)


def results_of(query: str) -> st.SearchStrategy[dict[str, float]]:
    """A query's results, or many of them that share two scores."""
    passages = st.sampled_from([*PASSAGES, query])
    tied = st.dictionaries(passages, st.sampled_from([0.5, 1.0]), min_size=10)
    return st.dictionaries(passages, FEW_SCORES, min_size=1) | tied


def grades_of(query: str) -> st.SearchStrategy[dict[str, int]]:
    return st.dictionaries(st.sampled_from([*PASSAGES, query]), st.integers(-1, 2), min_size=1)


runs = st.fixed_dictionaries(
    {"a0": results_of("a0")}, optional={query: results_of(query) for query in QUERIES if query != "a0"}
)
qrels = st.fixed_dictionaries({query: grades_of(query) for query in QUERIES})


def write_run(path: Path, run) -> Path:
    lines = [f"{q} Q0 {p} 1 {score} t\n" for q, scores in run.items() for p, score in scores.items()]
    path.write_text("".join(lines))
    return path


def write_dataset(folder: Path, judged) -> Path:
    rows = [(query, passage, grade) for query, grades in judged.items() for passage, grade in grades.items()]
    return beir_folder(folder, [], dict.fromkeys(judged, "t"), rows)


def score(run: Path, folder: Path, measures=MEASURES) -> Scores:
    """A run on a folder's test split, by BEIR's measures."""
    release = open_release(folder)
    test = with_measures(release.test_sets, measures)["test"]
    [taken] = take(runs=run)
    return scores_of(taken, release, allow_missing=True, test_sets={"test": test})


def values_of(scores: Scores) -> dict[str, float]:
    return {mean.measure: mean.value for mean in scores.means}


def recall(order: list[str], grades, k: int) -> float:
    relevant = {passage for passage, grade in grades.items() if grade > 0}
    return len(relevant.intersection(order[:k])) / min(k, len(relevant)) if relevant else 0.0


def hole(order: list[str], judged, k: int) -> float:
    return sum(passage not in judged for passage in order[:k]) / k


def judged_share(order: list[str], grades, k: int) -> float:
    top = order[:k]
    return sum(passage in grades for passage in top) / len(top) if top else 0.0


def reciprocal_rank(order: list[str], grades, k: int) -> float:
    return next((1 / rank for rank, passage in enumerate(order[:k], start=1) if grades.get(passage, 0) > 1), 0.0)


def ndcg(order: list[str], grades, k: int) -> float:
    def gain(values):
        return sum(max(value, 0) / math.log2(rank + 1) for rank, value in enumerate(values[:k], start=1))

    ideal = gain(sorted(grades.values(), reverse=True))
    return gain([grades.get(passage, 0) for passage in order]) / ideal if ideal else 0.0


ORACLES = {
    "nDCG@10": ndcg,
    "R@100": recall,  # capped or not: fewer than 100 are relevant
    "R_cap@100": recall,
    "R_cap@2": recall,
    "RR(rel=2)@3": reciprocal_rank,
    "hole@10": hole,
    "hole@3": hole,
    "Judged@10": judged_share,
}


def ranking(scores) -> list[str]:
    return sorted(scores, key=lambda passage: (scores[passage], passage.encode()), reverse=True)


def resolved(scores, grades, best: bool) -> list[str]:
    """The ranking, tied passages rearranged by their grades."""
    sign = -1 if best else 1
    return sorted(scores, key=lambda passage: (-scores[passage], sign * grades.get(passage, -9)))


@pytest.fixture(scope="module")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("beir")


@settings(max_examples=40, deadline=None)
@given(runs, qrels)
def test_scores_and_bounds_of_ties_are_those_of_a_ranking_without_the_query_itself(scratch, run, judged):
    """By brute force; a passage with the query's own id stays if it is judged for the query."""
    assume(any(set(results) - ({query} - judged[query].keys()) for query, results in run.items()))
    scores = score(write_run(scratch / "s.trec", run), write_dataset(scratch / "set", judged), ORACLES)
    values = {(measure, query): value for _, _, measure, query, value in scores.per_query().iter_rows()}
    rankings, left_out = {}, 0
    for query in QUERIES:
        rankings[query] = dict(run.get(query, {}))
        if query not in judged[query]:
            left_out += rankings[query].pop(query, None) is not None
    assert scores.provenance["runs"][0].get("own_passages_left_out", 0) == left_out
    for_any_query = {passage: 1 for grades in judged.values() for passage in grades}
    for figure in scores.means:
        of, k = ORACLES[figure.measure], int(figure.measure.partition("@")[2])
        plain, worst, best = [], [], []
        for query, results in rankings.items():
            grades = for_any_query if of is hole else judged[query]
            goods = dict.fromkeys(grades, 1) if of is judged_share else grades
            plain.append(of(ranking(results), grades, k))
            worst.append(of(resolved(results, goods, best=False), grades, k))
            best.append(of(resolved(results, goods, best=True), grades, k))
            assert values[figure.measure, query] == pytest.approx(plain[-1])
        assert figure.value == pytest.approx(sum(plain) / 3)
        assert figure.tied == sum(abs(one - other) > 1e-9 for one, other in zip(worst, best, strict=True))
        if figure.tied:
            assert (figure.worst, figure.best) == pytest.approx((sum(worst) / 3, sum(best) / 3)), figure.measure
        else:
            assert (figure.worst, figure.best) == (None, None)


def test_hole_is_a_measure_of_every_command(tmp_path):
    dataset = open_release(write_dataset(tmp_path / "d", {"q": {"a": 1}, "r": {"b": 0}}))
    run = write_run(tmp_path / "x.trec", {"q": {"a": 3.0, "b": 2.0, "c": 1.0}, "r": {"a": 1.0}})
    of_hole, of_rank = (eval_kit.score(run, dataset, measures=name) for name in ("holes@2", "RR@10"))
    assert values_of(of_hole) == {"hole@2": 0.0}
    for scores in (of_hole, of_rank):
        assert scores.provenance["runs"][0]["judged_passages"] == 1, "those judged for the query itself"
    validate("scores", of_hole.as_json())


def test_an_exported_test_set_scores_as_in_its_release(mini_release: Release, tmp_path):
    export(mini_release, tmp_path / "beir", "beir")
    test_set = mini_release.test_sets["dl19"]
    judged = mini_release.qrels(test_set.qrels).filter(pl.col("query_id").is_in(test_set.queries.implode()))
    lines = [
        f"{q} Q0 {p} 1 {crc32((q + p).encode()) % 97} t" for q, p, _ in judged.iter_rows() if crc32(p.encode()) % 3
    ]
    run = tmp_path / "some.trec"
    run.write_text("\n".join(lines) + "\n")
    mine = score(run, tmp_path / "beir" / "dl19")
    values = values_of(mine)
    theirs = {(f.test_set, f.measure): f for f in score_release([run], mini_release, allow_missing=True).means}
    assert 0.1 < values["nDCG@10"] < 0.99
    assert values["nDCG@10"] == pytest.approx(theirs["dl19", "nDCG@10"].value)
    assert mine.means[0].queries == theirs["dl19", "nDCG@10"].queries


QUERY = b'{"_id": "1", "text": "a"}\n'
HEADER = b"query-id\tcorpus-id\tscore\n"


@pytest.mark.parametrize(
    ("file", "content", "sentence"),
    [
        ("queries.jsonl", b"", "queries.jsonl:1: the file is empty"),
        ("queries.jsonl", b'["1", "a"]\n', "queries.jsonl:1: expected a JSON object"),
        ("queries.jsonl", QUERY + b"\xff\n", "queries.jsonl:2: "),
        ("qrels/test.tsv", None, "test.tsv: No such file"),
        ("qrels/test.tsv", b"", "test.tsv:1: "),
        ("qrels/test.tsv", HEADER, "test.tsv:1: "),
        ("qrels/test.tsv", HEADER + b"1\ta\t1\t1\n", "test.tsv:2: "),
        ("qrels/test.tsv", HEADER + b"1\ta\t1\n1\ta\t0\n", "test.tsv:3: passage a has two grades for query 1"),
        ("qrels/test.tsv", HEADER + b"2\ta\t1\n" * 7, "; and 2 more"),
    ],
)
def test_faults_of_a_dataset_name_their_line(tmp_path, file, content, sentence):
    """More are in tests/builder/test_beir_source.py."""
    folder = write_dataset(tmp_path / "d", {"1": {"a": 1}})
    if content is None:
        (folder / file).unlink()
    else:
        (folder / file).write_bytes(content)
    with pytest.raises(UserError) as error:
        beir.beir(tmp_path / "x.trec", [folder])
    assert sentence in str(error.value)


def test_a_corpus_is_read_to_its_first_damaged_line(tmp_path):
    corpus, long = tmp_path / "corpus.jsonl", "a" * (1 << 20)
    lines = [
        b'{"_id": "p1", "title": "A", "text": "%s"}' % long.encode(),
        b'{"_id": "p2", "text": ""}',
        b'{"_id": "p3", "title": "", "text": "b"}',
    ]
    corpus.write_bytes(b"\r\n".join(lines))
    assert list(read_corpus(corpus)) == [("p1", f"A {long}"), ("p2", ""), ("p3", "b")]
    damaged = [*lines[:2], b'{"_id": "p', lines[0], b'{"_id": "p4", "text": 5}', lines[2]]
    corpus.write_bytes(b"\n".join(damaged) + b"\n")
    documents = read_corpus(corpus)
    assert [next(documents)[0], next(documents)[0]] == ["p1", "p2"]
    with pytest.raises(UserError) as error:
        next(documents)
    assert str(error.value) == (
        f'{corpus}:3: expected a JSON object with "_id", a string; {corpus}:4: passage p1 appears twice; '
        f'{corpus}:5: "title" and "text" must be strings'
    )


def test_the_average_against_bm25_by_hand():
    assert beir.against_bm25({"a": 0.2, "b": 0.4}, {"a": 0.1, "b": 0.4}).relative == pytest.approx(0.2)
    assert beir.against_bm25({"a": 0.2}, {"a": 0.0}).relative is None


def test_a_system_over_datasets(tmp_path):
    folders = [write_dataset(tmp_path / name, {"1": {"a": 1}}) for name in ("nq", "[bold]x")]
    for file in ("queries.jsonl", "qrels/test.tsv"):  # as Windows ends lines
        (folders[0] / file).write_bytes((folders[0] / file).read_bytes().replace(b"\n", b"\r\n"))
    found = write_run(tmp_path / "mine.trec", {"1": {"a": 1.0}})
    second = write_run(tmp_path / "second.trec", {"1": {"b": 2.0, "1": 1.5, "a": 1.0}})
    again = [write_run(tmp_path / f"mine.{number}.trec", {"1": {"a": 1.0}}) for number in (1, 2)]
    bm25 = write_run(tmp_path / "bm25.nq.trec", {"1": {"a": 1.0}})
    suite = beir.beir(again, folders, [found, second])
    average = suite.averages()["mine.1"]
    assert average.relative == pytest.approx(2 / (1 + 1 / math.log2(3)) - 1) and average.datasets == 2
    document = json.loads(json.dumps(suite.as_json(), allow_nan=False))
    assert len(document["rows"]) == 2 * 2 * len(MEASURES) and len(document["provenance"]["runs"]) == 4
    text = repr(suite)
    assert "[bold]x" in text
    assert "mine.1 against bm25" in text and "+22.6%" in text
    assert "had a passage with the query's own id" in text
    for arguments, sentence in (
        (([found], folders), "datasets once for each run"),
        ((again, folders, [found]), "bm25 once for each run"),
        ((again, [folders[0], folders[0]]), "are called nq"),
        (([bm25, found], folders, again), "called bm25 too"),
    ):
        with pytest.raises(UserError, match=sentence):
            beir.beir(*arguments)
    assert beir.beir(found, folders[:1]).averages() == {}
    (folders[0] / "qrels" / "test.tsv").rename(folders[0] / "qrels" / "train.tsv")
    with pytest.raises(UserError, match=r"qrels/test\.tsv does not exist"):
        beir.beir(found, folders[:1])


def test_cqadupstacks_folders_count_as_one_dataset_and_ms_marco_not_at_all(tmp_path):
    suite = tmp_path / "cqadupstack"
    folders = [write_dataset(suite / name, {"1": {"a": 1}}) for name in ("android", "tex")]
    whole = list(map(str, range(300)))  # as many queries as the paper's
    folders.append(write_dataset(tmp_path / "scifact", {query: {"a": 1} for query in whole}))
    ms_marco = write_dataset(tmp_path / "msmarco", {"1": {"a": 1}})
    (ms_marco / "qrels" / "test.tsv").rename(ms_marco / "qrels" / "dev.tsv")
    first, second = {query: {"a": 1.0} for query in whole}, {query: {"b": 2.0, "a": 1.0} for query in whole}
    names = ("tas-b", "on tex", "on scifact", "on msmarco")
    runs = [write_run(tmp_path / f"{name}.trec", second if "tex" in name else first) for name in names]
    results = beir.beir(runs, [*folders, ms_marco], [write_run(tmp_path / f"bm25.{n}.trec", second) for n in range(4)])
    third = 1 / math.log2(3)
    average = results.averages()["tas-b"]
    assert average.datasets == 2
    assert (average.system, average.bm25) == (pytest.approx((1.5 + third / 2) / 2), pytest.approx(third))
    rows = {(row["system"], row["dataset"], row["measure"]): row for row in results.to_polars().to_dicts()}
    assert rows["tas-b", "cqadupstack", "nDCG@10"]["queries"] == 2
    assert rows["tas-b", "cqadupstack", "nDCG@10"]["value"] == pytest.approx((1 + third) / 2)
    assert [rows["tas-b", "scifact", name]["published"] for name in ("nDCG@10", "R@100")] == [0.643, 0.891]
    assert rows["bm25", "cqadupstack", "nDCG@10"]["published"] is None, "of other queries"
    assert any("13,145" in note for note in results.notes())
    lines = [[cell.text for cell in cells][:5] for cells in results.tables()[0].rows()]
    assert lines[0] == ["cqadupstack", "tas-b", "2", "0.815", "-"]
    assert lines[1] == ["", "bm25", "2", "0.631", "-"]
    assert len(lines) == 3 * 2, "no row of its folders"


def test_the_first_line_is_the_mean_and_from_six_datasets_on_its_interval(tmp_path):
    """By t over the datasets, as scipy has it."""
    folders = [write_dataset(tmp_path / f"set{n}", {"1": {"a": 1}}) for n in range(6)]
    ranks = [{"1": {"b": 3.0, "c": 2.0, "a": 4.0 - n % 3}} for n in range(6)]
    runs = [write_run(tmp_path / f"x.set{n}.trec", ranking) for n, ranking in enumerate(ranks)]
    one, few, all_of_them = (beir.beir(runs[:n], folders[:n]).summary() for n in (1, 5, 6))
    values = [row["value"] for row in beir.beir(runs, folders).to_polars().filter(measure="nDCG@10").to_dicts()]
    low, high = scipy_stats.t.interval(0.95, 5, np.mean(values), scipy_stats.sem(values))
    assert one == [f"x: nDCG@10 {values[0]:.4f} on set0."]
    assert few == [f"x: mean nDCG@10 {np.mean(values[:5]):.4f} on 5 datasets."]
    ends = f"[{low:.4f}, {high:.4f}] (95 %, datasets as random draws)"
    assert all_of_them == [f"x: mean nDCG@10 {np.mean(values):.4f} {ends} on 6 datasets."]


def test_the_suite_and_its_figures_are_those_of_the_tables():
    """Of Table 1; Table 9 is capped for TREC-COVID alone."""
    capped = {dataset for (_, dataset), values in published_values().items() if "R_cap@100" in values}
    assert capped == {"trec-covid"}
    assert len(published_values()) == 10 * 19 + 9
    assert published_values()["bm25", "trec-covid"]["hole@10"] == 0.064
    assert published_values()["bm25", "trec-covid-beir"] == {"nDCG@10": 0.668}
    assert len(datasets()) == 20 and sum(len(one.folders) for one in datasets().values()) == 12
    printed = {(cell["test_set"], cell["measure"]): cell["value"] for cell in load("beir2021-table1")["cells"]}
    for dataset in [dataset for name, dataset in datasets().items() if name != ANNOTATED]:
        row = [printed[f"beir.{dataset.published_as}", name] for name in ("documents", "test-queries")]
        assert [dataset.passages, dataset.queries] == row, dataset.name
    assert {one.name for one in datasets().values() if one.url and not one.md5} == {ANNOTATED}
    with pytest.raises(UserError, match="BEIR has no dataset 'nf'"):
        dataset_named("nf")
