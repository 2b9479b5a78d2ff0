"""Dense bi-encoder: the [CLS] vectors of query and passage, compared by dot product (Karpukhin et al., 2020)."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from baselines.cells.cell import Cell
from baselines.cells.journal import Report
from baselines.options import Biencoder
from baselines.training.backbone import loading, transformer
from baselines.training.distillation import TEACHER_TEMPERATURE, in_batch
from baselines.training.grouping import by_length
from baselines.training.losses import cached
from baselines.training.session import Session
from baselines.training.trainer import Parts, processes
from eval_kit import models
from eval_kit.search.retriever import Retriever

TITLE = "bi-encoder, the [CLS] vectors of query and passage compared by dot product"
IS_TRAINED = True
TAKES_BACKBONE = True
SHARES_INDEX = False


def train(cell: Cell, progress: Report | None = None) -> dict[str, Any]:
    """Train on in-batch and hard negatives, or a teacher's scores; see :func:`baselines.training.trainer.fit`."""
    from sentence_transformers import (
        SentenceTransformer,
        SentenceTransformerTrainer,
        SentenceTransformerTrainingArguments,
    )
    from sentence_transformers.sentence_transformer.losses import (
        DistillKLDivLoss,
        MarginMSELoss,
        MultipleNegativesRankingLoss,
    )
    from sentence_transformers.sentence_transformer.modules import Pooling
    from sentence_transformers.util import dot_score

    options = cell.options_as(Biencoder)
    session = Session(cell, retriever)

    def build(mini_batch: int | None) -> Parts:
        with loading(cell):
            encoder = transformer(
                cell,
                session.judged.texts.values(),
                query_length=options.query_length,
                document_length=options.passage_length,
            )
            pooling = Pooling(encoder.get_embedding_dimension(), "cls")
            model = SentenceTransformer(modules=[encoder, pooling], similarity_fn_name="dot")
        by_length(model)
        session.feed(model)
        losses: dict[str | None, Callable[[], Any]] = {
            "margin_mse": lambda: MarginMSELoss(model),
            "kl": lambda: in_batch(DistillKLDivLoss)(model, teacher_temperature=TEACHER_TEMPERATURE),
            None: lambda: MultipleNegativesRankingLoss(
                model, scale=options.scale, similarity_fct=dot_score, gather_across_devices=processes() > 1
            ),
        }
        loss = losses[options.distillation]()
        whole_or_cached = cached(loss, mini_batch) if mini_batch else loss
        return session.parts(model, whole_or_cached, SentenceTransformerTrainer, SentenceTransformerTrainingArguments)

    return session.train(build, progress)


def retriever(model: str | Path, options: Mapping[str, Any]) -> Retriever:
    """Exact or approximate search by dot product."""
    return models.retriever("dense", model, options)
