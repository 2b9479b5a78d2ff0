"""BM25 by Lucene: no training, but k1 and b may be tuned on the validation queries."""

import json
from collections.abc import Mapping
from itertools import product
from pathlib import Path
from typing import Any

import msgspec
import polars as pl

from baselines.cell import Cell
from baselines.options import Bm25 as Bm25Options
from baselines.options import Monobert
from baselines.systems import shared_index
from eval_kit.files import atomic
from eval_kit.models.bm25 import Bm25
from eval_kit.release import Release
from eval_kit.search.candidates import BM25
from eval_kit.search.passages import passages
from eval_kit.search.retriever import Retriever

TITLE = "BM25, weights of terms by their frequency"
K1 = (0.5, 0.7, 0.9, 1.1, 1.3, 1.5)
B = (0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
_PARAMETERS = "bm25.json"
_CUTOFF = 10


def train(cell: Cell, _: Any = ()) -> dict[str, float]:
    """With the option ``tune``, put the k1 and b of :func:`tuned_parameters` in the cell's model; else do nothing.

    A cell of monoBERT may have that option too.
    """
    assert isinstance(cell.options, Bm25Options | Monobert)
    if not cell.options.tune:
        return {}
    parameters = tuned_parameters(cell)
    cell.model.mkdir(parents=True, exist_ok=True)
    atomic.write_text(cell.model / _PARAMETERS, json.dumps(parameters) + "\n")
    return parameters


def retriever(model: str | Path, options: Mapping[str, Any]) -> Retriever:
    """Search with the tuned parameters, else with those of the options."""
    settings = {name: options[name] for name in ("k1", "b") if name in options}
    return Bm25(**settings | kept_parameters(model, options))


def tuned_parameters(cell: Cell) -> dict[str, float]:
    """The k1 and b that :func:`tune` chooses, once for all cells of a grid; kept beside the index."""
    folder = shared_index(cell) / BM25
    path = folder / f"tuned-{cell.release.digest[:16]}.json"
    with atomic.lock(path):
        if not path.is_file():
            Bm25().index(passages(cell.release), folder)
            k1, b = tune(cell.release, folder)
            atomic.write_text(path, json.dumps({"k1": k1, "b": b}) + "\n")
    return msgspec.json.decode(path.read_bytes(), type=dict[str, float])


def kept_parameters(model: str | Path, options: Mapping[str, Any]) -> dict[str, float]:
    """The k1 and b that :func:`train` has left in a model, if the option ``tune`` is set."""
    path = Path(model) / _PARAMETERS
    if not options.get("tune", False) or not path.is_file():
        return {}
    return msgspec.json.decode(path.read_bytes(), type=dict[str, float])


def tune(release: Release, folder: Path) -> tuple[float, float]:
    """The k1 and b from ``K1`` × ``B`` with the greatest RR@10 on the validation queries; of equals, the first."""
    queries = release.table("validation", "validation").unique("query_id", maintain_order=True)
    qrels = release.qrels("validation").filter(pl.col("relevance") >= 1)
    relevant = dict(qrels.group_by("query_id").agg(pl.col("passage_id")).iter_rows())
    figures: dict[tuple[float, float], float] = {}
    for k1, b in product(K1, B):
        hits = Bm25(k1, b).search(queries, folder, _CUTOFF)
        figures[k1, b] = sum(_reciprocal_rank(ranking, relevant.get(query, ())) for query, ranking in hits)
    return max(figures, key=lambda point: figures[point])


def _reciprocal_rank(ranking: list[tuple[str, float]], relevant: list[str] | tuple[()]) -> float:
    return next((1 / rank for rank, (passage, _) in enumerate(ranking, start=1) if passage in relevant), 0.0)
