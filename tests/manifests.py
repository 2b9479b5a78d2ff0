"""Manifests that tests edit as JSON."""

from typing import Any

import msgspec

from eval_kit.documents import NAME, Column, Manifest, Rule, TableEntry, TestSetEntry
from eval_kit.files import digests


def release_digest(document: dict[str, Any]) -> str:
    """The digest that fits the document; the one that it has if no manifest can be made of it."""
    try:
        return digests.release_digest(msgspec.convert(document, Manifest))
    except msgspec.ValidationError:
        return str(document["digest"])


def made_up(tables: list[TableEntry], test_sets: list[TestSetEntry], kind: str = "mini") -> Manifest:
    """The manifest of a release that exists in memory alone."""
    return Manifest(
        name=NAME,
        version="0.0.0",
        schema_version=1,
        kind=kind,
        collection=None,
        code_version="0",
        seed=None,
        tables=tables,
        test_sets=test_sets,
        inputs=[],
        missing=[],
        remarks=[],
        digest="0" * 64,
    )


def table(config: str, split: str, labels: tuple[str, list[str]] | None = None) -> TableEntry:
    """A table, with the column of labels that it may have."""
    columns = [] if labels is None else [Column(name=labels[0], type="label", labels=labels[1])]
    rule = Rule("made up", "tests")
    return TableEntry(config, split, "", 0, columns, "0" * 64, rule, "0" * 64)
