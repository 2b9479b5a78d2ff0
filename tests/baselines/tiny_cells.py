"""Cells that train in seconds."""

from pathlib import Path
from typing import Any

from baselines import config
from baselines.cells.cell import Cell
from eval_kit.release import Release
from eval_kit.runs import names as cells

NEURAL = ("biencoder", "splade", "colbert", "monobert", "static")
SMALL = {"backbone": {"layers": 1, "width": 32, "heads": 2}, "batch_size": 8, "negatives": 2, "depth": 20}


def tiny_cell(
    system: str, release: Release, root: Path, place: tuple[str, str] = ("topic", "c0"), **options: Any
) -> Cell:
    """A cell of the mini or static config with smaller sizes, and with the options given (None takes one out)."""
    of_config = {**config.load("static"), **config.load("mini")}[system]
    length = {"epochs": None} if "steps" in options else {}
    chosen = {**of_config, **(SMALL if system != "bm25" else {}), **length, **options}
    kept = {name: value for name, value in chosen.items() if value is not None}
    checked = config.checked({"systems": {system: kept}}, "test")[system]
    return Cell(cells.Cell(system, *place), release, checked, root)
