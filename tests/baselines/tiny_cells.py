"""Cells that train in seconds; waiting for their processes."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from baselines import config
from baselines.cell import Cell
from baselines.options import Options
from eval_kit.release import Release
from eval_kit.runs import names as cells

NEURAL = ("biencoder", "splade", "colbert", "monobert", "static")
SMALL = {"backbone": {"layers": 1, "width": 32, "heads": 2}, "batch_size": 8, "negatives": 2, "depth": 20}


def tiny_options(system: str, **options: Any) -> Options:
    """Of the mini or static config with smaller sizes, and with the options given (None takes one out)."""
    of_config = {**config.read("static").systems, **config.read("mini").systems}[system].as_json()
    length = {"epochs": None} if "steps" in options else {}
    chosen = {**of_config, **(SMALL if system != "bm25" else {}), **length, **options}
    kept = {name: value for name, value in chosen.items() if value is not None}
    return config.parse({"systems": {system: kept}}, "test").systems[system]


def tiny_cell(
    system: str, release: Release, root: Path, place: tuple[str, str] = ("topic", "c0"), **options: Any
) -> Cell:
    """A cell of :func:`tiny_options`."""
    return Cell(cells.RunName(system, *place), release, tiny_options(system, **options), root)


def until(condition: Callable[[], object]) -> None:
    """Wait for it, five minutes at most."""
    end = time.monotonic() + 300
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.005)
