"""One vector per token: ColBERT and its kin."""

import json
import operator
from collections.abc import Iterable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from baselines.architectures import checkpoint, devices, token_ids
from baselines.architectures.encoding import (
    Batch,
    batches,
    check_store,
    precision_of,
    set_lengths,
    store_of,
    to_precision,
)
from search import late, shards
from search.gpus import warn_of_plaid
from search.retriever import Hits, Passages


class MultiVector:
    """A model that encodes each token as a vector.

    Args:
        model: Hub id or folder.
        engine: ``exact``, ``plaid`` (fast-plaid) or ``faiss``; None for plaid from a million passages on, else exact.
        query_length: tokens after which a query is cut, or to which it is padded where the checkpoint does that; None
            for the checkpoint's own.
        passage_length: tokens after which a passage is cut.
        encode_batch: texts in a batch; None for 32 on a CPU and 256 on a GPU.
        encode_precision: of the model's arithmetic: ``float32``, ``bfloat16`` or ``float16``; None for float16 on a GPU
            and float32 on a CPU.
        store: of the vectors on disk: ``float32`` or ``float16``; None for as many bits as the arithmetic has.
        revision: of the model on the Hub.
    """

    def __init__(
        self,
        model: str,
        *,
        engine: str | None = None,
        query_length: int | None = None,
        passage_length: int | None = None,
        encode_batch: int | None = None,
        encode_precision: str | None = None,
        store: str | None = None,
        revision: str | None = None,
    ) -> None:
        if engine is not None:
            late.check_engine(engine)
        check_store(store)
        self.model = model
        self._engine, self._batch, self._precision, self._store = engine, Batch(encode_batch), encode_precision, store
        self._lengths = {"query": query_length, "document": passage_length}
        self._revision = revision
        self.device: str | None = None
        self._opened: dict[Path, tuple[shards.Shards, str, Any]] = {}
        checkpoint.check(model, "multivector", revision)

    @cached_property
    def identity(self) -> str:
        """Identifies everything that decides a passage's vectors."""
        weights = checkpoint.digest(self.model, self._revision)
        numbers = [precision_of(self._precision), store_of(self._store, self._precision)]
        return json.dumps(["multivector", weights, self._lengths["document"], *numbers])

    def as_read(self, passages: Passages) -> Iterable[tuple[str, shards.Content]]:
        """The passages as the model reads them: as token ids where those are stored, else as texts."""
        return token_ids.stored(self._model, passages, token_ids.prompt_of(self._model))

    def encode_passages(self, texts: list[shards.Content]) -> shards.Arrays:
        """``tokens`` (all tokens, d), text after text, and ``lengths`` (n,)."""
        vectors = self._encode(texts, "document", store_of(self._store, self._precision))
        return {"tokens": np.concatenate(vectors), "lengths": np.array(list(map(len, vectors)), np.int32)}

    def encode_queries(self, texts: list[str]) -> late.Tokens:
        """For each text its vectors, (tokens, d) float32."""
        return self._encode(texts, "query", "float32")

    def index(self, passages: Passages, folder: Path) -> None:
        """Encode the passages that ``folder`` lacks; build the engine's index, if it needs one."""
        self._opened.clear()
        index_share, about = 0.0, operator.length_hint(passages)
        if late.engine_for(about, self._engine) == "plaid":
            warn_of_plaid(about)
            index_share = late.PLAID_SHARE
        encoded = devices.encode(self, passages, folder, index_share)
        late.build(encoded, late.engine_for(len(encoded), self._engine), folder)

    def search(self, queries: pl.DataFrame, folder: Path, depth: int = 1000) -> Hits:
        """The passages with the greatest MaxSim."""
        encoded, engine, index = self._open(folder)
        tokens = self.encode_queries(queries["text"].to_list())
        if engine == "exact":
            hits = late.exact(tokens, encoded, depth)
        elif engine == "plaid":
            hits = late.plaid(tokens, index, encoded, depth)
        else:
            hits = late.by_tokens(tokens, index, encoded, depth)
        yield from zip(queries["query_id"].to_list(), hits, strict=True)

    @cached_property
    def _model(self) -> Any:
        from sentence_transformers import MultiVectorEncoder

        with checkpoint.loading(self.model):
            pinned = checkpoint.pinned(self.model, self._revision)
            loaded = MultiVectorEncoder(self.model, device=self.device, **pinned)
        set_lengths(loaded, self._lengths)
        return to_precision(loaded, self._precision)

    def _encode(self, texts: Sequence[shards.Content], role: str, store: str) -> list[NDArray[Any]]:
        """For each text its vectors, (tokens, d) of the type ``store``."""
        return self._batch.of(self._model.device, lambda size: self._encode_in(size, texts, role, store))

    def _encode_in(self, size: int, texts: Sequence[shards.Content], role: str, store: str) -> list[NDArray[Any]]:
        """Like sentence-transformers' ``encode``, which waits for the GPU once per text."""
        import torch

        prompt = token_ids.prompt_of(self._model, role)
        order, tokens, lengths = [], [], []
        for rows, features in batches(self._model, texts, list(map(len, texts)), size, prompt=prompt, task=role):
            mask = features["attention_mask"].bool()
            tokens.append(features["token_embeddings"][mask].to(getattr(torch, store)))
            lengths.append(mask.sum(1))
            order.append(rows)
        if not order:
            return []
        ends = torch.cat(lengths).cumsum(0).tolist()
        vectors = np.split(torch.cat(tokens).cpu().numpy(), ends[:-1])
        return [vectors[position] for position in np.argsort(np.concatenate(order), kind="stable")]

    def _open(self, folder: Path) -> tuple[shards.Shards, str, Any]:
        if folder not in self._opened:
            encoded = shards.read(folder)
            engine = late.engine_for(len(encoded), self._engine)
            index = None if engine == "exact" else late.load(encoded, engine, folder)
            self._opened = {folder: (encoded, engine, index)}
        return self._opened[folder]
