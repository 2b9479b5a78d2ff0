"""One vector per text: bi-encoders."""

import json
from collections.abc import Iterable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from baselines.architectures import bare, checkpoint, devices, token_ids
from baselines.architectures.encoding import Batch, check_store, precision_of, set_lengths, store_of, to_precision
from eval_kit.errors import UserError
from search import dense, shards
from search.retriever import Hits, Passages

SIMILARITIES = {"dot": False, "cosine": True}
"""Whether vectors are scaled to unit length."""


class Dense:
    """A model that encodes a text as one vector.

    Args:
        model: Hub id or folder; it encodes the passages, and the queries unless ``query_model`` is given.
        index: ``flat`` (exact), ``hnsw`` or ``ivf``. HNSW is for small collections: one thread builds it, so that the
            same vectors give the same graph.
        pooling: sentence-transformers' name (``cls``, ``mean``), for a transformer that has no pooling layer; or one
            of ``bare.FORMS``: ``tct-colbert``, ``repbert``.
        similarity: ``dot`` or ``cosine``; None for the checkpoint's own.
        query_model: Hub id or folder of a second encoder (DPR).
        query_prompt: text before each query; None for the checkpoint's own.
        passage_prompt: text before each passage.
        query_length: tokens after which a query is cut; None for the checkpoint's own.
        passage_length: tokens after which a passage is cut.
        tokenizer: Hub id or folder, for a bare checkpoint that comes without one.
        encode_batch: texts in a batch; None for 32 on a CPU and 256 on a GPU.
        encode_precision: of the model's arithmetic: ``float32``, ``bfloat16`` or ``float16``; None for float16 on a GPU
            and float32 on a CPU.
        store: of the vectors on disk: ``float32`` or ``float16``; None for as many bits as the arithmetic has.
        revision: of the models on the Hub.
    """

    def __init__(
        self,
        model: str,
        *,
        index: str = "flat",
        pooling: str | None = None,
        similarity: str | None = None,
        query_model: str | None = None,
        query_prompt: str | None = None,
        passage_prompt: str | None = None,
        query_length: int | None = None,
        passage_length: int | None = None,
        tokenizer: str | None = None,
        encode_batch: int | None = None,
        encode_precision: str | None = None,
        store: str | None = None,
        revision: str | None = None,
    ) -> None:
        dense.check_kind(index)
        if similarity is not None and similarity not in SIMILARITIES:
            raise UserError(f"there is no similarity {similarity!r}; there are {', '.join(SIMILARITIES)}")
        check_store(store)
        self.model, self.query_model = model, query_model or model
        self._kind, self._pooling, self._similarity = index, pooling, similarity
        self._prompts = {"query": query_prompt, "document": passage_prompt}
        self._lengths = {"query": query_length, "document": passage_length}
        self._tokenizer, self._batch, self._precision = tokenizer, Batch(encode_batch), encode_precision
        self._store, self._revision = store, revision
        self.device: str | None = None
        self._opened: dict[Path, tuple[shards.Shards, Any]] = {}
        for encoder in {self.model, self.query_model}:
            checkpoint.check(encoder, "dense", revision, bare=pooling is not None)

    @cached_property
    def identity(self) -> str:
        """Identifies everything that decides a passage's vector."""
        decides = [checkpoint.digest(self.model, self._revision), self._pooling, self._unit, self._prompts["document"]]
        numbers = [precision_of(self._precision), store_of(self._store, self._precision)]
        return json.dumps(["dense", *decides, self._lengths["document"], *numbers])

    def as_read(self, passages: Passages) -> Iterable[tuple[str, shards.Content]]:
        """The passages as the model reads them: as token ids where those are stored, else as texts."""
        if isinstance(self._passages, bare.Bare):
            return passages
        given = self._prompts["document"]
        prompt = token_ids.prompt_of(self._passages) if given is None else given
        return token_ids.stored(self._passages, passages, prompt)

    def encode_passages(self, texts: list[shards.Content]) -> shards.Arrays:
        """``vectors``: (n, d), in the order of the texts."""
        store = store_of(self._store, self._precision)
        return {"vectors": self._encode(self._passages, texts, "document").astype(store, copy=False)}

    def encode_queries(self, texts: list[str]) -> dense.Vectors:
        """(n, d) float32, in the order of the texts."""
        return self._encode(self._queries, texts, "query")

    def index(self, passages: Passages, folder: Path) -> None:
        """Encode the passages that ``folder`` lacks; build its faiss index, unless ``flat``."""
        self._opened.clear()
        encoded = devices.encode(self, passages, folder)
        dense.build(encoded, self._kind, folder)

    def search(self, queries: pl.DataFrame, folder: Path, depth: int = 1000) -> Hits:
        """The most similar passages."""
        encoded, index = self._open(folder)
        vectors = self.encode_queries(queries["text"].to_list())
        if index is None:
            hits = dense.exact(vectors, encoded, depth)
        else:
            hits = dense.approximate(vectors, index, encoded, depth)
        yield from zip(queries["query_id"].to_list(), hits, strict=True)

    @property
    def _unit(self) -> bool:
        own = getattr(self._passages, "similarity_fn_name", "dot")
        similarity = self._similarity or own
        if similarity not in SIMILARITIES:
            raise UserError(f"{self.model}: its similarity, {similarity}, cannot be searched by inner product")
        return SIMILARITIES[similarity]

    @cached_property
    def _passages(self) -> Any:
        return self._load(self.model)

    @cached_property
    def _queries(self) -> Any:
        return self._passages if self.query_model == self.model else self._load(self.query_model)

    def _load(self, model: str) -> Any:
        if self._pooling in bare.FORMS:
            plain = bare.Bare(model, self._pooling, self._tokenizer or model, self._revision, self.device)
            return to_precision(plain, self._precision)
        from sentence_transformers import SentenceTransformer
        from sentence_transformers.sentence_transformer.modules import Pooling, Transformer

        pinned = checkpoint.pinned(model, self._revision)
        with checkpoint.loading(model):
            if self._pooling is None:
                loaded = SentenceTransformer(model, device=self.device, **pinned)
            else:
                transformer = Transformer(
                    model, model_kwargs=dict(pinned), processor_kwargs=dict(pinned), config_kwargs=dict(pinned)
                )
                pooling = Pooling(transformer.get_embedding_dimension(), self._pooling)
                loaded = SentenceTransformer(
                    modules=[transformer, pooling], similarity_fn_name="dot", device=self.device
                )
        set_lengths(loaded, self._lengths)
        return to_precision(loaded, self._precision)

    def _encode(self, model: Any, texts: Sequence[Any], role: str) -> NDArray[np.float32]:
        def encode(batch: int) -> Any:
            if isinstance(model, bare.Bare):
                return model.encode(texts, role, batch, self._lengths[role])
            return (model.encode_query if role == "query" else model.encode_document)(
                texts,
                prompt=self._prompts[role],
                batch_size=batch,
                normalize_embeddings=self._unit,
                show_progress_bar=False,
                convert_to_tensor=True,
            )

        vectors = self._batch.of(model.device, encode)
        return np.asarray(vectors.float().cpu().numpy(), np.float32)

    def _open(self, folder: Path) -> tuple[shards.Shards, Any]:
        if folder not in self._opened:
            encoded = shards.read(folder)
            index = None if self._kind == "flat" else dense.load(encoded, self._kind, folder)
            self._opened = {folder: (encoded, index)}
        return self._opened[folder]
