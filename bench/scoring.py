"""``python -m bench.scoring``: eval_kit score and its peers, as whole processes, on runs of 1000 passages per query.

Ours does the strict, complete job (release check, duplicates, ties, every official measure of every test set).
The peers score RR@10, R@1000, AP and nDCG from a qrels file: ir_measures by its command line, pytrec_eval by the
shortest program that reads the two files, trec_eval if it is on the PATH. Ten runs of 100 passages per query are scored
in one call and in ten. Our time is broken down by stage, each measured separately, in processor seconds.
"""

import argparse
import json
import platform
import shlex
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import polars as pl
from rich.console import Console
from rich.table import Table

from bench.processes import Cost, median_cost
from builder import mini as planted
from builder import release as releases
from eval_kit.release import open_release

DEPTH = 1_000
TEN, TEN_DEPTH = "10 x 698k", 100
PASSAGES = 8_841_823
SIZES = {"6.98M": 69_800, "31M": 112_000}
"""Runs by name, and the size of the mini release whose test queries they answer."""
RESULTS = Path(__file__).parent / "results" / "scoring.json"

STAGES = """
import json, sys, time
from pathlib import Path

seconds, total = {}, 0.0

def stage(name, *within):
    global total
    now = time.process_time()
    seconds[name] = now - total - sum(seconds[one] for one in within)
    total = time.process_time()

run, release = map(Path, sys.argv[1:])
stage("interpreter")
import typer._adapters, eval_kit.cli
stage("command line")
import jsonschema, polars, rich.console, rich.table
import eval_kit.console, eval_kit.runs.ranks, eval_kit.release, eval_kit.measures.score, eval_kit.tables.scores
stage("libraries")
opened = eval_kit.release.open_release(release)
stage("release opened and verified")
splits = {one.qrels for one in opened.test_sets.values()}
judged = polars.concat(opened.qrels(split).select("query_id", "passage_id") for split in splits)
known = opened.known_queries
stage("test sets and judgements")
with run.open("rb") as file:
    while file.read(1 << 24):
        pass
stage("bytes read")
eval_kit.files.digests.file_sha256(run)
stage("sha256", "bytes read")
for frame in eval_kit.runs.ranks.read_pieces(run):
    pass
stage("parsed and checked", "bytes read")
eval_kit.runs.ranks.rank_judged(run, judged, (10, 100, 1000))
stage("duplicates and ranks", "bytes read", "sha256", "parsed and checked")
scores = eval_kit.measures.score.score([run], opened)
stage("figures", "bytes read", "sha256", "parsed and checked", "duplicates and ranks")
eval_kit.tables.scores.print_scores(scores, rich.console.Console(file=sys.stderr))
stage("table printed")
print(json.dumps(seconds))
"""

PYTREC_EVAL = """
import sys, pytrec_eval
with open(sys.argv[1]) as f: qrels = pytrec_eval.parse_qrel(f)
with open(sys.argv[2]) as f: run = pytrec_eval.parse_run(f)
values = pytrec_eval.RelevanceEvaluator(qrels, {"recip_rank", "recall_1000", "map", "ndcg"}).evaluate(run)
print(sum(one["map"] for one in values.values()) / len(values))
"""


