"""``python -m bench.cost [bench/results/gpu-<card>.json]``: the hours that a grid takes, part by part.

Rates of a GPU come from a file of :mod:`bench.gpu_check`, or are ``ASSUMED``; processor time comes from the rehearsal.
The projection assumes that both hold for the whole grid, and leaves out evaluations on the validation queries.
"""

import argparse
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from baselines import config
from baselines.systems import base
from bench.rehearsal.sizes import PASSAGES

REHEARSED = Path(__file__).parent / "results" / "rehearsal.json"
CELLS = {"topic": 5, "wh": 3, "length": 2}
TEST_QUERIES = {"topic": 31_244, "wh": 19_487, "length": 6_980}
"""By shift of ECIR 2023: how many models there are, and how many queries each searches."""
TRAINING_QUERIES = 200_000
"""Of ReSTrain's largest training set."""
SEARCHES = {"biencoder": "dense search", "splade": "sparse search", "colbert": "plaid"}
ASSUMED: dict[str, Any] = {
    "card": "H100, assumed at 30 % of its peak",
    "train biencoder": {"samples_per_second": 128 / 0.050},
    "train splade": {"samples_per_second": 128 / 0.120},
    "train colbert": {"samples_per_second": 32 / 0.017},
    "train monobert": {"samples_per_second": 32 / 0.020},
    **{f"encode {system}": {"passages_per_second": 16_000} for system in SEARCHES},
    "dense search": {"queries_per_second": 100},
    "sparse search": {"queries_per_second": 100},
    "plaid": {"queries_per_second": 100, "build_s": 1_440, "passages": PASSAGES},
    "re-rank": {"pairs_per_second": 25_000},
    "searched": PASSAGES,
}
"""GPU rates estimated from operation counts (for training, from the milliseconds of a step); never measured."""
STAGES = ("texts", "bm25 index", "negatives", "candidates")
"""Stages that run once for a grid, on CPUs."""


def projected(
    rates: Mapping[str, Any],
    options: Mapping[str, Mapping[str, Any]],
    passages: int,
    training_queries: int = TRAINING_QUERIES,
) -> dict[str, float]:
    """The hours of each part of each neural system on ECIR 2023's three shifts, by rates of :mod:`bench.gpu_check`.

    Exact search is assumed to grow with the number of passages, PLAID's search not. Systems that train for epochs
    see ``training_queries`` in each. BM25 and the static vectors need no GPU.
    """
    cells = sum(CELLS.values())
    queries = sum(CELLS[shift] * TEST_QUERIES[shift] for shift in CELLS)
    hours = {}
    for name, system_options in options.items():
        system = base(name)
        if system not in (*SEARCHES, "monobert"):
            continue
        if "steps" in system_options:
            samples = system_options["steps"] * system_options["batch_size"]
        else:
            samples = system_options["epochs"] * training_queries
        train = cells * samples / rates[f"train {system}"]["samples_per_second"]
        if system == "monobert":
            encode, search = 0.0, queries * system_options["candidates"] / rates["re-rank"]["pairs_per_second"]
        else:
            encode = cells * passages / rates[f"encode {system}"]["passages_per_second"]
            share = passages / rates["searched"] if system != "colbert" else 1
            search = queries * share / rates[SEARCHES[system]]["queries_per_second"]
        if system == "colbert":
            encode += cells * rates["plaid"]["build_s"] * passages / rates["plaid"]["passages"]
        for part, seconds in (("train", train), ("encode", encode), ("search", search)):
            hours[f"{name}: {part}"] = seconds / 3_600
    return hours


def on_cpus(rehearsed: Mapping[str, Any]) -> dict[str, tuple[float, str]]:
    """For each of ``STAGES`` the hours of processor time at full size, from the largest scale, and their source."""
    hours = {}
    for scale in sorted(rehearsed, key=float):
        how = "measured" if float(scale) == 1 else f"projected from scale {scale}"
        for stage in STAGES:
            if cost := rehearsed[scale]["stages"].get(stage):
                hours[stage] = (cost["cpu_s"] / float(scale) / 3_600, how)
    return hours


def main() -> None:
    """Print the hours."""
    parser = argparse.ArgumentParser(description="Hours that a grid takes.")
    parser.add_argument("rates", type=Path, nargs="?", help="JSON that bench.gpu_check wrote; assumed rates without it")
    parser.add_argument("--config", default="paper")
    parser.add_argument("--passages", type=int, default=PASSAGES)
    parser.add_argument(
        "--training-queries", type=int, default=TRAINING_QUERIES, help="of systems that train for epochs"
    )
    given = parser.parse_args()
    rates = json.loads(given.rates.read_text(encoding="utf-8")) if given.rates else ASSUMED
    how = "projected from measured rates" if given.rates else "assumed"
    gpu = projected(rates, config.load(given.config), given.passages, given.training_queries)
    parts = {part: (hours, how) for part, hours in gpu.items()}
    parts[f"all on the GPU ({rates['card']})"] = (sum(gpu.values()), how)
    parts |= {f"{stage} (one core)": cost for stage, cost in on_cpus(json.loads(REHEARSED.read_text())).items()}
    print("| part | hours | |\n|---|---:|---|")
    for part, (hours, source) in parts.items():
        print(f"| {part} | {hours:,.1f} | {source} |")


if __name__ == "__main__":
    main()
