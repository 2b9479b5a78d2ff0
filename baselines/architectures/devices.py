"""Encoding and re-ranking on every visible GPU: one process for each, with its own model.

The unit of work (a shard of passages, the candidates of some queries) does not depend on the number of processes, so
neither does the result.
"""

import copy
from collections.abc import Iterator
from concurrent.futures import Executor
from contextlib import contextmanager
from functools import cached_property, partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from search import shards
from search.processes import pool
from search.retriever import Passages
from search.texts import PassageTexts

_retriever: Any = None
"""The retriever of this process, where it is one of several."""


def visible() -> list[str]:
    """The GPUs of this machine that this process may use, as torch names them."""
    import torch

    return [f"cuda:{number}" for number in range(torch.cuda.device_count())]


def encode(retriever: Any, passages: Passages, folder: Path, index_share: float = 0.0) -> shards.Shards:
    """Encode the passages that ``folder`` lacks, on every GPU; see :func:`search.shards.write`."""
    contents = retriever.as_read(passages)
    with processes(retriever, passages) as executor:
        function = retriever.encode_passages if executor is None else partial(call, "encode_passages")
        return shards.write(contents, folder, function, retriever.identity, index_share=index_share, executor=executor)


@contextmanager
def processes(retriever: Any, passages: Passages | None = None) -> Iterator[Executor | None]:
    """A process for each GPU, in which :func:`call` reaches the retriever; None with fewer than two GPUs.

    Args:
        retriever: whose attribute ``device`` says where its model is.
        passages: whose contents the processes will be given, in the form that the model reads.
    """
    if len(names := visible()) < 2:
        yield None
        return
    devices = get_context("spawn").SimpleQueue()
    for name in names:
        devices.put(name)
    texts = passages if isinstance(passages, PassageTexts) else None
    with pool(len(names), _begin, unloaded(retriever), texts, devices) as executor:
        yield executor


def call(method: str, *arguments: Any) -> Any:
    """Call a method of this process's retriever."""
    return getattr(_retriever, method)(*arguments)


def _begin(retriever: Any, texts: PassageTexts | None, devices: Any) -> None:
    global _retriever
    retriever.device = devices.get()
    if texts is not None:
        retriever.as_read(texts)  # its model takes token ids from now on
    _retriever = retriever


def unloaded(retriever: Any) -> Any:
    """The retriever without what it has loaded, small enough to send."""
    small = copy.copy(retriever)
    for name, attribute in vars(type(retriever)).items():
        if isinstance(attribute, cached_property):
            vars(small).pop(name, None)
    small._opened = {}
    return small
