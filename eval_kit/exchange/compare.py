"""Systems side by side on the same test sets: every difference has a paired test and an interval.

Every system is compared with one *baseline*, the first unless another is named. Significance is over queries, so
per-query values are compared; means alone are not enough.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, product
from operator import attrgetter
from typing import Any

import numpy as np
import polars as pl
from msgspec.structs import replace

from eval_kit.errors import UserError
from eval_kit.exchange.sources import Source
from eval_kit.measures.definitions import LOWER_IS_BETTER, Measure, parse
from eval_kit.protocols.scoring import mean, warn_of_copies
from eval_kit.results import Result, origin
from eval_kit.runs import contamination
from eval_kit.stats.losses import LEVEL, MARGIN, RESAMPLES, holm_corrected, paired_t_test, resampled_means
from eval_kit.tables.table import Column, Table, Value, number_columns, significance, text_columns

ROWS = (
    dict.fromkeys(("test_set", "figure", "measure", "system"), pl.String())
    | dict.fromkeys(("queries", "missing"), pl.Int64())
    | {"trained_on": contamination.COLUMN}
    | dict.fromkeys(("value", "difference", "low", "high", "p", "p_holm"), pl.Float64())
    | dict.fromkeys(("p_equivalent", "p_equivalent_holm", "d"), pl.Float64())
)


@dataclass(frozen=True, repr=False)
class Comparison(Result):
    """The table, and what it rests on.

    Attributes:
        rows: one for each system, test set, figure and measure, as :data:`ROWS`. ``figure`` is empty for plain runs,
            and ``In`` or ``Out`` (for ReSTrain with its size) for grids. ``difference`` is the system's mean minus
            the baseline's, with its 95 % paired bootstrap interval (``low``, ``high``), ``p`` of the paired
            t-test, ``p_equivalent`` of equivalence, both also with ``_holm``, corrected over all systems and test sets
            of a measure, and Cohen's ``d``; all null in the baseline's rows. ``trained_on`` is whether the system was
            trained on queries of the test set.
        values: ``system``, ``test_set``, ``figure``, ``measure``, ``query_id``, ``value``, ``missing``, ``trained_on``.
        systems: in the order of the columns, the baseline first.
        left_out: systems and test sets that the baseline does not cover: ``system: test set``.
        provenance: release, kit version and tie rule that all share, ``runs``, ``resamples`` and ``seed``.
    """

    title = "Comparison of systems"

    rows: pl.DataFrame
    values: pl.DataFrame
    systems: list[str]
    left_out: list[str]
    provenance: dict[str, Any]

    def to_polars(self) -> pl.DataFrame:
        """The table: ``rows``."""
        return self.rows

    def tables(self) -> list[Table]:
        """A row per test set and measure: n, the baseline's value, and value and difference of every other system."""
        base, *others = self.systems
        columns = text_columns("test set", "measure", wrap="never")
        columns += number_columns("n", base, wrap="anywhere")
        for system in others:
            columns.append(Column(system, "number", wrap="anywhere"))
            columns.append(Column("Δ [95 % interval]", "number", wrap="anywhere", beside_last=True))
        lines = []
        for (test_set, figure, name), group in self.rows.group_by("test_set", "figure", "measure", maintain_order=True):
            by_system = group.rows_by_key("system", named=True, unique=True)
            measure = parse(str(name))
            line: list[Value | str] = [f"{test_set} {figure}".strip(), measure.name, f"{by_system[base]['queries']:,}"]
            line.append(_value(by_system[base], measure))
            for system in others:
                line += _value_and_difference(by_system.get(system), measure)
            lines.append(line)
        return [Table(columns, [lines])]

    def notes(self) -> list[str]:
        """How the differences were tested, what they rest on, and what is missing or was left out."""
        notes = [
            f"Differences are from {self.systems[0]}, with 95 % paired bootstrap intervals over queries alone "
            f"({self.provenance['resamples']:,} resamples, seed {self.provenance['seed']}): eval_kit generalise says "
            "whether they differ between kinds of queries. "
            "° not significant: paired t-test, p ≥ 0.05 after Holm's correction over the systems and test sets of a "
            f"measure. ≈ equivalent: within {MARGIN:.0%} of {self.systems[0]}, by two one-sided t-tests, p < 0.05 "
            f"after the same correction. For {', '.join(LOWER_IS_BETTER)}, lower is better.",
            origin(self.provenance),
        ]
        incomplete = self.rows.filter(pl.col("missing") > 0)
        for row in incomplete.unique(["system", "test_set", "figure"], maintain_order=True).iter_rows(named=True):
            notes.append(
                f"Missing from {row['system']}: {row['missing']:,} queries of {row['test_set']} (scored as empty)"
            )
        notes += contamination.notes(self.rows.select("system", "trained_on").iter_rows())
        if self.left_out:
            notes.append(f"Not compared, as covered by one side only: {'; '.join(self.left_out)}")
        return notes

    def per_query(self) -> pl.DataFrame:
        """What the table rests on: ``values``."""
        return self.values

    def as_json(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {
            "comparison": self.rows.to_dicts(),
            "systems": self.systems,
            "left_out": self.left_out,
            "provenance": self.provenance,
        }


def compare(
    sources: Sequence[Source], baseline: str | None = None, resamples: int = RESAMPLES, seed: int = 0
) -> Comparison:
    """Compare systems with a baseline.

    Args:
        sources: from :func:`eval_kit.exchange.sources.load`, each with one or more systems.
        baseline: a system's name; by default the first system's.
        resamples: of the bootstrap over queries; all systems share the same resamples.
        seed: for the bootstrap.

    Raises:
        UserError: fewer than two systems, or two of one name; sources that were not scored alike (release version
            or digest, tie rule, kit version, measures or queries differ); nothing that two systems share.
    """
    provenance = _shared_provenance(sources)
    warn_of_copies(provenance["runs"])
    values = pl.concat(source.values for source in sources)
    systems = _systems(sources, baseline)
    base = systems[0]
    rows: list[dict[str, Any]] = []
    left_out: list[str] = []
    for (test_set, figure), group in values.group_by("test_set", "figure", maintain_order=True):
        present = [name for name in systems if name in set(group["system"])]
        label = f"{test_set} {figure}".strip()
        if present[0] != base:
            left_out += [f"{name}: {label}" for name in present]
        elif len(present) > 1:
            in_order = _align(group, present, label)
            rows += _rows(in_order, present, str(test_set), str(figure), resamples, seed)
        else:
            left_out.append(f"{base}: {label}")
    if not rows:
        raise UserError(f"{base} shares no test set with {' or '.join(systems[1:])}; nothing can be compared")
    tests = pl.DataFrame(rows, ROWS).with_columns(is_baseline=pl.col("difference").is_null())
    table = holm_corrected(tests, ["measure", "is_baseline"]).select(list(ROWS))
    return Comparison(table, values, systems, left_out, {**provenance, "resamples": resamples, "seed": seed})


def _shared_provenance(sources: Sequence[Source]) -> dict[str, Any]:
    """What all sources have in common; refuses those that were not scored alike."""
    first = sources[0]
    for other in sources[1:]:
        for what, get in _MUST_AGREE.items():
            first_value, second_value = get(first.provenance), get(other.provenance)
            if first_value != second_value:
                raise UserError(
                    f"{first.name} and {other.name} cannot be compared: they were scored with different {what}, "
                    f"{first_value!r} and {second_value!r}"
                )
    runs = list(chain.from_iterable(map(attrgetter("provenance.runs"), sources)))
    return replace(first.provenance, runs=runs).as_json()


_MUST_AGREE = {
    "release versions": attrgetter("release.version"),
    "release digests": attrgetter("release.digest"),
    "tie rules": attrgetter("tie_rule"),
    "versions of eval_kit": attrgetter("kit_version"),
}


def _systems(sources: Sequence[Source], baseline: str | None) -> list[str]:
    names = list(chain.from_iterable(map(attrgetter("systems"), sources)))
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise UserError(f"two systems are called {twice}; rename one of them")
    if baseline is not None and baseline not in names:
        raise UserError(f"there is no system {baseline} to compare with; there are {', '.join(names)}")
    if len(names) < 2:
        raise UserError("give at least two systems to compare")
    base = baseline if baseline is not None else names[0]
    return [base, *(name for name in names if name != base)]


def _align(values: pl.DataFrame, systems: Sequence[str], heading: str) -> pl.DataFrame:
    """Values of one test set, the queries of every system and measure in one order."""
    in_order = values.sort("measure", "query_id")
    first = in_order.filter(system=systems[0])
    for name in systems[1:]:
        second = in_order.filter(system=name)
        if set(second["measure"]) != set(first["measure"]):
            raise UserError(f"{systems[0]} and {name} were scored with different measures on {heading}")
        if not second.select("measure", "query_id").equals(first.select("measure", "query_id")):
            raise UserError(f"{systems[0]} and {name} were scored on different queries of {heading}")
    return values.sort("query_id")


def _rows(
    values: pl.DataFrame, systems: Sequence[str], test_set: str, figure: str, resamples: int, seed: int
) -> list[dict[str, Any]]:
    columns = {
        (str(measure), str(name)): group["value"].to_numpy()
        for (measure, name), group in values.group_by("measure", "system", maintain_order=True)
    }
    worst = values.group_by("system").agg(pl.col("missing").max(), contamination.WORST)
    worst_of = worst.rows_by_key("system", named=True, unique=True)
    base, *rest = systems
    measures = values.filter(pl.col("system") == base)["measure"].unique(maintain_order=True)
    pairs = list(product(measures, rest))
    differences = np.stack([columns[measure, name] - columns[measure, base] for measure, name in pairs], axis=1)
    means = resampled_means(differences, resamples, seed)
    ends = np.quantile(means, [(1 - LEVEL) / 2, (1 + LEVEL) / 2], axis=0).T
    intervals = dict(zip(pairs, ends.tolist() if len(differences) > 1 else [(None, None)] * len(pairs), strict=True))
    rows = []
    for measure in measures:
        for name in systems:
            column = columns[measure, name]
            row = {"test_set": test_set, "figure": figure, "measure": measure, "system": name}
            row |= {"queries": len(column), "value": mean(pl.Series(column)), **worst_of[name]}
            if name != base:
                test = paired_t_test(columns[measure, base], column)
                low, high = intervals[measure, name]
                row |= {"difference": float((column - columns[measure, base]).mean()), "low": low, "high": high}
                row |= {"p": test.p, "p_equivalent": test.p_equivalent, "d": None if test.d is None else -test.d}
            rows.append(row)
    return rows


def _value(row: dict[str, Any], measure: Measure) -> Value:
    return Value(measure.show(row["value"]), mark=contamination.mark(row["trained_on"]))


def _value_and_difference(row: dict[str, Any] | None, measure: Measure) -> tuple[str | Value, str | Value]:
    """A system's value, and its difference with the interval; empty where it does not cover the test set."""
    if row is None:
        return "", ""
    difference = measure.show(row["difference"], with_sign=True)
    if row["low"] is not None:
        difference += f" [{measure.show(row['low'], with_sign=True)}, {measure.show(row['high'], with_sign=True)}]"
    return _value(row, measure), Value(difference, mark=significance(row))
