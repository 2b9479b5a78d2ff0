"""``python -m bench.scoring``: eval_kit score beside its peers, whole processes, on runs of 1000 passages a query.

Ours does the strict, complete job (release check, duplicates, ties, every official measure of every test set).
The peers score RR@10, R@1000, AP and nDCG from a qrels file: ir_measures by its command line, pytrec_eval by the
shortest program that reads the two files, trec_eval if it is on the PATH.
"""

import argparse
import json
import platform
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import polars as pl
from rich.console import Console
from rich.table import Table

from bench.processes import Cost, median_cost
from builder import planted
from builder import release as releases
from eval_kit.release import open as open_release

DEPTH = 1_000
PASSAGES = 8_841_823
SIZES = {"6.98M": 69_800, "31M": 112_000}
"""Runs by name, and the size of the mini release whose test queries they answer."""
RESULTS = Path(__file__).parent / "results" / "scoring.json"

PYTREC_EVAL = """
import sys, pytrec_eval
with open(sys.argv[1]) as f: qrels = pytrec_eval.parse_qrel(f)
with open(sys.argv[2]) as f: run = pytrec_eval.parse_run(f)
values = pytrec_eval.RelevanceEvaluator(qrels, {"recip_rank", "recall_1000", "map", "ndcg"}).evaluate(run)
print(sum(one["map"] for one in values.values()) / len(values))
"""


def main() -> None:
    """Synthesise the runs, time everyone, print a table, and write ``bench/results/scoring.json``."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--sizes", nargs="+", default=["6.98M"], choices=list(SIZES))
    arguments.add_argument("--repeats", type=int, default=3)
    arguments.add_argument("--no-peers", action="store_true")
    given = arguments.parse_args()
    console = Console()
    results = json.loads(RESULTS.read_text())["results"] if RESULTS.is_file() else {}
    with tempfile.TemporaryDirectory() as folder:
        for size in given.sizes:
            run, qrels, release = _synthesise(Path(folder) / size, SIZES[size], only_dev=size == "6.98M")
            lines = sum(block.count(b"\n") for block in _blocks(run))
            costs = {
                name: median_cost(command, given.repeats)
                for name, command in _commands(run, qrels, release, not given.no_peers).items()
            }
            results[size] = {"lines": lines, "costs": {name: cost.as_json() for name, cost in costs.items()}}
            console.print(_table(f"{lines:,} lines", costs))
    RESULTS.parent.mkdir(exist_ok=True)
    machine = {"machine": platform.machine(), "python": platform.python_version(), "polars": pl.__version__}
    RESULTS.write_text(json.dumps({"machine": machine, "results": results}, indent=1) + "\n")


def _commands(run: Path, qrels: Path, release: Path, peers: bool) -> dict[str, list[str]]:
    ours = [sys.executable, "-m", "eval_kit", "score", str(run), "--release", str(release)]
    commands = {"eval_kit score": ours}
    if peers:
        if trec_eval := shutil.which("trec_eval"):
            names = ["recip_rank", "recall.1000", "map", "ndcg"]
            flags = [flag for name in names for flag in ("-m", name)]
            commands["trec_eval"] = [trec_eval, "-c", *flags, str(qrels), str(run)]
        commands["pytrec_eval"] = [sys.executable, "-c", PYTREC_EVAL, str(qrels), str(run)]
        commands["ir_measures"] = [
            sys.executable, "-m", "ir_measures", str(qrels), str(run), "RR@10", "R@1000", "AP", "nDCG",
        ]  # fmt: skip
    return commands


def _synthesise(folder: Path, queries: int, only_dev: bool) -> tuple[Path, Path, Path]:
    releases.write(planted.draft(queries=queries), folder / "ms-marco-shift")
    release = open_release(folder / "ms-marco-shift")
    names = ["dev"] if only_dev else list(release.test_sets)
    ids = pl.concat(release.test_sets[name].queries for name in names).unique(maintain_order=True)
    splits = sorted({release.test_sets[name].qrels for name in names})
    judged = pl.concat(release.qrels(split) for split in splits).unique(maintain_order=True)
    judged = judged.filter(pl.col("query_id").is_in(ids.implode()))
    relevant = dict(judged.filter(pl.col("relevance") > 0).group_by("query_id").agg("passage_id").iter_rows())
    rng = np.random.Generator(np.random.PCG64(0))
    run = folder / "synthetic.trec"
    with run.open("w") as file:
        for query in ids:
            passages = [f"{one}" for one in PASSAGES + rng.choice(PASSAGES, DEPTH, replace=False)]
            for passage in relevant.get(query, []):
                passages[int(DEPTH * rng.random() ** 3)] = passage
            scores = np.sort(rng.random(DEPTH) * 50)[::-1]
            file.writelines(
                f"{query} Q0 {passage} {rank} {score:.6f} synthetic\n"
                for rank, (passage, score) in enumerate(zip(dict.fromkeys(passages), scores, strict=False), start=1)
            )
    qrels = folder / "qrels.txt"
    qrels.write_text("".join(f"{query} 0 {passage} {grade}\n" for query, passage, grade in judged.iter_rows()))
    return run, qrels, release.folder


def _blocks(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while block := file.read(1 << 24):
            yield block


def _table(title: str, costs: dict[str, Cost]) -> Table:
    table = Table(title=title, box=None)
    for name in ("tool", "wall s", "cpu s", "peak MB", "ours / theirs"):
        table.add_column(name, justify="left" if name == "tool" else "right")
    ours = costs["eval_kit score"]
    for name, cost in costs.items():
        ratio = f"{ours.wall_s / cost.wall_s:.2f}" if cost is not ours else ""
        table.add_row(name, f"{cost.wall_s:.2f}", f"{cost.cpu_s:.2f}", f"{cost.peak_mb:.0f}", ratio)
    return table


if __name__ == "__main__":
    main()
