"""Nearness of each test query to the training queries of the model that never saw its cluster (ECIR 2023 §5.2)."""

from collections.abc import Mapping
from pathlib import Path

import polars as pl

from eval_kit.errors import UserError
from eval_kit.protocols.grid_results import Protocols
from eval_kit.release import Release
from eval_kit.runs.names import run_name
from eval_kit.shifts import CLUSTERED, SHIFTS
from eval_kit.stats.similarity import to_training
from eval_kit.stats.vectors import Vectors, read


def nearness(grid: Protocols, release: Release, vectors: Vectors | Mapping[str, Vectors]) -> pl.DataFrame:
    """R(q, train) of every test query of the topic, wh and length shifts of a grid (ECIR 2023 §5.2).

    Args:
        grid: the one whose shifts are taken.
        release: for the queries; it must hold the shifts' train splits.
        vectors: from one model for all; or by test set, as ``topic.c0``, from the model trained without that cluster.

    Returns:
        ``shift``, ``part`` (the cluster), ``query_id``, ``r``.

    Raises:
        UserError: no such shift among the runs, no vectors for a test set, or a query without a vector.
    """
    frames = []
    for shift in grid.results:
        for cluster in grid.clusters[shift] if SHIFTS[shift].clustered else ():
            name = f"{shift}.{cluster}"
            of_model = vectors if isinstance(vectors, Vectors) else vectors.get(name)
            if of_model is None:
                known = "" if isinstance(vectors, Vectors) else ", ".join(vectors)
                raise UserError(f"no vectors of the model trained without {name}; given: {known}")
            r = to_training(release, shift, cluster, of_model)
            frames.append(r.select(pl.lit(shift).alias("shift"), "query_id", "r", part="cluster"))
    if not frames:
        raise UserError(f"these runs need no vectors: none is of a shift with clusters ({', '.join(CLUSTERED)})")
    return pl.concat(frames)


def queries_to_encode(grid: Protocols, release: Release) -> pl.DataFrame:
    """``query_id`` and ``text`` of all queries that :func:`nearness` needs vectors of, each once."""
    frames = [
        release.table(shift, split).select("query_id", "text")
        for shift in grid.results
        if SHIFTS[shift].clustered
        for split in ("test", "train")
    ]
    if not frames:
        raise UserError(f"these runs need no vectors: none is of a shift with clusters ({', '.join(CLUSTERED)})")
    return pl.concat(frames).unique("query_id", keep="first", maintain_order=True)


def vectors_beside(grid: Protocols, release: Release) -> dict[str, Vectors]:
    """The query vectors beside the runs of a grid, where the baselines' grid keeps those of its bi-encoders.

    They are ``<run>.npy`` and ``<run>.ids.txt`` beside ``<run>.trec`` (see :mod:`eval_kit.stats.vectors`), of the first
    system and seed that has them for every topic, wh and length cluster of the grid.

    Args:
        grid: from :func:`eval_kit.protocols.grid_results.protocols`.
        release: the one that was scored on.

    Returns:
        By test set, as ``topic.c0``, the vectors of the model trained without that cluster; empty if there are none.

    Raises:
        UserError: a file that cannot be read.
    """
    shifts = [shift for shift in grid.results if SHIFTS[shift].clustered]
    if any("train" not in release.configs[shift] for shift in shifts):
        return {}
    runs = {entry["run"]: Path(entry["file"]) for entry in grid.provenance["runs"]}
    cells = grid.values.select("system", "seed", "shift", "held_out", "run").unique(maintain_order=True)
    for _, model in cells.filter(pl.col("shift").is_in(shifts)).group_by("system", "seed", maintain_order=True):
        files = {}
        for shift, held_out, run in model.select("shift", "held_out", "run").iter_rows():
            files[f"{shift}.{held_out}"] = runs[run].with_name(f"{run_name(runs[run])}.npy")
        if all(file.is_file() for file in files.values()):
            return {test_set: read(file) for test_set, file in files.items()}
    return {}
