"""A score a pair of texts: cross-encoders, which re-rank what BM25 found."""

from functools import cached_property
from itertools import batched, chain, repeat
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from filelock import FileLock

from baselines.architectures import checkpoint
from baselines.architectures.encoding import Batch, to_precision
from eval_kit.console import counted
from eval_kit.errors import UserError
from search import bm25, candidates
from search.candidates import Settings
from search.retriever import Hits, Passages, best_first
from search.texts import PassageTexts, write

QUERIES_AT_ONCE = 32
"""Queries whose pairs are scored together, ordered by length."""


class Cross:
    """A model that scores a query and a passage together; BM25 finds the passages.

    What :meth:`index` makes does not depend on the model: one folder serves any number of them.

    Args:
        model: Hub id or folder.
        candidates: passages of BM25 that are re-ranked for a query.
        k1: of BM25.
        b: of BM25.
        pair_length: tokens after which a pair is cut, from the passage's end; None for the checkpoint's own.
        encode_batch: pairs in a batch; None for 32 on a CPU and 256 on a GPU.
        encode_precision: of the model's arithmetic: ``float32``, ``bfloat16`` or ``float16``.
        revision: of the model on the Hub.
    """

    def __init__(
        self,
        model: str,
        *,
        candidates: int = Settings.depth,
        k1: float = Settings.k1,
        b: float = Settings.b,
        pair_length: int | None = None,
        encode_batch: int | None = None,
        encode_precision: str = "float32",
        revision: str | None = None,
    ) -> None:
        if candidates < 1:
            raise UserError(f"candidates must be at least 1, not {candidates}")
        self.model = model
        self._settings, self._length = Settings(candidates, k1, b), pair_length
        self._batch, self._precision, self._revision = Batch(encode_batch), encode_precision, revision
        checkpoint.check(model, "cross", revision)

    def index(self, passages: Passages, folder: Path) -> None:
        """Keep the passages' texts and index them for BM25, unless that was done. A second process waits."""
        folder.mkdir(parents=True, exist_ok=True)
        with FileLock(folder / ".lock"):
            texts = write(passages, folder / "texts")
        bm25.index_once(counted(texts, "indexing passages", "passages"), folder / candidates.BM25, key=texts.key)

    def search(self, queries: pl.DataFrame, folder: Path, depth: int = 1000) -> Hits:
        """BM25's candidates in the order of the model's raw scores."""
        texts = PassageTexts(folder / "texts")
        query_texts = dict(queries.select("query_id", "text").iter_rows())
        for batch in batched(candidates.of(queries, folder, self._settings), QUERIES_AT_ONCE):
            yield from self._ranked(query_texts, dict(batch), texts, depth)

    def scores(self, pairs: list[tuple[str, str]]) -> Any:
        """The raw score (logit) of each ``(query, passage)``, float32; computed longest first."""
        from torch.nn import Identity

        model = self._model
        scores = self._batch.of(
            model.device,
            lambda size: model.predict(
                pairs, batch_size=size, activation_fn=Identity(), show_progress_bar=False, convert_to_tensor=True
            ),
        )
        values = np.asarray(scores.float().cpu().numpy(), np.float32)
        if values.ndim != 1:
            raise UserError(f"{self.model}: gives {values.shape[1]} scores a pair; a re-ranker gives one")
        if not np.isfinite(values).all():
            raise UserError(f"{self.model}: gives NaN or infinity for a pair of texts")
        return values

    @cached_property
    def _model(self) -> Any:
        from sentence_transformers import CrossEncoder

        with checkpoint.loading(self.model):
            loaded = CrossEncoder(self.model, **checkpoint.pinned(self.model, self._revision), max_length=self._length)
        return _with_exact_head(to_precision(loaded, self._precision))

    def _ranked(
        self, query_texts: dict[str, str], candidates: dict[str, list[str]], texts: PassageTexts, depth: int
    ) -> Hits:
        ids = list(chain.from_iterable(candidates.values()))
        queries = chain.from_iterable(repeat(query_texts[query], len(candidates[query])) for query in candidates)
        scores = iter(self.scores(list(zip(queries, texts.of(ids), strict=True))).tolist() if ids else ())
        for query, passages in candidates.items():
            yield query, best_first((passage, next(scores)) for passage in passages)[:depth]


def _with_exact_head(model: Any) -> Any:
    """The model with its last layer in float32: scores of 16 bits would be full of ties."""
    from torch.nn import Linear

    *_, head = (module for module in model.modules() if isinstance(module, Linear))
    head.float().register_forward_pre_hook(lambda _, inputs: (inputs[0].float(),))
    return model
