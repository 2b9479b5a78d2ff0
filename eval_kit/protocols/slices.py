"""Slice a run by what is known of its queries, without training anything.

Queries of dev-small have a length, a ReSTTest bucket and a Chameleons level; those of DL-HARD are annotated with
intent, answer type and topic, and belong to one of five folds (Mackie et al., SIGIR 2021).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl

from eval_kit.errors import UserError
from eval_kit.measures.definitions import parse
from eval_kit.protocols.scoring import score
from eval_kit.release import Release
from eval_kit.results import Result
from eval_kit.shifts import main_split
from eval_kit.tables.table import Column, Table, number_columns


class Label(NamedTuple):
    """A way to slice the queries of a test set: the table and column that name each query's slice."""

    test_set: str
    config: str
    split: str
    column: str


MAIN = "dev"
"""Stands for a release's main test set, as :func:`eval_kit.shifts.main_split` finds it."""
LABELS = {
    "length": Label(MAIN, "length", "test", "cluster"),
    "bucket": Label(MAIN, "resttest", MAIN, "bucket"),
    **{f"chameleons{level}": Label(MAIN, "chameleons", MAIN, f"level_{level}") for level in (10, 20, 30, 40, 50)},
    **{name: Label("dlhard", "dlhard", "test", name) for name in ("intent", "answer_type", "topic", "fold")},
}


@dataclass(frozen=True, repr=False)
class Slices(Result):
    """Means by slice.

    Attributes:
        means: from :func:`cross_table`.
        by: the names of the slices.
        provenance: of the scores.
    """

    title = "Slices by query property"

    means: pl.DataFrame
    by: Sequence[str]
    provenance: dict[str, Any]

    def to_polars(self) -> pl.DataFrame:
        """One row for each run, measure and combination of labels: ``means``."""
        return self.means

    def tables(self) -> list[Table]:
        """One row for each run and combination of labels, one column per measure."""
        measures = self.means["measure"].unique(maintain_order=True).to_list()
        columns = [*map(Column, ("run", *self.by)), *number_columns("queries", *measures)]
        keys = ["run", *self.by, "queries"]
        wide = self.means.pivot("measure", index=keys, values="value", maintain_order=True)
        lines = []
        for row in wide.iter_rows(named=True):
            values = [parse(name).show(row[name]) for name in measures]
            lines.append([row["run"], *(row[name] for name in self.by), f"{row['queries']:,}", *values])
        return [Table(columns, [lines])]

    def as_json(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {"slices": self.means.to_dicts(), "provenance": self.provenance}


def slices(runs: Sequence[Path], release: Release, by: Sequence[str], allow_missing: bool = False) -> Slices:
    """Score runs and average the values by what is known of the queries.

    Args:
        runs: of dev-small or DL-HARD.
        release: the one whose test sets are scored.
        by: one or more names of :data:`LABELS`.
        allow_missing: as for :func:`eval_kit.protocols.scoring.score`.

    Raises:
        UserError: as for :func:`cross_table`, or a run that cannot be used.
    """
    test_set_of(by, release)
    scores = score(runs, release, allow_missing)
    return Slices(cross_table(scores.per_query(), release, by), by, scores.provenance)


def test_set_of(by: Sequence[str], release: Release) -> str:
    """The test set whose queries the names slice: for dev, the release's main one, dev or else test.

    Raises:
        UserError: an unknown name, or names of different test sets.
    """
    for name in by:
        if name not in LABELS:
            raise UserError(f"cannot slice by {name!r}; there are {', '.join(LABELS)}")
    first, *rest = by
    for name in rest:
        if LABELS[name].test_set != LABELS[first].test_set:
            test_sets = f"one is of {LABELS[first].test_set}, the other of {LABELS[name].test_set}"
            raise UserError(f"cannot slice by {first} and {name} together: {test_sets}")
    return _in(release, LABELS[first].test_set)


def _in(release: Release, name: str) -> str:
    """The name in this release of a test set or split of :data:`LABELS`."""
    return (main_split(release.test_sets) or name) if name == MAIN else name


def labels(release: Release, by: Sequence[str]) -> pl.DataFrame:
    """The labels of each query of the test set that the names slice.

    Returns:
        ``query_id`` and one column for each name in ``by``.

    Raises:
        UserError: a name that :func:`test_set_of` refuses, or a release without that test set.
    """
    test_set = test_set_of(by, release)
    if test_set not in release.test_sets:
        raise UserError(f"{release.folder}: has no test set {test_set}, which {by[0]} slices")
    frame = release.test_sets[test_set].queries.to_frame("query_id")
    for name in by:
        _, config, split, column = LABELS[name]
        table = release.table(config, _in(release, split))
        label = table.select("query_id", pl.col(column).alias(name))
        frame = frame.join(label, on="query_id", how="left", maintain_order="left")
    return frame


def cross_table(values: pl.DataFrame, release: Release, by: Sequence[str]) -> pl.DataFrame:
    """Means of per-query values, for each combination of labels.

    Args:
        values: ``run``, ``test_set``, ``measure``, ``query_id``, ``value``, as from
            :meth:`eval_kit.protocols.scores.Scores.per_query`; only rows of the sliced test set count.
        release: the one that was scored.
        by: one or more names of :data:`LABELS`.

    Returns:
        ``run``, ``measure``, a column for each name, ``value``, ``queries``; sorted by all but the last two.

    Raises:
        UserError: as for :func:`labels`, or no run that covers the test set.
    """
    of_queries = labels(release, by)
    of_test_set = values.filter(pl.col("test_set") == test_set_of(by, release))
    if of_test_set.is_empty():
        raise UserError(f"slices by {', '.join(by)} are of {test_set_of(by, release)}, which no run covers")
    keys = ("run", "measure", *by)
    groups = of_test_set.join(of_queries, on="query_id").group_by(keys)
    return groups.agg(pl.col("value").mean(), pl.len().alias("queries")).sort(keys)
