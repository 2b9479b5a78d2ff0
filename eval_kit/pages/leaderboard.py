"""A static page of many submissions, beside the figures that the papers published for their own systems."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter
from pathlib import Path
from string import ascii_lowercase
from typing import Any

import numpy as np
import polars as pl

from eval_kit.files import atomic
from eval_kit.measures.definitions import parse
from eval_kit.pages.page import render
from eval_kit.release import reference
from eval_kit.runs.contamination import TrainedOn, mark, worst
from eval_kit.stats.losses import MARGIN
from eval_kit.stats.ranks import Rank, ranking
from eval_kit.svg import span

FIGURES = ("avg_in", "out", "rel_loss", "value")
ALL = "mean of all"
"""The test set named in a row of means over all test sets of its shift."""
NESTED = ("chameleons",)
"""Shifts whose test sets contain one another: a mean would count queries several times."""

_FIGURE_OF = {"in": "avg_in", "inter": "avg_in", "out": "out", "extra": "out", "loss": "rel_loss", "value": "value"}
_ARCHITECTURES = {
    "bm25": "lexical",
    "biencoder": "dense",
    "splade": "sparse",
    "colbert": "late-interaction",
    "monobert": "cross-encoder",
    "static": "dense",
}
type Interval = tuple[float, float | None, float | None]
"""A figure, and the lower and upper end of its 95 % interval, if known."""


@dataclass
class Entry:
    """Figures of one system on one test set.

    Attributes:
        system: its name.
        team: who submitted it, or the authors of the paper.
        architecture: as in submission.schema.json.
        shift: such as ``topic``.
        test_set: such as ``topic.c0``, or :data:`ALL`.
        measure: such as ``RR@10``.
        figures: ``avg_in``, ``out`` and ``rel_loss`` = (In − Out) / In of a grid; ``value`` where nothing was held out;
            fractions where the measure is one.
        release_digest: of the release that was scored on; empty for published figures.
        release_version: of the same.
        published: taken from a paper, not scored here.
        source: the paper and table, or where the submission is.
        trained_on: whether the model was trained on queries of the test set (:mod:`eval_kit.runs.contamination`); the
            papers' own models were not.
        significance: of the ``rel_loss``: ``°``, ``≈`` or both (:func:`eval_kit.tables.table.significance`).
        seeds: training seeds that the figures are means of.
        document: what the submission says of the system, as in submission.schema.json.
        per_query: ``query_id`` and ``value`` of ``out``, else of ``value``, by which systems are ranked; by test set.
        rank: among the submitted systems; None if there is none.
    """

    system: str
    team: str
    architecture: str
    shift: str
    test_set: str
    measure: str
    figures: dict[str, Interval]
    release_digest: str = ""
    published: bool = False
    source: str = ""
    trained_on: str = "no"
    release_version: str = ""
    significance: str = ""
    seeds: int = 1
    document: Mapping[str, Any] = field(default_factory=dict)
    per_query: dict[str, pl.DataFrame] = field(default_factory=dict)
    rank: Rank | None = None


def published_entries() -> list[Entry]:
    """The reference systems' own figures, from the tables that :mod:`eval_kit.release.reference` holds."""
    entries = []
    for table in ("ecir2023-table2", "ecir2023-table3"):
        authors = reference.load(table)["paper"]["authors"].split(", ")
        team = authors[0] if len(authors) == 1 else f"{authors[0]} et al."
        for cell in reference.published_cells(table):
            if cell["figure"] in _FIGURE_OF:
                system, test_set = cell["system"], cell["test_set"]
                architecture, shift = _ARCHITECTURES.get(system, "other"), test_set.split(".")[0]
                figures: dict[str, Interval] = {_FIGURE_OF[cell["figure"]]: (cell["value"], None, None)}
                about = (system, team, architecture, shift, test_set, cell["measure"])
                entries.append(Entry(*about, figures, published=True, source=cell["source"]))
    return entries


_identity = attrgetter("system", "team", "shift", "measure", "release_digest", "published", "source")
"""What all rows of one system, shift and measure share."""


