"""One module a system, each with ``train`` and ``retriever``."""

import importlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol, cast

from baselines.grid.cell import Cell
from baselines.grid.journal import Report
from eval_kit.errors import UserError
from search.retriever import Retriever

SYSTEMS = ("bm25", "biencoder", "splade", "colbert", "monobert")


class System(Protocol):
    """A way of training and searching."""

    def train(self, cell: Cell, progress: Report | None = None) -> dict[str, Any]:
        """Put the trained model in ``cell.model`` and return what is worth knowing of the training.

        What a killed training has done is not done again. ``progress`` is told ``step``, ``steps`` and ``loss``.
        """

    def retriever(self, model: str | Path, options: Mapping[str, Any]) -> Retriever:
        """The trained model, to index and search with."""


def system(name: str) -> System:
    """The module of a system.

    Raises:
        UserError: there is none of that name.
    """
    if name not in SYSTEMS:
        raise UserError(f"there is no system {name!r}; there are {', '.join(SYSTEMS)}")
    return cast(System, importlib.import_module(f"baselines.systems.{name}"))
