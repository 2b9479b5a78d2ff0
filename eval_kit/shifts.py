"""Shifts: their parts, the queries a grid is tested and trained on, and which models are In and which Out.

A *grid* trains a system once for each part of a shift and compares, query by query, the models for which the query is
*in-domain* (In) with the model for which it is not (Out). The objects here decide all that depends on the shift.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from operator import attrgetter
from typing import ClassVar, override

import polars as pl

from eval_kit.documents import Column, Manifest
from eval_kit.errors import UserError, choices
from eval_kit.files.formats import QUERIES_SCHEMA
from eval_kit.question_words import ENGLISH, TERMS, contains, parse
from eval_kit.release import Release

TREC_DL = ("dl19", "dl20")
MAIN_SPLITS = ("dev", "test")
"""Evaluation splits that are large enough to be divided, in order of preference: most of BEIR has only test."""
BENCHMARKS = (*MAIN_SPLITS, *TREC_DL)
"""Names of the test sets that every model of a grid may search besides its shift's own; of dev and test, only the
first that there is (arXiv:2205.02870v1, Table 5)."""
WH_TERMS = TERMS[ENGLISH]
"""A query is in a wh cluster if its lower-cased text contains one of the cluster's terms as a substring."""
_TOPICS = "Names and Public Figures, Dated Events, Pricing/Units, Medical Treatments, Biology/Physics"
TOPICS = {f"c{number}": name for number, name in enumerate(_TOPICS.split(", "))}
"""What the authors call the published topics (ECIR 2023, Table 1)."""
REGIMES = ("interpolate", "extrapolate")
ROLES = ("train", "in", "out")
"""Of a query for a crossed model: trained on; held back, but of a cluster that is trained on; of one that is not."""


@dataclass(frozen=True)
class TrainingSet:
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
        phrase: completes "the system loses 10 % of its RR@10 …"; ``{}`` stands for the test sets that were covered.
        published_table: id of the paper's table of results; empty where no paper reports the shift.
        correlates: whether its clusters appear in ECIR 2023's Figure 3, of loss against similarity.
        holds: what its tables hold, for the dataset card; by default the title.
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
    """Whether runs must cover every one of :meth:`test_sets`, not only the same ones."""

    name: str
    title: str
    phrase: str
    published_table: str = ""
    correlates: bool = False
    holds: str = ""

    @property
    def has_clusters(self) -> bool:
        """Whether the parts are clusters, each with its own test set ``<shift>.<cluster>``."""
        return self.group == "cluster"

    def parts(self, release: Release) -> list[str]:
        """What can be held out (of ReSTrain: trained on), in the release's order."""
        if parts := self._parts(release):
            return parts
        raise UserError(f"{release.folder} has no {self.name} shift")

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
        """Check that the shift has a part."""
        parts = self.parts(release)
        if part not in parts:
            raise UserError(
                f"The {self.name} shift has no part {part}, which {run} names", do=f"Choose from: {choices(parts)}"
            )

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
        others = union(release, _benchmark_tables(release) if benchmarks else [])
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

    def training(self, release: Release, held_out: str, strict: bool = False) -> TrainingSet:
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
        return TrainingSet(queries, self.training_qrels(held_out), counts)

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


def _benchmark_tables(release: Release) -> list[tuple[str, str]]:
    """Config and split of the benchmarks that the release has."""
    names = benchmarks(map(attrgetter("name"), release.manifest.test_sets))
    return list(dict.fromkeys(entry.table for entry in release.manifest.test_sets if entry.name in names))


def union(release: Release, tables: Iterable[tuple[str, str]]) -> pl.DataFrame:
    """``query_id`` and ``text`` of those tables that the release holds."""
    there = (key for key in tables if key[1] in release.configs.get(key[0], []))
    frames = (release.table(*key).select("query_id", "text") for key in there)
    return pl.concat([pl.DataFrame(schema=QUERIES_SCHEMA), *frames])


class Clusters(Shift):
    """An MS-Shift shift (ECIR 2023 §3): clusters of queries, each held out once, each with a test set."""

    label = group = "cluster"

    @override
    def test_tables(self, release: Release) -> list[tuple[str, str]]:
        return [(self.name, "test")] if "test" in release.configs.get(self.name, []) else []

    def roles(self, values: pl.DataFrame, release: Release) -> pl.DataFrame:
        """Out is the model that never saw the query's cluster, In each of the others (ECIR 2023 §3.2)."""
        on_clusters = values.filter(pl.col("test_set").str.starts_with(f"{self.name}."))
        part = pl.col("test_set").str.strip_prefix(f"{self.name}.")
        return on_clusters.with_columns(part=part).with_columns(is_out=pl.col("held_out") == pl.col("part"))


