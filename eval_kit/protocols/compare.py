"""Systems side by side on the same test sets: every difference has a paired test and an interval.

Every system is compared with one *baseline*, the first unless another is named. Significance is over queries, so
per-query values are compared; means alone are not enough.
"""

import math
import shlex
from collections.abc import Collection, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from operator import itemgetter
from typing import Any, Literal

import numpy as np
import polars as pl

from eval_kit.authors.judgements import Judgements, Texts
from eval_kit.authors.opening import ReleaseSource, release_of
from eval_kit.divisions import WHOLE, Parts, groupings, whole
from eval_kit.errors import UserError, choices, parameter
from eval_kit.measures.definitions import parse
from eval_kit.program import typed
from eval_kit.protocols import by_part, readings
from eval_kit.protocols.differences_shown import (
    BETTER,
    FIRST_MEASURE,
    counts,
    decided,
    difference_shown,
    effect,
    forest,
    found_in,
    gain,
    neither,
    word,
)
from eval_kit.protocols.gate import Gate
from eval_kit.protocols.hanging import counted_groups, grouped
from eval_kit.protocols.scores import Scores, best_shown, printed_of, value_shown
from eval_kit.protocols.scoring import mean, scores_of, with_measures
from eval_kit.release import Release, TestSet
from eval_kit.results import Picture, Result, origin
from eval_kit.runs import contamination
from eval_kit.runs.given import GivenRuns, take
from eval_kit.runs.training import TrainedOn, queries_of
from eval_kit.sentences import and_more, counted, joined, most_telling
from eval_kit.stats.differences import FEW_DRAWN, ROUNDING, UNDRAWN, WORSE, difference
from eval_kit.stats.losses import MARGIN, correct, p_equivalent
from eval_kit.tables.table import (
    ALPHA,
    UNTESTED,
    Column,
    Fields,
    Table,
    Value,
    laid_out,
    of,
    side_by_side,
    significance,
)

ROWS = (
    dict.fromkeys(("test_set", "measure", "system"), pl.String())
    | dict.fromkeys(("queries", "missing", "helped", "hurt", "needed"), pl.Int64())
    | {"trained_on": contamination.COLUMN}
    | dict.fromkeys(("value", "difference", "low", "high", "p", "p_holm", "detectable", "ratio"), pl.Float64())
    | dict.fromkeys(("p_equivalent", "p_equivalent_holm", "on_shared"), pl.Float64())
    | {"decides": pl.String()}
)
BESIDE = 2
"""Systems that a table shows side by side; more stand one below the other."""
_MOST_SENTENCES = 5
"""Systems of which each, the baseline apart, has a sentence; of more there is one a test set."""
_MOST_TEST_SETS = 4
_SHOWN = 10
"""Queries that lose most, and that gain most, on the page of a pair."""
_MOST_PICTURES = 12
"""Pictures of a page; what more there is stands in its tables alone."""
_MOST_NAMED = 3
"""Parts, or differences, that a sentence names."""
_TRACKS = {"2019": "dl19", "2020": "dl20"}
"""The test sets of the TREC DL years that runs may be named after."""


