"""sentence-transformers' own evaluators on a release: what each part of a shift gains while a model trains.

    from eval_kit.integrations.sentence_transformers import evaluator
    SentenceTransformerTrainer(..., evaluator=evaluator(model, "mini", "topic.c0"))

For the library's four kinds of models: ``SentenceTransformer``, ``SparseEncoder``, ``MultiVectorEncoder`` and
``CrossEncoder``.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl

try:
    from sentence_transformers import CrossEncoder, MultiVectorEncoder, SparseEncoder
    from sentence_transformers.cross_encoder.evaluation import CrossEncoderRerankingEvaluator
    from sentence_transformers.multi_vector_encoder.evaluation import MultiVectorInformationRetrievalEvaluator
    from sentence_transformers.sentence_transformer.evaluation import InformationRetrievalEvaluator
    from sentence_transformers.sparse_encoder.evaluation import SparseInformationRetrievalEvaluator
except ImportError as error:
    if (error.name or "").partition(".")[0] not in ("sentence_transformers", "torch"):
        raise
    raise type(error)(f"{error}; run: pip install 'sentence-transformers>=6.2'", name=error.name) from None

from eval_kit.authors.opening import ReleaseSource, open_release
from eval_kit.errors import UserError
from eval_kit.files import checkpoint
from eval_kit.release.pool import pool
from eval_kit.runs.given import GivenRun, take

CANDIDATES = 100
"""Passages per query that a cross-encoder re-ranks."""


def evaluator(
    model: Any, release: ReleaseSource, test_set: str, candidates: GivenRun | None = None, **options: Any
) -> Any:
    """The library's evaluator of such a model, on a release small enough to search while training.

    Its figures are of *test* queries: watch them, but choose models by a validation set, and say so if you did not.

    Args:
        model: one of the library's.
        release: an open one, a folder or Hub id, with embedded passages: ``mini``, or a part of a release that
            ``python -m builder lite`` made; None: the default release.
        test_set: such as ``topic.c0``, or a shift, for all of its test sets together. It names the figures.
        candidates: a run of the release, such as BM25's; a cross-encoder re-ranks the best 100 of it.
        options: of the library's evaluator, such as ``batch_size``.

    Raises:
        UserError: the release embeds no passages or has no such test set; a run that cannot be used; a cross-encoder
            without candidates, or one of several scores a pair; no such model.
    """
    opened = open_release(release)
    of_one = opened.test_sets.get(test_set)
    searched = pool(opened, of_one.shift if of_one else test_set)
    queries = searched.queries
    if of_one:
        queries = queries.filter(pl.col("query_id").is_in(of_one.queries.implode()))
    relevant = searched.qrels.filter(pl.col("relevance") > 0).group_by("query_id").agg("passage_id")
    return of_library(
        model,
        dict(queries.iter_rows()),
        dict(searched.passages.iter_rows()),
        {query: set(ids) for query, ids in relevant.iter_rows()},
        None if candidates is None else _best(candidates, searched.passages),
        name=test_set,
        **options,
    )


def of_library(
    model: Any,
    queries: Mapping[str, str],
    passages: Mapping[str, str],
    relevant: Mapping[str, set[str]],
    candidates: Mapping[str, Sequence[str]] | None,
    **options: Any,
) -> Any:
    """The library's evaluator of such a model: texts by id, and ids of passages by query; without a file of figures."""
    options = {"write_csv": False, **options}
    if isinstance(model, CrossEncoder):
        if candidates is None:
            raise UserError("A cross-encoder re-ranks candidates", do="Give the evaluator a run, such as BM25's")
        checkpoint.check_labels(type(model).__name__, model.num_labels)
        samples: list[dict[str, Any]] = []
        for query, text in queries.items():
            positive = [passages[passage] for passage in sorted(relevant.get(query, ())) if passage in passages]
            documents = [passages[passage] for passage in candidates.get(query, ())] or [""]  # the library fails on []
            samples.append({"query": text, "positive": positive, "documents": documents})
        return CrossEncoderRerankingEvaluator(samples, always_rerank_positives=False, **options)
    if not hasattr(model, "encode_query"):
        raise UserError(
            f"{type(model).__name__} has no encode_query", do="Use eval_kit run, which takes any object that encodes"
        )
    kind: Any = InformationRetrievalEvaluator
    if isinstance(model, SparseEncoder):
        kind = SparseInformationRetrievalEvaluator
    elif isinstance(model, MultiVectorEncoder):
        kind = MultiVectorInformationRetrievalEvaluator
    return kind(queries, passages, relevant, **options)


def _best(run: GivenRun, passages: pl.DataFrame) -> dict[str, list[str]]:
    """Each query's best passages in a run, among those that the release embeds."""
    [[taken]] = take(run=run)
    lines = pl.concat(taken.pieces()).join(passages, on="passage_id", how="semi")
    if lines.is_empty():
        raise UserError(
            "The run of candidates contains no passage of this release", do="Check that both are of one release"
        )
    by_score = lines.sort("score", "passage_id", descending=True)
    best = by_score.group_by("query_id", maintain_order=True).agg(pl.col("passage_id").head(CANDIDATES))
    return dict(best.iter_rows())
