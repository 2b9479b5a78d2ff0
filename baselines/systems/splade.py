"""SPLADE: weights of the vocabulary's terms, kept few by FLOPS regularisation.

The option ``pooling`` takes the greatest weight of a term over the tokens (``max``: SPLADE-max, Formal et al., SPLADE
v2, 2021) or their sum (``sum``: Formal et al., SIGIR 2021). With ``share`` the loss is that of github.com/naver/splade
(:func:`baselines.training.losses.in_batch_pairwise`), else sentence-transformers', over all passages of the batch.
"""

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from baselines.cells.cell import Cell
from baselines.cells.journal import Report
from baselines.options import Splade
from baselines.training.backbone import loading, transformer
from baselines.training.distillation import TEACHER_TEMPERATURE, in_batch
from baselines.training.grouping import by_length
from baselines.training.losses import gathered_flops, in_batch_pairwise
from baselines.training.session import Session
from baselines.training.trainer import Parts, processes
from eval_kit import models
from eval_kit.models.sparse import greatest_first
from eval_kit.search.retriever import Retriever

TITLE = "SPLADE, weights of the vocabulary's terms compared by dot product"
IS_TRAINED = True
TAKES_BACKBONE = True
SHARES_INDEX = False


def train(cell: Cell, progress: Report | None = None) -> dict[str, Any]:
    """Train on in-batch and hard negatives, or a teacher's scores; see :func:`baselines.training.trainer.fit`."""
    from sentence_transformers import SparseEncoder, SparseEncoderTrainer, SparseEncoderTrainingArguments
    from sentence_transformers.sparse_encoder.callbacks.splade_callbacks import SpladeRegularizerWeightSchedulerCallback
    from sentence_transformers.sparse_encoder.losses import (
        CachedSpladeLoss,
        SparseDistillKLDivLoss,
        SparseMarginMSELoss,
        SparseMultipleNegativesRankingLoss,
        SpladeLoss,
    )
    from sentence_transformers.sparse_encoder.modules import SpladePooling
    from sentence_transformers.util import dot_score

    options = cell.options_as(Splade)
    session = Session(cell, retriever)

    def build(mini_batch: int | None) -> Parts:
        with loading(cell):
            encoder = transformer(
                cell,
                session.judged.texts.values(),
                transformer_task="fill-mask",
                query_length=options.query_length,
                document_length=options.passage_length,
            )
            model = SparseEncoder(modules=[encoder, SpladePooling(options.pooling)], similarity_fn_name="dot")
        greatest_first(model)
        by_length(model)
        session.feed(model)
        losses: dict[str | None, Callable[[], Any]] = {
            "margin_mse": lambda: SparseMarginMSELoss(model),
            "kl": lambda: in_batch(SparseDistillKLDivLoss)(
                model, temperature=1.0, teacher_temperature=TEACHER_TEMPERATURE
            ),
            None: lambda: SparseMultipleNegativesRankingLoss(
                model, scale=options.scale, similarity_fct=dot_score, gather_across_devices=processes() > 1
            ),
        }
        if options.share is not None:
            losses["share"] = partial(in_batch_pairwise, options.share)
        flops = gathered_flops(model) if processes() > 1 else None
        splade = partial(CachedSpladeLoss, mini_batch_size=mini_batch) if mini_batch else SpladeLoss
        loss = splade(
            model,
            losses[options.distillation or ("share" if options.share else None)](),
            document_regularizer_weight=options.passage_flops,
            query_regularizer_weight=options.query_flops,
            document_regularizer=flops,
            query_regularizer=flops,
        )
        schedule = SpladeRegularizerWeightSchedulerCallback(loss, warmup_ratio=options.flops_warmup)
        return session.parts(model, loss, SparseEncoderTrainer, SparseEncoderTrainingArguments, [schedule])

    return session.train(build, progress)


def retriever(model: str | Path, options: Mapping[str, Any]) -> Retriever:
    """Search by inner product of term weights."""
    return models.retriever("sparse", model, options)
