"""How far figures on a pool of passages can be trusted: real systems on all passages and on the pool.

A pool holds the labelled passages and the best of some rankers, its contributors. It favours systems
unlike its contributors: passages that would have beaten the labelled one are not in it. So the runs
are scored over all passages and over the pool, and each contributor is left out of the pool in turn;
compared are the order of the systems (Kendall's tau-b) and the level of each. Where many labels a
query hide the fault, one of them is drawn as the only label, as in MS MARCO's own test sets, which
have 1.06 labels a query.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import polars as pl
from numpy.typing import NDArray

from eval_kit import __version__
from eval_kit.errors import UserError
from eval_kit.measures.definitions import Measure, parse
from eval_kit.release import Release, TestSet
from eval_kit.results import Result
from eval_kit.runs.names import run_name
from eval_kit.runs.reader import read_pieces
from eval_kit.tables.table import Column, Table

DEPTH = 100
"""Best passages of each contributor that a pool holds for a query."""
DRAWS, RESAMPLES = 20, 1_000
TRUSTED_TAU = 0.9
"""Below it, the order of systems on the pool is not to be trusted."""
SPARSE_LABELS = 2.0
"""With fewer labels a query, a pool of one ranker alone is biased against that ranker."""
ALL, DRAWN = "all labels", "one label drawn"

type Values = NDArray[np.float64]


@dataclass(frozen=True, repr=False)
class Fidelity(Result):
    """Systems on all passages beside the same systems on a pool.

    Attributes:
        measure: that was compared.
        queries: how many the runs cover.
        labels_per_query: relevant labels a query, on average.
        orders: ``labels``, ``left_out`` (the contributor that the pool lacks; null: none), ``tau``,
            ``tau_low``, ``tau_high``.
        levels: ``labels``, ``left_out``, ``system``, ``whole``, ``pooled``, ``shift``, ``shift_low``, ``shift_high``.
    """

    measure: str
    queries: int
    labels_per_query: float
    orders: pl.DataFrame
    levels: pl.DataFrame
    provenance: Mapping[str, Any]
    title: ClassVar[str] = "Fidelity of a pool"

    def to_polars(self) -> pl.DataFrame:
        """The levels, with the order's tau of the same pool."""
        return self.levels.join(self.orders, on=["labels", "left_out"], nulls_equal=True, maintain_order="left")

    def as_json(self) -> dict[str, Any]:
        """Plain JSON values."""
        of_queries = {"queries": self.queries, "labels_per_query": self.labels_per_query}
        return super().as_json() | {"measure": self.measure, "tau": self.tau} | of_queries

    def tables(self) -> list[Table]:
        """The order of the systems on each pool, and the level of each system."""
        named = ["labels", "left out of the pool"]
        orders, levels = [], []
        for row in self.orders.iter_rows(named=True):
            interval = f"[{row['tau_low']:.2f}, {row['tau_high']:.2f}]"
            orders.append([row["labels"], row["left_out"] or "-", f"{row['tau']:.3f}", interval])
        for row in self.levels.iter_rows(named=True):
            figures = [f"{row[name]:.4f}" for name in ("whole", "pooled")]
            shift = [f"{row['shift']:+.4f}", f"[{row['shift_low']:+.4f}, {row['shift_high']:+.4f}]"]
            levels.append([row["labels"], row["left_out"] or "-", row["system"], *figures, *shift])
        numbers = [Column(name, "number") for name in ("all passages", "pool", "shift", "95 % interval")]
        return [
            Table([*map(Column, named), Column("tau", "number"), Column("95 % interval", "number")], [orders]),
            Table([*map(Column, [*named, "system"]), *numbers], [levels]),
        ]

    def notes(self) -> list[str]:
        """The measure, the queries, and whether the order can be trusted."""
        trust = "" if self.tau >= TRUSTED_TAU else ": order not to be trusted"
        return [
            f"{self.measure} over {self.queries} queries with {self.labels_per_query:.1f} relevant labels each; "
            "intervals resample queries and the labels drawn",
            f"lowest tau with one label a query: {self.tau:.2f}{trust}",
        ]

    @property
    def tau(self) -> float:
        """The lowest over the pools, with one label a query: what most of a release's test sets have."""
        return float(self.orders.filter(pl.col("labels") == DRAWN)["tau"].to_numpy().min())


