"""The papers' protocols: on hand-made values, and on an oracle's grid whose true order of losses is planted."""

import json
import re
from collections import Counter
from html import unescape
from itertools import product
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from planted_oracle import oracle_ranking, taught_ranking
from scipy.stats import kendalltau, pearsonr, spearmanr

from eval_kit.errors import UserError
from eval_kit.protocols.grid_results import protocols
from eval_kit.protocols.in_out import losses, matrix
from eval_kit.protocols.scoring import score
from eval_kit.release import Release, open_release
from eval_kit.runs import writer as run_files
from eval_kit.runs.names import Cell, cell_of, grid, named
from eval_kit.shifts import SHIFTS
from tests import manifests

planted = pytest.importorskip("builder.mini", exc_type=ImportError)
releases = pytest.importorskip("builder.release", exc_type=ImportError)
mini = pytest.importorskip("builder.sources.mini", exc_type=ImportError)

GOLDEN = Path(__file__).parents[2] / "golden"
CLUSTERS = ("c0", "c1", "c2")


def values(rows) -> pl.DataFrame:
    names = ("system", "held_out", "seed", "test_set", "measure", "query_id", "value")
    return pl.DataFrame(rows, names, orient="row").with_columns(pl.col("value").cast(pl.Float64))


def release_of(shift: str, labels=(), **tables: pl.DataFrame) -> Release:
    """A release in memory, with the labels of one shift and some tables of it."""
    labelled = (SHIFTS[shift].label, list(labels))
    described = [manifests.table(shift, split, labelled) for split in tables or ("test",)]
    return Release(Path(), manifests.made_up(described, []), {(shift, split): table for split, table in tables.items()})


def resttest(buckets: pl.DataFrame) -> Release:
    return release_of("resttest", ("b1", "b2"), dev=buckets)


def test_losses_are_those_of_the_definition():
    rng = np.random.default_rng(0)
    table = {key: rng.random(40) for key in product(CLUSTERS, CLUSTERS)}  # (held out, tested) -> queries
    rows = [
        ("s", held_out, 0, f"topic.{tested}", "RR@10", f"{tested}-{i}", value)
        for (held_out, tested), column in table.items()
        for i, value in enumerate(column)
    ]
    found = losses(
        values(rows).sample(fraction=1, shuffle=True, seed=1), SHIFTS["topic"], release_of("topic", CLUSTERS)
    )
    for row in found.iter_rows(named=True):
        tested = row["cluster"]
        inside = np.mean([table[other, tested].mean() for other in CLUSTERS if other != tested])
        out = table[tested, tested].mean()
        assert row["avg_in"] == pytest.approx(inside)
        assert row["out"] == pytest.approx(out)
        assert row["rel_loss"] == pytest.approx((inside - out) / inside)
        assert row["rel_loss_low"] < row["rel_loss"] < row["rel_loss_high"]
        assert (row["queries"], row["models_in"], row["seeds"]) == (40, 2, 1)
    cells = {(row["held_out"], row["test_set"]): row["value"] for row in matrix(values(rows)).iter_rows(named=True)}
    assert cells == {(one, f"topic.{two}"): pytest.approx(column.mean()) for (one, two), column in table.items()}


def test_no_loss_where_nothing_is_found():
    rows = [("s", one, 0, f"topic.{two}", "RR@10", f"q{i}", 0) for one in CLUSTERS for two in CLUSTERS for i in (1, 2)]
    assert losses(values(rows), SHIFTS["topic"], release_of("topic", CLUSTERS))["rel_loss"].to_list() == [None] * 3


def test_nothing_found_in_either_regime():
    buckets = pl.DataFrame({"query_id": ["1", "2"], "bucket": ["b1", "b2"]})
    rows = [("s", held_out, 0, "dev", "RR@10", query, 0) for held_out in ("b1", "b2") for query in ("1", "2")]
    assert losses(values(rows), SHIFTS["resttest"], resttest(buckets))["delta"].to_list() == [None]
    rows = [("s", one, 0, "dl19", "nDCG@10", "1", 0) for one in ("interpolate_14k", "extrapolate_14k")]
    assert losses(values(rows), SHIFTS["restrain"], release_of("restrain"))["delta"].to_list() == [None]


