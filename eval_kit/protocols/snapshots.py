"""Systems on two snapshots of their queries, such as two months: what each loses, and beside a pivot.

A snapshot is a release, a folder in BEIR's format or a file of judgements, with a run of each system.
"""

import os
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from eval_kit.authors.judgements import Judgements, Texts
from eval_kit.authors.opening import ReleaseSource, open_release, release_of
from eval_kit.errors import UserError, choices, parameter
from eval_kit.files.opening import is_file
from eval_kit.measures.definitions import parse
from eval_kit.protocols.compare import baseline_of
from eval_kit.protocols.judged_in_both import Means, differ_in_depth, of_both
from eval_kit.protocols.scores import Scores, judged_shares, on_judgements
from eval_kit.protocols.scoring import named, scores_of, with_measures
from eval_kit.release import Release
from eval_kit.results import Result, origin
from eval_kit.runs.given import GivenRuns, take
from eval_kit.sentences import counted
from eval_kit.stats.differences import ALPHA, CANNOT_TELL
from eval_kit.stats.losses import correct
from eval_kit.stats.snapshots import delta_ri, effect_ratio, relative_change
from eval_kit.tables.table import UNTESTED, Column, Fields, Table, Value, laid_out, share, significance, with_interval

type Integers = NDArray[np.int64]

ROWS = (
    dict.fromkeys(("test_set", "test_set_after", "measure", "system"), pl.String())
    | dict.fromkeys(("judged_in_both", "queries", "queries_after", "shared"), pl.Int64())
    | dict.fromkeys(("before", "after", "rc", "rc_low", "rc_high", "p", "p_holm"), pl.Float64())
    | dict.fromkeys(("effect_ratio", "effect_ratio_low", "effect_ratio_high"), pl.Float64())
    | dict.fromkeys(("delta_ri", "delta_ri_low", "delta_ri_high", "p_pivot", "p_pivot_holm"), pl.Float64())
    | {"verdict": pl.String()}
)

MORE, LESS = "loses more", "loses less"
BEFORE, AFTER = "before", "after"
_PAIRS = "judged_in_both"


