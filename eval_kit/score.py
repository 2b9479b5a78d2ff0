"""Score runs on the test sets they cover: every figure with its n, its missing queries and its ties."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from eval_kit import __version__
from eval_kit.coverage import Coverage, covered
from eval_kit.errors import UserError
from eval_kit.measures import Measure, parse, per_query, value_of_nothing, with_ties_resolved
from eval_kit.ranks import TIE_RULE, RankedRun, rank_judged
from eval_kit.release import Release, TestSet


@dataclass(frozen=True)
class Figure:
    """One mean: of ``measure`` over the ``queries`` of ``test_set`` (its fields are those of scores.schema.json)."""

    run: str
    test_set: str
    measure: str
    value: float
    queries: int
    missing: int
    ties_at_cutoff: int
    worst: float | None
    best: float | None
    per_query: pl.DataFrame

    def as_json(self) -> dict[str, Any]:
        """The entry of the scores document."""
        names = ("run", "test_set", "measure", "value", "queries", "missing", "ties_at_cutoff")
        entry = {name: getattr(self, name) for name in names}
        return entry if self.worst is None else entry | {"worst": self.worst, "best": self.best}


@dataclass(frozen=True)
class Scores:
    """What was scored: figures in the order of the runs, and what they were computed from."""

    figures: list[Figure]
    provenance: dict[str, Any]

    def as_json(self) -> dict[str, Any]:
        """The document of scores.schema.json."""
        return {"measures": [figure.as_json() for figure in self.figures], "provenance": self.provenance}

    def per_query(self) -> pl.DataFrame:
        """``run``, ``test_set``, ``measure``, ``query_id``, ``value``: one row a query and measure."""
        return pl.concat(
            figure.per_query.select(
                pl.lit(figure.run).alias("run"),
                pl.lit(figure.test_set).alias("test_set"),
                pl.lit(figure.measure).alias("measure"),
                "query_id",
                "value",
            )
            for figure in self.figures
        )


def score(
    runs: Sequence[Path],
    release: Release,
    allow_missing: bool = False,
    on_run: Callable[[Path], object] = lambda run: None,
) -> Scores:
    """Score run files against a release.

    Args:
        runs: run files; each is known by its file name without endings (by its path where two share a name).
        release: from :func:`eval_kit.release.open`.
        allow_missing: score a test set even if more than 1 % of its queries are missing.
        on_run: called with each run before it is read.

    Raises:
        UserError: a run that cannot be used; nothing is scored then.
    """
    test_sets = release.test_sets
    splits = sorted({test_set.qrels for test_set in test_sets.values()})
    qrels = {split: release.qrels(split) for split in splits}
    judged = pl.concat(frame.select("query_id", "passage_id") for frame in qrels.values())
    cutoffs = {
        measure.cutoff
        for one in test_sets.values()
        for measure in map(parse, one.measures)
        if measure.cutoff and measure.kind != "ASL"
    }
    figures: list[Figure] = []
    sources = []
    for run, name in zip(runs, _names(runs), strict=True):
        on_run(run)
        ranked = rank_judged(run, judged, cutoffs)
        held = ranked.queries["query_id"]
        coverage = covered(run, held, test_sets, release.known_queries, allow_missing)
        values = _Values(ranked, qrels)
        for test_set in coverage.test_sets:
            figures += _figures(name, values, test_set)
        sources.append(source_of(name, ranked, coverage))
    provenance = {
        "kit_version": __version__,
        "release": {
            "version": release.version,
            "kind": release.manifest["kind"],
            "digest": release.digest,
            "missing": release.missing,
        },
        "tie_rule": TIE_RULE,
        "runs": sources,
    }
    return Scores(figures, provenance)


class _Values:
    """Per-query values of one run, computed once for each split of the judgements, whichever test sets share it."""

    def __init__(self, ranked: RankedRun, qrels: Mapping[str, pl.DataFrame]) -> None:
        self.queries = ranked.queries
        self._ranks = ranked.judged
        self._qrels = qrels
        self._judged: dict[str, pl.DataFrame] = {}
        self._values: dict[tuple[str, Measure, str], pl.DataFrame] = {}

    def of(self, split: str, measure: Measure, ties: str = "") -> pl.DataFrame:
        """``query_id`` and ``value`` of every judged query; ``ties`` across the cutoff: as they are, worst or best."""
        key = (split, measure, ties)
        if key not in self._values:
            if split not in self._judged:
                on = ["query_id", "passage_id"]
                self._judged[split] = self._qrels[split].join(self._ranks, on=on, how="left")
            judged = self._judged[split]
            queries = judged["query_id"].unique()
            if ties and measure.cutoff is not None:
                judged = with_ties_resolved(judged, measure.cutoff, best=ties == "best")
            values = per_query(measure, judged, queries)
            self._values[key] = pl.DataFrame({"query_id": queries, "value": values})
        return self._values[key]


def _figures(run: str, values: _Values, test_set: TestSet) -> Iterator[Figure]:
    held = values.queries.filter(pl.col("query_id").is_in(test_set.queries.implode()))
    for name in test_set.measures:
        measure = parse(name)
        mine = _of_test_set(values.of(test_set.qrels, measure), measure, test_set)
        ties = _ties(measure, held)
        worst, best = (
            _mean(_of_test_set(values.of(test_set.qrels, measure, how), measure, test_set)) if ties else None
            for how in ("worst", "best")
        )
        yield Figure(
            run=run,
            test_set=test_set.name,
            measure=name,
            value=_mean(mine),
            queries=len(test_set.queries),
            missing=len(test_set.queries) - held.height,
            ties_at_cutoff=ties,
            worst=worst,
            best=best,
            per_query=mine,
        )


def _of_test_set(values: pl.DataFrame, measure: Measure, test_set: TestSet) -> pl.DataFrame:
    """The values of the test set's own queries; a query that nobody judged has the value of an empty result."""
    own = test_set.queries.to_frame("query_id").join(values, on="query_id", how="left", maintain_order="left")
    return own.with_columns(pl.col("value").fill_null(value_of_nothing(measure)))


