"""Time ours and a peer in turn, so that whatever else the machine does falls on both."""

import statistics
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

type Figures = dict[str, float]


def timed(call: Callable[[], Any]) -> Figures:
    """Wall and processor seconds (of all threads of this process) of one call."""
    wall, cpu = time.perf_counter(), time.process_time()
    call()
    return {"wall_s": time.perf_counter() - wall, "cpu_s": time.process_time() - cpu}


def in_turn(calls: Mapping[str, Callable[[], Figures]], repeats: int) -> dict[str, list[Figures]]:
    """Figures of each call, ``repeats`` times; every other time in the opposite order."""
    found: dict[str, list[Figures]] = {name: [] for name in calls}
    for turn in range(repeats):
        for name in list(calls)[:: -1 if turn % 2 else 1]:
            found[name].append(calls[name]())
    return found


def medians(found: Mapping[str, list[Figures]]) -> dict[str, Figures]:
    """The median of each figure."""
    return {
        name: {figure: statistics.median(one[figure] for one in figures) for figure in figures[0]}
        for name, figures in found.items()
    }


def overhead(found: Mapping[str, list[Figures]]) -> Figures:
    """By how much ``ours`` takes longer than ``peer``: the median over the turns of the quotients, less 1."""
    return {
        name: statistics.median(
            mine[name] / theirs[name] for mine, theirs in zip(found["ours"], found["peer"], strict=True)
        )
        - 1
        for name in ("wall_s", "cpu_s")
    }


def folder_bytes(folder: Path) -> int:
    """Bytes of all files below a folder."""
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
