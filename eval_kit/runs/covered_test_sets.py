"""Which test sets a run is scored on, from nothing but the query ids it holds."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from eval_kit.release import TestSet
from eval_kit.runs.reader import RunError, read_pieces

MOST_MISSING = 0.01
"""The share of a test set's queries that a run may lack without being asked."""


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
    left = (ids & judged).difference(*(members[name] for name in chosen))
    if left and not allow_missing:
        name = _explaining_most(left, members, share)
        lacking = len(members[name] - ids)
        raise RunError(
            f"{run}: {lacking:,} of the {len(members[name]):,} queries of {name} are missing, more than 1 %; "
            "--allow-missing scores them as 0"
        )
    if not left and not chosen:
        raise RunError(f"{run}: this release judges none of its {len(ids):,} queries")
    while left:
        name = _explaining_most(left, members, share)
        chosen.add(name)
        left -= members[name]
    covers = [name for name in test_sets if any(members[name] <= members[larger] for larger in chosen)]
    return Coverage([test_sets[name] for name in covers], len(ids - judged))


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
