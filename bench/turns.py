"""Time ours and a peer in turn, so that the machine's other load affects both; keep the figures as JSON."""

import json
import os
import platform
import time
from collections.abc import Callable, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import polars as pl

RESULTS = Path(__file__).parent / "results" / "baselines.json"
LIBRARIES = ("torch", "sentence-transformers", "transformers", "faiss-cpu")

type Figures = dict[str, float]


def timed(call: Callable[[], Any]) -> Figures:
    """Wall and processor seconds (of all threads of this process) of one call."""
    wall, cpu = time.perf_counter(), time.process_time()
    call()
    return {"wall_s": time.perf_counter() - wall, "cpu_s": time.process_time() - cpu}


def in_turn(calls: Mapping[str, Callable[[], Figures]], repeats: int) -> dict[str, list[Figures]]:
    """Figures of each call, ``repeats`` times; every other time in the opposite order."""
    turns: dict[str, list[Figures]] = {name: [] for name in calls}
    for turn in range(repeats):
        for name in list(calls)[:: -1 if turn % 2 else 1]:
            turns[name].append(calls[name]())
    return turns


def medians(turns: Mapping[str, list[Figures]]) -> dict[str, Figures]:
    """The median of each figure."""
    return {name: pl.DataFrame(figures).median().row(0, named=True) for name, figures in turns.items()}


def overhead(turns: Mapping[str, list[Figures]]) -> Figures:
    """How much longer ``ours`` takes than ``peer``: the median over the turns of the ratio, less 1."""
    times = pl.DataFrame(turns["ours"]) / pl.DataFrame(turns["peer"])
    return (times.select("wall_s", "cpu_s").median() - 1).row(0, named=True)


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