def main() -> None:
    """Synthesise the runs, time ours and the peers, print a table, and write ``bench/results/scoring.json``."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--sizes", nargs="+", default=["6.98M", TEN], choices=[*SIZES, TEN])
    arguments.add_argument("--repeats", type=int, default=3)
    arguments.add_argument("--no-peers", action="store_true")
    given = arguments.parse_args()
    console = Console()
    results = json.loads(RESULTS.read_text())["results"] if RESULTS.is_file() else {}
    with tempfile.TemporaryDirectory() as folder:
        for size in given.sizes:
            ten = size == TEN
            release, judged = _release(Path(folder) / size, SIZES["6.98M" if ten else size], only_dev=size != "31M")
            runs = [Path(folder) / size / f"synthetic{seed}.trec" for seed in range(10 if ten else 1)]
            lines = sum(write_run(run, judged, TEN_DEPTH if ten else DEPTH, seed) for seed, run in enumerate(runs))
            commands = _ten(runs, release) if ten else _commands(runs[0], judged, release, not given.no_peers)
            costs = {name: median_cost(command, given.repeats) for name, command in commands.items()}
            results[size] = {"lines": lines, "costs": {name: cost.as_json() for name, cost in costs.items()}}
            console.print(costs_table(f"{lines:,} lines", costs))
            if not ten:
                stages = results[size]["stages_cpu_s"] = _stages(runs[0], release, given.repeats)
                console.print(
                    "processor seconds of each stage alone: ", ", ".join(f"{k} {v:.2f}" for k, v in stages.items())
                )
    RESULTS.parent.mkdir(exist_ok=True)
    machine = {"machine": platform.machine(), "python": platform.python_version(), "polars": pl.__version__}
    RESULTS.write_text(json.dumps({"machine": machine, "results": results}, indent=1) + "\n")


def _score(release: Path, *runs: Path) -> list[str]:
    return [sys.executable, "-m", "eval_kit", "score", *map(str, runs), "--release", str(release)]


def _ten(runs: Sequence[Path], release: Path) -> dict[str, list[str]]:
    calls = "; ".join(shlex.join(_score(release, run)) for run in runs)
    return {"one call": _score(release, *runs), "ten calls": ["sh", "-ec", calls]}


def _commands(run: Path, judged: pl.DataFrame, release: Path, peers: bool) -> dict[str, list[str]]:
    commands = {"eval_kit score": _score(release, run)}
    if peers:
        qrels = run.with_suffix(".qrels")
        qrels.write_text(
            "".join(f"{query} 0 {passage} {grade}\n" for query, passage, grade in judged.drop_nulls().iter_rows())
        )
        if trec_eval := shutil.which("trec_eval"):
            names = ["recip_rank", "recall.1000", "map", "ndcg"]
            flags = [flag for name in names for flag in ("-m", name)]
            commands["trec_eval"] = [trec_eval, "-c", *flags, str(qrels), str(run)]
        commands["pytrec_eval"] = [sys.executable, "-c", PYTREC_EVAL, str(qrels), str(run)]
        commands["ir_measures"] = [
            sys.executable, "-m", "ir_measures", str(qrels), str(run), "RR@10", "R@1000", "AP", "nDCG",
        ]  # fmt: skip
    return commands


def _stages(run: Path, release: Path, repeats: int) -> dict[str, float]:
    """The median processor seconds of each stage of scoring, each in its own process."""
    command = [sys.executable, "-c", STAGES, str(run), str(release)]
    measurements = [json.loads(subprocess.run(command, check=True, capture_output=True).stdout) for _ in range(repeats)]
    return {
        name: round(statistics.median(measurement[name] for measurement in measurements), 3) for name in measurements[0]
    }


def _release(folder: Path, queries: int, only_dev: bool) -> tuple[Path, pl.DataFrame]:
    """A release to score on, and the judgements of the queries that the runs answer."""
    releases.write(planted.draft(queries=queries), folder / "ms-marco-shift")
    release = open_release(folder / "ms-marco-shift")
    names = ["dev"] if only_dev else list(release.test_sets)
    ids = pl.concat(release.test_sets[name].queries for name in names).unique(maintain_order=True)
    splits = sorted({release.test_sets[name].qrels for name in names})
    judged = pl.concat(release.qrels(split) for split in splits).unique(maintain_order=True)
    return release.folder, ids.to_frame().join(judged, on="query_id", maintain_order="left")


def write_run(run: Path, judged: pl.DataFrame, depth: int, seed: int) -> int:
    """Write a run that finds most judged passages among random ones; return how many lines it has."""
    queries = judged["query_id"].unique(maintain_order=True)
    relevant = dict(judged.filter(pl.col("relevance") > 0).group_by("query_id").agg("passage_id").iter_rows())
    rng = np.random.Generator(np.random.PCG64(seed))
    lines = 0
    with run.open("w") as file:
        for query in queries:
            passages = [f"{number}" for number in PASSAGES + rng.choice(PASSAGES, depth, replace=False)]
            for passage in relevant.get(query, []):
                passages[int(depth * rng.random() ** 3)] = passage
            scores = np.sort(rng.random(depth) * 50)[::-1]
            distinct = dict.fromkeys(passages)
            file.writelines(
                f"{query} Q0 {passage} {rank} {score:.6f} synthetic\n"
                for rank, (passage, score) in enumerate(zip(distinct, scores, strict=False), start=1)
            )
            lines += len(distinct)
    return lines


def costs_table(title: str, costs: dict[str, Cost]) -> Table:
    """The cost of each command, with its ratio to the first."""
    table = Table(title=title, box=None)
    for name in ("", "wall s", "cpu s", "peak MB", "first / this"):
        table.add_column(name, justify="right" if name else "left")
    ours = next(iter(costs.values()))
    for name, cost in costs.items():
        ratio = f"{ours.wall_s / cost.wall_s:.2f}" if cost is not ours else ""
        table.add_row(name, f"{cost.wall_s:.2f}", f"{cost.cpu_s:.2f}", f"{cost.peak_mb:.0f}", ratio)
    return table


if __name__ == "__main__":
    main()
