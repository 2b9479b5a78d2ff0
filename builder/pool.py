"""How far figures on a pool of passages can be trusted: real systems on all passages and on the pool.

A pool holds the labelled passages and the best of some rankers, its contributors. It favours systems unlike its
contributors: passages that would have beaten the labelled one are not in it. So each system is scored over all passages
and over the pool of the others' best, as a new system would be; compared are the order of the systems (Kendall's tau-b)
and the level of each. With many labels a query, the labelled passages themselves hide the fault.
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
"""Best passages of each contributor that a pool holds for a query."""
_TRUSTED_TAU = 0.9
"""Below it, the order of systems on the pool is not to be trusted."""
_SPARSE_LABELS = 2.0
"""With fewer labels a query, a pool of one ranker alone is biased against that ranker; with more, it hardly shows."""
_ALONE = (
    "{name}'s best alone, with {labels:g} label a query: other rankers' figures are too high, and their order is not "
    "to be trusted"
)


@dataclass(frozen=True, repr=False)
class Fidelity(Result):
    """Systems on all passages beside the same systems on a pool.

    Attributes:
        measure: that was compared.
        queries: how many the runs cover.
        labels_per_query: relevant labels a query, on average.
        tau: of the order of the systems; None for two systems, and for equal ones, which have no order.
        levels: ``system``, ``whole``, ``pooled`` and ``shift``, the difference.
    """

    measure: str
    queries: int
    labels_per_query: float
    tau: float | None
    levels: pl.DataFrame
    provenance: Mapping[str, Any]
    title: ClassVar[str] = "Fidelity of a pool"

    def to_polars(self) -> pl.DataFrame:
        """The levels."""
        return self.levels

    def as_json(self) -> dict[str, Any]:
        """Plain JSON values."""
        of_queries = {"queries": self.queries, "labels_per_query": self.labels_per_query}
        return super().as_json() | {"measure": self.measure, "tau": self.tau} | of_queries

    def tables(self) -> list[Table]:
        """The level of each system."""
        rows = []
        for system, whole, pooled, shift in self.levels.iter_rows():
            rows.append([system, f"{whole:.4f}", f"{pooled:.4f}", f"{shift:+.4f}"])
        return [Table([Column("system"), *number_columns("all passages", "pool", "shift")], [rows])]

    def notes(self) -> list[str]:
        """The measure, the queries, and whether the order can be trusted."""
        return [
            f"{self.measure} over {self.queries} queries with {self.labels_per_query:.1f} relevant labels each; a "
            "contributor is scored on the pool of the others",
            f"Kendall's tau: {self._trust()}",
        ]

    def in_short(self) -> str:
        """The tau and the greatest shift, for a release's manifest and its card."""
        system, *_, shift = self.levels.sort(pl.col("shift").abs(), maintain_order=True).row(-1)
        of = f"{self.measure} of systems that are not in it shifts by up to {shift:+.3f} ({system})"
        return f"Kendall's tau with all passages {self._trust()}; {of}"

    def _trust(self) -> str:
        if self.tau is None:
            return "unknown, as these systems have no order; order not to be trusted"
        doubt = "" if self.tau >= _TRUSTED_TAU else "; order not to be trusted"
        deep = (
            "" if self.labels_per_query < _SPARSE_LABELS else ", which says nothing of test sets with one label a query"
        )
        return f"{self.tau:.2f}{deep}{doubt}"


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
            raise UserError(f"the runs of {name} share a query; give each query of a system in one run")
    return runs


