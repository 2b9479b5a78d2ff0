"""What encoders have in common: passages are encoded once, queries as they come, and an index compares them."""

import re
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass, field
from functools import cached_property, partial
from itertools import chain
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import polars as pl

from eval_kit.errors import UserError
from eval_kit.files import checkpoint
from eval_kit.search import shards
from eval_kit.search.encoders import (
    Batch,
    dtype_of,
    free_memory,
    length_of,
    precision_of,
    set_lengths,
    token_counts,
    transformer_of,
    weights_digest,
    with_suffix,
)
from eval_kit.search.retriever import Hits, Passages

_OF_CHECKPOINTS = (
    *("encode_precision", "query_length", "passage_length", "pair_length", "truncate_dim", "pooling"),
    *("revision", "trust_remote_code"),
)
"""Options that decide how a checkpoint is loaded."""
PROMPTS = {"query": ("query_prompt", "query_suffix"), "document": ("passage_prompt", "passage_suffix")}
"""Options of what stands before and after a text, by its role."""

_ESCAPED = re.compile(r"\\[nt]")


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
        query_prompt: text before each query; None for the checkpoint's own.
        passage_prompt: text before each passage; None likewise.
        query_suffix: text after each query, such as an end token that the tokenizer does not add; it is never cut.
        passage_suffix: text after each passage.
        loaded: the model in sentence-transformers, where it is in memory; it is used as it is.
    """

    model: str
    _: KW_ONLY
    encode_batch: int | None = None
    encode_precision: str | None = None
    revision: str | None = None
    trust_remote_code: bool = False
    query_prompt: str | None = None
    passage_prompt: str | None = None
    query_suffix: str = ""
    passage_suffix: str = ""
    loaded: Any = None
    architecture: ClassVar[str]
    """What files and commands call its kind: one of :data:`eval_kit.models.opening.ARCHITECTURES`."""
    _pool: Any = field(default=None, init=False)
    """Of sentence-transformers: a process for each GPU, while there are several at work."""
    _stored: str | None = field(default=None, init=False)
    """The precision of the weights in the files, once they are read."""

    def __post_init__(self) -> None:
        """Refuse options out of range, and those that would change a model in memory."""
        for name in _OF_CHECKPOINTS if self.loaded is not None else ():
            if getattr(self, name, None):
                raise UserError(
                    f"{name} does not apply to {self.model}, which is loaded already", do="Set it on the model"
                )
        for name in ("encode_batch", "query_length", "passage_length", "pair_length", "truncate_dim"):
            if (size := getattr(self, name, None)) is not None and size < 1:
                raise UserError(f"{name} must be at least 1, not {size}")
        if self.revision and Path(self.model).is_dir():
            raise UserError(f"{self.model} is a folder, and a folder has no revision", do="Leave the revision out")
        for name in chain.from_iterable(PROMPTS.values()):
            if _ESCAPED.search(getattr(self, name) or ""):
                json_text = f"""--option '{name}="…\\n…"'"""
                warnings.warn(
                    f"{name} contains a backslash and n, not a line end. In JSON, write {json_text}", stacklevel=2
                )
        precision_of(self.encode_precision)  # refuses
        self._batch = Batch(self.encode_batch)

    def _of_library(self, library_class: str, model: str, **options: Any) -> Any:
        """A checkpoint in that class of sentence-transformers and the precision asked, or the model that is loaded."""
        import torch

        if self.loaded is not None and model == self.model:
            return self.loaded
        options |= {"trust_remote_code": self.trust_remote_code}
        load = partial(checkpoint.open_model, model, library_class, self.revision_of(model), **options)
        opened = load()
        self._stored = stored = dtype_of(opened)
        if self.encode_precision is None and "16" in stored:
            warnings.warn(
                f"{model} computes in {stored}, its stored type. Change it with --option encode_precision=float32",
                stacklevel=2,
            )
        precision = precision_of(self.encode_precision, stored)
        if precision not in (stored, "float32"):  # some weights stay in 32 bits where transformers loads them so
            del opened
            opened = load(dtype=precision)
        return opened if dtype_of(opened) == precision else opened.to(getattr(torch, precision))

    def revision_of(self, model: str) -> str | None:
        """``revision`` names a commit of ``model``; a second encoder has commits of its own."""
        return self.revision if model == self.model else None

    @property
    def dtype(self) -> str:
        """The precision that the model computes in."""
        return dtype_of(self._model)

    @property
    def compared_by(self) -> str:
        """How a query and a passage are compared."""
        return "a score for each pair"

    def of_role(self, role: str) -> Any:
        """The model in sentence-transformers that reads queries, or each ``document``."""
        return self._model

    def prompt(self, role: str, *names: str) -> str | None:
        """The text before each query or ``document``: as given, else the model's own of the first of these names."""
        model, given = self.of_role(role), getattr(self, PROMPTS[role][0])
        own = next((name for name in names if name in model.prompts), model.default_prompt_name)
        prompt: str | None = model.prompts.get(own) if given is None else given
        return prompt

    @property
    def precision(self) -> str:
        """Of the arithmetic, beside that of the stored weights; of a model that was loaded."""
        if self._stored in (None, self.dtype):
            return f"as {'stored' if self._stored else 'given'}: {self.dtype}"
        return f"{self.dtype}; stored: {self._stored}"

    @cached_property
    def digest(self) -> str:
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

    def _lengths(self, inputs: Sequence[Any], role: str) -> list[int] | None:
        """By which inputs are sorted: their tokens on a processor, to which padding costs more than counting them."""
        return token_counts(self.of_role(role), role, inputs) if self._device.type == "cpu" else None

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
        query_model: Hub id or folder of a second encoder, for the queries (DPR, efficient SPLADE).
    """

    query_length: int | None = None
    passage_length: int | None = None
    query_model: str | None = None

    library_class: ClassVar[str]
    """Name of the class of sentence-transformers that loads the model."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._opened: dict[Path, Any] = {}
        self.query_model = self.query_model or self.model
        is_bare = getattr(self, "pooling", None) is not None
        for encoder in {self.model, self.query_model} - ({self.model} if self.loaded is not None else set()):
            checkpoint.check(encoder, self.architecture, self.revision_of(encoder), bare=is_bare)

    @property
    @abstractmethod
    def identity(self) -> str:
        """Identifies everything that decides what a passage is encoded as."""

    @abstractmethod
    def encode_passages(self, texts: list[str]) -> shards.Arrays:
        """The arrays of a shard, in the order of the texts."""

    def encode_queries(self, texts: list[str]) -> Any:
        """The queries in their order, in the form that :meth:`hits` takes."""
        queries = self._encode(texts, "query")
        values = queries if isinstance(queries, list) else [queries.data]
        if not all(np.isfinite(part).all() for part in values):
            raise UserError(f"{self.model} gives NaN or infinity for a query")
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

    @cached_property
    def _query_model(self) -> Any:
        return self._model if self.query_model == self.model else self._load(str(self.query_model))

    def of_role(self, role: str) -> Any:
        """The model in sentence-transformers that encodes queries, or each ``document``."""
        return self._query_model if role == "query" else self._model

    def _load(self, model: str) -> Any:
        """A checkpoint of sentence-transformers, with this encoder's lengths and precision."""
        return self._prepare(self._of_library(self.library_class, model))

    def _prepare(self, model: Any) -> Any:
        if model is not self.loaded:
            set_lengths(model, {"query": self.query_length, "document": self.passage_length})
        return model

    def _encode(self, texts: Sequence[str], role: str) -> Any:
        """What the model makes of the texts, in their order, in batches that fit into memory."""
        if suffix := getattr(self, PROMPTS[role][1]):
            model = self.of_role(role)
            tokenizer, length = getattr(transformer_of(model, role), "tokenizer", None), length_of(model, role)
            texts = with_suffix(texts, suffix, tokenizer, length, before=self.prompt(role) or "")
        return self._batch.of(self._device, lambda size: self._encode_in(size, texts, role))

    def prompt(self, role: str, *names: str) -> str | None:
        """Likewise, as sentence-transformers chooses it."""
        return super().prompt(role, *(["query"] if role == "query" else ["document", "passage", "corpus"]))

    @cached_property
    def compared_by(self) -> str:
        """The similarity that is searched by."""
        return str(self._model.similarity_fn_name)

    def _how(self, role: str) -> tuple[Callable[..., Any], dict[str, Any]]:
        """The method of sentence-transformers that encodes such texts, and its prompt."""
        model = self.of_role(role)
        encode = model.encode_query if role == "query" else model.encode_document
        return encode, {"prompt": getattr(self, PROMPTS[role][0])}

    @abstractmethod
    def _encode_in(self, size: int, texts: Sequence[str], role: str) -> Any: ...
