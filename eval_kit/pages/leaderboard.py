"""A static page of many submissions, beside the figures that the papers published for their own systems."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
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


@dataclass(frozen=True)
class Entry:
    """One figure of one system on one test set.

    Attributes:
        system: its name.
        team: who submitted it, or the authors of the paper.
        architecture: as in submission.schema.json.
        shift: such as ``topic``.
        test_set: such as ``topic.c0``.
        measure: such as ``RR@10``.
        figure: ``avg_in``, ``out`` or ``rel_loss`` of a grid; ``value`` of a system that nothing was held out from.
        value: a fraction where the measure is one; of ``rel_loss`` (In − Out) / In.
        low: lower end of its 95 % interval, if known.
        high: upper end.
        release_digest: of the release that was scored on; empty for published figures.
        release_version: of the same.
        published: taken from a paper, not scored here.
        source: the paper and table, or where the submission is.
        trained_on: whether the model was trained on queries of the test set (:mod:`eval_kit.runs.contamination`); the
            papers' own models were not.
        significance: of a ``rel_loss``: ``°``, ``≈`` or both (:func:`eval_kit.tables.table.significance`).
        seeds: training seeds that the value is the mean of.
        document: what the submission says of the system, as in submission.schema.json.
        per_query: of ``out`` and ``value``, by which systems are ranked: ``query_id`` and ``value``; None if unknown.
    """

    system: str
    team: str
    architecture: str
    shift: str
    test_set: str
    measure: str
    figure: str
    value: float
    low: float | None = None
    high: float | None = None
    release_digest: str = ""
    published: bool = False
    source: str = ""
    trained_on: str = "no"
    release_version: str = ""
    significance: str = ""
    seeds: int = 1
    document: Mapping[str, Any] = field(default_factory=dict)
    per_query: pl.DataFrame | None = None


def published_entries() -> list[Entry]:
    """The reference systems' own figures, from the tables that :mod:`eval_kit.release.reference` holds."""
    entries = []
    for table in ("ecir2023-table2", "ecir2023-table3"):
        authors = reference.load(table)["paper"]["authors"].split(", ")
        team = authors[0] if len(authors) == 1 else f"{authors[0]} et al."
        for cell in reference.published(table):
            if cell["figure"] in _FIGURE_OF:
                system, test_set = cell["system"], cell["test_set"]
                architecture, shift = _ARCHITECTURES.get(system, "other"), test_set.split(".")[0]
                about = (system, team, architecture, shift, test_set, cell["measure"], _FIGURE_OF[cell["figure"]])
                entries.append(Entry(*about, cell["value"], published=True, source=cell["source"]))
    return entries


_identity = attrgetter("system", "team", "shift", "measure", "release_digest", "published", "source")
"""What all rows of one system, shift and measure share."""


@dataclass
class _Row:
    """All figures of one system on one test set."""

    about: Entry
    test_set: str
    trained_on: str
    figures: dict[str, tuple[float, float | None, float | None]] = field(default_factory=dict)
    significance: str = ""
    values: dict[str, pl.Series] = field(default_factory=dict)
    rank: Rank | None = None


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
    abouts = [row.about for row in rows]
    systems = {(about.system, about.team, about.published) for about in abouts}
    count = sum(is_published for *_, is_published in systems)
    releases = Counter((about.release_version, about.release_digest) for about in abouts if about.release_digest)
    ends: defaultdict[str, list[float | None]] = defaultdict(list)
    for row in rows:
        ends[row.about.measure].extend(row.figures.get("rel_loss", ()))
    page = render(
        "leaderboard.html.j2",
        ["tables.js", "leaderboard.js"],
        rows=rows,
        scales={measure: span(losses) for measure, losses in ends.items()},
        mean=ALL,
        mark=mark,
        margin=MARGIN,
        letter=_letter,
        submitted=len(systems) - count,
        published=count,
        shifts=list(dict.fromkeys(about.shift for about in sorted(abouts, key=attrgetter("published")))),
        architectures=sorted({about.architecture for about in abouts}),
        releases=[release for release, _ in releases.most_common()],
        with_values=any("value" in row.figures for row in rows),
    )
    atomic.write_text(out, page)


def _rows(entries: Sequence[Entry]) -> list[_Row]:
    rows: dict[tuple[str | bool, ...], _Row] = {}
    for entry in entries:
        row = rows.setdefault((*_identity(entry), entry.test_set), _Row(entry, entry.test_set, entry.trained_on))
        row.figures[entry.figure] = (entry.value, entry.low, entry.high)
        row.significance += entry.significance
        if entry.per_query is not None and (entry.figure == "out" or "out" not in row.figures):
            row.values[entry.test_set] = entry.per_query.sort("query_id")["value"]
    return list(rows.values())


def _means(rows: Sequence[_Row]) -> list[_Row]:
    """One row for each system that has figures on all test sets of a shift, where there are several.

    The row is ranked if the system has the figure to rank by on all of them.
    """
    sets, groups = defaultdict(set), defaultdict(list)
    for row in rows:
        sets[row.about.shift, row.about.measure].add(row.test_set)
        groups[_identity(row.about)].append(row)
    means = []
    for group in groups.values():
        about = group[0].about
        if about.shift in NESTED or len(group) < max(2, len(sets[about.shift, about.measure])):
            continue
        mean = _Row(about, ALL, worst(row.trained_on for row in group))
        if len({"out" in row.figures for row in group}) == 1:
            mean.values = {test_set: values for row in group for test_set, values in row.values.items()}
        for figure in FIGURES:
            values = [row.figures[figure][0] for row in group if figure in row.figures]
            if len(values) == len(group):
                mean.figures[figure] = (sum(values) / len(values), None, None)
        if mean.figures:
            means.append(mean)
    return means


def _rank(rows: Sequence[_Row]) -> None:
    """Rank the systems of each view that have per-query values and were not trained on the queries."""
    views: defaultdict[tuple[str, ...], list[_Row]] = defaultdict(list)
    for row in rows:
        if row.values and row.trained_on != TrainedOn.YES:
            about = row.about
            views[about.release_digest, about.shift, row.test_set, about.measure].append(row)
    for (*_, measure), in_view in views.items():
        sign = -1.0 if parse(measure).kind.lower_is_better else 1.0
        test_sets = in_view[0].values
        arrays = [sign * np.stack([row.values[name].to_numpy() for row in in_view], axis=1) for name in test_sets]
        for row, rank in zip(in_view, ranking(arrays), strict=True):
            row.rank = rank


def _letter(number: int) -> str:
    """The name of a group: a, b, …, z, a2, b2, …"""
    return ascii_lowercase[number % 26] + (str(number // 26 + 1) if number >= 26 else "")
