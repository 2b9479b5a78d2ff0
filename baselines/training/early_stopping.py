"""Approximate early stopping: evaluation on the validation queries over a few passages only.

Those are the passages judged relevant to any validation query and the negatives of each, instead of the collection
(ECIR 2023 §4: "an approximated early stopping relying on a validation set composed of 1600 queries").
"""

from itertools import chain
from typing import Any

from baselines.grid.cell import Cell
from baselines.training.queries import Judged, passage_texts, validation

METRIC = "mrr@10"
NAME = "validation"


def retrieval(evaluator: type, cell: Cell, **options: Any) -> Any:
    """One of sentence-transformers' retrieval evaluators, or None where the cell trains without early stopping.

    Args:
        evaluator: its class.
        cell: with the option ``evaluate_every``.
        options: of the class.
    """
    if "evaluate_every" not in cell.options:
        return None
    judged = validation(cell.release)
    ids = sorted(_passages(judged))
    return evaluator(
        queries=dict(judged.texts),
        corpus=dict(zip(ids, passage_texts(cell).of(ids), strict=True)),
        relevant_docs={query: set(relevant) for query, relevant in judged.positives.items()},
        mrr_at_k=[10],
        ndcg_at_k=[10],
        accuracy_at_k=[10],
        precision_recall_at_k=[10],
        map_at_k=[10],
        name=NAME,
        batch_size=cell.options.get("encode_batch", 32),
        write_csv=False,
        **options,
    )


def reranking(evaluator: type, cell: Cell) -> Any:
    """The same for cross-encoders, which order each query's own passages."""
    if "evaluate_every" not in cell.options:
        return None
    judged, texts = validation(cell.release), passage_texts(cell)
    samples = [
        {
            "query": judged.texts[query],
            "positive": texts.of(judged.positives[query]),
            "negative": texts.of(judged.negatives[query]),
        }
        for query in judged.texts
        if judged.negatives[query]
    ]
    return evaluator(samples, at_k=10, name=NAME, batch_size=cell.options.get("encode_batch", 32), write_csv=False)


def _passages(judged: Judged) -> set[str]:
    return set(chain.from_iterable(chain(judged.positives.values(), judged.negatives.values())))
