"""Published checkpoints by name: what each is, how to search with it, and its rows in the papers' tables."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from eval_kit.errors import UserError
from eval_kit.files.schemas import validate

FILE = Path(__file__).with_name("checkpoints.json")


@dataclass(frozen=True)
class Checkpoint:
    """One entry of ``checkpoints.json``; see ``schemas/checkpoints.schema.json``."""

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
    validate("checkpoints", entries)
    return {entry["name"]: Checkpoint(**entry) for entry in entries}


def named(name: str) -> Checkpoint:
    """The entry of that name.

    Raises:
        UserError: there is none.
    """
    known = load()
    if name not in known:
        raise UserError(f"there is no checkpoint {name!r}; there are {', '.join(known)}")
    return known[name]


def training_data(model: str) -> list[str] | None:
    """The training data of a registered model, by Hub id or index name; None if it is not registered."""
    return next((entry.training_data for entry in load().values() if entry.model == model), None)
