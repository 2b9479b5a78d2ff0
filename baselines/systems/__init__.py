"""One module per system; each is a :class:`System`."""

import hashlib
import importlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, cast

from baselines.cell import Cell
from baselines.options import Bm25, Monobert
from eval_kit.runs.names import base
from eval_kit.search.candidates import BM25
from eval_kit.search.passages import collection_key
from eval_kit.search.retriever import Retriever

if TYPE_CHECKING:
    from transformers import TrainerCallback


class System(Protocol):
    """A way of training and searching; its ``TITLE`` is for the card of a trained model."""

    TITLE: str

    def train(self, cell: Cell, callbacks: "Sequence[TrainerCallback]" = ()) -> dict[str, Any]:
        """Put the trained model in ``cell.model`` and return facts about the training.

        A killed training resumes where it stopped, a finished one is not done again. Only training by a trainer
        calls the ``callbacks``.
        """

    def retriever(self, model: str | Path, options: Mapping[str, Any]) -> Retriever:
        """The trained model, to index and search with."""


def system(name: str) -> System:
    """The module of a system of a config, or of the system that a variant is of."""
    return cast(System, importlib.import_module(f"baselines.systems.{base(name)}"))


def index_folder(cell: Cell) -> Path:
    """Where the index of a cell's passages is: in the cell's folder, or in the grid's if no trained model makes it."""
    if isinstance(cell.options, Bm25):
        return shared_index(cell) / BM25
    return shared_index(cell) if isinstance(cell.options, Monobert) else cell.own_index


def shared_index(cell: Cell) -> Path:
    """The folder that all cells with untrained indexes share: BM25's index, and a re-ranker's texts."""
    key = hashlib.sha256(collection_key(cell.release).encode()).hexdigest()
    return cell.root / "indexes" / key[:16]