@dataclass(frozen=True, repr=False)
class Snapshots(Result):
    """What systems keep, and what that rests on.

    Attributes:
        rows: one for each test set, measure and system, as :data:`ROWS`: ``queries`` and mean ``before``,
            ``queries_after`` and mean ``after``, ``shared`` queries of both; ``rc`` with ``p`` of no change;
            ``effect_ratio`` and ``delta_ri`` against the pivot with ``p_pivot`` of losing the share that it loses
            (``delta_ri`` is 0), each p also after Holm's correction; and the ``verdict`` on that. Rows on the
            pairs of query and passage that both snapshots judge have their number, ``judged_in_both``, which is null on
            each snapshot's own judgements; where these differ in depth, the rows on the pairs come first.
        pivot: the system that the others stand beside.
        remarks: on ids of both with two texts, and systems with two names.
        provenance: of the scores, with those of the other snapshot as ``against``, and the ``names`` of both.
    """

    title = "Two snapshots"

    rows: pl.DataFrame
    pivot: str
    remarks: Sequence[str]
    provenance: dict[str, Any]

    @property
    def names(self) -> tuple[str, str]:
        """What the two snapshots are called."""
        one, two = self.provenance["names"]
        return one, two

    def to_polars(self) -> pl.DataFrame:
        """One row for each test set, measure and system: ``rows``."""
        return self.rows

    def tables(self) -> list[Table]:
        """A table for each test set, measure and judgements: a row a system."""
        others = self.rows["system"].n_unique() > 1
        before, after = self.names
        tables = []
        for key, group in self.rows.group_by("test_set", "test_set_after", "measure", _PAIRS, maintain_order=True):
            name, other, measure = map(str, key[:3])
            show = parse(measure).show
            columns = [
                Column("system", wrap="never"),
                Column("n", "number", "queries", ","),
                Column(before, "number", "before", show, wrap="anywhere"),
                Column("n", "number", "queries_after", ","),
                Column(after, "number", "after", show, wrap="anywhere"),
                Column("RC [95 %]", "number", _rc, wrap="anywhere"),
                Column("ER [95 %]", "number", partial(_beside, "effect_ratio"), wrap="anywhere", shown=others),
                Column("ΔRI [95 %]", "number", partial(_beside, "delta_ri"), wrap="anywhere", shown=others),
                Column(f"beside {self.pivot}", source="verdict", wrap="never", shown=others),
            ]
            title = f"{name}, {measure}" if name == other else f"{name}, then {other}, {measure}"
            pairs = self.rows.filter(test_set=pl.lit(name), test_set_after=pl.lit(other))[_PAIRS]
            which = _on(key[3]) if pairs.count() else ""
            tables.append(laid_out(group, columns, title=f"{title}{which}"))
        return tables

    def summary(self) -> list[str]:
        """What is shown of each of the first five systems, by the first measure of the first test set."""
        first = self.rows.row(0, named=True)
        rows = self.rows.filter(test_set=pl.lit(first["test_set"]), measure=pl.lit(first["measure"]))
        leading = rows.filter(pl.col(_PAIRS).eq_missing(first[_PAIRS]))
        sentences = []
        for row in leading.head(5).iter_rows(named=True):
            beside = f" Compared with {self.pivot}: {row['verdict']}." if row["verdict"] else ""
            where = _on(row[_PAIRS]) if row[_PAIRS] else ""
            sentences.append(f"{row['system']} {_changed(row)}{where}.{beside}")
        if first[_PAIRS]:
            plain = rows.filter(pl.col(_PAIRS).is_null()).row(0, named=True)
            sentences.append(
                f"{self.names[0]} and {self.names[1]} judge to different depths. By the judgements of each, "
                f"{plain['system']} {_changed(plain)}, which is partly a change of the judgements."
            )
        return sentences

    def notes(self) -> list[str]:
        """Which queries are independent, and what cannot be told."""
        one, two = self.names
        notes = []
        own = self.rows.filter(pl.col(_PAIRS).is_null())
        for row in own.unique("test_set", maintain_order=True).iter_rows(named=True):
            name, shared = row["test_set"], row["shared"]
            alone = f"{row['queries'] - shared:,} and {row['queries_after'] - shared:,} are in one alone (independent)"
            notes.append(f"{name}: {counted(shared, 'query')} in both snapshots (paired), {alone}")
        if pairs := self.rows[_PAIRS].drop_nulls().unique(maintain_order=True).to_list():
            notes.append(
                f"On the {counted(sum(pairs), 'pair')} of query and passage that {one} and {two} both judge, all other "
                "passages are left out of the runs, and lower ranks move up"
            )
        unclear = own.filter(pl.col("verdict").is_not_null() & pl.col("effect_ratio").is_null())
        for row in unclear.unique(["test_set", "system"], maintain_order=True).iter_rows(named=True):
            notes.append(
                f"{row['system']} does not differ significantly from {self.pivot} on {one} "
                f"({row['test_set']}, {row['measure']}): any ER is possible"
            )
        sides = [judged_shares(self.provenance["runs"], f" on {one}")]
        sides.append(judged_shares(self.provenance["against"]["runs"], f" on {two}"))
        of_sets = self.rows.select("test_set", "test_set_after").unique(maintain_order=True).iter_rows()
        both = {name: sides[0].get(name, {}) | sides[1].get(other, {}) for name, other in of_sets}
        notes += on_judgements({name: shares for name, shares in both.items() if shares})
        return [*notes, *self.remarks]

    def method(self) -> list[str]:
        """What the figures are."""
        notes = [
            "° not significant: t-test over queries, p ≥ 0.05 after Holm's correction over the systems and test "
            "sets of "
            "a measure",
            UNTESTED,
            f"RC is ({self.names[0]} − {self.names[1]}) / {self.names[0]}. Intervals are each of that figure alone, "
            "uncorrected",
        ]
        if self.rows["verdict"].count():
            notes.append(
                f"ER is what is left of the difference from {self.pivot} (1: all), ΔRI what is lost of the relative "
                f"improvement over it (0: none). {MORE}, {LESS}: a significantly greater or smaller share than "
                f"{self.pivot}. {CANNOT_TELL}: the snapshots cannot separate the two"
            )
        return [*notes, origin(self.provenance)]