def write_leaderboard(entries: Sequence[Entry], out: Path) -> None:
    """Write the page; the same entries give the same bytes.

    Figures of different releases never stand in one view: of several releases, the reader chooses one. Where a system
    has figures on all test sets of a shift, a row of their plain means is added. The page opens on a shift with
    submitted figures. Submitted systems are ranked (:mod:`eval_kit.stats.ranks`) by Out, or by their value where
    nothing was held out from them, unless they were trained on the test set's queries.

    Args:
        entries: of all submissions, and of the papers' tables.
        out: the file to write.
    """
    rows = _rows(entries)
    rows = [*_means(rows), *rows]
    _rank(rows)
    submissions: set[tuple[str, str]] = set()
    paper_systems: set[tuple[str, str]] = set()
    figures: set[str] = set()
    releases: Counter[tuple[str, str]] = Counter()
    ends: defaultdict[str, list[float | None]] = defaultdict(list)
    for row in rows:
        (paper_systems if row.published else submissions).add((row.system, row.team))
        figures.update(row.figures)
        ends[row.measure].extend(row.figures.get("rel_loss", ()))
        if row.release_digest:
            releases[row.release_version, row.release_digest] += 1
    page = render(
        "leaderboard.html.j2",
        ["tables.js", "leaderboard.js"],
        rows=rows,
        scales={measure: span(losses) for measure, losses in ends.items()},
        mean=ALL,
        mark=mark,
        margin=MARGIN,
        letter=_letter,
        submitted=len(submissions),
        published=len(paper_systems),
        shifts=list(dict.fromkeys(row.shift for row in sorted(rows, key=attrgetter("published")))),
        architectures=sorted(set(map(attrgetter("architecture"), rows))),
        releases=list(dict(releases.most_common())),
        with_values="value" in figures,
    )
    atomic.write_text(out, page)


def _rows(entries: Sequence[Entry]) -> list[Entry]:
    """The entries, those of one system, test set and measure made one."""
    rows: dict[tuple[str | bool, ...], Entry] = {}
    for entry in entries:
        key = (*_identity(entry), entry.test_set)
        row = rows.setdefault(key, replace(entry, figures={}, significance="", per_query={}))
        row.figures |= entry.figures
        row.significance += entry.significance
        if entry.per_query and ("out" in entry.figures or "out" not in row.figures):
            row.per_query = entry.per_query
    return list(rows.values())


def _means(rows: Sequence[Entry]) -> list[Entry]:
    """One row for each system that has figures on all test sets of a shift, where there are several.

    The row is ranked if the system has the figure to rank by on all of them.
    """
    sets, groups = defaultdict(set), defaultdict(list)
    for row in rows:
        sets[row.shift, row.measure].add(row.test_set)
        groups[_identity(row)].append(row)
    means = []
    for group in groups.values():
        first = group[0]
        if first.shift in NESTED or len(group) < max(2, len(sets[first.shift, first.measure])):
            continue
        figures: dict[str, Interval] = {}
        for figure in FIGURES:
            values = [row.figures[figure][0] for row in group if figure in row.figures]
            if len(values) == len(group):
                figures[figure] = (sum(values) / len(values), None, None)
        mean = replace(first, test_set=ALL, figures=figures, significance="", per_query={})
        mean.trained_on = worst(map(attrgetter("trained_on"), group))
        if len({"out" in row.figures for row in group}) == 1:
            for row in group:
                mean.per_query |= row.per_query
        if figures:
            means.append(mean)
    return means


def _rank(rows: Sequence[Entry]) -> None:
    """Rank the systems of each view that have per-query values and were not trained on the queries."""
    views: defaultdict[tuple[str, ...], list[Entry]] = defaultdict(list)
    for row in rows:
        if row.per_query and row.trained_on != TrainedOn.YES:
            views[row.release_digest, row.shift, row.test_set, row.measure].append(row)
    for (*_, measure), in_view in views.items():
        sign = -1.0 if parse(measure).kind.lower_is_better else 1.0
        arrays = []
        for name in in_view[0].per_query:
            values = [row.per_query[name].sort("query_id")["value"].to_numpy() for row in in_view]
            arrays.append(sign * np.stack(values, axis=1))
        for row, rank in zip(in_view, ranking(arrays), strict=True):
            row.rank = rank


def _letter(number: int) -> str:
    """The name of a group: a, b, …, z, a2, b2, …"""
    return ascii_lowercase[number % 26] + (str(number // 26 + 1) if number >= 26 else "")
