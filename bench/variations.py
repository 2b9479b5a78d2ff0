"""``python -m bench.variations``: ``eval_kit variations`` on 36 runs of one system, and the cost of only scoring them.

One run is of a mini release's original dev queries, 35 are of their typos: five kinds, seven replicas each. Both
commands read every run once, and base and judgements once; the comparison adds the pairing and its bootstrap.
"""

import argparse
import json
import platform
import sys
import tempfile
from pathlib import Path

import polars as pl
from rich.console import Console

from bench.processes import median_cost
from bench.scoring import costs_table, write_run
from builder import mini as planted
from builder import release as releases
from builder import typos

QUERIES = 10_000
"""Of the mini release; a thousand of them are dev."""
REPLICAS = 7
DEPTH = 100
RESULTS = Path(__file__).parent / "results" / "variations.json"


def main() -> None:
    """Synthesise the runs, time both commands, print a table, and write ``bench/results/variations.json``."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--repeats", type=int, default=3)
    given = arguments.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        runs = Path(folder) / "runs"
        runs.mkdir()
        release = Path(folder) / "ms-marco-shift"
        releases.write(planted.draft(queries=QUERIES), release)
        typed = typos.add(release, ["dev"], REPLICAS, seed=13)
        names = ["synthetic", *(f"synthetic.{name}" for name in typed.variations if name.startswith("dev."))]
        judged = (
            typed.test_sets["dev"].queries.to_frame().join(typed.qrels("dev"), on="query_id", maintain_order="left")
        )
        lines = sum(write_run(runs / f"{name}.trec", judged, DEPTH, seed) for seed, name in enumerate(names))
        files = [str(runs / f"{name}.trec") for name in names]
        costs = {
            f"eval_kit {command}": median_cost(
                [sys.executable, "-m", "eval_kit", command, *files, "--release", str(release)], given.repeats
            )
            for command in ("score", "variations")
        }
    Console().print(costs_table(f"{len(names)} runs, {lines:,} lines", costs))
    machine = {"machine": platform.machine(), "python": platform.python_version(), "polars": pl.__version__}
    results = {"runs": len(names), "lines": lines, "costs": {name: cost.as_json() for name, cost in costs.items()}}
    RESULTS.write_text(json.dumps({"machine": machine, "results": results}, indent=1) + "\n")


if __name__ == "__main__":
    main()
