"""Similarity of every cluster to the others of its shift, and the correlation of losses with it (ECIR 2023 §5.2)."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import polars as pl
from rich.console import Console

from eval_kit.errors import UserError
from eval_kit.protocols.grid_results import protocols
from eval_kit.release import Release
from eval_kit.shifts import SHIFTS, clustered_in
from eval_kit.stats import vectors as vector_sources
from eval_kit.stats.losses import Correlation, correlations
from eval_kit.stats.similarity import by_cluster
from eval_kit.tables.frames import to_pandas
from eval_kit.tables.table import Column, Table

MEASURE = "RR@10"


@dataclass(frozen=True)
class Similarities:
    """Similarity by cluster; with grid runs also each system's losses and their correlation with the Jaccard.

    Attributes:
        clusters: ``shift``, ``cluster``, ``n``, ``others``, ``jaccard`` and, with vectors, ``cosine``.
        losses: ``system``, ``shift``, ``cluster``, ``rel_loss``, ``jaccard``.
        correlations: system → kind → correlation of loss and Jaccard over all clusters (Figure 3).
        release: digest.
    """

    clusters: pl.DataFrame
    losses: pl.DataFrame
    correlations: dict[str, dict[str, Correlation]]
    release: str

    def to_polars(self) -> pl.DataFrame:
        """One row a cluster: ``clusters``."""
        return self.clusters

    def to_pandas(self) -> Any:
        """The same as a ``pandas.DataFrame``."""
        return to_pandas(self.to_polars())

    def as_json(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {
            "clusters": self.clusters.to_dicts(),
            "losses": self.losses.to_dicts(),
            "correlations": {system: _by_kind(kinds) for system, kinds in self.correlations.items()},
            "release": self.release,
        }

    def print(self, console: Console) -> None:
        """One table of similarities; then, for each system, how its losses go with them."""
        columns = [Column(name, "text" if name in ("shift", "cluster") else "number") for name in self.clusters.columns]
        lines = []
        for row in self.clusters.iter_rows():
            lines.append([f"{value:.4f}" if isinstance(value, float) else str(value) for value in row])
        console.print(Table(columns, [lines]))
        for system, kinds in self.correlations.items():
            for kind, correlation in kinds.items():
                estimate = correlation.estimate
                value, low, high = estimate.value, estimate.low, estimate.high
                text = "undefined" if value is None or low is None else f"{value:+.3f} ({low:+.3f} to {high:+.3f})"
                console.print(
                    f"{system}: {kind} of {MEASURE} Rel Loss and Jaccard {text}, n = {estimate.n}", highlight=False
                )


def similarities(
    release: Release,
    vectors: str | None = None,
    outside_split: str = "test",
    runs: Sequence[Path] = (),
    allow_missing: bool = False,
) -> Similarities:
    """Compare every MS-Shift cluster of the release with the others of its shift.

    Args:
        release: from :func:`eval_kit.release.open_release`.
        vectors: model or file for the cosine, as :func:`eval_kit.stats.vectors.get` takes.
        outside_split: of the queries that the test clusters are compared with.
        runs: complete grids of MS-Shift shifts, for losses and their correlation.
        allow_missing: as for :func:`eval_kit.measures.score.score`.

    Raises:
        UserError: the release has no such queries; vectors or runs that cannot be used.
    """
    shifts = [shift.name for shift in clustered_in(release, "test")]
    if not shifts:
        raise UserError(f"{release.folder}: holds no topic, wh or length test queries")
    query_vectors = None
    if vectors is not None:
        tables = [release.table(shift, name) for shift in shifts for name in dict.fromkeys(["test", outside_split])]
        queries = pl.concat(table.select("query_id", "text") for table in tables)
        query_vectors = vector_sources.get(vectors, queries.unique("query_id", maintain_order=True))
    clusters = pl.concat(
        by_cluster(release, shift, query_vectors, "test", outside_split).select(pl.lit(shift).alias("shift"), pl.all())
        for shift in shifts
    )
    results = protocols(runs, release, allow_missing=allow_missing).results if runs else {}
    losses = _losses(results, clusters)
    by_system = {
        str(system): correlations(part["rel_loss"].to_numpy(), part["jaccard"].to_numpy())
        for (system,), part in losses.drop_nulls().group_by("system", maintain_order=True)
    }
    return Similarities(clusters, losses, by_system, release.digest)


def _by_kind(correlations: dict[str, Correlation]) -> dict[str, Any]:
    return {kind: asdict(correlation) for kind, correlation in correlations.items()}


def _losses(by_shift: Mapping[str, pl.DataFrame], clusters: pl.DataFrame) -> pl.DataFrame:
    columns = {"system": pl.String, "shift": pl.String, "cluster": pl.String, "rel_loss": pl.Float64}
    parts = [pl.DataFrame(schema=columns)]
    for shift, results in by_shift.items():
        if SHIFTS[shift].clustered:
            rows = results.filter(pl.col("measure") == MEASURE).with_columns(shift=pl.lit(shift))
            parts.append(rows.select(list(columns)))
    jaccard = clusters.select("shift", "cluster", "jaccard")
    return pl.concat(parts).join(jaccard, on=["shift", "cluster"], maintain_order="left")
