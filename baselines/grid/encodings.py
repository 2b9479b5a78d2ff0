"""Encodings that a grid keeps: bi-encoders' query vectors for R (ECIR 2023 §5.2), and SPLADE's sparsity (§5.1)."""

import json
from typing import Any

import numpy as np
import polars as pl

from baselines import systems
from baselines.cell import Cell
from eval_kit.files import atomic
from eval_kit.models.dense import Dense
from eval_kit.models.sparse import Sparse
from eval_kit.search import shards
from eval_kit.search.retriever import Retriever
from eval_kit.shifts import TRAINED_FOR
from eval_kit.stats.similarity import test_and_training


def keep_encodings(cell: Cell, retriever: Retriever) -> None:
    """Write a retriever's query vectors or sparsity, unless that was done; its passages must be indexed."""
    if (
        isinstance(retriever, Dense)
        and TRAINED_FOR[cell.name.shift].has_clusters
        and not cell.query_vectors[0].is_file()
    ):
        _keep_vectors(cell, retriever)
    if isinstance(retriever, Sparse) and not cell.sparsity.is_file():
        _keep_sparsity(cell, retriever)


def _keep_vectors(cell: Cell, retriever: Dense) -> None:
    """Vectors of the held-out cluster's test queries and of the other clusters' training queries, float32."""
    queries = pl.concat(test_and_training(cell.release, cell.name.shift, cell.name.held_out)).unique(
        "query_id", keep="first", maintain_order=True
    )
    vectors, ids = cell.query_vectors
    atomic.write_lines(ids, queries["query_id"])
    with atomic.whole(vectors) as part, part.open("wb") as file:
        np.save(file, retriever.encode_queries(queries["text"].to_list()))


def _keep_sparsity(cell: Cell, retriever: Sparse) -> None:
    """The mean number of non-zero weights of the test queries and of the passages."""
    vectors: Any = retriever.encode_queries(cell.test_queries()["text"].to_list())
    passages = shards.read(systems.index_folder(cell))
    means = {"query": vectors.nnz / vectors.shape[0], "passage": int(passages.offsets[-1]) / len(passages)}
    atomic.write_text(cell.sparsity, json.dumps(means) + "\n")
