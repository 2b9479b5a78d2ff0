"""ColBERT: one vector per token, compared by late interaction (Khattab and Zaharia, 2020).

The softmax is over all passages of the batch or, if ``in_batch_negatives`` is false, over a query's own, as in the
authors' repository of 2020; ``similarity`` is ``cosine``, or ``l2``, with which that repository trains.
"""

import string
from collections.abc import Iterable
from functools import partial
from typing import Any

from baselines.cell import Cell
from baselines.options import Colbert
from baselines.training.backbone import loading, transformer
from baselines.training.losses import negative_squared_l2, own_passages_only
from baselines.training.trainer import Trainee, train_by
from eval_kit.errors import UserError
from eval_kit.models import opening

TITLE = "ColBERT, a vector of each token compared by late interaction"
ROLES = {"query": "query", "passage": "document"}
"""sentence-transformers' names of the two kinds of text."""


def build(cell: Cell, queries: list[str], mini_batch: int | None) -> Trainee:
    """Learn from in-batch and hard negatives, or from a teacher's scores."""
    import torch
    from sentence_transformers import MultiVectorEncoder, MultiVectorEncoderTrainer
    from sentence_transformers.base.modules import Dense
    from sentence_transformers.multi_vector_encoder.losses import (
        CachedMultiVectorMultipleNegativesRankingLoss,
        MultiVectorMarginMSELoss,
        MultiVectorMultipleNegativesRankingLoss,
    )
    from sentence_transformers.multi_vector_encoder.modules import MultiVectorMask
    from sentence_transformers.multi_vector_encoder.scoring import colbert_scores
    from sentence_transformers.sentence_transformer.modules import Normalize

    options = cell.options_as(Colbert)
    expansion = {"strategy": "fixed", "length": options.query_length} if options.expand_queries else None
    with loading(cell):
        encoder = transformer(cell, queries, query_expansion=expansion)
        projection = Dense(
            encoder.get_embedding_dimension(),
            options.dimensions,
            bias=False,
            activation_function=torch.nn.Identity(),
            module_input_name="token_embeddings",
        )
        torch.nn.init.orthogonal_(projection.linear.weight)
        markers = options.markers.as_json() if options.markers else {}
        register(markers.values(), encoder)
        mask = MultiVectorMask(list(string.punctuation) if options.skip_punctuation else None)
        model = MultiVectorEncoder(
            modules=[encoder, projection, mask, Normalize("token_embeddings")],
            prompts={ROLES[name]: f"{marker} " for name, marker in markers.items()},
        )
    if options.distillation == "margin_mse":
        if mini_batch:
            raise UserError(f"The GPU's memory is too small for a batch of {cell.name.file}", do="Lower batch_size")
        return Trainee(MultiVectorEncoderTrainer, model, MultiVectorMarginMSELoss(model))
    in_batch = options.in_batch_negatives
    scores = negative_squared_l2 if options.similarity == "l2" else colbert_scores
    contrastive: Any = MultiVectorMultipleNegativesRankingLoss
    if mini_batch:
        contrastive = partial(CachedMultiVectorMultipleNegativesRankingLoss, mini_batch_size=mini_batch)
    loss = contrastive(
        model,
        scale=options.scale,
        similarity_fct=scores if in_batch else own_passages_only(scores),
        score_mini_batch_size=options.batch_size,  # in one piece, which the diagonal is laid over
    )
    return Trainee(MultiVectorEncoderTrainer, model, loss)


def register(markers: Iterable[str], encoder: Any) -> None:
    """Make each marker one token, with the embedding row that the vocabulary has for it, or else a new row.

    BERT's tokenizer splits ``[unused0]`` into four tokens unless it is registered as a special one.
    """
    from tokenizers import AddedToken

    tokenizer = encoder.tokenizer
    for marker in markers:
        tokenizer.add_special_tokens(
            {"extra_special_tokens": [AddedToken(marker, normalized=False, special=True)]},
            replace_extra_special_tokens=False,
        )
        if tokenizer.tokenize(f"{marker} text")[:1] != [marker]:
            what = f"The backbone's tokenizer splits the marker {marker!r} into several tokens"
            raise UserError(what, do="Choose another marker")
    embeddings = encoder.model.get_input_embeddings()
    if len(tokenizer) > embeddings.num_embeddings:
        encoder.model.resize_token_embeddings(len(tokenizer))


retriever = partial(opening.retriever, "multivector")
train = partial(train_by, build, retriever)
