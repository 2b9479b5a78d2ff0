"""JSON Schemas (2020-12) of every document that is exchanged, and their one validator.

Those of the classes of :mod:`eval_kit.documents`, which are all that the evaluator reads, are made from the classes;
the rest are files in the top folder ``schemas/``, which the wheel lacks.
"""

import functools
import json
import re
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import msgspec

from eval_kit import documents
from eval_kit.documents import Document
from eval_kit.errors import UserError
from eval_kit.files import strict_json

FOLDER = Path(__file__).parents[2] / "schemas"


class SchemaError(UserError):
    """A document does not follow its schema; the message names each JSON path and the reason."""


def validate(name: str, document: Any) -> None:
    """Check ``document`` (parsed JSON) against ``schemas/<name>.schema.json``.

    Raises:
        SchemaError: with the JSON path and the reason of up to five faults, and how many more there are.
        KeyError: there is no schema of that name.
    """
    if faults := faults_of(name, document):
        sentences = "; ".join(f"{fault.json_path}: {fault.message[:200]}" for fault in faults[:5])
        more = f"; and {len(faults) - 5} more" if len(faults) > 5 else ""
        raise SchemaError(f"not a valid {name} document: {sentences}{more}")


def load[D: Document](kind: type[D], path: Path) -> D:
    """The document in ``path``, of a class of :mod:`eval_kit.documents`.

    Raises:
        UserError: it cannot be read, is not JSON, or (a :class:`SchemaError`) does not follow the class's schema.
    """
    name = next(name for name, document_class in documents.DOCUMENTS.items() if document_class is kind)
    plain = strict_json.read(path)
    try:
        validate(name, plain)
    except SchemaError as error:
        raise SchemaError(f"{path}: {error}") from error
    document: D = msgspec.convert(plain, kind)
    return document


def faults_of(name: str, document: Any) -> list[Any]:
    """All that is wrong with ``document``: jsonschema's errors, with ``json_path`` and ``message``, by path."""
    faults = chain.from_iterable(map(_parts, _validator(name).iter_errors(document)))
    return sorted(faults, key=lambda fault: str(fault.json_path))


def _parts(fault: Any) -> list[Any]:
    """What is wrong with a value that may be null or of several kinds: its faults as the kind that it is, if any."""
    as_value = [part for part in fault.context if part.schema != {"type": "null"} and fault.validator != "oneOf"]
    as_its_kind = [part for part in as_value if part.path or part.validator not in ("type", "enum")]
    return as_its_kind or as_value or [fault]


def names() -> list[str]:
    """The names that :func:`validate` takes."""
    return sorted(path.name.removesuffix(".schema.json") for path in FOLDER.glob("*.schema.json"))


@functools.cache
def _validator(name: str) -> Any:
    from jsonschema import Draft202012Validator, ValidationError
    from jsonschema.validators import extend

    def pattern(validator: Any, expression: str, text: Any, schema: Any) -> Iterator[ValidationError]:
        """As JSON Schema means it: ``$`` is the very end, and a digit is an ASCII one."""
        if isinstance(text, str) and not re.search(expression.replace("$", r"\Z"), text, re.ASCII):
            yield ValidationError(f"{text!r} does not match {expression!r}")

    def integer(checker: Any, value: Any) -> bool:
        """Python's integers alone; 1.0 is not one."""
        return isinstance(value, int) and not isinstance(value, bool)

    strict = extend(
        Draft202012Validator,
        {"pattern": pattern},
        type_checker=Draft202012Validator.TYPE_CHECKER.redefine("integer", integer),
    )
    return strict(_schema(name))


def _schema(name: str) -> dict[str, Any]:
    if name in documents.DOCUMENTS:
        return documents.schema(name)
    path = FOLDER / f"{name}.schema.json"
    if not path.is_file():
        raise KeyError(f"no schema named {name!r}; there are {', '.join(names())}")
    schema: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return schema
