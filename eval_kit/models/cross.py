"""One score per pair of texts: cross-encoders, which re-rank what BM25 found."""

import os
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import cached_property
from itertools import batched, chain
from pathlib import Path
from typing import Any
from weakref import finalize

import numpy as np
import polars as pl
from filelock import FileLock
from numpy.typing import NDArray

from eval_kit.console import with_count
from eval_kit.errors import UserError
from eval_kit.files import checkpoint
from eval_kit.models import devices, token_ids
from eval_kit.models.encoder import PretrainedModel
from eval_kit.search import bm25, candidates
from eval_kit.search.candidates import Settings
from eval_kit.search.encoders import batches, check_length, to_precision
from eval_kit.search.retriever import Hits, Passages, Retriever, best_first
from eval_kit.search.shards import Content
from eval_kit.search.texts import PassageTexts, write
from eval_kit.search.tokens import PassageTokens

FIRST = "first"
"""Folder of the index of a :class:`Cross`'s ``first``, below its own."""
QUERIES_AT_ONCE = 32
"""Queries whose pairs are scored together, ordered by length."""


@dataclass(eq=False)
class Cross(PretrainedModel):
    """A model that scores a query and a passage together; BM25 finds the passages.

    The index does not depend on the model: one folder serves any number of models.

    Attributes:
        candidates: passages from BM25 that are re-ranked per query.
        k1: of BM25.
        b: of BM25.
        pair_length: tokens after which a pair is cut, from the passage's end; None for the checkpoint's own.
        first: what finds the passages instead of BM25 over their texts, if anything.
    """

    candidates: int = Settings.depth
    k1: float = Settings.k1
    b: float = Settings.b
    pair_length: int | None = None
    first: Retriever | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        bm25.check(self.k1, self.b)
        if self.candidates < 1:
            raise UserError(f"candidates must be at least 1, not {self.candidates}")
        checkpoint.check(self.model, "cross", self.revision)

    def index(self, passages: Passages, folder: Path) -> None:
        """Store the passages' texts and index them for BM25, unless that was done. A second process waits.

        Texts that a grid stores are linked.
        """
        folder.mkdir(parents=True, exist_ok=True)
        with FileLock(folder / ".lock"):
            texts = _keep(passages, folder / "texts")
        if self.first:
            self.first.index(texts, folder / FIRST)
            return
        bm25.index_once(with_count(texts, "indexing passages", "passages"), folder / candidates.BM25, key=texts.key)

    def search(self, queries: pl.DataFrame, folder: Path, depth: int = 1000) -> Hits:
        """BM25's candidates, ranked by the model's raw scores."""
        texts = dict(queries.select("query_id", "text").iter_rows())
        if self.first:
            rankings: Hits = self.first.search(queries, folder / FIRST, self.candidates)
        else:
            settings = Settings(self.candidates, self.k1, self.b)
            rankings = candidates.of(queries, folder / candidates.BM25, settings)
        pairs = ((query, texts[query], list(map(candidates.ID, hits))) for query, hits in rankings)
        groups = ((batch, folder, depth) for batch in batched(pairs, QUERIES_AT_ONCE))
        crew = self._workers
        yield from chain.from_iterable(crew.spread(crew.method("rank"), groups))

    @cached_property
    def _workers(self) -> devices.Workers:
        """The processes that score pairs; they end with this object."""
        stack = ExitStack()
        # workers that held this object would keep it alive for ever
        crew = stack.enter_context(devices.workers(devices.without_model(self)))
        finalize(self, stack.close)
        return crew if crew.retriever is None else devices.Workers(self, crew.spread)

    def rank(
        self, queries: Sequence[tuple[str, str, list[str]]], folder: Path, depth: int
    ) -> list[tuple[str, list[tuple[str, float]]]]:
        """The ``depth`` best of each ``(query id, text, candidates)``, best first; all pairs are scored together."""
        ids, texts = [], []
        for _, text, passages in queries:
            ids += passages
            texts += [text] * len(passages)
        contents = self._contents(folder / "texts").of(ids) if ids else []
        scores = iter(self.scores(list(zip(texts, contents, strict=True))).tolist() if ids else ())
        return [(query, best_first(zip(passages, scores, strict=False))[:depth]) for query, _, passages in queries]

    def scores(self, pairs: Sequence[tuple[str, Content]]) -> Any:
        """The raw score (logit) of each ``(query, passage)``, float32; computed longest first."""
        return self._batch.of(self._model.device, lambda size: self._scores(pairs, size))

    def _scores(self, pairs: Sequence[tuple[str, Content]], size: int) -> NDArray[np.float32]:
        import torch

        order, parts = [], []
        lengths = [len(query) + len(passage) for query, passage in pairs]
        for rows, features in batches(self._model, pairs, lengths, size, prompt=token_ids.prompt_of(self._model)):
            parts.append(features["scores"].float())
            order.append(rows)
        values = torch.cat(parts).cpu().numpy()
        if values.ndim > 1 and values.shape[1] > 1:
            raise UserError(f"{self.model}: gives {values.shape[1]} scores a pair; a re-ranker gives one")
        if not np.isfinite(values).all():
            raise UserError(f"{self.model}: gives NaN or infinity for a pair of texts")
        scores = np.empty(len(pairs), np.float32)
        scores[np.concatenate(order)] = values.reshape(-1)
        return scores

    def _contents(self, folder: Path) -> PassageTexts | PassageTokens:
        """The passages as the model reads them: as token ids where a grid stores their texts, else as texts."""
        if folder not in self._opened:
            texts = PassageTexts(folder)
            prompt = token_ids.prompt_of(self._model)
            self._opened = {folder: token_ids.read(self._model, texts, prompt) if folder.is_symlink() else texts}
        contents: PassageTexts | PassageTokens = self._opened[folder]
        return contents

    @cached_property
    def _model(self) -> Any:
        cross_encoder = self._of_library("CrossEncoder", self.model, max_length=self.pair_length)
        check_length(cross_encoder, self.pair_length or 0)
        return _with_exact_head(to_precision(cross_encoder, self.encode_precision))


def _with_exact_head(model: Any) -> Any:
    """The model with its last layer in float32: 16-bit scores would be full of ties."""
    from torch.nn import Linear

    *_, head = (module for module in model.modules() if isinstance(module, Linear))
    head.float().register_forward_pre_hook(lambda _, inputs: (inputs[0].float(),))
    return model


def _keep(passages: Passages, folder: Path) -> PassageTexts:
    """The texts in ``folder``: a link to where a grid stores them, else a copy."""
    if isinstance(passages, PassageTexts) and not folder.exists():
        target = os.path.relpath(passages.folder.resolve(), folder.parent.resolve())
        folder.symlink_to(target, target_is_directory=True)
    if isinstance(passages, PassageTexts) and folder.samefile(passages.folder):
        return PassageTexts(folder)
    if folder.is_symlink():
        folder.unlink()
    return write(passages, folder)
