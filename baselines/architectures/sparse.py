"""One weight per vocabulary term: SPLADE and its kin, and SPARTA."""

import json
from collections.abc import Iterable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from baselines.architectures import checkpoint, devices, token_ids
from baselines.architectures.encoding import Batch, precision_of, set_lengths, to_precision
from baselines.architectures.sparta import Sparta
from eval_kit.errors import UserError
from search import impact, shards, sparse
from search.retriever import Hits, Passages

ENGINES = ("csr", "lucene")
FORMS = ("sparta",)


class Sparse:
    """A model that weights the terms of its vocabulary.

    Args:
        model: Hub id or folder.
        engine: ``csr`` (exact) or ``lucene`` (an impact index of rounded weights).
        form: ``sparta`` for a plain transformer trained as SPARTA; None for a checkpoint whose files say what it is.
        query_length: tokens after which a query is cut; None for the checkpoint's own.
        passage_length: tokens after which a passage is cut.
        encode_batch: texts in a batch; None for 32 on a CPU and 256 on a GPU.
        encode_precision: of the model's arithmetic: ``float32``, ``bfloat16`` or ``float16``; None for float16 on a GPU
            and float32 on a CPU.
        revision: of the model on the Hub.
    """

    def __init__(
        self,
        model: str,
        *,
        engine: str = "csr",
        form: str | None = None,
        query_length: int | None = None,
        passage_length: int | None = None,
        encode_batch: int | None = None,
        encode_precision: str | None = None,
        revision: str | None = None,
    ) -> None:
        if engine not in ENGINES:
            raise UserError(f"there is no sparse engine {engine!r}; there are {', '.join(ENGINES)}")
        if form not in (None, *FORMS):
            raise UserError(f"there is no sparse form {form!r}; there is {FORMS[0]}")
        self.model, self._form = model, form
        self._engine, self._batch, self._precision = engine, Batch(encode_batch), encode_precision
        self._lengths = {"query": query_length, "document": passage_length}
        self._revision = revision
        self.device: str | None = None
        self._opened: dict[Path, tuple[shards.Shards, Any]] = {}
        checkpoint.check(model, "sparse", revision, bare=form is not None)

    @cached_property
    def identity(self) -> str:
        """Identifies everything that decides a passage's weights."""
        decides = [checkpoint.digest(self.model, self._revision), *([self._form] if self._form else [])]
        return json.dumps(["postings", *decides, self._lengths["document"], precision_of(self._precision)])

    def as_read(self, passages: Passages) -> Iterable[tuple[str, shards.Content]]:
        """The passages as the model reads them: as token ids where those are stored, else as texts."""
        if self._form is not None:
            return passages
        return token_ids.stored(self._model, passages, token_ids.prompt_of(self._model))

    def encode_passages(self, texts: list[shards.Content]) -> shards.Arrays:
        """The postings of the terms; the texts are numbered in order."""
        return sparse.arrays_of(self._encode(texts, "document"))

    def encode_queries(self, texts: list[str]) -> Any:
        """A scipy CSR matrix (n, terms) of float32, in the order of the texts."""
        return self._encode(texts, "query")

    def index(self, passages: Passages, folder: Path) -> None:
        """Encode the passages that ``folder`` lacks; build the Lucene index, if the engine is ``lucene``."""
        self._opened.clear()
        encoded = devices.encode(self, passages, folder)
        if self._engine == "lucene":
            impact.build(encoded, folder)

    def search(self, queries: pl.DataFrame, folder: Path, depth: int = 1000) -> Hits:
        """The passages with the greatest inner product, among those that share a term with the query."""
        encoded, searcher = self._open(folder)
        weights = self.encode_queries(queries["text"].to_list())
        hits = impact.search(weights, searcher, depth) if searcher else sparse.exact(weights, encoded, depth)
        yield from zip(queries["query_id"].to_list(), hits, strict=True)

    @cached_property
    def _model(self) -> Any:
        if self._form is not None:
            sparta = Sparta(self.model, self._revision, self.device, self._lengths["document"])
            return to_precision(sparta, self._precision)
        from sentence_transformers import SparseEncoder

        with checkpoint.loading(self.model):
            pinned = checkpoint.pinned(self.model, self._revision)
            loaded = SparseEncoder(self.model, device=self.device, **pinned)
        set_lengths(loaded, self._lengths)
        return to_precision(loaded, self._precision)

    def _encode(self, texts: Sequence[shards.Content], role: str) -> Any:
        """Batch by batch, longest first: a batch is as wide as the vocabulary until it is made sparse."""
        return self._batch.of(self._model.device, lambda size: self._encode_in(size, texts, role))

    def _encode_in(self, batch: int, texts: Sequence[shards.Content], role: str) -> Any:
        from scipy.sparse import csr_matrix, vstack

        encode = self._model.encode_query if role == "query" else self._model.encode_document
        order = np.argsort([-len(text) for text in texts], kind="stable")
        parts = []
        for start in range(0, len(order), batch):
            rows = order[start : start + batch]
            dense = encode(
                [texts[row] for row in rows],
                batch_size=batch,
                show_progress_bar=False,
                convert_to_sparse_tensor=False,
            )
            nonzero = dense.nonzero(as_tuple=True)
            weights = dense[nonzero].float().cpu().numpy()
            parts.append(csr_matrix((weights, [axis.cpu().numpy() for axis in nonzero]), shape=tuple(dense.shape)))
        return vstack(parts, format="csr", dtype=np.float32)[np.argsort(order, kind="stable")]

    def _open(self, folder: Path) -> tuple[shards.Shards, Any]:
        if folder not in self._opened:
            encoded = shards.read(folder)
            searcher = impact.load(encoded, folder) if self._engine == "lucene" else None
            self._opened = {folder: (encoded, searcher)}
        return self._opened[folder]
