"""The published JSON Schemas, for tests that what is written follows them."""

import json
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator

FOLDER = Path(__file__).parents[1] / "schemas"


def names() -> list[str]:
    return sorted(path.name.removesuffix(".schema.json") for path in FOLDER.glob("*.schema.json"))


def validate(name: str, document: Any) -> None:
    """Raise jsonschema's ValidationError unless the document follows the schema."""
    Draft202012Validator(json.loads((FOLDER / f"{name}.schema.json").read_text())).validate(document)
