"""Open what a user names as a system: BM25, a published checkpoint, a model, or an object of one's own."""

import importlib.util
import inspect
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, get_args

from eval_kit.errors import UserError, did_you_mean
from eval_kit.files import checkpoint
from eval_kit.files.strict_json import decode
from eval_kit.models import checkpoints, own
from eval_kit.models.bm25 import Bm25
from eval_kit.search.retriever import Retriever

_CLASSES = {"dense": "Dense", "sparse": "Sparse", "multivector": "MultiVector", "cross": "Cross", "own": "Own"}
ARCHITECTURES = tuple(_CLASSES)
BM25 = "bm25"
_MULTIFIELD = "bm25-multifield"
"""BM25 over title and text as two fields, as in BEIR (Thakur et al. 2021, §4)."""
_OF_DENSE = {"pooling", "similarity"}
"""Options that show a model to be dense whose files do not say what it is."""


KINDS = {"dense": "dense", "sparse": "sparse", "late": "multivector", "cross": "cross"}
"""What a user may call a model whose files do not tell, and its architecture."""


def open_retriever(
    name: str, options: Mapping[str, Any] | None = None, kind: str | None = None, loaded: Any = None
) -> tuple[Retriever, list[str] | None]:
    """The system as a retriever, by the kind that its files show, and what it was trained on; None where unknown.

    Args:
        name: ``bm25``, ``bm25-multifield``; a name of :func:`eval_kit.models.checkpoints.load`; a Hub id or folder of
            a sentence-transformers model, with ``:cls`` after it for the option ``pooling=cls``; or ``module:object``
            of an object of your own (see :mod:`eval_kit.models.own`).
        options: of its architecture, by name; they replace a checkpoint's own.
        kind: one of ``KINDS``, for a model whose files do not say what it is.
        loaded: the model, if it is in memory: of sentence-transformers, or any object as for ``module:object``.
    """
    options = dict(options or {})
    if kind is not None and kind not in KINDS:
        raise UserError(f"Unknown kind of model {kind!r}", do=f"Choose from: {', '.join(KINDS)}")
    if loaded is None and name in (BM25, _MULTIFIELD):
        _refuse_unfit(options, {one.name: one.type for one in fields(Bm25) if one.name not in ("key", "corpus")}, name)
        return Bm25(**options | ({"fields": True} if name == _MULTIFIELD else {})), []
    entry = checkpoints.load().get(name) if loaded is None else None
    if loaded is None:
        name, pooling = checkpoint.name_and_pooling(name)
        options = {"pooling": pooling} | options if pooling else options
    model, architecture, card = name, None, None
    if entry is not None and not Path(name).exists():
        model, architecture, options = entry.model, entry.architecture, entry.options | options
    if architecture is None:
        if importlib.util.find_spec("sentence_transformers") is None:
            raise UserError(
                f"{name} needs sentence-transformers 6.2 or newer", do="In a clone, run: pip install '.[models]'"
            )
        if loaded is None and ":" in name and not Path(name).exists():
            loaded = own.import_object(name)
        if loaded is not None:
            architecture = checkpoint.kind_of_object(loaded) or "own"
        else:
            architecture = KINDS[kind] if kind else _architecture(name, options)
            card = checkpoint.card(name)
    _refuse_unfit(options, options_of(architecture), architecture)
    opened = retriever(architecture, model, options, loaded)
    return opened, None if loaded is not None else checkpoints.declared_data(model, card)


def retriever(architecture: str, model: str | Path, options: Mapping[str, Any], loaded: Any = None) -> Retriever:
    """A model as a retriever.

    Options that the architecture's class does not know (training options) are ignored. ``loaded`` is the model, if it
    is in memory.
    """
    if architecture not in ARCHITECTURES:
        raise UserError(f"Unknown architecture {architecture!r}", do=f"Choose from: {', '.join(ARCHITECTURES)}")
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


def parse_options(options: Sequence[str]) -> dict[str, Any]:
    """``KEY=VALUE`` pairs; a value that reads as a number, ``true`` or ``false`` is one."""
    pairs: dict[str, Any] = {}
    for option in options:
        key, equals, value = option.partition("=")
        if not key or not equals:
            raise UserError(f"--option {option} is not of the form KEY=VALUE")
        try:
            pairs[key] = decode(value)
        except ValueError:
            pairs[key] = value
    return pairs


def _architecture(name: str, options: Mapping[str, Any]) -> str:
    try:
        kind = checkpoint.kind(name)
    except UserError as error:
        raise UserError(f"{error}{did_you_mean(name, [*checkpoints.load(), BM25, _MULTIFIELD])}") from None
    if kind not in checkpoint.BARE:
        return kind
    if not _OF_DENSE.isdisjoint(options):
        return "dense"
    pooling = "add --option pooling=cls"
    if kind == "causal":
        what = f"{name} is a generative language model, so the kit uses it as a re-ranker"
        warnings.warn(f"{what}. If it is dense, {pooling.replace('cls', 'lasttoken')}", stacklevel=2)
        return "cross"
    if kind == "seq2seq":
        raise UserError(
            f"{name} generates text from text, as monoT5 does",
            "sentence-transformers does not open such re-rankers",
            f"If it is dense, {pooling}",
        )
    if kind == "transformer":
        raise UserError(
            f"{name} is a bare transformer and does not say how to make vectors",
            do=f"{pooling[0].upper()}{pooling[1:]}, or save it with sentence-transformers",
        )
    what = f"{name} is a masked language model, so the kit uses it as SPLADE"
    warnings.warn(f"{what}. If it is dense, {pooling}", stacklevel=2)
    return "sparse"


def _refuse_unfit(options: Mapping[str, Any], known_options: Mapping[str, Any], owner: str) -> None:
    for key, value in options.items():
        if key not in known_options:
            raise UserError(
                f"{owner} has no option {key!r}", do=f"Choose from: {', '.join(known_options)}" if known_options else ""
            )
        allowed_types = known_options[key]
        is_odd_bool = isinstance(value, bool) and bool not in (allowed_types, *get_args(allowed_types))
        if is_odd_bool or not isinstance(value, int | float if allowed_types is float else allowed_types):
            type_name = getattr(allowed_types, "__name__", str(allowed_types))
            raise UserError(f"The option {key} of {owner} is of type {type_name}, not {value!r}")
