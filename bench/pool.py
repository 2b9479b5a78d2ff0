"""``python -m bench.pool RELEASE RUNS``: what real systems gain on the passages that ``builder lite`` leaves.

Runs of TREC DL 2019 and 2020 are scored whole, and again without the passages that are neither judged nor among BM25's
best 20 for a topic. The million passages that ``lite`` draws at random are left out: few would reach the best 10.
``make reproduce`` leaves a release with the judgements in ``build/reproduce``.
"""

import argparse
from pathlib import Path

import polars as pl

from builder.lite import DEPTH
from eval_kit.api import score
from eval_kit.release import Release, open_release
from eval_kit.runs.reader import read_pieces

SYSTEMS = ("bm25", "bm25-rm3", "tas-b", "splade-pp-ed")
MEASURES = ("nDCG@10", "RR(rel=2)@10")


def main() -> None:
    """Print a table in Markdown: each figure on the pool, and the system's gain."""
    arguments = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    arguments.add_argument("release", type=Path, help="with the judgements of both")
    arguments.add_argument("runs", type=Path, help="holds bm25.dl19.trec and the like")
    given = arguments.parse_args()
    release = open_release(given.release)
    columns = " | ".join(f"{measure} | gain" for measure in MEASURES)
    print(f"| test set | system | {columns} |\n|---|---|{'---:|' * 2 * len(MEASURES)}")
    for test_set in ("dl19", "dl20"):
        runs = {system: _read(given.runs / f"{system}.{test_set}.trec") for system in SYSTEMS}
        judged = release.qrels(release.test_sets[test_set].qrels)
        best = runs["bm25"].filter(pl.col("score").rank("ordinal", descending=True).over("query_id") <= DEPTH)
        pool = pl.concat([judged["passage_id"], best["passage_id"]]).unique().to_frame()
        for system, run in runs.items():
            whole, lite = _means(run, release), _means(run.join(pool, on="passage_id", how="semi"), release)
            cells = " | ".join(f"{lite[name]:.4f} | {lite[name] - whole[name]:+.4f}" for name in MEASURES)
            print(f"| {test_set} | {system} | {cells} |")


def _read(path: Path) -> pl.DataFrame:
    return pl.concat(read_pieces(path)).select("query_id", "passage_id", "score")


def _means(run: pl.DataFrame, release: Release) -> dict[str, float]:
    return {figure.measure: figure.value for figure in score(run, release, MEASURES).figures}


if __name__ == "__main__":
    main()
