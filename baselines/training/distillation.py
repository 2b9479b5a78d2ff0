"""Teachers: a stronger model's scores of a batch, as labels to learn from instead of the judgements.

``margin_mse`` learns the margins of a cross-encoder between the positive and each negative (Hofstätter et al., 2020);
``kl`` the distribution of a late-interaction model over all passages of the batch (TCT-ColBERT: Lin et al., 2020).
"""

from itertools import chain
from typing import Any

import numpy as np

from baselines.options import Trained
from baselines.training.queries import Teacher

TEACHER_TEMPERATURE = 0.25
"""Divides a late-interaction teacher's scores, as in TCT-ColBERT's public code (``train/model_fn.py``)."""
ARCHITECTURES = {"margin_mse": "cross", "kl": "multivector"}
"""The teacher's architecture, by ``distillation``."""


def teacher(options: Trained, commit: str | None = None) -> Teacher | None:
    """The teacher that the options name, if any."""
    if options.teacher is None:
        return None
    labels = _margins if options.distillation == "margin_mse" else _scores
    return labels(options.teacher, commit)


def in_batch(loss: type) -> Any:
    """A KL loss of sentence-transformers, over all passages of the batch instead of each query's own.

    Its labels are (queries, passages): the passages column by column, as the dataset has them.
    """

    class InBatch(loss):  # type: ignore[misc]
        def compute_loss_from_embeddings(self, embeddings: list[Any], labels: Any) -> Any:
            query, *passages = embeddings
            every = [passage.expand_as(query) for passage in chain.from_iterable(passages)]
            return super().compute_loss_from_embeddings([query, *every], labels)

    return InBatch


def _margins(model: str, commit: str | None) -> Teacher:
    from eval_kit.models.cross import Cross

    cross = Cross(model, revision=commit)

    def labels(queries: list[str], columns: list[list[str]]) -> list[list[float]]:
        scores = [cross.scores(list(zip(queries, column, strict=True))) for column in columns]
        margins: list[list[float]] = (scores[0] - np.stack(scores[1:])).T.tolist()
        return margins

    return labels


def _scores(model: str, commit: str | None) -> Teacher:
    import torch
    from sentence_transformers.util import maxsim

    from eval_kit.models.multivector import MultiVector

    late = MultiVector(model, revision=commit)

    def labels(queries: list[str], columns: list[list[str]]) -> list[list[float]]:
        query_tokens = list(map(torch.from_numpy, late.encode_queries(queries)))
        vectors = late.encode_passages(list(chain.from_iterable(columns)))
        passages = torch.from_numpy(vectors["tokens"]).float().split(vectors["lengths"].tolist())  # type: ignore[no-untyped-call]
        scores: list[list[float]] = maxsim(query_tokens, list(passages), device=late._model.device).tolist()
        return scores

    return labels
