"""The columns of a table as the ``datasets`` library describes them."""

from collections.abc import Mapping, Sequence
from typing import Any


def features(columns: Sequence[Mapping[str, Any]]) -> Any:
    """The ``datasets.Features`` of the manifest's columns: ClassLabel for labels, so that they keep their names."""
    from datasets import ClassLabel, Features, List, Value

    kinds = {"string": Value("string"), "int64": Value("int64"), "list<string>": List(Value("string"))}
    return Features(
        {
            column["name"]: ClassLabel(names=column["labels"]) if column["type"] == "label" else kinds[column["type"]]
            for column in columns
        }
    )
