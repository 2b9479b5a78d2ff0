"""Encoding and re-ranking on every visible GPU: one process for each, with its own model.

The unit of work (a shard of passages, the candidates of some queries) does not depend on the number of processes, so
neither does the result. On a CPU many passages are encoded by a few threads that share the model: small models leave
cores idle that work on one batch together, and burn their time waiting for each other where other programs run too.
"""

import copy
import operator
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import starmap
from multiprocessing import get_context
from pathlib import Path
from threading import Event, Lock
from typing import Any

from eval_kit.search import shards
from eval_kit.search.processes import cores, map_in_order, pool
from eval_kit.search.retriever import Passages
from eval_kit.search.texts import PassageTexts

MANY, THREADS = 4_096, 8
"""From so many passages on, a CPU encodes by so many threads at most."""
_retriever: Any = None
"""The retriever of this process, where it is one of several."""


def visible() -> list[str]:
    """The GPUs of this machine that this process may use, as torch names them."""
    import torch

    return [f"cuda:{number}" for number in range(torch.cuda.device_count())]


def encode(retriever: Any, passages: Passages, folder: Path, index_share: float = 0.0) -> shards.Shards:
    """Encode the passages that ``folder`` lacks, on every GPU; see :func:`eval_kit.search.shards.write`."""
    contents = retriever.as_read(passages)
    with workers(retriever, passages) as crew:
        encode = crew.method("encode_passages")
        return shards.write(contents, folder, encode, retriever.identity, index_share=index_share, spread=crew.spread)


@dataclass(frozen=True)
class Workers:
    """What makes the calls of a retriever's methods, and the retriever, unless it is in other processes."""

    retriever: Any
    spread: shards.Spread

    def method(self, name: str) -> Callable[..., Any]:
        """A method of the retriever, for ``spread``."""
        return partial(call, name) if self.retriever is None else getattr(self.retriever, name)


@contextmanager
def workers(retriever: Any, passages: Passages | None = None) -> Iterator[Workers]:
    """This process, for many passages on a CPU its threads, or with two or more GPUs one process for each.

    The retriever's ``device`` says where its model is. The processes will be given the contents of the passages, in the
    form that the model reads.
    """
    names = visible()
    if not names and _is_slow(retriever, passages):
        with _threads(retriever._model) as spread:
            yield Workers(retriever, spread)
        return
    if len(names) < 2:
        yield Workers(retriever, starmap)
        return
    devices = get_context("spawn").SimpleQueue()
    for name in names:
        devices.put(name)
    texts = passages if isinstance(passages, PassageTexts) else None
    with pool(len(names), _begin, without_model(retriever), texts, devices) as executor:
        yield Workers(None, partial(map_in_order, executor))


def _is_slow(retriever: Any, passages: Passages | None) -> bool:
    """Whether there are many passages to encode, by a model of sentence-transformers."""
    return passages is not None and operator.length_hint(passages) >= MANY and hasattr(retriever._model, "preprocess")


@contextmanager
def _threads(model: Any) -> Iterator[shards.Spread]:
    """Calls made by threads that share the model and the cores; an error or a signal ends them after a batch."""
    import torch
    from torch.nn.modules.module import register_module_forward_pre_hook

    preprocess, lock, stop = model.preprocess, Lock(), Event()

    def one_at_a_time(*arguments: Any, **options: Any) -> Any:
        with lock:  # a tokenizer refuses to be set by one thread while another uses it
            return preprocess(*arguments, **options)

    def check(*_: Any) -> None:
        if stop.is_set():
            raise CancelledError

    before, count = torch.get_num_threads(), min(cores(), THREADS)
    hook, executor = register_module_forward_pre_hook(check), ThreadPoolExecutor(count)
    model.preprocess = one_at_a_time
    torch.set_num_threads(max(1, before // count))  # of each
    try:
        yield partial(map_in_order, executor)
    finally:
        stop.set()
        executor.shutdown(cancel_futures=True)
        torch.set_num_threads(before)
        model.preprocess = preprocess
        hook.remove()


def call(method: str, *arguments: Any) -> Any:
    """Call a method of this process's retriever."""
    return getattr(_retriever, method)(*arguments)


def _begin(retriever: Any, texts: PassageTexts | None, devices: Any) -> None:
    retriever.device = devices.get()
    serve(retriever, texts)


def serve(retriever: Any, texts: PassageTexts | None) -> None:
    """Make a retriever the one whose methods :func:`call` reaches in this process."""
    global _retriever
    if texts is not None:
        retriever.as_read(texts)  # its model takes token ids from now on
    _retriever = retriever


def without_model(retriever: Any) -> Any:
    """The retriever without what it has loaded, small enough to send."""
    small = copy.copy(retriever)
    for name in list(vars(small)):
        if isinstance(getattr(type(small), name, None), cached_property):
            del vars(small)[name]
    small._opened = {}
    return small
