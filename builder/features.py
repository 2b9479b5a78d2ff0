"""The columns of a release's tables as the library ``datasets`` calls them."""

from collections.abc import Sequence
from typing import Any

from eval_kit.documents import Column


def features(columns: Sequence[Column]) -> Any:
    """The ``datasets.Features`` of the manifest's columns: ClassLabel for labels, so that they keep their names."""
    from datasets import ClassLabel, Features, List, Value

    kinds = {"string": Value("string"), "int64": Value("int64"), "list<string>": List(Value("string"))}
    return Features(
        {column.name: ClassLabel(names=column.labels) if column.labels else kinds[column.type] for column in columns}
    )
