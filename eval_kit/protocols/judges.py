"""Systems under several judges, such as NIST's assessors and two language models: does a difference rest on the judge?

Rankings of one collection differ from judge to judge, and a judge that is a language model favours what the same model
ranked. A difference that only some of the judges show is said to depend on the judge.
"""

import warnings
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import polars as pl

from eval_kit.authors.judgements import Judgements
from eval_kit.authors.opening import open_judgements
from eval_kit.errors import UserError, choices, parameter
from eval_kit.measures.definitions import parse
from eval_kit.protocols import by_part
from eval_kit.protocols.compare import BETTER, baseline_first, difference_shown, effect, forest, rows_of, word
from eval_kit.protocols.scores import judged_shares, on_judgements
from eval_kit.protocols.scoring import scores_of, with_measures
from eval_kit.results import Picture, Result, origin
from eval_kit.runs.contamination import training_beside
from eval_kit.runs.given import GivenRuns, Run, take
from eval_kit.sentences import counted, joined
from eval_kit.stats.differences import WORSE
from eval_kit.tables.table import UNTESTED, Column, Fields, Table, Value, laid_out, of, side_by_side, significance

ROWS = (
    dict.fromkeys(("measure", "system", "judge"), pl.String())
    | {"is_own_judge": pl.Boolean()}
    | dict.fromkeys(("queries", "missing", "differ"), pl.Int64())
    | dict.fromkeys(("value", "difference", "low", "high", "p", "p_holm"), pl.Float64())
    | {"verdict": pl.String()}
)
DEPENDS, NOT_SHOWN = "depends on the judge", "not shown under any of them"
ALL = "{} under all of them"
OWN = "‡"
_WITH_INTERVALS = 3
"""Judges whose differences have a column each; of more, the values alone stand side by side."""


