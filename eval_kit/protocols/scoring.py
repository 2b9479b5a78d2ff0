"""Score runs on the test sets they cover, each read once and ranked in one order."""

import math
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any

import polars as pl

from eval_kit import __version__
from eval_kit.authors.judgements import Judgements, Texts
from eval_kit.authors.opening import ReleaseSource, release_of
from eval_kit.console import reading, status
from eval_kit.divisions import Parts, groupings
from eval_kit.errors import UserError, choices, did_you_mean, parameter
from eval_kit.files.opening import is_file
from eval_kit.known import JUDGED, NOTHING_JUDGED
from eval_kit.measures import chance
from eval_kit.measures.definitions import (
    ROUNDING,
    Measure,
    check_library,
    check_values,
    measure_named,
    parse,
    with_ties_resolved,
    with_values,
)
from eval_kit.protocols.scores import Mean, Scores
from eval_kit.release import Release, TestSet
from eval_kit.release.beir_folder import CORPUS_FILE
from eval_kit.release.manifest import MOST_MEASURES
from eval_kit.runs import contamination
from eval_kit.runs.covered_test_sets import Coverage, complete, coverage_of
from eval_kit.runs.given import GivenRuns, Run, take
from eval_kit.runs.ranks import TIE_RULE, RankedRun, rank_judged
from eval_kit.runs.training import TrainedOn, queries_of
from eval_kit.runs.wordings import contradicts
from eval_kit.sentences import joined
from eval_kit.shifts import TOPICS


def score(
    runs: GivenRuns,
    release: ReleaseSource = None,
    measures: Collection[str] = (),
    *,
    test_sets: Collection[str] = (),
    by: Sequence[str | Parts] = (),
    trained_on: TrainedOn = None,
    panel: bool = False,
    intervals: bool = False,
    qrels: Judgements | None = None,
    queries: Texts | None = None,
    allow_missing: bool = False,
) -> Scores:
    """Score runs on every test set that they cover.

    Args:
        runs: one run, a list, or names and runs (:mod:`eval_kit.runs.given`).
        release: what to score on (:func:`eval_kit.authors.opening.open_release`).
        measures: such as ``["P@5", "Judged@10"]``, in place of the test sets' own; ``map`` and ``ndcg_cut_10``, and
            objects of ir_measures, mean what they mean elsewhere.
        test_sets: names of those to score on, whatever else a run holds; by default all that it covers.
        by: divisions of the queries, to show each part as well (:func:`eval_kit.divisions.divide`).
        trained_on: training queries, for the divisions ``distance`` and ``leaked``
            (:func:`eval_kit.runs.training.queries_of`).
        panel: also say which places each run can have among twelve known systems on TREC DL 2019 and 2020
            (:mod:`eval_kit.protocols.panel`).
        intervals: also give each mean its 95 % interval; and, of six test sets or more, their mean its own.
        qrels: judgements to score on, in place of a release.
        queries: the texts of their queries, for divisions by text.
        allow_missing: score test sets that a run covers only in part.

    Raises:
        UserError: a run, release, measure or division that cannot be used; nothing is scored then.
    """
    by = groupings(by)
    opened_release = release_of(release, qrels, queries)
    training = queries_of(trained_on, by)
    [taken] = take(runs=runs)
    with_own = with_measures(opened_release.test_sets, measures)
    scores = scores_of(taken, opened_release, allow_missing=allow_missing, test_sets=with_own, only=test_sets)
    if intervals:
        from eval_kit.protocols.intervals import with_intervals  # brings numpy, which plain scores need not

        scores = with_intervals(scores)
    if panel:
        from eval_kit.protocols.panel import standings  # likewise

        scores = replace(scores, standings=standings(scores.per_query(), expected=True))
    if not by:
        return scores
    from eval_kit.protocols.by_part import scores_by_part  # likewise

    return scores_by_part(scores, by, opened_release, training)


