"""Dense bi-encoder: the [CLS] vectors of query and passage, compared by dot product (Karpukhin et al., 2020)."""

from functools import partial
from typing import Any

import numpy as np

from baselines.cell import Cell
from baselines.options import Biencoder
from baselines.training import adore
from baselines.training.backbone import loading, transformer
from baselines.training.distillation import TEACHER_TEMPERATURE, in_batch
from baselines.training.grouping import by_length
from baselines.training.losses import with_cache
from baselines.training.trainer import Trainee, train_by
from eval_kit.errors import UserError
from eval_kit.models import opening

TITLE = "bi-encoder, the [CLS] vectors of query and passage compared by dot product"


def build(cell: Cell, queries: list[str], mini_batch: int | None) -> Trainee:
    """Learn from in-batch and hard negatives, from a teacher's scores, or from what another model's passages give."""
    from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer
    from sentence_transformers.sentence_transformer.losses import (
        DistillKLDivLoss,
        MarginMSELoss,
        MultipleNegativesRankingLoss,
    )
    from sentence_transformers.sentence_transformer.modules import Pooling
    from sentence_transformers.util import dot_score

    options = cell.options_as(Biencoder)
    if cell.start is not None:
        return adore.build(cell, queries, mini_batch)
    with loading(cell):
        encoder = transformer(cell, queries)
        pooling = Pooling(encoder.get_embedding_dimension(), "cls")
        model = SentenceTransformer(modules=[encoder, pooling], similarity_fn_name="dot")
        sample = queries[:8]
        vectors = model.encode(sample, batch_size=len(sample), show_progress_bar=False)
    if len(vectors) > 1 and not np.ptp(vectors, axis=0).any():
        what = f"{options.backbone} gives {len(vectors)} queries the same vector"
        raise UserError(what, "A decoder does so, because its first token sees no other", "Use an encoder")
    by_length(model)
    if options.distillation == "margin_mse":
        loss: Any = MarginMSELoss(model)
    elif options.distillation == "kl":
        loss = in_batch(DistillKLDivLoss)(model, teacher_temperature=TEACHER_TEMPERATURE)
    else:
        loss = MultipleNegativesRankingLoss(model, scale=options.scale, similarity_fct=dot_score)
    return Trainee(SentenceTransformerTrainer, model, with_cache(loss, mini_batch) if mini_batch else loss)


retriever = partial(opening.retriever, "dense")
train = partial(train_by, build, retriever)
