"""CIKM 2021's tables from runs whose every figure an independent tool gives too, on the published sets."""

import json
from pathlib import Path

import ir_measures
import numpy as np
import polars as pl
import pytest
from msgspec.structs import replace

from eval_kit.errors import UserError
from eval_kit.protocols.chameleons import Chameleons, chameleons, definition_1, with_average_precision
from eval_kit.release import Release
from eval_kit.release.reference import published_cells
from eval_kit.runs import writer
from tests.conftest import Run
from tests.eval_kit.plain_runs import ranked_run

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
        found = zip(relevant, relevant.values(), rank, strict=True)
        paths[name] = ranked_run(folder / f"{name}.trec", found, 14)
    return paths


@pytest.fixture(scope="module")
def figures(published_release: Release, runs: dict[str, Path]) -> Chameleons:
    return chameleons(list(runs.values()), published_release)


def judged(run: Path, release: Release) -> dict[str, dict[str, float]]:
    """Each query's AP and RR@10, from ir_measures."""
    qrels = [ir_measures.Qrel(*row) for row in release.qrels("dev").iter_rows()]
    measures = [ir_measures.parse_measure(name) for name in ("AP", "RR@10")]
    values: dict[str, dict[str, float]] = {"AP": {}, "RR@10": {}}
    for metric in ir_measures.iter_calc(measures, qrels, ir_measures.read_trec_run(str(run))):
        values[str(metric.measure)][metric.query_id] = metric.value
    return values


def test_table_4_is_that_of_an_independent_tool(
    published_release: Release, runs: dict[str, Path], figures: Chameleons
) -> None:
    for name, run in runs.items():
        by_measure = judged(run, published_release)
        rows = figures.performance.filter(pl.col("measure").is_in(["AP", "RR@10"]), run=name)
        assert rows.height == 2 * 3 * len(LEVELS)
        for row in rows.iter_rows(named=True):
            members = published_release.test_sets[f"chameleons.{row['set']}.{row['level']}"].queries.to_list()
            expected = [by_measure[row["measure"]][query] for query in members]
            assert (row["value"], row["queries"]) == (pytest.approx(np.mean(expected)), len(members))
            assert row["solved"] == sum(by_measure["RR@10"][query] > 0 for query in members)


def test_a_run_of_the_sets_alone(
    published_release: Release, runs: dict[str, Path], figures: Chameleons, tmp_path: Path
) -> None:
    veiled = published_release.test_sets["chameleons.veiled.50"].query_ids
    part = tmp_path / "part.trec"
    part.write_text("".join(line for line in runs["weak"].open() if line.split()[0] in veiled))
    alone = chameleons([part], published_release)
    whole = figures.performance.filter(run="weak")
    assert alone.performance.drop("run").equals(whole.drop("run"))
    queries = published_release.test_sets["dl19"].queries
    writer.write([(query, "7", 1, 1.0) for query in queries], part, "r")
    with pytest.raises(UserError, match="run covers the Chameleons sets"):
        chameleons([part], published_release)


def test_the_command_on_the_published_sets(
    command: Run, published_release: Release, runs: dict[str, Path], figures: Chameleons, tmp_path: Path
) -> None:
    options = ["--by", "chameleons", "--release", published_release.folder, "--json", tmp_path / "out.json"]
    shown = command("eval_kit", "score", *runs.values(), *options, status=0)
    lines = [line.split() for line in shown.stdout.splitlines()]
    of_bm25 = next(line for line in lines if line[:4] == ["AP", "lesser", "50", "%"])
    assert of_bm25[4] == "1,693" and "0.0066" in of_bm25, "the paper's BM25"
    assert "Definition 1 at 50 % (AP on lesser < pygmy < veiled): " in shown.stdout
    document = json.loads((tmp_path / "out.json").read_text())
    assert document == json.loads(json.dumps(figures.as_json()))
    assert len(document["standing"]) == 2 * 3 * 3


def test_definition_1_as_written_and_ranker_by_ranker_on_table_4() -> None:
    rows = []
    for cell in published_cells("cikm2021-table4"):
        if cell["measure"] == "AP":
            rows.append((cell["system"], cell["test_set"].split(".")[1], 50, "AP", float(cell["value"])))
    frame = pl.DataFrame(rows, ["run", "set", "level", "measure", "value"], orient="row")
    said = definition_1(frame, 50)
    assert said.endswith(": holds run by run; does not hold for all pairs of runs, as it is written")
    assert definition_1(frame.filter(run="ance"), 50).count("does not hold") == 0


def test_a_release_may_lack_dev_as_a_test_set_or_the_chameleons(published_release: Release) -> None:
    entries = published_release.manifest.test_sets
    for kept in (("chameleons",), ("topic",)):
        manifest = replace(published_release.manifest, test_sets=[entry for entry in entries if entry.shift in kept])
        release = Release(published_release.folder, manifest)
        assert with_average_precision(release) == release.test_sets
    assert "AP" in with_average_precision(published_release)["dev"].measures


def test_the_first_lines_say_how_many_each_run_solves(figures: Chameleons) -> None:
    [first, second] = figures.said()[-2:]
    assert first.startswith("weak solves") and second.startswith("strong solves"), "the fewest first"
    solved = figures.performance.filter(measure="RR@10", level=50, run="weak").sort("set")["solved"]
    assert [int(each.replace(",", "")) for each in first.split() if each[0].isdigit()][:-1:2] == solved.to_list()
