"""Slices of dev-small and the Chameleons protocol, against sums written out by hand.

Slices of DL-HARD are tested with its published runs, in tests/builder/test_variation_sources.py.
"""

from collections import defaultdict

import polars as pl
import pytest

from eval_kit.errors import UserError
from eval_kit.protocols.chameleons import results, standing
from eval_kit.protocols.scoring import score
from eval_kit.protocols.slices import cross_table, labels
from eval_kit.release import Release
from eval_kit.release.reference import published_cells


@pytest.fixture(scope="module")
def dev_run(mini_release: Release, tmp_path_factory: pytest.TempPathFactory):
    """Every third dev query is answered at rank 1, every third at rank 20, the rest not at all."""
    run = tmp_path_factory.mktemp("slices") / "thirds.trec"
    relevant = dict(mini_release.qrels("dev").group_by("query_id").agg(pl.col("passage_id").first()).iter_rows())
    lines = []
    for i, query in enumerate(mini_release.test_sets["dev"].queries):
        ranked = [f"x{rank}" for rank in range(1, 30)]
        if i % 3 < 2:
            ranked[0 if i % 3 == 0 else 19] = relevant[query]
        lines += [f"{query} Q0 {passage} {rank} {-rank} t\n" for rank, passage in enumerate(ranked, start=1)]
    run.write_text("".join(lines))
    return run


def test_cross_tables_are_plain_means(mini_release: Release, dev_run):
    values = score([dev_run], mini_release).per_query()
    found = cross_table(values, mini_release, ["length", "chameleons50"])
    label = {row[0]: row[1:] for row in labels(mini_release, ["length", "chameleons50"]).iter_rows()}
    sums = defaultdict(list)
    for _, test_set, measure, query, value in values.iter_rows():
        if test_set == "dev":
            sums[(measure, *label[query])].append(value)
    assert len(found) == len(sums)
    for row in found.iter_rows(named=True):
        mine = sums[row["measure"], row["length"], row["chameleons50"]]
        assert (row["value"], row["queries"]) == (pytest.approx(sum(mine) / len(mine)), len(mine))
    whole = cross_table(values, mini_release, ["bucket"]).filter(pl.col("measure") == "RR@10")
    assert whole["queries"].sum() == len(mini_release.test_sets["dev"].queries)
    with pytest.raises(UserError, match="cannot slice by 'colour'; there are length, bucket"):
        labels(mini_release, ["colour"])
    with pytest.raises(UserError, match="length and intent together: one is of dev, the other of dlhard"):
        labels(mini_release, ["length", "intent"])
    with pytest.raises(UserError, match="has no test set dlhard, which intent slices"):
        labels(mini_release, ["intent", "topic"])
    with pytest.raises(UserError, match="slices by length are of dev, which no run covers"):
        cross_table(values.filter(pl.col("test_set") != "dev"), mini_release, ["length"])


def test_standing_among_the_published_rankers():
    best = max(cell["value"] for cell in published_cells("cikm2021-table4") if cell["measure"] == "AP")
    rows = [
        ("good", "veiled", 50, "AP", best + 0.1),
        ("bad", "veiled", 50, "AP", 0.0),
        ("between", "veiled", 50, "AP", 0.06),  # above BM25, DeepCT and RepBERT, below docT5query, ANCE, TCT-ColBERT
        ("good", "veiled", 10, "AP", 0.5),
    ]
    table = pl.DataFrame(rows, ("run", "set", "level", "measure", "value"), orient="row")
    places = {row["run"]: (row["rank"], row["of"]) for row in standing(table).iter_rows(named=True)}
    assert places == {"good": (1, 7), "bad": (7, 7), "between": (4, 7)}


def test_the_command(mini_release: Release, dev_run, command):
    done = command("eval_kit", "slices", dev_run, "--release", mini_release.folder, "--by", "length", "--by", "bucket")
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == 1 + 2 * 5
    document = results([dev_run], mini_release).as_json()
    assert document["standing"] == []  # mini's sets are not the published ones
    assert len(document["chameleons"]) == 45
