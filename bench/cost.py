"""``python -m bench.cost bench/results/gpu-<card>.json``: hours of one such GPU that a grid takes, projected.

Measured are the rates of each part (:mod:`bench.gpu_check`); projected is that they hold for the whole of it. Left out
are BM25's candidates, which no GPU waits for, and evaluations on the validation queries.
"""

import argparse
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from baselines import config
from bench.rehearsal.sizes import PASSAGES

CELLS = {"topic": 5, "wh": 3, "length": 2}
TEST_QUERIES = {"topic": 31_244, "wh": 19_487, "length": 6_980}
"""Of ECIR 2023's shifts: models, and the queries that each of them searches."""
SEARCHES = {"biencoder": "dense search", "splade": "sparse search", "colbert": "plaid"}


@dataclass(frozen=True)
class Hours:
    """Of all cells of one system."""

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
        passages: that are encoded. Exact search is taken to grow with them, PLAID's not to.
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


def main() -> None:
    """Print the hours."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("rates", type=Path, help="JSON that bench.gpu_check wrote")
    parser.add_argument("--config", default="paper")
    parser.add_argument("--passages", type=int, default=PASSAGES)
    given = parser.parse_args()
    rates = json.loads(given.rates.read_text(encoding="utf-8"))
    table = Table("system", "training", "encoding", "search", "all", box=None)
    table.title = f"Hours of one {rates['card']}: rates measured, hours projected"
    hours = projected(rates, config.load(given.config), given.passages)
    for row in hours:
        table.add_row(row.system, *(f"{part:,.1f}" for part in (row.train, row.encode, row.search, row.total)))
    table.add_row("all", "", "", "", f"{sum(row.total for row in hours):,.1f}")
    Console().print(table)


if __name__ == "__main__":
    main()
