"""Similarity of the words of collections in BEIR's format (Thakur et al. 2021, Figure 2 and Appendix F)."""

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

import polars as pl

from eval_kit import __version__, plots
from eval_kit.console import counted
from eval_kit.errors import UserError
from eval_kit.files.beir import read_corpus
from eval_kit.release import beir_suite
from eval_kit.results import Figure, Result
from eval_kit.stats import words_on_disk
from eval_kit.stats.words_on_disk import Words
from eval_kit.tables.table import Column, Table


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
        columns += [Column(str(number), "number", wrap="never") for number in range(1, len(names) + 1)]
        rows = []
        for number, name in enumerate(names, start=1):
            values = (jaccard.get(frozenset((name, column))) for column in names)
            rows.append([f"{number} {name}", *("-" if value is None else f"{value:.2f}" for value in values)])
        return [Table(columns, [rows], "Weighted Jaccard similarity of passages (BEIR, Figure 2)")]

    def figures(self) -> list[Figure]:
        """The heatmap."""
        pairs = {(left, right): value for left, right, value in self.pairs.iter_rows()}
        title = "Figure 2: weighted Jaccard similarity of passages"
        return [Figure(plots.heatmap(self.collections["collection"].to_list(), pairs, title))]


def overlap(folders: Sequence[Path]) -> Overlap:
    """Compare the words of collections.

    Words are counted on the disk, in the folder for temporary files: memory grows only with the ids of one corpus.

    Args:
        folders: in BEIR's format; CQADupStack's twelve count as one collection.

    Raises:
        UserError: fewer than two, one given twice, a folder that is not as it should be, or one without words.
    """
    names = [folder.resolve().name for folder in folders]
    if len(names) < 2:
        raise UserError("name two collections or more to compare")
    if repeated := next((name for name in names if names.count(name) > 1), None):
        raise UserError(f"two collections are called {repeated}")
    with tempfile.TemporaryDirectory(prefix="words-") as scratch:
        words = {name: _counted(folder, Path(scratch) / name) for name, folder in zip(names, folders, strict=True)}
        pairs = [(*pair, words_on_disk.jaccard(*(words[name] for name in pair))) for pair in combinations(words, 2)]
    sizes = [(name, counts.texts, counts.total) for name, counts in words.items()]
    return Overlap(
        pl.DataFrame(sizes, ["collection", "passages", "words"], orient="row"),
        pl.DataFrame(pairs, ["collection", "other", "jaccard"], orient="row"),
        {"kit_version": __version__},
    )


def _counted(folder: Path, scratch: Path) -> Words:
    files = [part / "corpus.jsonl" for part in beir_suite.parts(folder)]
    texts = (text for file in files for _, text in read_corpus(file))
    words = words_on_disk.count(counted(texts, f"counting words of {folder.name}", "passages"), scratch)
    if not words.total:
        raise UserError(f"{files[0]}: its passages have no words")
    return words
