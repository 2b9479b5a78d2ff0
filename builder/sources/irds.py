"""Queries and judgements from ir_datasets, whatever its collection."""

from typing import Any

import polars as pl

from builder.sources.formats import QRELS_SCHEMA, QUERIES_SCHEMA
from eval_kit.errors import UserError


class UnavailableError(UserError):
    """ir_datasets cannot deliver: no such id, no connection, a refused download."""


def queries(dataset_id: str) -> pl.DataFrame:
    """All queries of a dataset: ``query_id`` and ``text``, in its order.

    Raises:
        UnavailableError: with ir_datasets' own reason.
    """
    rows = _rows(dataset_id, "queries_iter", lambda query: (query.query_id, query.default_text()))
    return pl.DataFrame(rows, QUERIES_SCHEMA, orient="row")


def qrels(dataset_id: str) -> pl.DataFrame:
    """All judgements of a dataset: ``query-id``, ``corpus-id``, ``score``, in its order.

    Raises:
        UnavailableError: with ir_datasets' own reason.
    """
    rows = _rows(dataset_id, "qrels_iter", lambda qrel: (qrel.query_id, qrel.doc_id, qrel.relevance))
    return pl.DataFrame(rows, QRELS_SCHEMA, orient="row")


def _rows(dataset_id: str, iterator: str, row: Any) -> list[tuple[Any, ...]]:
    import ir_datasets

    try:
        return [row(item) for item in getattr(ir_datasets.load(dataset_id), iterator)()]
    except Exception as error:  # ir_datasets lets its HTTP, tar and file errors through as they are
        raise UnavailableError(f"ir_datasets {dataset_id} cannot be read ({type(error).__name__})") from error
