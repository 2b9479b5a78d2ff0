"""One vector a token: ColBERT and its kin."""

import json
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from baselines.architectures import checkpoint
from baselines.architectures.encoding import Batch, set_lengths, to_precision
from eval_kit.errors import UserError
from search import late, shards
from search.retriever import Hits, Passages

STORES = ("float32", "float16")


class MultiVector:
    """A model that makes a vector of each token.

    Args:
        model: Hub id or folder.
        engine: ``exact``, ``plaid`` (fast-plaid) or ``faiss``.
        query_length: tokens after which a query is cut, or to which it is filled up where the checkpoint does that;
            None for the checkpoint's own.
        passage_length: tokens after which a passage is cut.
        encode_batch: texts in a batch; None for 32 on a CPU and 256 on a GPU.
        encode_precision: of the model's arithmetic: ``float32``, ``bfloat16`` or ``float16``.
        store: of the vectors on the disk: ``float32`` or ``float16``.
        revision: of the model on the Hub.
    """

    def __init__(
        self,
        model: str,
        *,
        engine: str = "exact",
        query_length: int | None = None,
        passage_length: int | None = None,
        encode_batch: int | None = None,
        encode_precision: str = "float32",
        store: str = "float32",
        revision: str | None = None,
    ) -> None:
        late.check_engine(engine)
        if store not in STORES:
            raise UserError(f"vectors cannot be stored as {store!r}; there are {', '.join(STORES)}")
        self.model = model
        self._engine, self._batch, self._precision, self._store = engine, Batch(encode_batch), encode_precision, store
        self._lengths = {"query": query_length, "document": passage_length}
        self._revision = revision
        self._opened: dict[Path, tuple[shards.Shards, Any]] = {}
        checkpoint.check(model, "multivector", revision)

    @cached_property
    def identity(self) -> str:
        """Of everything that decides a passage's vectors."""
        weights = checkpoint.digest(self.model, self._revision)
        return json.dumps(["multivector", weights, self._lengths["document"], self._precision, self._store])

    def encode_passages(self, texts: list[str]) -> shards.Arrays:
        """``tokens`` (all tokens, d), one text's below the other's, and ``lengths`` (n,)."""
        import torch

        vectors = self._encode(texts, "document")
        tokens = torch.cat(vectors).float().cpu().numpy().astype(self._store, copy=False)
        return {"tokens": tokens, "lengths": np.array(list(map(len, vectors)), np.int32)}

    def encode_queries(self, texts: list[str]) -> late.Tokens:
        """For each text its vectors, (tokens, d) float32."""
        return [tokens.float().cpu().numpy() for tokens in self._encode(texts, "query")]

    def index(self, passages: Passages, folder: Path) -> None:
        """Encode the passages that ``folder`` lacks; make the engine's index, if it needs one."""
        self._opened.clear()
        index_share = late.PLAID_SHARE if self._engine == "plaid" else 0.0
        encoded = shards.write(passages, folder, self.encode_passages, self.identity, index_share=index_share)
        late.build(encoded, self._engine, folder)

    def search(self, queries: pl.DataFrame, folder: Path, depth: int = 1000) -> Hits:
        """The passages of greatest MaxSim."""
        encoded, index = self._open(folder)
        tokens = self.encode_queries(queries["text"].to_list())
        if self._engine == "exact":
            hits = late.exact(tokens, encoded, depth)
        elif self._engine == "plaid":
            hits = late.plaid(tokens, index, encoded, depth)
        else:
            hits = late.by_tokens(tokens, index, encoded, depth)
        yield from zip(queries["query_id"].to_list(), hits, strict=True)

    @cached_property
    def _model(self) -> Any:
        from sentence_transformers import MultiVectorEncoder

        with checkpoint.loading(self.model):
            loaded = MultiVectorEncoder(self.model, **checkpoint.pinned(self.model, self._revision))
        set_lengths(loaded, self._lengths)
        return to_precision(loaded, self._precision)

    def _encode(self, texts: list[str], role: str) -> Any:
        """For each text a tensor of its vectors."""
        model = self._model
        encode = model.encode_query if role == "query" else model.encode_document
        return self._batch.of(
            model.device, lambda size: encode(texts, batch_size=size, show_progress_bar=False, convert_to_numpy=False)
        )

    def _open(self, folder: Path) -> tuple[shards.Shards, Any]:
        if folder not in self._opened:
            encoded = shards.read(folder)
            index = None if self._engine == "exact" else late.load(encoded, self._engine, folder)
            self._opened = {folder: (encoded, index)}
        return self._opened[folder]
