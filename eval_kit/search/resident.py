"""Blocks of an index on the device that searches them: kept there from the first search on, where they fit."""

from collections.abc import Callable, Iterator
from typing import Any

from eval_kit.search.shards import Arrays, Shards

SHARE = 0.7
"""Share of the GPU's free memory that an index may take; the rest is for scores."""


def blocks(shards: Shards, passages: int, device: Any, to_device: Callable[[Arrays], Any]) -> Iterator[tuple[int, Any]]:
    """The passages in blocks: the row of the first, and what ``to_device`` makes of their arrays.

    If all blocks fit into a GPU's memory they stay there, so that only the first search reads the disk.

    The tensors that ``to_device`` makes take no more bytes than the arrays.
    """
    cache: list[tuple[int, Any]] | None = shards.resident.get(str(device))
    if cache is not None:
        yield from cache
        return
    size = sum(shards.array(name).nbytes for name in shards.arrays if name != "lengths")
    fits = size <= room(device)
    cache = []
    for start, arrays in shards.blocks(passages):
        block = to_device(arrays)
        if fits:
            cache.append((start, block))
        yield start, block
    if fits:
        shards.resident[str(device)] = cache


def room(device: Any) -> float:
    """Bytes that an index may take on a device; 0 on a CPU, where the files are memory maps.

    Free is what the driver calls free, and what torch has reserved without using it.
    """
    import torch

    if device.type != "cuda":
        return 0.0
    free = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return SHARE * (torch.cuda.mem_get_info(device)[0] + free)
