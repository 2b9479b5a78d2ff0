"""Whether a run in a folder is what the same search would make again: then nothing is searched.

Beside the index of a run lies ``<run>.made``: the sha256 of all that decides the run, and that of the file. A model is
known by its files, its options, and the similarities that it finds between fixed texts.
"""

import hashlib
import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import fields
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import polars as pl

from eval_kit import __version__
from eval_kit.errors import disk_errors
from eval_kit.files import atomic, checkpoint
from eval_kit.files.digests import file_sha256
from eval_kit.models.bm25 import Bm25
from eval_kit.models.encoder import PretrainedModel
from eval_kit.models.precision import similarities
from eval_kit.search.retriever import Retriever
from eval_kit.search.shards import PROBE

_LIBRARIES = ("pyserini", "sentence-transformers", "torch", "transformers")
_NOT_DECIDING = ("corpus", "first", "loaded")
"""Fields of a retriever that other parts of the identity stand for."""


def maker(retriever: Retriever, passages: str, depth: int, first: Path | None = None) -> list[Any]:
    """All that decides a run but its queries."""
    versions = {"eval_kit": __version__}
    for library in _LIBRARIES:
        with suppress(PackageNotFoundError):
            versions[library] = version(library)
    first_stage = file_sha256(first) if first else None
    return [versions, _model(retriever), passages, depth, first_stage]


def _model(retriever: Any) -> list[Any]:
    """What a model is, how it was asked to run, and what it finds."""
    if isinstance(retriever, Bm25 | PretrainedModel):
        names = (field.name for field in fields(retriever) if field.init and field.name not in _NOT_DECIDING)
        model: list[Any] = [type(retriever).__name__, {name: getattr(retriever, name) for name in names}]
    else:
        model = [retriever.identity]
    if isinstance(retriever, Bm25):
        return model
    if isinstance(retriever, PretrainedModel):
        second = getattr(retriever, "query_model", None) or retriever.model
        model += [retriever.digest, second == retriever.model or checkpoint.digest(second), retriever.dtype]
    found, why = similarities(retriever, PROBE, PROBE)
    return [*model, why if found is None else found.tolist()]


def identity(made_by: Sequence[Any], queries: pl.DataFrame) -> str:
    """The sha256 of what makes a run: :func:`maker`, and the ids and texts of the queries."""
    document = json.dumps([*made_by, queries.select("query_id", "text").rows()])
    return hashlib.sha256(document.encode()).hexdigest()


def is_finished(run: Path, index: Path, made_of: str) -> bool:
    """Whether the file is the finished run of that identity, as it was written."""
    kept = _record(run, index)
    return run.is_file() and kept.is_file() and kept.read_bytes() == _line(run, made_of)


def record(run: Path, index: Path, made_of: str) -> None:
    """Say beside its index what a finished run was made of."""
    with disk_errors(index):
        atomic.write_text(_record(run, index), _line(run, made_of).decode())


def _line(run: Path, made_of: str) -> bytes:
    return f"{made_of} {file_sha256(run)}\n".encode()


def _record(run: Path, index: Path) -> Path:
    return index / f"{run.stem}.made"
