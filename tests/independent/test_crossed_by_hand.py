"""Crossed hold-outs, design and figures, recomputed by plain loops from the release's rows and the run files."""

import json
import random
from collections import Counter, defaultdict
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from baselines.systems import static
from baselines.training.queries import queries_for
from builder import release as releases
from builder.rebuilt import draft
from builder.shifts.crossed import CrossedParameters, assign, cells
from builder.sources import mini
from builder.verify import verify
from eval_kit import generalise, score
from eval_kit.protocols import crossed as protocol
from eval_kit.release import Release, open_release
from eval_kit.shifts import SHIFTS
from tests.baselines.tiny_cells import tiny_cell
from tests.conftest import Run

MODELS = [f"m{number}" for number in range(1, 9)]


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> Release:
    folder = tmp_path_factory.mktemp("crossed") / "ms-marco-shift"
    collection = mini.collection(mini.MiniParameters(queries=3_000))
    releases.write(draft(collection, ["crossed", "topic"], mini.encoder(collection)), folder)
    return open_release(folder)


@settings(max_examples=20, deadline=None)
@given(sizes=st.lists(st.integers(30, 300), min_size=16, max_size=70), seed=st.integers(0, 99))
def test_every_query_is_tested_unseen_and_every_cluster_left_out_by_half(sizes: list[int], seed: int) -> None:
    parts = [f"part {number}" for number, size in enumerate(sizes) for _ in range(size)]
    table = pl.DataFrame({"query_id": [f"q{number}" for number in range(len(parts))], "part": parts})
    design = assign(table, CrossedParameters(seed=seed)).cast(pl.String)
    assert design["query_id"].sort().equals(table["query_id"].sort())
    roles_of_cluster = defaultdict(set)
    for row in design.iter_rows(named=True):
        roles = [row[model] for model in MODELS]
        assert Counter(roles) == {"in": 1, "out": 4, "train": 3}
        roles_of_cluster[row["cluster"]].add(tuple(role == "out" for role in roles))
    assert all(len(roles) == 1 for roles in roles_of_cluster.values())
    for model in MODELS:  # half of the clusters, of nearly half of the queries, as neighbours in size are opposites
        left_out = [cluster for cluster, [roles] in roles_of_cluster.items() if roles[MODELS.index(model)]]
        assert abs(len(left_out) - len(sizes) / 2) <= 0.5
        assert abs((design[model] == "out").sum() - len(parts) / 2) <= max(sizes)
    assert (
        assign(table.sample(fraction=1, shuffle=True, seed=seed), CrossedParameters(seed=seed))
        .cast(pl.String)
        .equals(design)
    )


def test_cells_divide_each_part_by_its_first_wh_word_and_by_length() -> None:
    long = ["how long is a piece of string when wet", "who knows whatever happens at 5 pm now"]
    texts = ["what is x", long[0], "tides", long[1], "how"]
    queries = pl.DataFrame({"query_id": ["1", "2", "3", "4", "5"], "text": texts})
    parts = pl.DataFrame({"query_id": ["5", "4", "3", "2", "1"], "part": ["0", "0", "1", "1", "1"]})
    expected = ["0 how short", "0 wha long", "1 other short", "1 how long", "1 wha long"]
    assert cells(parts, queries).rows() == [*zip(parts["query_id"], expected, strict=True)]


def test_the_release_is_verified_and_trains_by_its_own_table(release: Release, tmp_path: Path) -> None:
    assert [check.what for check in verify(release.folder) if check.fault] == []
    table = release.table("crossed", "train")
    for model in ("m1", "m8"):
        cell = tiny_cell("static", release, tmp_path, ("crossed", model), negatives=0)
        trained = set(queries_for(cell).queries["query_id"])
        assert trained == set(table.filter(pl.col(model) == "train")["query_id"])
        searched = set(cell.test_queries()["query_id"])
        assert set(table["query_id"]) - trained <= searched
        assert not searched & trained
    assert static.train(cell)["train_queries"] == len(trained)


