"""How far figures on a pool of passages can be trusted: real systems on all passages and on the pool.

A pool holds the labelled passages and the best of some rankers, its contributors. It favours systems unlike its
contributors: passages that would have beaten the labelled one are not in it. So systems that did not contribute are
scored over all passages and over the pool. With many labels a query, the labelled passages themselves hide the fault.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import polars as pl

from eval_kit import __version__
from eval_kit.errors import UserError
from eval_kit.measures.definitions import Measure, parse, per_query
from eval_kit.release import Release, TestSet
from eval_kit.results import Result
from eval_kit.runs.names import run_name
from eval_kit.runs.reader import read_pieces
from eval_kit.tables.table import Column, Table, number_columns

DEPTH = 100
"""Best passages of each contributor that a pool holds for a query: with those of BM25 and TAS-B no system moved by more
than 0.002 on DL19 and DL20 (docs/baselines.md)."""
_SPARSE_LABELS = 2.0
"""With fewer labels a query, a pool lifts systems that did not contribute: BM25's best 20 lift TAS-B from 0.138 to
0.237 with the first label of DL19 and DL20; with all their labels no system moved by 0.01 (docs/baselines.md)."""
_ALONE = "other rankers' figures are too high, and their order is not to be trusted"
_SEVERAL = "figures of systems unlike these may be too high; builder fidelity --pool measures by how much"


@dataclass(frozen=True, repr=False)
class Fidelity(Result):
    """Systems on all passages beside the same systems on a pool.

    Attributes:
        measure: that was compared.
        queries: how many the runs cover.
        labels_per_query: relevant labels a query, on average.
        levels: ``system``, ``whole``, ``pooled`` and ``shift``, the difference.
    """

    measure: str
    queries: int
    labels_per_query: float
    levels: pl.DataFrame
    provenance: Mapping[str, Any]
    title: ClassVar[str] = "Fidelity of a pool"

    def to_polars(self) -> pl.DataFrame:
        """The levels."""
        return self.levels

    def as_json(self) -> dict[str, Any]:
        """Plain JSON values."""
        of_queries = {"queries": self.queries, "labels_per_query": self.labels_per_query}
        return super().as_json() | {"measure": self.measure} | of_queries

    def tables(self) -> list[Table]:
        """The level of each system."""
        rows = []
        for system, whole, pooled, shift in self.levels.iter_rows():
            rows.append([system, f"{whole:.4f}", f"{pooled:.4f}", f"{shift:+.4f}"])
        return [Table([Column("system"), *number_columns("all passages", "pool", "shift")], [rows])]

    def notes(self) -> list[str]:
        """The measure, the queries, and what they do not tell."""
        over = f"{self.measure} over {self.queries} queries with {self.labels_per_query:.1f} relevant labels each"
        is_deep = self.labels_per_query >= _SPARSE_LABELS
        return [over + ": this says nothing of test sets with one label a query" * is_deep]


def read_systems(paths: Sequence[Path], release: Release) -> dict[str, pl.DataFrame]:
    """The runs by system: ``query_id``, ``passage_id`` and ``rank``, by score, then by id, descending as in trec_eval.

    Runs named ``<system>.<test set>`` of several test sets are one system.

    Raises:
        UserError: a run that cannot be read, two runs of a system with a query in common, or systems whose runs
            differ in the test sets that they cover.
    """
    parts: dict[str, list[pl.DataFrame]] = {}
    for path in paths:
        name = run_name(path)
        systems = [name.removesuffix(f".{test_set}") for test_set in release.test_sets]
        system = min(systems, key=len, default=name)
        frame = pl.concat(read_pieces(path)).select("query_id", "passage_id", "score")
        parts.setdefault(system, []).append(frame)
    rank = pl.int_range(1, pl.len() + 1).over("query_id").alias("rank")
    runs = {}
    for name, frames in parts.items():
        run = pl.concat(frames).sort("query_id", "score", "passage_id", descending=[False, True, True])
        runs[name] = run.select("query_id", "passage_id", rank)
        if run.select("query_id", "passage_id").is_duplicated().any():
            raise UserError(f"Two runs of {name} have a query in common", do="Give each query of a system in one run")
    return runs


def measure_fidelity(
    systems: Mapping[str, pl.DataFrame], contributors: Mapping[str, pl.DataFrame], release: Release, depth: int = DEPTH
) -> Fidelity:
    """Compare systems on all passages and on the pool.

    Args:
        systems: runs over all passages, as from :func:`read_systems`, of systems that did not contribute.
        contributors: likewise, those whose best are in the pool.
        release: which judges them.
        depth: best passages of each contributor that the pool holds for a query.

    Raises:
        UserError: no system; no test set that all runs cover, or none with a relevant label.
    """
    if not systems:
        raise UserError("The fidelity of a pool needs the run of a system that did not contribute to it")
    runs = [*contributors.values(), *systems.values()]
    test_sets = _covered(runs, release)
    measure = _measure(test_sets[0])
    query_ids = pl.concat(test_set.queries for test_set in test_sets).unique().sort()
    judged = [release.qrels(each.qrels).filter(pl.col("query_id").is_in(each.queries.implode())) for each in test_sets]
    qrels = pl.concat(judged).sort("query_id", "passage_id")
    relevant = qrels.filter(pl.col("relevance") >= measure.grade)
    answerable = query_ids.to_frame("query_id").join(relevant, on="query_id", how="semi")
    if not answerable.height:
        raise UserError(f"{release.folder} has no relevant label of the queries that all runs cover")
    best = [run.filter(pl.col("rank") <= depth)["passage_id"] for run in contributors.values()]
    pool = pl.concat([qrels["passage_id"], *best]).unique().to_frame()
    rows = []
    for system, run in systems.items():
        in_pool = run.join(pool, on="passage_id", how="semi", maintain_order="left")
        in_pool = in_pool.with_columns(rank=pl.int_range(1, pl.len() + 1).over("query_id"))
        whole, pooled = (_mean(ranked, qrels, answerable, measure) for ranked in (run, in_pool))
        rows.append((system, whole, pooled, pooled - whole))
    return Fidelity(
        measure.name,
        answerable.height,
        relevant.height / answerable.height,
        pl.DataFrame(rows, ["system", "whole", "pooled", "shift"], orient="row"),
        {"kit_version": __version__, "release": release.identity, "pool": [*contributors], "depth": depth},
    )


def cautions(contributors: Collection[str], release: Release) -> list[str]:
    """What a reader of figures on a pool of these systems' best must know; nothing where queries have many labels."""
    if _labels_of_most(release) >= _SPARSE_LABELS:
        return []
    return [f"pool of {', '.join(contributors)}: {_ALONE if len(contributors) == 1 else _SEVERAL}"]


