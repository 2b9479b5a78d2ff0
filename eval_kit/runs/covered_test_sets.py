"""The test sets that a run is scored on, from nothing but the query ids it holds.

A query has no lines where the system retrieves nothing for it, and also where the run was cut short. The two differ in
where the missing queries are: empty results are few and scattered, a cut takes the end.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path

import polars as pl

from eval_kit.files.faults import RunError
from eval_kit.release import TestSet
from eval_kit.runs.reader import read_pieces

MOST_MISSING = 0.01
"""The share of a test set's queries that a run may lack wherever they are."""
MOST_SCATTERED = 0.08
"""The share that it may lack where they are scattered: BM25 retrieves nothing for 6.2 % of NFCorpus's dev queries."""
MOST_OF_A_PART = 0.2
"""The share that it may lack of one part of a shift whose parts together lack few (NFCorpus's short queries: 12 %)."""
TOGETHER = 4
"""Scattered missing queries do not make up the first or the last four (8 % to the fourth power: 1 in 24,000)."""
DL19_UNJUDGED = 157
"""Topics of TREC DL 2019 that NIST did not judge: runs hold all 200, the published topic file only the other 43."""

SELECTIONS = ("dlhard",)
"""Test sets selected from the topics of others: runs of those may hold some of their queries."""


@dataclass(frozen=True)
class Coverage:
    """The test sets to score, and how many of the run's queries are known but judged by none of these."""

    test_sets: list[TestSet]
    unjudged: int


def coverage_of(
    run: Path,
    queries: pl.Series,
    test_sets: Mapping[str, TestSet],
    known_queries: pl.Series,
    allow_missing: bool = False,
) -> Coverage:
    """Find the test sets that a run covers.

    A test set is covered if the run lacks at most 1 % of its queries, or at most 8 % that are scattered over it; so are
    all sets that are part of a covered one, and all parts of a shift of which this holds together, if no set holds them
    all and the run lacks at most 20 % of each. Missing queries are not scattered if all of them, or four or more, are
    at one end of any order in which queries are listed (the test set's, the release's, that of the ids as text or as
    numbers); such a set is left out where covered sets hold all of its queries in the run, and refused elsewhere. Every
    query of the run must belong to a covered set, or be known to the release without being in any set (the unjudged
    TREC DL topics). With ``allow_missing``, queries that no covered set explains bring in the sets that explain most of
    them.

    Args:
        run: the file, for messages.
        queries: the run's distinct query ids.
        test_sets: the release's.
        known_queries: all query ids that may appear in a run, in the release's order.
        allow_missing: score a test set that the run covers in part.

    Raises:
        RunError: a query id that the release does not know (with its line); a test set that the run
            covers only in part; no query that is in any.
    """
    unknown = queries.filter(~queries.is_in(known_queries.implode()))
    if len(unknown) and not _unjudged_in_dl19(unknown, test_sets, queries):
        more = f"; and {len(unknown) - 1:,} more" if len(unknown) > 1 else ""
        line = _line_of(run, unknown[0])
        raise RunError(f"{run}:{line}: query {unknown[0]} is in no test set of this release{more}; another --release?")
    ids = set(queries)
    members: dict[str, frozenset[str]] = {}
    share: dict[str, float] = {}
    by_shift: dict[str, list[TestSet]] = {}
    selection, nearly = set(), []
    for name, test_set in test_sets.items():
        members[name] = test_set.query_ids
        share[name] = len(ids & members[name]) / len(members[name])
        by_shift.setdefault(test_set.shift, []).append(test_set)
        if share[name] >= 1 - MOST_MISSING:
            selection.add(name)
        elif share[name] >= 1 - MOST_SCATTERED:
            nearly.append(name)
    for shift, parts in by_shift.items():
        names = list(map(attrgetter("name"), parts))
        together = pl.concat(map(attrgetter("queries"), parts)).unique(maintain_order=True)
        whole = TestSet(shift, shift, (), together, parts[0].qrels)
        few = min(map(share.__getitem__, names)) >= 1 - MOST_OF_A_PART
        if few and not _within(whole.query_ids, members.values()) and not _lacking(run, ids, whole, known_queries):
            selection.update(names)
    in_covered = _queries_of(members, selection)
    for name in sorted(nearly, key=lambda name: -len(members[name])):
        part_of_chosen = _within(members[name], map(members.__getitem__, selection))
        if not part_of_chosen and not allow_missing and (refusal := _lacking(run, ids, test_sets[name], known_queries)):
            if ids & members[name] <= in_covered:
                continue
            raise refusal
        selection.add(name)
    rest = ids & _queries_of(members, members.keys() - SELECTIONS) - _queries_of(members, selection)
    if not rest and not selection:
        raise RunError(f"{run}: this release judges none of its {len(ids):,} queries")
    while rest:
        name = _explaining_most(rest, members, share)
        if not allow_missing:
            raise _too_many(run, len(members[name] - ids), test_sets[name])
        selection.add(name)
        rest -= members[name]
    covers = []
    for test_set in test_sets.values():
        if _within(test_set.query_ids, map(members.__getitem__, selection)):
            covers.append(test_set)
    return Coverage(covers, len(ids - _queries_of(members, members)))


