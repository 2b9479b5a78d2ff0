"""The interface of every system that has a model: index passages, and search them."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Protocol

import polars as pl

type Passages = Iterable[tuple[str, str]]
"""``(passage id, text)`` pairs, read once, in a fixed order."""
type Hits = Iterator[tuple[str, list[tuple[str, float]]]]
"""For each query its id and ``(passage id, score)`` pairs: score descending, then id descending as a string."""


def best_first(hits: Iterable[tuple[str, float]]) -> list[tuple[str, float]]:
    """``(passage id, score)`` pairs in the order of :data:`Hits`."""
    return sorted(hits, key=lambda hit: (hit[1], hit[0]), reverse=True)


def lines(hits: Hits) -> Iterator[tuple[str, str, int, float]]:
    """``(query id, passage id, rank from 1, score)``, as the lines of a run."""
    for query, passages in hits:
        for rank, (passage, score) in enumerate(passages, start=1):
            yield query, passage, rank, score


class Retriever(Protocol):
    """A model with its way of searching."""

    def index(self, passages: Passages, folder: Path) -> None:
        """Make ``folder`` searchable. Passages that a killed call has encoded are not encoded again."""

    def search(self, queries: pl.DataFrame, folder: Path, depth: int = 1000) -> Hits:
        """Search an indexed folder for ``query_id`` and ``text``, the queries in their order."""
