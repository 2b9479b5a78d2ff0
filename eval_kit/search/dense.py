"""Exact search of dense vectors by inner product, or by distance.

It takes the vectors block by block: on a GPU with one matrix product of torch per block, from its memory where all
blocks fit; else from the disk with ``faiss.knn``.
"""

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eval_kit.errors import UserError
from eval_kit.search import resident
from eval_kit.search.shards import Shards
from eval_kit.search.topk import Ranking, TopK, device_of

BLOCK = 131_072
"""Passages searched at once: 400 MB of 768 float32 each."""
GROUP = 1_024
"""Queries whose scores are in memory at once."""

DISTANCES = {"euclidean": 2.0, "manhattan": 1.0}
"""Similarities that are a distance times -1: the exponent of each."""
SIMILARITIES = ("dot", "cosine", *DISTANCES)
type Similarity = str | Callable[[Any, Any], Any]
"""One of ``SIMILARITIES``, or a function of torch's tensors (q, d) and (n, d) that gives (q, n)."""
BY_DISTANCE = 8_192
"""Passages whose distances are in memory at once."""

type Vectors = NDArray[np.float32]


def unit(vectors: Vectors) -> Vectors:
    """The rows (n, d) at unit length, whose inner product is their cosine."""
    import torch

    scaled: Vectors = torch.nn.functional.normalize(torch.from_numpy(vectors), dim=1).numpy()
    return scaled


def numbers(rows: NDArray[Any], model: str) -> Vectors:
    """What a model gives as float32: numbers; rows of uint8 are packed bits, -1 or 1 each.

    The inner product of two such rows is their length less twice the Hamming distance.

    Warns:
        UserWarning: how whole numbers of eight bits are taken.
    """
    if rows.dtype == np.uint8:
        warnings.warn(
            f"The kit takes the uint8 rows of {model} for packed bits, compared by Hamming distance", stacklevel=2
        )
        return np.unpackbits(rows, axis=1).astype(np.float32) * 2 - 1
    if rows.dtype == np.int8:
        warnings.warn(f"The kit takes the int8 rows of {model} for numbers. Packed bits must be uint8", stacklevel=2)
    return rows.astype(np.float32)


def exact(
    queries: Vectors, shards: Shards, depth: int, device: str | None = None, similarity: Similarity = "dot"
) -> Ranking:
    """The ``depth`` passages, or all of fewer, most similar to each of the queries (q, d) of float32.

    The shards have the array ``vectors``. The device is for the matrix products in torch; None takes the GPU where
    there is one, else ``faiss.knn``. For cosine, the vectors are at unit length already.
    """
    import torch

    if queries.shape[1] != (width := shards.array("vectors").shape[1]):
        raise UserError(
            f"The model of the queries gives {queries.shape[1]} numbers, and the model of the passages {width}"
        )
    device_name = device_of(device)
    by_faiss = device is None and device_name.type == "cpu"
    rank = torch.from_numpy(shards.rank).to(device_name)
    top = TopK(depth, rank)
    groups = [
        torch.from_numpy(queries[start : start + GROUP]).to(device_name) for start in range(0, len(queries), GROUP)
    ]
    if not isinstance(similarity, str) or similarity in DISTANCES:
        for start, arrays in shards.blocks(BY_DISTANCE):
            block = torch.from_numpy(np.array(arrays["vectors"], np.float32)).to(device_name)
            rows = torch.arange(start, start + len(block), device=device_name)
            for number, group in enumerate(groups):
                if isinstance(similarity, str):
                    alike = -torch.cdist(group, block, p=DISTANCES[similarity])
                else:
                    alike = torch.as_tensor(similarity(group, block), dtype=torch.float32, device=device_name)
                top.add(number, alike, rows)
        return top.hits(shards.ids)
    if by_faiss:
        for start, arrays in shards.blocks(BLOCK):
            vectors = np.asarray(arrays["vectors"], np.float32)
            for number, group in enumerate(groups):
                scores, columns = _knn(group.numpy(), vectors, depth)
                top.add(number, torch.from_numpy(scores), torch.from_numpy(columns) + start)
        return top.hits(shards.ids)
    on_device = resident.blocks(
        shards, BLOCK, device_name, lambda arrays: torch.from_numpy(np.array(arrays["vectors"])).to(device_name)
    )
    for start, block in on_device:
        vectors_t, rows = block.float().T, torch.arange(start, start + len(block), device=device_name)
        for number, group in enumerate(groups):
            top.add(number, group @ vectors_t, rows)
    return top.hits(shards.ids)


def _knn(queries: Vectors, block: Vectors, depth: int) -> tuple[Vectors, NDArray[np.int64]]:
    """``faiss.knn`` with at least ``depth`` columns: enough for every passage that shares the last score."""
    import faiss

    width = min(depth + 1, len(block))
    while True:
        scores, rows = faiss.knn(queries, block, width, metric=faiss.METRIC_INNER_PRODUCT)
        if width == len(block) or (scores[:, -1] < scores[:, depth - 1]).all():
            return scores, rows
        width = min(2 * width, len(block))