def scores_of(
    runs: Sequence[Run],
    release: Release,
    *,
    allow_missing: bool = False,
    test_sets: Mapping[str, TestSet] | None = None,
    only: Collection[str] = (),
) -> Scores:
    """Score runs on the test sets that they cover.

    Args:
        runs: from :func:`eval_kit.runs.given.take`.
        release: an open one.
        allow_missing: score test sets that a run covers only in part.
        test_sets: scored in place of the release's own, for other measures or other queries of the release.
        only: names of test sets to score on, whatever else a run holds; by default all that it covers.
    """
    candidates = release.test_sets if test_sets is None else test_sets
    selection = named(candidates, only)

    def choose(run: Run, queries: pl.Series) -> Coverage:
        if only:
            return complete(run, queries, list(selection.values()), allow_missing, candidates.values(), any_of=True)
        where = release.name if len(selection) == len(release.test_sets) else choices(selection)
        return coverage_of(run, queries, selection, where, allow_missing)

    return _scores(runs, release, selection.values(), choose)


def named(test_sets: Mapping[str, TestSet], only: Collection[str]) -> Mapping[str, TestSet]:
    """The test sets of these names, or all if none are named; the name of a shift or part is all of its sets'."""
    selection: dict[str, TestSet] = {}
    for name in [only] if isinstance(only, str) else only:
        found = [name] if name in test_sets else [each for each in test_sets if each.startswith(f"{name}.")]
        if not found:
            hint = did_you_mean(name, test_sets)
            raise UserError(f"Unknown test set {name!r:.40}{hint}", do=f"Choose from: {choices(test_sets)}")
        selection |= {each: test_sets[each] for each in found}
    return selection or test_sets


def with_measures(test_sets: Mapping[str, TestSet], names: Collection[str]) -> dict[str, TestSet]:
    """The test sets, scored by the named measures, or by their own if none are named."""
    listing = [names] if isinstance(names, str) or hasattr(names, "NAME") else names
    if not isinstance(listing, Collection):
        raise UserError(f"{parameter('measures')} takes names such as 'P@5', not {names!r:.40}")
    measures = tuple(dict.fromkeys(measure_named(name).name for name in listing))
    if len(measures) > MOST_MEASURES:
        raise UserError(f"{len(measures):,} {parameter('measures')} at once are more than {MOST_MEASURES}")
    return {name: replace(each, measures=measures or each.measures) for name, each in test_sets.items()}


def score_on(test_sets: Mapping[Run, Sequence[TestSet]], release: Release, *, allow_missing: bool = False) -> Scores:
    """Score each run on the test sets given for it, and on no others.

    The test sets are judged in the release, but not necessarily among its own.
    """

    def choose(run: Run, queries: pl.Series) -> Coverage:
        return complete(run, queries, test_sets[run], allow_missing, release.test_sets.values())

    return _scores(list(test_sets), release, list(chain.from_iterable(test_sets.values())), choose)


