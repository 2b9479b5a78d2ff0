"""Approximate early stopping: evaluation on the validation queries over a few passages only.

Those are the passages judged relevant to any validation query and the negatives of each, instead of the collection
(ECIR 2023 §4: "an approximated early stopping relying on a validation set composed of 1600 queries").
"""

from itertools import chain
from typing import Any

from baselines.grid.cell import Cell
from baselines.training.queries import validation
from search.examples import Judged
from search.texts import PassageTexts
from search.tokens import PassageTokens

METRIC = "mrr@10"
NAME = "validation"


def retrieval(evaluator: type, cell: Cell, contents: PassageTexts | PassageTokens, **options: Any) -> Any:
    """One of sentence-transformers' retrieval evaluators, or None where the cell trains without early stopping.

    Args:
        evaluator: its class.
        cell: with the option ``evaluate_every``.
        contents: of the passages, as the model reads them.
        options: of the class.
    """
    if "evaluate_every" not in cell.options:
        return None
    judged = validation(cell.release)
    ids = sorted(_passages(judged))
    return evaluator(
        queries=dict(judged.texts),
        corpus=dict(zip(ids, contents.of(ids), strict=True)),
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


def dense_rows() -> type:
    """An evaluator of sparse encoders that multiplies whole rows where the model is, not sparse ones on one thread."""
    from sentence_transformers.sentence_transformer.evaluation import InformationRetrievalEvaluator

    class OfDenseRows(InformationRetrievalEvaluator):
        def embed_inputs(self, model: Any, sentences: Any, *_: Any, **options: Any) -> Any:
            encode = model.encode_query if options["encode_fn_name"] == "query" else model.encode_document
            return encode(
                sentences, batch_size=self.batch_size, show_progress_bar=False, convert_to_sparse_tensor=False
            )

    return OfDenseRows


def reranking(evaluator: type, cell: Cell, contents: PassageTexts | PassageTokens) -> Any:
    """The same for cross-encoders, which order each query's own passages."""
    if "evaluate_every" not in cell.options:
        return None
    judged = validation(cell.release)
    samples = [
        {
            "query": judged.texts[query],
            "positive": contents.of(judged.positives[query]),
            "negative": contents.of(judged.negatives[query]),
        }
        for query in judged.texts
        if judged.negatives[query]
    ]
    return evaluator(samples, at_k=10, name=NAME, batch_size=cell.options.get("encode_batch", 32), write_csv=False)


def _passages(judged: Judged) -> set[str]:
    return set(chain.from_iterable(chain(judged.positives.values(), judged.negatives.values())))