def test_the_figures_are_those_of_the_run_files(release: Release, tmp_path: Path, command: Run) -> None:
    rows = {row["query_id"]: row for row in release.table("crossed", "train").iter_rows(named=True)}
    relevant = dict(release.table("qrels", "train").select("query-id", "corpus-id").iter_rows())
    others = release.table("passages", "passages")["passage_id"].to_list()
    draws = random.Random(3)
    values = {}
    for model in MODELS:
        with (tmp_path / f"mine.crossed.{model}.trec").open("w") as file:
            for query, row in rows.items():
                if row[model] == "train":
                    continue
                rank = draws.choice((1, 2, 3, 20) if row[model] == "in" else (1, 4, 9, 20, 20))
                values[query, model] = 1 / rank if rank <= 10 else 0.0
                wrong = draws.sample([passage for passage in others[:60] if passage != relevant[query]], rank - 1)
                for place, passage in enumerate([*wrong, relevant[query]]):
                    file.write(f"{query} Q0 {passage} {place + 1} {100 - place} mine\n")
    runs = sorted(tmp_path.glob("*.trec"))
    options = ("--release", release.folder, "--json", tmp_path / "out.json", "--page", tmp_path / "page.html")
    done = command("eval_kit", "protocol", *runs, *options, status=0)
    assert "95 % interval" in done.stdout
    document = json.loads((tmp_path / "out.json").read_text())
    [whole] = [row for row in document["protocols"]["crossed"] if row["measure"] == "RR@10"]
    inside = {query: value for (query, model), value in values.items() if rows[query][model] == "in"}
    outs = defaultdict(list)
    for (query, model), value in values.items():
        if rows[query][model] == "out":
            outs[query].append(value)
    mean_in = sum(inside.values()) / len(rows)
    mean_out = sum(sum(own) / 4 for own in outs.values()) / len(rows)
    assert whole["avg_in"] == pytest.approx(mean_in, abs=1e-9)
    assert whole["out"] == pytest.approx(mean_out, abs=1e-9)
    assert whole["rel_loss"] == pytest.approx(1 - mean_out / mean_in, abs=1e-9)
    assert whole["error_queries"] == pytest.approx(_error_by_clusters(rows, inside, outs, mean_in, mean_out), abs=1e-9)
    clusters = defaultdict(list)
    for query, row in rows.items():
        clusters[row["cluster"]].append(query)
    for row in document["crossed"]:
        if row["measure"] == "RR@10":
            own = clusters[row["cluster"]]
            of_in = sum(inside[query] for query in own) / len(own)
            of_out = sum(sum(outs[query]) / 4 for query in own) / len(own)
            assert row["rel_loss"] == pytest.approx(1 - of_out / of_in, abs=1e-9)
    trained_on = release.table("crossed", "train").filter(pl.col("m1") == "train")
    texts = trained_on["text"].to_list()
    verdict = generalise(runs[0], runs[0], release, test_set="crossed.m1", trained_on=texts).to_polars()
    assert verdict.filter(shift="crossed").select(pl.col("near_parts") + pl.col("far_parts")).item() == len(clusters)
    shown = (tmp_path / "page.html").read_text()
    assert "RR@10 Rel Loss by cluster" in shown and "Rel Loss of RR@10 on each cluster against" in shown


def _error_by_clusters(rows, inside, outs, mean_in, mean_out):
    """Linearised: what each cluster adds to the ratio, all of them independent."""
    terms = defaultdict(float)
    for query, row in rows.items():
        off_in = (inside[query] - mean_in) * mean_out / mean_in**2
        off_out = (sum(outs[query]) / 4 - mean_out) / mean_in
        terms[row["cluster"]] += (off_in - off_out) / len(rows)
    return (sum(term**2 for term in terms.values()) * len(terms) / (len(terms) - 1)) ** 0.5


def test_a_run_is_scored_on_what_its_model_did_not_train_on(release: Release) -> None:
    table = release.table("crossed", "train").filter(pl.col("m3") != "train")
    run = {query: {"none": 1.0} for query in table["query_id"]}
    figures = score({"mine": run}, release, allow_missing=True).to_polars()
    assert {name for name in figures["test_set"] if name.startswith("crossed")} == {"crossed.m3"}
    assert SHIFTS["crossed"].parts(release) == MODELS


def test_a_system_that_finds_nothing_has_no_losses_and_no_correlation(release: Release) -> None:
    table = release.table("crossed", "train")
    roles = table.unpivot(SHIFTS["crossed"].parts(release), index=["query_id", "cluster"], variable_name="held_out")
    roles = roles.filter(pl.col("value") != "train").select(
        "query_id", "held_out", part="cluster", is_out=pl.col("value") == "out"
    )
    nothing = roles.with_columns(system=pl.lit("z"), measure=pl.lit("RR@10"), seed=0, value=0.0)
    whole, by_cluster = protocol.losses(nothing)
    assert whole["rel_loss"].to_list() == [None]
    by_cluster = by_cluster.with_columns(jaccard=0.5)
    assert [table.title for table in protocol.tables(whole, by_cluster)]
    rows = {"cluster": "1", "system": "z", "rel_loss": 0.5, "rel_loss_low": 0.4, "rel_loss_high": 0.6, "jaccard": 0.5}
    marks = []
    for p_holm in (0.0, 0.01, 0.2, None):  # a p-value that is too small for a float is 0, and significant
        part = pl.DataFrame([{**rows, "measure": "RR@10", "queries": 9, "p_holm": p_holm}])
        [row] = [*protocol.tables(whole, part)][-1].rows()
        marks.append(row[1].mark)
    assert marks == ["", "", "°", "?"]
    again = protocol.losses(nothing.sample(fraction=1, shuffle=True, seed=1))
    assert again[0].equals(whole)
