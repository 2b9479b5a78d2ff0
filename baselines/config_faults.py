"""What is wrong with a config, by ``schemas/config.schema.json``, which holds rules about several options."""

import functools
import json
from itertools import chain
from pathlib import Path
from typing import Any

SCHEMA = Path(__file__).parents[1] / "schemas" / "config.schema.json"


def faults_of(document: Any) -> list[Any]:
    """All that is wrong with a config: jsonschema's errors, with ``json_path`` and ``message``, by path."""
    faults = chain.from_iterable(map(_parts, _validator().iter_errors(document)))
    return sorted(faults, key=lambda fault: str(fault.json_path))


def _parts(fault: Any) -> list[Any]:
    """What is wrong with a value that may be null or of several kinds: its faults as the kind that it is, if any."""
    as_value = [part for part in fault.context if part.schema != {"type": "null"} and fault.validator != "oneOf"]
    as_its_kind = [part for part in as_value if part.path or part.validator not in ("type", "enum")]
    return as_its_kind or as_value or [fault]


@functools.cache
def _validator() -> Any:
    from jsonschema import Draft202012Validator
    from jsonschema.validators import extend

    def integer(checker: Any, value: Any) -> bool:
        """Python's integers alone; 1.0 is not one."""
        return isinstance(value, int) and not isinstance(value, bool)

    types = Draft202012Validator.TYPE_CHECKER.redefine("integer", integer)
    return extend(Draft202012Validator, type_checker=types)(json.loads(SCHEMA.read_text(encoding="utf-8")))