@dataclass(frozen=True, repr=False)
class UnderJudges(Result):
    """Each system's value under each judge, and what all of them together show.

    Attributes:
        rows: one for each measure, system and judge, as :data:`ROWS`: the ``difference`` is the system's mean minus the
            baseline's under that judge, ``p`` that of the paired t-test, ``p_holm`` after correction over all systems
            and judges of a measure, and ``low`` and ``high`` the ends of the 95 % intervals that hold for all of these
            together; null in the baseline's rows. ``is_own_judge``: a model that made the run is the judge. ``verdict``
            is of the system, under all judges.
        systems: the baseline first.
        judges: as they were given.
        left_out: queries that some of the judges alone judged.
        provenance: of the scores of each judge, as ``judges``.
    """

    title = "Systems under several judges"

    rows: pl.DataFrame
    systems: list[str]
    judges: list[str]
    left_out: int
    provenance: dict[str, Any]

    def to_polars(self) -> pl.DataFrame:
        """One row for each measure, system and judge: ``rows``."""
        return self.rows

    @property
    def heading(self) -> str:
        """The judges."""
        return f"Systems under {choices(self.judges)}"

    def tables(self) -> list[Table]:
        """A table for each measure: rows are systems, columns judges."""
        several = len(self.judges) > _WITH_INTERVALS
        tables = []
        for (measure,), group in self.rows.group_by("measure", maintain_order=True):
            columns = [Column("system", "heading", self._name, wrap="anywhere")]
            for judge in self.judges:
                value = partial(_value, parse(str(measure)).show, several)
                columns.append(Column("value", "number", of(judge, value), group=judge))
                ends = of(judge, _difference)
                name = "Δ [95 % interval]"
                columns.append(Column(name, "number", ends, none="", beside_last=True, group=judge, shown=not several))
            columns.append(Column("verdict", source=_coloured))
            lines = side_by_side(group, ["system", "verdict"], "judge")
            tables.append(laid_out(lines, columns, title=f"{measure}, n = {group['queries'][0]:,}"))
        return tables

    def _name(self, row: Fields) -> Value:
        return Value(row["system"], below="baseline" * (row["system"] == self.systems[0]))

    def summary(self) -> list[str]:
        """What the judges together show of each of the first five systems, by the first measure."""
        first = self.rows.filter(measure=self.rows["measure"][0])
        said = [self._said(first.filter(system=pl.lit(name)).to_dicts()) for name in self.systems[1:6]]
        own = [f"{row['judge']} of {row['system']}" for row in first.filter("is_own_judge").iter_rows(named=True)]
        return [*said, *([f"Judges of their own runs ({OWN}): {choices(own)}."] if own else [])]

    def _said(self, rows: Sequence[dict[str, Any]]) -> str:
        """A sentence on one system, from its rows by one measure."""
        system, base, verdict = rows[0]["system"], self.systems[0], rows[0]["verdict"]
        shown = [f"{difference_shown(row, short=True)} under {row['judge']}" for row in rows[:_WITH_INTERVALS]]
        figures = "; ".join(shown) + "; …" * (len(rows) > len(shown))
        if verdict == NOT_SHOWN:
            return f"{system} is not significantly different from {base} under any of {len(rows)} judges ({figures})."
        if verdict == DEPENDS:
            words = {each: [row["judge"] for row in rows if word(row) == each] for each in (BETTER, WORSE, "")}
            kinds = ((BETTER, "better"), (WORSE, "worse"), ("", "not significant"))
            under = [f"{said} under {self._some(words[each])}" for each, said in kinds if words[each]]
            return f"Whether {system} differs from {base} depends on the judge: {', '.join(under)} ({figures})."
        return f"{system} is {word(rows[0])} than {base} under all {len(rows)} judges ({figures})."

    def _some(self, judges: Sequence[str]) -> str:
        """These judges, by name if they are few."""
        return joined(judges) if len(judges) <= _WITH_INTERVALS else f"{len(judges)} of {len(self.judges)} judges"

    def figures(self) -> list[Picture]:
        """The differences of each system by the first measure, a row a judge."""
        first = self.rows.filter(pl.col("difference").is_not_null(), measure=self.rows["measure"][0])
        pictures = []
        for (system,), group in first.group_by("system", maintain_order=True):
            title = f"{group['measure'][0]} of {system} minus that of {self.systems[0]}, by judge"
            effects = [effect(row["judge"], row) for row in group.iter_rows(named=True)]
            pictures.append(forest(effects, group["measure"][0], title))
        return pictures

    def notes(self) -> list[str]:
        """Which queries were compared, and how deep each judge judged."""
        queries, many = counted(self.rows["queries"][0], "query"), len(self.judges) > _WITH_INTERVALS
        by = f"all {len(self.judges)} judges" if many else joined(self.judges)
        left_out = f". Left out, as only some of them judged it: {counted(self.left_out, 'query')}"
        of_judges: dict[str, dict[str, float]] = {}
        sources = {judge: provenance["runs"] for judge, provenance in self.provenance["judges"].items()}
        one_pool = len({str(judged_shares(runs)) for runs in sources.values()}) == 1
        for judge, runs in sources.items():
            for name, shares in judged_shares(runs, "" if one_pool else f" under {judge}").items():
                of_judges[name] = of_judges.get(name, {}) | shares
        missing = self.rows.filter(pl.col("missing") > 0).unique("system", keep="first", maintain_order=True)
        return [
            f"Compared on the {queries} that {by} judged{left_out * bool(self.left_out)}",
            *on_judgements(of_judges),
            *(
                f"{row['system']} has no results for {counted(row['missing'], 'query')}, scored as 0"
                for row in missing.iter_rows(named=True)
            ),
        ]

    def method(self) -> list[str]:
        """How the differences were tested, and what the signs and verdicts mean."""
        return [
            f"{OWN} its own judge: NAME.training.json lists the judge among the models that made the run, so its "
            "figures are no evidence for the run",
            "° not significant: two-sided paired t-test over queries, p ≥ 0.05 after Holm's correction over the "
            "systems and judges of a measure",
            UNTESTED,
            f"Under all of them: each judge shows the same sign. {DEPENDS.capitalize()}: some show it, and others do "
            "not or show the opposite",
            f"Δ is the system minus {self.systems[0]}. The 95 % intervals are over queries and hold together for all "
            "systems and judges of a measure",
            origin(self.provenance),
        ]

    def as_json(self) -> dict[str, Any]:
        """Plain JSON values."""
        about = {"systems": self.systems, "judges": self.judges, "left_out": self.left_out, "summary": self.summary()}
        return about | super().as_json()


def are_several(qrels: Any) -> bool:
    """Whether these are the judgements of several judges, by name, and not ``{query: {passage: grade}}``."""
    if not isinstance(qrels, Mapping) or not qrels:
        return False
    return all(not isinstance(each, Mapping) or _is_of_queries(each) for each in qrels.values())


def _is_of_queries(grades: Mapping[str, Any]) -> bool:
    return bool(grades) and all(isinstance(each, Mapping) for each in grades.values())