def read_systems(paths: Sequence[Path], release: Release) -> dict[str, pl.DataFrame]:
    """The runs by system: ``query_id``, ``passage_id`` and ``rank`` in trec_eval's order.

    Runs named ``<system>.<test set>`` of several test sets are one system.

    Raises:
        UserError: a run that cannot be read, two runs of a system with a query in common, or systems whose runs
            differ in the test sets that they cover.
    """
    parts: dict[str, list[pl.DataFrame]] = {}
    for path in paths:
        name = run_name(path)
        system, _, last = name.rpartition(".")
        frame = pl.concat(read_pieces(path)).select("query_id", "passage_id", "score")
        parts.setdefault(system if last in release.test_sets else name, []).append(frame)
    systems = {name: pl.concat(frames) for name, frames in parts.items()}
    for name, frame in systems.items():
        if frame.select("query_id", "passage_id").is_duplicated().any():
            raise UserError(f"the runs of {name} share a query; give each query of a system in one run")
    return {name: _ranked(frame) for name, frame in systems.items()}


def measure_fidelity(
    systems: Mapping[str, pl.DataFrame],
    release: Release,
    contributors: Collection[str] = (),
    depth: int = DEPTH,
    draws: int = DRAWS,
    seed: int = 0,
) -> Fidelity:
    """Compare systems on all passages and on the pool, whole and without each contributor in turn.

    Args:
        systems: runs over all passages, as from :func:`read_systems`.
        release: the one that holds the judgements.
        contributors: the systems whose best are in the pool; by default all of them.
        depth: best passages of each contributor that the pool holds for a query.
        draws: how many times one label of each query is drawn.
        seed: of these draws and of the bootstrap over queries (95 % intervals).

    Raises:
        UserError: fewer than three systems; no test set that all of them cover.
    """
    if len(systems) < 3:
        raise UserError("the fidelity of a pool needs runs of three systems or more, as two have but one order")
    test_sets = _covered(systems, release)
    measure = _measure(test_sets[0])
    qrels = pl.concat(
        release.qrels(test_set.qrels).filter(pl.col("query_id").is_in(test_set.queries.implode()))
        for test_set in test_sets
    ).sort("query_id", "passage_id")
    relevant = qrels.filter(pl.col("relevance") >= measure.grade)
    queries = pl.concat(test_set.queries for test_set in test_sets).unique().sort().to_frame("query_id")
    answerable = queries.join(relevant, on="query_id", how="semi")
    random = np.random.default_rng(seed)
    pools: dict[str | None, list[str]] = {None: list(contributors or systems)}
    if len(pools[None]) > 1:
        pools |= {left_out: [name for name in pools[None] if name != left_out] for left_out in pools[None]}
    orders, levels = [], []
    for labels in (ALL, DRAWN):
        judgements = [qrels] if labels == ALL else [_drawn(relevant, random) for _ in range(draws)]
        for left_out, rankers in pools.items():
            whole, pooled = [], []
            for judged in judgements:
                pool = _pool(judged, [systems[name] for name in rankers], depth)
                whole.append(_values(systems, judged, answerable, measure, None))
                pooled.append(_values(systems, judged, answerable, measure, pool))
            case = {"labels": labels, "left_out": left_out}
            order, of_systems = _compared(np.array(whole), np.array(pooled), list(systems), random)
            orders.append(case | order)
            levels += [case | row for row in of_systems]
    return Fidelity(
        measure.name,
        answerable.height,
        relevant.height / answerable.height,
        pl.DataFrame(orders),
        pl.DataFrame(levels),
        {"kit_version": __version__, "release": release.identity, "depth": depth, "draws": draws, "seed": seed},
    )


def cautions(systems: Mapping[str, pl.DataFrame], release: Release, depth: int) -> list[str]:
    """What a reader of figures on a pool of BM25 and these systems must know; nothing where it can be trusted.

    Raises:
        UserError: as :func:`measure_fidelity`, for three systems or more.
    """
    labels = _labels_of_most(release)
    if not systems and labels < SPARSE_LABELS:
        return [
            f"pool of BM25's best alone, with {labels:g} label a query: other rankers' figures are too high, "
            "and their order is not to be trusted"
        ]
    if len(systems) < 3:
        return []
    tau = measure_fidelity(systems, release, depth=depth).tau
    trust = "" if tau >= TRUSTED_TAU else "; order not to be trusted"
    return [f"pool of {', '.join(['bm25', *systems])}: Kendall's tau with all passages {tau:.2f}{trust}"]