class WordClusters(Clusters):
    """Clusters of the queries that contain certain terms (ECIR 2023 §3.1, "WH-Words Queries")."""

    overlaps = True

    def in_part(self, release: Release, table: pl.DataFrame, part: str) -> pl.DataFrame:
        """The part's own queries where the list is the authors', who give a query one label; else all of its rule.

        Where it was drawn here, a query that matches the rule may have been left out of the cluster by the draw.
        """
        tables = (entry for entry in release.manifest.tables if entry.config == self.name)
        rule: dict[str, str] = next((entry.rule.parameters for entry in tables), {})
        if not rule:
            return super().in_part(release, table, part)
        language, own_terms = rule.get("language") or "", rule.get("terms") or ""
        terms = parse(own_terms) if own_terms else TERMS[language or ENGLISH]
        whole_words = bool(own_terms) or rule.get("rule") == "token" or language not in ("", ENGLISH)
        matches = contains(pl.col("text"), terms[part], whole_words)
        return table.filter((pl.col("cluster") == part) | matches.fill_null(False))


class Buckets(Shift):
    """ReSTTest (CIKM 2022 §4.1.3): buckets of training and test queries, each left out of training once."""

    label = "bucket"
    bibtex = "Zhan2022Interpolation"
    measures = ("RR@10", "R@100")

    @override
    def test_sets(self, release: Release) -> list[str]:
        return [main_split(release.configs.get(self.name, [])) or MAIN_SPLITS[0]]

    @override
    def test_tables(self, release: Release) -> list[tuple[str, str]]:
        splits = release.configs.get(self.name, [])
        return [(self.name, split) for split in (*self.test_sets(release), *TREC_DL) if split in splits]

    def roles(self, values: pl.DataFrame, release: Release) -> pl.DataFrame:
        """Out is the model trained without the query's bucket, In each of the others."""
        [main] = self.test_sets(release)
        buckets = release.table(self.name, main).select("query_id", part="bucket")
        on_main = values.filter(pl.col("test_set") == main).join(buckets, on="query_id", maintain_order="left")
        return on_main.with_columns(is_out=pl.col("held_out") == pl.col("part"))


class Regimes(Shift):
    """ReSTrain (CIKM 2022 §4.1.2): training sets near to the test queries and far from them, in several sizes."""

    group = "size"
    bibtex = "Zhan2022Interpolation"
    measures = ("nDCG@10", "R(rel=2)@100")
    training_title = "Training queries {part}"
    all_test_sets_needed = False  # one TREC DL year is enough

    def _parts(self, release: Release) -> list[str]:
        """The training sets, ``<regime>_<size>``."""
        return release.configs.get(self.name, [])

    def complete(self, parts: Iterable[str], release: Release) -> list[str]:
        """Both regimes of every size that is there; sizes are compared one by one."""
        sizes = dict.fromkeys(part.partition("_")[2] for part in parts)
        return [f"{regime}_{size}" for size in sizes for regime in REGIMES]

    @override
    def test_sets(self, release: Release) -> list[str]:
        return nearness_splits(release.test_sets) or list(TREC_DL)

    @override
    def test_tables(self, release: Release) -> list[tuple[str, str]]:
        return [("resttest", split) for split in nearness_splits(release.configs.get("resttest", []))]

    def roles(self, values: pl.DataFrame, release: Release) -> pl.DataFrame:
        """Out is the model trained on the extrapolation set of a size, In the one trained on the interpolation set."""
        regime_and_size = pl.col("held_out").str.split_exact("_", 1)
        return values.filter(pl.col("test_set").is_in(self.test_sets(release))).with_columns(
            part=regime_and_size.struct[1], is_out=regime_and_size.struct[0] == "extrapolate"
        )

    @override
    def training_tables(self, release: Release) -> dict[str, tuple[str, str]]:
        return {part: (self.name, part) for part in self._parts(release)}

    @override
    def training_name(self, held_out: str) -> str:
        return held_out.replace("_", "-")

    @override
    def training_qrels(self, held_out: str) -> str:
        return f"{self.name}_{held_out}"

    def in_part(self, release: Release, table: pl.DataFrame, part: str) -> pl.DataFrame:
        """No rows: the model trains on the very set that it is named after."""
        return table.clear()


class CrossedHoldOuts(Shift):
    """Crossed hold-outs: many small clusters, each left out by half of a few models (:mod:`eval_kit.stats.crossed`).

    The release has one table of queries, with their ``cluster`` and a column for each model: ``train`` (the model
    trains on the query), ``in`` (on the query's cluster, without the query) or ``out`` (without the cluster).
    """

    label = "cluster"
    training_title = "Training queries of the crossed model {part}"
    all_test_sets_needed = False  # a model has its own test set, of the queries that it did not train on

    def _parts(self, release: Release) -> list[str]:
        """The models."""
        return [column.name for column in self._columns(release) if column.labels == list(ROLES)]

    @override
    def test_tables(self, release: Release) -> list[tuple[str, str]]:
        return [(self.name, "train")] if self.name in release.configs else []

    @override
    def _own_test_queries(self, release: Release, held_out: str) -> pl.DataFrame:
        return release.table(self.name, "train").filter(pl.col(held_out) != "train").select("query_id", "text")

    def in_part(self, release: Release, table: pl.DataFrame, part: str) -> pl.DataFrame:
        """The queries of the clusters that the model leaves out."""
        return table.filter(pl.col(part) == "out")

    def roles(self, values: pl.DataFrame, release: Release) -> pl.DataFrame:
        """In is the model that trained on the query's cluster without the query, Out those without the cluster."""
        table = release.table(self.name, "train")
        roles = table.unpivot(self.parts(release), index=["query_id", "cluster"], variable_name="held_out")
        roles = roles.select("query_id", "held_out", part="cluster", is_out=pl.col("value") == "out")
        on_own_part = values.filter(pl.col("test_set") == f"{self.name}." + pl.col("held_out"))
        return on_own_part.join(roles, on=["query_id", "held_out"], maintain_order="left")


