"""The documents in a cell's folder: ``cell.json`` from the start, ``done.json`` when nothing is left to do."""

import dataclasses
import importlib.metadata
import json
import os
import platform
from collections.abc import Mapping
from typing import Any

import msgspec

from baselines import systems
from baselines.cell import Cell
from baselines.model_card import render
from baselines.options import Trained
from baselines.training.queries import queries_for
from baselines.training.trainer import device
from eval_kit import __version__
from eval_kit.documents import FinishedCell
from eval_kit.errors import disk_errors
from eval_kit.files import atomic
from eval_kit.files.digests import file_sha256
from eval_kit.protocols.scores import Scores
from eval_kit.release import title
from eval_kit.search.processes import cores
from eval_kit.search.shards import index_bytes

_LIBRARIES = (
    "torch", "transformers", "sentence-transformers", "tokenizers", "faiss-cpu", "fast-plaid", "pyserini", "numpy",
    "scipy", "polars",
)  # fmt: skip


def describe(cell: Cell) -> None:
    """Make the cell's folder, with a ``cell.json`` that describes the cell."""
    path = cell.folder / "cell.json"
    if path.is_file():
        return
    with disk_errors(cell.folder):
        cell.folder.mkdir(parents=True, exist_ok=True)
    atomic.write_text(path, json.dumps(description(cell), indent=1) + "\n")


def conclusion(cell: Cell, training: Mapping[str, Any], scores: Scores) -> FinishedCell:
    """The ``done.json`` of a cell, from the facts of its training and its run's scores."""
    [source] = scores.provenance["runs"]
    facts = description(cell) | {
        "training": training,
        "excluded": queries_for(cell).excluded if isinstance(cell.options, Trained) else {},
        "seconds": {stage: round(seconds, 3) for stage, seconds in cell.seconds.items()},
        "index_bytes": index_bytes(systems.index_folder(cell)),
        "run": {
            "file": cell.name.file,
            "sha256": file_sha256(cell.run),
            "lines": source["lines"],
            "queries": source["queries"],
        },
        "sparsity": json.loads(cell.sparsity.read_text(encoding="utf-8")) if cell.sparsity.is_file() else None,
        "variations": {name: file_sha256(run) for name, run in cell.runs_of_variations.items()},
        "figures": scores.means,
        "device": device(),
        "threads": int(os.environ.get("OMP_NUM_THREADS", cores())),
        "libraries": _libraries(),
    }
    return msgspec.convert(facts, FinishedCell, from_attributes=True)


def write_card(cell: Cell, finished_cell: FinishedCell) -> None:
    """Write the card of the cell's model, ``README.md`` in its folder; ``finished_cell`` is from :func:`conclusion`."""
    options = cell.options_as(Trained)
    backbone = options.backbone if isinstance(options.backbone, str) and not options.random_weights else None
    manifest = cell.release.manifest
    architecture, collection = systems.system(cell.name.system).TITLE, manifest.collection or manifest.built_from
    card = render(finished_cell, architecture, backbone, title(manifest), collection)
    atomic.write_text(cell.model / "README.md", card)


def description(cell: Cell) -> dict[str, Any]:
    """What ``cell.json`` says."""
    release = cell.release
    return {
        "digest": cell.digest,
        "cell": dataclasses.asdict(cell.name),
        "release": {"version": release.version, "kind": release.manifest.kind, "digest": release.digest},
        "options": cell.options.as_json(),
        "code_version": __version__,
        "backbone_commit": cell.commit("backbone"),
        "teacher_commit": cell.commit("teacher"),
    }


def _libraries() -> dict[str, str]:
    """Name and version of the installed libraries that can change a result."""
    versions = {library.metadata["Name"].lower(): library.version for library in importlib.metadata.distributions()}
    return {"python": platform.python_version()} | {name: versions[name] for name in _LIBRARIES if name in versions}
