"""Similarity of every cluster to the others of its shift, and the correlation of losses with it (ECIR 2023 §5.2)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import polars as pl

from eval_kit import __version__, plots
from eval_kit.authors.opening import ReleaseSource, open_release
from eval_kit.errors import UserError, choices
from eval_kit.protocols.grid_results import Protocols, protocol
from eval_kit.protocols.in_out import main_measure
from eval_kit.release import Release
from eval_kit.results import Picture, Result
from eval_kit.runs.given import GivenRuns, take
from eval_kit.runs.names import run_name
from eval_kit.shifts import CLUSTERED, SHIFTS
from eval_kit.stats import vectors as vector_sources
from eval_kit.stats.figure import LEVEL, Figure
from eval_kit.stats.losses import FEWEST_PAIRS, RESAMPLES, spearman
from eval_kit.stats.similarity import by_cluster, cluster_splits, mean_dot, test_and_training
from eval_kit.stats.vectors import Vectors, read
from eval_kit.tables.table import Column, Table, laid_out, with_p


@dataclass(frozen=True)
class Figure3:
    """Losses on held-out clusters against the clusters' similarity to the others (ECIR 2023, Figure 3).

    Attributes:
        measure: of the losses.
        points: ``system``, ``shift``, ``cluster``, ``rel_loss``, ``low`` and ``high`` (of the loss), ``jaccard``,
            ``queries`` (the splits that the Jaccard was taken of) and ``size``, how many they are.
        correlations: system → Spearman's correlation of Jaccard and loss over all clusters, and the one given the
            clusters' sizes, which Jaccard goes with.
    """

    measure: str
    points: pl.DataFrame
    correlations: dict[str, tuple[Figure, Figure]]

    def as_json(self) -> dict[str, Any]:
        """Plain JSON values."""
        correlations = {}
        for system, figures in self.correlations.items():
            counts = {"level": LEVEL, "n": self._clusters(system), "seeds": 1, "resamples": RESAMPLES}
            correlations[system] = [_document(figure, counts) for figure in figures]
        return {"measure": self.measure, "points": self.points.to_dicts(), "correlations": correlations}

    def _clusters(self, system: str) -> int:
        return self.points.drop_nulls("rel_loss").filter(pl.col("system") == system).height

    def table(self) -> Table:
        """One row per system: how its losses correlate with the similarity."""
        rows = []
        for system, (correlation, given_size) in self.correlations.items():
            rows.append({"system": system, "all": correlation, "size": given_size, "n": self._clusters(system)})
        columns = [
            Column("System", source="system"),
            Column("Spearman", "number", "all", with_p),
            Column("given size", "number", "size", with_p),
            Column("n", "number"),
        ]
        shifts = " and ".join(self.points["shift"].unique(maintain_order=True))
        title = f"Correlation of {self.measure} Rel Loss and Jaccard over the clusters of {shifts}"
        within = " of orders within each shift" if self.points["shift"].n_unique() > 1 else ""
        about = f"p{within}, and from {FEWEST_PAIRS} clusters on 95 % bootstrap intervals"
        return laid_out(rows, columns, title=f"{title}, with {about}")


@dataclass(frozen=True, repr=False)
class Similarities(Result):
    """Similarity by cluster; with grid runs also how each system's losses correlate with it.

    Attributes:
        clusters: ``shift``, ``cluster``, ``queries`` (the splits compared), ``n``, ``others``, ``jaccard`` and, with
            vectors, ``cosine``; with vectors beside the runs, ``r``: the mean of R(q, train) over the cluster's test
            queries, for the model that never saw it (ECIR 2023 §5.2, equation 1).
        figure_3: None without runs.
        provenance: of the runs' scores; without runs, the release and the kit's version.
    """

    title = "Similarity of each cluster to the others"

    clusters: pl.DataFrame
    figure_3: Figure3 | None
    provenance: dict[str, Any]
    otherwise: Sequence[str] = ()

    def to_polars(self) -> pl.DataFrame:
        """One row per cluster: ``clusters``."""
        return self.clusters

    def content(self) -> dict[str, Any]:
        """Plain JSON values."""
        figure_3 = self.figure_3.as_json() if self.figure_3 else None
        return {"clusters": self.clusters.to_dicts(), "figure_3": figure_3}

    def tables(self) -> list[Table]:
        """The similarities; with runs, also the correlations."""
        columns = []
        for name, kind in self.clusters.schema.items():
            columns.append(Column(name, "text" if kind == pl.String else "number", format=".4f" * kind.is_float()))
        similarities = laid_out(self.clusters, columns)
        return [similarities, self.figure_3.table()] if self.figure_3 else [similarities]

    def summary(self) -> list[str]:
        """The cluster of each shift with the fewest words in common with the others; none where several are equal."""
        sentences = []
        for (shift,), rows in self.clusters.group_by("shift", maintain_order=True):
            shown = rows["jaccard"].round(3)
            if (shown == shown.min()).sum() > 1:  # always so of two parts
                continue
            row = rows.row(shown.arg_min(), named=True)
            text = (
                f"{row['cluster']} has the fewest words in common with the other parts (Jaccard {row['jaccard']:.3f})"
            )
            sentences.append(f"{SHIFTS[str(shift)].title}: {text}.")
        return sentences

    def figures(self) -> list[Picture]:
        """With runs ECIR 2023's Figure 3; without, the similarity of each shift's clusters."""
        if self.figure_3 is None:
            figures = []
            axis = "weighted Jaccard similarity to the other clusters"
            for (shift,), rows in self.clusters.group_by("shift", maintain_order=True):
                bars = [(name, value, f"{value:.3f}") for name, value in rows.select("cluster", "jaccard").iter_rows()]
                title = f"{SHIFTS[str(shift)].title}: {axis}. The shorter the bar, the further the shift."
                figures.append(Picture(plots.bars(bars, axis, title), title))
            return figures
        points, measure = self.figure_3.points, self.figure_3.measure
        systems = points["system"].unique(maintain_order=True).to_list()
        caption = "Figure 3 of ECIR 2023: the loss on each held-out cluster against its similarity to the others."
        return [Picture(plots.loss_against_jaccard(points, systems, measure), caption, systems)]


def similarity(
    release: ReleaseSource = None, runs: GivenRuns = (), *, vectors: str | None = None, allow_missing: bool = False
) -> Similarities:
    """Measure how near each cluster is to the others (weighted Jaccard, cosine), and how losses correlate with that.

    Args:
        release: the one whose MS-Shift clusters are compared.
        runs: of complete grids, to correlate their losses with the similarities (ECIR 2023 §5.2).
        vectors: model or file for the cosine, as :func:`eval_kit.stats.vectors.get` takes.
        allow_missing: score test sets that a run covers only in part.

    Raises:
        UserError: the release has no such queries; vectors or runs that cannot be used.
    """
    release = open_release(release)
    [taken] = take(runs=runs)
    shifts = [shift for shift in CLUSTERED if "test" in release.configs.get(shift, [])]
    if not shifts:
        raise UserError(f"{release.folder} has no topic, wh or length test queries")
    query_vectors = None
    if vectors is not None:
        query_vectors = vector_sources.get(vectors, _queries(release, shifts))
    clusters = _whole_clusters(release, shifts, query_vectors)
    if not taken:
        return Similarities(clusters, None, {"kit_version": __version__, "release": release.identity})
    grid = protocol(taken, release, allow_missing=allow_missing)
    if beside := vectors_beside(grid, release):
        r = nearness(grid, release, beside).group_by("shift", cluster="part").agg(pl.col("r").mean())
        clusters = clusters.join(r, on=["shift", "cluster"], how="left", maintain_order="left")
    return Similarities(clusters, figure_3(grid, release), grid.provenance, grid.otherwise)


def _document(rho: Figure, counts: dict[str, Any]) -> dict[str, Any]:
    low, high = rho.interval
    estimate = {"value": rho.value, "low": low, "high": high, **counts, "undefined": rho.undefined}
    return {"estimate": estimate, "p": rho.p}


def _whole_clusters(release: Release, shifts: Sequence[str], vectors: Vectors | None = None) -> pl.DataFrame:
    """Similarity of whole clusters, train and test queries together, as in ECIR 2023 §5.2.

    A shift without training queries in the release is compared by its test queries; the column ``queries`` says so.

    Returns:
        ``shift``, ``cluster``, ``queries``, ``n``, ``others``, ``jaccard`` and, with vectors, ``cosine``.
    """
    frames = []
    for shift in shifts:
        splits = cluster_splits(release, shift)
        queries = pl.lit(" and ".join(splits)).alias("queries")
        clusters = by_cluster(release, shift, vectors, splits)
        frames.append(clusters.select(pl.lit(shift).alias("shift"), "cluster", queries, pl.exclude("cluster")))
    return pl.concat(frames)


def figure_3(grid: Protocols, release: Release) -> Figure3 | None:
    """Each system's loss on each held-out cluster against the cluster's similarity to the others.

    Topic and wh clusters together, as in the paper; length clusters only where there are no others. None without
    any of them.
    """
    shifts = [shift for shift in CLUSTERED if shift in grid.results]
    shifts = [shift for shift in shifts if SHIFTS[shift].correlates] or shifts
    if not shifts:
        return None
    measure = main_measure(grid.results[shifts[0]])
    losses = []
    for shift in shifts:
        names = ("system", pl.lit(shift).alias("shift"), "cluster")
        rows = grid.results[shift].filter(pl.col("measure") == measure)
        losses.append(rows.select(*names, "rel_loss", low="rel_loss_low", high="rel_loss_high"))
    jaccard = _whole_clusters(release, shifts).select("shift", "cluster", "jaccard", "queries", size="n")
    points = pl.concat(losses).join(jaccard, on=["shift", "cluster"], maintain_order="left")
    by_system = {}
    for (system,), group in points.drop_nulls("rel_loss").group_by("system", maintain_order=True):
        correlate = partial(
            spearman, group["jaccard"], group["rel_loss"], within=group["shift"], seed=grid.provenance["seed"]
        )
        by_system[str(system)] = correlate(), correlate(given=group["size"])
    return Figure3(measure, points, by_system)


def nearness(grid: Protocols, release: Release, vectors: Vectors | Mapping[str, Vectors]) -> pl.DataFrame:
    """R(q, train) of every test query of the topic, wh and length shifts of a grid (ECIR 2023 §5.2).

    Args:
        grid: the one whose shifts are taken.
        release: for the queries; it must hold the shifts' train splits.
        vectors: from one model for all; or by test set, as ``topic.c0``, from the model trained without that cluster,
            as the paper's are, from another bi-encoder for every cluster.

    Returns:
        ``shift``, ``part`` (the cluster), ``query_id``, ``r``.
    """
    frames = []
    for shift in grid.results:
        for cluster in grid.clusters[shift] if SHIFTS[shift].has_clusters else ():
            name = f"{shift}.{cluster}"
            of_model = vectors if isinstance(vectors, Vectors) else vectors.get(name)
            if of_model is None:
                source = "" if isinstance(vectors, Vectors) else f", only of {choices(vectors)}"
                raise UserError(f"There are no vectors of the model trained without {name}{source}")
            test, training = test_and_training(release, shift, cluster)
            r = mean_dot(of_model.of(test["query_id"]), of_model.of(training["query_id"]))
            names = (pl.lit(shift).alias("shift"), "query_id")
            frames.append(test.select(*names, r=pl.Series(r), part=pl.lit(cluster)))
    return pl.concat(frames)


def queries_to_encode(grid: Protocols, release: Release) -> pl.DataFrame:
    """``query_id`` and ``text`` of all queries that :func:`nearness` needs vectors of, each once."""
    shifts = _with_clusters(grid)
    if not shifts:
        raise UserError("These runs need no vectors", f"None is of a shift with clusters ({', '.join(CLUSTERED)})")
    return _queries(release, shifts)


def _queries(release: Release, shifts: Sequence[str]) -> pl.DataFrame:
    tables = []
    for shift in shifts:
        for split in cluster_splits(release, shift):
            tables.append(release.table(shift, split).select("query_id", "text"))
    return pl.concat(tables).unique("query_id", maintain_order=True)


def _with_clusters(grid: Protocols) -> list[str]:
    return [shift for shift in grid.results if SHIFTS[shift].has_clusters]


def vectors_beside(grid: Protocols, release: Release) -> dict[str, Vectors]:
    """The query vectors beside the runs of a grid, where the baselines' grid keeps those of its bi-encoders.

    They are ``<run>.npy`` and ``<run>.ids.txt`` beside ``<run>.trec`` (see :mod:`eval_kit.stats.vectors`), of the first
    system and seed that has them for every topic, wh and length cluster of the grid.

    Returns:
        By test set, as ``topic.c0``, the vectors of the model trained without that cluster; empty if there are none.
    """
    shifts = _with_clusters(grid)
    if any("train" not in release.configs[shift] for shift in shifts):
        return {}
    runs = {entry["run"]: Path(entry["file"]) for entry in grid.provenance["runs"]}
    cells = grid.values.select("system", "seed", "shift", "held_out", "run").unique(maintain_order=True)
    for _, model in cells.filter(pl.col("shift").is_in(shifts)).group_by("system", "seed", maintain_order=True):
        files = {}
        for shift, held_out, run in model.select("shift", "held_out", "run").iter_rows():
            files[f"{shift}.{held_out}"] = runs[run].with_name(f"{run_name(runs[run])}.npy")
        if all(map(Path.is_file, files.values())):
            return dict(zip(files, map(read, files.values()), strict=True))
    return {}