class Everything(Shift):
    """The control of arXiv:2205.02870v1, Table 5: nothing is held out, which is called the part ``none``.

    A model trains on the largest table of training queries that the release has: ReSTTest's, where it is there, which
    holds all of MS MARCO's.
    """

    @override
    def parts(self, release: Release) -> list[str]:
        """``none``; nothing in a release that lacks training queries or benchmarks."""
        return ["none"] if self.training_tables(release) and self.test_sets(release) else []

    @override
    def test_sets(self, release: Release) -> list[str]:
        return benchmarks(release.test_sets)

    @override
    def test_tables(self, release: Release) -> list[tuple[str, str]]:
        return _benchmark_tables(release)

    @override
    def training_tables(self, release: Release) -> dict[str, tuple[str, str]]:
        tables = [table for table in release.manifest.tables if table.config in SHIFTS and table.split == "train"]
        return {"none": max(tables, key=attrgetter("rows")).key} if tables else {}

    def in_part(self, release: Release, table: pl.DataFrame, part: str) -> pl.DataFrame:
        """No rows: nothing is held out."""
        return table.clear()

    def roles(self, values: pl.DataFrame, release: Release) -> pl.DataFrame:
        """No rows: there is neither In nor Out."""
        return values.clear().with_columns(part=pl.lit(""), is_out=pl.lit(False))


_ALL = (
    Clusters(
        "topic",
        "query topics",
        "on topics it never saw in training",
        "ecir2023-table2",
        correlates=True,
        holds="MS-Shift: queries by topic, one row for each query and cluster",
    ),
    WordClusters(
        "wh",
        "query forms (wh words)",
        "on wh words it never saw in training",
        "ecir2023-table3",
        correlates=True,
        holds="MS-Shift: queries by wh-word, wha, how, who; one row for each query and cluster",
    ),
    Clusters(
        "length",
        "query lengths",
        "on query lengths it never saw in training",
        "ecir2023-table3",
        holds="MS-Shift: queries by length, short or long",
    ),
    Clusters(
        "given",
        "given parts",
        "on parts it never saw in training",
        holds="the collection's own parts, such as articles or fields, or groups of them",
    ),
    Buckets(
        "resttest",
        "ReSTTest",
        "on {} queries unlike those it was trained on",
        "cikm2022-table7",
        holds="ReSTTest: queries in five buckets, b1 … b5; extrapolation is to a bucket that training left out",
    ),
    Regimes(
        "restrain",
        "ReSTrain",
        "on {} queries when trained away from them",
        "cikm2022-table6",
        holds="ReSTrain: training queries near to (interpolate) or far from (extrapolate) the test queries",
    ),
    CrossedHoldOuts(
        "crossed",
        "crossed hold-outs",
        "on kinds of queries it never saw in training",
        holds="crossed hold-outs: small clusters, and each query's role for each model: train, in or out",
    ),
)
SHIFTS: dict[str, Shift] = {shift.name: shift for shift in _ALL}
"""Every shift by name, in the order in which results are shown."""
CONTROL = Everything("all", "all training queries", "with nothing held out", "arxiv2022-table5")
"""The control for the models of shifts on :data:`BENCHMARKS`; not a shift, and so not in :data:`SHIFTS`."""
TRAINED_FOR: dict[str, Shift] = {**SHIFTS, CONTROL.name: CONTROL}
"""What a cell of a grid can be trained for, by name."""
CLUSTERED = tuple(shift.name for shift in _ALL if shift.has_clusters)
"""Names of the shifts of clusters: MS-Shift's."""


def named(part: str, manifest: Manifest) -> str:
    """A part, with the name that the authors give it, if it is one of their topics."""
    return f"{part} ({TOPICS[part]})" if part in TOPICS and manifest.kind == "published" else part


def check_names(names: Iterable[str], origin: str) -> None:
    """Check names of shifts from a user; ``origin`` says where they stand."""
    for name in names:
        if name not in SHIFTS:
            raise UserError(f"{origin} {name} is not a shift", do=f"Choose from: {', '.join(SHIFTS)}")


def nearness_splits(names: Iterable[str]) -> list[str]:
    """The splits to whose queries ReSTrain measures nearness, and is tested on: TREC DL's, else test, else dev."""
    have = set(names)
    for candidates in (TREC_DL, ("test",), ("dev",)):
        if splits := [split for split in candidates if split in have]:
            return splits
    return []