def test_resttest_is_over_queries_and_each_query_extrapolates_once():
    buckets = pl.DataFrame({"query_id": ["1", "2", "3"], "bucket": ["b1", "b2", "b2"]})
    own = {"b1": {"1": 0.2}, "b2": {"2": 0.4, "3": 0.6}}
    rows = [
        ("s", held_out, 0, "dev", "RR@10", query, own[held_out].get(query, 0.9))
        for held_out in ("b1", "b2")
        for query in ("1", "2", "3")
    ]
    [row] = losses(values(rows), SHIFTS["resttest"], resttest(buckets)).iter_rows(named=True)
    assert row["out"] == pytest.approx((0.2 + 0.4 + 0.6) / 3)  # not the mean of bucket means, 0.35
    assert row["avg_in"] == pytest.approx(0.9)
    assert row["delta"] == pytest.approx(0.4 / 0.9 - 1)
    assert row["queries"] == 3


def test_restrain_pools_both_tracks_over_queries():
    queries = {"dl19": ["1"], "dl20": ["2", "3"]}
    value = {"interpolate_14k": {"1": 0.9, "2": 0.6, "3": 0.6}, "extrapolate_14k": {"1": 0.3, "2": 0.6, "3": 0.6}}
    rows = [
        ("s", held_out, 0, track, "nDCG@10", query, value[held_out][query])
        for held_out in value
        for track, ids in queries.items()
        for query in ids
    ]
    [row] = losses(values(rows), SHIFTS["restrain"], release_of("restrain")).iter_rows(named=True)
    assert (row["size"], row["queries"]) == ("14k", 3)
    assert (row["avg_in"], row["out"]) == (pytest.approx(0.7), pytest.approx(0.5))
    assert row["delta"] == pytest.approx(0.5 / 0.7 - 1)


@pytest.mark.parametrize(
    ("name", "cell"),
    [
        ("splade.topic.c0.trec", Cell("splade", "topic", "c0")),
        ("my.model-v1.2.wh.wha.seed3.trec.gz", Cell("my.model-v1.2", "wh", "wha", 3)),
        ("dr.restrain.interpolate_14k.run", Cell("dr", "restrain", "interpolate_14k")),
        ("bm25.dl19.trec", None),
        ("bm25.trec", None),
    ],
)
def test_cells_are_told_by_file_names(name, cell):
    assert cell_of(Path(name)) == cell
    if cell is not None:
        assert cell_of(Path(cell.file)) == cell


@pytest.fixture(scope="module")
def oracle(tmp_path_factory):
    """The release of the default mini, and the oracle's grid on it: a ranker that knows the words it was taught."""
    folder = tmp_path_factory.mktemp("oracle")
    pytest.importorskip("datasets", reason="datasets is absent: no release can be built")
    releases.write(planted.draft(), folder / "ms-marco-shift")
    release = open_release(folder / "ms-marco-shift")
    made = mini.generate()
    runs = []
    for shift, clusters in made.strengths.items():
        ids = pl.concat(release.test_sets[f"{shift}.{cluster}"].queries for cluster in clusters).unique()
        for cluster in clusters:
            run = folder / f"oracle.{shift}.{cluster}.trec"
            found = oracle_ranking(made, shift, cluster, ids.sort()).with_columns(
                rank=pl.int_range(1, 101).over("query_id")
            )
            rows = found.select("query_id", "passage_id", "rank", "score").iter_rows()
            run_files.write(rows, run, "oracle")
            runs.append(run)
    return release, runs, made.strengths


def test_planted_strengths_are_recovered_in_order(oracle):
    release, runs, strengths = oracle
    results = protocols(runs, release).results
    for shift, planted_strengths in strengths.items():
        found = results[shift].filter(pl.col("measure") == "RR@10")
        by_loss = found.sort("rel_loss", descending=True)["cluster"].to_list()
        assert by_loss == sorted(planted_strengths, key=planted_strengths.__getitem__, reverse=True), shift
        assert (found["p_holm"] < 0.05).all()


