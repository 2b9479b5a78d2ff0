"""How close a rebuilt release comes to a published one, and what cannot be the same.

Agreement is measured over the queries that both releases put into a cluster of the shift: adjusted Rand index and
normalised mutual information (over queries that are in a single cluster in both releases), and the overlap of clusters
under the one-to-one match that overlaps most.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import polars as pl

from builder.parameters import REBUILDABLE
from eval_kit import __version__
from eval_kit.authors.test_sets import levels_in
from eval_kit.errors import UserError
from eval_kit.release import Release
from eval_kit.results import Result
from eval_kit.shifts import SHIFTS
from eval_kit.tables.table import Column, Table

type Key = tuple[str, str]
_LABELS = {name: shift.label for name, shift in SHIFTS.items() if shift.label}
_DIVISIONS = {"shift": pl.String, "shared": pl.Int64, "rand": pl.Float64, "information": pl.Float64}
_MATCHES = {
    **dict.fromkeys(["shift", "published", "rebuilt"], pl.String),
    **dict.fromkeys(["queries", "both"], pl.Int64),
    "share": pl.Float64,
}
_SIZES = {**dict.fromkeys(["table", "cluster"], pl.String), **dict.fromkeys(["published", "rebuilt"], pl.Int64)}


@dataclass(frozen=True, repr=False)
class Fidelity(Result):
    """A rebuilt release beside a published one.

    Attributes:
        divisions: of each division that both have: ``shift`` (with the size or level if it has several divisions, as
            ``restrain.14k``), ``shared`` queries, adjusted ``rand`` index and normalised mutual ``information``
            (arithmetic mean; both null without shared queries).
        matches: of each published cluster: the ``rebuilt`` one matched to it (null if there are fewer), how many shared
            ``queries`` it has, how many of them ``both`` have, and that ``share``.
        sizes: ``table``, ``cluster``, ``published``, ``rebuilt`` (rows; null where a release lacks the table).
        limits: shift -> what cannot be reproduced, and why.
        provenance: both releases.
    """

    divisions: pl.DataFrame
    matches: pl.DataFrame
    sizes: pl.DataFrame
    limits: Mapping[str, tuple[str, ...]]
    provenance: Mapping[str, Any]
    title: ClassVar[str] = "Fidelity of a rebuilt release"

    def to_polars(self) -> pl.DataFrame:
        """The divisions."""
        return self.divisions

    def tables(self) -> list[Table]:
        """Divisions, matches and sizes."""
        return [
            _table("Membership: 1 is the same division, a Rand index of 0 is chance", self.divisions),
            _table("Each published cluster beside the rebuilt one of the best one-to-one match", self.matches),
            _table("Sizes", self.sizes),
        ]

    def notes(self) -> list[str]:
        """What cannot be reproduced, and why."""
        return [f"{shift} cannot be reproduced: {why}" for shift, reasons in self.limits.items() for why in reasons]

    def content(self) -> dict[str, Any]:
        """Plain JSON values."""
        return super().content() | {"matches": self.matches.to_dicts(), "sizes": self.sizes.to_dicts()}


def compare(rebuilt: Release, published: Release) -> Fidelity:
    """Compare the shifts that both releases have."""
    ours, authors = dict(_divisions(rebuilt)), dict(_divisions(published))
    common = [name for name in authors if name in ours]
    if not common:
        raise UserError(f"{rebuilt.folder} and {published.folder} have no shift in common")
    divisions, matches = zip(*(agreement(name, ours[name], authors[name]) for name in common), strict=True)
    shifts = dict.fromkeys(name.partition(".")[0] for name in common)
    ours_sizes, authors_sizes = _counts(rebuilt, shifts), _counts(published, shifts)
    keys = dict.fromkeys([*authors_sizes, *ours_sizes])
    sizes = [(*key, authors_sizes.get(key), ours_sizes.get(key)) for key in keys]
    return Fidelity(
        pl.DataFrame(divisions, _DIVISIONS, orient="row"),
        pl.concat(matches),
        pl.DataFrame(sizes, _SIZES, orient="row"),
        {shift: REBUILDABLE[shift].limits for shift in shifts},
        {"kit_version": __version__, "release": rebuilt.identity, "published": published.identity},
    )


def agreement(name: str, rebuilt: pl.DataFrame, published: pl.DataFrame) -> tuple[tuple[Any, ...], pl.DataFrame]:
    """A row of :data:`_DIVISIONS`, and its matches, for tables of ``query_id`` and ``cluster``, a row a membership."""
    import numpy as np
    from scipy.optimize import linear_sum_assignment

    authors = published.join(rebuilt, on="query_id", how="semi")
    ours = rebuilt.join(published, on="query_id", how="semi")
    if not authors.height:
        return (name, 0, None, None), pl.DataFrame(schema=_MATCHES)
    rows, columns = sorted(authors["cluster"].unique()), sorted(ours["cluster"].unique())
    overlaps = authors.join(ours, on="query_id", suffix="_rebuilt").group_by("cluster", "cluster_rebuilt").len()
    counts = np.zeros((len(rows), len(columns)), np.int64)
    for cluster, rebuilt_cluster, count in overlaps.iter_rows():
        counts[rows.index(cluster), columns.index(rebuilt_cluster)] = count
    counterpart = dict(zip(*linear_sum_assignment(counts, maximize=True), strict=True))
    matches: list[tuple[Any, ...]] = []
    for row, cluster in enumerate(rows):
        size, partner, both = int((authors["cluster"] == cluster).sum()), None, 0
        if row in counterpart:
            partner, both = columns[counterpart[row]], int(counts[row, counterpart[row]])
        matches.append((name, cluster, partner, size, both, both / size))
    division = (name, authors["query_id"].n_unique(), *_indices(authors, ours))
    return division, pl.DataFrame(matches, _MATCHES, orient="row")


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
    for shift, column in _LABELS.items():
        tables = [release.table(shift, split) for split in release.configs.get(shift, [])]
        if tables:
            yield shift, pl.concat(table.select("query_id", cluster=column) for table in tables).unique()
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


def _counts(release: Release, shifts: Iterable[str]) -> dict[Key, int]:
    """(``config/split``, cluster) -> rows."""
    counts: dict[Key, int] = {}
    for shift in shifts:
        for split in release.configs[shift]:
            table, name = release.table(shift, split), f"{shift}/{split}"
            labels = [_LABELS[shift]] if shift in _LABELS else levels_in(table)
            for label in labels:
                for cluster, count in table.group_by(label).len().sort(label).iter_rows():
                    row_name = f"{cluster} ({label.removeprefix('level_')} %)" if shift == "chameleons" else cluster
                    counts[name, row_name] = count
            if not labels:
                counts[name, "all"] = table.height
    return counts


def _table(title: str, rows: pl.DataFrame) -> Table:
    columns = [Column(name, "number" if kind.is_numeric() else "heading") for name, kind in rows.schema.items()]
    return Table(columns, [[list(map(_text, row)) for row in rows.iter_rows()]], title)


def _text(cell: str | float | None) -> str:
    if cell is None:
        return "-"
    if isinstance(cell, str):
        return cell
    return f"{cell:.4f}" if isinstance(cell, float) else f"{cell:,}"
