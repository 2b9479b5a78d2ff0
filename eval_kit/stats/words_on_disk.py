"""Words of a collection with their counts, kept on the disk, so that memory grows with neither texts nor vocabulary."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from eval_kit.files import atomic
from eval_kit.stats.similarity import jaccard_of_counts, word_counts

PARTS = 64
CHARACTERS = 8 << 20
"""In the texts that are counted at once."""
MOST_WORDS = 2_000_000
"""Counted words in memory."""


@dataclass(frozen=True)
class Words:
    """A collection's words, in :data:`PARTS` files by their hashes.

    Attributes:
        folder: of the files.
        texts: how many were counted.
        total: words in all.
    """

    folder: Path
    texts: int
    total: int

    def part(self, number: int) -> pl.DataFrame:
        """``word`` and ``count`` of a part, each word once."""
        files = sorted(self.folder.glob(f"{number}-*.parquet"))
        return _merged([pl.read_parquet(file) for file in files])


def count(texts: Iterable[str], folder: Path) -> Words:
    """Count the words of texts, as :func:`eval_kit.stats.similarity.weighted_jaccard` sees them, into a new folder."""
    folder.mkdir(parents=True)
    waiting: list[pl.DataFrame] = []
    written = number = total = 0
    for batch in _batches(texts):
        number += len(batch)
        waiting.append(word_counts(pl.Series(batch, dtype=pl.String)))
        total += int(waiting[-1]["count"].sum())
        if sum(counted.height for counted in waiting) > MOST_WORDS:
            _write(_merged(waiting), folder, written)
            waiting, written = [], written + 1
    _write(_merged(waiting), folder, written)
    return Words(folder, number, total)


def jaccard(source: Words, target: Words) -> float:
    """:func:`eval_kit.stats.similarity.weighted_jaccard` of two collections, part by part.

    Raises:
        ValueError: a side without any word.
    """
    parts = ((source.part(number), target.part(number)) for number in range(PARTS))
    return jaccard_of_counts(parts, source.total, target.total)


def _batches(texts: Iterable[str]) -> Iterator[list[str]]:
    batch: list[str] = []
    characters = 0
    for text in texts:
        batch.append(text)
        characters += len(text)
        if characters > CHARACTERS:
            yield batch
            batch, characters = [], 0
    yield batch


def _merged(counts: list[pl.DataFrame]) -> pl.DataFrame:
    nothing = pl.DataFrame(schema={"word": pl.String, "count": pl.Int64})
    return pl.concat([nothing, *counts]).group_by("word").agg(pl.col("count").sum())


def _write(counts: pl.DataFrame, folder: Path, number: int) -> None:
    parted = counts.with_columns(part=pl.col("word").hash() % PARTS)
    for (part,), rows in parted.partition_by("part", as_dict=True, include_key=False).items():
        atomic.write_parquet(folder / f"{part}-{number}.parquet", rows)
