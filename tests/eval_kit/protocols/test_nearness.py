"""Query vectors that stand beside runs are found, each those of the model that never saw the cluster."""

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from eval_kit.errors import UserError
from eval_kit.protocols.grid_results import protocol
from eval_kit.protocols.similarity import nearness, similarity, vectors_beside
from eval_kit.release import Release
from eval_kit.runs import writer as run_files
from eval_kit.stats.similarity import test_and_training as queries_compared  # a name that pytest would collect


def test_r_is_that_of_the_model_that_never_saw_the_cluster(mini_release: Release, tmp_path: Path):
    """Two systems on the length shift; of the second one there are vectors, another dimension for each model."""
    queries = mini_release.table("length", "test")["query_id"].unique()
    runs = []
    for system in ("bm25", "dense"):
        for held_out in ("short", "long"):
            run = tmp_path / f"{system}.length.{held_out}.trec"
            run_files.write(((query, "none", 1, 1.0) for query in queries), run, "test")
            runs.append(run)
    for dimensions, held_out in ((3, "short"), (4, "long")):
        ids = pl.concat(queries_compared(mini_release, "length", held_out))["query_id"]
        np.save(tmp_path / f"dense.length.{held_out}.npy", np.random.default_rng(0).random((len(ids), dimensions)))
        (tmp_path / f"dense.length.{held_out}.ids.txt").write_text("\n".join(ids))
    grid = protocol(runs, mini_release)
    vectors = vectors_beside(grid, mini_release)
    assert {test_set: of_model.values.shape[1] for test_set, of_model in vectors.items()} == {
        "length.short": 3,
        "length.long": 4,
    }
    r = nearness(grid, mini_release, vectors)
    test, training = queries_compared(mini_release, "length", "short")
    of_model = vectors["length.short"]
    pairs = of_model.of(test["query_id"]) @ of_model.of(training["query_id"]).T
    assert r.filter(part="short")["r"].to_numpy() == pytest.approx(pairs.mean(axis=1))
    clusters = similarity(mini_release, runs=runs).clusters
    means = dict(clusters.filter(shift="length").select("cluster", "r").iter_rows())
    assert means["short"] == pytest.approx(pairs.mean())
    assert clusters.filter(pl.col("shift") != "length")["r"].null_count() == 8
    with pytest.raises(UserError, match=r"no vectors of the model trained without length\.long"):
        nearness(grid, mini_release, {"length.short": of_model})
    # vectors of some clusters only are not used
    runs[-1].with_suffix(".npy").unlink()
    assert vectors_beside(protocol(runs, mini_release), mini_release) == {}
    assert "r" not in similarity(mini_release, runs=runs).clusters.columns
