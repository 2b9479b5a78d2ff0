"""Verdicts on twenty minis, beside the planted strengths and the loss of leaving a cluster out."""

from pathlib import Path

import numpy as np
import polars as pl
import pytest
from planted_oracle import oracle_ranking, taught_ranking
from scipy.stats import spearmanr

from eval_kit.documents import TestSetEntry
from eval_kit.protocols.generalise import contrasts, small_division
from eval_kit.release import Release
from eval_kit.runs import writer as run_files
from tests import manifests

source = pytest.importorskip("builder.sources.mini", exc_type=ImportError)
planted = pytest.importorskip("builder.sources.mini.planted", exc_type=ImportError)

SEEDS = 20
CLUSTERS, STRENGTHS = planted.CLUSTERS["topic"], planted.STRENGTHS["topic"]
PAGE = Path(__file__).parents[3] / "docs/generalise.md"


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
    estimates, losses, verdicts, controls = [], [], [], []
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
            run_files.write(rows.iter_rows(), runs[name], name)
        for cluster in CLUSTERS:
            sides = {
                "far": queries.filter(pl.col("topic") == cluster),
                "near": queries.filter(pl.col("topic") != cluster),
            }
            division = small_division("topic", sides, "far", seed)
            dev = release.test_sets["dev"]
            rows = {
                row["system"]: row
                for row in contrasts([runs[name] for name in CLUSTERS], release, [runs["pivot"]], dev, [division])
                .to_polars()
                .to_dicts()
            }
            row = rows.pop(cluster)
            inside = np.mean([saw["far_level"] for saw in rows.values()])
            losses.append((inside - row["far_level"]) / inside)
            estimates.append(row["adjusted"])
            verdicts.append(row["verdict"])
            other = CLUSTERS[(CLUSTERS.index(cluster) + 1) % len(CLUSTERS)]  # a cluster that this model was trained on
            trained_on = {
                "far": sides["near"].filter(pl.col("topic") == other),
                "near": sides["near"].filter(pl.col("topic") != other),
            }
            division = small_division("topic", trained_on, "far", seed)
            control = contrasts([runs[cluster]], release, [runs["pivot"]], dev, [division])
            controls.append(control.to_polars()["verdict"][0])
    by_cluster = np.array(estimates).reshape(SEEDS, -1)
    true = np.array(losses).reshape(SEEDS, -1)
    degrades = (np.array(verdicts).reshape(SEEDS, -1) == "degrades").mean(axis=0)
    r = float(np.corrcoef(by_cluster.ravel(), -true.ravel())[0, 1])
    rho = float(np.mean([spearmanr(row, STRENGTHS).statistic for row in -by_cluster]))
    alarms = controls.count("degrades")
    page = PAGE.read_text()
    for number, cluster in enumerate(CLUSTERS):
        loss, estimate = true[:, number].mean(), by_cluster[:, number].mean()
        line = f"| {cluster} | {STRENGTHS[number]:.2f} | {loss:.1%} | {estimate:+.3f} | {degrades[number]:.0%} |"
        assert line.replace("%", " %").replace("-0", "−0") in page
    assert f"r = {r:.2f} with the loss, ρ = {rho:.2f} with the strengths" in page
    assert f"{alarms} of the {len(controls)} contrasts" in page