def _scores(
    runs: Sequence[Run], release: Release, test_sets: Collection[TestSet], choose: Callable[[Run, pl.Series], Coverage]
) -> Scores:
    """Score each run on the test sets that are chosen for it by its queries; judgements are read once."""
    if not runs:
        raise UserError("No runs were given", do=f"Add {parameter('runs')}")
    check_library()
    splits: set[str] = set()
    measures: set[Measure] = set()
    for test_set in test_sets:
        if not len(test_set.queries):
            raise UserError(f"{test_set.name} has no query to score on")
        splits.add(test_set.qrels)
        measures.update(map(parse, test_set.measures))
    qrels = {split: release.qrels(split) for split in sorted(splits)}
    pairs = pl.concat(qrels.values()).select("query_id", "passage_id")
    own_kept = pairs.filter(query_id=pl.col("passage_id"))["query_id"] if release.in_beir_format else None
    has_corpus = release.in_beir_format and is_file(release.folder / CORPUS_FILE)
    other_texts: pl.Series | None = None
    with_blanks = pairs["passage_id"].filter(pairs["passage_id"].str.contains(" ", literal=True))
    for_any_query = any(measure.kind.for_any_query for measure in measures)
    passages = pairs.select("passage_id").unique() if for_any_query else pairs
    pooled = {split: of_split for split, of_split in qrels.items() if (of_split["relevance"] <= 0).any()}
    measures.update([parse(JUDGED)] if pooled else [])
    means: list[Mean] = []
    sources = []
    with status("reading runs"):
        for run in runs:
            reading(run.name)
            ranking = rank_judged(run, passages, own_kept)
            if ranking.own_left_out and own_kept is not None and has_corpus and other_texts is None:
                from eval_kit.protocols.corpus import with_another_text  # read only for runs that need it

                # ids of queries and passages that are two counts have nothing to do with each other
                other_texts = with_another_text(release, test_sets)
                own_kept = pl.concat([own_kept, other_texts]).unique()
                ranking = rank_judged(run, passages, own_kept) if len(other_texts) else ranking
            coverage = choose(run, ranking.queries["query_id"])
            declared = contamination.training_beside(run.path)
            training_data = declared.training_data
            trained_on = {
                each.name: contamination.trained_on(training_data, each, release, declared.compared)
                for each in coverage.test_sets
            }
            of_run = [
                replace(each, trained_on=trained_on[each.test_set])
                for each in _means(run.name, ranking, qrels, coverage.test_sets)
            ]
            judged = dict(_judged(ranking, pooled, coverage.test_sets))
            of_pools: dict[str, Any] = {"judged": judged} if judged else {}
            if at_chance := list(_at_chance(ranking, qrels, coverage.test_sets, of_run)):
                of_pools["at_chance"] = at_chance
            sources.append(_source(ranking, pairs, coverage, of_run) | of_pools | {"training_data": training_data})
            means += of_run
            if len(with_blanks) and ranking.judged["passage_id"].is_in(with_blanks.implode()).sum() == 0:
                why = "Ids with blanks need tabs between a run's columns"
                _warn(f"{run.name} has none of the judged ids with blanks, such as {with_blanks[0]!r}. {why}")
            if contradicts(tag := next(iter(ranking.tags), ""), run, release):
                _warn(f"The lines of {run.name} are tagged {tag}, another run's name")
    _warn_of_strange(means, sources)
    _warn_of_levels(means, release)
    provenance = {"kit_version": __version__, "release": release.identity, "tie_rule": TIE_RULE, "runs": sources}
    if has_corpus:
        from eval_kit.protocols.corpus import not_in_corpus  # as above

        lost = not_in_corpus(release, means, qrels)
        provenance |= {"not_in_corpus": lost} if lost else {}
    scored = {mean.test_set for mean in means}
    topics = {part: name for part, name in TOPICS.items() if f"topic.{part}" in scored}
    if topics and release.manifest.kind == "published":
        provenance["topics"] = topics
    return Scores(means, provenance)


class StrangeRun(UserWarning):
    """A run that obeys every rule, and yet is hardly the one that was meant."""


def _warn_of_copies(sources: Sequence[Mapping[str, Any]]) -> None:
    """Warn of runs that are one file under several names; ``sources`` are those of the provenance.

    A system that is declared as trained on nothing does give one run, whatever was held out.
    """
    copies: dict[str, list[str]] = {}
    for source in sources:
        names = copies.setdefault(source["sha256"], [])
        is_untrained = source.get("training_data") == []
        system = source["run"].partition(".")[0]
        if not (is_untrained and names and names[0].partition(".")[0] == system) and source["run"] not in names:
            names.append(source["run"])
    for names in copies.values():
        if names[1:]:
            more = f" and {len(names) - 2} more" if names[2:] else ""
            _warn(f"{names[0]} is the same run, byte for byte, as {names[1]}{more}")


def _warn_of_strange(means: Sequence[Mean], sources: Sequence[Mapping[str, Any]]) -> None:
    _warn_of_copies(sources)
    for source in sources:
        name = source["run"]
        if not source["judged_passages"]:
            _warn(NOTHING_JUDGED.format(name))
        empty = dict.fromkeys(each.test_set for each in means if each.run == name and each.missing == each.queries)
        for test_set in empty:
            _warn(f"{name} has no results for {test_set}, so all its queries score as empty results")


