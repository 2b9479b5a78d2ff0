"""Published tables as data: one JSON file a table, as printed, to compare one's own figures with.

Each file follows ``schemas/reference.schema.json``; its ``remarks`` name the slips of the paper itself.
"""

import json
from pathlib import Path
from typing import Any

_FOLDER = Path(__file__).parent


def ids() -> list[str]:
    """The ids that :func:`load` takes, sorted."""
    return sorted(path.stem for path in _FOLDER.glob("*.json"))


def load(id: str) -> dict[str, Any]:
    """The table of that id, such as ``ecir2023-table2``.

    Raises:
        KeyError: there is no table of that id.
    """
    if id not in ids():
        raise KeyError(f"no reference table {id!r}; there are {', '.join(ids())}")
    table: dict[str, Any] = json.loads((_FOLDER / f"{id}.json").read_text(encoding="utf-8"))
    return table
