"""Shifts: their parts, the queries a grid is tested and trained on, and which models are In and which Out.

A *grid* trains a system once for each part of a shift and compares, query by query, the models for which the query is
*in-domain* (In) with the model for which it is not (Out). The objects here decide all that depends on the shift.
"""

from collections.abc import Iterable
from operator import attrgetter
from typing import override

import polars as pl

from eval_kit.errors import UserError
from eval_kit.question_words import ENGLISH, TERMS, contains, parse
from eval_kit.release import Release
from eval_kit.shift import MAIN_SPLITS, TREC_DL, Shift, benchmark_tables, benchmarks, main_split

WH_TERMS = TERMS[ENGLISH]
"""A query is in a wh cluster if its lower-cased text contains one of the cluster's terms as a substring."""
REGIMES = ("interpolate", "extrapolate")
ROLES = ("train", "in", "out")
"""Of a query for a crossed model: trained on; held back, but of a cluster that is trained on; of one that is not."""


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
        return benchmark_tables(release)

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
    Clusters("topic", "query topics", "on topics it never saw in training", "ecir2023-table2", correlates=True),
    WordClusters("wh", "query forms (wh words)", "on wh words it never saw in training", "ecir2023-table3", True),
    Clusters("length", "query lengths", "on query lengths it never saw in training", "ecir2023-table3"),
    Clusters("given", "given parts", "on parts it never saw in training", "ecir2023-table2"),
    Buckets("resttest", "ReSTTest", "on dev queries unlike those it was trained on", "cikm2022-table7"),
    Regimes("restrain", "ReSTrain", "on TREC DL queries when trained away from them", "cikm2022-table6"),
    CrossedHoldOuts("crossed", "crossed hold-outs", "on kinds of queries it never saw in training", "ecir2023-table2"),
)
SHIFTS: dict[str, Shift] = {shift.name: shift for shift in _ALL}
"""Every shift by name, in the order in which results are shown."""
CONTROL = Everything("all", "all training queries", "with nothing held out", "arxiv2022-table5")
"""The control for the models of shifts on :data:`BENCHMARKS`; not a shift, and so not in :data:`SHIFTS`."""
TRAINED_FOR: dict[str, Shift] = {**SHIFTS, CONTROL.name: CONTROL}
"""What a cell of a grid can be trained for, by name."""
CLUSTERED = tuple(shift.name for shift in _ALL if shift.has_clusters)
"""Names of the shifts of clusters: MS-Shift's."""


def check_names(names: Iterable[str], origin: str = "--shift") -> None:
    """Check names of shifts from a user; ``origin`` says where they stand.

    Raises:
        UserError: there is no such shift.
    """
    for name in names:
        if name not in SHIFTS:
            raise UserError(f"{origin} {name}: there is no such shift; there are {', '.join(SHIFTS)}")


def nearness_splits(names: Iterable[str]) -> list[str]:
    """The splits to whose queries ReSTrain measures nearness, and is tested on: TREC DL's, else test, else dev."""
    have = set(names)
    for candidates in (TREC_DL, ("test",), ("dev",)):
        if splits := [split for split in candidates if split in have]:
            return splits
    return []