def snapshots(
    runs: GivenRuns,
    release: ReleaseSource = None,
    against: ReleaseSource = None,
    against_runs: GivenRuns = (),
    *,
    baseline: str | None = None,
    measures: Collection[str] = (),
    test_sets: Collection[str] = (),
    qrels: Judgements | None = None,
    queries: Texts | None = None,
    allow_missing: bool = False,
) -> Snapshots:
    """What systems keep from one snapshot of the queries to another.

    Args:
        runs: of one or more systems on the first snapshot.
        release: the first snapshot.
        against: the second.
        against_runs: of the same systems on the second, with the same names, or else in the same order; by default the
            same runs.
        baseline: the system that the others stand beside; by default the first.
        measures: in place of the test sets' own.
        test_sets: names of those to compare on.
        qrels: judgements that are the first snapshot, in place of a release.
        queries: the texts of their queries.
        allow_missing: score test sets that a run covers only in part.

    Raises:
        UserError: a run, measure, system or test set that cannot be used; test sets or measures that the two snapshots
            do not share.
    """
    [before] = take(runs=runs)
    [after] = take(against_runs=against_runs)
    after = after or before
    if len(before) != len(after):
        raise UserError(
            f"{parameter('against_runs')} was given {len(after)} times for {counted(len(before), 'system')}",
            do="Give one for each system",
        )
    first, second = release_of(release, qrels, queries), open_release(against)
    if not before:
        raise UserError("No runs were given", do=f"Add {parameter('runs')}")
    names = [[run.name for run in each] for each in (before, after)]
    base = baseline_of(names[0], baseline)
    scores, owns = [], []
    for each, snapshot in ((before, first), (after, second)):
        chosen = test_sets if set(test_sets) <= set(snapshot.test_sets) or snapshot is first else ()
        owns.append(with_measures(named(snapshot.test_sets, chosen), measures))
        scores.append(scores_of(each, snapshot, allow_missing=allow_missing, test_sets=owns[-1]))
    same = set(names[0]) == set(names[1])
    of_system = {name: name if same else system for system, name in zip(*names, strict=True)}
    of_before = _by_test_set(scores[0], {name: name for name in names[0]})
    of_after = _by_test_set(scores[1], of_system)
    provenance = {**scores[0].provenance, "pivot": base, "against": scores[1].provenance}
    called = _called((release if qrels is None else qrels, first), (against, second))
    provenance["names"] = called
    rows: list[dict[str, Any]] = []
    remarks: list[str] = []
    for name, other in _pairs(of_before, of_after):
        places, twice = _positions(first.queries(name), second.queries(other))
        remarks += [f"{name}: {twice:,} ids have another text there and are two queries"] if twice else []
        keys = {"test_set": name, "test_set_after": other}
        plain = [keys | row for row in _rows(of_before[name], of_after[other], names[0], base, places)]
        sides = (first, owns[0][name]), (second, owns[1][other])
        covering = [
            [run for run in own if any(mean.run == run.name for mean in means.values())]
            for own, means in ((before, of_before[name]), (after, of_after[other]))
        ]
        found = of_both(sides, covering, of_system)
        pairs, regraded, of_pairs = found or (0, 0, ({}, {}))
        on_pairs: list[dict[str, Any]] = []
        if of_pairs[0]:
            same_places = [np.arange(next(iter(of_pairs[0].values())).queries)] * 2
            on_pairs = [keys | {_PAIRS: pairs} | row for row in _rows(*of_pairs, names[0], base, same_places)]
        if regraded:
            text = f"{regraded:,} of the {counted(pairs, 'pair')} of {name} judged in both"
            remarks.append(f"{text} have another grade in {called[1]}, so that the judgements change on these too")
        depths_differ = differ_in_depth(provenance, name, other, of_system)
        if found and not pairs and (depths_differ or any(row["shared"] for row in plain)):
            remarks.append(f"No pair of query and passage is judged by both {called[0]} and {called[1]} on {name}.")
        rows += [*on_pairs, *plain] if depths_differ else [*plain, *on_pairs]
    if not rows:
        raise UserError("The two snapshots have no measure in common", do=f"Add {parameter('measures')}")
    for measure, is_on_pairs in dict.fromkeys((row["measure"], _PAIRS in row) for row in rows):
        family = [row for row in rows if (row["measure"], _PAIRS in row) == (measure, is_on_pairs)]
        beside = [row for row in family if row["system"] != base]
        correct(family, "p")
        correct(beside, "p_pivot")
        for row in beside:
            row["verdict"] = _verdict(row)
    remarks += [f"{run} is taken as {own}'s run on the second snapshot" for run, own in of_system.items() if run != own]
    return Snapshots(pl.DataFrame(rows, ROWS, infer_schema_length=None), base, remarks, provenance)


def _called(*snapshots: tuple[Any, Release]) -> tuple[str, str]:
    """What the two are called: a file without its ending, a folder, or an id as it was given.

    As much of the path stands before as tells them apart; what Python holds without a name is before and after.
    """
    paths = []
    for given, release in snapshots:
        is_named = isinstance(given, str | os.PathLike)
        path = Path(given) if is_named else Path(release.given_as or release.folder)
        is_known = is_named or given is None or isinstance(given, Release)
        paths.append((path.with_suffix("") if is_file(path) else path).parts if is_known else ())
    for depth in range(1, max(map(len, paths)) + 1):
        one, other = ("/".join(parts[-depth:]) for parts in paths)
        if one != other:
            return one or BEFORE, other or AFTER
    return BEFORE, AFTER


