"""How close a rebuilt release comes to a published one, and what cannot be the same.

Agreement is measured over the queries that both releases put into a cluster of the shift: adjusted Rand index and
normalised mutual information (over queries that are in a single cluster in both releases), and the overlap of clusters
under the one-to-one match that overlaps most.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import polars as pl

from builder.parameters import REBUILDABLE
from builder.test_sets import levels_in
from eval_kit.errors import UserError
from eval_kit.release import Release
from eval_kit.shifts import CLUSTERED, SHIFTS
from eval_kit.stats.similarity import by_cluster
from eval_kit.tables.markdown import to_markdown
from eval_kit.tables.table import Column, Table

type Key = tuple[str, str]
type Cell = str | float | None
"""A name, a count or a figure; None where a release lacks it."""
LABELS = {name: shift.label for name, shift in SHIFTS.items() if shift.label}


@dataclass(frozen=True)
class Match:
    """A published cluster and the rebuilt one matched to it, over the shared queries.

    Attributes:
        published: name of the published cluster.
        rebuilt: name of the rebuilt one; None if there are fewer.
        queries: how many shared queries are in the published cluster.
        both: how many of those are in the rebuilt one too.
        jaccard: ``both`` divided by the queries that are in either.
    """

    published: str
    rebuilt: str | None
    queries: int
    both: int
    jaccard: float


@dataclass(frozen=True)
class Agreement:
    """One division of queries in both releases.

    Attributes:
        name: of the shift, with the size or level if it has several divisions: ``restrain.14k``.
        shared: how many queries are in a cluster of it in both releases.
        rand: adjusted Rand index; None without shared queries.
        information: normalised mutual information (arithmetic mean); None without shared queries.
        matches: one for each published cluster with shared queries.
    """

    name: str
    shared: int
    rand: float | None
    information: float | None
    matches: list[Match]


@dataclass(frozen=True)
class Fidelity:
    """A rebuilt release beside a published one.

    Attributes:
        rebuilt: kind, version and digest.
        published: kind, version and digest.
        agreements: for each division that both have.
        sizes: ``table``, ``cluster``, ``published``, ``rebuilt`` (rows; None where a release lacks the table).
        jaccard: ``shift``, ``cluster``, ``published``, ``rebuilt``: weighted Jaccard of each cluster's test queries to
            those of the others; clusters of the same name may differ in subject.
        limits: shift -> what cannot be reproduced, and why.
    """

    rebuilt: str
    published: str
    agreements: list[Agreement]
    sizes: list[dict[str, Any]]
    jaccard: list[dict[str, Any]]
    limits: Mapping[str, tuple[str, ...]]

    def as_json(self) -> dict[str, Any]:
        """Plain JSON values."""
        return asdict(self)

    def as_markdown(self) -> str:
        """A page for readers."""
        divisions: list[list[Cell]] = []
        matches: list[list[Cell]] = []
        for division in self.agreements:
            divisions.append([division.name, division.shared, division.rand, division.information])
            for match in division.matches:
                counts = match.queries, match.both, match.both / match.queries, match.jaccard
                matches.append([division.name, match.published, match.rebuilt, *counts])
        lines = [
            "# Fidelity of a rebuilt release",
            "",
            f"Rebuilt: {self.rebuilt}. Published: {self.published}.",
            "",
            "## Membership",
            "",
            "Over the queries that both releases put into a cluster; 1 is the same division, a Rand index of 0 is",
            "chance. Each published cluster is shown beside the rebuilt one of the best one-to-one match.",
            "",
            _table(["shift", "shared queries", "adjusted Rand", "NMI"], divisions),
            _table(["shift", "published", "rebuilt", "shared queries", "in both", "share", "Jaccard"], matches),
            "## Sizes",
            "",
            _table(["table", "cluster", "published", "rebuilt"], map(dict.values, self.sizes)),
            "## Weighted Jaccard of each cluster's test queries to the others'",
            "",
            "Clusters are numbered by each release for itself: c0 of one need not be c0 of the other.",
            "",
            _table(["shift", "cluster", "published", "rebuilt"], map(dict.values, self.jaccard)),
            "## What cannot be reproduced, and why",
            "",
        ]
        for shift, reasons in self.limits.items():
            lines += [f"**{shift}**", "", *[f"- {reason}" for reason in reasons], ""]
        return "\n".join(lines)


def compare(rebuilt: Release, published: Release) -> Fidelity:
    """Compare the shifts that both releases have.

    Raises:
        UserError: they have none in common.
    """
    ours, authors = dict(_divisions(rebuilt)), dict(_divisions(published))
    agreements, limits = [], {}
    for name, division in authors.items():
        if name in ours:
            shift = name.partition(".")[0]
            limits[shift] = REBUILDABLE[shift].limits
            agreements.append(agreement(name, ours[name], division))
    if not agreements:
        raise UserError(f"{rebuilt.folder} and {published.folder} have no shift in common")
    jaccard: list[dict[str, Any]] = []
    for shift in CLUSTERED:
        if shift in limits and "test" in rebuilt.configs[shift] and "test" in published.configs[shift]:
            jaccard += _beside("shift", _similarity(rebuilt, shift), _similarity(published, shift))
    return Fidelity(
        rebuilt=_name_of(rebuilt),
        published=_name_of(published),
        agreements=agreements,
        sizes=list(_beside("table", _counts(rebuilt, limits), _counts(published, limits))),
        jaccard=jaccard,
        limits=limits,
    )


def agreement(name: str, rebuilt: pl.DataFrame, published: pl.DataFrame) -> Agreement:
    """How far two divisions agree: tables of ``query_id`` and ``cluster``, one row for each membership."""
    import numpy as np
    from scipy.optimize import linear_sum_assignment

    authors = published.join(rebuilt, on="query_id", how="semi")
    ours = rebuilt.join(published, on="query_id", how="semi")
    if not authors.height:
        return Agreement(name, 0, None, None, [])
    rows, columns = sorted(authors["cluster"].unique()), sorted(ours["cluster"].unique())
    overlaps = authors.join(ours, on="query_id", suffix="_rebuilt").group_by("cluster", "cluster_rebuilt").len()
    counts = np.zeros((len(rows), len(columns)), np.int64)
    for cluster, rebuilt_cluster, count in overlaps.iter_rows():
        counts[rows.index(cluster), columns.index(rebuilt_cluster)] = count
    counterpart = dict(zip(*linear_sum_assignment(counts, maximize=True), strict=True))
    matches = []
    for row, cluster in enumerate(rows):
        size, partner = int((authors["cluster"] == cluster).sum()), None
        both, either = 0, size
        if row in counterpart:
            partner = columns[counterpart[row]]
            both = int(counts[row, counterpart[row]])
            either = size + int((ours["cluster"] == partner).sum()) - both
        matches.append(Match(cluster, partner, size, both, both / either))
    return Agreement(name, authors["query_id"].n_unique(), *_indices(authors, ours), matches)


def _indices(authors: pl.DataFrame, ours: pl.DataFrame) -> tuple[float | None, float | None]:
    """Adjusted Rand and NMI of the queries that are in a single cluster on both sides."""
    from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score

    single = pl.col("query_id").is_unique()
    both = authors.filter(single).join(ours.filter(single), on="query_id", suffix="_rebuilt")
    if not both.height:
        return None, None
    labels = both["cluster"].to_list(), both["cluster_rebuilt"].to_list()
    return float(adjusted_rand_score(*labels)), float(normalized_mutual_info_score(*labels))


def _divisions(release: Release) -> Iterator[tuple[str, pl.DataFrame]]:
    """Each division of queries, over all splits: name, and ``query_id`` with ``cluster``, a row per membership."""
    for shift, column in LABELS.items():
        parts = []
        for split in release.configs.get(shift, []):
            parts.append(release.table(shift, split).select("query_id", cluster=column))
        if parts:
            yield shift, pl.concat(parts).unique()
    regimes: dict[str, list[pl.DataFrame]] = {}
    for split in release.configs.get("restrain", []):
        regime, _, size = split.partition("_")
        rows = release.table("restrain", split).select("query_id", cluster=pl.lit(regime))
        regimes.setdefault(f"restrain.{size}", []).append(rows)
    for name, parts in regimes.items():
        yield name, pl.concat(parts)
    for split in release.configs.get("chameleons", []):
        table = release.table("chameleons", split)
        for level in levels_in(table):
            yield f"chameleons.{level.removeprefix('level_')}", table.select("query_id", cluster=level)


def _beside(what: str, rebuilt: Mapping[Key, float], published: Mapping[Key, float]) -> Iterator[dict[str, Any]]:
    """Rows of ``what`` (shift or table), cluster, and the values of both releases; None where one lacks it."""
    for key in dict.fromkeys([*published, *rebuilt]):
        yield {what: key[0], "cluster": key[1], "published": published.get(key), "rebuilt": rebuilt.get(key)}


def _counts(release: Release, shifts: Iterable[str]) -> dict[Key, int]:
    """(``config/split``, cluster) -> rows."""
    counts: dict[Key, int] = {}
    for shift in shifts:
        for split in release.configs[shift]:
            table, name = release.table(shift, split), f"{shift}/{split}"
            labels = [LABELS[shift]] if shift in LABELS else levels_in(table)
            for label in labels:
                for cluster, count in table.group_by(label).len().sort(label).iter_rows():
                    row_name = f"{cluster} ({label.removeprefix('level_')} %)" if shift == "chameleons" else cluster
                    counts[name, row_name] = count
            if not labels:
                counts[name, "all"] = table.height
    return counts


def _similarity(release: Release, shift: str) -> dict[Key, float]:
    rows = by_cluster(release, shift).select("cluster", "jaccard")
    return {(shift, cluster): jaccard for cluster, jaccard in rows.iter_rows()}


def _name_of(release: Release) -> str:
    return f"{release.manifest.kind} release {release.version}, digest {release.digest[:16]}"


def _table(header: list[str], rows: Iterable[Iterable[Cell]]) -> str:
    """A Markdown table, and an empty line."""
    return to_markdown(Table(list(map(Column, header)), [[list(map(_text, row)) for row in rows]]))


def _text(cell: Cell) -> str:
    if cell is None:
        return "-"
    if isinstance(cell, str):
        return cell
    return f"{cell:.4f}" if isinstance(cell, float) else f"{cell:,}"
