"""Wall and processor time of calls and of whole processes; ours and a peer in turn; figures kept as JSON."""

import json
import os
import platform
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import polars as pl

RESULTS = Path(__file__).parent / "results" / "baselines.json"
LIBRARIES = ("torch", "sentence-transformers", "transformers", "faiss-cpu")
LAUNCHER = """
import json, os, subprocess, sys, time
start = time.perf_counter()
process = subprocess.Popen(sys.argv[1:])
_, status, usage = os.wait4(process.pid, 0)
wall = time.perf_counter() - start
print(json.dumps([wall, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024]))
sys.exit(bool(status))
"""

type Figures = dict[str, float]


@dataclass(frozen=True)
class Cost:
    """The cost of one run of a command: wall and processor seconds, and its peak memory in MB; what it printed."""

    wall_s: float
    cpu_s: float
    peak_mb: float
    output: str = ""


def cost(command: Sequence[str]) -> Cost:
    """One run, launched from a small process, because the system counts a parent's size as the command's peak.

    Raises:
        RuntimeError: the command failed; with the end of what it printed.
    """
    process = subprocess.run([sys.executable, "-c", LAUNCHER, *command], capture_output=True)
    if process.returncode:
        raise RuntimeError(f"{command[0]} failed: {process.stderr[-500:].decode(errors='replace')}")
    output, _, figures = process.stdout.decode().rstrip("\n").rpartition("\n")
    return Cost(*json.loads(figures), output)


def median_cost(command: Sequence[str], repeats: int) -> Figures:
    """Run a command once to warm the file cache, then ``repeats`` times; median times and the greatest peak memory."""
    runs = pl.DataFrame([cost(command) for _ in range(repeats + 1)][1:])
    figures = runs.select(pl.col("wall_s", "cpu_s").median().round(2), pl.col("peak_mb").max().round(2))
    return figures.row(0, named=True)


def in_turn(calls: Mapping[str, Callable[[], Figures]], repeats: int) -> dict[str, Figures]:
    """The median of each figure of ``ours`` and ``peer``, and how much more ours takes: the median of the ratios.

    Both are called ``repeats`` times, every other time in the opposite order, so that other load meets both.
    """
    turns: dict[str, list[Figures]] = {name: [] for name in calls}
    for turn in range(repeats):
        for name in list(calls)[:: -1 if turn % 2 else 1]:
            turns[name].append(calls[name]())
    tables = {name: pl.DataFrame(figures) for name, figures in turns.items()}
    medians = {name: table.median().row(0, named=True) for name, table in tables.items()}
    ratios = (tables["ours"] / tables["peer"]).select("wall_s", "cpu_s")
    return {**medians, "overhead": (ratios.median() - 1).row(0, named=True)}


def machine(*libraries: str) -> dict[str, Any]:
    """The machine, Python, and the versions of some libraries."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "machine": platform.machine(),
        "cores": os.cpu_count(),
        "memory_gb": round(memory / 1e9, 1),
        "python": platform.python_version(),
        **{name: version(name) for name in libraries},
    }


def keep(part: str, figures: Mapping[str, Any]) -> None:
    """Replace one part of ``bench/results/baselines.json``, with the machine and its load at the end, and print it."""
    document = json.loads(RESULTS.read_text(encoding="utf-8"))
    document[part] = {**figures, "load_after": os.getloadavg()[0], "machine": machine(*LIBRARIES)}
    RESULTS.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(document[part], indent=1))
