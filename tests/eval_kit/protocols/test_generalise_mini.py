"""Estimates on twenty minis, beside the planted strengths and the loss of leaving a cluster out."""

from pathlib import Path

import numpy as np
import polars as pl
import pytest
from planted_oracle import oracle_ranking, taught_ranking
from scipy.stats import spearmanr

from eval_kit.documents import TestSetEntry
from eval_kit.protocols.generalise import DOES_NOT, Sides, contrasts, small_division
from eval_kit.protocols.scoring import score_on
from eval_kit.release import Release
from eval_kit.runs import writer as run_files
from eval_kit.runs.given import take
from tests import manifests

source = pytest.importorskip("builder.sources.mini", exc_type=ImportError)
planted = pytest.importorskip("builder.sources.mini.planted", exc_type=ImportError)

SEEDS = 20
CLUSTERS, STRENGTHS = planted.CLUSTERS["topic"], planted.STRENGTHS["topic"]


def in_memory(mini: source.Mini) -> tuple[Release, pl.DataFrame]:
    """A release of mini's dev queries, and these with their topics."""
    queries = mini.queries.filter(pl.col("population") == "dev")
    texts = queries.select("query_id", "text")
    qrels = mini.qrels.rename(dict(zip(mini.qrels.columns, ("query-id", "corpus-id", "score"), strict=True)))
    qrels = qrels.filter(pl.col("query-id").is_in(queries["query_id"].implode()))
    entry = TestSetEntry(
        name="dev", shift="dev", config="dev", split="dev", qrels="dev", measures=["RR@10"], queries=texts.height
    )
    return Release(Path(), manifests.made_up([], [entry]), {("dev", "dev"): texts, ("qrels", "dev"): qrels}), queries


@pytest.mark.slow
def test_twenty_minis(tmp_path: Path) -> None:
    """Of each cluster, the model that never saw it: its loss is estimated, and never denied."""
    estimates, losses, words = [], [], []
    for seed in range(SEEDS):
        mini = source.generate(source.MiniParameters(seed=seed, queries=10_000))
        release, queries = in_memory(mini)
        ids = queries["query_id"].to_list()
        rankings = {"pivot": taught_ranking(mini, pl.Series([], dtype=pl.String), ids)}
        rankings |= {cluster: oracle_ranking(mini, "topic", cluster, ids) for cluster in CLUSTERS}
        runs = {name: tmp_path / f"{name}.trec" for name in rankings}
        for name, ranking in rankings.items():
            ranks = pl.int_range(1, pl.len() + 1).over("query_id").alias("rank")
            rows = ranking.select("query_id", "passage_id", ranks, "score")
            if name != "pivot":
                rows = rows.filter(pl.col("rank") <= 10)  # of the pivot, deeper ranks count too
            run_files.write(rows.iter_rows(), runs[name], name)
        divisions = []
        for cluster in CLUSTERS:
            sides = {"far": pl.col("topic") == cluster, "near": pl.col("topic") != cluster}
            divided = {side: queries.filter(of_side) for side, of_side in sides.items()}
            divisions.append(small_division(cluster, divided, "far", seed))
        models, pivots = take(runs=[runs[name] for name in CLUSTERS], pivots=runs["pivot"])
        dev = release.test_sets["dev"]
        scores = score_on(dict.fromkeys([*models, *pivots], (dev,)), release)
        frame = contrasts(scores, release, models, pivots=pivots, test_set=dev, sides=Sides(divisions)).to_polars()
        for cluster in CLUSTERS:
            of_cluster = frame.filter(shift=cluster)
            row = of_cluster.row(by_predicate=pl.col("system") == cluster, named=True)
            inside = of_cluster.filter(pl.col("system") != cluster)["far_level"].mean()
            losses.append((inside - row["far_level"]) / inside)
            estimates.append(row["adjusted"])
            words.append(row["verdict"])
    by_cluster = np.array(estimates).reshape(SEEDS, -1)
    true = np.array(losses).reshape(SEEDS, -1)
    r = float(np.corrcoef(by_cluster.ravel(), -true.ravel())[0, 1])
    rho = float(np.mean([spearmanr(row, STRENGTHS).statistic for row in -by_cluster]))
    assert r > 0.9 and rho > 0.9
    assert DOES_NOT not in words
