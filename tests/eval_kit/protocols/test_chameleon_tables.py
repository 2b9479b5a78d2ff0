"""CIKM 2021's tables from runs whose every figure an independent tool gives too, on the published sets."""

import json
from pathlib import Path

import ir_measures
import numpy as np
import polars as pl
import pytest
from msgspec.structs import replace

from eval_kit.errors import UserError
from eval_kit.output import emit
from eval_kit.protocols.chameleons import Chameleons, properties, results, with_average_precision
from eval_kit.release import Release
from eval_kit.release.reference import published_cells
from eval_kit.runs import writer
from tests.conftest import Run

SETS = ("lesser", "pygmy", "veiled")
LEVELS = (10, 20, 30, 40, 50)


@pytest.fixture(scope="module")
def runs(published_release: Release, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Two runs over dev-small: each ranks the first relevant passage at random, and some queries' not at all."""
    folder = tmp_path_factory.mktemp("chameleons")
    qrels = published_release.qrels("dev").unique("query_id", keep="first", maintain_order=True)
    relevant = dict(qrels.select("query_id", "passage_id").iter_rows())
    paths = {}
    for seed, name in enumerate(("strong", "weak")):
        rank = np.random.default_rng(seed).geometric(0.3 / (seed + 1), len(relevant))
        rows = [(query, f"x{place}", place, -place) for query in relevant for place in range(1, 15)]
        rows = [
            (query, relevant[query] if place == at else passage, place, float(score))
            for (query, passage, place, score), at in zip(rows, np.repeat(rank, 14), strict=True)
        ]
        paths[name] = folder / f"{name}.trec"
        writer.write(rows, paths[name], name)
    return paths


@pytest.fixture(scope="module")
def figures(published_release: Release, runs: dict[str, Path]) -> Chameleons:
    return results(list(runs.values()), published_release)


def judged(run: Path, release: Release) -> dict[str, dict[str, float]]:
    """Each query's AP and RR@10, from ir_measures."""
    qrels = [ir_measures.Qrel(*row) for row in release.qrels("dev").iter_rows()]
    measures = [ir_measures.parse_measure(name) for name in ("AP", "RR@10")]
    values: dict[str, dict[str, float]] = {"AP": {}, "RR@10": {}}
    for metric in ir_measures.iter_calc(measures, qrels, ir_measures.read_trec_run(str(run))):
        values[str(metric.measure)][metric.query_id] = metric.value
    return values


def test_tables_1_2_and_4_are_those_of_an_independent_tool(
    published_release: Release, runs: dict[str, Path], figures: Chameleons
) -> None:
    averages = {(row["run"], row["measure"]): row for row in figures.averages.iter_rows(named=True)}
    worst = {(run, level): value for run, level, value in figures.worst.iter_rows()}
    for name, run in runs.items():
        by_measure = judged(run, published_release)
        for measure, by_query in by_measure.items():
            expected = np.array(list(by_query.values()))
            assert len(expected) == averages[name, measure]["queries"] == 6_980
            assert averages[name, measure]["mean"] == pytest.approx(expected.mean())
            assert averages[name, measure]["median"] == pytest.approx(np.median(expected))
        precision = np.sort(list(by_measure["AP"].values()))
        for level in (*LEVELS, 100):
            assert worst[name, level] == pytest.approx(precision[: round(6_980 * level / 100)].mean())
        rows = figures.performance.filter(pl.col("measure").is_in(["AP", "RR@10"]), run=name)
        assert rows.height == 2 * 3 * len(LEVELS)
        for row in rows.iter_rows(named=True):
            members = published_release.test_sets[f"chameleons.{row['set']}.{row['level']}"].queries.to_list()
            expected = [by_measure[row["measure"]][query] for query in members]
            assert (row["value"], row["queries"]) == (pytest.approx(np.mean(expected)), len(members))
            assert row["solved"] == sum(by_measure["RR@10"][query] > 0 for query in members)
    assert figures.agreement.height == len(LEVELS)


def test_tables_3_5_and_6_of_the_published_sets(published_release: Release) -> None:
    sets = {row["test_set"]: row for row in properties(published_release).iter_rows(named=True)}
    assert sets["dev"]["queries"] == 6_980
    for number, column, count in ((3, "queries", 15), (5, "relevant", 16), (6, "words", 16)):
        cells = published_cells(f"cikm2021-table{number}")
        assert len(cells) == count
        for cell in cells:
            assert sets[cell["test_set"]][column] == pytest.approx(cell["value"], abs=0.01), cell
    lesser = sets["chameleons.lesser.50"]
    assert (round(lesser["relevant"], 2), round(lesser["words"], 2)) == (1.09, 6.46)  # printed 6.45


def test_the_figures_are_those_of_the_tables(runs: dict[str, Path], figures: Chameleons) -> None:
    document = figures.as_json()
    averages = {row["run"]: row for row in document["averages"] if row["measure"] == "AP"}
    worst = {(row["run"], row["level"]): row["value"] for row in document["worst"]}
    for name in runs:
        tail = document["figure_1"][name]
        assert len(tail) == 6_980 and tail == sorted(tail, reverse=True)
        assert np.mean(tail) == pytest.approx(averages[name]["mean"])
        assert np.mean(tail[-698:]) == pytest.approx(worst[name, 10])
    means = {
        (row["run"], row["set"], row["level"]): row["value"] for row in document["chameleons"] if row["measure"] == "AP"
    }
    assert len(document["figure_3"]) == len(means) == 2 * 3 * 5
    for row in document["figure_3"]:
        assert row["all"] == averages[row["run"]]["mean"]
        assert row["value"] == means[row["run"], row["set"], row["level"]]
    assert list(dict.fromkeys(row["run"] for row in document["figure_3"])) == list(document["figure_1"])
    assert {row["set"] for row in document["figure_4"]} == set(SETS)
    for row in document["figure_4"]:
        for which in ("first", "second"):
            assert row[f"{which}_value"] == means[row[which], row["set"], 50]


def test_a_page_draws_the_figures_and_holds_the_tables(
    published_release: Release, runs: dict[str, Path], figures: Chameleons, tmp_path: Path
) -> None:
    emit(figures, page=tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    captions = ["Figure 1 of CIKM 2021", "Figure 2 of CIKM 2021", "Figure 3 of CIKM 2021", "Figure 4 of CIKM 2021"]
    assert [page.count(caption) for caption in captions] == [1, 1, 1, 1]
    for row in figures.agreement.iter_rows(named=True):
        assert f"<title>strong and weak, {row['level']} %: {row['agreement']:.3f}</title>" in page
    assert '<td class="num">0.0017</td>' in page  # published: ANCE on its own worst 10 %
    emit(results([runs["weak"]], published_release), page=tmp_path / "one.html")
    alone = (tmp_path / "one.html").read_text(encoding="utf-8")
    assert [alone.count(caption) for caption in captions] == [1, 0, 1, 0]


def test_a_run_of_the_sets_alone(
    published_release: Release, runs: dict[str, Path], figures: Chameleons, tmp_path: Path
) -> None:
    veiled = published_release.test_sets["chameleons.veiled.50"].query_ids
    part = tmp_path / "part.trec"
    part.write_text("".join(line for line in runs["weak"].open() if line.split()[0] in veiled))
    alone = results([part], published_release)
    assert alone.averages.is_empty() and alone.worst.is_empty() and alone.agreement.is_empty()
    whole = figures.performance.filter(run="weak")
    assert alone.performance.drop("run").equals(whole.drop("run"))
    both = results([part, runs["strong"]], published_release).as_json()
    assert {row["run"] for row in both["figure_3"]} == {"strong"}, (
        "of the other run there is no figure over all queries"
    )
    queries = published_release.test_sets["dl19"].queries
    writer.write([(query, "7", 1, 1.0) for query in queries], part, "r")
    with pytest.raises(UserError, match="no run covers the Chameleons sets"):
        results([part], published_release)


def test_the_command_on_the_published_sets(
    command: Run, published_release: Release, runs: dict[str, Path], figures: Chameleons, tmp_path: Path
) -> None:
    options = ["--by", "chameleons", "--release", published_release.folder, "--json", tmp_path / "out.json"]
    shown = command("eval_kit", "slices", *runs.values(), *options)
    assert shown.returncode == 0, shown.stderr
    lines = [line.split() for line in shown.stdout.splitlines()]
    assert ["bm25", "(published)", "0.1956", "0.0455", "0.1874", "0"] in lines
    assert ["ance", "(published)", "0.0017", "0.0066", "0.0151", "0.0280", "0.0476", "0.3365"] in lines
    assert ["chameleons.lesser.50", "1,693", "1.091", "6.457", "1.09", "6.45"] in lines
    assert ["dev", "6,980", "1.065", "5.925", "1.06", "5.92"] in lines
    assert "Definition 1 at 50 % (AP on lesser < pygmy < veiled): " in shown.stdout
    document = json.loads((tmp_path / "out.json").read_text())
    assert document == json.loads(json.dumps(figures.as_json()))
    rows = {name: len(document[name]) for name in ("averages", "worst", "sets", "standing")}
    assert rows == {"averages": 2 * 2, "worst": 2 * 6, "sets": 16, "standing": 2 * 3 * 3}


def test_a_release_may_lack_dev_as_a_test_set_or_the_chameleons(published_release: Release) -> None:
    entries = published_release.manifest.test_sets
    for kept in (("chameleons",), ("topic",)):
        manifest = replace(published_release.manifest, test_sets=[entry for entry in entries if entry.shift in kept])
        release = Release(published_release.folder, manifest)
        assert with_average_precision(release) == release.test_sets
    assert "AP" in with_average_precision(published_release)["dev"].measures
