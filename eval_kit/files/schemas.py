"""JSON Schemas (2020-12) of every document that is exchanged, and their one validator.

The schemas live in the top folder ``schemas/``; the wheel carries a copy as package data.
"""

import functools
import json
from pathlib import Path
from typing import Any

from eval_kit.errors import UserError


class SchemaError(UserError):
    """A document does not follow its schema; the message names each JSON path and the reason."""


def validate(name: str, document: Any) -> None:
    """Check ``document`` (parsed JSON) against ``schemas/<name>.schema.json``.

    Raises:
        SchemaError: with the JSON path and the reason of up to five faults, and how many more there are.
        KeyError: there is no schema of that name.
    """
    if faults := faults_of(name, document):
        shown = "; ".join(f"{fault.json_path}: {fault.message[:200]}" for fault in faults[:5])
        more = f"; and {len(faults) - 5} more" if len(faults) > 5 else ""
        raise SchemaError(f"not a valid {name} document: {shown}{more}")


def read(name: str, path: Path) -> Any:
    """The JSON document in ``path``, checked against ``schemas/<name>.schema.json``.

    Raises:
        SchemaError: it cannot be read, is not JSON, or does not follow the schema.
    """
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise SchemaError(f"{path}: not readable JSON: {error}") from error
    try:
        validate(name, document)
    except SchemaError as error:
        raise SchemaError(f"{path}: {error}") from error
    return document


def faults_of(name: str, document: Any) -> list[Any]:
    """All that is wrong with ``document``: jsonschema's errors, with ``json_path`` and ``message``, by path."""
    return sorted(_validator(name).iter_errors(document), key=lambda fault: str(fault.json_path))


def names() -> list[str]:
    """The names that :func:`validate` takes."""
    return sorted(path.name.removesuffix(".schema.json") for path in _folder().glob("*.schema.json"))


@functools.cache
def _validator(name: str) -> Any:
    from jsonschema import Draft202012Validator

    path = _folder() / f"{name}.schema.json"
    if not path.is_file():
        raise KeyError(f"no schema named {name!r}; there are {', '.join(names())}")
    return Draft202012Validator(json.loads(path.read_text(encoding="utf-8")))


def _folder() -> Path:
    package = Path(__file__).parent.parent
    packaged = package / "schema_files"
    return packaged if packaged.is_dir() else package.parent / "schemas"
