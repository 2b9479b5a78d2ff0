"""``python -m bench.cost [bench/results/gpu-<card>.json]``: the hours that a grid takes, part by part.

The GPU's rates, from a file of :mod:`bench.gpu_check`, and the processor time of the rehearsal's stages are measured;
the projection assumes that they hold for the whole. Without a file the GPU's rates are ``ASSUMED``. Evaluations on the
validation queries are left out.
"""

import argparse
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from baselines import config
from bench.rehearsal.sizes import PASSAGES

REHEARSED = Path(__file__).parent / "results" / "rehearsal.json"
CELLS = {"topic": 5, "wh": 3, "length": 2}
TEST_QUERIES = {"topic": 31_244, "wh": 19_487, "length": 6_980}
"""Models for each of ECIR 2023's shifts, and the queries that each model searches."""
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
STAGES = ("texts", "tokens", "bm25 index", "negatives", "candidates")
"""Stages of the rehearsal that the CPUs do once for a grid."""


@dataclass(frozen=True)
class Hours:
    """The hours of all cells of one system."""

    system: str
    train: float
    encode: float
    search: float

    @property
    def total(self) -> float:
        """All three."""
        return self.train + self.encode + self.search


def projected(rates: Mapping[str, Any], options: Mapping[str, Mapping[str, Any]], passages: int) -> list[Hours]:
    """The hours of each neural system on ECIR 2023's three shifts.

    Args:
        rates: what :func:`bench.gpu_check.measured` returned on a GPU.
        options: of each system, from a config with steps.
        passages: how many are encoded. Exact search is assumed to grow with their number, PLAID's search not.
    """
    cells = sum(CELLS.values())
    queries = sum(CELLS[shift] * TEST_QUERIES[shift] for shift in CELLS)
    hours = []
    for system in (*SEARCHES, "monobert"):
        own = options[system]
        samples = cells * own["steps"] * own["batch_size"]
        train = samples / rates[f"train {system}"]["samples_per_second"]
        if system == "monobert":
            encode, search = 0.0, queries * own["candidates"] / rates["re-rank"]["pairs_per_second"]
        else:
            encode = cells * passages / rates[f"encode {system}"]["passages_per_second"]
            share = passages / rates["searched"] if system != "colbert" else 1
            search = queries * share / rates[SEARCHES[system]]["queries_per_second"]
        if system == "colbert":
            encode += cells * rates["plaid"]["build_s"] * passages / rates["plaid"]["passages"]
        hours.append(Hours(system, train / 3_600, encode / 3_600, search / 3_600))
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
    given = parser.parse_args()
    rates = json.loads(given.rates.read_text(encoding="utf-8")) if given.rates else ASSUMED
    how = "projected from measured rates" if given.rates else "assumed"
    gpu = projected(rates, config.load(given.config), given.passages)
    parts = {
        f"{row.system}: {part}": (getattr(row, part), how) for row in gpu for part in ("train", "encode", "search")
    }
    parts |= {f"all on the GPU ({rates['card']})": (sum(row.total for row in gpu), how)}
    parts |= {f"{stage} (one core)": known for stage, known in on_cpus(json.loads(REHEARSED.read_text())).items()}
    print("| part | hours | |\n|---|---:|---|")
    for part, (hours, whence) in parts.items():
        print(f"| {part} | {hours:,.1f} | {whence} |")


if __name__ == "__main__":
    main()
