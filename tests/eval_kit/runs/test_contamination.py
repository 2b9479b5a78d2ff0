"""Contamination: one rule, by query ids where a training set is named, and every output says what it gives."""

from pathlib import Path

import polars as pl
import pytest

from eval_kit.documents import Training
from eval_kit.errors import UserError
from eval_kit.pages.page import result_page
from eval_kit.pages.report import Report
from eval_kit.protocols.compare import compare
from eval_kit.protocols.grid_results import protocol
from eval_kit.protocols.scoring import score
from eval_kit.release import Release, TestSet, open_release
from eval_kit.results import Result
from eval_kit.runs.contamination import MARK, declaration, declare, trained_on, training_beside, training_set_id
from eval_kit.shifts import SHIFTS
from tests import schemas
from tests.beir_folders import beir_folder

NOT_SEEN, NOT_DECLARED, SEEN = "no", "unknown", "yes"


def test_msmarcos_training_queries_are_topics_and_whs_tests(published_release: Release):
    test_sets = published_release.test_sets
    for source in ("msmarco-passage/train", "MS MARCO train", "MS-MARCO passage, triples.train.small"):
        verdicts = {name: trained_on([source], test_sets[name], published_release) for name in test_sets}
        assert verdicts == {name: SEEN if name.startswith(("topic.", "wh.")) else NOT_SEEN for name in test_sets}
    for source in ("MSMARCOv2", "NanoMSMARCORetrieval", "MSMARCO-train"):  # in MTEB's way
        assert trained_on([source], test_sets["topic.c0"], published_release) == SEEN
    dev = TestSet("dev", "dev", ("AP",), published_release.table("resttest", "dev")["query_id"], "dev")
    assert trained_on(["msmarco-passage/train"], dev, published_release) == NOT_SEEN, "a test set outside the shifts"


def test_a_declared_source_decides(published_release: Release):
    dev_small, dl19 = "msmarco-passage/dev/small", "msmarco-passage/trec-dl-2019/judged"
    restrain = "msmarco-passage/shift/restrain/interpolate-200k"
    for sources, test_set, expected in (
        (None, "topic.c0", NOT_DECLARED),
        (None, "dl19", NOT_DECLARED),
        ([], "topic.c0", NOT_SEEN),
        (["none"], "topic.c0", NOT_SEEN),
        (["Natural Questions", "TriviaQA"], "topic.c0", NOT_SEEN),
        (["Natural Questions", "MS MARCO"], "topic.c0", SEEN),
        ([dev_small], "topic.c0", NOT_SEEN),
        ([dev_small], "length.short", SEEN),
        ([dev_small], "chameleons.lesser.10", SEEN),
        ([dl19], "dl19", SEEN),
        ([dl19], "dl20", NOT_SEEN),
        (["MS MARCO train and dev"], "dev", SEEN),
        (["MS MARCO train and dev"], "wh.how", SEEN),
        (["msmarco-passage/shift/topic/not-c0"], "topic.c1", NOT_SEEN),
        ([restrain], "topic.c0", SEEN),
        ([restrain], "dl19", NOT_SEEN),
        (["msmarco-passage/shift/wh/not-how"], "topic.c0", NOT_DECLARED),  # this partial release lacks wh/train
        (["msmarco-passage/shift/nothing"], "topic.c0", NOT_DECLARED),
    ):
        verdict = trained_on(sources, published_release.test_sets[test_set], published_release)
        assert verdict == expected, (sources, test_set)


def test_training_sets_that_a_source_names_are_compared_by_query_ids(mini_release: Release):
    drawn = [each for each in mini_release.test_sets.values() if each.qrels == f"{each.shift}_test"]
    assert {each.shift for each in drawn} == {"topic", "wh"}
    built = [shift for shift in SHIFTS.values() if shift.name in mini_release.configs]
    assert len(built) == len(SHIFTS) - 2  # given clusters and crossed hold-outs are built on request
    for shift in built:
        for part in shift.parts(mini_release):
            training = set(shift.training(mini_release, part).queries["query_id"])
            for each in mini_release.test_sets.values():
                verdict = trained_on([training_set_id(mini_release, shift.name, part)], each, mini_release)
                expected = SEEN if training & each.query_ids else NOT_SEEN
                assert verdict == expected, (shift.name, part, each.name)
    # the sources of a collection of one's own are known by its name alone
    for source, expected in (("ms-marco-shift-mini/train", SEEN), ("mini, train", NOT_DECLARED)):
        assert trained_on([source], mini_release.test_sets["topic.c0"], mini_release) == expected


def drawn_from_training(release: Release) -> pl.Series:
    """The test queries of topic and wh, which share some: a run of one shift alone would lack part of the other."""
    tables = [release.table(shift, "test")["query_id"] for shift in ("topic", "wh")]
    return pl.concat(tables).unique(maintain_order=True)


def write_run(path: Path, queries) -> Path:
    path.write_text("".join(f"{query} Q0 p1 1 {1 + int(query[-1:], 36) / 100} t\n" for query in queries))
    return path


