"""``python -m bench.leaderboard``: ``eval_kit leaderboard`` over 30 submissions, timed as whole processes.

Each submission has a run of TREC DL 2019 and 2020; in a second measurement also a length grid of four runs, trained
with two seeds. The release is mini with 1,500 queries. ``--keep`` leaves release, submissions and pages for inspection.
"""

import argparse
import json
import platform
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import polars as pl
from rich.console import Console

from bench.processes import median_cost
from bench.scoring import costs_table, write_run
from builder import mini as planted
from builder import release as releases
from eval_kit.release import Release, open_release

SYSTEMS = 30
SHALLOWEST = 20
RESULTS = Path(__file__).parent / "results" / "leaderboard.json"


def main() -> None:
    """Synthesise the submissions, time the command, print a table, and write ``bench/results/leaderboard.json``."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--repeats", type=int, default=3)
    arguments.add_argument("--keep", type=Path, metavar="DIR")
    given = arguments.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = given.keep or Path(temporary)
        releases.write(planted.draft(queries=1_500), folder / "ms-marco-shift")
        release = open_release(folder / "ms-marco-shift")
        tracks = {"dl": ["dl19", "dl20"]}
        parts = ("short", "long")
        grid = {f"length.{part}.seed{seed}": [f"length.{each}" for each in parts] for part in parts for seed in (1, 2)}
        costs = {}
        for name, runs in (("30 x DL", tracks), ("30 x DL and length grid", tracks | grid)):
            board = folder / name.replace(" ", "-")
            lines = sum(_submit(release, board / f"system{number:02}", number, runs) for number in range(SYSTEMS))
            command = [sys.executable, "-m", "eval_kit", "leaderboard", str(board), "--release", str(release.folder)]
            out = ["--out", str(board.with_suffix(".html"))]
            costs[f"{name}, {lines:,} lines"] = median_cost([*command, *out], given.repeats)
    Console().print(costs_table(f"{SYSTEMS} submissions", costs))
    machine = {"machine": platform.machine(), "python": platform.python_version(), "polars": pl.__version__}
    results = {name: cost.as_json() for name, cost in costs.items()}
    RESULTS.write_text(json.dumps({"machine": machine, "results": results}, indent=1) + "\n")


def _submit(release: Release, folder: Path, number: int, runs: dict[str, Sequence[str]]) -> int:
    """Write a submission, whose system is worse the higher its number; return how many lines its runs have."""
    folder.mkdir(parents=True)
    lines = 0
    for seed, (name, test_sets) in enumerate(runs.items()):
        ids = pl.concat(release.test_sets[test_set].queries for test_set in test_sets).unique(maintain_order=True)
        splits = sorted({release.test_sets[test_set].qrels for test_set in test_sets})
        judged = pl.concat(release.qrels(split) for split in splits).unique(maintain_order=True)
        judged = ids.to_frame().join(judged, on="query_id", maintain_order="left")
        lines += write_run(folder / f"s.{name}.trec", judged, SHALLOWEST + 4 * number, 100 * number + seed)
    document = {
        "system": folder.name,
        "team": f"team {number % 7}",
        "architecture": ("dense", "sparse", "late-interaction", "lexical")[number % 4],
        "training_data": [f"{release.collection}/{'train' if number % 9 == 4 else 'shift/length'}"],
        "notes": "A system that is made of chance." * (number % 3),
        "links": ["https://example.org/a-long-address/that-says/what/the-system/is"] * (number % 2),
        "licence": "Apache-2.0",
        "release": {"version": release.version, "digest": release.digest},
        "runs": [{"file": path.name} for path in sorted(folder.glob("*.trec"))],
    }
    (folder / "submission.json").write_text(json.dumps(document))
    return lines


if __name__ == "__main__":
    main()