def _labels_of_most(release: Release) -> float:
    """The median over queries of their relevant labels: a few deeply judged queries do not count."""
    relevant = [release.qrels(split).filter(pl.col("relevance") > 0) for split in release.configs["qrels"]]
    counts = pl.concat(relevant).group_by("query_id").len()["len"]
    return float(counts.median() or 0)  # type: ignore[arg-type]


def _covered(runs: Sequence[pl.DataFrame], release: Release) -> list[TestSet]:
    """The test sets, disjoint, that every run covers."""
    query_ids = set.intersection(*(set(run["query_id"].unique()) for run in runs))
    covered, seen_ids = [], set[str]()
    for test_set in release.test_sets.values():
        # dev, ReSTTest and Chameleons share queries, which would count twice
        if test_set.query_ids and test_set.query_ids.isdisjoint(seen_ids) and test_set.query_ids <= query_ids:
            covered.append(test_set)
            seen_ids |= test_set.query_ids
    if not covered:
        raise UserError(f"{release.folder} has no test set that all runs cover")
    return covered


def _measure(test_set: TestSet) -> Measure:
    """The test set's reciprocal rank, which depends on one label alone; else its first measure."""
    measures = list(map(parse, test_set.measures))
    return next((measure for measure in measures if measure.kind.name == "RR"), measures[0])


def _mean(run: pl.DataFrame, qrels: pl.DataFrame, queries: pl.DataFrame, measure: Measure) -> float:
    """The measure over the queries."""
    ranks = qrels.join(run, on=["query_id", "passage_id"], how="left")
    return float(per_query(measure, ranks, queries["query_id"]).to_numpy().mean())