def test_the_command_prints_the_papers_layout(oracle, tmp_path, command):
    release, runs, _ = oracle
    topic = [run for run in runs if ".topic." in run.name]
    done = command("eval_kit", "protocol", *topic, "--release", release.folder, "--json", tmp_path / "out.json")
    assert done.returncode == 0, done.stderr
    expected = (GOLDEN / "protocol-topic.txt").read_text()
    assert [line.rstrip() for line in done.stdout.splitlines()] == expected.splitlines()
    document = json.loads((tmp_path / "out.json").read_text())
    assert len(document["protocols"]["topic"]) == 5 * 3
    [overall] = document["overall"]["topic"]
    parts = [row for row in document["protocols"]["topic"] if row["measure"] == "RR@10"]
    assert overall["queries"] == sum(row["queries"] for row in parts)
    out = sum(row["out"] * row["queries"] for row in parts) / overall["queries"]
    assert overall["out"] == pytest.approx(out, rel=1e-12)
    assert overall["rel_loss"] == pytest.approx(1 - overall["out"] / overall["avg_in"], rel=1e-12)
    assert document["provenance"]["release"]["digest"] == release.digest
    for name, sign in (("markdown", "| Models |"), ("latex", r"\begin{tabular}"), ("csv", "shift,")):
        done = command("eval_kit", "protocol", *topic, "--release", release.folder, "--format", name)
        assert done.returncode == 0, done.stderr
        assert sign in done.stdout
        assert "topic" in done.stdout


def test_runs_of_any_name_are_a_grid_if_options_tell_their_cells(oracle, tmp_path, command):
    release, runs, _ = oracle
    topic = [run for run in runs if ".topic." in run.name][::-1]
    other = []
    for number, run in enumerate(topic):
        other.append(tmp_path / f"{number}" / "dense.wh.wha.trec")  # options go before names
        other[-1].parent.mkdir()
        other[-1].write_bytes(run.read_bytes())
    held_out = [option for run in topic for option in ("--held-out", run.name.split(".")[2])]
    options = ("--system", "oracle", *held_out, "--shift", "topic", "--release", release.folder)
    done = command("eval_kit", "protocol", *other, *options)
    assert done.returncode == 0, done.stderr
    expected = (GOLDEN / "protocol-topic.txt").read_text()
    assert [line.rstrip() for line in done.stdout.splitlines()] == expected.splitlines()
    paged = command("eval_kit", "protocol", *other, *options, "--page", tmp_path / "r.html")
    assert (paged.returncode, paged.stdout) == (0, done.stdout), paged.stderr
    assert 'id="explorer"' in (tmp_path / "r.html").read_text()


def test_options_that_do_not_fit_the_runs(tmp_path, command):
    options = {
        "--system is missing: give --system, --shift and --held-out together": ["--shift", "topic", "--held-out", "c0"],
        "--held-out is missing": ["--system", "s", "--shift", "wh"],
        "--held-out is given 2 times for 3 runs; give it once": [
            *("--system", "s", "--shift", "wh", "--held-out", "wha", "--held-out", "how")
        ],
        "--shift tropic: there is no such shift; there are topic, wh": [
            *("--system", "s", "--shift", "tropic", "--held-out", "c0")
        ],
        "b.trec: a second run of the cell s.wh.who.trec": ["--system", "s", "--shift", "wh", "--held-out", "who"],
        "a.trec: its name is not <system>.<shift>.<held-out>.trec": [],
    }
    for sentence, given in options.items():
        done = command("eval_kit", "protocol", "a.trec", "b.trec", "c.trec", *given, cwd=tmp_path)
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr.startswith(f"eval_kit: {sentence}"), done.stderr
        assert done.stderr.count("\n") == 1


def test_what_is_told_of_each_run_is_in_the_order_of_the_runs():
    runs = [Path(name) for name in ("x", "y", "z.wh.wha.trec")]
    assert named(runs, ["s", "s", "t"], ["wh"], ["who", "how", "who"]) == {
        runs[0]: Cell("s", "wh", "who"),
        runs[1]: Cell("s", "wh", "how"),
        runs[2]: Cell("t", "wh", "who"),
    }
    assert named(runs[:1], ["s"], ["wh"], ["who"]) == {runs[0]: Cell("s", "wh", "who")}


