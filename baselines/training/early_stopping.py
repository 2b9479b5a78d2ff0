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
    """An evaluator that gives ``METRIC``, or None where the cell trains without early stopping.

    Args:
        cell: with the option ``evaluate_every``.
        texts: of the passages.
    """
    options = cell.options_as(Trained)
    if options.evaluate_every is None:
        return None
    from eval_kit.integrations.sentence_transformers import PoolEvaluator

    batch = Batch(options.encode_batch)

    class Fitting(PoolEvaluator):
        """With batches as large as those for encoding, or smaller if memory is short during training."""

        def __call__(self, model: Any, *where: Any, **how: Any) -> dict[str, float]:
            def measure(size: int) -> dict[str, float]:
                self._batch = size
                return super(Fitting, self).__call__(model, *where, **how)

            return batch.of(model.device, measure)

    queries = cell.release.table(VALIDATION, VALIDATION)  # outside every shift
    examples = judged_queries(cell.release, queries, VALIDATION)
    candidates = {query: [*examples.positives[query], *examples.negatives[query]] for query in examples.texts}
    ids = sorted(set(chain.from_iterable(candidates.values())))
    return Fitting(
        queries=examples.texts,
        passages=dict(zip(ids, texts.of(ids), strict=True)),
        qrels=cell.release.qrels(VALIDATION),
        groups={VALIDATION: list(examples.texts)},
        candidates=candidates,
    )
