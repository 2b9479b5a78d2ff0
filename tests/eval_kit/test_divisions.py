"""Divisions of queries, and figures by part, beside plain loops."""

from itertools import product
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from scipy import stats

from eval_kit.authors.opening import open_judgements
from eval_kit.divisions import divide
from eval_kit.errors import UserError
from eval_kit.files.parts import field_of_queries, scalar_fields
from eval_kit.protocols.by_part import scores_by_part
from eval_kit.protocols.compare import compare
from eval_kit.protocols.scoring import score
from eval_kit.release import Release, open_release
from eval_kit.stats.differences import CANNOT_TELL, NOT_WORSE, WORSE
from tests.beir_folders import beir_folder
from tests.eval_kit.plain_runs import ranked_run

PARTS = 8


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A BEIR folder of 400 queries with a field, and two runs of which the second loses on one part."""
    folder = tmp_path_factory.mktemp("kinds")
    random, numbers, queries = np.random.default_rng(5), range(400), {}
    for number in numbers:
        metadata = {"kind": f"k{number % PARTS}", "nested": {"a": 1}, "year": 2020 + number % 3}
        queries[f"q{number}"] = {"text": f"what is {number}", "metadata": metadata if number < 392 else {}}
    beir_folder(folder, [], queries, [(f"q{number}", f"p{number}") for number in numbers])
    for name, lost in (("old", 0), ("new", 4)):
        ranks = [1 + int(random.integers(0, 3)) + (lost if number % PARTS == 3 else 0) for number in numbers]
        ranked_run(folder / f"{name}.trec", [(f"q{number}", f"p{number}", ranks[number]) for number in numbers])
    return folder


@pytest.fixture(scope="module")
def release(folder: Path) -> Release:
    return open_release(folder)


def _runs(folder: Path) -> list[Path]:
    return [folder / "old.trec", folder / "new.trec"]


def test_a_field_of_the_queries_divides_them_as_plain_loops_do(folder: Path, release: Release) -> None:
    scores = score(_runs(folder), release)
    result = scores_by_part(scores, ["metadata.kind"], release)
    rows = scores.per_query().select("run", "measure", "query_id", "value").iter_rows()
    by_key = {key: value for *keys, value in rows for key in [tuple(keys)]}
    for row in result.parts.iter_rows(named=True):
        part = int(row["part"][1:])
        of_part = [by_key[row["run"], row["measure"], f"q{n}"] for n in range(392) if n % PARTS == part]
        assert row["queries"] == len(of_part) and row["value"] == pytest.approx(sum(of_part) / len(of_part), abs=1e-12)
    assert result.parts.height == PARTS * 2 * len(release.test_sets["test"].measures)
    assert any("8 of the 400" in note for note in result.notes())
    assert result.as_json()["divisions"] == {"metadata.kind": "queries.jsonl, field metadata.kind"}
    assert "metadata.kind: queries.jsonl, field metadata.kind" in result.notes()


def test_differences_of_parts_are_scipys(folder: Path, release: Release) -> None:
    result = compare(_runs(folder), release, measures=["RR@10"], by=["metadata.kind"], no_worse_than=0.05)
    rows = result.values.select("system", "query_id", "value").iter_rows()
    values = {(system, query): value for system, query, value in rows}
    change = np.array([values["new", f"q{n}"] - values["old", f"q{n}"] for n in range(392)])
    part_of = np.arange(392) % PARTS
    p_values = [stats.ttest_1samp(change[part_of == part], 0).pvalue for part in range(PARTS)]
    parts = result.parts.filter(pl.col("is_beside").is_null())
    for row, part in zip(parts.iter_rows(named=True), range(PARTS), strict=True):
        own = change[part_of == part]
        low, high = stats.t.interval(1 - 0.05 / (PARTS + 1), len(own) - 1, own.mean(), stats.sem(own))
        high = min(high, 0.0) if row["p_holm"] < 0.05 and own.mean() < 0 else high
        assert (row["low"], row["high"]) == pytest.approx((low, high), abs=1e-9)
        assert row["p"] == pytest.approx(p_values[part], rel=1e-6)
        assert (row["helped"], row["hurt"]) == ((own > 1e-9).sum(), (own < -1e-9).sum())
        error = max(stats.sem(own), (0.05 / len(own)) ** 0.5)
        assert row["p_loses"] == pytest.approx(stats.t.sf((own.mean() + 0.05) / error, len(own) - 1), rel=1e-6)
    assert result.parts.filter(part="k3")["verdict"].item() == WORSE
    assert (result.verdict, result.exit_status) == (WORSE, 1)
    [kinds] = result.over_parts.to_dicts()
    assert kinds["p_parts"] < 0.001 and kinds["low"] < kinds["difference"] < kinds["high"]
    assert any("parts differ by more than chance" in note for note in result.notes())


def test_pieces_of_another_division_say_nothing_of_kinds(folder: Path, release: Release) -> None:
    pieces = {f"q{n}": f"{n % PARTS}.{n % 16}" for n in range(392)} | {"q8": "0.0"}  # one astray: q8 is of k0 anyway
    pieces["q9"] = "0.1"
    for by, known in ((["metadata.kind", pieces], ["metadata.kind"]), ([pieces], ["parts"])):
        result = compare(_runs(folder), release, measures=["RR@10"], by=by)
        assert result.over_parts.drop_nulls("difference")["by"].to_list() == known
        assert any("parts: its parts are pieces" in note for note in result.notes()) == (len(by) > 1)


def test_queries_that_neither_run_searched_are_no_evidence(tmp_path: Path) -> None:
    """Thirty of six hundred were searched: a loss on each is no small loss of all."""
    queries = [f"q{n}" for n in range(600)]
    folder = beir_folder(tmp_path / "toy", [], dict.fromkeys(queries, "t"), [(query, "p") for query in queries])
    runs = [
        ranked_run(tmp_path / f"{name}.trec", [(query, "p", rank + n % 2) for n, query in enumerate(queries[:30])], 8)
        for name, rank in (("a", 1), ("b", 3))
    ]
    options = {"measures": ["RR@10"], "allow_missing": True, "no_worse_than": 0.05}
    result = compare(runs, open_release(folder), **options)
    [row] = result.parts.to_dicts()
    assert (result.exit_status, row["queries"], row["unsearched"], row["hurt"]) == (1, 30, 570, 30)
    assert row["difference"] == pytest.approx((1 / 3 + 1 / 4 - 1 - 1 / 2) / 2)
    turned = [(query, "p", 2 - n % 2) for n, query in enumerate(queries[:30])]
    alike = [runs[0], ranked_run(tmp_path / "c.trec", turned, 8)]
    [row] = compare(alike, open_release(folder), **options).rows.filter(system="c").to_dicts()
    assert row["p_equivalent"] > 0.05


@pytest.mark.parametrize("with_small", [True, False])
def test_no_query_escapes_a_gate(with_small: bool, tmp_path: Path) -> None:
    """Nine kinds of nine queries find nothing: too few to test alone, or in no part at all."""
    queries = [f"q{n}" for n in range(300)]
    folder = beir_folder(tmp_path / "toy", [], dict.fromkeys(queries, "t"), [(query, "p") for query in queries])
    ranks = {"a": [1] * 300, "b": [9] * 81 + [1] * 219}
    runs = [
        ranked_run(
            tmp_path / f"{name}.trec", [(query, "p", rank) for query, rank in zip(queries, each, strict=True)], 8
        )
        for name, each in ranks.items()
    ]
    parts = {query: f"small {n // 9}" if n < 81 else "big" for n, query in enumerate(queries) if with_small or n >= 81}
    result = compare(runs, open_release(folder), measures=["RR@10"], by=[parts], no_worse_than=0.02)
    rows = {row["part"]: row for row in result.parts.to_dicts() if row["verdict"]}
    where = "others (9 parts)" if with_small else "queries in no part"
    assert result.exit_status == 1 and set(rows) == {where, "all queries", "big"}
    assert (rows[where]["queries"], rows[where]["verdict"], rows["big"]["verdict"]) == (81, WORSE, "no query changed")


def test_a_gate_has_three_answers(folder: Path, release: Release) -> None:
    old, new = _runs(folder)
    same = compare([old, new], release, measures=["RR@10"], baseline="new", no_worse_than=0.02)
    assert (same.verdict, same.exit_status) == (NOT_WORSE, 0)
    unsure = compare([old, new], release, measures=["RR@10"], by=["metadata.year×metadata.kind"], no_worse_than=0.0001)
    assert unsure.exit_status in (1, 3) and CANNOT_TELL in unsure.parts["verdict"]


def test_a_file_and_python_say_the_same(folder: Path, release: Release, tmp_path: Path) -> None:
    queries = release.queries("test")
    parts = {f"q{n}": f"part {n % 5}" for n in range(300)}
    tsv, csv = tmp_path / "parts.tsv", tmp_path / "parts.csv"
    tsv.write_text("".join(f"{query}\t{part}\n" for query, part in parts.items()))
    csv.write_text("query_id,part\n" + "".join(f'{query},"{part}"\n' for query, part in parts.items()))
    frame = pl.DataFrame({"qid": list(parts), "part": list(parts.values())})
    divisions = [divide(each, release, queries).parts.rows() for each in (str(tsv), str(csv), parts, frame)]
    assert divisions[0] == divisions[1] == divisions[2] == divisions[3] and len(divisions[0]) == 300


@pytest.mark.parametrize(
    ("by", "noun"),
    [
        ("metadata.nothing", "metadata.kind"),
        ("distance", "trained_on"),
        ("topic", "metadata.kind"),
        ({"z": "a"}, "400"),
    ],
)
def test_a_division_that_is_not_there_is_refused(by: object, noun: str, release: Release) -> None:
    with pytest.raises(UserError, match=noun):
        divide(by, release, release.queries("test"))


def test_texts_and_training_queries_divide(release: Release) -> None:
    queries = pl.DataFrame({"query_id": list("abcd"), "text": ["how does", "tell me", "in which year is it", "who"]})
    parts = dict(divide("question-word", release, queries).parts.iter_rows())
    assert parts == {"a": "how", "b": "(none)", "c": "which", "d": "who"}
    assert dict(divide("words", release, queries).parts.iter_rows())["c"] == "4-5"
    training = pl.DataFrame({"query_id": ["t"], "text": ["how does?"]})
    assert dict(divide("leaked", release, queries, training).parts.iter_rows())["a"] == "leaked"
    both = divide("words×question-word", release, queries).parts
    assert set(product(["1-3 × how"], ["a"])) <= set(map(tuple, both.select("part", "query_id").rows()))


def test_dates_become_months_numbers_quarters_and_lists_several_parts(release: Release, tmp_path: Path) -> None:
    queries = release.queries("test").head(100)
    ids = queries["query_id"].to_list()
    dates = {query: f"2026-{1 + n % 4:02d}-{1 + n // 4:02d}T10:00Z" for n, query in enumerate(ids)}
    by_month = divide(dates, release, queries).parts
    assert by_month["part"].unique(maintain_order=True).to_list() == [f"2026-{month:02d}" for month in range(1, 5)]
    quarters = divide({query: n / 8 for n, query in enumerate(ids)}, release, queries)
    sizes = dict(quarters.parts.group_by("part", maintain_order=True).len().iter_rows())
    assert sizes == dict.fromkeys(sizes, 25) and next(iter(sizes)) == "quarter 1: 0.0 to 3.0"
    assert divide({query: n % 10 for n, query in enumerate(ids[:50])}, release, queries).parts["part"].n_unique() == 10
    texts = tmp_path / "queries.jsonl"
    texts.write_text('{"_id": "a", "text": "t", "tags": ["x", "y"]}\n{"_id": "b", "text": "t", "tags": []}\n')
    assert field_of_queries(texts, "tags").rows() == [("a", "x"), ("a", "y")] and scalar_fields(texts) == ["tags"]


def test_labels_of_a_release_divide(mini_release: Release) -> None:
    for test_set, by in (("dev", "length"), ("dev", "bucket"), ("dev", "chameleons50")):
        parts = divide(by, mini_release, mini_release.queries(test_set)).parts
        assert parts["part"].n_unique() > 1 and set(parts["query_id"]) <= mini_release.test_sets[test_set].query_ids


def test_the_example_shows_the_topic_that_loses() -> None:
    folder = Path(__file__).parents[2] / "examples"
    runs = [folder / "bm25.trec", folder / "noisy.trec"]
    result = compare(runs, open_release(folder), measures=["RR@10"], by=["metadata.topic"], no_worse_than=0.05)
    assert result.parts.filter(verdict=pl.lit(WORSE))["part"].to_list() == ["c3", "all queries"]
    assert result.exit_status == 1


def test_judgements_alone_are_a_test_set(shared: Path, published_release: Release, tmp_path: Path) -> None:
    run = shared / "real-slice/runs/tas-b.dl19.trec"
    qrels = shared / "upstream/castorini/anserini-tools/qrels/qrels.dl19-passage.txt"
    release = open_judgements(qrels, shared / "upstream/castorini/anserini-tools/topics/topics.dl19-passage.txt")
    [found] = [mean.value for mean in score([run], release).means if mean.measure == "nDCG@10"]
    [expected] = [mean.value for mean in score([run], published_release).means if mean.measure == "nDCG@10"]
    assert found == expected and round(found, 4) == 0.7210
    assert divide("question-word", release, release.queries("test")).parts["part"].n_unique() > 2
    with pytest.raises(UserError, match="queries"):
        divide("words", without := open_judgements(qrels), without.queries("test"))
    beir = tmp_path / "qrels.tsv"
    beir.write_text("query-id\tcorpus-id\tscore\nq1\tp1\t1\n")
    assert open_judgements(beir).test_sets["test"].queries.to_list() == ["q1"]
    beir.write_text("q1 0 p1 1\nq1 0 p1 2\n")
    with pytest.raises(UserError, match="two grades"):
        open_judgements(beir)


def test_labels_that_are_offered_have_queries_here(mini_release: Release) -> None:
    queries = mini_release.queries("dl19")
    for typed in ("topic", "topci", "passage_id"):
        with pytest.raises(UserError) as told:
            divide(typed, mini_release, queries)
        offered = str(told.value).rpartition(" of: ")[2].split(", ")
        assert typed not in offered and {"bucket", "judged", "words"} <= set(offered)
        for name in set(offered) - {"distance", "leaked"}:
            assert divide(name, mini_release, queries).parts.height


@pytest.mark.parametrize("ending", [".csv", ".tsv", ".jsonl"])
def test_a_column_of_a_log_divides_its_queries(folder: Path, release: Release, tmp_path: Path, ending: str) -> None:
    rows = [(f"q{n}", f"what, is {n}", f"k{n % PARTS}" if n < 392 else "") for n in range(400)]
    frame, file = pl.DataFrame(rows, ["query_id", "query", "Kind"], orient="row"), tmp_path / f"log{ending}"
    if ending == ".jsonl":
        frame.write_ndjson(file)
    elif ending == ".csv":
        frame.write_csv(file)
    else:
        frame.write_csv(file, separator="\t", quote_style="never")
    queries = release.queries("test")
    by_field = divide("metadata.kind", release, queries).parts
    assert divide(f"{file}:kind", release, queries).parts.equals(by_field)
    for by, message in (
        (f"{file}", rf"query_id, query, Kind\. Name .* {file}:Kind"),
        (f"{file}:sort", rf"query_id, query, Kind\. Name .* {file}:Kind"),
        (f"{tmp_path}/absent{ending}:kind", "does not exist"),
    ):
        with pytest.raises(UserError, match=message):
            divide(by, release, queries)


def test_columns_without_names_are_counted(release: Release, tmp_path: Path) -> None:
    (tmp_path / "log.csv").write_text("q1,x,k1\nq2,x,k2\n")
    with pytest.raises(UserError, match="does not name its 3 columns"):
        divide(f"{tmp_path}/log.csv", release, release.queries("test"))


@pytest.mark.parametrize(("known", "is_said"), [(10, True), (19, True), (20, False), (40, False)])
def test_a_division_that_most_queries_lack_is_said_before_its_table(known: int, is_said: bool, tmp_path: Path) -> None:
    queries = [f"q{n}" for n in range(40)]
    folder = beir_folder(tmp_path / "toy", [], dict.fromkeys(queries, "t"), [(query, "p") for query in queries])
    runs = [ranked_run(tmp_path / f"{name}.trec", [(query, "p", 1) for query in queries], 8) for name in "ab"]
    kinds = dict.fromkeys(queries[:known], "kind")
    for result in (compare(runs, open_release(folder), by=[kinds]), score(runs, open_release(folder), by=[kinds])):
        said = [line for line in result.summary() if f"{known} of the 40 queries" in line]
        assert bool(said) == is_said
        noted = [line for line in result.notes() if "in no part" in line]
        assert bool(noted) == (20 <= known < 40)