def under_judges(
    runs: GivenRuns,
    qrels: Mapping[str, Judgements],
    baseline: str | None = None,
    *,
    measures: Collection[str] = (),
    allow_missing: bool = False,
) -> UnderJudges:
    """Systems under each of several judges, on the queries that all of them judged.

    Args:
        runs: of two or more systems.
        qrels: the judgements of each judge, by name.
        baseline: the name of the system that the others are tested against; by default the first.
        measures: in place of nDCG@10, RR@10 and R@100.
        allow_missing: score runs that lack more queries than the rule allows.

    Raises:
        UserError: fewer than two judges or systems; judgements or runs that cannot be read; no query of all judges.
    """
    if len(qrels) < 2:
        raise UserError("There is one judge, and nothing to compare it with", do=f"Give two in {parameter('qrels')}")
    [taken] = take(runs=runs)
    base, *_ = names = baseline_first([run.name for run in taken], baseline)
    releases = {name: open_judgements(each) for name, each in qrels.items()}
    test_sets = {name: next(iter(release.test_sets.values())) for name, release in releases.items()}
    digests: dict[str, str] = {}
    for name, release in releases.items():
        if (other := digests.setdefault(release.manifest.digest, name)) != name:
            warnings.warn(f"The judges {other} and {name} gave the same judgements, and count as two", stacklevel=2)
    judged = [each.query_ids for each in test_sets.values()]
    shared = frozenset.intersection(*judged)
    if not shared:
        raise UserError(f"No query is judged by all of {choices(qrels)}", do="Give judgements of the same queries")
    queries = next(iter(test_sets.values())).queries
    queries = queries.filter(queries.is_in(shared))
    rows: list[dict[str, Any]] = []
    provenances = {}
    for judge, release in releases.items():
        test_set = replace(test_sets[judge], queries=queries)
        own = with_measures({test_set.name: test_set}, measures)
        scores = scores_of(taken, release, allow_missing=allow_missing, test_sets=own)
        values = scores.per_query_in_full().rename({"run": "system"}).sort("query_id", maintain_order=True)
        rows += [row | {"judge": judge} for row in rows_of(values, names, judge)]
        provenances[judge] = scores.provenance
    models = {run.name: _models(run) for run in taken}
    for row in rows:
        row["is_own_judge"] = row["judge"].casefold() in models[row["system"]]
    measures_of = list(dict.fromkeys(row["measure"] for row in rows))
    rows.sort(key=lambda row: (measures_of.index(row["measure"]), names.index(row["system"])))
    for measure in measures_of:
        family = [row for row in rows if row["measure"] == measure and row["system"] != base]
        by_part.hold_together(family)
        for name in names[1:]:
            of_system = [row for row in family if row["system"] == name]
            verdict = _verdict(of_system)
            for row in of_system:
                row["verdict"] = verdict
    left_out = len(frozenset.union(*judged)) - len(shared)
    first = next(iter(provenances.values()))
    provenance = {"kit_version": first["kit_version"], "tie_rule": first["tie_rule"], "judges": provenances}
    table = pl.DataFrame(rows, ROWS, infer_schema_length=None)
    return UnderJudges(table, names, list(qrels), left_out, provenance)


def _models(run: Run) -> frozenset[str]:
    """The models that are declared to have made a run, with and without what stands before the last slash."""
    named = [name.casefold() for name in training_beside(run.path).models]
    return frozenset([*named, *(name.rpartition("/")[2] for name in named)])


def _verdict(rows: Sequence[dict[str, Any]]) -> str:
    words = set(map(word, rows))
    if words == {""}:
        return NOT_SHOWN
    return ALL.format(words.pop()) if len(words) == 1 else DEPENDS


def _coloured(row: Fields) -> Value:
    """The verdict, coloured on a page where all judges agree."""
    kinds: dict[str | None, Any] = {ALL.format(BETTER): "good", ALL.format(WORSE): "bad"}
    return Value(row["verdict"] or "", word=kinds.get(row["verdict"], ""))


def _value(show: Any, with_sign: bool, row: Fields) -> Value:
    sign = significance(row) if with_sign and row["difference"] is not None else ""
    return Value(show(row["value"]), mark=OWN * row["is_own_judge"] + sign)


def _difference(row: Fields) -> Value | None:
    return None if row["difference"] is None else Value(by_part.difference_of(row), mark=significance(row))
