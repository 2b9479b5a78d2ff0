"""Published checkpoints by name, how to search with each, and what a model was trained on."""

import importlib.util
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from eval_kit.files.opening import open_file

_CARD_BYTES = 8 << 20
_HEADER = re.compile(r"\ufeff?---[ \t]*\n(.*?\n)---[ \t]*(\n|$)", re.DOTALL)
_DATASETS = re.compile(r"^datasets:.{0,20000}?(?=^[^\s#-]|\Z)", re.DOTALL | re.MULTILINE)
FILE = Path(__file__).with_name("checkpoints.json")


@dataclass(frozen=True)
class Checkpoint:
    """One entry of ``checkpoints.json``; ``rows`` are those in published tables, ``remark`` what differs from them."""

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


def training_data(model: str) -> list[str] | None:
    """The training data of a registered model, by Hub id; None if it is not registered."""
    return next((entry.training_data for entry in load().values() if entry.model == model), None)


def declared_data(model: str, card: Path | None) -> list[str] | None:
    """What the kit's registry, the model's card, if it has one, or mteb's registry declares; None where unknown."""
    registered = training_data(model)
    if registered is not None:
        return registered
    return (_datasets_of_card(card) if card else None) or _datasets_of_registry(model)


def registered_prompts(model: str) -> dict[str, str]:
    """The prompts of queries and documents in mteb's registry, for a model on the Hub; none where it knows none."""
    prompts = getattr(_registered(model), "loader_kwargs", {}).get("model_prompts") or {}
    return {role: prompts[role] for role in ("query", "document") if prompts.get(role)}


def registered_similarity(model: str) -> str | None:
    """Likewise how its vectors are compared."""
    return getattr(getattr(_registered(model), "similarity_fn_name", None), "value", None)


def _datasets_of_card(card: Path) -> list[str] | None:
    """The ``datasets:`` of a card; None where it has none, or what a stranger wrote there is no list of names.

    No more than that entry is parsed: headers with all of MTEB's figures are long, and aliases may grow without end.
    """
    import yaml

    with open_file(card) as file:
        header = _HEADER.match(file.read(_CARD_BYTES).decode("utf-8", "replace").replace("\r\n", "\n"))
    entry = _DATASETS.search(header[1]) if header else None
    if entry is None or entry[0].count("[") > 1 or "{" in entry[0]:
        return None
    try:
        if any(isinstance(token, yaml.AliasToken) for token in yaml.scan(entry[0])):
            return None
        datasets = yaml.safe_load(entry[0])["datasets"]
    except (yaml.YAMLError, ValueError, RecursionError):
        return None
    names = datasets if isinstance(datasets, list) else [datasets]
    return [name for name in names if isinstance(name, str)] or None


def _datasets_of_registry(model: str) -> list[str] | None:
    """What mteb's registry says that the model was trained on; None where it does not."""
    datasets = getattr(_registered(model), "training_datasets", None)
    return None if datasets is None else sorted(datasets)


def _registered(model: str) -> Any:
    """The model in mteb's registry; None where it does not know it, mteb is not installed, or it is a folder."""
    if Path(model).exists() or importlib.util.find_spec("mteb") is None:
        return None
    import mteb

    try:
        return mteb.get_model_meta(model)
    except Exception:  # a model that it does not know, or a Hub that does not answer
        return None
