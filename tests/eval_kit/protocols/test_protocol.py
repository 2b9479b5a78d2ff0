"""The papers' protocols: on hand-made values, and on an oracle's grid whose true order of losses is planted."""

import json
import re
from pathlib import Path

import polars as pl
import pytest
from planted_oracle import oracle_ranking, taught_ranking
from scipy.stats import spearmanr

from eval_kit.errors import UserError
from eval_kit.pages.page import result_page
from eval_kit.pages.report import report
from eval_kit.protocols.grid_results import protocol
from eval_kit.protocols.scoring import score
from eval_kit.protocols.similarity import figure_3
from eval_kit.release import open_release
from eval_kit.runs import writer as run_files
from eval_kit.runs.given import take
from eval_kit.runs.grids import in_cells
from eval_kit.runs.names import RunName, cell_of, grid, run_name
from eval_kit.stats.similarity import by_cluster

planted = pytest.importorskip("builder.mini", exc_type=ImportError)
releases = pytest.importorskip("builder.release", exc_type=ImportError)
mini = pytest.importorskip("builder.sources.mini", exc_type=ImportError)

GOLDEN = Path(__file__).parents[2] / "golden"


@pytest.mark.parametrize(
    ("name", "cell"),
    [
        ("splade.topic.c0.trec", RunName("splade", "topic", "c0")),
        ("my.model-v1.2.wh.wha.seed3.trec.gz", RunName("my.model-v1.2", "wh", "wha", 3)),
        ("dr.restrain.interpolate_14k.run", RunName("dr", "restrain", "interpolate_14k")),
        ("bm25.dl19.trec", None),
        ("bm25.trec", None),
    ],
)
def test_cells_are_told_by_file_names(name, cell):
    [[run]] = take(run=name)
    assert run.cell == cell
    if cell is not None:
        assert cell_of(run_name(Path(cell.file))) == cell


def write_oracles_run(folder: Path, name: str, ranking: pl.DataFrame) -> Path:
    rows = ranking.select("query_id", "passage_id", pl.int_range(1, 101).over("query_id").alias("rank"), "score")
    run_files.write(rows.iter_rows(), folder / f"oracle.{name}.trec", "oracle")
    return folder / f"oracle.{name}.trec"


@pytest.fixture(scope="module")
def oracle(tmp_path_factory):
    """The release of the default mini, and the oracle's grid on it: a ranker that knows the words it was taught."""
    folder = tmp_path_factory.mktemp("oracle")
    pytest.importorskip("datasets", reason="datasets is absent: no release can be built")
    releases.write(planted.draft(), folder / "ms-marco-shift")
    release = open_release(folder / "ms-marco-shift")
    made = mini.generate()
    runs = {}
    for shift, clusters in made.strengths.items():
        ids = pl.concat(release.test_sets[f"{shift}.{cluster}"].queries for cluster in clusters).unique().sort()
        runs[shift] = [
            write_oracles_run(folder, f"{shift}.{cluster}", oracle_ranking(made, shift, cluster, ids))
            for cluster in clusters
        ]
    return release, runs, made


@pytest.fixture(scope="module")
def results(oracle):
    release, runs, _ = oracle
    return protocol([*runs["topic"], *runs["wh"], *runs["length"]], release)


def test_planted_strengths_are_recovered_in_order(oracle, results):
    _, _, made = oracle
    for shift, planted_strengths in made.strengths.items():
        found = results.results[shift].filter(pl.col("measure") == "RR@10")
        by_loss = found.sort("rel_loss", descending=True)["cluster"].to_list()
        assert by_loss == sorted(planted_strengths, key=planted_strengths.__getitem__, reverse=True), shift
        assert (found["p_holm"] < 0.05).all()


def prints(golden: str, command, *arguments) -> bool:
    """Whether ``eval_kit protocol`` prints what is in a file."""
    done = command("eval_kit", "protocol", *arguments, status=0)
    lines = [line.rstrip() for line in done.stdout.splitlines() if not line.startswith("Next (")]
    return lines == (GOLDEN / golden).read_text().splitlines()


