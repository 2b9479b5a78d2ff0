"""A cell's training data: queries of the other parts, their judgements and negatives; never validation or test.

Texts are looked up when a batch is made, so ten million triplets are held as ids only.
"""

import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import polars as pl

from baselines.cell import Cell
from baselines.options import Trained
from eval_kit.errors import UserError
from eval_kit.search.examples import (
    JudgedQueries,
    columns,
    generator,
    judged_queries,
    lines,
    permitted_queries,
    refuse_without_negatives,
    tables,
)
from eval_kit.search.passages import collection_key, passages
from eval_kit.search.texts import PassageTexts, is_written, write
from eval_kit.sentences import counted
from eval_kit.shifts import TrainingSet

if TYPE_CHECKING:
    from datasets import Dataset

QUERY = "?"
"""Prefix of query ids, so that none is taken for a passage id."""

type Teacher = Callable[[list[str], list[list[str]]], list[list[float]]]
"""Takes n queries and, for each column of passages, n texts; returns each query's labels."""


def training(cell: Cell) -> JudgedQueries:
    """The cell's training queries.

    They are the judged ones of :meth:`eval_kit.shifts.Shift.training`.
    """
    may_train_on = queries_for(cell)
    queries = judged_queries(cell.release, may_train_on.queries, may_train_on.qrels)
    if not queries.texts:
        raise UserError(
            f"{cell.release.folder} has no judged queries to train {cell.name.file} on",
            do="Use a release with judgements of its training queries",
        )
    return queries


def updates(cell: Cell, judged: JudgedQueries | None = None) -> int:
    """The steps of a training; one that would end before it mines or evaluates, as its options say, is refused."""
    options = cell.options_as(Trained)
    if (steps := options.steps) is None:
        pairs = sum(map(len, (judged or training(cell)).positives.values()))
        steps = max(1, math.ceil(pairs * (options.epochs or 0) / options.batch_size))
    for name, last in (("mine_every", steps - 1), ("evaluate_every", steps)):
        if (every := getattr(options, name)) is not None and every > last:
            what = f"{cell.name.file} would train for {counted(steps, 'step')}, which {name} {every:,} never comes in"
            raise UserError(what, do=f"Lower {name}, or train for longer")
    return steps


def passage_texts(cell: Cell) -> PassageTexts:
    """The texts of the release's passages, stored once for all cells of a grid."""
    folder = cell.root / "passages" / collection_key(cell.release)
    return PassageTexts(folder) if is_written(folder) else write(passages(cell.release), folder)


def dataset(cell: Cell, queries: JudgedQueries, lookup: "Lookup", count: int) -> tuple["Dataset", str]:
    """Training examples (:func:`eval_kit.search.examples.tables`): ``query``, ``positive``, ``negative_0`` ...

    With a teacher they have a ``label`` too. Returns the examples, and the sha256 over all their ids.
    """
    import pyarrow as pa
    from datasets import Dataset
    from datasets.table import InMemoryTable

    options = cell.options_as(Trained)
    width, random = options.negatives, options.negatives_from == "random"
    if options.reads_negatives:
        refuse_without_negatives(cell.release)
    ids = pa.schema([(name, pa.string()) for name in columns(width)])
    sha256, parts = hashlib.sha256(), []
    for table in tables(queries, lookup.texts, width, count, cell.name.seed, random):
        sha256.update(lines(table))
        parts.append(table.with_columns(query=QUERY + pl.col("query")).to_arrow().cast(ids))
    examples = Dataset(InMemoryTable(pa.concat_tables(parts)), fingerprint=sha256.hexdigest()[:32])
    return examples.with_transform(lookup), sha256.hexdigest()


type MinedNegatives = Mapping[str, Sequence[str]]
"""Passages by query id."""


@dataclass
class Lookup:
    """Turns a batch of ids into what the model reads.

    Mined negatives replace a query's own: ``static_negatives`` of them, or all (None). Those of ``mined_next`` count
    two batches from now, as the loader has already made the next one. ``alone``: the queries are read alone, with their
    numbers as labels.
    """

    queries: Mapping[str, str]
    texts: PassageTexts
    teacher: Teacher | None = None
    static_negatives: int | None = None
    alone: bool = False
    mined_negatives: MinedNegatives | None = None
    mined_next: MinedNegatives | None = None

    def __call__(self, batch: dict[str, list[str]]) -> dict[str, list[Any]]:
        """Turn ``query``, ``positive``, ``negative_0`` ... from ids into texts, and add ``label``."""
        passages = dict(batch)
        ids = [query.removeprefix(QUERY) for query in passages.pop("query")]
        columns: dict[str, list[Any]] = {"query": [self.queries[query] for query in ids]}
        if self.alone:
            return columns | {"label": [self._numbers[query] for query in ids]}
        if self.mined_negatives is not None:
            passages = self._with_mined(self.mined_negatives, ids, passages)
        if self.mined_next is not None:
            self.mined_negatives, self.mined_next = self.mined_next, None
        if self.teacher is not None:
            columns["label"] = self.teacher(columns["query"], list(map(self.texts.of, passages.values())))
        for name, column in passages.items():
            columns[name] = self.texts.of(column)
        return columns

    @cached_property
    def _numbers(self) -> dict[str, int]:
        return {query: number for number, query in enumerate(self.queries)}

    def _with_mined(
        self, negatives: MinedNegatives, ids: list[str], passages: dict[str, list[str]]
    ) -> dict[str, list[str]]:
        names = [name for name in passages if name != "positive"][: self.static_negatives]
        new_columns = {name: list(column) for name, column in passages.items()}
        for row, query in enumerate(ids):
            old = [passages[name][row] for name in names]
            new = negatives.get(query, ())
            order = generator(query, *old).permutation(len(new))[: len(names)]
            for name, number in zip(names, order, strict=False):
                new_columns[name][row] = new[number]
        return new_columns


def queries_for(cell: Cell) -> TrainingSet:
    """The queries that the cell may train on, by the rule of its shift, and how many were left out."""
    name = cell.name
    return permitted_queries(cell.release, name.shift, name.held_out, cell.options_as(Trained).strict, name.file)
