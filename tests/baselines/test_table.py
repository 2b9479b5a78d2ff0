"""Our figures beside the papers': on made-up runs over the real test sets, whose figures are known in advance."""

import json
import re
from itertools import product
from pathlib import Path

import polars as pl
import pytest

from eval_kit.documents import TestSetEntry
from eval_kit.errors import UserError
from eval_kit.papers import benchmarks as benchmark_tables
from eval_kit.papers import crossing as crossings
from eval_kit.papers.benchmarks import benchmarks
from eval_kit.papers.beside import results
from eval_kit.papers.commands import markdown, published_tables
from eval_kit.papers.crossing import crossing
from eval_kit.papers.figures import CIKM_FIGURES, FIGURES, Comparison
from eval_kit.papers.printed_table import table
from eval_kit.protocols.grid_results import protocols
from eval_kit.release import Release, Variation
from eval_kit.release.reference import as_printed, ids, load, published_cells
from eval_kit.runs import contamination
from eval_kit.runs import writer as run_files
from eval_kit.shifts import SHIFTS
from eval_kit.tables.markdown import to_markdown
from tests import manifests
from tests.conftest import Run


def write_run(folder: Path, name: str, release: Release, test_sets: dict[str, float]) -> Path:
    """A run that has a relevant passage first for the given share of each test set's queries, and nothing else right.

    A run with a smaller share finds a part of what one with a greater share finds.
    """
    rows: list[tuple[str, str, int, float]] = []
    for test_set, share in test_sets.items():
        one = release.test_sets[test_set]
        qrels = release.qrels(one.qrels).filter(pl.col("relevance") >= 1).sort("relevance", descending=True)
        best = dict(qrels.unique("query_id", keep="first", maintain_order=True).select("query_id", "passage_id").rows())
        for place, query in enumerate(one.queries.sort()):
            found = best.get(query) if place < share * len(one.queries) else None
            rows.append((query, found or "no-such-passage", 1, 1.0))
    run_files.write(rows, folder / name, "made-up")
    return folder / name


