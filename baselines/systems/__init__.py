"""One module per system; each is a :class:`System`."""

import hashlib
import importlib
import pkgutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol, cast

from baselines.cells.cell import Cell
from baselines.cells.journal import Report
from eval_kit.errors import UserError
from eval_kit.search.candidates import BM25
from eval_kit.search.passages import collection_key
from eval_kit.search.retriever import Retriever

SYSTEMS = tuple(sorted(module.name for module in pkgutil.iter_modules(__path__)))


class System(Protocol):
    """A way of training and searching.

    Attributes:
        TITLE: what it is, for the card of a trained model.
        IS_TRAINED: whether it learns from the training queries of a cell.
        TAKES_BACKBONE: whether it starts from the transformer of ``--backbone``.
        SHARES_INDEX: whether passages are indexed without the trained model, so that all cells of a grid use one index.
    """

    TITLE: str
    IS_TRAINED: bool
    TAKES_BACKBONE: bool
    SHARES_INDEX: bool

    def train(self, cell: Cell, progress: Report | None = None) -> dict[str, Any]:
        """Put the trained model in ``cell.model`` and return facts about the training.

        A killed training resumes where it stopped. ``progress`` is called with ``step``, ``steps``, ``loss``.
        """

    def retriever(self, model: str | Path, options: Mapping[str, Any]) -> Retriever:
        """The trained model, to index and search with."""


def base(name: str) -> str:
    """The system that a variant is of: ``biencoder`` for ``biencoder-roberta``."""
    return name.partition("-")[0]


def system(name: str) -> System:
    """The module of a system, or of the system that a variant is of.

    Raises:
        UserError: there is none of that name.
    """
    if base(name) not in SYSTEMS:
        raise UserError(f"there is no system {base(name)!r}; there are {', '.join(SYSTEMS)}")
    return cast(System, importlib.import_module(f"baselines.systems.{base(name)}"))


def is_trained(name: str) -> bool:
    """Whether a system learns from training queries; any system that the kit does not know counts as trained."""
    return base(name) not in SYSTEMS or system(name).IS_TRAINED


def index_folder(cell: Cell) -> Path:
    """Where the index of a cell's passages is: in the cell's folder, or in the grid's if its system shares it."""
    if not system(cell.name.system).SHARES_INDEX:
        return cell.own_index
    return shared_index(cell) / BM25 if base(cell.name.system) == "bm25" else shared_index(cell)


def shared_index(cell: Cell) -> Path:
    """The folder that all cells with untrained indexes share: BM25's index, and a re-ranker's texts."""
    key = hashlib.sha256(collection_key(cell.release).encode()).hexdigest()
    return cell.root / "indexes" / key[:16]
