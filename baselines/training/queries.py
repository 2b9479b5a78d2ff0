"""What a cell may train on: queries of the other parts, their judgements and negatives; never validation or test.

Texts are looked up when a batch is made, so a grid of ten million triplets holds ids only.
"""

import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice, product
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from baselines.grid.cell import Cell
from eval_kit.errors import UserError
from eval_kit.release import Release
from eval_kit.shifts import TRAINED_FOR, Training
from search.passages import collection_key, passages
from search.texts import PassageTexts, is_written, write
from search.tokens import PassageTokens

if TYPE_CHECKING:
    from datasets import Dataset

QUERY = "?"
"""Stands before the ids of queries, so that none is taken for a passage's."""

type Teacher = Callable[[list[str], list[list[str]]], list[list[float]]]
"""Takes n queries and, for each column of passages, n texts; gives each query's labels."""


@dataclass(frozen=True)
class Judged:
    """Queries with their relevant passages and negatives, by query id, in the order of the ids."""

    texts: Mapping[str, str]
    positives: Mapping[str, Sequence[str]]
    negatives: Mapping[str, Sequence[str]]


def training(cell: Cell) -> Judged:
    """The cell's training queries.

    They are :meth:`eval_kit.shifts.Shift.training`'s, those of them that are judged.

    Raises:
        UserError: the release has no such queries, no judgements of them, or no negatives, and the cell wants some.
    """
    if cell.options["negatives"] and "negatives" not in cell.release.configs:
        raise UserError(
            f"{cell.release.folder}: holds no negatives to train with; draw them with: python -m builder negatives "
            f"{cell.release.folder}"
        )
    permitted = allowed(cell)
    judged = _judged(cell.release, permitted.queries, permitted.qrels)
    if not judged.texts:
        raise UserError(f"{cell.release.folder}: has no judged queries to train {cell.name.file} on")
    return judged


def steps(cell: Cell, pairs: int) -> int:
    """Updates of the weights, where the cell trains on so many pairs of a query and a relevant passage."""
    options = cell.options
    return int(options.get("steps") or max(1, math.ceil(pairs * options["epochs"] / examples_a_step(cell))))


def examples_a_step(cell: Cell) -> int:
    """Examples in an update of the weights, over all batches and processes."""
    return int(cell.options["batch_size"] * cell.options.get("gradient_accumulation", 1))


def pairs(cell: Cell) -> int:
    """How many pairs of a query and a relevant passage the cell trains on.

    Raises:
        UserError: the release has no such queries, or no judgements of them.
    """
    permitted = allowed(cell)
    return _relevant(cell.release, permitted.qrels).join(permitted.queries, on="query_id", how="semi").height


def validation(release: Release) -> Judged:
    """The validation queries, outside every shift.

    Raises:
        UserError: the release has none, or no judgements of them.
    """
    return _judged(release, release.table("validation", "validation"), "validation")


def passage_texts(cell: Cell) -> PassageTexts:
    """The texts of the release's passages, kept once for all cells of a grid.

    Raises:
        UserError: there are no passages, or the disk is full.
    """
    folder = cell.root / "passages" / collection_key(cell.release)
    return PassageTexts(folder) if is_written(folder) else write(passages(cell.release), folder)


def examples(cell: Cell, judged: Judged, lookup: "Lookup", count: int) -> "Dataset":
    """Training examples: ``query``, ``positive``, ``negative_0`` ..., and ``label`` if there is a teacher.

    Every pair of a query and a relevant passage comes once, then again with other negatives, until there are ``count``
    examples or the negatives are used up. Which negatives an example has depends on the seed and the ids alone.

    Args:
        cell: with the options ``negatives`` and ``negatives_from``, and the seed.
        judged: its training queries.
        lookup: makes texts or token ids of ids.
        count: how many examples the training will see.
    """
    from datasets import Dataset

    return Dataset.from_dict(_columns(cell, judged, lookup.texts, count)).with_transform(lookup)


type Mined = Mapping[str, Sequence[str]]
"""Passages by query id."""


