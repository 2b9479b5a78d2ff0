"""Queries and judgements from ir_datasets, whatever its collection."""

from collections.abc import Mapping
from typing import Any

import polars as pl

from builder.collection import Collection, split_name
from eval_kit.authors.fetch import UnavailableError
from eval_kit.errors import UserError
from eval_kit.files.formats import QRELS_SCHEMA, QUERIES_SCHEMA
from eval_kit.release import MS_MARCO

_MS_MARCO_SPLITS = {
    "train": f"{MS_MARCO}/train",
    "dev": f"{MS_MARCO}/dev/small",
    "dl19": f"{MS_MARCO}/trec-dl-2019",
    "dl20": f"{MS_MARCO}/trec-dl-2020",
}


def queries(dataset_id: str) -> pl.DataFrame:
    """All queries of a dataset: ``query_id`` and ``text``, in its order.

    Raises:
        UnavailableError: with ir_datasets' reason.
    """
    rows = _rows(dataset_id, "queries_iter", lambda query: (query.query_id, query.default_text()))
    return pl.DataFrame(rows, QUERIES_SCHEMA, orient="row")


def qrels(dataset_id: str) -> pl.DataFrame:
    """All judgements of a dataset: ``query-id``, ``corpus-id``, ``score``, in its order.

    Raises:
        UnavailableError: with ir_datasets' reason.
    """
    rows = _rows(dataset_id, "qrels_iter", lambda qrel: (qrel.query_id, qrel.doc_id, qrel.relevance))
    return pl.DataFrame(rows, QRELS_SCHEMA, orient="row")


def collection(dataset_id: str) -> Collection:
    """A dataset with its judged subsets as splits (``beir/scifact``: train, test).

    ``msmarco-passage`` has train, dev (small), dl19 and dl20. A dataset without a subset ``train`` that has queries and
    judgements itself (``antique/train``) has these as its only split, train.

    Raises:
        UserError: there is no such dataset, or it has no judgements.
        UnavailableError: with ir_datasets' reason.
    """
    splits = _MS_MARCO_SPLITS if dataset_id == MS_MARCO else _splits(dataset_id)
    return Collection(
        name=dataset_id,
        source=f"ir_datasets {dataset_id}",
        queries={split: queries(subset) for split, subset in splits.items()},
        qrels={split: qrels(subset) for split, subset in splits.items()},
        irds=dataset_id,
    )


def _splits(dataset_id: str) -> Mapping[str, str]:
    import ir_datasets

    def is_judged(subset: str) -> bool:
        dataset = ir_datasets.load(subset)
        return bool(dataset.has_queries() and dataset.has_qrels())

    if dataset_id not in ir_datasets.registry:
        raise UserError(
            f"Unknown collection {dataset_id!r}", "It is neither mini, msmarco, a folder nor an ir_datasets id"
        )
    if not ir_datasets.load(dataset_id).has_docs():
        raise UserError(f"ir_datasets {dataset_id} has no passages")
    subsets = (name for name in ir_datasets.registry if name.rpartition("/")[0] == dataset_id)
    splits = {split_name(subset.rpartition("/")[2]): subset for subset in subsets if is_judged(subset)}
    return {"train": dataset_id} if "train" not in splits and is_judged(dataset_id) else splits


def _rows(dataset_id: str, iterator: str, row: Any) -> list[tuple[Any, ...]]:
    import ir_datasets

    try:
        return list(map(row, getattr(ir_datasets.load(dataset_id), iterator)()))
    except Exception as error:  # ir_datasets passes on its HTTP, tar and file errors unchanged
        raise UnavailableError(f"ir_datasets {dataset_id} cannot be read ({type(error).__name__})") from error