def _by_test_set(scores: Scores, systems: dict[str, str]) -> dict[str, Means]:
    """The means of each test set by measure and system; ``systems`` are those of the runs, by name."""
    found: dict[str, Means] = {}
    for each in scores.means:
        found.setdefault(each.test_set, {})[each.measure, systems[each.run]] = each
    return found


def _pairs(before: Collection[str], after: Collection[str]) -> list[tuple[str, str]]:
    """The test sets to set side by side: those of one name, or the only ones."""
    if len(before) == len(after) == 1:
        return list(zip(before, after, strict=True))
    if pairs := [(name, name) for name in before if name in after]:
        return pairs
    raise UserError(
        f"The two snapshots have no test set in common: one has {choices(before)}, the other {choices(after)}"
    )


def _positions(before: pl.DataFrame, after: pl.DataFrame) -> tuple[tuple[Integers, Integers], int]:
    """Where each query stands among those of either snapshot, and how many ids of both have two texts."""
    known = before.with_row_index("place")
    beside = after.join(known, on="query_id", how="left", maintain_order="left", suffix="_before")
    is_other = (pl.col("text") != pl.col("text_before")).fill_null(False)
    own = pl.int_range(pl.len(), dtype=pl.UInt32) + before.height
    place = pl.when(is_other | pl.col("place").is_null()).then(own).otherwise("place")
    found = beside.select(place.alias("place").cast(pl.Int64), is_other.alias("other"))
    return (np.arange(before.height), found["place"].to_numpy()), int(found["other"].sum())


def _rows(
    before: Means, after: Means, systems: Sequence[str], pivot: str, places: Sequence[Integers]
) -> Iterator[dict[str, Any]]:
    """A row for each measure and system of both."""
    queries = int(max(each.max() for each in places)) + 1
    shared = len(np.intersect1d(places[0], places[1]))

    def columns(measure: str, system: str) -> NDArray[np.float64]:
        sides = np.full((2, queries), np.nan)
        for side, means, where in zip(sides, (before, after), places, strict=True):
            side[where] = means[measure, system].per_query["value"].to_numpy()
        return sides

    for measure in dict.fromkeys(measure for measure, _ in before if (measure, pivot) in after):
        of_pivot = columns(measure, pivot) if (measure, pivot) in before else None
        for system in systems:
            if (measure, system) not in before or (measure, system) not in after:
                continue
            own = columns(measure, system)
            ends = before[measure, system], after[measure, system]
            change = relative_change(own)
            row = {"measure": measure, "system": system, "queries": ends[0].queries, "queries_after": ends[1].queries}
            row |= {"shared": shared, "before": ends[0].value, "after": ends[1].value}
            row |= change.columns("rc") | {"p": change.p}
            if system != pivot and of_pivot is not None:
                both = np.concatenate([own, of_pivot])
                lost = delta_ri(both)
                row |= effect_ratio(both).columns("effect_ratio") | lost.columns("delta_ri") | {"p_pivot": lost.p}
            yield row


def _verdict(row: dict[str, Any]) -> str:
    """Whether a system loses another share than the pivot does."""
    if row["p_pivot_holm"] is None or row["p_pivot_holm"] >= ALPHA:
        return CANNOT_TELL
    return MORE if parse(row["measure"]).sign * row["delta_ri"] > 0 else LESS


def _changed(row: Fields) -> str:
    """What is shown of a system's change, for a sentence."""
    if row["p_holm"] is None and row["rc"] == 0:
        return f"has the same {row['measure']}"
    if row["p_holm"] is None or row["p_holm"] >= ALPHA:
        return f"does not change significantly ({row['measure']})"
    before, after = (parse(row["measure"]).show(row[side]) for side in (BEFORE, AFTER))
    if row["rc"] is None:
        return f"changes from {before} to {after} {row['measure']}"
    change = share(-row["rc"]).replace("-", "\u2212")
    return f"changes by {change} of its {row['measure']}, from {before} to {after}"


def _on(pairs: int | None) -> str:
    """The judgements that a row is on."""
    return f" on the {counted(pairs, 'pair')} judged in both" if pairs else " on each snapshot's own judgements"


def _rc(row: Fields) -> Value:
    return Value(with_interval(row, "rc", "{:z.1%}"), mark=significance(row))


def _beside(name: str, row: Fields) -> str:
    """A figure beside the pivot's; the pivot has none."""
    return "" if row["verdict"] is None else with_interval(row, name, "{:z.2f}")
