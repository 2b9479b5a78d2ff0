"""``python -m bench.scoring``: eval_kit score and its peers, as whole processes, on runs of 1000 passages per query.

Ours does the strict, complete job (release check, duplicates, ties, every official measure of every test set).
The peers score RR@10, R@1000, AP and nDCG from a qrels file: ir_measures by its command line, pytrec_eval by the
shortest program that reads the two files, trec_eval if it is on the PATH. Writes ``bench/results/scoring.json``.
"""

import argparse
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from builder import mini as planted
from builder import release as releases
from eval_kit.release import open_release

DEPTH, SEED, PASSAGES = 1_000, 0, 8_841_823
SIZE, QUERIES = "6.98M", 69_800
"""The run's name, and the size of the mini release whose dev queries it answers."""
START = "start-up"
"""The run that comes with the clone, which takes no time itself."""
EXAMPLES = Path(__file__).parent.parent / "examples"
RESULTS = Path(__file__).parent / "results" / "scoring.json"

LAUNCHER = """
import json, os, subprocess, sys, time
start = time.perf_counter()
process = subprocess.Popen(sys.argv[1:])
_, status, usage = os.wait4(process.pid, 0)
wall = time.perf_counter() - start
print(json.dumps([wall, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024]))
sys.exit(bool(status))
"""

PYTREC_EVAL = """
import sys, pytrec_eval
with open(sys.argv[1]) as f: qrels = pytrec_eval.parse_qrel(f)
with open(sys.argv[2]) as f: run = pytrec_eval.parse_run(f)
values = pytrec_eval.RelevanceEvaluator(qrels, {"recip_rank", "recall_1000", "map", "ndcg"}).evaluate(run)
print(sum(one["map"] for one in values.values()) / len(values))
"""


def _cost(command: Sequence[str], repeats: int) -> dict[str, float]:
    """Median wall and processor seconds, and the greatest peak memory in MB, after a run that warms the file cache.

    A small process launches the command, because the system counts a parent's size as the peak.
    """
    rows = []
    for _ in range(repeats + 1):
        done = subprocess.run([sys.executable, "-c", LAUNCHER, *command], stdout=subprocess.PIPE, check=True)
        rows.append(json.loads(done.stdout.splitlines()[-1]))
    runs = pl.DataFrame(rows[1:], ["wall_s", "cpu_s", "peak_mb"], orient="row")
    figures = runs.select(pl.col("wall_s", "cpu_s").median().round(2), pl.col("peak_mb").max().round(2))
    return figures.row(0, named=True)


def main() -> None:
    """Synthesise the run, time ours and the peers, print the costs, and write ``bench/results/scoring.json``."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--repeats", type=int, default=3)
    arguments = parser.parse_args()
    document = json.loads(RESULTS.read_text(encoding="utf-8"))
    document["machine"] = _machine()
    with tempfile.TemporaryDirectory() as folder:
        release, pairs = _release(Path(folder))
        run = Path(folder) / "synthetic.trec"
        qrels = run.with_suffix(".qrels")
        columns = pairs.drop_nulls().select("query_id", pl.lit(0), "passage_id", "relevance")
        columns.write_csv(qrels, include_header=False, separator=" ")
        lines = {SIZE: write_run(run, pairs)}
        sizes = {SIZE: _commands(run, qrels, release)}
        small = EXAMPLES / "bm25.trec"
        lines[START] = small.read_text().count("\n")
        examples_qrels = Path(folder) / "examples.qrels"
        judged = pl.read_csv(EXAMPLES / "qrels/test.tsv", separator="\t").insert_column(1, pl.lit(0).alias("0"))
        judged.write_csv(examples_qrels, include_header=False, separator=" ")
        sizes[START] = _commands(small, examples_qrels, EXAMPLES)
        for size, commands in sizes.items():
            costs = {name: _cost(command, arguments.repeats) for name, command in commands.items()}
            document["results"][size] = {"lines": lines[size], "costs": costs}
            print(json.dumps(document["results"][size], indent=1))
    RESULTS.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


def _machine() -> dict[str, Any]:
    """The machine, and the versions of Python and polars."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "machine": platform.machine(),
        "cores": os.cpu_count(),
        "memory_gb": round(memory / 1e9, 1),
        "python": platform.python_version(),
        "polars": version("polars"),
    }


def _commands(run: Path, qrels: Path, release: Path) -> dict[str, list[str]]:
    files = [str(qrels), str(run)]
    commands = {"eval_kit score": [sys.executable, "-m", "eval_kit", "score", str(run), "--release", str(release)]}
    if trec_eval := shutil.which("trec_eval"):
        measures = ["-m", "recip_rank", "-m", "recall.1000", "-m", "map", "-m", "ndcg"]
        commands["trec_eval"] = [trec_eval, "-c", *measures, *files]
    commands["pytrec_eval"] = [sys.executable, "-c", PYTREC_EVAL, *files]
    commands["ir_measures"] = [sys.executable, "-m", "ir_measures", *files, "RR@10", "R@1000", "AP", "nDCG"]
    return commands


def _release(folder: Path) -> tuple[Path, pl.DataFrame]:
    """A release to score on, and the judgements of its dev queries, in their order."""
    releases.write(planted.draft(queries=QUERIES), folder / "ms-marco-shift")
    release = open_release(folder / "ms-marco-shift")
    dev = release.test_sets["dev"]
    pairs = dev.queries.to_frame().join(release.qrels(dev.qrels), on="query_id", maintain_order="left")
    return release.folder, pairs


def write_run(run: Path, pairs: pl.DataFrame) -> int:
    """Write a run that finds most judged passages among random ones; return how many lines it has."""
    queries = pairs["query_id"].unique(maintain_order=True)
    relevant = dict(pairs.filter(pl.col("relevance") > 0).group_by("query_id").agg("passage_id").iter_rows())
    rng = np.random.Generator(np.random.PCG64(SEED))
    lines = 0
    with run.open("w") as file:
        for query in queries:
            passages = list(map(str, PASSAGES + rng.choice(PASSAGES, DEPTH, replace=False)))
            for passage in relevant.get(query, []):
                passages[int(DEPTH * rng.random() ** 3)] = passage
            scores = np.sort(rng.random(DEPTH) * 50)[::-1]
            distinct = dict.fromkeys(passages)
            file.writelines(
                f"{query} Q0 {passage} {rank} {score:.6f} synthetic\n"
                for rank, (passage, score) in enumerate(zip(distinct, scores, strict=False), start=1)
            )
            lines += len(distinct)
    return lines


if __name__ == "__main__":
    main()
