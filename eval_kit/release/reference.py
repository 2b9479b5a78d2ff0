"""Published tables as data: one JSON file a paper, every figure as printed, to compare your own figures with.

Each table follows ``schemas/reference.schema.json``; its ``remarks`` name the paper's own errors.
"""

import json
from collections.abc import Mapping
from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any

_IN_PERCENT = ("loss", "delta", "share")
"""Figures that are fractions here and printed in percent."""


def ids() -> list[str]:
    """The ids that :func:`load` takes, sorted."""
    return sorted(_tables())


def load(id: str) -> dict[str, Any]:
    """The table of that id, such as ``ecir2023-table2``; a copy, for the caller to change.

    Raises:
        KeyError: there is no table of that id.
    """
    if id not in _tables():
        raise KeyError(f"no reference table {id!r}; there are {', '.join(ids())}")
    return deepcopy(_tables()[id])


def published_cells(id: str) -> list[dict[str, Any]]:
    """The cells of a table, each with ``source``: paper and table."""
    table = load(id)
    source = f"{table['paper']['venue']} {table['paper']['year']}, {table['table']}"
    return [{**cell, "source": source} for cell in table["cells"]]


def as_printed(cell: Mapping[str, Any]) -> str:
    """The figure of a cell with the decimals that the paper prints; losses, deltas and shares in percent, as there."""
    if cell["figure"] in _IN_PERCENT:
        return f"{cell['value']:.{cell['decimals'] - 2}%}"
    return f"{cell['value']:,.{cell['decimals']}f}"


@cache
def _tables() -> dict[str, dict[str, Any]]:
    """The tables by id, each with its paper."""
    tables = {}
    for file in (Path(__file__).parent / "printed_tables").glob("*.json"):
        paper = json.loads(file.read_text(encoding="utf-8"))
        for table in paper["tables"]:
            tables[table["id"]] = {**table, "paper": paper["paper"]}
    return tables