@pytest.fixture(scope="module")
def runs(published_release: Release, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """SPLADE as in the paper on short queries and far better on long ones; dense retrieval as in CIKM 2022."""
    folder = tmp_path_factory.mktemp("runs")
    shares = {"short": {"length.short": 0.335, "length.long": 0.6}, "long": {"length.short": 0.349, "length.long": 0.5}}
    for held_out, test_sets in shares.items():
        write_run(folder, f"splade.length.{held_out}.trec", published_release, test_sets)
        write_run(folder, f"bm25.length.{held_out}.trec", published_release, dict.fromkeys(test_sets, 0.25))
    for held_out in SHIFTS["resttest"].parts(published_release):
        test_sets = {
            f"resttest.{bucket}": 0.277 if bucket == held_out else 0.313
            for bucket in SHIFTS["resttest"].parts(published_release)
        }
        write_run(folder, f"biencoder.resttest.{held_out}.trec", published_release, test_sets)
        write_run(folder, f"biencoder-roberta.resttest.{held_out}.trec", published_release, test_sets)
        write_run(folder, f"biencoder-mine.resttest.{held_out}.trec", published_release, test_sets)
    write_run(folder, "splade.wh.wha.trec", published_release, {f"wh.{one}": 0.3 for one in ("wha", "how", "who")})
    return folder


def test_ours_beside_the_papers(published_release: Release, runs: Path):
    found = results(runs, published_release)
    rows = {(one.shift, one.system, one.part, one.measure, one.figure): one for one in found.comparisons}
    short = [rows["length", "splade", "short", "RR@10", figure] for figure in ("in", "out", "loss")]
    assert [one.paper for one in short] == [0.349, 0.335, 0.039]
    assert [one.ours for one in short] == pytest.approx([0.349, 0.335, 1 - 0.335 / 0.349], abs=3e-4)
    assert [one.inside for one in short] == [True, True, True]
    assert short[0].difference == pytest.approx(0, abs=3e-4)
    long = rows["length", "splade", "long", "RR@10", "in"]
    assert (long.paper, long.inside) == (0.303, False)
    assert long.difference == pytest.approx(0.6 - 0.303, abs=3e-4)
    bm25 = rows["length", "bm25", "short", "RR@10", "value"]
    assert (bm25.paper, bm25.inside, bm25.source) == (0.19, None, "ECIR 2023, Table 3")
    assert bm25.ours == pytest.approx(0.25, abs=3e-4)
    zhan = [rows["resttest", "biencoder", "", "RR@10", figure] for figure in ("in", "out", "loss")]
    assert [one.paper for one in zhan] == [0.313, 0.277, 0.12]
    assert [one.ours for one in zhan] == pytest.approx([0.313, 0.277, 1 - 0.277 / 0.313], abs=1e-3)
    assert [one.inside for one in zhan] == [True, True, True]
    roberta = {key: row for key, row in rows.items() if key[1] == "biencoder-roberta"}
    assert {key[3] for key in roberta} == {"R@100"}  # all that Table 9 prints
    figures = [roberta["resttest", "biencoder-roberta", "", "R@100", figure] for figure in ("in", "out", "loss")]
    assert [row.paper for row in figures] == [0.845, 0.778, 0.08]
    assert {row.source for row in figures} == {"CIKM 2022, Table 9"}
    assert not any(key[1] == "biencoder-mine" for key in rows)  # no paper trained it
    assert found.incomplete == ["the grid of splade on wh lacks a run: expected splade.wh.how.trec"]


@pytest.fixture(scope="module")
def few_runs(runs: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Those of the clusters alone."""
    folder = tmp_path_factory.mktemp("few")
    for run in runs.glob("*.[lw]*.*.trec"):
        (folder / run.name).hardlink_to(run)
    return folder


def test_the_command(command: Run, published_release: Release, runs: Path, tmp_path: Path):
    arguments = [runs, "--paper", "all", "--release", published_release.folder]
    outputs = ["--json", tmp_path / "table.json", "--page", tmp_path / "report.html"]
    shown = command("eval_kit", "protocol", *arguments, *outputs)
    assert shown.returncode == 0, shown.stderr
    lines = [line.split() for line in shown.stdout.splitlines()]
    assert ["splade", "short", "RR@10", "0.349", "0.349", "+0.000", "✓", "0.335", "0.335", "+0.000", "✓"] in [
        line[:11] for line in lines
    ]
    assert ["bm25", "short", "RR@10", "0.250", "0.190", "+0.060"] in lines
    assert "left out: the grid of splade on wh lacks a run" in shown.stdout
    assert "ECIR 2023, Table 3 (arXiv 2205.02870v2)" in shown.stdout
    assert "<h1>" in (tmp_path / "report.html").read_text()
    document = json.loads((tmp_path / "table.json").read_text())
    assert len(document["comparisons"]) == 3 * 2 + 2 + 3 * 2 + 3 + 2  # of arXiv Table 5: length's models on dev
    assert {"protocols", "provenance", "incomplete", "comparable"} <= set(document)


def test_every_figure_of_our_systems_that_a_paper_prints_is_looked_for():
    """The names by which a published table is looked up are names that it has."""
    for shift, id in ((name, shift.published_table) for name, shift in SHIFTS.items()):
        figures = CIKM_FIGURES.values() if id.startswith("cikm") else FIGURES
        have = {cell["figure"] for cell in published_cells(id)}
        assert set(figures) <= have, shift
    assert {"in", "out", "loss", "value"} == {cell["figure"] for cell in published_cells("ecir2023-table2")}


def test_delta_is_the_loss_with_its_sign_turned():
    one = Comparison("resttest", "", "splade", "RR@10", "loss", 0.1, 0.05, 0.2, paper=0.13, source="")
    assert (one.inside, one.difference) == (True, pytest.approx(-0.03))


def test_cells_that_were_trained_in_different_batches_are_not_averaged(mini_release: Release, tmp_path: Path):
    runs = {}
    for held_out, batch in (("short", 32), ("long", 16)):
        name = f"splade.length.{held_out}.trec"
        runs[held_out] = write_run(tmp_path, name, mini_release, {"length.short": 1, "length.long": 1})
        contamination.declare(runs[held_out], None, batch)
    said = "the cells of splade on length were trained differently: splade.length.long.trec in batches of 16, "
    refusal = f"{said}splade.length.short.trec in batches of 32; train them alike"
    with pytest.raises(UserError, match=refusal):
        results(tmp_path, mini_release)
    with pytest.raises(UserError, match=refusal):
        protocols(list(runs.values()), mini_release)
    contamination.declare(runs["long"], None, 32)
    assert results(tmp_path, mini_release).incomplete == []


def test_folders_without_a_grid(mini_release: Release, tmp_path: Path):
    with pytest.raises(UserError, match="holds no run named"):
        results(tmp_path, mini_release)
    write_run(tmp_path, "splade.length.short.trec", mini_release, {"length.short": 1, "length.long": 1})
    with pytest.raises(UserError, match=r"no grid is complete: .* expected splade\.length\.long\.trec"):
        results(tmp_path, mini_release)


@pytest.mark.slow
def test_a_published_table_with_ours_in_it(
    command: Run, published_release: Release, runs: Path, few_runs: Path, tmp_path: Path
):
    arguments = ["eval_kit", "protocol", "--release", published_release.folder]
    shown = command(*arguments, few_runs, "--paper", "ecir2023-table3", "--json", tmp_path / "table.json")
    assert shown.returncode == 0, shown.stderr
    lines = [line.split() for line in shown.stdout.splitlines()]
    short = lines.index(["length.short", "in", "0.340", "0.349", "0.384", "0.377"])
    assert lines[short + 1] == ["ours", "0.349"]
    loss = next(at for at, line in enumerate(lines) if line[:2] == ["length.short", "loss"])
    assert "3.9%" in lines[loss] and lines[loss + 1] == ["ours", "4.0%"]
    dense = command(*arguments, runs, "--paper", "cikm2022-table7").stdout.splitlines()
    row = next(at for at, line in enumerate(dense) if line.startswith("dr-base"))
    assert dense[row].split()[:4] == ["dr-base", "0.313", "0.277", "-12%"]
    assert dense[row + 1].split()[:6] == ["ours", "0.313", "ours", "0.278", "ours", "-11%"]
    document = json.loads((tmp_path / "table.json").read_text())
    assert len(document["comparisons"]) == 3 * 2 + 2
    assert document["published"]["id"] == "ecir2023-table3"


def test_a_published_table_without_runs(command: Run, tmp_path: Path):
    shown = command("eval_kit", "protocol", "--paper", "beir2021-table2", cwd=tmp_path, PYTHONPATH=str(Path.cwd()))
    assert shown.returncode == 0, shown.stderr
    assert "your own figures: eval_kit score RUN... --dataset DIR" in shown.stdout
    unknown = command("eval_kit", "protocol", "--paper", "ecir2023-table9")
    said = "eval_kit: --paper ecir2023-table9: there is no such table; there are arxiv2022-table2, "
    assert (unknown.returncode, unknown.stderr[: len(said)], unknown.stderr.count("\n")) == (2, said, 1)
    for nothing, said in (([], "give the RUNs of a grid, or"), (["--paper", "all"], "--paper all: give the folder of")):
        refused = command("eval_kit", "protocol", *nothing)
        assert (refused.returncode, refused.stderr.count("\n")) == (2, 1)
        assert refused.stderr.startswith(f"eval_kit: {said}")


@pytest.mark.slow
def test_every_model_of_a_matrix_is_found_in_arxiv_table_2(published_release: Release, tmp_path: Path):
    topics = SHIFTS["topic"].parts(published_release)
    for held_out in topics:
        shares = {f"topic.{topic}": 0.1 if topic == held_out else 0.2 for topic in topics}
        write_run(tmp_path, f"splade.topic.{held_out}.trec", published_release, shares)
    figures = results(tmp_path, published_release)
    matrix = figures.comparisons_of("arxiv2022-table2")
    assert len(matrix) == len(published_cells("arxiv2022-table2")) == 35
    diagonal = [comparison.ours for at, comparison in matrix.items() if at.training == f"not-{at.test_set[-2:]}"]
    assert diagonal == pytest.approx([0.1] * 5, abs=1e-3)
    assert figures.comparisons_of("arxiv2022-table5") == {}


@pytest.mark.slow
def test_models_of_a_shift_beside_the_one_trained_on_everything(
    command: Run, published_release: Release, tmp_path: Path
):
    for held_out, share in (("short", 0.2), ("long", 0.3)):
        test_sets = {"length.short": share, "length.long": share, "dl19": share}
        write_run(tmp_path / "runs", f"splade.length.{held_out}.trec", published_release, test_sets)
    write_run(tmp_path / "control", "splade.all.none.trec", published_release, {"dev": 0.5, "dl19": 0.5})
    found = results(tmp_path / "runs", published_release)
    ours = {(at.training, at.test_set, at.measure): row for at, row in found.comparisons_of("arxiv2022-table5").items()}
    assert len(ours) == 2 * 4
    dev = [ours[training, "dev", "RR@10"] for training in ("length", "all")]
    assert [row.ours for row in dev] == pytest.approx([0.25, 0.5], abs=1e-3)
    assert [row.paper for row in dev] == [0.314, 0.344]
    [row] = found.benchmarks.filter(measure="RR@10", test_set="dev", training="length").to_dicts()
    assert (row["models"], row["queries"], row["rel_loss"]) == (2, 6980, pytest.approx(0.5, abs=1e-3))
    assert row["rel_loss_low"] < 0.5 < row["rel_loss_high"]
    arguments = ["eval_kit", "protocol", tmp_path / "runs", "--release", published_release.folder, "--paper"]
    lines = [line.split() for line in command(*arguments, "all").stdout.splitlines()]
    assert ["splade", "length", "0.250", "50.0%"] in [line[:4] for line in lines]
    assert ["all", "0.500"] in [line[:2] for line in lines]
    shown = command(*arguments, "arxiv2022-table5").stdout
    assert "ours 0.250" in " ".join(shown.split())


TYPO = Variation("dev", "typo", None, 1, "dev_typo_1", None, "here", "none", 2)
CLEAN = {("b1", "b1"): [0.5, 0.5], ("b1", "b2"): [0.8, 1.0], ("b2", "b1"): [1.0, 0.6], ("b2", "b2"): [0.4, 0.4]}
"""Values of the model without the first bucket on the queries of the second."""
VARIED = {("b1", "b1"): [0.1, 0.2], ("b1", "b2"): [0.8, 0.9], ("b2", "b1"): [0.9, 0.5], ("b2", "b2"): [0.0, 0.1]}


@pytest.fixture(scope="module")
def buckets() -> Release:
    """Two ReSTTest buckets of two dev queries each."""
    queries = [(f"{bucket}-{number}", bucket) for bucket, number in product(("b1", "b2"), (0, 1))]
    table = pl.DataFrame(queries, ["query_id", "bucket"], orient="row")
    test_set = TestSetEntry(
        name="dev", shift="dev", config="resttest", split="dev", qrels="dev", measures=["RR@10"], queries=4
    )
    tables = [manifests.table("resttest", "dev", ("bucket", ["b1", "b2"]))]
    return Release(Path(), manifests.made_up(tables, [test_set]), {("resttest", "dev"): table})


def crossed_values() -> pl.DataFrame:
    rows = []
    for variation, cells in ((None, CLEAN), ("dev.typo.1", VARIED)):
        for (held_out, bucket), of_queries in cells.items():
            for number, value in enumerate(of_queries):
                run = f"splade.resttest.{held_out}"
                rows.append((run, "dev", "RR@10", f"{bucket}-{number}", value, run, variation))
    rows.append(("tas-b", "dev", "RR@10", "b1-0", 0.5, "tas-b", "dev.typo.1"))  # no cell of a grid
    names = ("run", "test_set", "measure", "query_id", "value", "system", "variation")
    return pl.DataFrame(rows, names, orient="row")


def test_out_and_in_are_compared_with_themselves(buckets: Release):
    results = crossing(crossed_values(), [TYPO], buckets)
    assert results is not None
    [row] = results.to_dicts()
    keys = ("shift", "part", "system", "method", "measure", "queries")
    assert [row[key] for key in keys] == ["resttest", "", "splade", "typo", "RR@10", 4]
    assert [row["in_clean"], row["in_varied"]] == pytest.approx([3.4 / 4, 3.1 / 4])
    assert [row["out_clean"], row["out_varied"]] == pytest.approx([1.8 / 4, 0.4 / 4])
    assert [row["in_loss"], row["out_loss"]] == pytest.approx([0.3 / 3.4, 1.4 / 1.8])
    assert row["out_loss_low"] <= row["out_loss"] <= row["out_loss_high"]
    assert row["difference"] == pytest.approx((1.4 - 0.3) / 4)
    assert 0 < row["p"] == row["p_holm"] < 0.05
    shown = [[cell.text + cell.mark for cell in line] for line in crossings.layout(results).rows()]
    assert shown == [["resttest", "splade", "typo", "RR@10", "0.8500", "8.8%", "0.4500", "77.8%", "+0.2750", "4"]]


def test_without_queries_of_a_shift_there_is_nothing_to_cross(buckets: Release):
    of_others = crossed_values().filter(pl.col("system") == "tas-b")
    assert crossing(of_others, [TYPO], buckets) is None


def benchmark_rows(system: str, shift: str, held_out: str, values: list[float], test_set: str = "dev") -> pl.DataFrame:
    return pl.DataFrame(
        {"query_id": [str(number) for number in range(len(values))], "value": values}
    ).select(
        *(
            pl.lit(value).alias(name)
            for name, value in {"system": system, "shift": shift, "held_out": held_out, "seed": 0}.items()
        ),
        pl.lit(test_set).alias("test_set"),
        pl.lit("RR@10").alias("measure"),
        "query_id",
        "value",
    )  # fmt: skip


GRID = pl.concat(
    [
        benchmark_rows("splade", "wh", "how", [1.0, 0.5, 0.0, 0.25]),
        benchmark_rows("splade", "wh", "who", [0.5, 0.5, 0.0, 0.75]),
        benchmark_rows("splade", "topic", "c0", [0.5, 0.5, 0.5, 0.5]),
        benchmark_rows("splade", "topic", "c0", [0.5, 0.5], "topic.c0"),
        benchmark_rows("colbert", "wh", "how", [1.0, 1.0, 1.0, 1.0]),
        benchmark_rows("colbert", "wh", "who", [1.0, 1.0], "dl19"),
        benchmark_rows("splade", "restrain", "extrapolate_14k", [1.0, 1.0, 1.0, 1.0]),
    ]
)
CONTROL = benchmark_rows("splade", "all", "none", [1.0, 0.5, 0.5, 1.0])


def test_means_over_models_and_what_they_lose_against_everything():
    results = benchmarks(GRID, CONTROL)
    found = {row["training"]: row for row in results.to_dicts()}
    assert list(found) == ["topic", "wh", "all"]  # colbert's models cover no test set together, ReSTrain is left out
    assert set(results["system"]) == {"splade"}
    assert [found[name]["value"] for name in found] == pytest.approx([0.5, 0.4375, 0.75])
    assert [found[name]["models"] for name in found] == [1, 2, 1]
    assert [found[name]["rel_loss"] for name in ("topic", "wh")] == pytest.approx([1 - 0.5 / 0.75, 1 - 0.4375 / 0.75])
    assert found["all"]["rel_loss"] is found["all"]["p_holm"] is None
    for name in ("topic", "wh"):
        assert found[name]["rel_loss_low"] <= found[name]["rel_loss"] <= found[name]["rel_loss_high"]
        assert found[name]["p"] <= found[name]["p_holm"] <= 1


def test_without_a_control_there_are_means_but_no_losses():
    results = benchmarks(GRID, GRID.clear())
    assert results["training"].to_list() == ["topic", "wh"]
    assert results["rel_loss"].null_count() == 2
    assert benchmarks(GRID.clear(), GRID.clear()).columns == results.columns


def test_the_table_of_benchmarks():
    table = benchmark_tables.layout(benchmarks(GRID, CONTROL))
    assert [column.header for column in table.columns] == ["system", "trained on", "dev RR@10", "dev loss"]
    shown = [[cell.text + cell.mark for cell in row] for row in table.rows()]
    assert shown == [["splade", "topic", "0.500", "33.3%°"], ["", "wh", "0.438", "41.7%°"], ["", "all", "0.750", ""]]


ROOT = Path(__file__).parents[2]


def test_the_list_for_people_is_current() -> None:
    listed = (ROOT / "docs" / "published-tables.md").read_text(encoding="utf-8")
    assert listed == markdown(), "run: python -m eval_kit.papers.commands > docs/published-tables.md"


def test_every_table_that_is_data_is_listed_once_and_the_others_say_why_not() -> None:
    assert sorted(entry.id for entry in published_tables() if entry.id) == ids()
    for entry in published_tables():
        assert entry.own or entry.why, entry
        if entry.id:
            assert load(entry.id)["table"] == entry.table, entry


def test_every_table_of_the_papers_is_listed() -> None:
    """Counted in the papers' captions."""
    counts = {"ECIR 2023": 3, "arXiv 2205.02870v1": 5, "BEIR, NeurIPS 2021": 10, "CIKM 2021": 8, "CIKM 2022": 10}
    for paper, count in counts.items():
        numbers = [entry.table for entry in published_tables() if entry.paper == paper and "Table" in entry.table]
        assert numbers == [f"Table {number}" for number in range(1, count + 1)]


@pytest.mark.parametrize("id", ids())
def test_a_table_shows_every_figure_as_printed(id: str) -> None:
    reference = load(id)
    shown = table(reference, {})
    figures = sorted(cell.text for row in shown.rows() for cell in row if re.fullmatch(r"-?[\d,.]+%?", cell.text))
    assert figures == sorted(map(as_printed, reference["cells"]))
    assert to_markdown(shown).count("\n") > len(figures) / 20
