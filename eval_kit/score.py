"""Score runs on the test sets they cover: every figure with its n, its missing queries and its ties."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from eval_kit import __version__
from eval_kit.coverage import Coverage, covered
from eval_kit.errors import UserError
from eval_kit.measures import Measure, parse, per_query, with_ties_resolved
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
        for test_set in coverage.test_sets:
            figures += _figures(name, ranked, test_set, qrels[test_set.qrels])
        sources.append(_source(name, ranked, coverage))
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


def _figures(run: str, ranked: RankedRun, test_set: TestSet, qrels: pl.DataFrame) -> Iterator[Figure]:
    wanted = test_set.queries.implode()
    judged = qrels.filter(pl.col("query_id").is_in(wanted)).join(
        ranked.judged, on=["query_id", "passage_id"], how="left"
    )
    held = ranked.queries.filter(pl.col("query_id").is_in(wanted))
    missing = len(test_set.queries) - held.height
    for name in test_set.measures:
        measure = parse(name)
        values = per_query(measure, judged, test_set.queries)
        ties, worst, best = _ties(measure, judged, held, test_set.queries)
        yield Figure(
            run=run,
            test_set=test_set.name,
            measure=name,
            value=_mean(values),
            queries=len(test_set.queries),
            missing=missing,
            ties_at_cutoff=ties,
            worst=worst,
            best=best,
            per_query=pl.DataFrame({"query_id": test_set.queries, "value": values}),
        )


def _ties(
    measure: Measure, judged: pl.DataFrame, held: pl.DataFrame, queries: pl.Series
) -> tuple[int, float | None, float | None]:
    """How many queries are tied across the measure's cutoff, and the worst and best mean that could come of it."""
    if measure.cutoff is None or measure.kind == "ASL":
        return 0, None, None
    ties = int(held[f"tied_across_{measure.cutoff}"].sum())
    if not ties:
        return 0, None, None
    worst, best = (
        _mean(per_query(measure, with_ties_resolved(judged, measure.cutoff, best), queries)) for best in (False, True)
    )
    return ties, worst, best


def _mean(values: pl.Series) -> float:
    return float(values.sum()) / len(values)


def _source(name: str, ranked: RankedRun, coverage: Coverage) -> dict[str, Any]:
    return {
        "run": name,
        "file": str(ranked.path),
        "sha256": ranked.sha256,
        "lines": ranked.lines,
        "queries": ranked.queries.height,
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
