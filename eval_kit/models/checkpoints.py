"""Published checkpoints by name: what each is, how to search with it, and its rows in the papers' tables."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from eval_kit.errors import UserError

FILE = Path(__file__).with_name("checkpoints.json")


@dataclass(frozen=True)
class Checkpoint:
    """One entry of ``checkpoints.json``.

    Attributes:
        name: by which commands know it, and ``title`` for readers.
        architecture: one of :data:`eval_kit.models.ARCHITECTURES`.
        model: Hub id.
        options: of the architecture's class.
        source: who published it, and where that is said.
        training_data: ir_datasets ids of what it was trained on.
        rows: its rows in published tables.
        remark: what differs from the published system.
    """

    name: str
    title: str
    architecture: str
    model: str
    options: dict[str, Any]
    source: str
    training_data: list[str]
    rows: list[dict[str, str]]
    remark: str = ""


def load() -> dict[str, Checkpoint]:
    """All entries by name, in the file's order."""
    entries = json.loads(FILE.read_text(encoding="utf-8"))
    return {entry["name"]: Checkpoint(**entry) for entry in entries}


def checkpoint_named(name: str) -> Checkpoint:
    """The entry of that name.

    Raises:
        UserError: there is none.
    """
    registry = load()
    if name not in registry:
        raise UserError(f"there is no checkpoint {name!r}; there are {', '.join(registry)}")
    return registry[name]


def training_data(model: str) -> list[str] | None:
    """The training data of a registered model, by Hub id; None if it is not registered."""
    return next((entry.training_data for entry in load().values() if entry.model == model), None)