def complete(run: Path, queries: pl.Series, test_sets: Sequence[TestSet], allow_missing: bool = False) -> Coverage:
    """Check that a run covers the test sets that it is to be scored on, by the rule of :func:`coverage_of`.

    Its other queries are ignored. With ``allow_missing``, missing ones are scored as 0, however many there are.

    Raises:
        RunError: a test set that the run does not cover.
    """
    ids = set(queries)
    for test_set in test_sets:
        if not allow_missing and (refusal := _lacking(run, ids, test_set, test_set.queries)):
            raise refusal
    return Coverage(list(test_sets), len(ids.difference(*map(attrgetter("query_ids"), test_sets))))


def _queries_of(members: Mapping[str, frozenset[str]], names: Iterable[str]) -> set[str]:
    """The queries of these test sets."""
    return set().union(*map(members.__getitem__, names))


def _within(queries: frozenset[str], sets: Iterable[frozenset[str]]) -> bool:
    """Whether one of the sets holds all of the queries."""
    return any(map(queries.issubset, sets))


def _lacking(run: Path, ids: set[str], test_set: TestSet, known_queries: pl.Series) -> RunError | None:
    """Why a run does not cover a test set, if it does not."""
    size = len(test_set.query_ids)
    missing = len(test_set.query_ids - ids)
    if missing <= MOST_MISSING * size:
        return None
    if missing > MOST_SCATTERED * size:
        return _too_many(run, missing, test_set)
    at_end = _missing_at_an_end(test_set.queries, ids, known_queries)
    if not at_end:
        return None
    return RunError(
        f"{run}: {missing:,} of the {size:,} queries of {test_set.name} are missing, {at_end:,} of them together at "
        "an end, as in a run cut short; --allow-missing scores them as 0"
    )


def _too_many(run: Path, missing: int, test_set: TestSet) -> RunError:
    return RunError(
        f"{run}: {missing:,} of the {len(test_set.query_ids):,} queries of {test_set.name} are missing, more than 8 %; "
        "--allow-missing scores them as 0"
    )


def _explaining_most(rest: set[str], members: Mapping[str, frozenset[str]], share: Mapping[str, float]) -> str:
    """The set that best fits the queries left over: it holds many of them, and is itself largely covered."""
    return max(members, key=lambda name: len(rest & members[name]) * share[name])


def _missing_at_an_end(queries: pl.Series, ids: set[str], known_queries: pl.Series) -> int:
    """How many of a test set's missing queries are together at an end of one of its orders; 0 if they are scattered."""
    missing = len(set(queries) - ids)
    for order in _orders(queries, known_queries):
        for from_an_end in (order, order[::-1]):
            together = next(index for index, query in enumerate(from_an_end) if query in ids)
            if together >= min(TOGETHER, max(missing, 2)):  # a single missing query is at some end by chance
                return together
    return 0


def _orders(queries: pl.Series, known_queries: pl.Series) -> Iterator[list[str]]:
    """A test set's queries as runs list them."""
    yield queries.to_list()
    yield known_queries.filter(known_queries.is_in(queries.implode())).to_list()
    yield sorted(queries)
    yield sorted(queries, key=_texts_and_numbers)


def _texts_and_numbers(query: str) -> list[str | int]:
    """An id's texts and numbers in turn: ``PLAIN-12`` is ``PLAIN-``, 12 and an empty text."""
    return [int(part) if index % 2 else part for index, part in enumerate(re.split("([0-9]+)", query))]


def _unjudged_in_dl19(unknown: pl.Series, test_sets: Mapping[str, TestSet], queries: pl.Series) -> bool:
    """Whether unknown queries are what a run over all topics of TREC DL 2019 holds beside the judged ones."""
    dl19_ids = test_sets["dl19"].query_ids if "dl19" in test_sets else None
    numbers = unknown.str.contains("^[0-9]+$").all()
    return dl19_ids is not None and len(unknown) == DL19_UNJUDGED and numbers and dl19_ids <= set(queries)


def _line_of(run: Path, query: str) -> int:
    line = 1
    for frame in read_pieces(run):
        at = frame["query_id"].index_of(query)
        if at is not None:
            return line + at
        line += frame.height
    return line