@dataclass(frozen=True, repr=False)
class Comparison(Result):
    """The table, and what it rests on.

    Attributes:
        rows: one for each system, test set and measure, as :data:`ROWS`. ``difference`` is the system's mean minus
            the baseline's, ``helped`` and ``hurt`` the queries with a gain and with a loss, ``p`` that of the paired
            t-test, ``p_equivalent`` that of equivalence, both also with ``_holm``, corrected over all systems and test
            sets of a measure, and ``low`` and ``high`` the ends of the 95 % intervals that hold for all of these
            together; ``detectable`` the difference found in 80 % of cases, ``needed`` the queries that would show this
            one, ``ratio`` as in :data:`eval_kit.protocols.by_part.DIFFERENCES`; all null in the baseline's rows.
            ``decides`` and ``on_shared`` are of :mod:`eval_kit.protocols.readings`. ``trained_on`` is
        values: ``system``, ``test_set``, ``measure``, ``query_id``, ``value``, and the columns of
            :data:`eval_kit.protocols.scores.IN_FULL`.
        systems: in the order of the columns, the baseline first.
        left_out: systems and test sets that the baseline does not cover: ``system: test set``.
        provenance: of the scores.
        parts, over_parts: as :data:`eval_kit.protocols.by_part.DIFFERENCES` and ``OVER_PARTS``; without divisions and
            without a margin, empty.
        gate: whether less than a margin is lost, if that was asked for.
        divisions: where each comes from, by name.
        remarks: that, and queries in no part.
        scarce: the divisions that most queries are in no part of.
        extremes: of a pair, the queries that lose and that gain most on each test set: ``test_set``, ``measure``,
            ``query_id``, ``text``, ``before``, ``after``, ``gain``.
    """

    title = "Comparison of systems"

    rows: pl.DataFrame
    values: pl.DataFrame
    systems: list[str]
    left_out: list[str]
    provenance: dict[str, Any]
    parts: pl.DataFrame = field(default_factory=lambda: pl.DataFrame(schema=by_part.DIFFERENCES))
    over_parts: pl.DataFrame = field(default_factory=lambda: pl.DataFrame(schema=by_part.OVER_PARTS))
    gate: Gate | None = None
    divisions: Mapping[str, str] = field(default_factory=dict)
    remarks: Sequence[str] = ()
    scarce: Sequence[str] = ()
    extremes: pl.DataFrame | None = None

    @property
    def verdict(self) -> str:
        """What the gate says: worse, not worse, no query changed or cannot tell; empty without a margin."""
        return self.gate.verdict if self.gate else ""

    @property
    def tone(self) -> Literal["", "good", "bad", "open"]:  # type: ignore[override]
        """Of the gate's word."""
        return by_part.TONES.get(self.verdict, "") if self.gate else ""

    @property
    def exit_status(self) -> int:
        """Of a gate: 0 not worse or nothing changed, 1 worse, 3 cannot tell."""
        return self.gate.exit_status if self.gate else 0

    def to_polars(self) -> pl.DataFrame:
        """The table: ``rows``."""
        return self.rows

    def tables(self) -> list[Table]:
        """A row per test set and measure, with each system's value and difference; of many systems a table a test set.

        The best value of a measure is bold.
        """
        return [*(self._by_test_set() if len(self.systems) > BESIDE else [self._beside()]), *self._of_parts()]

    def _of_parts(self) -> list[Table]:
        return by_part.tables_of_differences(self.parts, self.over_parts, self.gate is not None)

    def printed(self) -> list[Table]:
        """Of all systems one table without intervals, whose marks say what is not significant; then of the parts."""
        base = self.systems[0]
        title = f"{self.heading} (° not significantly different from {base}, p ≥ {ALPHA:g} after Holm's correction)"
        best = best_shown(self.rows)
        return [*printed_of(self.rows, partial(_marked, best), title), *self._of_parts()]

    def _by_test_set(self) -> Iterator[Table]:
        """The systems one below the other, the best by the first measure first."""
        for (test_set,), rows in self.rows.group_by("test_set", maintain_order=True):
            measures = rows["measure"].unique(maintain_order=True)
            by_first = pl.col("value").filter(pl.col("measure") == measures[0]).first().over("system")
            upwards = parse(measures[0]).kind.lower_is_better
            in_order = rows.sort(by_first, descending=not upwards, maintain_order=True)
            columns = [Column("system", "heading", self._name, wrap="anywhere")]
            for measure in measures:
                columns += self._of(measure, "value", group=measure)
            lines = side_by_side(in_order, ["system"], "measure")
            yield laid_out(lines, columns, title=f"{test_set}, n = {rows['queries'][0]:,}")

    def _name(self, row: Fields) -> Value:
        """A system's name; the baseline's row says that it is that."""
        return Value(row["system"], below="baseline" * (row["system"] == self.systems[0]))

    def _beside(self) -> Table:
        """A row per test set and measure: n, the baseline's value, and value and difference of every other system."""
        base, *others = self.systems
        columns = [Column("test set", source="test_set", wrap="never"), Column("measure", wrap="never")]
        columns.append(Column("n", "number", of(base, "queries"), ",", wrap="anywhere"))
        columns += self._of(base, base, wrap="anywhere")[:1]
        for system in others:
            columns += self._of(system, system, wrap="anywhere")
            columns.append(Column("+/\u2212/=", "number", of(system, _helped), none="", spare=True))
            columns.append(Column("would find", "number", of(system, "detectable"), ".4f", spare=True))
        return laid_out(side_by_side(self.rows, ["test_set", "measure"], "system"), columns)

    def _of(self, side: str, name: str, **settings: Any) -> list[Column]:
        """The columns of one system or measure: its value, and its difference; empty where it has none."""
        best = partial(_value, best_shown(self.rows))
        value = Column(name, "number", of(side, best), none="", **settings)
        ends = Column("Δ [95 % interval]", "number", of(side, _difference), none="", beside_last=True, **settings)
        return [value, ends]

    @property
    def heading(self) -> str:
        """The systems and the baseline."""
        others = self.systems[1:]
        named = ", ".join(others) if len(others) < _MOST_SENTENCES else f"{len(others)} systems"
        return f"{named} compared with {self.systems[0]}"

    def summary(self) -> list[str]:
        """The gate; and for each system, or of many on each test set, what was shown and the lowest or highest."""
        sentences = [str(self.gate)] if self.gate else []
        if len(self.systems) > _MOST_SENTENCES:
            by_test_set = self.first_measures().partition_by("test_set", maintain_order=True)
            sentences += map(self._verdict_on_many, by_test_set[:_MOST_TEST_SETS])
            more = and_more(len(by_test_set[_MOST_TEST_SETS:]), "test sets").strip()
            return [*sentences, *([f"{more}: the tables have them."] if more else []), *self.scarce]
        loses_first = sorted(self.systems[1:], key=lambda name: WORSE not in self._words_of(name))
        of_systems = filter(None, map(self.verdict_on, loses_first))
        return [*sentences, *of_systems, *self._parts_that_differ(), *self.scarce]

    def _words_of(self, system: str) -> list[str]:
        """What the tests show of a system, by the first measure of each test set."""
        return list(map(word, self.first_measures().filter(system=pl.lit(system)).to_dicts()))

    def _verdict_on_many(self, of_test_set: pl.DataFrame) -> str:
        """A sentence: how many systems are better or worse on a test set, and the greatest loss, or the best."""
        rows = of_test_set.to_dicts()
        better, worse = counts(rows)
        text = (
            f"{rows[0]['test_set']}: {better} of {len(rows)} systems are better than {self.systems[0]}, {worse} worse"
        )
        best, least = max(map(gain, rows)), min(rows, key=gain)
        names = joined([row["system"] for row in rows if gain(row) == best])
        shown = difference_shown(max(rows, key=gain))
        lost = f" {least['system']} loses most, {difference_shown(least)}." if word(least) == WORSE else ""
        return f"{text}{neither(rows)}. Best {'is' if names.count(' and ') == 0 else 'are'} {names}, {shown}.{lost}"

    def _parts_that_differ(self) -> Iterator[str]:
        """The parts that are shown to lose, and those that gain, the greatest first; a gate has its own sentence."""
        parts = [] if self.gate else self.parts.filter(FIRST_MEASURE, pl.col("by") != WHOLE).to_dicts()
        for said, verb in ((WORSE, "Lost on"), (BETTER, "Gained on")):
            shown = [row for row in parts if word(row) == said]
            rows, rest = most_telling(shown, lambda row: abs(gain(row)), _MOST_NAMED)
            if rows:
                yield f"{verb} {'; '.join(found_in(row, len(self.systems) > 2, True) for row in rows)}{and_more(rest)}."

    def verdict_on(self, system: str, test_set: str | None = None) -> str:
        """A sentence: what the tests over queries show of a system, here or on all; empty if it has no difference."""
        rows = self.first_measures().filter(pl.col("system") == system).to_dicts()
        rows, base = [row for row in rows if test_set in (None, row["test_set"])], self.systems[0]
        if len(rows) == 1:
            return self._verdict_on(rows[0])
        better, worse = counts(rows)
        (most, on), (other, others) = sorted(((BETTER, better), (WORSE, worse)), key=itemgetter(1), reverse=True)
        said = f"{most} than {base} on {on} of {len(rows)} test sets and {other} on {others or 'none'}"
        if len(rows) == on:
            said = f"{most} than {base} on {'both' if on == 2 else f'all {on}'} test sets"
        elif not on:
            said = f"not significantly different from {base} on any of the {len(rows)} test sets"
        rest = neither(rows) if on else ""
        return f"{system} is {said}{rest} (each by its first measure, over queries)." if rows else ""

    def _verdict_on(self, row: dict[str, Any]) -> str:
        """The same of a test set: both values, and what its other measures show otherwise."""
        kinds = {BETTER: "is better than", WORSE: "is worse than", "": "is not significantly different from"}
        if row["decides"]:
            kinds[""] = "cannot be told from"
        here = self.rows.filter(pl.col("system") == row["system"], pl.col("test_set") == row["test_set"]).to_dicts()
        others = [f"{word(each)} by {each['measure']}" for each in here if word(each) not in ("", word(row))]
        value, before = (parse(row["measure"]).show(row["value"] - minus) for minus in (0, row["difference"]))
        text = f"{row['system']} {kinds[word(row)]} {self.systems[0]} on {row['test_set']} by {row['measure']}"
        text += f" ({', '.join(others)})" if others else ""
        power = ""
        if not word(row) and not row["decides"] and row["needed"]:
            power = f" {row['detectable']:.4f} would be found in 80 % of cases"
            power += f". This difference needs about {counted(row['needed'], 'query')}."
        shown = difference_shown(row, short=True)
        return f"{text}: {value} against {before} ({shown}).{power}{'' if self.gate else decided(row)}"

    def first_measures(self) -> pl.DataFrame:
        """The differences by each test set's first measure."""
        return self.rows.filter(FIRST_MEASURE & pl.col("difference").is_not_null())

    def figures(self) -> list[Picture]:
        """The differences by the first measure of each test set; then in the parts of each division.

        A picture is of a system, or of a test set where these are fewer.
        """
        figures = []
        base = self.systems[0]
        rows = self.first_measures()
        is_of_systems = rows["test_set"].n_unique() >= len(self.systems) - 1
        by, each, of = ("system", "test_set", "of") if is_of_systems else ("test_set", "system", "on")
        for (name, measure), group in rows.group_by(by, "measure", maintain_order=True):
            if group.height > 1 or self.parts.is_empty():  # of a single test set, its parts say more
                ranked = group.to_dicts() if is_of_systems else sorted(group.to_dicts(), key=gain, reverse=True)
                effects = [effect(row[each], row) for row in ranked]
                figures.append(forest(effects, str(measure), f"{measure} {of} {name} minus that of {base}"))
        parts = self.parts.filter(FIRST_MEASURE)
        for key, group in parts.group_by("test_set", "measure", "system", "by", maintain_order=True):
            if group.height > 1:
                test_set, measure, system, division = map(str, key)
                in_order = by_part.in_order(group).to_dicts()
                effects = [effect(by_part.label(division, row["part"]), row) for row in in_order]
                title = f"{measure} of {system} minus that of {base} on {test_set} by {division}"
                margin = -self.gate.margin * parse(measure).sign if self.gate else None
                figures.append(forest(effects, measure, title, margin))
        return figures[:_MOST_PICTURES]

    def details(self) -> list[Table]:
        """Of a pair, the queries that lose most and that gain most."""
        tables: list[Table] = []
        if self.extremes is None:
            return tables
        for (test_set, measure), rows in self.extremes.group_by("test_set", "measure", maintain_order=True):
            show = parse(str(measure)).show
            columns = [Column("query", source=lambda row: row["text"] or row["query_id"])]
            named = zip(self.systems, ("before", "after"), strict=True)
            columns += [Column(name, "number", figure, show) for name, figure in named]
            for verb, side in (("loses", rows.filter(pl.col("gain") < 0)), ("gains", rows.filter(pl.col("gain") > 0))):
                if side.height:
                    title = f"Queries of {test_set} on which {self.systems[1]} {verb} most, by {measure}"
                    tables.append(laid_out(side, columns, title=title))
        return tables

    def notes(self) -> list[str]:
        """What is missing or was left out, and what the differences rest on."""
        notes = by_part.notes_of(self.parts, self.over_parts) if self.parts.height else []
        tested = [*self.rows.drop_nulls("p")["queries"], *self.parts.drop_nulls("p")["queries"]]
        notes += [FEW_DRAWN] if min(tested, default=UNDRAWN) < UNDRAWN else []
        notes += [*self.remarks, *filter(None, [self._lower_is_better()])]
        if self.left_out:
            notes.append(f"Not compared, because only one run covers them: {'; '.join(self.left_out)}")
        return notes

    def method(self) -> list[str]:
        """How the differences were tested, and what they rest on."""
        return [
            "° not significant: two-sided paired t-test over queries, p ≥ 0.05 after Holm's correction over the "
            "systems and test sets of a measure",
            UNTESTED,
            f"≈ equivalent: within {100 * MARGIN:g} % of {self.systems[0]}'s value, by two one-sided t-tests over the "
            "queries that a run searched, p < 0.05 after the same correction",
            "+/\u2212/= are the queries that got better, worse, and neither",
            f"Δ is the system minus {self.systems[0]}. The 95 % intervals are over queries alone and hold together for "
            "all systems and test sets of a measure; where one ends at 0 and no ° stands, 0 is outside it",
            *([self.gate.rules()] if self.gate else []),
            *(by_part.method_of(self.over_parts) if self.parts.height else []),
            "Whether a difference varies with the kind of query: eval_kit generalise. Which kinds lose: eval_kit "
            "discover",
            origin(self.provenance),
        ]

    def following(self) -> list[str]:
        """Of a pair, the command that finds the kinds of query that one loses."""
        files = {source["run"]: source.get("file") for source in self.provenance["runs"]}
        pair, words = [files.get(system) for system in self.systems], typed()
        if len(pair) != 2 or not all(pair) or not words or "--example" in words:
            return []
        command = shlex.join(["eval_kit", "discover", *map(str, pair), *_sources(words)])
        return [f"Next (the kinds of query that {self.systems[1]} loses): {command}"]

    def _lower_is_better(self) -> str:
        """Which of its measures are better where they are lower; empty where none is."""
        kinds = [parse(name).kind for name in self.rows["measure"].unique(maintain_order=True)]
        lower = dict.fromkeys(kind.name for kind in kinds if kind.lower_is_better)
        return f"For {', '.join(lower)}, lower is better" if lower else ""

    def per_query(self) -> pl.DataFrame:
        """What the table rests on: ``values``."""
        return self.values

    def content(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {
            "comparison": self.rows.to_dicts(),
            "systems": self.systems,
            "left_out": self.left_out,
            "parts": self.parts.to_dicts(),
            "over_parts": self.over_parts.to_dicts(),
            "divisions": dict(self.divisions),
            "gate": self.gate.as_json() if self.gate else None,
        }


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
    groups: str | Parts | None = None,
    qrels: Judgements | None = None,
    queries: Texts | None = None,
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
        groups: a division of the queries, such as by article, user or session: tests count its parts as one query
            each where that makes them less sure. By default, queries with one text or a relevant passage in common.
        qrels: judgements to score on, in place of a release.
        queries: the texts of their queries.
        allow_missing: score test sets that a run covers only in part.

    Raises:
        UserError: fewer than two systems; a run, measure or test set that cannot be used; nothing that two systems
            share; an argument that says nothing where these are compared.
    """
    by = groupings(by)
    if no_worse_than is not None and not (isinstance(no_worse_than, int | float) and 0 <= no_worse_than < math.inf):
        raise UserError(f"{parameter('no_worse_than')} takes a number of 0 or more, not {no_worse_than!r:.40}")
    opened_release = release_of(release, qrels, queries)
    [taken] = take(runs=runs)
    own = with_measures(opened_release.test_sets, measures)
    scores = scores_of(taken, opened_release, allow_missing=allow_missing, test_sets=own, only=test_sets)
    return compared(
        scores,
        opened_release,
        baseline,
        test_sets=own,
        by=by,
        training=queries_of(trained_on, by),
        margin=no_worse_than,
        groups=groups,
    )


def compared(
    scores: Scores, release: Release, baseline: str | None = None, *, groups: str | Parts | None = None, **how: Any
) -> Comparison:
    """The comparison of runs that are scored.

    Args:
        scores: of the runs.
        release: what they were scored on.
        baseline: the name of the system that the others are tested against; by default the first.
        groups: as for :func:`compare`.
        how: the further arguments of :func:`of_values`.
    """
    systems = _systems(scores)
    of_run = pl.col("run").replace_strict(systems).alias("system")
    values = scores.per_query_in_full().select(of_run, pl.exclude("run"))
    of_groups = grouped(release, values["test_set"].unique(maintain_order=True), groups)
    values = values.join(of_groups, on=["test_set", "query_id"], how="left", maintain_order="left")
    doubtful = readings.doubtful(scores.provenance["runs"], systems)
    found = of_values(values, release, baseline, scores.provenance, doubtful=doubtful, **how)
    ratios = pl.concat(frame.select("test_set", "ratio") for frame in (found.rows, found.parts))
    extremes = _extremes(found, release) if len(found.systems) == 2 else None
    return replace(
        found, provenance=found.provenance | {"groups": counted_groups(of_groups, ratios)}, extremes=extremes
    )


def _extremes(found: Comparison, release: Release) -> pl.DataFrame:
    """The rows of :attr:`Comparison.extremes`, by each test set's first measure."""
    frames = []
    for row in found.first_measures().head(_MOST_TEST_SETS).iter_rows(named=True):
        values = found.values.filter(test_set=pl.lit(row["test_set"]), measure=pl.lit(row["measure"]))
        before, after = (values.filter(system=pl.lit(name)).select("query_id", "value") for name in found.systems)
        both = before.join(after, on="query_id", suffix="_after").rename({"value": "before", "value_after": "after"})
        gain = parse(row["measure"]).sign * (pl.col("after") - pl.col("before"))
        both = both.with_columns(gain=gain).filter(pl.col("gain").abs() > ROUNDING).sort("gain", "query_id")
        ends = pl.concat(
            [both.filter(pl.col("gain") < 0).head(_SHOWN), both.filter(pl.col("gain") > 0).tail(_SHOWN).reverse()]
        )
        texts = release.queries(row["test_set"])
        of_set = ends.join(texts, on="query_id", how="left", maintain_order="left")
        frames.append(
            of_set.select(
                pl.lit(row["test_set"]).alias("test_set"),
                pl.lit(row["measure"]).alias("measure"),
                "query_id",
                "text",
                "before",
                "after",
                "gain",
            )
        )
    return pl.concat(frames)


def of_values(
    values: pl.DataFrame,
    release: Release,
    baseline: str | None,
    provenance: dict[str, Any],
    *,
    test_sets: Mapping[str, TestSet],
    by: Sequence[str | Parts] = (),
    training: pl.DataFrame | None = None,
    margin: float | None = None,
    doubtful: AbstractSet[str] = frozenset(),
) -> Comparison:
    """The comparison of systems whose value of each query is known.

    Args:
        values: as :attr:`Comparison.values`.
        release: has the queries, and the labels that they can be divided by.
        baseline: the name of the system that the others are tested against; by default the first.
        provenance: of the values.
        test_sets: by name, with the queries and measures that are compared.
        by: divisions of the queries, to compare in each part as well.
        training: ``query_id`` and ``text`` of training queries, for the divisions ``distance`` and ``leaked``.
        margin: the loss that a gate is about.
        doubtful: systems whose ranks contradict their scores.
    """
    base, *_ = names = baseline_first(values["system"].unique(maintain_order=True).to_list(), baseline)
    left_out: list[str] = []
    for (test_set,), group in values.group_by("test_set", maintain_order=True):
        present = group["system"].unique()
        if base not in present or len(present) < 2:
            left_out += [f"{name}: {test_set}" for name in names if name in present]
    table = _table(values, names)
    if table.is_empty():
        raise UserError(
            f"{base} and {' or '.join(names[1:])} have no test set in common", do="Compare runs of the same queries"
        )
    keys = ["test_set", "measure", "system"]
    table = readings.with_decides(table, keys, values, base, doubtful, partial(_table, names=names)).select(*ROWS)
    comparison = Comparison(table, values, names, left_out, provenance)
    if not by and margin is None:
        return comparison
    shared = table["test_set"].unique(maintain_order=True).to_list()
    if by:
        divisions = by_part.divisions(by, release, shared, training)
    else:
        divisions = {name: [whole(name, test_sets[name].queries)] for name in shared}
    if margin is not None:
        first = {name: test_sets[name].measures[0] for name in shared}
        values = values.filter(pl.col("measure") == pl.col("test_set").replace_strict(first, default=None))
        most = max(parse(name).most(values["value"].to_numpy()) for name in first.values())
        if margin >= most:
            raise UserError(
                f"Nobody can lose {margin:g} of {choices(dict.fromkeys(first.values()))}, so this gate would pass "
                "any run",
                do=f"Choose a {parameter('no_worse_than')} below {most:g}, such as 0.05",
            )
    parts, over = by_part.compared(values, names, divisions, margin)
    again = lambda other: by_part.compared(other, names, divisions, margin)[0]  # noqa: E731
    parts = readings.with_decides(parts, [*keys, "by", "part"], values, base, doubtful, again)
    gate = None if margin is None else Gate(margin, parts, base)
    comparison = replace(comparison, parts=parts, over_parts=over, gate=gate)
    if not by:
        return comparison
    remarks = list(by_part.remarks_on(divisions, release))
    few = list(by_part.scarce(divisions, release))
    return replace(comparison, divisions=by_part.sources(divisions), remarks=remarks, scarce=few)


def _table(values: pl.DataFrame, names: Sequence[str]) -> pl.DataFrame:
    """The rows of :data:`ROWS` on the test sets of the first of the systems and another, but for other readings."""
    rows: list[dict[str, Any]] = []
    for (test_set,), group in values.group_by("test_set", maintain_order=True):
        present = [name for name in names if name in group["system"]]
        if present[0] == names[0] and present[1:]:
            rows += rows_of(group.sort("query_id", maintain_order=True), present, str(test_set))
    for measure in dict.fromkeys(row["measure"] for row in rows):
        family = [row for row in rows if row["measure"] == measure and row["system"] != names[0]]
        correct(family, "p_equivalent")
        by_part.hold_together(family)
        for row in family:
            row["detectable"] = row["figure"].detectable(len(family))
            row["needed"] = row["figure"].needed_to_show(len(family))
    return pl.DataFrame(rows, ROWS)


def baseline_first(systems: Sequence[str], named: str | None) -> list[str]:
    """The systems with the baseline in front."""
    if named is not None and named not in systems:
        raise UserError(f"No run is of the system {named}", do=f"Choose from: {choices(systems)}")
    if len(systems) < 2:
        raise UserError("There is one system, and nothing to compare it with", do="Give at least two systems")
    base = named or systems[0]
    return [base, *(name for name in systems if name != base)]


def _systems(scores: Scores) -> dict[str, str]:
    """The system of each run, by the run's name."""
    test_sets: dict[str, set[str]] = {}
    for mean_of_run in scores.means:
        test_sets.setdefault(mean_of_run.run, set()).add(mean_of_run.test_set)
    members: dict[str, list[str]] = {}
    for run, sets_of_run in test_sets.items():
        stem, _, track = run.rpartition(".")
        members.setdefault(stem if stem and _TRACKS.get(track, track) in sets_of_run else run, []).append(run)
    systems: dict[str, str] = {}
    for system, runs in members.items():
        covered = list(chain.from_iterable(test_sets[run] for run in runs))
        apart = len(runs) == 1 or len(set(covered)) < len(covered) or (system in test_sets and system not in runs)
        for run in runs:
            systems[run] = run if apart else system
    return systems


def rows_of(values: pl.DataFrame, systems: Sequence[str], test_set: str) -> list[dict[str, Any]]:
    """A row for each measure and system; those of the others also with the ``figure`` of their difference."""
    columns, searched, together = {}, {}, {}
    for (measure, name), group in values.group_by("measure", "system", maintain_order=True):
        columns[str(measure), str(name)] = group["value"].to_numpy()
        searched[str(name)] = group["searched"].to_numpy()
        together[str(name)] = group["group"].to_numpy() if group["group"].is_duplicated().any() else None
    worst = values.group_by("system").agg(pl.col("missing").max(), contamination.WORST)
    worst_of = worst.rows_by_key("system", named=True, unique=True)
    base = systems[0]
    measures = values.filter(pl.col("system") == base)["measure"].unique(maintain_order=True)
    rows = []
    for measure in measures:
        for name in systems:
            column = columns[measure, name]
            row = {"test_set": test_set, "measure": measure, "system": name}
            row |= {"queries": len(column), "value": mean(pl.Series(column)), **worst_of[name]}
            if name != base:
                both = columns[measure, base], column
                sign = parse(measure).sign
                most = parse(str(measure)).most(np.stack(both))
                figure = difference(sign * (column - both[0]), most, together[name])
                row |= {"difference": by_part.signed(sign, figure.value), "p": figure.p, "ratio": figure.ratio}
                row |= {"helped": figure.helped, "hurt": figure.hurt, "figure": figure, "sign": sign}
                either = searched[base] | searched[name]
                row["p_equivalent"] = p_equivalent(both[0][either], both[1][either], most) if either.any() else None
            rows.append(row)
    return rows


def _sources(words: Sequence[str]) -> Iterator[str]:
    """The options of a typed command that say what is searched."""
    for name, value in zip(words, [*words[1:], ""], strict=True):
        option, equals, own = name.partition("=")
        if option in ("--release", "--qrels", "--queries", "--test-set"):
            yield from (option, own if equals else value)


def _value(best: Mapping[tuple[str, str], str], row: Fields) -> Value:
    return replace(value_shown(best, row), mark=contamination.mark(row["trained_on"]))


def _difference(row: Fields) -> Value | None:
    return None if row["difference"] is None else Value(by_part.difference_of(row), mark=significance(row))


def _marked(best: Mapping[tuple[str, str], str], row: Fields) -> Value:
    """A system's value, with the mark of its difference."""
    return replace(value_shown(best, row), mark=significance(row) if row["difference"] is not None else "")


def _helped(row: Fields) -> str | None:
    """How many queries got better, worse, and neither."""
    if row["difference"] is None:
        return None
    return f"{row['helped']:,}/{row['hurt']:,}/{row['queries'] - row['helped'] - row['hurt']:,}"
