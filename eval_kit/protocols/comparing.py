"""``compare``: runs on one release, or values that others computed."""

from collections.abc import Callable, Collection, Sequence
from typing import Any

from eval_kit.authors.judgements import Judgements, Texts
from eval_kit.authors.opening import ReleaseSource, release_of
from eval_kit.divisions import Parts
from eval_kit.errors import UserError, call, parameter
from eval_kit.protocols.compare import Comparison, compared
from eval_kit.protocols.scoring import named, scores_of, with_measures
from eval_kit.protocols.values import Values, compare_values
from eval_kit.runs.given import GivenRuns, take
from eval_kit.runs.training import TrainedOn, queries_of


def compare(
    runs: GivenRuns = (),
    release: ReleaseSource = None,
    baseline: str | None = None,
    *,
    measures: Collection[str] = (),
    test_sets: Collection[str] = (),
    by: Sequence[str | Parts] = (),
    trained_on: TrainedOn = None,
    no_worse_than: float | None = None,
    looks: bool = False,
    panel: bool = False,
    qrels: Judgements | None = None,
    queries: Texts | None = None,
    values: Values | None = None,
    allow_missing: bool = False,
) -> Comparison:
    """Systems side by side on the same test sets, with paired tests against a baseline.

    Runs whose names differ only in the test set or track at the end, as ``ance.dl19`` and ``ance.dl20`` or
    ``ance.2019`` and ``ance.2020``, are one system, unless they cover the same test set.

    Args:
        runs: of two or more systems; like ``release``, ``measures``, ``test_sets``, ``by``, ``trained_on``, ``qrels``,
            ``queries`` and ``allow_missing`` as for :func:`eval_kit.protocols.scoring.score`.
        release: what they are scored on.
        baseline: the name of the system that the others are tested against; by default the first.
        measures: in place of the test sets' own.
        test_sets: names of those to compare on; by default all that the runs cover.
        by: divisions of the queries, to compare in each part as well.
        trained_on: training queries, for the divisions ``distance`` and ``leaked``.
        no_worse_than: of a gate: the result's ``verdict`` says whether each system loses less than this, by each test
            set's first measure.
        looks: the gate's tests hold however often one looks while queries are added, as every night, at two to four
            times the queries.
        panel: also compare the baseline with twelve known systems on TREC DL 2019 and 2020
            (:mod:`eval_kit.protocols.panel`), and say which places it can have among them.
        qrels: judgements to score on, in place of a release.
        queries: the texts of their queries.
        values: values of each query, in place of runs (:func:`eval_kit.protocols.values.compare_values`).
        allow_missing: score test sets that a run covers only in part.

    Raises:
        UserError: fewer than two systems; a run, measure or test set that cannot be used; nothing that two systems
            share; an argument that says nothing where these are compared.
    """
    given = {name: value for name, value in locals().items() if value is not None and value is not False}
    given = {name: value for name, value in given.items() if not isinstance(value, tuple | list) or value}
    function: Callable[..., Any] = of_runs
    why = ""
    if values is None:
        given["runs"] = runs
    if values is not None:
        function, why = compare_values, f"{parameter('values')} is compared without runs and judgements"
    found: Comparison = call(function, given, why)
    return found


def of_runs(
    runs: GivenRuns,
    release: ReleaseSource = None,
    baseline: str | None = None,
    *,
    measures: Collection[str] = (),
    test_sets: Collection[str] = (),
    by: Sequence[str | Parts] = (),
    trained_on: TrainedOn = None,
    no_worse_than: float | None = None,
    looks: bool = False,
    panel: bool = False,
    qrels: Judgements | None = None,
    queries: Texts | None = None,
    allow_missing: bool = False,
) -> Comparison:
    """Runs of several systems on the same test sets; the arguments are those of :func:`compare`.

    Raises:
        UserError: as there.
    """
    if looks and no_worse_than is None:
        raise UserError(f"{parameter('looks')} needs {parameter('no_worse_than')}", "Looks are at a gate")
    opened_release = release_of(release, qrels, queries)
    [taken] = take(runs=runs)
    own = with_measures(named(opened_release.test_sets, test_sets), measures)
    scores = scores_of(taken, opened_release, allow_missing=allow_missing, test_sets=own)
    return compared(
        scores,
        opened_release,
        baseline,
        test_sets=own,
        by=by,
        training=queries_of(trained_on, by),
        margin=no_worse_than,
        looks=looks,
        with_panel=panel,
    )