def test_the_command_prints_the_papers_layout_and_other_formats_have_it(oracle, results, tmp_path, command):
    release, runs, _ = oracle
    forms = (
        (results.to_markdown(), "| Models |"),
        (results.to_latex(), r"\begin{tabular}"),
        (results.to_csv(), "shift,"),
    )
    assert all(sign in text and "topic" in text for text, sign in forms)
    out = tmp_path / "out.json"
    assert prints("protocol-topic.txt", command, *runs["topic"], "--release", release.folder, "--json", out)
    document = json.loads(out.read_text())
    assert len(document["protocols"]["topic"]) == 5 * 3
    assert document["provenance"]["release"]["digest"] == release.digest


def test_a_page_says_what_it_was_made_of(oracle, tmp_path, command):
    release, runs, _ = oracle
    assert prints(
        "protocol-topic.txt", command, *runs["topic"], "--release", release.folder, "--page", tmp_path / "r.html"
    )
    page = (tmp_path / "r.html").read_text()
    assert page.lower().startswith("<!doctype html>")
    assert release.digest[:12] in page
    assert "of its queries (test and train)" in page


def test_runs_that_are_no_cells_of_their_own():
    [runs] = take(runs=["s.wh.who.trec", "s.wh.who.trec.gz"])
    with pytest.raises(UserError, match=r"^s.wh.who.trec.gz is a second run of the cell s.wh.who.trec"):
        in_cells(runs)
    [runs] = take(runs=["a.trec"])
    with pytest.raises(UserError, match=r"^a.trec does not exist. The name of a.trec is not <system>.<shift>"):
        in_cells(runs)


@pytest.fixture(scope="module")
def zhan(oracle, tmp_path_factory):
    """The oracle taught with each ReSTrain set, and with all ReSTTest buckets but one (CIKM 2022's two grids)."""
    release, _, made = oracle
    folder = tmp_path_factory.mktemp("zhan")
    train = release.table("resttest", "train")
    grids = {
        f"restrain.{split}": (release.table("restrain", split)["query_id"], ["dl19", "dl20"])
        for split in release.configs["restrain"]
    }
    for bucket in train["bucket"].unique().sort():
        grids[f"resttest.{bucket}"] = (train.filter(pl.col("bucket") != bucket)["query_id"], ["dev"])
    runs = []
    for name, (taught, tests) in grids.items():
        ids = pl.concat(release.test_sets[test_set].queries for test_set in tests)
        runs.append(write_oracles_run(folder, name, taught_ranking(made, taught, ids)))
    return release, runs


def test_tables_6_and_7_in_their_layout_and_interpolation_beats_extrapolation(zhan, tmp_path, command):
    release, runs = zhan
    out = tmp_path / "out.json"
    assert prints("protocol-cikm2022.txt", command, *runs, "--release", release.folder, "--json", out)
    of_shifts = json.loads(out.read_text())["protocols"]
    main = [row for row in of_shifts["restrain"] if row["measure"] == "nDCG@10"]
    main += [row for row in of_shifts["resttest"] if row["measure"] == "RR@10"]
    assert all(row["delta"] < 0 for row in main)
    assert main[-1]["queries"] == 1000


def test_a_page_says_which_queries_a_grid_was_scored_on(zhan, tmp_path):
    release, runs = zhan
    of_sizes = [run for run in runs if ".restrain." in run.name]
    one_year = release.test_sets["dl20"].queries.to_list()
    for run in of_sizes:
        lines = [line for line in run.read_text().splitlines(keepends=True) if line.split()[0] in one_year]
        (tmp_path / run.name).write_text("".join(lines))
    for given, covered in ((of_sizes, "dl19 and dl20"), (sorted(tmp_path.glob("*.trec")), "dl20")):
        page = result_page(report(given, release))
        queries = set(re.findall(r" on ([^<>]*) queries when trained away", page))
        assert queries == {covered}
        assert f">{covered}, " in page and "TREC DL" not in re.sub("<script.*?</script>", "", page, flags=re.S)


