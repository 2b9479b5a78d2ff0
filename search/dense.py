"""Search of dense vectors by inner product: exact, or by faiss's HNSW and IVF indexes.

The exact search takes the vectors block by block: on a GPU with one matrix product of torch per block, from its
memory where all blocks fit; else from the disk with ``faiss.knn``. The two faiss indexes hold all vectors in memory.
"""

import math
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eval_kit.errors import UserError
from eval_kit.files import atomic
from search import resident
from search.shards import Shards, building, is_built
from search.topk import Ranking, TopK, device_of

INDEXES = ("flat", "hnsw", "ivf")
BLOCK = 131_072
"""Passages searched at once: 400 MB of 768 float32 each."""
GROUP = 1_024
"""Queries whose scores are in memory at once."""
HNSW_LINKS, HNSW_BUILD, HNSW_SEARCH = 32, 200, 256
IVF_SAMPLE = 64
"""Vectors per list from which the IVF centroids are learnt."""
IVF_PROBES = 32

type Vectors = NDArray[np.float32]


def build(shards: Shards, kind: str, folder: Path) -> None:
    """Make the faiss index of ``kind`` in ``folder``, unless it is there; a flat search needs none.

    HNSW is built on one thread: its graph depends on the order in which vectors are linked.

    Raises:
        UserError: a kind that is not in ``INDEXES``; the disk is full.
    """
    check_kind(kind)
    if kind == "flat":
        return

    with building(folder, "faiss", _state(shards, kind)) as missing:
        if not missing:
            return
        index = _hnsw(shards) if kind == "hnsw" else _ivf(shards)
        write_index(index, folder / "faiss.index")


def write_index(index: Any, path: Path) -> None:
    """Write a faiss index, whole or not at all.

    Raises:
        UserError: the disk is full.
    """
    import faiss

    try:
        with atomic.whole(path) as part:
            faiss.write_index(index, str(part))
    except RuntimeError as error:
        why = str(error).splitlines()[0]
        raise UserError(f"{path}: the faiss index cannot be written: {why}") from error


def check_kind(kind: str) -> None:
    """Refuse a kind that is not in ``INDEXES``."""
    if kind not in INDEXES:
        raise UserError(f"there is no dense index {kind!r}; there are {', '.join(INDEXES)}")


def load(shards: Shards, kind: str, folder: Path) -> Any:
    """The faiss index that :func:`build` made.

    Raises:
        UserError: it is not there, or is of other vectors.
    """
    import faiss

    if not is_built(folder, "faiss", _state(shards, kind)):
        raise UserError(f"{folder}: holds no {kind} index of these passages; index them first")
    index: Any = faiss.read_index(str(folder / "faiss.index"))
    if kind == "hnsw":
        index.hnsw.efSearch = HNSW_SEARCH
    else:
        index.nprobe = min(IVF_PROBES, index.nlist)
    return index


def exact(queries: Vectors, shards: Shards, depth: int, device: str | None = None) -> Ranking:
    """The ``depth`` passages of greatest inner product for each of the queries (q, d).

    Args:
        queries: float32.
        shards: with the array ``vectors``.
        depth: passages per query; all, where there are fewer.
        device: for the matrix products in torch; None takes the GPU where there is one, else ``faiss.knn``.
    """
    import torch

    chosen = device_of(device)
    by_faiss = device is None and chosen.type == "cpu"
    rank = torch.from_numpy(shards.rank).to(chosen)
    top = TopK(depth, rank)
    groups = [torch.from_numpy(queries[start : start + GROUP]).to(chosen) for start in range(0, len(queries), GROUP)]
    if by_faiss:
        for start, arrays in shards.blocks(BLOCK):
            vectors = np.asarray(arrays["vectors"], np.float32)
            for number, group in enumerate(groups):
                scores, columns = knn(group.numpy(), vectors, depth)
                top.add(number, torch.from_numpy(scores), torch.from_numpy(columns) + start)
        return top.hits(shards.ids)
    on_device = resident.blocks(
        shards, BLOCK, chosen, lambda arrays: torch.from_numpy(np.array(arrays["vectors"])).to(chosen)
    )
    for start, block in on_device:
        vectors_t, rows = block.float().T, torch.arange(start, start + len(block), device=chosen)
        for number, group in enumerate(groups):
            top.add(number, group @ vectors_t, rows)
    return top.hits(shards.ids)


def knn(queries: Vectors, block: Vectors, depth: int) -> tuple[Vectors, NDArray[np.int64]]:
    """``faiss.knn`` with at least ``depth`` columns: enough for every passage that shares the last score."""
    import faiss

    width = min(depth + 1, len(block))
    while True:
        scores, rows = faiss.knn(queries, block, width, metric=faiss.METRIC_INNER_PRODUCT)
        if width == len(block) or (scores[:, -1] < scores[:, depth - 1]).all():
            return scores, rows
        width = min(2 * width, len(block))


def approximate(queries: Vectors, index: Any, shards: Shards, depth: int) -> Ranking:
    """The passages that a faiss index finds for the queries (q, d)."""
    import torch

    top = TopK(depth, torch.from_numpy(shards.rank))
    for number, start in enumerate(range(0, len(queries), GROUP)):
        scores, rows = index.search(queries[start : start + GROUP], min(depth, len(shards)))
        scores = np.where(rows < 0, -np.inf, scores).astype(np.float32)
        top.add(number, torch.from_numpy(scores), torch.from_numpy(np.maximum(rows, 0)))
    return top.hits(shards.ids)


def _hnsw(shards: Shards) -> Any:
    import faiss

    index = faiss.IndexHNSWFlat(_dimensions(shards), HNSW_LINKS, faiss.METRIC_INNER_PRODUCT)
    index.hnsw.efConstruction = HNSW_BUILD
    threads = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(1)
    try:
        for _, arrays in shards:
            index.add(np.asarray(arrays["vectors"], np.float32))
    finally:
        faiss.omp_set_num_threads(threads)
    return index


def _ivf(shards: Shards) -> Any:
    """About 4 √n lists, their centroids learnt from vectors spread evenly over all."""
    import faiss

    lists = max(1, min(int(4 * math.sqrt(len(shards))), len(shards) // 40))
    index = faiss.index_factory(_dimensions(shards), f"IVF{lists},Flat", faiss.METRIC_INNER_PRODUCT)
    step = max(1, len(shards) // (lists * IVF_SAMPLE))
    index.train(np.asarray(shards.array("vectors")[::step], np.float32))
    for _, arrays in shards:
        index.add(np.asarray(arrays["vectors"], np.float32))
    return index


def _dimensions(shards: Shards) -> int:
    return int(shards.array("vectors").shape[1])


def _state(shards: Shards, kind: str) -> dict[str, str]:
    return {"kind": kind, "shards": shards.key}
