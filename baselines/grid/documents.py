"""The documents in a cell's folder: ``cell.json`` from the start, ``done.json`` when nothing is left to do."""

import dataclasses
import importlib.metadata
import json
import os
import platform
import sys
from collections.abc import Mapping
from typing import Any

from baselines import systems
from baselines.cells.cell import Cell
from baselines.cells.journal import Journal
from baselines.model_card import render
from baselines.options import Trained
from baselines.training.queries import allowed
from eval_kit import __version__
from eval_kit.errors import UserError
from eval_kit.files import atomic
from eval_kit.files.digests import file_sha256
from eval_kit.protocols.scores import Scores
from eval_kit.release import title
from eval_kit.search.processes import cores

LIBRARIES = (
    "torch", "transformers", "sentence-transformers", "tokenizers", "faiss-cpu", "fast-plaid", "pyserini", "numpy",
    "scipy", "polars",
)  # fmt: skip


def describe(cell: Cell) -> None:
    """Make the cell's folder, with a ``cell.json`` that describes the cell.

    Raises:
        UserError: the folder cannot be made, or there is no such backbone or teacher.
    """
    path = cell.folder / "cell.json"
    if path.is_file():
        return
    try:
        cell.folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"{cell.folder}: cannot be made: {error.strerror}") from error
    atomic.write_text(path, json.dumps(_description(cell), indent=1) + "\n")


def conclusion(cell: Cell, journal: Journal, scores: Scores) -> dict[str, Any]:
    """The ``done.json`` (schemas/cell.schema.json) of a cell, from its run's scores."""
    [source] = scores.provenance["runs"]
    return _description(cell) | {
        "training": journal.facts["training"],
        "excluded": allowed(cell).excluded if isinstance(cell.options, Trained) else {},
        "seconds": {stage: round(seconds, 3) for stage, seconds in journal.seconds.items()},
        "index_bytes": journal.facts["indexing"]["bytes"],
        "run": {
            "file": cell.name.file,
            "sha256": file_sha256(cell.run),
            "lines": source["lines"],
            "queries": source["queries"],
        },
        "sparsity": json.loads(cell.sparsity.read_text(encoding="utf-8")) if cell.sparsity.is_file() else None,
        "variations": {name: file_sha256(run) for name, run in cell.runs_of_variations.items()},
        "figures": [
            {"test_set": figure.test_set, "measure": figure.measure, "value": figure.value, "queries": figure.queries}
            for figure in scores.means
        ],
        "device": _device(),
        "threads": int(os.environ.get("OMP_NUM_THREADS", cores())),
        "libraries": _libraries(),
    }


def conclude(cell: Cell, done: Mapping[str, Any]) -> None:
    """Write ``done.json``: nothing is left to do."""
    atomic.write_text(cell.folder / "done.json", json.dumps(done, indent=1) + "\n")


def write_card(cell: Cell, done: Mapping[str, Any]) -> None:
    """Write the model's card, ``README.md`` in its folder.

    Args:
        cell: the one whose model was trained.
        done: from :func:`conclusion`.
    """
    training, options = done["training"], cell.options_as(Trained)
    pretrained = isinstance(options.backbone, str) and not options.random_weights
    facts = {name: done["cell"][name] for name in ("system", "shift", "held_out", "seed")}
    facts |= {name: done[name] for name in ("code_version", "libraries", "figures")}
    manifest = cell.release.manifest
    collection = manifest.collection or manifest.built_from
    facts["release"] = done["release"] | {"title": title(manifest), "collection": collection}
    facts |= {name: training[name] for name in ("steps", "train_queries", "device")}
    card = render(
        facts
        | {
            "architecture": systems.system(cell.name.system).TITLE,
            "backbone": options.backbone if pretrained else None,
            "config": done["options"],
            "train_seconds": done["seconds"]["training"],
        }
    )
    atomic.write_text(cell.model / "README.md", card)


def _description(cell: Cell) -> dict[str, Any]:
    release = cell.release
    return {
        "digest": cell.digest,
        "cell": dataclasses.asdict(cell.name),
        "release": {"version": release.version, "kind": release.manifest.kind, "digest": release.digest},
        "options": cell.options.as_json(),
        "code_version": __version__,
        "backbone_commit": cell.backbone_commit,
        "teacher_commit": cell.teacher_commit,
    }


def _device() -> str:
    torch = sys.modules.get("torch")
    return str(torch.cuda.get_device_name()) if torch is not None and torch.cuda.is_available() else "cpu"


def _libraries() -> dict[str, str]:
    """Name and version of the installed libraries that can change a result."""
    installed = {library.metadata["Name"].lower(): library.version for library in importlib.metadata.distributions()}
    return {"python": platform.python_version()} | {name: installed[name] for name in LIBRARIES if name in installed}
