"""Approximate early stopping: evaluation on the validation queries over only a few passages.

Instead of the collection, these are the passages judged relevant to any validation query and the negatives of each
(ECIR 2023 §4: "an approximated early stopping relying on a validation set composed of 1600 queries"). Cross-encoders
rank only each query's own passages.
"""

from itertools import chain
from typing import Any

from baselines.cell import Cell
from baselines.options import Trained
from eval_kit.search.encoders import Batch
from eval_kit.search.examples import judged_queries
from eval_kit.search.texts import PassageTexts

VALIDATION = "validation"
METRIC = f"{VALIDATION}_RR@10"
"""What decides which step is the best."""


def evaluator(cell: Cell, texts: PassageTexts) -> Any:
    """An evaluator that gives ``METRIC``, or None where the cell trains without early stopping."""
    options = cell.options_as(Trained)
    if options.evaluate_every is None:
        return None
    from sentence_transformers.base.evaluation import BaseEvaluator

    from eval_kit.integrations.sentence_transformers import of_library

    batch = Batch(options.encode_batch)
    queries = cell.release.table(VALIDATION, VALIDATION)  # outside every shift
    examples = judged_queries(cell.release, queries, VALIDATION)
    candidates = {query: [*examples.positives[query], *examples.negatives[query]] for query in examples.texts}
    ids = sorted(set(chain.from_iterable(candidates.values())))
    passages = dict(zip(ids, texts.of(ids), strict=True))
    relevant = {query: {*positives} for query, positives in examples.positives.items()}

    class Fitting(BaseEvaluator):
        """The library's, with batches as large as those for encoding, or smaller if memory is short during training."""

        def __init__(self) -> None:
            super().__init__()  # type: ignore[no-untyped-call]
            self.primary_metric = METRIC

        def __call__(self, model: Any, *where: Any, **how: Any) -> dict[str, float]:
            def measure(size: int) -> float:
                found: dict[str, float] = of_library(
                    model, examples.texts, passages, relevant, candidates, batch_size=size
                )(model)
                return next(value for name, value in found.items() if name.endswith("mrr@10") and "base" not in name)

            return {METRIC: batch.of(model.device, measure)}

    return Fitting()