def _ties(measure: Measure, held: pl.DataFrame) -> int:
    """In how many of the run's queries passages with one score stand on both sides of the measure's cutoff."""
    if measure.cutoff is None or measure.kind == "ASL":
        return 0
    return int(held[f"tied_across_{measure.cutoff}"].sum())


def _mean(values: pl.DataFrame) -> float:
    return float(values["value"].sum()) / values.height


def source_of(name: str, ranked: RankedRun, coverage: Coverage) -> dict[str, Any]:
    """What the provenance says of one run (the entries of scores.schema.json)."""
    return {
        "run": name,
        "file": str(ranked.path),
        "sha256": ranked.sha256,
        "lines": ranked.lines,
        "queries": ranked.queries.height,
        "depth": int(ranked.queries["retrieved"].cast(pl.Int64).max() or 0),  # type: ignore[arg-type]
        "judged_passages": ranked.judged.height,
        "unjudged_queries": coverage.unjudged,
    }


def _names(runs: Sequence[Path]) -> list[str]:
    if len(set(runs)) < len(runs):
        raise UserError(f"{next(run for run in runs if list(runs).count(run) > 1)}: is given twice")
    short = [run_name(run) for run in runs]
    return [name if short.count(name) == 1 else str(run) for name, run in zip(short, runs, strict=True)]


def run_name(run: Path) -> str:
    """The file name without the endings of runs and compressed files: ``bm25.dl19`` for ``bm25.dl19.trec.gz``."""
    name = run.name
    for ending in (".gz", ".zst", ".trec", ".run", ".txt", ".tsv"):
        name = name.removesuffix(ending) or name
    return name