@dataclass
class Lookup:
    """Turns a batch of ids into what the model reads.

    Attributes:
        queries: texts by query id.
        texts: of the passages.
        tokens: of the passages, where the model reads those.
        teacher: gives the labels.
        mined: take the place of a query's negatives.
        mined_next: replaces ``mined`` two batches from now, because the loader has already made the next batch.
    """

    queries: Mapping[str, str]
    texts: PassageTexts
    teacher: Teacher | None = None
    tokens: PassageTokens | None = None
    mined: Mined | None = None
    mined_next: Mined | None = None

    def __call__(self, batch: dict[str, list[str]]) -> dict[str, list[Any]]:
        """``query``, ``positive``, ``negative_0`` ... as ids → the same as texts or token ids, with ``label``."""
        ids = [query.removeprefix(QUERY) for query in batch["query"]]
        columns: dict[str, list[Any]] = {"query": [self.queries[query] for query in ids]}
        passages = {name: column for name, column in batch.items() if name != "query"}
        if self.mined is not None:
            passages = self._with_mined(self.mined, ids, passages)
        if self.mined_next is not None:
            self.mined, self.mined_next = self.mined_next, None
        if self.teacher is not None:
            columns["label"] = self.teacher(columns["query"], [self.texts.of(column) for column in passages.values()])
        for name, column in passages.items():
            columns[name] = (self.tokens or self.texts).of(column)
        return columns

    @staticmethod
    def _with_mined(mined: Mined, ids: list[str], passages: dict[str, list[str]]) -> dict[str, list[str]]:
        names = [name for name in passages if name != "positive"]
        replaced = {"positive": passages["positive"], **{name: list(passages[name]) for name in names}}
        for row, query in enumerate(ids):
            old = [passages[name][row] for name in names]
            new = mined.get(query, ())
            order = _rng(query, *old).permutation(len(new))[: len(names)]
            for name, number in zip(names, order, strict=False):
                replaced[name][row] = new[number]
        return replaced


def _columns(cell: Cell, judged: Judged, texts: PassageTexts, count: int) -> dict[str, list[str]]:
    width, seed = cell.options["negatives"], cell.name.seed
    random = cell.options.get("negatives_from") == "random"
    few = bool(width) and (random or min(map(len, judged.negatives.values())) < width)
    ids = [passage for passage, _ in texts] if few else []
    pairs = list(chain.from_iterable(product([query], judged.positives[query]) for query in judged.texts))
    rounds = -(-count // len(pairs)) if width else 1
    if not random and width:
        rounds = min(rounds, max(1, max(map(len, judged.negatives.values())) // width))
    names = [f"negative_{i}" for i in range(width)]
    columns: dict[str, list[str]] = {name: [] for name in ("query", "positive", *names)}
    draws = {query: _Draws(query, judged, ids, seed, random) for query in judged.texts}
    for turn in range(rounds):
        for query, positive in pairs:
            columns["query"].append(QUERY + query)
            columns["positive"].append(positive)
            for name, negative in zip(names, draws[query].turn(turn, width), strict=True):
                columns[name].append(negative)
    return columns


@dataclass
class _Draws:
    """Negatives of one query: its own in a random order, again from the beginning when they are used up."""

    query: str
    judged: Judged
    ids: Sequence[str]
    seed: int
    random: bool

    def __post_init__(self) -> None:
        own = () if self.random else self.judged.negatives[self.query]
        self._own = [own[number] for number in _rng(self.seed, self.query).permutation(len(own))] if own else []

    def turn(self, turn: int, width: int) -> list[str]:
        if len(self._own) >= width:
            return [self._own[(turn * width + i) % len(self._own)] for i in range(width)]
        rng, relevant = _rng(self.seed, self.query, turn), self.judged.positives[self.query]
        drawn = (self.ids[int(rng.integers(len(self.ids)))] for _ in iter(int, 1))
        irrelevant = (passage for passage in drawn if passage not in relevant and passage not in self._own)
        return [*self._own, *islice(irrelevant, width - len(self._own))]


def allowed(cell: Cell) -> Training:
    """The queries that the cell may train on, by the rule of its shift, and how many were left out.

    Raises:
        UserError: the shift has no such part, or the release no training queries of it.
    """
    name, release = cell.name, cell.release
    shift = TRAINED_FOR[name.shift]
    shift.check_part(release, name.held_out, name.file)
    if name.held_out not in shift.training_tables(release):
        raise UserError(f"{release.folder}: holds no training queries of the {name.shift} shift")
    return shift.training(release, name.held_out, bool(cell.options.get("strict")))


def _relevant(release: Release, qrels: str) -> pl.DataFrame:
    return release.qrels(qrels).filter(pl.col("relevance") >= 1)


def _judged(release: Release, queries: pl.DataFrame, qrels: str) -> Judged:
    negatives = pl.DataFrame(schema={"query_id": pl.String, "passage_ids": pl.List(pl.String)})
    if "negatives" in release.configs:
        negatives = release.table("negatives", "train")
    relevant = _relevant(release, qrels).sort("query_id", "passage_id")
    rows = (
        queries.select("query_id", "text")
        .unique("query_id", keep="first")
        .join(relevant.group_by("query_id", maintain_order=True).agg(pl.col("passage_id")), on="query_id")
        .join(negatives, on="query_id", how="left")
        .sort("query_id")
    )
    ids = rows["query_id"].to_list()
    return Judged(
        texts=dict(zip(ids, rows["text"].to_list(), strict=True)),
        positives=dict(zip(ids, rows["passage_id"].to_list(), strict=True)),
        negatives=dict(zip(ids, rows["passage_ids"].fill_null([]).to_list(), strict=True)),
    )


def _rng(*parts: object) -> np.random.Generator:
    """A generator of its own for whatever is named."""
    digest = hashlib.sha256("\t".join(map(str, parts)).encode()).digest()
    return np.random.Generator(np.random.PCG64(int.from_bytes(digest[:16])))
