"""What encoders have in common: passages are encoded once, queries as they come, and an index compares them."""

import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import polars as pl

from eval_kit.errors import UserError
from eval_kit.files import checkpoint
from eval_kit.search import shards
from eval_kit.search.encoders import (
    Batch,
    check_length,
    dtype_of,
    free_memory,
    is_half,
    set_lengths,
    to_precision,
    weights_digest,
)
from eval_kit.search.retriever import Hits, Passages

_OF_CHECKPOINTS = ("encode_precision", "query_length", "passage_length", "pair_length", "truncate_dim", "pooling")
"""Options that decide how a checkpoint is loaded."""


@dataclass(eq=False)
class PretrainedModel(ABC):
    """A checkpoint, and how it computes.

    Attributes:
        model: Hub id or folder.
        encode_batch: texts or pairs in a batch; None for 16 on a CPU and 256 on a GPU.
        encode_precision: of the model's arithmetic: ``float32``, ``bfloat16`` or ``float16``; None for that of the
            stored weights, but float16 for float32 on a GPU.
        revision: of the model on the Hub.
        trust_remote_code: whether the code that comes with the model may run; without it, such a model is refused.
        loaded: the model in sentence-transformers, where it is in memory; it is used as it is.
    """

    model: str
    _: KW_ONLY
    encode_batch: int | None = None
    encode_precision: str | None = None
    revision: str | None = None
    trust_remote_code: bool = False
    loaded: Any = None
    _pool: Any = field(default=None, init=False)
    """Of sentence-transformers: a process for each GPU, while there are several at work."""
    _stored: str | None = field(default=None, init=False)
    """The precision of the weights in the files, once they are read."""

    def __post_init__(self) -> None:
        """Refuse options out of range, and those that would change a model in memory.

        Raises:
            UserError: naming it.
        """
        for name in _OF_CHECKPOINTS if self.loaded is not None else ():
            if getattr(self, name, None):
                raise UserError(
                    f"{self.model}: {name} cannot be given with a model that is loaded; set it on the model"
                )
        for name in ("encode_batch", "query_length", "passage_length", "pair_length", "truncate_dim"):
            if (size := getattr(self, name, None)) is not None and size < 1:
                raise UserError(f"{name} must be at least 1, not {size}")
        self._batch = Batch(self.encode_batch)

    def _of_library(self, library_class: str, model: str, **options: Any) -> Any:
        """A checkpoint in that class of sentence-transformers, or the model that is loaded."""
        if self.loaded is not None:
            return self.loaded
        options |= {"trust_remote_code": self.trust_remote_code}
        opened = checkpoint.open_model(model, library_class, self._revision_of(model), **options)
        check_length(opened, getattr(opened, "max_seq_length", None) or 0)
        return opened

    def _revision_of(self, model: str) -> str | None:
        """``revision`` names a commit of ``model``; a second encoder has commits of its own."""
        return self.revision if model == self.model else None

    def _to_precision(self, model: Any) -> Any:
        if self.loaded is not None:
            return model
        self._stored = dtype_of(model)
        if self.encode_precision is None and is_half(model):
            warnings.warn(
                f"{self.model}: computes as stored, in {self._stored}, unless encode_precision is given", stacklevel=2
            )
        return to_precision(model, self.encode_precision)

    @property
    def _precision(self) -> str:
        return dtype_of(self._model)

    @property
    def precision(self) -> str:
        """Of the arithmetic, beside that of the stored weights; of a model that was loaded."""
        if self._stored in (None, self._precision):
            return f"as {'stored' if self._stored else 'given'}: {self._precision}"
        return f"{self._precision}; stored: {self._stored}"

    @cached_property
    def _digest(self) -> str:
        """Of the files, or of the weights in memory."""
        return checkpoint.digest(self.model, self.revision) if self.loaded is None else weights_digest(self.loaded)

    @property
    @abstractmethod
    def _model(self) -> Any:
        """In sentence-transformers, loaded at first use."""

    @property
    def _device(self) -> Any:
        """Where the model computes."""
        import torch

        return self._model.device if self._pool is None else torch.device("cuda")

    @contextmanager
    def _on_every_gpu(self) -> Iterator[None]:
        """Meanwhile the model computes in a process for each GPU, if there are two or more."""
        import torch

        if torch.cuda.device_count() < 2:
            yield
            return
        device = self._model.device
        self._pool = self._model.start_multi_process_pool()
        try:
            yield
        finally:
            self._model.stop_multi_process_pool(self._pool)
            self._pool = None
            self._model.to(device)  # which the pool moved to the CPU