@pytest.fixture(scope="module")
def zhan(oracle, tmp_path_factory):
    """The oracle taught with each ReSTrain set, and with all ReSTTest buckets but one (CIKM 2022's two grids)."""
    release, _, _ = oracle
    folder = tmp_path_factory.mktemp("zhan")
    made = mini.generate()
    train = release.table("resttest", "train")
    grids = {
        f"restrain.{split}": (release.table("restrain", split)["query_id"], ["dl19", "dl20"])
        for split in release.configs["restrain"]
    }
    for bucket in train["bucket"].unique().sort():
        grids[f"resttest.{bucket}"] = (train.filter(pl.col("bucket") != bucket)["query_id"], ["dev"])
    runs = []
    for name, (taught, tests) in grids.items():
        ids = pl.concat(release.test_sets[one].queries for one in tests)
        run = folder / f"oracle.{name}.trec"
        found = taught_ranking(made, taught, ids).with_columns(rank=pl.int_range(1, 101).over("query_id"))
        run_files.write(found.select("query_id", "passage_id", "rank", "score").iter_rows(), run, "oracle")
        runs.append(run)
    return release, runs


def test_interpolation_beats_extrapolation(zhan):
    release, runs = zhan
    results = protocols(runs, release).results
    for row in results["restrain"].filter(pl.col("measure") == "nDCG@10").iter_rows(named=True):
        assert row["delta"] < 0, row["size"]
    [row] = results["resttest"].filter(pl.col("measure") == "RR@10").iter_rows(named=True)
    assert row["delta"] < 0
    assert row["queries"] == 1000


def test_tables_6_and_7_in_their_layout(zhan, command):
    release, runs = zhan
    done = command("eval_kit", "protocol", *runs, "--release", release.folder)
    assert done.returncode == 0, done.stderr
    expected = (GOLDEN / "protocol-cikm2022.txt").read_text()
    assert [line.rstrip() for line in done.stdout.splitlines()] == expected.splitlines()


def test_faults_of_a_grid(oracle, tmp_path, command):
    release, runs, _ = oracle
    topic = [run for run in runs if ".topic." in run.name]
    wrong = tmp_path / "oracle.topic.c4.trec"
    wrong.write_bytes(next(run for run in runs if ".wh." in run.name).read_bytes())
    stranger = tmp_path / "oracle.topic.c9.trec"
    stranger.write_bytes(b"")
    unnamed = tmp_path / "oracle.trec"
    unnamed.write_bytes(b"")
    cases = {
        "the grid of oracle on topic lacks a run: expected oracle.topic.c4.trec": topic[:4],
        "covers no test set of the topic shift, which it was trained on": [*topic[:4], wrong],
        "oracle.topic.c9.trec: the topic shift has no c9; it has c0, c1, c2, c3, c4": [*topic, stranger],
        "its name is not <system>.<shift>.<held-out>.trec": [*topic, unnamed],
        "a second run of the cell oracle.topic.c4.trec": [*topic, wrong],
    }
    for sentence, given in cases.items():
        with pytest.raises(UserError) as error:
            protocols(given, release)
        assert sentence in str(error.value)
    done = command("eval_kit", "protocol", *topic[:4], "--release", release.folder)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.strip().splitlines()[-1].startswith("eval_kit: the grid of oracle on topic lacks a run")


def test_an_untrained_system_has_one_row(oracle):
    release, runs, _ = oracle
    topic = [run for run in runs if ".topic." in run.name]
    found = protocols(topic, release, untrained=[next(run for run in runs if ".wh." in run.name)])
    assert set(found.untrained) == {"oracle.wh.wha"}
    plain = {one.test_set: one.value for one in score(topic[:1], release).means if one.measure == "RR@10"}
    row = found.matrices["topic"].filter(pl.col("held_out") == "c0", pl.col("measure") == "RR@10")
    assert dict(row.select("test_set", "value").iter_rows()) == {
        name: pytest.approx(value) for name, value in plain.items()
    }


def test_seeds_need_complete_grids_too(oracle):
    release, _, _ = oracle
    cells = [Cell("s", "wh", cluster, seed) for seed in (1, 2) for cluster in ("wha", "how", "who")]
    assert len(grid(cells, release)[("wh", "s")]) == 6
    with pytest.raises(UserError, match=r"expected s\.wh\.who\.seed2\.trec"):
        grid(cells[:-1], release)
    assert named([Path("a/s.wh.wha.seed1.trec")]) == {Path("a/s.wh.wha.seed1.trec"): cells[0]}


