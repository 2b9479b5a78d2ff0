"""monoBERT: scores a query and a passage read together, to re-rank BM25's best (Nogueira and Cho, 2019)."""

from collections.abc import Generator, Mapping, Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from baselines.cell import Cell
from baselines.options import Monobert
from baselines.systems import bm25
from baselines.training.backbone import backbone, loading
from baselines.training.grouping import by_length
from baselines.training.trainer import Trainee, train_by
from eval_kit.models import opening
from eval_kit.search.encoders import check_length
from eval_kit.search.retriever import Retriever

if TYPE_CHECKING:
    from transformers import TrainerCallback

TITLE = "monoBERT, a cross-encoder that re-ranks what BM25 found"


def train(cell: Cell, callbacks: "Sequence[TrainerCallback]" = ()) -> dict[str, Any]:
    """Train, and with the option ``tune`` choose k1 and b of the BM25 that finds the candidates."""
    return train_by(build, retriever, cell, callbacks) | bm25.train(cell)


def build(cell: Cell, queries: list[str], mini_batch: int | None) -> Trainee:
    """Learn to tell the relevant passage from negatives, with cross-entropy."""
    import torch
    from sentence_transformers import CrossEncoder, CrossEncoderTrainer
    from sentence_transformers.cross_encoder.losses import (
        CachedMultipleNegativesRankingLoss,
        MultipleNegativesRankingLoss,
    )

    class InBatch(MultipleNegativesRankingLoss):
        """Pairwise cross-entropy if there are no in-batch negatives and one negative per query."""

        def get_in_batch_negatives(
            self, anchors: list[str], candidates: list[list[str]]
        ) -> Generator[list[str], None, None]:
            if self.num_negatives:
                yield from super().get_in_batch_negatives(anchors, candidates)

    class Whole(InBatch):
        """All pairs of a batch in one forward pass, so that all can be ordered by length."""

        def forward(
            self, inputs: list[list[str]], labels: torch.Tensor, prompt: str | None = None, task: str | None = None
        ) -> torch.Tensor:
            queries, *columns = inputs
            columns[1:1] = self.get_in_batch_negatives(queries, columns)
            passages = [*chain.from_iterable(columns)]
            scores = self.call_model_with_columns(queries * len(columns), passages, prompt, task)
            return self.calculate_loss([scores], len(queries))  # type: ignore[arg-type]  # it accepts a list of tensors

    class CachedLoss(InBatch, CachedMultipleNegativesRankingLoss):
        """One mini-batch of pairs at a time."""

    options = cell.options_as(Monobert)
    with loading(cell):
        name, pin = backbone(cell, queries)
        model = CrossEncoder(name, num_labels=1, max_length=options.pair_length, **pin)
    check_length(model, options.pair_length)
    by_length(model, "scores")
    loss = (partial(CachedLoss, mini_batch_size=mini_batch) if mini_batch else Whole)(
        model,
        num_negatives=options.in_batch_negatives,
        scale=options.scale,  # type: ignore[arg-type]  # it accepts any number
        activation_fn=torch.nn.Identity(),
    )
    return Trainee(CrossEncoderTrainer, model, loss)


def retriever(model: str | Path, options: Mapping[str, Any]) -> Retriever:
    """Re-rank BM25's candidates."""
    return opening.retriever("cross", model, {**options, **bm25.kept_parameters(model, options)})
