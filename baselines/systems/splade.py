"""SPLADE: weights of the vocabulary's terms, kept few by FLOPS regularisation.

The option ``pooling`` takes the greatest weight of a term over the tokens (``max``: SPLADE-max, Formal et al., SPLADE
v2, 2021) or their sum (``sum``: Formal et al., SIGIR 2021). With ``share`` the loss is that of github.com/naver/splade
(:func:`baselines.training.losses.in_batch_pairwise`), else sentence-transformers', over all passages of the batch.
"""

from functools import partial
from typing import Any

from baselines.cell import Cell
from baselines.options import Splade
from baselines.training.backbone import loading, transformer
from baselines.training.distillation import TEACHER_TEMPERATURE, in_batch
from baselines.training.grouping import by_length
from baselines.training.losses import flops_apart, in_batch_pairwise
from baselines.training.trainer import Trainee, train_by
from eval_kit.models import opening

TITLE = "SPLADE, weights of the vocabulary's terms compared by dot product"


def build(cell: Cell, queries: list[str], mini_batch: int | None) -> Trainee:
    """Learn from in-batch and hard negatives, or from a teacher's scores."""
    from sentence_transformers import SparseEncoder, SparseEncoderTrainer
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
    with loading(cell):
        encoder = transformer(cell, queries, transformer_task="fill-mask")
        model = SparseEncoder(modules=[encoder, SpladePooling(options.pooling)], similarity_fn_name="dot")
    _greatest_first(model)
    by_length(model)
    if options.distillation == "margin_mse":
        ranking: Any = SparseMarginMSELoss(model)
    elif options.distillation == "kl":
        ranking = in_batch(SparseDistillKLDivLoss)(model, temperature=1.0, teacher_temperature=TEACHER_TEMPERATURE)
    elif options.share is not None:
        ranking = in_batch_pairwise(options.share)
    else:
        ranking = SparseMultipleNegativesRankingLoss(model, scale=options.scale, similarity_fct=dot_score)
    splade = partial(CachedSpladeLoss, mini_batch_size=mini_batch) if mini_batch else SpladeLoss
    loss = splade(
        model,
        ranking,
        document_regularizer=flops_apart(model, options.negatives),
        document_regularizer_weight=options.passage_flops,
        query_regularizer_weight=options.query_flops,
    )
    schedule = SpladeRegularizerWeightSchedulerCallback(loss, warmup_ratio=options.flops_warmup)
    return Trainee(SparseEncoderTrainer, model, loss, [schedule])


retriever = partial(opening.retriever, "sparse")
train = partial(train_by, build, retriever)


def _greatest_first(model: Any) -> None:
    """Let the pooling take a term's greatest logit before ReLU and log(1 + x) instead of after.

    Both functions are monotone, so the weights are the same bit for bit; but the functions see one row for a text
    instead of one for a token, in less than half of the memory. A sum of weights cannot be taken so.
    """
    import torch

    pooling = model[-1]
    if getattr(pooling, "pooling_strategy", "") != "max" or pooling.activation_function != "relu":
        return
    by_token = pooling.forward

    def forward(features: dict[str, Any]) -> dict[str, Any]:
        if "cu_seq_lens_q" in features:  # texts without padding, one after the other
            return by_token(features)  # type: ignore[no-any-return]
        logits = features["token_embeddings"]
        mask = features["attention_mask"].unsqueeze(-1).to(logits.dtype)
        greatest = (logits * mask).max(1).values
        pooling.embedding_dimension = pooling.embedding_dimension or greatest.shape[1]
        return features | {"sentence_embedding": torch.log1p(torch.relu(greatest))}

    pooling.forward = forward