@pytest.fixture(scope="module")
def runs(mini_release: Release, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Runs of all topic test queries, of models that were trained on them, on none, and on what nobody declared."""
    folder = tmp_path_factory.mktemp("runs")
    queries = drawn_from_training(mini_release)
    paths = {name: write_run(folder / f"{name}.trec", queries) for name in (SEEN, NOT_SEEN, NOT_DECLARED)}
    declare(paths[SEEN], ["ms-marco-shift-mini/train"])
    declare(paths[NOT_SEEN], [])
    return paths


@pytest.fixture
def grid(mini_release: Release, tmp_path: Path) -> list[Path]:
    """Runs of two grids on topic; one model of the grid ``leaky`` was trained on everything."""
    queries = drawn_from_training(mini_release)
    paths = []
    for system in ("clean", "leaky"):
        for part in SHIFTS["topic"].parts(mini_release):
            paths.append(write_run(tmp_path / f"{system}.topic.{part}.trec", queries))
            whole = system == "leaky" and part == "c3"
            own = training_set_id(mini_release, "topic", part)
            declare(paths[-1], ["ms-marco-shift-mini/train"] if whole else [own])
    return paths


def printed(result: Result) -> str:
    return " ".join(repr(result).split())


def test_scores_say_it_in_json_tables_and_frames(runs, mini_release: Release):
    scores = score(list(runs.values()), mini_release)
    document = scores.as_json()
    schemas.validate("scores", document)
    assert {entry["run"]: entry["trained_on"] for entry in document["measures"]} == {name: name for name in runs}
    declared = {run["run"]: run["training_data"] for run in document["provenance"]["runs"]}
    assert declared == {SEEN: ["ms-marco-shift-mini/train"], NOT_SEEN: [], NOT_DECLARED: None}
    assert scores.to_polars().filter(pl.col("trained_on") == SEEN)["run"].unique().to_list() == [SEEN]
    text = printed(scores)
    assert f"yes{MARK}" in text
    assert f"{MARK} trained on these test queries" in text
    assert "Declare the training data" in text
    assert f"no{MARK}" not in text
    in_memory = {query: {"p1": 1.0} for query in drawn_from_training(mini_release)}
    for run, verdict in (({"renamed": runs[SEEN]}, SEEN), (in_memory, NOT_DECLARED)):  # in Python
        assert {figure.trained_on for figure in score(run, mini_release).means} == {verdict}


def test_a_comparison_says_it(runs, mini_release: Release):
    comparison = compare([runs[NOT_SEEN], runs[SEEN]], mini_release)
    verdicts = {row["system"]: row["trained_on"] for row in comparison.as_json()["comparison"]}
    assert verdicts == {SEEN: SEEN, NOT_SEEN: NOT_SEEN}
    assert MARK in printed(comparison)
    assert MARK in comparison.to_markdown()
    assert r"$^\dagger$" in comparison.to_latex()
    assert "trained_on" in comparison.to_csv().splitlines()[0]


def test_a_protocol_and_its_report_say_it(grid, mini_release: Release):
    results = protocol(grid, mini_release)
    rows = results.as_json()["protocols"]["topic"]
    assert {row["system"]: row["trained_on"] for row in rows} == {"clean": NOT_SEEN, "leaky": SEEN}
    text = printed(results)
    assert (f"leaky{MARK}" in text, f"clean{MARK}" in text, "unknown" in text) == (True, False, False)
    assert f"leaky{MARK}" in results.to_markdown()
    assert r"leaky$^\dagger$" in results.to_latex()
    page = result_page(Report(results, None, mini_release))
    assert f'">{MARK} trained on these test queries' in page
    for run in grid:
        declaration(run).unlink()
    unknown = protocol(grid, mini_release)
    assert set(unknown.results["topic"]["trained_on"]) == {NOT_DECLARED}
    assert any("may have seen" in note for note in unknown.cautions())


def test_a_declaration_is_read_strictly_and_replaced_whole(tmp_path: Path):
    run = tmp_path / "a.b.trec.gz"
    assert training_beside(run) == Training(None)
    declare(run, ["msmarco-passage/train"])
    assert declaration(run) == tmp_path / "a.b.training.json"
    assert training_beside(run).training_data == ["msmarco-passage/train"]
    declaration(run).write_text('{"training_data": "msmarco-passage/train"}')
    with pytest.raises(UserError, match=r"a\.b\.training\.json"):
        training_beside(run)
    declare(run, None, 32)
    assert training_beside(run) == Training(None, 32)


def test_the_name_of_a_folder_is_a_word_of_the_source(tmp_path: Path):
    for collection, source, expected in (
        ("nfcorpus", "beir/nfcorpus/test", SEEN),
        ("nfcorpus", "beir/nfcorpus/train", NOT_SEEN),
        ("nfcorpus", "NanoNFCorpusRetrieval test", SEEN),
        ("nfcorpus", "BeIR/nfcorpus, contest winners", NOT_SEEN),
        ("de", "deduplicated web pages, test", NOT_DECLARED),
        ("de", "wiki/de/test", SEEN),
        ("nfcorpus", "nfcorpustriplets/test", SEEN),
        ("新闻", "wikipedia test", NOT_DECLARED),
        ("新闻", "新闻/test", SEEN),
        ("Новости", "Natural Questions test", NOT_DECLARED),
        ("Новости", "НОВОСТИ: test", SEEN),
        ("mr-tydi", "castorini/mrtydi-v1.1 test", SEEN),
        ("mrtydi", "Mr. TyDi test", SEEN),
        ("msmarco", "ms-marco test", SEEN),
        ("passage", "wikipedia test", NOT_DECLARED),
        ("---", "wikipedia test", NOT_DECLARED),
    ):
        release = open_release(beir_folder(tmp_path / collection, [], {"q": "t"}, [("q", "p")]))
        assert trained_on([source], release.test_sets["test"], release) == expected, (collection, source)
