"""ColBERT: a vector of each token, compared by late interaction (Khattab and Zaharia, 2020)."""

import string
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from baselines import architectures
from baselines.grid.cell import Cell
from baselines.grid.journal import Report
from baselines.training import early_stopping
from baselines.training.backbone import backbone, loading
from baselines.training.session import Session
from baselines.training.trainer import Parts, across_gpus
from search.retriever import Retriever

TITLE = "ColBERT, a vector of each token compared by late interaction"
IS_TRAINED = True
SHARES_INDEX = False


def train(cell: Cell, progress: Report | None = None) -> dict[str, Any]:
    """Train on in-batch and hard negatives, or a teacher's scores; see :func:`baselines.training.trainer.fit`."""
    import torch
    from sentence_transformers import (
        MultiVectorEncoder,
        MultiVectorEncoderTrainer,
        MultiVectorEncoderTrainingArguments,
    )
    from sentence_transformers.base.modules import Dense, Transformer
    from sentence_transformers.multi_vector_encoder.evaluation import MultiVectorInformationRetrievalEvaluator
    from sentence_transformers.multi_vector_encoder.losses import (
        MultiVectorMarginMSELoss,
        MultiVectorMultipleNegativesRankingLoss,
    )
    from sentence_transformers.multi_vector_encoder.modules import MultiVectorMask
    from sentence_transformers.sentence_transformer.modules import Normalize

    options = cell.options
    session = Session(cell, retriever)

    def build() -> Parts:
        expansion = {"strategy": "fixed", "length": options["query_length"]}
        with loading(cell):
            transformer = Transformer(
                backbone(cell, session.judged.texts.values()),
                query_length=options["query_length"],
                document_length=options["passage_length"],
                query_expansion=expansion if options.get("expand_queries", False) else None,
            )
            projection = Dense(
                transformer.get_embedding_dimension(),
                options["dimensions"],
                bias=False,
                activation_function=torch.nn.Identity(),
                module_input_name="token_embeddings",
            )
            torch.nn.init.orthogonal_(projection.linear.weight)
            mask = MultiVectorMask(list(string.punctuation) if options.get("skip_punctuation", False) else None)
            marks = options.get("markers")
            model = MultiVectorEncoder(
                modules=[transformer, projection, mask, Normalize("token_embeddings")],
                prompts={"query": f"{marks['query']} ", "document": f"{marks['passage']} "} if marks else None,
            )
        if options.get("distillation") == "margin_mse":
            loss: Any = MultiVectorMarginMSELoss(model)
        else:
            loss = MultiVectorMultipleNegativesRankingLoss(
                model, scale=options.get("scale", 1.0), gather_across_devices=across_gpus()
            )
        return Parts(
            trainer=MultiVectorEncoderTrainer,
            arguments=MultiVectorEncoderTrainingArguments,
            model=model,
            loss=loss,
            dataset=session.dataset,
            evaluator=early_stopping.retrieval(MultiVectorInformationRetrievalEvaluator, cell),
            metric=f"{early_stopping.NAME}_maxsim_{early_stopping.METRIC}",
            callbacks=session.callbacks,
        )

    return session.train(build, progress)


def retriever(model: str | Path, options: Mapping[str, Any]) -> Retriever:
    """End-to-end search by MaxSim."""
    return architectures.retriever("multivector", model, options)
