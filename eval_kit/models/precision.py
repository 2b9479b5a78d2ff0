"""Whether a model finds the same again, and in 16 bits what it finds in 32: seen on a few texts, before all others."""

import copy
import warnings
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from eval_kit.errors import UserError
from eval_kit.models.cross import Cross
from eval_kit.models.encoder import Encoder, PretrainedModel
from eval_kit.search import shards
from eval_kit.search.retriever import Retriever

_MOST_WEIGHTS = 2_000_000_000
"""Of a model that is checked: its copy in float32 takes four bytes for each."""
_SWAPPED, _MOVED = 0.05, 0.01
"""Shares of what may differ: of pairs of passages in another order, and of the greatest similarity."""

type _Similarities = NDArray[np.float64]


def checked(retriever: Retriever, queries: Sequence[str], passages: Sequence[str]) -> tuple[Retriever, str]:
    """The model, or the same in float32 where 16 bits change what it finds and nobody asked for them.

    Returns:
        The retriever to take, and what was seen; empty where there was nothing to check.

    Warns:
        UserWarning: how much 16 bits change, or other texts in the batch.
    """
    if not isinstance(retriever, PretrainedModel):
        return retriever, ""
    is_half = "16" in retriever.dtype
    if sum(weights.numel() for weights in retriever.of_role("document").parameters()) > _MOST_WEIGHTS:
        return retriever, "not compared with float32, as it has more than two billion weights" * is_half
    _check_repeats(retriever, queries[::4], passages[::4])
    if not is_half:
        return retriever, ""
    if retriever.loaded is None:
        wide = replace(retriever, encode_precision="float32")
    else:
        wide = replace(retriever, loaded=copy.deepcopy(retriever.loaded).float())
    narrow, why = similarities(retriever, queries, passages)
    wanted, failed = similarities(wide, queries, passages)
    if wanted is None:
        if narrow is None:
            raise UserError(failed)
        return retriever, f"not compared with float32: {failed}"
    if narrow is not None:
        pairs = (each[:, :, None] - each[:, None] for each in (narrow, wanted))
        swapped = float(np.mean(np.prod([*pairs], axis=0) < 0))
        moved = float(np.abs(narrow - wanted).max() / np.abs(wanted).max().clip(1e-12))
        why = f"of pairs of passages {swapped:.1%} swap, and a similarity moves by {moved:.1%}, compared with float32"
        if swapped <= _SWAPPED and moved <= _MOVED:
            return retriever, why
    is_chosen = retriever.encode_precision is not None or retriever.loaded is not None
    taken = f"{retriever.dtype}, as asked" if is_chosen else f"float32, not {retriever.dtype}"
    warnings.warn(f"The kit computes {retriever.model} in {taken}: {why}", stacklevel=2)
    return (retriever if is_chosen else wide), why


def _check_repeats(retriever: PretrainedModel, queries: Sequence[str], passages: Sequence[str]) -> None:
    """Refuse a model that finds something else when it is opened again; say it of one whose texts depend on others."""
    found, _ = similarities(retriever, queries, passages)
    again, _ = similarities(retriever if retriever.loaded is not None else replace(retriever), queries, passages)
    alone, _ = similarities(retriever, queries[:1], passages[:1])
    if found is None or again is None or alone is None:
        return
    most = np.abs(found).max().clip(1e-12)
    if np.abs(found - again).max() > _MOVED * most:
        raise UserError(f"{retriever.model} finds something else whenever it is opened", "A part of it is in no file")
    moved = abs(found[0, 0] - alone[0, 0]) / most
    if moved > (_MOVED if "16" in retriever.dtype else 1e-4):
        what = f"A text alone and beside longer ones differs by {moved:.1%}, so figures depend on the batch"
        warnings.warn(f"{what}, which the kit cannot change in {retriever.model}", stacklevel=3)


def similarities(model: Any, queries: Sequence[str], passages: Sequence[str]) -> tuple[_Similarities | None, str]:
    """What a search by a model finds: the similarity of each query and passage (q, n); None, and why, if it fails."""
    found = np.zeros((len(queries), len(passages)))
    try:
        if isinstance(model, Cross):
            scores = model.scores([(query, passage) for query in queries for passage in passages])
            return scores.astype(np.float64).reshape(found.shape), ""
        with TemporaryDirectory() as folder:
            numbered = [(str(row), text) for row, text in enumerate(passages)]
            if isinstance(model, Encoder):  # not by index(), which takes every GPU
                model.build(shards.write(numbered, Path(folder), model.encode_passages, ""), Path(folder))
            else:
                model.index(numbered, Path(folder))
            frame = pl.DataFrame({"query_id": list(map(str, range(len(queries)))), "text": queries})
            for row, (_, hits) in enumerate(model.search(frame, Path(folder), len(passages))):
                for passage, score in hits:
                    found[row, int(passage)] = score
        return found, ""
    except UserError as error:
        return None, str(error)
