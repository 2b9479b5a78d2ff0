"""What a model was trained on, as people have it: queries, triplets, or the training split of a release."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from os import PathLike
from pathlib import Path
from typing import Any

import polars as pl

from eval_kit.errors import UserError, parameter
from eval_kit.files.faults import Faults
from eval_kit.files.formats import QUERIES_SCHEMA
from eval_kit.files.opening import is_folder
from eval_kit.files.records import QUERY_IDS, Layout, records
from eval_kit.release import Release, open_release

TRAIN = "train"
QUERY_FIELDS, POSITIVE_FIELDS = ("query", "anchor"), ("positive", "pos", "positive_passages")
"""What trainers call a query and its relevant passage or passages (sentence-transformers, FlagEmbedding, Tevatron)."""
_TRAINING = Layout(
    names=(),
    places={2: (0, 1), 3: (0, 1, 2)},
    expected="id and text, or query, relevant and other passage",
    is_header=lambda fields: fields[0].lower() in (*QUERY_IDS, *QUERY_FIELDS),
)


@dataclass(frozen=True)
class TrainingQueries:
    """Training queries, and the passages that were labelled relevant to them as far as they are known.

    The queries have ``query_id`` and ``text``, each text once; ids are the texts where the source, a file or folder,
    has none. Relevant passages are known by id or by text.
    """

    source: Path
    queries: pl.DataFrame
    passage_ids: pl.Series
    passage_texts: pl.Series


type TrainedOn = TrainingQueries | Sequence[str] | str | PathLike[str] | None
"""Training queries as a caller has them: read, their texts, or a file or folder of them."""


def queries_of(trained_on: TrainedOn, by: Sequence[Any] | None = None) -> pl.DataFrame | None:
    """``query_id`` and ``text`` of training queries; None where none are given.

    ``by`` are the divisions that they are for, where nothing else takes them.
    """
    if trained_on is None:
        return None
    if by is not None and not by:
        raise UserError(f"Only {parameter('by')} needs {parameter('trained_on')}", do="Add it")
    if isinstance(trained_on, str | PathLike):
        trained_on = read(Path(trained_on))
    if isinstance(trained_on, TrainingQueries):
        return trained_on.queries
    if not trained_on or not all(isinstance(text, str) for text in trained_on):
        raise UserError(f"{parameter('trained_on')} takes a file, a folder, or texts of queries, at least one")
    ids = [f"training query {number}" for number in range(1, len(trained_on) + 1)]
    return pl.DataFrame({"query_id": ids, "text": list(trained_on)}, QUERIES_SCHEMA)


def read(source: Path) -> TrainingQueries:
    """Read training queries.

    Args:
        source: a file in any form of :mod:`eval_kit.files.records`: of ids and texts; of MS MARCO's triples (query,
            relevant and other passage); by name, of ``query`` (or ``anchor``) and ``positive`` (or ``pos``,
            ``positive_passages``), or of ids and ``text`` as BEIR's queries; or the folder of a release or of a BEIR
            dataset, for its ``train`` split.
    """
    if is_folder(source):
        return _of_release(source, open_release(source))
    rows = list(_examples(source))
    if not rows:
        raise UserError(f"{source} contains no queries")
    ids, texts, positives = zip(*rows, strict=True)
    queries = pl.DataFrame({"query_id": ids, "text": texts}, QUERIES_SCHEMA)
    queries = queries.unique("text", keep="first", maintain_order=True)
    passage_texts = pl.Series("text", chain.from_iterable(positives), pl.String).unique(maintain_order=True)
    return TrainingQueries(source, queries, pl.Series("passage_id", [], pl.String), passage_texts)


def _of_release(folder: Path, release: Release) -> TrainingQueries:
    tables = []
    for config, splits in release.configs.items():
        table = release.table(config, TRAIN) if TRAIN in splits else pl.DataFrame()
        if {"query_id", "text"} <= set(table.columns):
            tables.append(table.select("query_id", "text"))
    if not tables:
        raise UserError(f"{folder} has no train split")
    queries = pl.concat(tables).drop_nulls().unique("query_id", keep="first", maintain_order=True)
    ids = pl.Series("passage_id", [], pl.String)
    if TRAIN in release.configs.get("qrels", []):
        ids = release.qrels(TRAIN).filter(pl.col("relevance") > 0)["passage_id"].unique(maintain_order=True)
    return TrainingQueries(folder, queries, ids, pl.Series("text", [], pl.String))


def _examples(path: Path) -> Iterator[tuple[str, str, list[str]]]:
    """Id, text and texts of relevant passages of each query."""
    faults = Faults(path)
    for number, record in records(path, _TRAINING, faults):
        example = _named(record) if isinstance(record, dict) else _placed(record)
        if example is None:
            faults.add(number, f"expected {_TRAINING.expected}")
        elif not faults.count:
            yield example
    faults.raise_any()


def _placed(fields: list[str]) -> tuple[str, str, list[str]] | None:
    if len(fields) not in _TRAINING.places or not all(field.strip() for field in fields):
        return None
    return (fields[0], fields[1], []) if len(fields) == 2 else (fields[0], fields[0], fields[1:2])


def _named(example: dict[str, Any]) -> tuple[str, str, list[str]] | None:
    text = next((example[name] for name in QUERY_FIELDS if name in example), None)
    query = next((example[name] for name in ("query_id", "_id", "id") if name in example), text)
    positives = _texts(next((example[name] for name in POSITIVE_FIELDS if name in example), []))
    if text is None and "title" not in example:  # which BEIR's passages have
        text = example.get("text")
    if not isinstance(text, str) or not text.strip() or not all(isinstance(each, str) for each in positives):
        return None
    return str(query), text, positives


def _texts(positives: Any) -> list[Any]:
    """The texts of one passage, of several, or of several with their ids."""
    many = positives if isinstance(positives, list) else [positives]
    return [each.get("text") if isinstance(each, dict) else each for each in many]
