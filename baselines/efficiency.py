"""Latency and index size of systems over some passages of a dataset, beside BEIR's Table 3 (Thakur et al. 2021, §5.1).

The paper takes a random million of DBPedia's passages; its public benchmark takes the first million, as "it doesn't
matter" which, and so do we.
"""

import json
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from baselines import beir
from eval_kit.files import atomic, strict_json
from eval_kit.files.beir import judged_queries
from eval_kit.models.runs import latency_ms
from eval_kit.release.beir_suite import dataset_name, split_of
from eval_kit.release.reference import as_printed, published_cells
from eval_kit.search import shards
from eval_kit.search.gpus import gpus
from eval_kit.tables.table import Column, Table, number_columns

DEPTH = 10
"""Passages per query, as in BEIR's benchmark."""


@dataclass(frozen=True)
class Efficiency:
    """Each system's measurements: ``passages``, ``index_bytes``, ``latency_ms`` (median) and ``device``."""

    dataset: str
    measured: dict[str, dict[str, Any]]

    def table(self) -> Table:
        """Table 3: one row per system; latency on the kind of device that it used, and the index's size."""
        names = beir.published_as()
        cells = {(cell["system"], cell["measure"]): as_printed(cell) for cell in published_cells("beir2021-table3")}
        columns = [Column("system", "heading"), Column("passages", "number", wrap="never")]
        for group in ("latency GPU, ms", "latency CPU, ms", "index, GB"):
            columns += number_columns("ours", "BEIR", group=group, wrap="never")
        rows = []
        for system, figures in self.measured.items():
            name = names.get(system, system)
            row = [system, f"{figures['passages']:,}"]
            for where in ("gpu", "cpu"):
                latency = f"{figures['latency_ms']:,.1f}" if figures["device"] == where else ""
                row += [latency, cells.get((name, f"latency-{where}-ms"), "")]
            rows.append([*row, f"{figures['index_bytes'] / 1e9:.3g}", cells.get((name, "index-gb"), "")])
        notes = [f"Ours: passages of {self.dataset}; BEIR's: a million of DBPedia's, on its own machine."]
        return Table(columns, [rows], "Latency of one query and index size (BEIR, Table 3)", notes=notes)


def efficiency(systems: Sequence[str], folder: Path, passages: int, out: Path) -> Efficiency:
    """Index and search the first passages of a dataset with each system; earlier measurements are kept.

    Args:
        systems: as for :func:`baselines.beir.search`, without names of foreign runs.
        folder: in BEIR's format.
        passages: how many.
        out: for ``<system>.<dataset>.<passages>.json``; the index lies there until its system is measured.

    Raises:
        UserError: an unknown system; a folder not in BEIR's format.
    """
    for system in systems:
        beir.check(system, folder)
    dataset = dataset_name(folder)
    figures_of = {}
    for system in systems:
        path = out / f"{system}.{dataset}.{passages}.json"
        with atomic.lock(path):
            if not path.is_file():
                figures = _measure(system, folder, passages, path.with_suffix(".index"))
                atomic.write_text(path, json.dumps(figures, indent=1) + "\n")
        figures_of[system] = strict_json.read(path)
    return Efficiency(dataset, figures_of)


def _measure(system: str, folder: Path, most: int, index: Path) -> dict[str, Any]:
    retriever = beir.retriever(system, folder, most)
    retriever.index(beir.passages(folder, most), index)
    on_gpu = system not in beir.LEXICAL and gpus()
    figures = {
        "passages": sum(1 for _ in beir.passages(folder, most)),
        "index_bytes": shards.index_bytes(index),
        "latency_ms": latency_ms(retriever, judged_queries(folder, split_of(folder)), index, DEPTH),
        "device": "gpu" if on_gpu else "cpu",
    }
    shutil.rmtree(index, ignore_errors=True)
    return figures
