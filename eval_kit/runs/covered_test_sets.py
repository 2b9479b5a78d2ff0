"""Which test sets a run is scored on, from nothing but the query ids it holds."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from eval_kit.release import TestSet
from eval_kit.runs.reader import RunError, read_pieces

MOST_MISSING = 0.01
"""The share of a test set's queries that a run may lack without being asked."""

SELECTIONS = ("dlhard",)
"""Test sets selected from the topics of others: runs of those may hold some of their queries."""


@dataclass(frozen=True)
class Coverage:
    """The test sets to score, and how many of the run's queries are known but judged by none of these."""

    test_sets: list[TestSet]
    unjudged: int


def covered(
    run: Path,
    queries: pl.Series,
    test_sets: Mapping[str, TestSet],
    known: pl.Series,
    allow_missing: bool = False,
) -> Coverage:
    """Find the test sets that a run covers.

    A test set is covered if the run lacks at most 1 % of its queries, and so are all sets that are part of it.
    Every query of the run must belong to a covered set, or be known to the release without being in any set (the
    unjudged TREC DL topics). With ``allow_missing``, queries that no covered set explains bring in the sets that
    explain most of them.

    Args:
        run: the file, for messages.
        queries: the run's distinct query ids.
        test_sets: the release's.
        known: all query ids that may stand in a run.

    Raises:
        RunError: a query id that the release does not know (with its line); a test set that the run
            covers only in part; no query that is in any.
    """
    unknown = queries.filter(~queries.is_in(known.implode()))
    if len(unknown):
        more = f"; and {len(unknown) - 1:,} more" if len(unknown) > 1 else ""
        line = _line_of(run, unknown[0])
        raise RunError(f"{run}:{line}: query {unknown[0]} is in no test set of this release{more}; another --release?")
    ids = set(queries)
    members = {name: test_set.query_ids for name, test_set in test_sets.items()}
    share = {name: len(ids & of_set) / len(of_set) for name, of_set in members.items()}
    chosen = {name for name in members if share[name] >= 1 - MOST_MISSING}
    judged = set().union(*members.values())
    expected = set().union(*(members[name] for name in members if name in chosen or name not in SELECTIONS))
    left = (ids & expected).difference(*(members[name] for name in chosen))
    if left and not allow_missing:
        name = _explaining_most(left, members, share)
        raise _lacking(run, len(members[name] - ids), test_sets[name])
    if not left and not chosen:
        raise RunError(f"{run}: this release judges none of its {len(ids):,} queries")
    while left:
        name = _explaining_most(left, members, share)
        chosen.add(name)
        left -= members[name]
    covers = [name for name in test_sets if any(members[name] <= members[larger] for larger in chosen)]
    return Coverage([test_sets[name] for name in covers], len(ids - judged))


def complete(run: Path, queries: pl.Series, test_sets: Sequence[TestSet], allow_missing: bool = False) -> Coverage:
    """Check that a run holds the queries of test sets, all but 1 % of them.

    Args:
        run: the file, for messages.
        queries: the run's distinct query ids; others than those of the test sets are left out.
        test_sets: that the run is to be scored on.
        allow_missing: score a query that is missing as 0, however many are.

    Raises:
        RunError: more than 1 % of the queries of a test set are missing.
    """
    ids = set(queries)
    for test_set in test_sets:
        lacking = len(test_set.query_ids - ids)
        if lacking > MOST_MISSING * len(test_set.query_ids) and not allow_missing:
            raise _lacking(run, lacking, test_set)
    return Coverage(list(test_sets), len(ids.difference(*(test_set.query_ids for test_set in test_sets))))


def _lacking(run: Path, queries: int, test_set: TestSet) -> RunError:
    return RunError(
        f"{run}: {queries:,} of the {len(test_set.query_ids):,} queries of {test_set.name} are missing, more than 1 %; "
        "--allow-missing scores them as 0"
    )


def _explaining_most(left: set[str], members: Mapping[str, frozenset[str]], share: Mapping[str, float]) -> str:
    """The set that best fits the queries left over: holds many of them, and is itself covered far."""
    return max(members, key=lambda name: len(left & members[name]) * share[name])


def _line_of(run: Path, query: str) -> int:
    line = 1
    for frame in read_pieces(run):
        at = (frame["query_id"] == query).arg_max()
        if at is not None and frame["query_id"][at] == query:
            return line + at
        line += frame.height
    return line