def _warn_of_levels(means: Sequence[Mean], release: Release) -> None:
    """Say of measures without a level that count lower grades as relevant than a test set's own which these are."""
    levels: dict[tuple[str, str], dict[str, None]] = {}
    for each in means:
        asked = parse(each.measure)
        own = release.test_sets[each.test_set].measures if each.test_set in release.test_sets else ()
        if "rel=" in asked.name or not asked.kind.takes_grade or asked.kind.is_graded or asked.name in own:
            continue
        stricter = [name for name in own if parse(name).kind.takes_grade and parse(name).grade > asked.grade]
        alike = [name for name in stricter if parse(name).kind == asked.kind]
        for name in (alike or stricter)[:1]:
            usual = name if alike else asked.of_grade(parse(name).grade)
            levels.setdefault((asked.name, usual), {})[each.test_set] = None
    if release.manifest.kind == "judgements":  # whose grades nobody has explained
        names = dict.fromkeys(each.measure for each in means)
        kinds = {name: parse(name).kind for name in names}
        lenient = [
            name for name, kind in kinds.items() if kind.takes_grade and not kind.is_graded and parse(name).grade == 1
        ]
        highest = max(_highest(release.qrels(each.qrels)) for each in release.test_sets.values())
        if lenient and highest > 1 and "rel=" not in "".join(lenient):
            _warn(
                f"The judgements have grades up to {highest}, and {joined(lenient)} count{'s' * (len(lenient) == 1)} "
                f"grade 1 and up as relevant. For grade 2 and up, write {parse(lenient[0]).of_grade(2)}, for example"
            )
    for (name, own_name), sets in levels.items():
        _warn(
            f"{name} counts grade {parse(name).grade} and up as relevant. The usual measure of {choices(sets)} is "
            f"{own_name}"
        )


def _warn(what: str) -> None:
    warnings.warn(what, StrangeRun, stacklevel=4)


def _means(
    run: str, ranking: RankedRun, qrels: Mapping[str, pl.DataFrame], test_sets: Sequence[TestSet]
) -> Iterator[Mean]:
    """Every measure of every test set; the sets that share judgements share the work."""
    rows: dict[str, pl.DataFrame] = {}
    by_split: dict[str, list[TestSet]] = {}
    for test_set in test_sets:
        by_split.setdefault(test_set.qrels, []).append(test_set)
    for split, together in by_split.items():
        members = pl.concat(test_set.queries.to_frame("query_id") for test_set in together)
        names = dict.fromkeys(name for test_set in together for name in test_set.measures)
        values = _values(members, list(map(parse, names)), ranking, qrels[split])
        start = 0
        for test_set in together:
            rows[test_set.name] = values.slice(start, len(test_set.queries))
            start += len(test_set.queries)
    for test_set in test_sets:
        for name in test_set.measures:
            yield _mean(run, test_set, parse(name), rows[test_set.name])


def _values(
    members: pl.DataFrame, measures: Sequence[Measure], ranking: RankedRun, qrels: pl.DataFrame
) -> pl.DataFrame:
    """``members`` with the columns of :attr:`RankedRun.queries`, and one per measure, named after it.

    Where judged passages are tied, each has two more, ``<measure> worst`` and ``<measure> best``. A query without
    judgements has the value of an empty result.
    """
    judgements = qrels.join(ranking.judged, on=["query_id", "passage_id"], how="left")
    if any(measure.kind.needs_retrieved for measure in measures):
        judgements = judgements.join(ranking.queries.select("query_id", "retrieved"), on="query_id", how="left")
    values = members.lazy()
    highest = _highest(qrels)
    has_ties = bool((ranking.judged["tied_to"] > ranking.judged["tied_from"]).any())
    for measure in measures:
        if highest > (most := measure.kind.highest_grade or highest):
            raise UserError(
                f"{measure.name} is defined for grades up to {most}, but some passages have grade {highest}"
            )
        passages = _annotations(ranking, qrels) if measure.kind.for_any_query else judgements
        passages_of = {measure.name: passages}
        if has_ties:
            for how in ("worst", "best"):
                passages_of[f"{measure.name} {how}"] = with_ties_resolved(passages, how == "best")
        for name, ranks in passages_of.items():
            values = with_values(values, measure, ranks, name)
    with_counts = values.join(ranking.queries.lazy(), on="query_id", how="left", maintain_order="left").collect()
    for measure in measures:
        check_values(measure, with_counts[measure.name])
    return with_counts.rechunk()  # the last digit of a sum depends on the chunks


def _highest(qrels: pl.DataFrame) -> int:
    """The highest grade of judgements."""
    return int(qrels["relevance"].max() or 0)  # type: ignore[arg-type]


def _judged(
    ranking: RankedRun, pooled: Mapping[str, pl.DataFrame], test_sets: Sequence[TestSet]
) -> Iterator[tuple[str, float]]:
    """The share of the first passages that is judged, on test sets whose judgements name irrelevant ones too."""
    for test_set in test_sets:
        if test_set.qrels in pooled:
            members = test_set.queries.to_frame("query_id")
            yield test_set.name, mean(_values(members, [parse(JUDGED)], ranking, pooled[test_set.qrels])[JUDGED])