def test_every_model_covers_every_cluster(oracle, tmp_path):
    """Also where no model covers it."""
    release, runs, _ = oracle
    without = set(release.test_sets["topic.c3"].queries)
    for run in runs["topic"]:
        lines = [line for line in run.read_text().splitlines(keepends=True) if line.split()[0] not in without]
        (tmp_path / run.name).write_text("".join(lines))
    cut = sorted(tmp_path.glob("*.trec"))
    for given in (cut, [*runs["topic"][:4], cut[4]]):
        with pytest.raises(UserError, match=r"does not cover topic\.c3"):
            protocol(given, release)


def test_faults_of_a_grid(oracle, tmp_path):
    release, runs, _ = oracle
    topic = runs["topic"]
    wrong, stranger, unnamed = (tmp_path / f"oracle{rest}.trec" for rest in (".topic.c4", ".topic.c9", ""))
    wrong.write_bytes(runs["wh"][0].read_bytes())
    for empty in (stranger, unnamed):
        empty.write_bytes(b"")
    cases = {
        "oracle has no run for every topic part. oracle.topic.c4.trec is missing": topic[:4],
        "covers no test set of the topic shift, which it was trained on": [*topic[:4], wrong],
        "The topic shift has no part c9, which oracle.topic.c9.trec names": [*topic, stranger],
        "is not <system>.<shift>.<held-out>.trec": [*topic, unnamed],
        "a second run of the cell oracle.topic.c4.trec": [*topic, wrong],
    }
    for sentence, given in cases.items():
        with pytest.raises(UserError, match=re.escape(sentence)):
            protocol(given, release)


def test_an_untrained_system_has_one_row(oracle):
    release, runs, _ = oracle
    found = protocol(runs["wh"], release, untrained=runs["topic"][:1])
    assert set(found.untrained) == {"oracle.topic.c0"}
    plain = {mean.test_set: mean.value for mean in score(runs["wh"][:1], release).means if mean.measure == "RR@10"}
    row = found.matrices["wh"].filter(pl.col("held_out") == "wha", pl.col("measure") == "RR@10")
    assert dict(row.select("test_set", "value").iter_rows()) == pytest.approx(plain)


def test_seeds_need_complete_grids_too(oracle):
    release, _, _ = oracle
    cells = [RunName("s", "wh", cluster, seed) for seed in (1, 2) for cluster in ("wha", "how", "who")]
    assert len(grid(cells, release)[("wh", "s")]) == 6
    with pytest.raises(UserError, match=r"s\.wh\.who\.seed2\.trec"):
        grid(cells[:-1], release)
    assert cell_of("s.wh.wha.seed1") == cells[0]


def test_figure_3_is_of_whole_topic_and_wh_clusters(oracle, results, command):
    """Correlated by scipy (and counted in test_similarity.py); length stays apart."""
    release, runs, _ = oracle
    figure = figure_3(results, release).as_json()
    assert [(row["shift"], row["cluster"]) for row in figure["points"]] == [
        *(("topic", f"c{number}") for number in range(5)),
        *(("wh", cluster) for cluster in ("wha", "how", "who")),
    ]
    pairs = [(row["rel_loss"], row["jaccard"]) for row in figure["points"]]
    whole, given_size = (each["estimate"] for each in figure["correlations"]["oracle"])
    assert whole["value"] == pytest.approx(spearmanr(*zip(*pairs, strict=True)).statistic)
    assert (whole["n"], given_size["n"]) == (8, 8) and whole["value"] != given_size["value"]
    for shift in ("topic", "wh"):
        whole = by_cluster(release, shift, splits=["test", "train"])["jaccard"].to_list()
        assert [row["jaccard"] for row in figure["points"] if row["shift"] == shift] == whole
    assert {row["queries"] for row in figure["points"]} == {"test and train"}
    done = command("eval_kit", "similarity", *runs["wh"], "--release", release.folder, "--json", "-", status=0)
    assert json.loads(done.stdout)["figure_3"]["points"] == figure["points"][5:]