def test_losses_are_correlated_with_the_jaccard(oracle, command):
    release, runs, _ = oracle
    topic = [run for run in runs if ".topic." in run.name]
    done = command("eval_kit", "similarity", *topic, "--release", release.folder, "--json", "-")
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    points = document["figure_3"]["points"]
    assert [row["cluster"] for row in points] == ["c0", "c1", "c2", "c3", "c4"]
    pairs = [(row["rel_loss"], row["jaccard"]) for row in points]
    for kind, independent in (("pearson", pearsonr), ("spearman", spearmanr), ("kendall", kendalltau)):
        estimate = document["figure_3"]["correlations"]["oracle"][kind]["estimate"]
        assert estimate["value"] == pytest.approx(independent(*zip(*pairs, strict=True)).statistic)
        assert estimate["n"] == 5


@pytest.mark.slow
def test_figure_3_is_of_whole_topic_and_wh_clusters(oracle, tmp_path, command):
    """Counted with plain Counters; the report draws and prints the same figure, and length stays apart."""
    release, runs, _ = oracle
    assert {SHIFTS[cell.shift].clustered for cell in named(runs).values()} == {True}
    done = command("eval_kit", "similarity", *runs, "--release", release.folder, "--json", "-")
    figure = json.loads(done.stdout)["figure_3"]
    assert [(row["shift"], row["cluster"]) for row in figure["points"]] == [
        *(("topic", f"c{number}") for number in range(5)),
        *(("wh", cluster) for cluster in ("wha", "how", "who")),
    ]
    for row in figure["points"]:
        sides = {True: {}, False: {}}
        for split in ("test", "train"):
            for query, text, cluster in release.table(row["shift"], split).select("query_id", "text", "cluster").rows():
                sides[cluster == row["cluster"]][cluster, query] = text
        counts = [Counter(" ".join(side.values()).lower().split()) for side in sides.values()]
        shares = [{word: n / count.total() for word, n in count.items()} for count in counts]
        words = shares[0].keys() | shares[1].keys()
        least, most = (sum(of(side.get(word, 0) for side in shares) for word in words) for of in (min, max))
        assert row["jaccard"] == pytest.approx(least / most)
        assert row["queries"] == "test and train"
    done = command("eval_kit", "protocol", *runs, "--release", release.folder, "--page", tmp_path / "r.html")
    page = unescape(re.sub(r"<[^>]+>", " ", (tmp_path / "r.html").read_text())).replace("\u2212", "-")
    for correlation in figure["correlations"]["oracle"].values():
        estimate = correlation["estimate"]
        assert estimate["n"] == 8
        assert f"{estimate['value']:+.3f} ({estimate['low']:+.3f} to {estimate['high']:+.3f})" in page
    assert "of its queries (test and train)" in page


def test_the_published_similarities(published_release, command):
    """This partial release has no training queries; the paper's whole topic c0 has 0.333."""
    done = command("eval_kit", "similarity", "--release", published_release.folder, "--json", "-")
    clusters = json.loads(done.stdout)["clusters"]
    assert {row["queries"] for row in clusters} == {"test"}
    found = {(row["shift"], row["cluster"]): round(row["jaccard"], 4) for row in clusters}
    assert [found["topic", f"c{i}"] for i in range(5)] == [0.2984, 0.2449, 0.3388, 0.3005, 0.4268]
    assert [found["wh", name] for name in ("wha", "how", "who")] == [0.2793, 0.2261, 0.2762]
    assert found["length", "short"] == 0.3225


def test_the_page(oracle, tmp_path, command):
    release, runs, _ = oracle
    topic = [run for run in runs if ".topic." in run.name]
    done = command("eval_kit", "protocol", *topic, "--release", release.folder, "--page", tmp_path / "r.html")
    assert done.returncode == 0, done.stderr
    page = (tmp_path / "r.html").read_text()
    assert page.lower().startswith("<!doctype html>")
    assert release.digest[:12] in page