def _labels_of_most(release: Release) -> float:
    """The median over queries of their relevant labels: a few deeply judged queries do not count."""
    relevant = [release.qrels(split).filter(pl.col("relevance") > 0) for split in release.configs["qrels"]]
    counts = pl.concat(relevant).group_by("query_id").len()["len"]
    return float(counts.median() or 0)  # type: ignore[arg-type]


def _ranked(run: pl.DataFrame) -> pl.DataFrame:
    """In trec_eval's order: score descending, then id descending."""
    ordered = run.sort("query_id", "score", "passage_id", descending=[False, True, True])
    rank = pl.int_range(1, pl.len() + 1).over("query_id").alias("rank")
    return ordered.select("query_id", "passage_id", rank)


def _covered(systems: Mapping[str, pl.DataFrame], release: Release) -> list[TestSet]:
    """The test sets, disjoint, that every system covers."""
    searched = [set(run["query_id"].unique()) for run in systems.values()]
    covered, taken = [], set[str]()
    for test_set in release.test_sets.values():
        members = set(test_set.queries)
        if members.isdisjoint(taken) and all(members <= queries for queries in searched):
            covered.append(test_set)
            taken |= members
    if not covered:
        raise UserError(f"{release.folder}: has no test set that all of {', '.join(systems)} cover")
    return covered


def _measure(test_set: TestSet) -> Measure:
    """The test set's reciprocal rank, which depends on one label alone; else its first measure."""
    measures = [parse(name) for name in test_set.measures]
    return next((measure for measure in measures if measure.kind.name == "RR"), measures[0])


def _drawn(relevant: pl.DataFrame, random: np.random.Generator) -> pl.DataFrame:
    """One relevant passage of each query."""
    shuffled = relevant.with_columns(lot=pl.Series(random.random(relevant.height)))
    first = pl.col("lot") == pl.col("lot").min().over("query_id")
    return shuffled.filter(first).drop("lot")


def _pool(judged: pl.DataFrame, contributors: Sequence[pl.DataFrame], depth: int) -> pl.DataFrame:
    best = [run.filter(pl.col("rank") <= depth)["passage_id"] for run in contributors]
    return pl.concat([judged["passage_id"], *best]).unique().to_frame()


def _values(
    systems: Mapping[str, pl.DataFrame],
    judged: pl.DataFrame,
    queries: pl.DataFrame,
    measure: Measure,
    pool: pl.DataFrame | None,
) -> Values:
    """(systems, queries): the measure, over all passages or those of the pool alone."""
    rows = []
    for run in systems.values():
        if pool is not None:
            kept = run.join(pool, on="passage_id", how="semi", maintain_order="left")
            run = kept.with_columns(rank=pl.int_range(1, pl.len() + 1).over("query_id"))
        ranks = judged.join(run, on=["query_id", "passage_id"], how="left")
        values = measure.kind.values(ranks.lazy(), measure).collect()
        column = queries.join(values, on="query_id", how="left", maintain_order="left")["value"]
        rows.append(column.fill_null(measure.value_of_empty_result).to_numpy())
    return np.array(rows)


def _compared(
    whole: Values, pooled: Values, systems: Sequence[str], random: np.random.Generator
) -> tuple[dict[str, float], list[dict[str, Any]]]:
    """Order and levels of (draws, systems, queries); intervals resample queries and draws together."""
    taus = [_tau(*means) for means in zip(whole.mean(axis=2), pooled.mean(axis=2), strict=True)]
    resampled_taus, resampled_shifts = [], []
    for _ in range(RESAMPLES):
        draw = random.integers(len(whole))
        chosen = random.integers(whole.shape[2], size=whole.shape[2])
        before, after = whole[draw][:, chosen].mean(axis=1), pooled[draw][:, chosen].mean(axis=1)
        resampled_taus.append(_tau(before, after))
        resampled_shifts.append(after - before)
    low, high = np.nanquantile(resampled_taus, [0.025, 0.975])
    lows, highs = np.quantile(resampled_shifts, [0.025, 0.975], axis=0)
    rows = []
    for number, system in enumerate(systems):
        levels = {"whole": float(whole[:, number].mean()), "pooled": float(pooled[:, number].mean())}
        interval = {"shift_low": float(lows[number]), "shift_high": float(highs[number])}
        rows.append({"system": system, **levels, "shift": levels["pooled"] - levels["whole"], **interval})
    return {"tau": float(np.nanmean(taus)), "tau_low": float(low), "tau_high": float(high)}, rows


def _tau(before: Values, after: Values) -> float:
    from scipy.stats import kendalltau

    return float(kendalltau(before, after).statistic)