def _at_chance(
    ranking: RankedRun, qrels: Mapping[str, pl.DataFrame], test_sets: Sequence[TestSet], means: Sequence[Mean]
) -> Iterator[dict[str, str | float]]:
    """The first means that are not shown to exceed a random order of the passages; none of runs within the cutoff."""
    firsts = {each.test_set: each for each in reversed(means)}
    for test_set in test_sets if len(ranking.judged) else ():
        each, measure = firsts[test_set.name], parse(firsts[test_set.name].measure)
        own = qrels[test_set.qrels].filter(pl.col("query_id").is_in(test_set.queries.implode()))
        own = own.join(ranking.judged, on=["query_id", "passage_id"], how="left").join(ranking.queries, on="query_id")
        values = chance.expected(measure, own, each.per_query["query_id"])
        is_deeper = (ranking.queries["retrieved"] > (measure.cutoff or 0)).any()
        if is_deeper and values is not None and not chance.is_exceeded(each.per_query["value"] - values):
            of_figure = {name: getattr(each, name) for name in ("test_set", "measure", "value", "queries")}
            yield of_figure | {"expected": mean(values)}


def _annotations(ranking: RankedRun, qrels: pl.DataFrame) -> pl.DataFrame:
    """The run's passages that are judged for any query, as :attr:`Kind.for_any_query` says."""
    annotations = ranking.judged.join(qrels.select("passage_id"), on="passage_id", how="semi")
    counts = ranking.queries.select("query_id", "retrieved")
    return counts.join(annotations, on="query_id", how="left").with_columns(relevance=pl.lit(1, pl.Int64))


def _mean(run: str, test_set: TestSet, measure: Measure, rows: pl.DataFrame) -> Mean:
    values = rows.select("query_id", value=measure.name, searched=pl.col("retrieved").is_not_null())
    tied, worst, best = 0, None, None
    if f"{measure.name} worst" in rows.columns:
        ends = rows.select(worst=f"{measure.name} worst", best=f"{measure.name} best")
        tied = int(((ends["best"] - ends["worst"]).abs() > ROUNDING).sum())
        if tied:
            values = values.hstack(ends)
            worst, best = mean(ends["worst"]), mean(ends["best"])
    return Mean(
        run=run,
        test_set=test_set.name,
        measure=measure.name,
        value=mean(rows[measure.name]),
        queries=rows.height,
        missing=rows["retrieved"].null_count(),
        tied=tied,
        worst=worst,
        best=best,
        per_query=values,
    )


def mean(values: pl.Series) -> float:
    """The mean over queries, whose order changes no bit: the sum is rounded once."""
    return math.fsum(values) / len(values)


def _source(ranking: RankedRun, pairs: pl.DataFrame, coverage: Coverage, means: Sequence[Mean]) -> dict[str, Any]:
    """What the provenance says of one run (the entries of scores.schema.json), and what follows from it for figures."""
    scored = {
        each.test_set: {"queries": each.queries, "missing": each.missing, "trained_on": str(each.trained_on)}
        for each in means
    }
    ties = [
        {name: getattr(each, name) for name in ("test_set", "measure", "worst", "best", "tied")}
        for each in means
        if each.tied
    ]
    return {
        "run": ranking.run.name,
        **({"system": ranking.run.cell.system} if ranking.run.cell else {}),
        "file": str(ranking.run),
        "sha256": ranking.sha256,
        "lines": ranking.lines,
        "queries": ranking.queries.height,
        "of_several": int((ranking.queries["retrieved"] > 1).sum()),
        "depth": int(ranking.queries["retrieved"].cast(pl.Int64).max() or 0),  # type: ignore[arg-type]
        "judged_passages": ranking.judged.join(pairs, on=pairs.columns, how="semi").height,
        "cutoff": max((parse(each.measure).cutoff or 0 for each in means), default=0),
        "scored": scored,
        **({"ties": ties} if ties else {}),
        "unjudged_queries": coverage.unjudged,
        "rank_contradictions": ranking.contradictions,
        **({"one_score": one_score} if (one_score := int(ranking.queries["one_score"].sum())) else {}),
        **({"own_passages_left_out": ranking.own_left_out} if ranking.own_left_out else {}),
        **({"tags": ranking.tags[1:]} if ranking.tags[2:] else {}),
    }
