"""Our figures beside the papers': on made-up runs over the real test sets, whose figures are known in advance."""

import json
import re
from pathlib import Path

import polars as pl
import pytest

from eval_kit.errors import UserError
from eval_kit.papers.beside import _beside, results
from eval_kit.papers.figures import CIKM_FIGURES, FIGURES, BesidePaper
from eval_kit.papers.printed_table import table
from eval_kit.protocols.grid_results import protocol
from eval_kit.release import Release
from eval_kit.release.reference import as_printed, ids, load, published_cells
from eval_kit.runs import contamination
from eval_kit.runs import writer as run_files
from eval_kit.shifts import SHIFTS
from eval_kit.tables.markdown import to_markdown
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
    assert found.incomplete == ["splade has no run for every wh part. splade.wh.how.trec is missing"]


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
    assert "splade.wh.how.trec is missing" in shown.stdout
    assert "ECIR 2023, Table 3 (arXiv 2205.02870v2)" in shown.stdout
    assert "<h1>" in (tmp_path / "report.html").read_text()
    document = json.loads((tmp_path / "table.json").read_text())
    of_biencoder = 3 * 2 + 3 * 2 + 3  # Tables 7, 8 and 9
    assert len(document["comparisons"]) == 3 * 2 + 2 + of_biencoder + 3 + 2  # and RoBERTa; SPLADE's means on dev
    assert {"protocols", "provenance", "incomplete", "comparable"} <= set(document)


