"""Training examples as ids, in a fixed order: a query, a relevant passage and negatives.

The order and the negatives depend only on the release, the seed and the ids. So our own cells and the files that
``builder export`` writes for other trainers hold the same examples; a digest of their :func:`lines` confirms it.
"""

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import batched
from typing import Any

import numpy as np
import polars as pl

from eval_kit.errors import UserError
from eval_kit.release import Release
from eval_kit.shifts import TRAINED_FOR, TrainingSet

AT_ONCE = 50_000
"""Queries whose examples are made at once."""

type Example = tuple[str, ...]
"""The ids of a query, of a relevant passage, and of its negatives."""


@dataclass(frozen=True)
class JudgedQueries:
    """Queries with their relevant passages and negatives, by query id, in the order of the ids."""

    texts: Mapping[str, str]
    positives: Mapping[str, Sequence[str]]
    negatives: Mapping[str, Sequence[str]]


def permitted_queries(
    release: Release, shift: str, held_out: str, strict: bool = False, name: str = "held_out"
) -> TrainingSet:
    """The queries that a model without ``held_out`` may train on, by the rule of a shift of ``TRAINED_FOR``.

    ``strict`` is as for :meth:`eval_kit.shifts.Shift.training`; ``name`` is that of the option or run that needs the
    queries, for messages.
    """
    trained_for = TRAINED_FOR[shift]
    trained_for.check_part(release, held_out, name)
    if held_out not in trained_for.training_tables(release):
        raise UserError(f"{release.folder} has no training queries of the {shift} shift")
    return trained_for.training(release, held_out, strict)


def relevant(release: Release, qrels: str) -> pl.DataFrame:
    """``query_id`` and ``passage_id`` of the relevant passages (grade 1 and higher) of a split of the judgements."""
    return release.qrels(qrels).filter(pl.col("relevance") >= 1).select("query_id", "passage_id")


def judged_queries(release: Release, queries: pl.DataFrame, qrels: str) -> JudgedQueries:
    """The queries that have a relevant passage, with those passages and the release's negatives, if it has any.

    The queries have ``query_id`` and ``text``; ``qrels`` is the split of their judgements.
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
    return JudgedQueries(
        texts=dict(zip(ids, rows["text"].to_list(), strict=True)),
        positives=dict(zip(ids, rows["passage_id"].to_list(), strict=True)),
        negatives=_Lists(ids, rows["passage_ids"].fill_null([])),
    )


class _Lists(Mapping[str, Sequence[str]]):
    """Lists of strings by key, made from a column when they are read: 40 million Python strings would take 3 GB."""

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
    """Refuse to train with negatives on a release that has none."""
    if "negatives" not in release.configs:
        raise UserError(
            f"{release.folder} has no negatives to train with",
            do=f"Draw them: python -m builder negatives {release.folder}",
        )


def columns(width: int) -> list[str]:
    """The names that trainers use for the members of an :data:`Example` with ``width`` negatives."""
    return ["query", "positive", *(f"negative_{number}" for number in range(width))]


def lines(table: pl.DataFrame) -> bytes:
    """One of the :func:`tables` for a digest: one line per example, the ids separated by tabs."""
    return table.write_csv(include_header=False, separator="\t", quote_style="never").encode()


def tables(
    queries: JudgedQueries, passages: Iterable[tuple[str, str]], width: int, count: int, seed: int, random: bool = False
) -> Iterator[pl.DataFrame]:
    """Every pair of a query and a relevant passage once, then again with other negatives.

    A query's own negatives come in a random order, and again from the start when they are used up; a query with fewer
    than ``width`` gets others too, drawn from all passages that are not relevant to it.

    The passages are read only where a query has fewer negatives than ``width``, or where all are taken at ``random``
    from them. Whole rounds are made until there are ``count`` examples, or the negatives are used up. Returns one row
    per example, its ids in the :func:`columns`; in tables of about ``AT_ONCE`` queries.
    """
    by_query: Mapping[str, Sequence[str]] = queries.negatives if width and not random else {}
    lengths = [len(by_query.get(query, ())) for query in queries.texts]
    turns = -(-count // sum(map(len, queries.positives.values()))) if width else 1
    if by_query:
        turns = min(turns, max(1, max(lengths) // width))
    ids = pl.Series((passage for passage, _ in passages) if min(lengths) < width else (), dtype=pl.String)
    parts = []
    for ids_of_part, own_lengths in zip(batched(queries.texts, AT_ONCE), batched(lengths, AT_ONCE), strict=True):
        positives = list(map(queries.positives.__getitem__, ids_of_part))
        samples = [_shuffle(by_query.get(query, ()), seed, query, turns * width) for query in ids_of_part]
        rows: dict[str, Any] = {"query": ids_of_part, "positive": positives, "own": samples, "length": own_lengths}
        parts.append(pl.DataFrame(rows, schema_overrides={"own": pl.List(pl.String)}))
    for turn in range(turns):
        numbers = range(turn * width, (turn + 1) * width)
        negatives = [pl.col("own").list.get(number % pl.col("length")) for number in numbers]
        columns_of = dict(zip(columns(width)[2:], negatives, strict=True))
        for part in parts:
            enough = _filled_up(part, ids, width, (seed, turn))
            yield enough.select("query", "positive", **columns_of).explode("positive")


def generator(*parts: object) -> np.random.Generator:
    """A separate generator of random numbers for each choice of ``parts``."""
    digest = hashlib.sha256("\t".join(map(str, parts)).encode()).digest()
    return np.random.Generator(np.random.PCG64(int.from_bytes(digest[:16])))


def _shuffle(negatives: Sequence[str], seed: int, query: str, count: int) -> list[str]:
    """The first ``count`` of a query's negatives in a random order."""
    order = generator(seed, query).permutation(len(negatives))[:count].tolist() if negatives else ()
    return [negatives[number] for number in order]


def _filled_up(part: pl.DataFrame, ids: pl.Series, width: int, seed: tuple[int, int]) -> pl.DataFrame:
    """A part of the queries, each with at least ``width`` negatives; those that it lacks are drawn from ``ids``."""

    def negatives(query: str, relevant: Sequence[str], negatives_of_query: Sequence[str]) -> Sequence[str]:
        rng, draws = generator(seed[0], query, seed[1]), list(negatives_of_query)
        if len(ids) <= len({*relevant, *negatives_of_query}) and len(draws) < width:
            raise UserError(f"The collection has {len(ids):,} passages, too few for {width} negatives of query {query}")
        while len(draws) < width:
            passages = [ids[number] for number in rng.integers(len(ids), size=width - len(draws)).tolist()]
            draws += [passage for passage in passages if passage not in relevant and passage not in negatives_of_query]
        return draws

    few = part.filter(pl.col("length") < width)
    lists = list(map(negatives, few["query"].to_list(), few["positive"].to_list(), few["own"].to_list()))
    with_negatives = few.select("query", own=pl.Series(lists, dtype=pl.List(pl.String)), length=width)
    return part.update(with_negatives, on="query")
