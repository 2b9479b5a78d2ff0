"""monoBERT: a score of query and passage read together; it re-ranks BM25's best (Nogueira and Cho, 2019)."""

from collections.abc import Generator, Mapping
from pathlib import Path
from typing import Any

from baselines import architectures
from baselines.grid.cell import Cell
from baselines.grid.journal import Report
from baselines.training import early_stopping
from baselines.training.backbone import backbone, loading
from baselines.training.session import Session
from baselines.training.trainer import Parts
from search.retriever import Retriever

TITLE = "monoBERT, a cross-encoder that re-ranks what BM25 found"
IS_TRAINED = True
SHARES_INDEX = True


def train(cell: Cell, progress: Report | None = None) -> dict[str, Any]:
    """Train to tell the relevant passage from negatives by cross-entropy."""
    import torch
    from sentence_transformers import CrossEncoder, CrossEncoderTrainer, CrossEncoderTrainingArguments
    from sentence_transformers.cross_encoder.evaluation import CrossEncoderRerankingEvaluator
    from sentence_transformers.cross_encoder.losses import MultipleNegativesRankingLoss
    from sentence_transformers.util import batch_to_device

    class Loss(MultipleNegativesRankingLoss):
        """The library's; without negatives of the batch and with one a query it is pairwise cross-entropy."""

        def get_in_batch_negatives(
            self, anchors: list[str], candidates: list[list[str]]
        ) -> Generator[list[str], None, None]:
            if self.num_negatives:
                yield from super().get_in_batch_negatives(anchors, candidates)

        def call_model_with_pairs(
            self, pairs: list[list[str]], prompt: str | None = None, task: str | None = None
        ) -> Any:
            """As the library's, with a plain dict: in any other, torch's DDP finds no outputs."""
            inputs = dict(self.model.preprocess(pairs, prompt=prompt, task=task))
            return self.model(batch_to_device(inputs, self.model.device))["scores"].squeeze(1)

    options = cell.options
    session = Session(cell, retriever)

    def build() -> Parts:
        with loading(cell):
            model = CrossEncoder(
                backbone(cell, session.judged.texts.values()), num_labels=1, max_length=options["pair_length"]
            )
        loss = Loss(
            model,
            num_negatives=options.get("in_batch_negatives", 1),
            scale=options.get("scale", 1.0),
            activation_fn=torch.nn.Identity(),
        )
        return Parts(
            trainer=CrossEncoderTrainer,
            arguments=CrossEncoderTrainingArguments,
            model=model,
            loss=loss,
            dataset=session.dataset,
            evaluator=early_stopping.reranking(CrossEncoderRerankingEvaluator, cell),
            metric=f"{early_stopping.NAME}_{early_stopping.METRIC}",
            callbacks=session.callbacks,
        )

    return session.train(build, progress)


def retriever(model: str | Path, options: Mapping[str, Any]) -> Retriever:
    """Re-ranking of BM25's candidates."""
    return architectures.retriever("cross", model, options)