@pytest.fixture(scope="module")
def every_table(published_release: Release, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """ReSTrain, length and the control by two systems that stand in several tables."""
    folder = tmp_path_factory.mktemp("grid")
    of_dl = {"dl19": 0.5, "dl20": 0.7}
    for place in ("runs", "control"):
        (folder / place).mkdir()
    for system in ("biencoder", "biencoder-cocondenser-marco"):
        for regime, share in (("interpolate", 0.9), ("extrapolate", 0.6)):
            shares = {name: share * of for name, of in of_dl.items()}
            write_run(folder / "runs", f"{system}.restrain.{regime}_45k.trec", published_release, shares)
    for held_out, share in (("short", 0.2), ("long", 0.5)):
        shares = {"dev": share, "dl19": share}
        write_run(folder / "runs", f"biencoder.length.{held_out}.trec", published_release, shares)
    write_run(folder / "control", "biencoder.all.none.trec", published_release, {"dev": 0.9})
    return folder / "runs"


def test_a_figure_stands_in_every_cell_that_prints_it(published_release: Release, every_table: Path):
    found = results(every_table, published_release)
    own = {id: found.comparisons_of(id) for id in ("cikm2022-table6", "cikm2022-table8", "cikm2022-table9")}
    cells = {id: [key[:2] for key in keys] for id, keys in own.items()}
    assert set(cells["cikm2022-table6"]) == {("dr-base", "45k")}
    assert set(cells["cikm2022-table8"]) == {("dr-base", "bert+randneg"), ("dr-advance", "cocon-marco+randneg")}
    assert set(cells["cikm2022-table9"]) == {("dr-base", "bert"), ("dr-base", "cocon-marco")}
    assert list(map(len, cells.values())) == [6, 12, 6]
    of_arxiv = {tuple(key[:4]): one for key, one in found.comparisons_of("arxiv2022-table5").items()}
    means = {key: one.ours for key, one in of_arxiv.items() if key[3] == "RR@10"}
    short, long = (round(share * 6980 + 0.5) / 6980 for share in (0.2, 0.5))
    assert means["biencoder", "length", "dev", "RR@10"] == pytest.approx((short + long) / 2, abs=1e-3)
    assert means["biencoder", "all", "dev", "RR@10"] == pytest.approx(0.9, abs=1e-3)
    assert ("biencoder", "length", "dl19", "R@1000") in of_arxiv  # grades of 2 and more here
    assert all(one.inside is None for one in of_arxiv.values())


def test_one_year_of_trec_dl_is_in_no_cell_of_two(published_release: Release, tmp_path: Path):
    folder = tmp_path / "runs"
    folder.mkdir()
    for regime in ("interpolate", "extrapolate"):
        write_run(folder, f"splade.restrain.{regime}_14k.trec", published_release, {"dl19": 0.5})
    found = results(folder, published_release)
    [row] = found.grid.results["restrain"].filter(measure="nDCG@10").to_dicts()
    assert (row["test_sets"], row["queries"]) == ("dl19", 43)
    assert found.comparisons == []
    [title] = {each.title for each in found.grid.tables()}
    assert "dl19" in title and "43" in title and "dl20" not in title
    for regime in ("interpolate", "extrapolate"):
        shares = {"dl19": 0.5, "dl20": 0.5}
        write_run(folder, f"biencoder.restrain.{regime}_14k.trec", published_release, shares)
    with pytest.raises(UserError, match=r"^splade\.restrain\.\w+_14k\.trec does not cover dl20"):
        results(folder, published_release)


def test_every_figure_of_our_systems_that_a_paper_prints_is_looked_for():
    """The names by which a published table is looked up are names that it has."""
    for shift, id in ((name, shift.published_table) for name, shift in SHIFTS.items() if shift.published_table):
        figures = CIKM_FIGURES.values() if id.startswith("cikm") else FIGURES
        have = {cell["figure"] for cell in published_cells(id)}
        assert set(figures) <= have, shift
    assert {"in", "out", "loss", "value"} == {cell["figure"] for cell in published_cells("ecir2023-table2")}


def test_delta_is_the_loss_with_its_sign_turned():
    one = BesidePaper("resttest", "", "splade", "RR@10", "loss", 0.1, 0.05, 0.2, paper=0.13, source="")
    assert (one.inside, one.difference) == (True, pytest.approx(-0.03))
    shown = to_markdown(_beside("cikm2022-table7", [one])).replace(" ", "")
    assert "|Δ|paper|difference|" in shown and "|-10.0%|-13.0%|+3.0%|✓|" in shown
    assert "|loss|paper|difference|" in to_markdown(_beside("ecir2023-table2", [one])).replace(" ", "")


def test_cells_that_were_trained_in_different_batches_are_not_averaged(mini_release: Release, tmp_path: Path):
    runs = {}
    for held_out, batch in (("short", 32), ("long", 16)):
        name = f"splade.length.{held_out}.trec"
        runs[held_out] = write_run(tmp_path, name, mini_release, {"length.short": 1, "length.long": 1})
        contamination.declare(runs[held_out], None, batch)
    refusal = r"trained differently: splade\.length\.long in batches of 16, splade\.length\.short in batches of 32"
    with pytest.raises(UserError, match=refusal):
        results(tmp_path, mini_release)
    with pytest.raises(UserError, match=refusal):
        protocol(list(runs.values()), mini_release)
    contamination.declare(runs["long"], None, 32)
    assert results(tmp_path, mini_release).incomplete == []


def test_folders_without_a_grid(mini_release: Release, tmp_path: Path):
    with pytest.raises(UserError, match="no run named"):
        results(tmp_path, mini_release)
    write_run(tmp_path, "splade.length.short.trec", mini_release, {"length.short": 1, "length.long": 1})
    with pytest.raises(UserError, match=r"no complete grid.* splade\.length\.long\.trec"):
        results(tmp_path, mini_release)


@pytest.mark.slow
def test_a_published_table_with_ours_in_it(command: Run, published_release: Release, runs: Path, tmp_path: Path):
    arguments = ["eval_kit", "protocol", "--release", published_release.folder]
    shown = command(*arguments, runs, "--paper", "ecir2023-table3", "--json", tmp_path / "table.json")
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
    assert "0.656" in shown.stdout
    unknown = command("eval_kit", "protocol", "--paper", "ecir2023-table9")
    said = "eval_kit: Unknown --paper ecir2023-table9. Choose from: arxiv2022-table2, "
    assert (unknown.returncode, unknown.stderr[: len(said)], unknown.stderr.count("\n")) == (2, said, 1)
    for nothing, said in (([], "There is nothing to show"), (["--paper", "all"], "--paper all")):
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


@pytest.mark.parametrize("id", ids())
def test_a_table_shows_every_figure_as_printed(id: str) -> None:
    reference = load(id)
    shown = table(reference, {})
    figures = sorted(cell.text for row in shown.rows() for cell in row if re.fullmatch(r"-?[\d,.]+%?", cell.text))
    assert figures == sorted(map(as_printed, reference["cells"]))
    assert to_markdown(shown).count("\n") > len(figures) / 20
