"""What a shift costs a model that is trained already: gains over a pivot on far and near queries.

A trained model has no counterpart that saw the far queries, so its level there says nothing: far queries may be harder,
or easier (MS MARCO's are). Instead it is compared with a pivot, such as BM25, on the same queries, by two estimates
that must agree (:mod:`eval_kit.stats.far`). Parts count as random, since kinds of queries differ in how well a system
and its pivot get along; with a handful of parts that spread cannot be told, and the verdict is "cannot tell".
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, product
from operator import attrgetter
from typing import Any, ClassVar, Literal

import numpy as np
import polars as pl
from numpy.typing import NDArray

from eval_kit import plots
from eval_kit.authors.judgements import Judgements, Texts
from eval_kit.authors.opening import ReleaseSource, release_of
from eval_kit.divisions import Parts, divide, groupings
from eval_kit.errors import UserError, parameter
from eval_kit.measures.definitions import parse
from eval_kit.protocols import readings
from eval_kit.protocols.scores import Scores
from eval_kit.protocols.scoring import named, score_on, scores_of
from eval_kit.release import Release, TestSet
from eval_kit.results import Fact, Picture, Result
from eval_kit.runs.given import GivenRuns, Run, take
from eval_kit.runs.ranks import rank_judged
from eval_kit.runs.training import TrainedOn, queries_of
from eval_kit.search.passages import has_passages, passages
from eval_kit.sentences import and_more, counted, joined, most_telling, weightiest
from eval_kit.shifts import MAIN_SPLITS, SHIFTS, main_split
from eval_kit.stats import distance, parts
from eval_kit.stats.differences import CANNOT_TELL
from eval_kit.stats.far import DEGRADES, DOES_NOT, agreed, chance_of_farther, cost_of_far, verdict
from eval_kit.stats.losses import MARGIN, correct
from eval_kit.tables.table import Column, Fields, Table, Value, ends_shown, laid_out, p_value

DISTANCE = "distance"
_WORDS: dict[str, Literal["bad", "good", "open"]] = {DEGRADES: "bad", CANNOT_TELL: "open", DOES_NOT: "good"}
_MOST = 5
_WORD_OF = ("shift", "system", "measure")
"""What a word is about; it is asked of each pivot."""
QUERIES_A_PART, MOST_PARTS = 3, 60  # a part has a variance, and fifty parts do (docs/generalise.md)


@dataclass(frozen=True, repr=False)
class Generalisation(Result):
    """Verdicts and what they rest on.

    Attributes:
        contrasts: one row for each ``shift``, ``system``, ``measure`` and ``pivot``: ``far`` (its parts), ``queries``,
            ``near_parts``, ``far_parts``; ``near_level``, ``far_level`` (the system's), ``near_pivot``, ``far_pivot``;
            ``near_distance``, ``far_distance`` (means, to training); ``gain`` and ``adjusted``
            (:class:`eval_kit.stats.far.FarCost`), each with ``_low`` and ``_high``, ``low`` and ``high`` of both;
            ``slope``, ``slope_error``, ``r``, ``near_spread``, ``far_spread`` (τ of the adjusted); ``p``,
            ``p_does_not``; and, of all pivots together, ``p_holm``, ``p_does_not_holm``, ``detectable``, ``verdict``
            (null for too few kinds), and ``why``.
        distances: from :func:`eval_kit.stats.distance.to_training`; None without training queries.
        provenance: of the scores, with the seed and the pivots.
    """

    contrasts: pl.DataFrame
    distances: pl.DataFrame | None
    provenance: dict[str, Any]
    otherwise: Sequence[str] = ()

    title: ClassVar[str] = "What a shift costs models that are trained already"

    def to_polars(self) -> pl.DataFrame:
        """The contrasts."""
        return self.contrasts

    def content(self) -> dict[str, Any]:
        """The contrasts, and each query's distance to training."""
        distances = [] if self.distances is None else self.distances.to_dicts()
        return super().content() | {"distances": distances}

    def tables(self) -> list[Table]:
        """One row for each shift and system: both estimates, the verdict; then levels beside the pivot's."""
        names = [
            Column("shift"),
            Column("system", wrap="anywhere"),
            Column("pivot", wrap="anywhere", shown=self.contrasts["pivot"].n_unique() > 1),
        ]
        levels = [
            Column("near", "number", partial(_level, "near_level"), group="system"),
            Column("far", "number", partial(_level, "far_level"), group="system"),
            Column("near", "number", partial(_level, "near_pivot"), group="pivot"),
            Column("far", "number", partial(_level, "far_pivot"), group="pivot"),
            Column("near", "number", "near_distance", ".3f", group="distance"),
            Column("far", "number", "far_distance", ".3f", group="distance"),
        ]
        estimates = [
            Column("parts", "number", lambda row: f"{row['near_parts']} + {row['far_parts']}"),
            Column("gain", "number", format="+.4f"),
            Column("adjusted", "number", format="+.4f"),
            Column("95 % of both", "number", partial(ends_shown, show="{:+.4f}".format), beside_last=True),
            Column("p", "number", format=p_value),
            Column("p (Holm)", "number", "p_holm", p_value),
            Column("would find", "number", "detectable", ".4f"),
            Column("verdict", source=_said, wrap="never"),
        ]
        title = f"Near and far queries, {', '.join(self.contrasts['measure'].unique())}"
        found = laid_out(self.contrasts, [*names, *estimates], title=title)
        return [found, laid_out(self.contrasts, [*names, *levels], title=f"{title}: levels", folded=True)]

    @property
    def heading(self) -> str:
        """The systems and the pivots."""
        systems = ", ".join(self.contrasts["system"].unique(maintain_order=True))
        return f"Does {systems} generalise? Far and near queries, compared with {', '.join(self.provenance['pivots'])}"

    def summary(self) -> list[str]:
        """That nothing can be told, where no row has a verdict; the notes say why."""
        systems = self.contrasts["system"].unique(maintain_order=True).to_list()
        lose = "lose" if len(systems) > 1 else "loses"
        untold = self.contrasts["verdict"].fill_null("").eq("").all()
        return [f"Cannot tell whether {joined(systems)} {lose} on far queries."] if untold else []

    def facts(self) -> list[Fact]:
        """The verdicts, each of its least sure pivot, with interval and what would be found: those that lose first."""
        facts = []
        several = self.contrasts["system"].n_unique() > 1
        least_sure = self.contrasts.drop_nulls("verdict").sort("p", descending=True, maintain_order=True)
        rows = least_sure.unique(_WORD_OF, keep="first", maintain_order=True).to_dicts()
        named, rest = most_telling(rows, lambda row: (-list(_WORDS).index(row["verdict"]), -(row["p"] or 0.0)), _MOST)
        for row in named:
            said = []
            if (ends := ends_shown(row, "{:+.4f}".format, between=", ")) is not None:
                found = f"{row['adjusted']:+.4f} {row['measure']} [{ends}]"
                said.append(f"far minus near is {found}".replace("-", "\u2212"))
            if row["detectable"] is not None:
                said.append(f"would find a loss of {row['detectable']:.4f}")
            said += filter(None, [row["why"]])
            verdict = {DEGRADES: "loses on them", DOES_NOT: "does not lose on them"}.get(row["verdict"], row["verdict"])
            about = f"{row['system']}, {row['shift']}" if several else row["shift"]
            facts.append(Fact(about, "; ".join(said), verdict, _WORDS[row["verdict"]]))
        words = Counter(row["verdict"] for row in rows if row not in named)
        more = ", ".join(f"{count} {word}" for word, count in words.items())
        return [*facts, *([Fact(and_more(rest).strip(), more)] if rest else [])]

    def figures(self) -> list[Picture]:
        """Of each row the levels on near and on far queries, the system's beside the pivots'."""
        return list(self._slopes())

    def _slopes(self) -> Iterator[Picture]:
        for _, rows in self.contrasts.group_by(_WORD_OF, maintain_order=True):
            ends = {row["pivot"]: (row["near_pivot"], row["far_pivot"]) for row in rows.iter_rows(named=True)}
            row = rows.row(0, named=True)
            ends[row["system"]] = row["near_level"], row["far_level"]
            if None in chain.from_iterable(ends.values()):
                continue
            about = f"{row['shift']}: {row['measure']} on near and on far queries"
            caption = f"{about}." + f" Verdict: {row['verdict']}." * bool(row["verdict"])
            yield Picture(plots.slopes(ends, ("near", "far"), row["measure"], caption), caption, list(ends))

    def notes(self) -> list[str]:
        """How queries were divided, and why nothing can be told."""
        reasons: dict[str, None] = {}
        for row in self.contrasts.filter(pl.col("why") != "").iter_rows(named=True):
            about = f"{row['shift']}, {row['system']}:" if row["verdict"] else row["shift"]
            reasons[f"{about} {row['why']}"] = None
        sources = self.provenance["divisions"].items()
        return [*reasons, *(f"{name}: {source}" for name, source in sources if source != name)]

    def method(self) -> list[str]:
        """What the columns mean, and what no verdict may be read as."""
        pivots = joined(self.provenance["pivots"])
        each = ", and by each pivot alone" * (len(self.provenance["pivots"]) > 1)
        return [
            f"Far queries may simply be harder. Compare near and far only against {pivots}",
            f"gain is (model − {pivots}) on far queries minus (model − {pivots}) on near ones. adjusted also removes "
            f"what {pivots} and the lengths of query and relevant passages predict from near parts",
            "p is the larger of the two estimates' (two-sided). p (Holm) corrects it over the rows that can be tested. "
            '"would find" is the smallest loss that both estimates find in 80 % of cases. All are over parts, '
            "each side with its own spread (Paule and Mandel; Knapp and Hartung; Welch)",
            f"degrades: both estimates{each} show a significant loss. does not: both{each} show significantly less "
            f"than {MARGIN:.0%} of the near level. cannot tell: neither. Each by p (Holm) < 0.05",
            f"What makes far queries harder or easier for {pivots} alone counts as the model's. It can hide a loss, or "
            "look like one. A second pivot of another kind guards against that",
        ]


def _level(name: str, row: Fields) -> str | None:
    return None if row[name] is None else parse(row["measure"]).show(row[name])


def _said(row: Fields) -> Value:
    verdict = row["verdict"]
    return Value(verdict, bold=verdict == DEGRADES, word=_WORDS[verdict]) if verdict else Value("-")


@dataclass(frozen=True)
class NearAndFar:
    """A division with sides: ``query_id`` and ``part`` (text), and the names of the far parts.

    ``why`` no verdict may be given over kinds of query, or empty; ``source``, where a given one comes from.
    """

    shift: str
    of_queries: pl.DataFrame
    far: Sequence[str]
    why: str = ""
    source: str = ""


@dataclass(frozen=True)
class Sides:
    """Divisions of a test set's queries, and what they were made from.

    Attributes:
        divisions: each with its far parts.
        distances: from :func:`eval_kit.stats.distance.to_training`; None without training queries.
        seed: of the parts by similarity.
    """

    divisions: Sequence[NearAndFar]
    distances: pl.DataFrame | None = None
    seed: int = 0


def generalise(
    runs: GivenRuns,
    pivots: GivenRuns,
    release: ReleaseSource = None,
    *,
    test_set: str | None = None,
    trained_on: TrainedOn = None,
    by: Sequence[str | Parts] = (),
    far: Sequence[str] = (),
    qrels: Judgements | None = None,
    queries: Texts | None = None,
    seed: int = 0,
    allow_missing: bool = False,
) -> Generalisation:
    """Say what a shift costs models that are trained already: degrades, does not, or cannot tell.

    With training queries there is the shift ``distance``: about fifty parts of similar queries, the farther half of
    the parts against the nearer. Queries in no part of a division do not count in it.

    Args:
        runs: of trained systems, over the test set.
        pivots: runs of untrained systems over the same queries, such as BM25's; of several, each alone must show it.
        release: the one that holds the judgements.
        test_set: whose queries are divided into near and far; by default dev, else test, as the runs
            cover them, else the only one.
        trained_on: the training queries, from which nearness is measured (:func:`eval_kit.runs.training.queries_of`).
        by: divisions of the queries (:func:`eval_kit.divisions.divide`).
        far: which of their parts training held out; by default the farther half.
        qrels: judgements to score on, in place of a release.
        queries: the texts of their queries.
        seed: of the division into parts by similarity.
        allow_missing: score test sets that a run covers only in part.

    Raises:
        UserError: no pivot, no such test set or part, no far part, or a run that cannot be used.
    """
    by = groupings(by)
    opened_release = release_of(release, qrels, queries)
    training = queries_of(trained_on)
    systems, untrained = take(runs=runs, pivots=pivots)
    if not untrained:
        raise UserError(
            "A pivot is needed: an untrained system, such as BM25, on the same queries",
            do=f"Add {parameter('pivot')} RUN",
        )
    every_run = list(dict.fromkeys([*systems, *untrained]))
    scores = None
    if test_set is None and opened_release.test_sets.keys() >= set(MAIN_SPLITS):
        scores = scores_of(every_run, opened_release, allow_missing=allow_missing)
        covered = [{mean.test_set for mean in scores.means if mean.run == run.name} for run in every_run]
        test_set = main_split(set.intersection(*covered))
    of_test_set = far_test_set(opened_release, test_set)
    sides = near_and_far(opened_release, of_test_set, training=training, by=by, far=far, seed=seed)
    if scores is None or test_set is None:
        scores = score_on(dict.fromkeys(every_run, (of_test_set,)), opened_release, allow_missing=allow_missing)
    return contrasts(scores, opened_release, systems, pivots=untrained, test_set=of_test_set, sides=sides)


def far_test_set(release: Release, name: str | None = None) -> TestSet:
    """The test set of this name, by default dev, else test, else the only one."""
    only = next(iter(release.test_sets)) if len(release.test_sets) == 1 else None
    chosen = name or main_split(release.test_sets) or only or MAIN_SPLITS[0]
    first, *others = named(release.test_sets, [chosen]).values()
    if others:
        what = f"{chosen} is {counted(1 + len(others), 'test set')}, and near and far queries are of one"
        raise UserError(what, do=f"Choose one with {parameter('test_set')}, such as {first.name}")
    return first


def contrasts(
    scores: Scores, release: Release, runs: Sequence[Run], *, pivots: Sequence[Run], test_set: TestSet, sides: Sides
) -> Generalisation:
    """Compare gains over the pivots on near and far queries of a test set, on which both are scored."""
    measures = [name for name in test_set.measures if not parse(name).kind.lower_is_better][:1]
    values = scores.per_query_in_full().filter(pl.col("measure").is_in(measures), pl.col("test_set") == test_set.name)
    names = [pivot.name for pivot in pivots]

    def found(values: pl.DataFrame) -> pl.DataFrame:
        covariates = _covariates(pivots, release, test_set, values)
        rows = []
        for division in sides.divisions:
            for run, measure, pivot in product(runs, measures, names):
                of_system = values.filter(pl.col("run") == run.name, pl.col("measure") == measure)
                row = _contrast(of_system, covariates[pivot], division, sides.distances)
                row["why"] = row["why"].replace("the pivot", pivot)
                rows.append({"shift": division.shift, "system": run.name, "measure": measure, "pivot": pivot} | row)
        return _with_verdicts(rows)

    rows, otherwise = _decided(found(values), values, names, readings.doubtful(scores.provenance["runs"], {}), found)
    sources = {division.shift: division.source for division in sides.divisions if division.source}
    provenance = scores.provenance | {"pivots": names, "margin": MARGIN, "divisions": sources, "seed": sides.seed}
    return Generalisation(rows, sides.distances, provenance, otherwise)


def _decided(
    rows: pl.DataFrame,
    values: pl.DataFrame,
    pivots: Sequence[str],
    doubtful: AbstractSet[str],
    found: Callable[[pl.DataFrame], pl.DataFrame],
) -> tuple[pl.DataFrame, list[str]]:
    """The rows, without the verdicts that depend on how runs are read, and the figures on shared queries.

    Args:
        rows: of ``values``.
        values: of the runs.
        pivots: their names.
        doubtful: runs whose ranks contradict their scores throughout.
        found: computes such rows from other values.
    """
    concerned = pl.col("system").is_in(doubtful) | pl.lit(not doubtful.isdisjoint(pivots))
    decides = pl.when(concerned & pl.col("verdict").is_not_null()).then(pl.lit(readings.RANKS))
    rows, otherwise = rows.with_columns(decides=decides), []
    for what, other in readings.others(values, pivots, "run"):
        if other.is_empty():
            continue
        again = found(other)
        is_other = again["verdict"].ne_missing(rows["verdict"]) & rows["verdict"].is_not_null()
        rows = rows.with_columns(decides=pl.coalesce("decides", pl.when(is_other).then(pl.lit(what))))
        if what == readings.LACKING:
            for row, shared in zip(rows.iter_rows(named=True), again["adjusted"], strict=True):
                if row["adjusted"] is not None and shared is not None and abs(shared - row["adjusted"]) >= 5e-5:
                    on = f"On the queries that all runs have, {row['system']} beside {row['pivot']}, {row['shift']}"
                    said = f"{on}: far minus near is {shared:+.4f}, not {row['adjusted']:+.4f} ({row['measure']})"
                    otherwise.append((abs(shared - row["adjusted"]), said.replace("-", "\u2212")))
    why = pl.col("decides").replace_strict({what: f"{what} decide" for what in readings.MENDS}, default=None)
    is_open = pl.col("decides").is_not_null()
    verdict = pl.when(is_open).then(pl.lit(CANNOT_TELL)).otherwise("verdict")
    rows = rows.with_columns(verdict=verdict, why=pl.when(is_open).then(why).otherwise("why"))
    return rows.drop("decides"), weightiest(otherwise, "figure")


def small_division(shift: str, sides: Mapping[str, pl.DataFrame], far: str, seed: int) -> NearAndFar:
    """Queries in small parts of similar ones, each within one side.

    Args:
        shift: name of the division.
        sides: name → ``query_id`` and ``text``.
        far: the name of the side whose parts are far.
        seed: of the parts.
    """
    frames = []
    for name, queries in sides.items():
        frames.append(queries.select("query_id", part=pl.lit(f"{name} ") + _small_parts(queries, seed)))
    of_queries = pl.concat(frames)
    names = of_queries["part"].unique(maintain_order=True)
    return NearAndFar(shift, of_queries, names.filter(names.str.starts_with(f"{far} ")).to_list())


def _small_parts(queries: pl.DataFrame, seed: int) -> pl.Series:
    """The number of each query's part, as text."""
    count = int(np.clip(queries.height // QUERIES_A_PART, 2, MOST_PARTS))
    return pl.Series(distance.small_parts(queries["text"], count, seed)).cast(pl.String)


def near_and_far(
    release: Release,
    test_set: TestSet,
    *,
    training: pl.DataFrame | None = None,
    by: Sequence[str | Parts] = (),
    far: Sequence[str] = (),
    seed: int = 0,
) -> Sides:
    """The divisions of a test set into near and far parts; the arguments are those of :func:`generalise`."""
    distances = None
    if training is not None:
        distances = distance.to_training(release.queries(test_set.name), training)
    divisions = _divisions(release, test_set, distances, by, far, seed, training)
    if not any(map(attrgetter("far"), divisions)):
        raise UserError(
            "The kit does not know which queries are far from training",
            do=f"Add {parameter('trained_on')} FILE, or {parameter('by')} and {parameter('far')}",
        )
    return Sides(divisions, distances, seed)


def _divisions(
    release: Release,
    test_set: TestSet,
    distances: pl.DataFrame | None,
    by: Sequence[str | Parts],
    far: Sequence[str],
    seed: int,
    training: pl.DataFrame | None,
) -> list[NearAndFar]:
    texts = release.queries(test_set.name)
    given = [divide(each, release, texts, training) for each in by]
    if strange := sorted(set(far).difference(*(division.parts["part"] for division in given))):
        raise UserError(f"{parameter('far')} {strange[0]!r:.40} is not a part that {parameter('by')} makes")
    divisions = []
    if distances is not None:
        of_queries = texts.select("query_id", part=_small_parts(texts, seed))
        divisions.append(NearAndFar(DISTANCE, of_queries, _farther_half(of_queries, distances)))
    for division in given:
        of_queries = division.parts.unique("query_id", keep="first", maintain_order=True)
        held_out = [part for part in far if part in of_queries["part"]]
        if not held_out and distances is not None:
            held_out = _farther_half(of_queries, distances)
        of_kinds = _of_kinds(division.name, of_queries, held_out, texts, seed)
        why = division.why_no_kinds(given)
        why = f"{why}, so that they say nothing of other kinds of query" if why else of_kinds.why
        divisions.append(replace(of_kinds, source=division.source, why=why))
    members = test_set.queries.implode()
    for name, shift in SHIFTS.items():
        if distances is None or not shift.label or name not in release.configs or name in by:
            continue
        splits = [split for split in release.configs[name] if split != "train"] or ["train"]  # crossed has but this
        part = pl.col(shift.label).cast(pl.String)
        frame = pl.concat(release.table(name, split).select("query_id", part=part) for split in splits)
        inside = frame.filter(pl.col("query_id").is_in(members)).unique("query_id", maintain_order=True)
        if inside["part"].n_unique() > 1:
            divisions.append(_of_kinds(name, inside, _farther_half(inside, distances), texts, seed))
    return divisions


def _of_kinds(shift: str, of_queries: pl.DataFrame, far: Sequence[str], texts: pl.DataFrame, seed: int) -> NearAndFar:
    """These parts; of too few kinds on a side, small pieces of them, which say nothing of other kinds."""
    is_far = pl.col("part").is_in(list(far))
    counts = {}
    for name, side in (("near", ~is_far), ("far", is_far)):
        counts[name] = of_queries.filter(side)["part"].n_unique()
    if min(counts.values()) >= parts.FEWEST_PARTS or not all(counts.values()):
        return NearAndFar(shift, of_queries, far)
    in_sides = texts.join(of_queries, on="query_id", maintain_order="left").with_columns(is_far=is_far)
    names = {"near": False, ", ".join(far): True}
    sides = {name: in_sides.filter(is_far=flag).select("query_id", "text") for name, flag in names.items()}
    have = f"has {counts['near']} near and {counted(counts['far'], 'far part')}"
    why = f"{have}, too few to say anything about other kinds of query"
    return replace(small_division(shift, sides, ", ".join(far), seed), why=why)


def _farther_half(of_queries: pl.DataFrame, distances: pl.DataFrame) -> list[str]:
    """The parts whose mean distance to training is above the median of the parts'."""
    by_part = of_queries.join(distances, on="query_id").group_by("part")
    means = by_part.agg(pl.col("distance").mean()).sort("distance", "part")
    return means["part"].to_list()[(means.height + 1) // 2 :]


def _covariates(
    pivots: Sequence[Run], release: Release, test_set: TestSet, values: pl.DataFrame
) -> dict[str, pl.DataFrame]:
    """By pivot what makes a query easy, whoever answers it: ``query_id``, the pivot's value as ``pivot``, and more.

    That is whether the pivot has a relevant passage at all, the rank of its first one, its best score and
    the step to the second; of the query the logarithm of its words, also squared, and of its judged passages; of its
    relevant passages, where the release holds them, the mean logarithm of their characters.
    """
    texts = release.queries(test_set.name)
    words = (1 + pl.col("text").str.split(" ").list.len()).log()
    frame = texts.select("query_id", words=words, words_squared=words**2)
    qrels = release.qrels(test_set.qrels)
    relevant = qrels.filter(pl.col("relevance") > 0).select("query_id", "passage_id")
    relevant = relevant.join(test_set.queries.to_frame("query_id"), on="query_id", how="semi")
    frames = [qrels.group_by("query_id").agg(judged=(1 + pl.len()).log())]
    if has_passages(release):
        relevant_ids = set(relevant["passage_id"])
        lengths = {passage: len(text) for passage, text in passages(release) if passage in relevant_ids}
        characters = (1 + pl.col("passage_id").replace_strict(lengths, default=0, return_dtype=pl.Int64)).log()
        frames.append(relevant.group_by("query_id").agg(characters=characters.mean()))
    for each in frames:
        frame = frame.join(each, on="query_id", how="left", maintain_order="left")
    frame = frame.join(values.select("query_id").unique(), on="query_id", how="semi", maintain_order="left")
    covariates = {}
    for run in pivots:
        of_run = values.filter(pl.col("run") == run.name).select("query_id", pivot="value", pivot_searched="searched")
        of_pivot = frame.join(of_run, on="query_id", how="left", maintain_order="left")
        if of_pivot["pivot"].null_count():
            raise UserError(f"{run.name} has no value for some queries of {test_set.name}")
        success = _success(run, relevant)
        covariates[run.name] = of_pivot.join(success, on="query_id", how="left", maintain_order="left").fill_null(0.0)
    return covariates


def _success(run: Run, relevant: pl.DataFrame) -> pl.DataFrame:
    """How sure a pivot is of a query and how well it did: ``query_id`` and four columns."""
    first = rank_judged(run, relevant).judged.group_by("query_id").agg(pl.col("rank").min())
    by_rank = (1 / (1 + pl.col("rank").cast(pl.Float64).log())).alias("first_rank")
    ranks = first.select("query_id", by_rank, pl.lit(1.0).alias("hit"))
    pieces = [piece.select("query_id", "score") for piece in run.pieces() if "score" in piece.columns]
    if not pieces:  # a run in MS MARCO's format has ranks alone
        return ranks
    best = pl.col("score").top_k(2)
    step = (best.max() - best.min()).arcsinh().alias("step")
    top = pl.col("score").max().arcsinh().alias("top")
    return pl.concat(pieces).group_by("query_id").agg(top, step).join(ranks, on="query_id", how="left")


_TESTS = (
    *(f"{name}{end}" for name in ("gain", "adjusted") for end in ("", "_low", "_high")),
    *("low", "high", "slope", "slope_error", "r", "near_spread", "far_spread", "p", "p_does_not"),
)


def _contrast(
    values: pl.DataFrame, covariates: pl.DataFrame, division: NearAndFar, distances: pl.DataFrame | None
) -> dict[str, Any]:
    """One row: the levels, the distances, and both estimates where there are any."""
    rows = division.of_queries.join(values.select("query_id", "value", "searched"), on="query_id")
    rows = rows.join(covariates, on="query_id").filter(pl.col("searched") | pl.col("pivot_searched"))
    numbers = rows["part"].rank("dense").to_numpy().astype(np.int64) - 1
    is_far = rows["part"].is_in(list(division.far)).to_numpy()
    level, pivot = rows["value"].to_numpy(), rows["pivot"].to_numpy()
    features = rows.drop("query_id", "part", "value", "searched", "pivot_searched").to_numpy().astype(np.float64)
    near_parts, far_parts = len(np.unique(numbers[~is_far])), len(np.unique(numbers[is_far]))
    row: dict[str, Any] = {"far": ", ".join(sorted(division.far)), "queries": rows.height}
    row |= {"near_parts": near_parts, "far_parts": far_parts}
    columns = {"level": level, "pivot": pivot, "distance": np.full(len(level), np.nan)}
    farther = 1.0
    if distances is not None:
        columns["distance"] = rows.join(distances, on="query_id", maintain_order="left")["distance"].to_numpy()
        farther = chance_of_farther(columns["distance"], is_far)
    for name, column in columns.items():
        row |= {f"near_{name}": _mean(column, ~is_far), f"far_{name}": _mean(column, is_far)}
    row |= dict.fromkeys((*_TESTS, "p_holm", "p_does_not_holm", "detectable", "cost"))
    row |= {"why": division.why, "farther": farther, "verdict": None if division.why else CANNOT_TELL}
    cost = cost_of_far(level, pivot, features, numbers, is_far)
    if cost is None:
        too_few = min(near_parts, far_parts) < parts.FEWEST_PARTS
        why = f"fewer than {parts.FEWEST_PARTS} parts on a side" if too_few else "nothing varies"
        return row | {"why": division.why or why}
    for name, each in (("gain", cost.plain), ("adjusted", cost.adjusted)):
        row |= each.columns(name)
    row |= dict(zip(("low", "high"), cost.interval, strict=True))
    row |= {"slope": cost.slope, "slope_error": cost.slope_error, "r": cost.r}
    row |= dict(zip(("near_spread", "far_spread"), cost.adjusted.spread, strict=True))
    if division.why:
        return row
    row |= {"cost": cost, "why": cost.refusal}
    return row if cost.refusal else row | {"p": cost.p, "p_does_not": cost.p_loses(MARGIN * row["near_level"])}


def _mean(values: NDArray[np.float64], rows: NDArray[np.bool_]) -> float:
    return float(values[rows].mean()) if rows.any() else float("nan")


def _with_verdicts(rows: list[dict[str, Any]]) -> pl.DataFrame:
    """The rows with ``detectable`` and ``verdict``: a word that every pivot alone shows, corrected over such words."""
    words: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    for row in rows:
        words.setdefault(tuple(row[name] for name in _WORD_OF), []).append(row)
    tested = [each for each in words.values() if all(row["cost"] and not row["cost"].refusal for row in each)]
    greatest = [{name: max(row[name] for row in each) for name in ("p", "p_does_not")} for each in tested]
    for name in ("p", "p_does_not"):
        correct(greatest, name)
    for each, tests in zip(tested, greatest, strict=True):
        found = {"detectable": max(row["cost"].detectable(len(tested)) for row in each)}
        for row in each:
            row |= {name: tests[name] for name in ("p_holm", "p_does_not_holm")} | found
    for each in words.values():
        said = []
        for row in each:
            cost, farther = row.pop("cost"), row.pop("farther")
            if cost:
                of_row = row["p_holm"], row["p_does_not_holm"], row["adjusted"]
                word, row["why"] = verdict(*of_row, farther, row["why"])
                said.append(word)
        for row in each if said else ():
            row["verdict"] = agreed(said)
    numbers = dict.fromkeys((*_TESTS, "p_holm", "p_does_not_holm", "detectable"), pl.Float64)
    types = numbers | {"verdict": pl.String}
    return pl.DataFrame(rows, schema_overrides=types, infer_schema_length=None).fill_nan(None)
