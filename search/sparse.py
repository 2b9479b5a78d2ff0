"""Search of sparse vectors by inner product, exact, through an inverted index of each shard.

The shards hold each term's postings as a CSR matrix (``indptr``, ``indices``, ``values``, and ``passages``, its width).
On a CPU scipy walks the postings of a query's terms; on a GPU it is one sparse product in torch.
"""

import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np

from search.shards import Arrays, Shards
from search.topk import TopK, device_of

GROUP = 256
"""Queries whose scores are in memory at once."""


def arrays_of(matrix: Any) -> Arrays:
    """What a shard holds of its passages, from a scipy CSR matrix (passages, terms) of float32."""
    postings = matrix.T.tocsr()
    return {
        "indptr": postings.indptr.astype(np.int32),
        "indices": postings.indices.astype(np.int32),
        "values": postings.data.astype(np.float32),
        "passages": np.array([matrix.shape[0]]),
    }


def postings_of(arrays: Arrays) -> Any:
    """The scipy CSR matrix (terms, passages) of a shard."""
    from scipy.sparse import csr_matrix

    shape = (len(arrays["indptr"]) - 1, int(arrays["passages"][0]))
    return csr_matrix((arrays["values"], arrays["indices"], arrays["indptr"]), shape=shape)


def exact(queries: Any, shards: Shards, depth: int, device: str | None = None) -> Iterator[list[tuple[str, float]]]:
    """The ``depth`` passages of greatest inner product with each of the queries, among those that share a term with it.

    Args:
        queries: scipy CSR matrix (q, terms) of float32, without negative weights.
        shards: of such passages.
        depth: passages a query.
        device: for torch; None takes the GPU where there is one, else scipy.
    """
    import torch

    chosen = device_of(device)
    by_scipy = device is None and chosen.type == "cpu"
    top = TopK(depth, torch.from_numpy(shards.rank).to(chosen), above=0.0)
    groups = [queries[first : first + GROUP] for first in range(0, queries.shape[0], GROUP)]
    if not by_scipy:
        groups = [torch.from_numpy(group.toarray().T.copy()).to(chosen) for group in groups]
    for start, arrays in shards:
        postings = postings_of(arrays)
        block = postings if by_scipy else _to_torch(postings.T.tocsr()).to(chosen)
        rows = torch.arange(start, start + postings.shape[1], device=chosen)
        for number, group in enumerate(groups):
            scores = torch.from_numpy((group @ block).toarray()) if by_scipy else (block @ group).T
            top.add(number, scores, rows)
    return top.hits(shards.ids)


def _to_torch(matrix: Any) -> Any:
    import torch

    starts, terms, values = (torch.from_numpy(np.array(part)) for part in (matrix.indptr, matrix.indices, matrix.data))
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Sparse", UserWarning)  # torch calls its CSR tensors a beta
        return torch.sparse_csr_tensor(starts.long(), terms.long(), values, size=matrix.shape, check_invariants=False)
