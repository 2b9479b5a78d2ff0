"""Similarity of the words of collections in BEIR's format (Thakur et al. 2021, Figure 2 and Appendix F)."""

import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

import polars as pl

from eval_kit import __version__, plots
from eval_kit.console import with_count
from eval_kit.errors import UserError
from eval_kit.files import atomic
from eval_kit.files.beir import read_corpus
from eval_kit.release import beir_suite
from eval_kit.results import Picture, Result
from eval_kit.stats.similarity import jaccard_of_counts, word_counts
from eval_kit.tables.table import Column, Table, number_columns

PARTS = 64
CHARACTERS = 8 << 20
"""In the texts that are counted at once."""
MOST_WORDS = 2_000_000
"""Counted words in memory."""


@dataclass(frozen=True)
class Words:
    """A collection's words, counted in a folder of :data:`PARTS` files by their hashes; ``total`` is their number."""

    folder: Path
    texts: int
    total: int

    def part(self, number: int) -> pl.DataFrame:
        """``word`` and ``count`` of a part, each word once."""
        files = sorted(self.folder.glob(f"{number}-*.parquet"))
        return _merge(list(map(pl.read_parquet, files)))


@dataclass(frozen=True, repr=False)
class Overlap(Result):
    """Similarities of collections.

    Attributes:
        collections: ``collection``, ``passages``, ``words`` (of the passages, in all).
        pairs: ``collection``, ``other`` and ``jaccard`` of their passages; each pair once.
        provenance: kit version.
    """

    title = "How alike are the collections?"

    collections: pl.DataFrame
    pairs: pl.DataFrame
    provenance: Mapping[str, Any]

    def to_polars(self) -> pl.DataFrame:
        """One row for each pair of collections."""
        return self.pairs

    def as_json(self) -> dict[str, Any]:
        """The rows, and the sizes of the collections."""
        return super().as_json() | {"collections": self.collections.to_dicts()}

    def tables(self) -> list[Table]:
        """Figure 2 in numbers; columns are numbered as the rows."""
        names = self.collections["collection"].to_list()
        jaccard = {frozenset(pair): value for *pair, value in self.pairs.iter_rows()}
        columns = [Column("passages of", "heading", wrap="never")]
        columns += number_columns(*map(str, range(1, len(names) + 1)), wrap="never")
        rows = []
        for number, name in enumerate(names, start=1):
            row = [f"{number} {name}"]
            for column in names:
                value = jaccard.get(frozenset((name, column)))
                row.append("-" if value is None else f"{value:.2f}")
            rows.append(row)
        return [Table(columns, [rows], "Weighted Jaccard similarity of passages (BEIR, Figure 2)")]

    def figures(self) -> list[Picture]:
        """The heatmap."""
        pairs = {(left, right): value for left, right, value in self.pairs.iter_rows()}
        title = "Figure 2: weighted Jaccard similarity of passages"
        return [Picture(plots.heatmap(self.collections["collection"].to_list(), pairs, title))]


def overlap(folders: Sequence[Path]) -> Overlap:
    """Compare the words of collections.

    Words are counted on the disk, in the folder for temporary files: memory grows only with the ids of one corpus.

    Args:
        folders: in BEIR's format; CQADupStack's twelve count as one collection.

    Raises:
        UserError: fewer than two, one given twice, a folder that is not as it should be, or one without words.
    """
    by_name: dict[str, Path] = {}
    for folder in folders:
        name = folder.resolve().name
        if name in by_name:
            raise UserError(f"two collections are called {name}")
        by_name[name] = folder
    if len(by_name) < 2:
        raise UserError("name two collections or more to compare")
    words, sizes, pairs = {}, [], []
    with tempfile.TemporaryDirectory(prefix="words-") as scratch:
        for name, folder in by_name.items():
            words[name] = _count_folder(folder, Path(scratch) / name)
            sizes.append((name, words[name].texts, words[name].total))
        for source, target in combinations(words, 2):
            pairs.append((source, target, jaccard(words[source], words[target])))
    collections = pl.DataFrame(sizes, ["collection", "passages", "words"], orient="row")
    by_pair = pl.DataFrame(pairs, ["collection", "other", "jaccard"], orient="row")
    return Overlap(collections, by_pair, {"kit_version": __version__})


def _count_folder(folder: Path, scratch: Path) -> Words:
    files = [part / "corpus.jsonl" for part in beir_suite.parts(folder)]
    texts = (text for file in files for _, text in read_corpus(file))
    words = count(with_count(texts, f"counting words of {folder.name}", "passages"), scratch)
    if not words.total:
        raise UserError(f"{files[0]}: its passages have no words")
    return words


def count(texts: Iterable[str], folder: Path) -> Words:
    """Count the words of texts, as :func:`eval_kit.stats.similarity.weighted_jaccard` sees them, into a new folder."""
    folder.mkdir(parents=True)
    waiting: list[pl.DataFrame] = []
    file_number = number = total = 0
    for batch in _batches(texts):
        number += len(batch)
        waiting.append(word_counts(pl.Series(batch, dtype=pl.String)))
        total += int(waiting[-1]["count"].sum())
        if sum(map(len, waiting)) > MOST_WORDS:
            _write(_merge(waiting), folder, file_number)
            waiting, file_number = [], file_number + 1
    _write(_merge(waiting), folder, file_number)
    return Words(folder, number, total)


def jaccard(source: Words, target: Words) -> float:
    """:func:`eval_kit.stats.similarity.weighted_jaccard` of two collections, part by part."""
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


def _merge(counts: list[pl.DataFrame]) -> pl.DataFrame:
    nothing = pl.DataFrame(schema={"word": pl.String, "count": pl.Int64})
    return pl.concat([nothing, *counts]).group_by("word").agg(pl.col("count").sum())


def _write(counts: pl.DataFrame, folder: Path, number: int) -> None:
    with_part = counts.with_columns(part=pl.col("word").hash() % PARTS)
    for (part,), rows in with_part.partition_by("part", as_dict=True, include_key=False).items():
        atomic.write_parquet(folder / f"{part}-{number}.parquet", rows)
