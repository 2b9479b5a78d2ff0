"""Losses by query variations, from run files: score each run on the queries that it searched."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import polars as pl

from eval_kit.errors import UserError
from eval_kit.measures.score import Scores, score_on
from eval_kit.protocols.reformulations import beside_published
from eval_kit.protocols.variations import changes
from eval_kit.release import Release, TestSet, Variation
from eval_kit.runs.names import WordedRun, original_of, run_name, worded


@dataclass(frozen=True)
class Changes:
    """The results of :func:`eval_kit.protocols.variations.changes` for some runs, and what they rest on.

    ``values`` and ``variations`` are its arguments; ``published`` is from
    :func:`eval_kit.protocols.reformulations.beside_published`.
    """

    values: pl.DataFrame
    variations: Sequence[Variation]
    results: pl.DataFrame
    published: pl.DataFrame
    pivot: str | None
    provenance: dict[str, Any]

    def as_json(self) -> dict[str, Any]:
        """The document of variations.schema.json."""
        rows = {"variations": self.results.to_dicts(), "published": self.published.to_dicts()}
        return rows | {"provenance": self.provenance}


def changes_of(
    runs: Sequence[Path],
    release: Release,
    test_set: str | None = None,
    pivot: str | None = None,
    rankers: Mapping[str, str] | None = None,
    seed: int = 0,
    allow_missing: bool = False,
    on_run: Callable[[Path], object] = lambda run: None,
) -> Changes:
    """Compare runs of variations with runs of the original queries.

    Args:
        runs: files named as :func:`eval_kit.runs.names.worded` says.
        release: the one that holds the variations and judgements.
        test_set: compare on the queries of this test set only, a part of the bases; else on the bases.
        pivot: a system among the runs, for LongEval's effect ratio and ΔRI.
        rankers: system → the ranker of CIKM 2021 to set it beside, where that is not the one of the same name.
        seed: for the bootstrap.
        allow_missing: as for :func:`eval_kit.measures.score.score`.
        on_run: called with each run before it is read.

    Raises:
        UserError: a run that cannot be used or lacks its counterpart, or an unknown test set or pivot.
    """
    worded_runs = worded(runs, release)
    if test_set is not None and test_set not in release.test_sets:
        raise UserError(f"{release.folder}: has no test set {test_set!r}; it has {', '.join(release.test_sets)}")
    if pivot is not None and pivot not in {run.system for run in worded_runs}:
        raise UserError(f"--pivot {pivot}: none of the runs is of that system")
    values, provenance = scored(worded_runs, release, test_set, allow_missing, on_run)
    variations = variations_of(worded_runs)
    results = changes(values, variations, pivot, seed)
    published = beside_published(results, rankers or {})
    return Changes(values, variations, results, published, pivot, {**provenance, "seed": seed, "pivot": pivot})


def variations_of(worded_runs: Iterable[WordedRun]) -> list[Variation]:
    """The variations of some runs, each once."""
    return list(dict.fromkeys(run.variation for run in worded_runs if run.variation))


def scored(
    worded_runs: Sequence[WordedRun],
    release: Release,
    test_set: str | None = None,
    allow_missing: bool = False,
    on_run: Callable[[Path], object] = lambda run: None,
) -> tuple[pl.DataFrame, dict[str, Any]]:
    """Score each run on the queries that it searched, and the originals on the same test sets.

    Args:
        worded_runs: from :func:`eval_kit.runs.names.worded`.
        release: as for :func:`changes_of`; so are ``test_set``, ``allow_missing`` and ``on_run``.

    Returns:
        Per-query values with ``system`` and ``variation`` (null for the original wording), and the provenance.

    Raises:
        UserError: a run that cannot be used or lacks its counterpart.
    """
    to_score: dict[Path, list[TestSet]] = {run.path: [] for run in worded_runs}
    originals: dict[tuple[Path, str], TestSet] = {}
    for run in worded_runs:
        if run.variation:
            scored_on = release.test_sets[test_set or run.variation.base]
            to_score[run.path].append(_varied(scored_on, run.variation, release))
            originals[original_of(run, worded_runs).path, scored_on.name] = scored_on
    for (path, _), scored_on in originals.items():
        to_score[path].append(scored_on)
    scores = score_on(to_score, release, allow_missing, on_run)
    return _values(scores, worded_runs), scores.provenance


def _varied(test_set: TestSet, variation: Variation, release: Release) -> TestSet:
    """The queries of the test set that the variation rewords.

    Raises:
        UserError: the test set is no part of the variation's base.
    """
    if not test_set.query_ids <= release.test_sets[variation.base].query_ids:
        raise UserError(f"{variation.full_name}: --test-set {test_set.name} is not a part of {variation.base}")
    wordings = release.wordings(variation)["query_id"]
    return replace(test_set, queries=test_set.queries.filter(test_set.queries.is_in(wordings.implode())))


def _values(scores: Scores, runs: Sequence[WordedRun]) -> pl.DataFrame:
    described = pl.DataFrame(
        [(run_name(run.path), run.system, run.variation and run.variation.full_name) for run in runs],
        {"run": pl.String, "system": pl.String, "variation": pl.String},
        orient="row",
    )
    return scores.per_query().join(described, on="run", maintain_order="left")
