"""ADORE: a query encoder that learns from the passages it finds at each step (Zhan et al., SIGIR 2021, §4.2).

It begins as another cell's model, STAR's in the paper. The passage encoder and its vectors stand still; at each step
the query vectors of the batch search all passages, and those found count by LambdaRank's weights, as in
``adore/train.py`` of github.com/jingtaozhan/DRhard.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from baselines.cell import Cell
from baselines.options import Biencoder
from baselines.training.backbone import loading
from baselines.training.queries import passage_texts, training
from baselines.training.trainer import Trainee
from eval_kit.models import opening
from eval_kit.search import shards
from eval_kit.search.dense import exact

type Rows = NDArray[np.int64]


def build(cell: Cell, queries: list[str], mini_batch: int | None) -> Trainee:
    """The model of two encoders, of which the loss trains the one for queries."""
    from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer
    from sentence_transformers.base.modules import Router

    from baselines.training.losses import with_cache

    start, options = cell.beginning, cell.options_as(Biencoder)
    with loading(cell):
        encoders: list[Any] = [SentenceTransformer(str(start.model)) for _ in range(2)]
        of_queries, of_passages = map(list, encoders)
        router = Router.for_query_document(of_queries, of_passages)
        router.sub_modules["document"].requires_grad_(False)
        model = SentenceTransformer(modules=[router], similarity_fn_name="dot")
    folder = cell.folder / "training" / "passages"
    opening.retriever("dense", start.model, options.as_json()).index(passage_texts(cell), folder)
    loss = with_found(model, Found(shards.read(folder), [*training(cell).positives.values()], options.mine_depth))
    return Trainee(SentenceTransformerTrainer, model, with_cache(loss, mini_batch) if mini_batch else loss)


class Found:
    """The passages that each query finds among all."""

    def __init__(self, passages: shards.Shards, positives: list[Any], depth: int) -> None:
        """``positives`` has the relevant passages of each training query, by its number."""
        self._passages, self._depth = passages, depth
        self._in_order = np.argsort(passages.rank)
        self._ids = passages.ids[self._in_order]
        self._positives = [self._rows(of_query) for of_query in positives]

    def _rows(self, passage_ids: Any) -> Rows:
        return self._in_order[np.searchsorted(self._ids, [name.encode() for name in passage_ids])]

    def candidates(self, queries: NDArray[np.float32], numbers: list[int]) -> Any:
        """For each query the passages' vectors (n, d), which are relevant, and what their ranks are worth: 1 / rank.

        Where none of those found is relevant, the relevant ones stand below them, where a rank is worth nothing.
        """
        for hits, number in zip(exact(queries, self._passages, self._depth), numbers, strict=True):
            rows, positives = self._rows([name for name, _ in hits]), self._positives[number]
            worth = 1 / np.arange(1, len(rows) + 1)
            if not (relevant := np.isin(rows, positives)).any():
                rows, relevant = np.append(rows, positives), np.append(relevant, [True] * len(positives))
                worth = np.append(worth, [0.0] * len(positives))
            yield np.asarray(self._passages.array("vectors")[rows], np.float32), relevant, worth


def with_found(model: Any, found: Found) -> Any:
    """The loss: softplus(s(other) − s(relevant)) of pairs of passages, weighted by how far the worth of their ranks
    differs; the mean over a query's pairs, then over queries.
    """
    import torch
    from torch.nn.functional import softplus

    class WithFound(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, sentence_features: Any, labels: Any) -> Any:
            [features] = sentence_features
            return self.compute_loss_from_embeddings([self.model(features)["sentence_embedding"]], labels)

        def compute_loss_from_embeddings(self, embeddings: list[Any], labels: Any) -> Any:
            """``embeddings`` are of queries (n, d) alone, ``labels`` their numbers."""
            [queries] = embeddings
            losses, numbers = [], labels.tolist()
            of_all = found.candidates(queries.detach().float().cpu().numpy(), numbers)
            for query, (vectors, relevant, worth) in zip(queries.float(), of_all, strict=True):
                scores = torch.from_numpy(vectors).to(query.device) @ query
                weights = torch.from_numpy(np.abs(worth[relevant][:, None] - worth[~relevant])).to(scores)
                pairs = weights * softplus(scores[~relevant] - scores[relevant][:, None])
                losses.append(pairs.sum() / max(1, pairs.numel()))
            return torch.stack(losses).mean()

    return WithFound()
