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
from eval_kit.measures.definitions import Measure, parse, per_query
from eval_kit.release import Release, TestSet
from eval_kit.results import Result
from eval_kit.runs.names import run_name
from eval_kit.runs.reader import read_pieces
from eval_kit.tables.table import Column, Table, number_columns

DEPTH = 100
"""Best passages of each contributor that a pool holds for a query."""
DRAWS, RESAMPLES = 20, 1_000
TRUSTED_TAU = 0.9
"""Below it, the order of systems on the pool is not to be trusted."""
SPARSE_LABELS = 2.0
"""With fewer labels a query, a pool of one ranker alone is biased against that ranker."""
ALL, DRAWN = "all labels", "one label drawn"
ORDERS = dict.fromkeys(["labels", "left_out"], pl.String) | dict.fromkeys(["tau", "tau_low", "tau_high"], pl.Float64)
ALONE = (
    "{name}'s best alone, with {labels:g} label a query: other rankers' figures are too high, and their order is not "
    "to be trusted"
)

type Values = NDArray[np.float64]


@dataclass(frozen=True, repr=False)
class Fidelity(Result):
    """Systems on all passages beside the same systems on a pool.

    Attributes:
        measure: that was compared.
        queries: how many the runs cover.
        labels_per_query: relevant labels a query, on average.
        orders: ``labels``, ``left_out`` (the contributor that the pool lacks; null: none), ``tau``,
            ``tau_low``, ``tau_high``: null for two systems, and for equal ones, which have no order.
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
        label_columns = ["labels", "left out of the pool"]
        orders, levels = [], []
        for row in self.orders.iter_rows(named=True):
            tau = ["-", "-"] if row["tau"] is None else [f"{row['tau']:.3f}", _interval(row, "tau")]
            orders.append([row["labels"], row["left_out"] or "-", *tau])
        for row in self.levels.iter_rows(named=True):
            figures = [f"{row['whole']:.4f}", f"{row['pooled']:.4f}"]
            shift = [f"{row['shift']:+.4f}", _interval(row, "shift", "+.4f")]
            levels.append([row["labels"], row["left_out"] or "-", row["system"], *figures, *shift])
        numbers = number_columns("all passages", "pool", "shift", "95 % interval")
        return [
            Table([*map(Column, label_columns), Column("tau", "number"), Column("95 % interval", "number")], [orders]),
            Table([*map(Column, [*label_columns, "system"]), *numbers], [levels]),
        ]

    def notes(self) -> list[str]:
        """The measure, the queries, and whether the order can be trusted."""
        return [
            f"{self.measure} over {self.queries} queries with {self.labels_per_query:.1f} relevant labels each; "
            "intervals resample queries and the labels drawn",
            f"lowest tau with one label a query: {self._trust()}",
        ]

    @property
    def tau(self) -> float | None:
        """The lowest over the pools, with one label a query: what most of a release's test sets have."""
        tau: float | None = self._lowest()["tau"]
        return tau

    def in_short(self) -> str:
        """The lowest tau and the greatest shift with one label a query, for a release's manifest and its card."""
        shifts = self.levels.filter(pl.col("labels") == DRAWN).sort(pl.col("shift").abs(), maintain_order=True)
        row = shifts.row(-1, named=True)
        without = f" where {row['left_out']} is left out" if row["left_out"] else ""
        change = f"{row['shift']:+.3f} {_interval(row, 'shift', '+.3f')} ({row['system']}{without})"
        return f"Kendall's tau with all passages {self._trust()}; {self.measure} shifts by up to {change}"

    def _lowest(self) -> dict[str, Any]:
        taus = self.orders.filter(pl.col("labels") == DRAWN).sort("tau", nulls_last=True, maintain_order=True)
        return taus.row(0, named=True)

    def _trust(self) -> str:
        row = self._lowest()
        if row["tau"] is None:
            return "unknown, as these systems have no order; order not to be trusted"
        doubt = "" if row["tau"] >= TRUSTED_TAU else "; order not to be trusted"
        return f"{row['tau']:.2f} {_interval(row, 'tau')}{doubt}"


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
    draws: int = DRAWS,
    seed: int = 0,
    only: pl.Series | None = None,
) -> Fidelity:
    """Compare systems on all passages and on the pool, whole and without each contributor in turn.

    Args:
        systems: runs over all passages, as from :func:`read_systems`.
        contributors: the systems whose best are in the pool; by default all of them.
        depth: best passages of each contributor that the pool holds for a query.
        draws: how many times one label of each query is drawn.
        seed: of these draws and of the bootstrap over queries (95 % intervals).
        only: ids of the queries to measure on; by default all.

    Raises:
        UserError: a single system; no test set that all of them cover, or none with a relevant label.
    """
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
    if relevant.height == answerable.height:
        draws = 1
    random = np.random.default_rng(seed)
    contributors = list(contributors or systems)
    pools: dict[str | None, list[str]] = {None: contributors}
    for contributor in contributors if len(contributors) > 1 else ():
        pools[contributor] = [name for name in contributors if name != contributor]
    orders, levels = [], []
    for labels in (ALL, DRAWN):
        judgements = [qrels] if labels == ALL else [_draw(relevant, random) for _ in range(draws)]
        for left_out, rankers in pools.items():
            whole, from_pool = [], []
            for qrels_of_set in judgements:
                best = [systems[name].filter(pl.col("rank") <= depth)["passage_id"] for name in rankers]
                pool = pl.concat([qrels_of_set["passage_id"], *best]).unique().to_frame()
                whole.append(_values(systems, qrels_of_set, answerable, measure, None))
                from_pool.append(_values(systems, qrels_of_set, answerable, measure, pool))
            case: dict[str, Any] = {"labels": labels, "left_out": left_out}
            order, of_systems = _comparison(np.array(whole), np.array(from_pool), list(systems), random)
            orders.append(case | order)
            levels += [case | row for row in of_systems]
    return Fidelity(
        measure.name,
        answerable.height,
        relevant.height / answerable.height,
        pl.DataFrame(orders, ORDERS),
        pl.DataFrame(levels, schema_overrides={"left_out": pl.String}),
        {"kit_version": __version__, "release": release.identity, "depth": depth, "draws": draws, "seed": seed},
    )


