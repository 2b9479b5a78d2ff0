"""Search of sparse vectors by inner product, or by distance, exact.

The shards hold the terms of each passage as a CSR matrix (passages, terms): ``indices`` and ``values``, one row per
weight, and ``lengths`` (weights of each passage). On a CPU scipy walks the postings of a query's terms, made for one
block of passages at a time; on a GPU each block is one sparse product in torch, from its memory where all fit there.
"""

import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np

from eval_kit.search import resident
from eval_kit.search.dense import DISTANCES
from eval_kit.search.shards import Arrays, Shards
from eval_kit.search.topk import TopK, device_of

BLOCK = 131_072
"""Passages searched at once: 130 MB of 130 weights each."""
GROUP = 256
"""Queries whose scores are in memory at once."""


def arrays_of(matrix: Any) -> Arrays:
    """A shard's arrays from a scipy CSR matrix (passages, terms) of float32."""
    return {
        "indices": matrix.indices.astype(np.int32, copy=False),
        "values": matrix.data.astype(np.float32, copy=False),
        "lengths": np.diff(matrix.indptr).astype(np.int32),
    }


BY_DISTANCE = 1_024
"""Passages whose distances are in memory at once, each as wide as the vocabulary."""


def unit(matrix: Any) -> Any:
    """The rows of a CSR matrix at unit length, whose inner product is their cosine; empty ones stay so."""
    lengths = np.sqrt(np.asarray(matrix.multiply(matrix).sum(axis=1)).ravel())
    scaled = matrix.copy()
    scaled.data = (matrix.data / np.repeat(lengths, np.diff(matrix.indptr))).astype(np.float32)
    return scaled


def exact(
    queries: Any, shards: Shards, depth: int, device: str | None = None, similarity: str = "dot"
) -> Iterator[list[tuple[str, float]]]:
    """The ``depth`` passages of greatest inner product with each of the queries, among those that share a term with it.

    For ``euclidean`` and ``manhattan``, and where weights are negative, they are the nearest of all passages.

    The queries are a scipy CSR matrix (q, terms) of float32, as the passages are. The device is for torch; None takes
    the GPU where there is one, else scipy.
    """
    import torch

    device_name = device_of(device)
    by_scipy = device is None and device_name.type == "cpu"
    rank = torch.from_numpy(shards.rank).to(device_name)
    is_signed = (queries.data < 0).any() or (shards.array("values")[:BLOCK] < 0).any()
    top = TopK(depth, rank) if similarity in DISTANCES or is_signed else TopK(depth, rank, above=0.0)
    groups = [queries[first : first + GROUP] for first in range(0, queries.shape[0], GROUP)]
    if similarity in DISTANCES:
        for start, arrays in shards.blocks(BY_DISTANCE):
            block = torch.from_numpy(_matrix(arrays, queries.shape[1]).toarray()).to(device_name)
            rows = torch.arange(start, start + len(block), device=device_name)
            for number, group in enumerate(groups):
                vectors = torch.from_numpy(group.toarray()).to(device_name)
                top.add(number, -torch.cdist(vectors, block, p=DISTANCES[similarity]), rows)
        return top.hits(shards.ids)
    if by_scipy:
        for start, arrays in shards.blocks(BLOCK):
            postings = _matrix(arrays, queries.shape[1]).T.tocsr()
            rows = torch.arange(start, start + len(arrays["lengths"]))
            for number, group in enumerate(groups):
                top.add(number, torch.from_numpy((group @ postings).toarray()), rows)
        return top.hits(shards.ids)
    columns = [torch.from_numpy(group.toarray().T.copy()).to(device_name) for group in groups]
    on_device = resident.blocks(
        shards, BLOCK, device_name, lambda arrays: _to_torch(_matrix(arrays, queries.shape[1])).to(device_name)
    )
    for start, block in on_device:
        rows = torch.arange(start, start + len(block), device=device_name)
        for number, column in enumerate(columns):
            top.add(number, (block @ column).T, rows)
    return top.hits(shards.ids)


def _matrix(arrays: Arrays, terms: int) -> Any:
    """The scipy CSR matrix (passages, terms) of a block."""
    from scipy.sparse import csr_matrix

    starts = np.concatenate([[0], np.cumsum(arrays["lengths"])]).astype(np.int32)
    return csr_matrix((arrays["values"], arrays["indices"], starts), shape=(len(arrays["lengths"]), terms))


def _to_torch(matrix: Any) -> Any:
    import torch

    starts, terms, values = (torch.from_numpy(np.array(part)) for part in (matrix.indptr, matrix.indices, matrix.data))
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Sparse", UserWarning)  # torch calls its CSR tensors a beta
        return torch.sparse_csr_tensor(starts, terms, values, size=matrix.shape, check_invariants=False)
