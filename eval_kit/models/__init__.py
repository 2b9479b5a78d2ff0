"""The architectures, each with its way of indexing and searching: any Hub id or folder becomes a retriever."""

import importlib
import inspect
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from eval_kit.errors import UserError
from eval_kit.search.retriever import Retriever

_CLASSES = {"dense": "Dense", "sparse": "Sparse", "multivector": "MultiVector", "cross": "Cross", "own": "Own"}
ARCHITECTURES = tuple(_CLASSES)


def retriever(architecture: str, model: str | Path, options: Mapping[str, Any], loaded: Any = None) -> Retriever:
    """A model as a retriever.

    Args:
        architecture: one of ``ARCHITECTURES``.
        model: Hub id or folder.
        options: of the architecture's class, by name; those it does not know (training options) are ignored.
        loaded: the model, if it is in memory.

    Raises:
        UserError: an unknown architecture, a checkpoint of another one, an option out of range.
    """
    if architecture not in ARCHITECTURES:
        raise UserError(f"there is no architecture {architecture!r}; there are {', '.join(ARCHITECTURES)}")
    names = options_of(architecture)
    chosen = {key: options[key] for key in options if key in names}
    retriever_of: Retriever = _class(architecture)(str(model), loaded=loaded, **chosen)
    return retriever_of


def options_of(architecture: str) -> dict[str, Any]:
    """The options that an architecture takes, with their types."""
    parameters = inspect.signature(_class(architecture), eval_str=True).parameters.values()
    return {
        parameter.name: parameter.annotation for parameter in parameters if parameter.name not in ("model", "loaded")
    }


def _class(architecture: str) -> Any:
    return getattr(importlib.import_module(f"eval_kit.models.{architecture}"), _CLASSES[architecture])
