"""The test sets that a run is scored on, from nothing but the query ids it holds.

One rule for all: a run may lack up to 8 % of a test set's queries, as a system retrieves nothing for some; they score 0
and are counted in the output. A run that lacks more was cut short, or is of something else.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter

import polars as pl

from eval_kit.errors import choices, parameter
from eval_kit.files.faults import RunError
from eval_kit.release import TestSet
from eval_kit.sentences import counted

_MOST_MISSING = 0.08
"""The share of a test set's queries that a run may lack: BM25 retrieves nothing for 6.2 % of NFCorpus's dev queries."""
_SELECTIONS = ("dlhard",)
"""Test sets selected from the topics of others: runs of those may hold some of their queries."""


@dataclass(frozen=True)
class Coverage:
    """The test sets to score, and how many of the run's queries none of these judges."""

    test_sets: list[TestSet]
    unjudged: int


def coverage_of(
    run: object, queries: pl.Series, test_sets: Mapping[str, TestSet], release: str, allow_missing: bool = False
) -> Coverage:
    """Find the test sets that a run covers.

    These are the ones of which it lacks at most :data:`_MOST_MISSING`, and all that are part of a covered one; but not
    one that lacks queries while those it has are all in sets that lack fewer, as sets that overlap do by chance. A set
    with more missing is refused if no covered set holds its queries; with ``allow_missing``, such queries bring in the
    sets that explain most of them. The run's queries that are in no test set are counted.

    Raises:
        RunError: a test set that the run covers only in part; no query that is in any, or few of the run's.
    """
    ids = set(queries)
    # sought among each set's ids, as no set of all of them need be made for a small run
    sought = queries.implode()
    held = {name: set(of_set.queries.filter(of_set.queries.is_in(sought))) for name, of_set in test_sets.items()}
    missing = {
        name: (len(of_set.queries) - len(held[name])) / len(of_set.queries) for name, of_set in test_sets.items()
    }
    covered: list[str] = []
    explained: set[str] = set()
    for name in sorted(held, key=missing.__getitem__):
        if not missing[name] or (missing[name] <= _MOST_MISSING and not held[name] <= explained):
            covered.append(name)
            explained |= held[name]
    rest = set().union(*(held[name] for name in held.keys() - _SELECTIONS)) - explained
    if not covered and (not rest or (len(rest) < len(ids) / 2 and not allow_missing)):
        few = f"Only {len(rest):,}" if rest else "None"
        raise RunError(
            f"{few} of the {counted(len(ids), 'query')} of {run} {'is' if len(rest) < 2 else 'are'} in {release}",
            do=f"Name the release that was searched with {parameter('release')}, or judgements of its queries with "
            f"{parameter('qrels')}",
        )
    while rest:
        name = max(held, key=lambda name: len(rest & held[name]) * (1 - missing[name]))
        if not allow_missing:
            raise _too_many(run, ids, test_sets[name])
        covered.append(name)
        rest -= held[name]
    covers = []
    for own_name, test_set in test_sets.items():
        if own_name in covered or any(_is_part(test_set, test_sets[name]) for name in covered):
            covers.append(test_set)
    return Coverage(covers, len(ids.difference(*held.values())))


def complete(
    run: object,
    queries: pl.Series,
    test_sets: Sequence[TestSet],
    allow_missing: bool = False,
    others: Iterable[TestSet] = (),
    any_of: bool = False,
) -> Coverage:
    """Check that a run covers the test sets that it is to be scored on, by the rule of :func:`coverage_of`.

    Its other queries are ignored; those that ``others`` judge are not counted as unjudged. With ``allow_missing``,
    missing ones are scored as 0, however many there are. With ``any_of``, sets of which it has no query are left out if
    it has some of another.

    Raises:
        RunError: a test set that the run does not cover.
    """
    ids = set(queries)
    held = [test_set for test_set in test_sets if not any_of or not ids.isdisjoint(test_set.query_ids)]
    test_sets = held or test_sets
    for test_set in test_sets:
        if not allow_missing and len(test_set.query_ids - ids) > _MOST_MISSING * len(test_set.query_ids):
            raise _too_many(run, ids, test_set, others)
    return Coverage(list(test_sets), len(ids.difference(*map(attrgetter("query_ids"), [*test_sets, *others]))))


def _is_part(one: TestSet, other: TestSet) -> bool:
    return len(one.queries) <= len(other.queries) and one.query_ids <= other.query_ids


def _too_many(run: object, ids: set[str], test_set: TestSet, others: Iterable[TestSet] = ()) -> RunError:
    if ids.isdisjoint(test_set.query_ids):
        covered = [other.name for other in others if len(other.query_ids - ids) <= _MOST_MISSING * len(other.query_ids)]
        covers = f"It covers {choices(covered)}" if covered else ""
        add = f"Add {parameter('test_sets')} {covered[0]}" if covered else ""
        return RunError(f"{run} has no results for {test_set.name}", covers, add)
    return RunError(
        f"{run} lacks {len(test_set.query_ids - ids):,} of the {len(test_set.query_ids):,} queries of {test_set.name}, "
        "more than 8 %",
        do=f"Add {parameter('allow_missing')} to score them as 0",
    )