def cautions(
    systems: Mapping[str, pl.DataFrame], release: Release, depth: int, only: pl.Series | None = None
) -> list[str]:
    """What a reader of figures on a pool of these systems' best must know: how far they can be trusted."""
    name = f"pool of {', '.join(systems)}"
    if len(systems) == 1:
        labels = _labels_of_most(release)
        return [ALONE.format(name=name, labels=labels)] if labels < SPARSE_LABELS else []
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


def _draw(relevant: pl.DataFrame, random: np.random.Generator) -> pl.DataFrame:
    """One relevant passage of each query."""
    with_lots = relevant.with_columns(lot=pl.Series(random.random(relevant.height)))
    first = pl.col("lot") == pl.col("lot").min().over("query_id")
    return with_lots.filter(first).drop("lot")


def _values(
    systems: Mapping[str, pl.DataFrame],
    qrels: pl.DataFrame,
    queries: pl.DataFrame,
    measure: Measure,
    pool: pl.DataFrame | None,
) -> Values:
    """(systems, queries): the measure, over all passages or those of the pool alone."""
    rows = []
    for run in systems.values():
        if pool is not None:
            in_pool = run.join(pool, on="passage_id", how="semi", maintain_order="left")
            run = in_pool.with_columns(rank=pl.int_range(1, pl.len() + 1).over("query_id"))
        ranks = qrels.join(run, on=["query_id", "passage_id"], how="left")
        rows.append(per_query(measure, ranks, queries["query_id"]).to_numpy())
    return np.array(rows)


def _comparison(
    whole: Values, from_pool: Values, systems: Sequence[str], random: np.random.Generator
) -> tuple[dict[str, float | None], list[dict[str, Any]]]:
    """Order and levels of (draws, systems, queries); intervals resample queries and draws together."""
    taus = list(map(_tau, whole.mean(axis=2), from_pool.mean(axis=2)))
    resampled_taus, resampled_shifts = [], []
    for _ in range(RESAMPLES):
        draw = random.integers(len(whole))
        resample = random.integers(whole.shape[2], size=whole.shape[2])
        before, after = whole[draw][:, resample].mean(axis=1), from_pool[draw][:, resample].mean(axis=1)
        resampled_taus.append(_tau(before, after))
        resampled_shifts.append(after - before)
    order: dict[str, float | None] = dict.fromkeys(("tau", "tau_low", "tau_high"))
    if np.isfinite(taus).any():
        low, high = np.nanquantile(resampled_taus, [0.025, 0.975])
        order = {"tau": float(np.nanmean(taus)), "tau_low": float(low), "tau_high": float(high)}
    lows, highs = np.quantile(resampled_shifts, [0.025, 0.975], axis=0)
    rows = []
    for number, system in enumerate(systems):
        levels = {"whole": float(whole[:, number].mean()), "pooled": float(from_pool[:, number].mean())}
        interval = {"shift_low": float(lows[number]), "shift_high": float(highs[number])}
        rows.append({"system": system, **levels, "shift": levels["pooled"] - levels["whole"], **interval})
    return order, rows


def _tau(before: Values, after: Values) -> float:
    """Kendall's tau-b; NaN for two systems, and where all are equal."""
    from scipy.stats import kendalltau

    return float(kendalltau(before, after).statistic) if len(before) > 2 else float("nan")


def _interval(row: Mapping[str, Any], name: str, form: str = ".2f") -> str:
    return f"[{row[f'{name}_low']:{form}}, {row[f'{name}_high']:{form}}]"
