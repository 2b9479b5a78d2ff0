"""One score per pair of texts: cross-encoders, which re-rank what BM25 found."""

import os
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import cached_property
from itertools import batched
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from eval_kit.console import with_count
from eval_kit.errors import UserError
from eval_kit.files import atomic, checkpoint
from eval_kit.models.encoder import PretrainedModel
from eval_kit.search import bm25, candidates
from eval_kit.search.candidates import Settings
from eval_kit.search.encoders import batches, check_length, exact_head, keep_to_positions, with_suffix
from eval_kit.search.retriever import Hits, Passages, Retriever, best_first
from eval_kit.search.texts import PassageTexts, write

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
        fields: whether BM25 searches title and text as two fields (§4 of BEIR's paper); None: in its format, yes.
        pair_length: tokens after which a pair is cut, the end of its longer text first; None for the checkpoint's own.
        label: of a model with several, such as the papers' monoBERT, the one whose log-probability is the score.
        first: what finds the passages instead of BM25 over their texts, if anything.
    """

    candidates: int = Settings.depth
    k1: float = Settings.k1
    b: float = Settings.b
    fields: bool | None = None
    pair_length: int | None = None
    label: int | None = None
    first: Retriever | None = field(default=None, init=False)

    architecture = "cross"

    def __post_init__(self) -> None:
        super().__post_init__()
        bm25.check(self.k1, self.b)
        if self.candidates < 1:
            raise UserError(f"candidates must be at least 1, not {self.candidates}")
        if self.loaded is None:
            checkpoint.check(self.model, "cross", self.revision)
        labels = checkpoint.labels(self.model, self.revision) if self.loaded is None else self.loaded.num_labels
        checkpoint.check_labels(self.model, labels, self.label)

    def index(self, passages: Passages, folder: Path) -> None:
        """Store the passages' texts and index them for BM25, unless that was done. A second process waits.

        Texts that a grid stores are linked.
        """
        folder.mkdir(parents=True, exist_ok=True)
        with atomic.file_lock(folder / ".lock"):
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
        passages = PassageTexts(folder / "texts")
        several = self._on_every_gpu() if queries.height > QUERIES_AT_ONCE else nullcontext()
        with exact_head(self._model), several:  # in this order: other processes load the model as it is then
            for group in batched(pairs, QUERIES_AT_ONCE):
                yield from self._rank(group, passages, depth)

    def _rank(
        self, queries: Sequence[tuple[str, str, list[str]]], passages: PassageTexts, depth: int
    ) -> Iterator[tuple[str, list[tuple[str, float]]]]:
        """The ``depth`` best of each ``(query id, text, candidates)``, best first; all pairs are scored together."""
        ids, texts = [], []
        for _, text, candidate_ids in queries:
            ids += candidate_ids
            texts += [text] * len(candidate_ids)
        scores = iter(self.scores(list(zip(texts, passages.of(ids), strict=True))).tolist() if ids else ())
        for query, _, candidate_ids in queries:
            yield query, best_first(zip(candidate_ids, scores, strict=False))[:depth]

    def scores(self, pairs: Sequence[tuple[str, str]]) -> NDArray[np.float32]:
        """The raw score (logit) of each ``(query, passage)``, float32; computed longest first."""
        with exact_head(self._model):
            return self._batch.of(self._device, lambda size: self._scores(pairs, size))

    def prompt(self, role: str, *names: str) -> str | None:
        """The text before each query, the model's default prompt if none was given; and before each passage."""
        return super().prompt(role) if role == "query" else self.passage_prompt

    def _worded(self, pairs: Sequence[tuple[str, str]]) -> Sequence[tuple[str, str]]:
        """The pairs with what stands before and after their texts, but for the query's prompt."""
        if not (self.query_suffix or self.passage_prompt or self.passage_suffix):
            return pairs
        queries = [query + self.query_suffix for query, _ in pairs]
        passages = [(self.passage_prompt or "") + passage for _, passage in pairs]
        if self.passage_suffix:
            sent = [(self.query_prompt or "") + query for query in queries]
            tokenizer, length = self._model.tokenizer, self._model.max_seq_length
            passages = with_suffix(passages, self.passage_suffix, tokenizer, length, pair=sent)
        return list(zip(queries, passages, strict=True))

    def _scores(self, pairs: Sequence[tuple[str, str]], size: int) -> NDArray[np.float32]:
        from torch.nn import Identity

        scores = np.empty(len(pairs), np.float32)
        how = {"activation_fn": Identity(), "prompt": self.query_prompt}
        pairs = self._worded(pairs)
        for rows, values in batches(self._model.predict, pairs, size, self._pool, self._lengths(pairs, "query"), **how):
            if self.label is not None:
                values = values[:, self.label] - np.logaddexp.reduce(values, axis=1)
            scores[rows] = values
        if not np.isfinite(scores).all():
            raise UserError(f"{self.model} gives NaN or infinity for a pair of texts")
        return scores

    @cached_property
    def _model(self) -> Any:
        cross_encoder = self._of_library("CrossEncoder", self.model)
        if cross_encoder is not self.loaded:
            checkpoint.check_labels(self.model, cross_encoder.num_labels, self.label)
            check_length(cross_encoder, self.pair_length or 0)
            keep_to_positions(cross_encoder)
            cross_encoder.max_seq_length = self.pair_length or cross_encoder.max_seq_length
        return cross_encoder


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
