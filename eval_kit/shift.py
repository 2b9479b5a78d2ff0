"""What a shift is: its parts, the queries that a grid is tested and trained on, and its rule of In and Out."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from operator import attrgetter
from typing import ClassVar

import polars as pl

from eval_kit.documents import Column
from eval_kit.errors import UserError
from eval_kit.release import Release

TREC_DL = ("dl19", "dl20")
MAIN_SPLITS = ("dev", "test")
"""Evaluation splits that are large enough to be divided, in order of preference: most of BEIR has only test."""
BENCHMARKS = (*MAIN_SPLITS, *TREC_DL)
"""Names of the test sets that every model of a grid may search besides its shift's own; of dev and test, only the
first that there is (arXiv:2205.02870v1, Table 5)."""


@dataclass(frozen=True)
class Training:
    """What a model may train on.

    Attributes:
        queries: ``query_id`` and ``text``, each query once.
        qrels: split of their judgements.
        excluded: how many queries of the shift's training table were left out, by reason.
    """

    queries: pl.DataFrame
    qrels: str
    excluded: dict[str, int]


@dataclass(frozen=True)
class Shift(ABC):
    """A division of queries into parts, and the protocol that measures what a model loses across it.

    Attributes:
        name: config of the release, and the second word of a run's file name.
        title: for headings.
        phrase: completes "the system loses 10 % of its RR@10 …".
        published_table: id of the paper's table of results.
        correlates: whether its clusters appear in ECIR 2023's Figure 3, of loss against similarity.
    """

    label: ClassVar[str] = ""
    """Column of the release's tables that names a query's part; empty where each part is a separate table."""
    group: ClassVar[str] = ""
    """Column of the results with the part that a row is about; empty where all queries are pooled."""
    measures: ClassVar[tuple[str, ...]] = ()
    """Those that the paper reports; empty for those of the test sets."""
    bibtex: ClassVar[str] = "Lupart2023MsShift"
    """Key of the paper."""
    training_title: ClassVar[str] = "Training queries of every {shift} cluster but {part}"
    """Describes the training queries of the model without a part."""
    overlaps: ClassVar[bool] = False
    """Whether a query may be in several parts."""
    all_test_sets_needed: ClassVar[bool] = True
    """Whether a run must cover every one of :meth:`test_sets`, not only some."""

    name: str
    title: str
    phrase: str
    published_table: str
    correlates: bool = False

    @property
    def has_clusters(self) -> bool:
        """Whether the parts are clusters, each with its own test set ``<shift>.<cluster>``."""
        return self.group == "cluster"

    def parts(self, release: Release) -> list[str]:
        """What can be held out (of ReSTrain: trained on), in the release's order.

        Raises:
            UserError: the release does not hold the shift.
        """
        if parts := self._parts(release):
            return parts
        raise UserError(f"{release.folder}: holds no {self.name} shift")

    def _parts(self, release: Release) -> list[str]:
        """The parts, none where the release does not hold the shift."""
        for column in self._columns(release):
            if column.name == self.label and column.labels:
                return column.labels
        return []

    def _columns(self, release: Release) -> Iterator[Column]:
        """The columns of the shift's tables."""
        return chain.from_iterable(table.columns for table in release.manifest.tables if table.config == self.name)

    def check_part(self, release: Release, part: str, run: str) -> None:
        """Check that the shift has a part.

        Raises:
            UserError: naming the run, and the parts that there are.
        """
        parts = self.parts(release)
        if part not in parts:
            raise UserError(f"{run}: the {self.name} shift has no {part}; it has {', '.join(parts)}")

    def complete(self, parts: Iterable[str], release: Release) -> list[str]:
        """The parts that a grid must have to be compared, if it has these."""
        return self.parts(release)

    def test_sets(self, release: Release) -> list[str]:
        """The test sets that In and Out are compared on."""
        return [f"{self.name}.{part}" for part in self.parts(release)]

    @abstractmethod
    def test_tables(self, release: Release) -> list[tuple[str, str]]:
        """Config and split of the queries that each model of a grid searches."""

    def test_queries(self, release: Release, held_out: str, benchmarks: bool = True) -> pl.DataFrame:
        """The queries that the model without ``held_out`` searches: its own and, with ``benchmarks``, those of these.

        Returns:
            ``query_id`` and ``text``, each query once, in the release's order.
        """
        others = union(release, benchmark_tables(release) if benchmarks else [])
        queries = pl.concat([self._own_test_queries(release, held_out), others])
        return queries.unique("query_id", keep="first", maintain_order=True)

    def _own_test_queries(self, release: Release, held_out: str) -> pl.DataFrame:
        return union(release, self.test_tables(release))

    @abstractmethod
    def roles(self, values: pl.DataFrame, release: Release) -> pl.DataFrame:
        """Say what each value stands for: the one rule of In and Out.

        Args:
            values: rows of this shift's grid with ``held_out``, ``test_set`` and ``query_id``.
            release: the one that was scored on.

        Returns:
            The rows on :meth:`test_sets`, with ``part`` (cluster, bucket or size) and ``is_out`` (whether the
            model never saw the like of the query in training).
        """

    def training_tables(self, release: Release) -> dict[str, tuple[str, str]]:
        """Config and split of the training queries, for each part that the release has training queries for."""
        has_training = "train" in release.configs.get(self.name, [])
        return dict.fromkeys(self._parts(release), (self.name, "train")) if has_training else {}

    def training_name(self, held_out: str) -> str:
        """The name, in ir_datasets ids, of the training queries of the model without ``held_out``."""
        return f"not-{held_out}"

    def training_qrels(self, held_out: str) -> str:
        """The split of their judgements."""
        return "train"

    def training(self, release: Release, held_out: str, strict: bool = False) -> Training:
        """The queries that the model without ``held_out`` may train on, and why others are left out.

        Left out are, by query id, the held-out part, the queries that the model searches, and validation, as the papers
        do (ECIR 2023 §3.2 and §4; CIKM 2022 §4.1), and nothing else: a training query with the text of a test
        query stays, as CIKM 2022 §2 counts it as interpolation.

        Args:
            release: with the shift's training queries.
            held_out: one of :meth:`parts`.
            strict: also leave out all other shifts' test sets, and queries with the text of a test or validation query.
        """
        config, split = self.training_tables(release)[held_out]
        table = release.table(config, split)
        validation = union(release, [("validation", "validation")])
        reasons = {
            "held-out part": (self.in_part(release, table, held_out), "query_id"),
            "test sets": (self.test_queries(release, held_out), "query_id"),
            "validation": (validation, "query_id"),
        }
        if strict:
            test_queries = union(release, sorted(set(map(attrgetter("table"), release.manifest.test_sets))))
            reasons["test sets of other shifts"] = (test_queries, "query_id")
            reasons["same text"] = (pl.concat([test_queries, validation]), "text")
        queries = table.select("query_id", "text").unique("query_id", keep="first", maintain_order=True)
        counts = {}
        for reason, (exclusion, key) in reasons.items():
            rest = queries.join(exclusion, on=key, how="anti", maintain_order="left")
            counts[reason] = queries.height - rest.height
            queries = rest
        return Training(queries, self.training_qrels(held_out), counts)

    def in_part(self, release: Release, table: pl.DataFrame, part: str) -> pl.DataFrame:
        """The rows of a training table that belong to a part; a query may be in several."""
        return table.filter(pl.col(self.label) == part)


def main_split(names: Iterable[str]) -> str | None:
    """Of dev and test, the first that there is: length, ReSTTest's buckets and the Chameleons are tested on it."""
    have = set(names)
    return next((name for name in MAIN_SPLITS if name in have), None)


def benchmarks(names: Iterable[str]) -> list[str]:
    """The :data:`BENCHMARKS` among these: dev or else test, and TREC DL."""
    have = set(names)
    return [name for name in (main_split(have), *TREC_DL) if name in have]


def benchmark_tables(release: Release) -> list[tuple[str, str]]:
    """Config and split of the benchmarks that the release has."""
    names = benchmarks(map(attrgetter("name"), release.manifest.test_sets))
    return list(dict.fromkeys(entry.table for entry in release.manifest.test_sets if entry.name in names))


def union(release: Release, tables: Iterable[tuple[str, str]]) -> pl.DataFrame:
    """``query_id`` and ``text`` of those tables that the release holds."""
    frames = [pl.DataFrame(schema={"query_id": pl.String, "text": pl.String})]
    for config, split in tables:
        if split in release.configs.get(config, []):
            frames.append(release.table(config, split).select("query_id", "text"))
    return pl.concat(frames)
