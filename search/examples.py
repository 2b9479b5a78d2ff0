"""What a model may train on, as examples of ids: a query, a relevant passage and its negatives, in a fixed order.

The order and the negatives depend on the release, the seed and the ids alone. So our own cells and the files that
``builder triplets`` writes for other trainers hold the same examples, which :func:`line` lets two people compare.
"""

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice, product

import numpy as np
import polars as pl

from eval_kit.errors import UserError
from eval_kit.release import Release
from eval_kit.shifts import TRAINED_FOR, Training

type Example = tuple[str, ...]
"""The ids of a query, of a relevant passage, and of its negatives."""


@dataclass(frozen=True)
class Judged:
    """Queries with their relevant passages and negatives, by query id, in the order of the ids."""

    texts: Mapping[str, str]
    positives: Mapping[str, Sequence[str]]
    negatives: Mapping[str, Sequence[str]]


def permitted(release: Release, shift: str, held_out: str, strict: bool = False, name: str = "--held-out") -> Training:
    """The queries that a model without ``held_out`` may train on, by the rule of the shift.

    Args:
        release: with training queries.
        shift: a name of :data:`eval_kit.shifts.TRAINED_FOR`.
        held_out: the part.
        strict: as for :meth:`eval_kit.shifts.Shift.training`.
        name: of what needs them, for messages.

    Raises:
        UserError: the shift has no such part, or the release no training queries of it.
    """
    trained_for = TRAINED_FOR[shift]
    trained_for.check_part(release, held_out, name)
    if held_out not in trained_for.training_tables(release):
        raise UserError(f"{release.folder}: holds no training queries of the {shift} shift")
    return trained_for.training(release, held_out, strict)


def relevant(release: Release, qrels: str) -> pl.DataFrame:
    """``query_id`` and ``passage_id`` of the relevant passages (grade 1 and higher) of a split of the judgements."""
    return release.qrels(qrels).filter(pl.col("relevance") >= 1).select("query_id", "passage_id")


def judged(release: Release, queries: pl.DataFrame, qrels: str) -> Judged:
    """The queries that have a relevant passage, with those passages and the release's negatives, if it has any.

    Args:
        release: whose judgements they are.
        queries: ``query_id`` and ``text``.
        qrels: the split of their judgements.

    Raises:
        UserError: the release has no such judgements.
    """
    negatives = pl.DataFrame(schema={"query_id": pl.String, "passage_ids": pl.List(pl.String)})
    if "negatives" in release.configs:
        negatives = release.table("negatives", "train")
    positives = relevant(release, qrels).sort("query_id", "passage_id")
    rows = (
        queries.select("query_id", "text")
        .unique("query_id", keep="first")
        .join(positives.group_by("query_id", maintain_order=True).agg(pl.col("passage_id")), on="query_id")
        .join(negatives, on="query_id", how="left")
        .sort("query_id")
    )
    ids = rows["query_id"].to_list()
    return Judged(
        texts=dict(zip(ids, rows["text"].to_list(), strict=True)),
        positives=dict(zip(ids, rows["passage_id"].to_list(), strict=True)),
        negatives=_Lists(ids, rows["passage_ids"].fill_null([])),
    )


class _Lists(Mapping[str, Sequence[str]]):
    """Lists of strings by key, made of a column as they are read: 40 million Python strings would take 3 GB."""

    def __init__(self, keys: Sequence[str], lists: pl.Series) -> None:
        self._rows = {key: row for row, key in enumerate(keys)}
        self._lists = lists

    def __getitem__(self, key: str) -> Sequence[str]:
        strings: list[str] = self._lists[self._rows[key]].to_list()
        return strings

    def __iter__(self) -> Iterator[str]:
        return iter(self._rows)

    def __len__(self) -> int:
        return len(self._rows)


def refuse_without_negatives(release: Release) -> None:
    """Refuse to train with negatives on a release that has none.

    Raises:
        UserError: saying which command draws them.
    """
    if "negatives" not in release.configs:
        raise UserError(
            f"{release.folder}: holds no negatives to train with; draw them with: python -m builder negatives "
            f"{release.folder}"
        )


def columns(width: int) -> list[str]:
    """What trainers call the members of an :data:`Example` with so many negatives."""
    return ["query", "positive", *(f"negative_{number}" for number in range(width))]


def line(example: Example) -> bytes:
    """An example for a digest: the ids, separated by tabs."""
    return "\t".join(example).encode() + b"\n"


def examples(
    queries: Judged, passages: Iterable[tuple[str, str]], width: int, count: int, seed: int, random: bool = False
) -> Iterator[Example]:
    """Every pair of a query and a relevant passage once, then again with other negatives.

    Args:
        queries: at least one.
        passages: ``(passage id, text)`` of the collection; read only where a query has fewer negatives than ``width``.
        width: negatives of an example.
        count: whole turns are made until there are so many examples, or the negatives are used up.
        seed: of the draws.
        random: take the negatives from all passages instead of the query's own.
    """
    few = bool(width) and (random or min(map(len, queries.negatives.values())) < width)
    ids = [passage for passage, _ in passages] if few else []
    pairs = list(chain.from_iterable(product([query], queries.positives[query]) for query in queries.texts))
    turns = -(-count // len(pairs)) if width else 1
    if not random and width:
        turns = min(turns, max(1, max(map(len, queries.negatives.values())) // width))
    draws = {query: _Draws(query, queries, ids, seed, random) for query in queries.texts}
    for turn in range(turns):
        for query, positive in pairs:
            yield query, positive, *draws[query].turn(turn, width)


def generator(*parts: object) -> np.random.Generator:
    """A generator of random numbers of its own for whatever is named."""
    digest = hashlib.sha256("\t".join(map(str, parts)).encode()).digest()
    return np.random.Generator(np.random.PCG64(int.from_bytes(digest[:16])))


@dataclass
class _Draws:
    """Negatives of one query: its own in a random order, again from the beginning when they are used up."""

    query: str
    queries: Judged
    ids: Sequence[str]
    seed: int
    random: bool

    def __post_init__(self) -> None:
        own = () if self.random else self.queries.negatives[self.query]
        self._order = generator(self.seed, self.query).permutation(len(own)).astype(np.int32) if own else ()

    def turn(self, turn: int, width: int) -> list[str]:
        own = self.queries.negatives[self.query] if len(self._order) else ()
        if len(own) >= width:
            return [own[self._order[(turn * width + i) % len(own)]] for i in range(width)]
        rng, relevant = generator(self.seed, self.query, turn), self.queries.positives[self.query]
        drawn = (self.ids[int(rng.integers(len(self.ids)))] for _ in iter(int, 1))
        irrelevant = (passage for passage in drawn if passage not in relevant and passage not in own)
        return [*(own[number] for number in self._order), *islice(irrelevant, width - len(own))]
