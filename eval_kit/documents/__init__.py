"""The documents that the kit reads, as typed classes from which their files in ``schemas/`` are generated.

A document from outside is checked as it becomes an object (:func:`eval_kit.files.strict_json.load`): only this package
knows how its keys are spelt.
"""

from typing import Any

from eval_kit.documents.cell import FinishedCell
from eval_kit.documents.document import MS_MARCO, NAME, Count, Document, Text, schema_of
from eval_kit.documents.release import (
    LANGUAGE,
    VERSION,
    Column,
    ColumnType,
    Input,
    Lack,
    Manifest,
    Rule,
    TableEntry,
    TestSetEntry,
    Variation,
)
from eval_kit.documents.training import Compared, Training

DOCUMENTS: dict[str, type[Document]] = {"cell": FinishedCell, "release": Manifest, "training": Training}
"""The classes by the names of their schemas."""


def schema(name: str) -> dict[str, Any]:
    """The JSON Schema (2020-12) of a document of :data:`DOCUMENTS`."""
    return schema_of(DOCUMENTS[name], name.capitalize())