@dataclass(eq=False)
class Encoder(PretrainedModel, ABC):
    """A model that encodes queries and passages apart.

    A subclass encodes them (``encode_passages``, ``_encode_in``) and searches (``hits``); if its search needs an
    index beside the encoded passages, it makes and opens one (``build``, ``open``).

    Attributes:
        query_length: tokens after which a query is cut, or to which it is padded where the checkpoint does that; None
            for the checkpoint's own.
        passage_length: tokens after which a passage is cut.
    """

    query_length: int | None = None
    passage_length: int | None = None

    library_class: ClassVar[str]
    """Name of the class of sentence-transformers that loads the model."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._opened: dict[Path, Any] = {}

    @property
    @abstractmethod
    def identity(self) -> str:
        """Identifies everything that decides what a passage is encoded as."""

    @abstractmethod
    def encode_passages(self, texts: list[str]) -> shards.Arrays:
        """The arrays of a shard, in the order of the texts."""

    def encode_queries(self, texts: list[str]) -> Any:
        """The queries in their order, in the form that :meth:`hits` takes.

        Raises:
            UserError: the model gives NaN or infinity for one.
        """
        queries = self._encode(texts, "query")
        values = queries if isinstance(queries, list) else [queries.data]
        if not all(np.isfinite(part).all() for part in values):
            raise UserError(f"{self.model}: gives NaN or infinity for a query")
        return queries

    @abstractmethod
    def hits(self, queries: Any, encodings: shards.Shards, index: Any, depth: int) -> Iterator[list[tuple[str, float]]]:
        """``(passage id, score)`` pairs of each query, best first."""

    def build(self, encodings: shards.Shards, folder: Path) -> None:
        """Make the index of encoded passages in their folder."""

    def open(self, encodings: shards.Shards, folder: Path) -> Any:
        """What :meth:`build` made."""

    def index(self, passages: Passages, folder: Path) -> None:
        """Encode the passages that ``folder`` lacks, and build their index."""
        self._opened.clear()
        free_memory()
        with self._on_every_gpu():
            encodings = shards.write(passages, folder, self.encode_passages, self.identity_in(folder))
        self.build(encodings, folder)

    def identity_in(self, folder: Path) -> str:
        """The identity of what an index folder holds: :attr:`identity`, and what the model makes of fixed texts."""
        return shards.with_probe(self.identity, folder, self.encode_passages)

    def search(self, queries: pl.DataFrame, folder: Path, depth: int = 1000) -> Hits:
        """The best passages for each query."""
        if folder not in self._opened:
            encodings = shards.read(folder)
            self._opened = {folder: (encodings, self.open(encodings, folder))}
        vectors = self.encode_queries(queries["text"].to_list())
        free_memory()  # an index stays on the GPU only if it fits into what the driver calls free
        encodings, index = self._opened[folder]
        yield from zip(queries["query_id"].to_list(), self.hits(vectors, encodings, index, depth), strict=True)

    @cached_property
    def _model(self) -> Any:
        return self._load(self.model)

    def _load(self, model: str) -> Any:
        """A checkpoint of sentence-transformers, with this encoder's lengths and precision."""
        return self._prepare(self._of_library(self.library_class, model))

    def _prepare(self, model: Any) -> Any:
        set_lengths(model, {"query": self.query_length, "document": self.passage_length})
        return self._to_precision(model)

    def _encode(self, texts: Sequence[str], role: str) -> Any:
        """What the model makes of the texts, in their order, in batches that fit into memory."""
        return self._batch.of(self._device, lambda size: self._encode_in(size, texts, role))

    @abstractmethod
    def _encode_in(self, size: int, texts: Sequence[str], role: str) -> Any: ...
