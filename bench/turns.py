"""Time ours and a peer in turn, so that the machine's other load affects both."""

import time
from collections.abc import Callable, Mapping
from typing import Any

import polars as pl

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