def measure_fidelity(
    systems: Mapping[str, pl.DataFrame],
    release: Release,
    contributors: Collection[str] = (),
    depth: int = DEPTH,
    only: pl.Series | None = None,
) -> Fidelity:
    """Compare systems on all passages and on the pool, each contributor on that of the others if there are any.

    Args:
        systems: runs over all passages, as from :func:`read_systems`.
        contributors: the systems whose best are in the pool; by default all of them.
        depth: best passages of each contributor that the pool holds for a query.
        only: ids of the queries to measure on; by default all.

    Raises:
        UserError: a single system; no test set that all of them cover, or none with a relevant label.
    """
    from scipy.stats import kendalltau

    if len(systems) < 2:
        raise UserError("the fidelity of a pool needs runs of two systems or more; three or more have an order")
    coverage = _coverage(systems, release, only)
    measure = _measure(coverage[0][0])
    parts, query_ids = [], []
    for test_set, ids in coverage:
        parts.append(release.qrels(test_set.qrels).filter(pl.col("query_id").is_in(ids.implode())))
        query_ids.append(ids)
    qrels = pl.concat(parts).sort("query_id", "passage_id")
    relevant = qrels.filter(pl.col("relevance") >= measure.grade)
    queries = pl.concat(query_ids).unique().sort().to_frame("query_id")
    answerable = queries.join(relevant, on="query_id", how="semi")
    if not answerable.height:
        raise UserError(
            f"{release.folder}: has no relevant label of the queries that all of {', '.join(systems)} cover"
        )
    best = {name: systems[name].filter(pl.col("rank") <= depth)["passage_id"] for name in contributors or systems}
    rows = []
    for system, run in systems.items():
        others = [ids for name, ids in best.items() if name != system or len(best) == 1]
        pool = pl.concat([qrels["passage_id"], *others]).unique().to_frame()
        in_pool = run.join(pool, on="passage_id", how="semi", maintain_order="left")
        in_pool = in_pool.with_columns(rank=pl.int_range(1, pl.len() + 1).over("query_id"))
        whole, pooled = (_mean(ranked, qrels, answerable, measure) for ranked in (run, in_pool))
        rows.append((system, whole, pooled, pooled - whole))
    levels = pl.DataFrame(rows, ["system", "whole", "pooled", "shift"], orient="row")
    tau = float(kendalltau(levels["whole"], levels["pooled"]).statistic) if len(systems) > 2 else float("nan")
    return Fidelity(
        measure.name,
        answerable.height,
        relevant.height / answerable.height,
        None if tau != tau else tau,
        levels,
        {"kit_version": __version__, "release": release.identity, "depth": depth},
    )


def cautions(
    systems: Mapping[str, pl.DataFrame], release: Release, depth: int, only: pl.Series | None = None
) -> list[str]:
    """What a reader of figures on a pool of these systems' best must know: how far they can be trusted."""
    name = f"pool of {', '.join(systems)}"
    if len(systems) == 1:
        labels = _labels_of_most(release)
        return [_ALONE.format(name=name, labels=labels)] if labels < _SPARSE_LABELS else []
    try:
        return [f"{name}: {measure_fidelity(systems, release, depth=depth, only=only).in_short()}"]
    except UserError:  # runs of parts of the queries
        return [f"{name}: its fidelity is unknown, as no test set is covered by all; order not to be trusted"]


def _labels_of_most(release: Release) -> float:
    """The median over queries of their relevant labels: a few deeply judged queries do not count."""
    relevant = [release.qrels(split).filter(pl.col("relevance") > 0) for split in release.configs["qrels"]]
    counts = pl.concat(relevant).group_by("query_id").len()["len"]
    return float(counts.median() or 0)  # type: ignore[arg-type]


def _coverage(
    systems: Mapping[str, pl.DataFrame], release: Release, only: pl.Series | None
) -> list[tuple[TestSet, pl.Series]]:
    """The test sets, disjoint, that every system covers, each with those of its queries that count."""
    query_ids = set.intersection(*(set(run["query_id"].unique()) for run in systems.values()))
    coverage: list[tuple[TestSet, pl.Series]] = []
    seen_ids = set[str]()
    for test_set in release.test_sets.values():
        queries = test_set.queries
        if only is not None:
            queries = queries.filter(queries.is_in(only.implode()))
        members = set(queries)
        # dev, ReSTTest and Chameleons share queries, which would count twice
        if members and members.isdisjoint(seen_ids) and members <= query_ids:
            coverage.append((test_set, queries))
            seen_ids |= members
    if not coverage:
        raise UserError(f"{release.folder}: has no test set that all of {', '.join(systems)} cover")
    return coverage


def _measure(test_set: TestSet) -> Measure:
    """The test set's reciprocal rank, which depends on one label alone; else its first measure."""
    measures = list(map(parse, test_set.measures))
    return next((measure for measure in measures if measure.kind.name == "RR"), measures[0])


def _mean(run: pl.DataFrame, qrels: pl.DataFrame, queries: pl.DataFrame, measure: Measure) -> float:
    """The measure over the queries."""
    ranks = qrels.join(run, on=["query_id", "passage_id"], how="left")
    return float(per_query(measure, ranks, queries["query_id"]).to_numpy().mean())
