"""``ir-metadata.yml`` (ir-metadata.org) as a submission: what CLEF's LongEval demands and tirex-tracker writes.

docs/submissions.md says which of its fields stands for which of submission.json.
"""

from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

from eval_kit.files import strict_yaml
from eval_kit.files.opening import is_file
from eval_kit.release import Release

DOCUMENT = "ir-metadata.yml"
GAPS = (
    "does not say which release its runs were made for (taken as this one), which of them are of a grid (taken from "
    "their names), nor the licence, and has no late interaction or cross-encoders (taken as other)"
)
PLACEHOLDER = "ENTER_VALUE_HERE"
"""Marks a field of LongEval's template that is still to be filled in."""

_ARCHITECTURES = {"lexical": "lexical", "sparse_neural_model": "sparse", "dense_neural_model": "dense"}
_NO_RUNS = (".yml", ".yaml", ".json", ".md")


def read(folder: Path, release: Release, most: int) -> tuple[dict[str, Any], list[str]]:
    """The submission that a folder's ir-metadata.yml describes, and the required fields that it lacks.

    Args:
        folder: the submission.
        release: the one that the runs are assumed to be made for.
        most: bytes that the document may have.

    Raises:
        UserError: it cannot be read, or is not YAML.
    """
    metadata = strict_yaml.read(folder / DOCUMENT, most)
    repository = _text(metadata, "implementation", "source", "repository")
    hardware = (_text(metadata, "platform", "hardware", *names) for names in (("cpu", "model"), ("ram",)))
    document: dict[str, Any] = {
        "system": _text(metadata, "tag"),
        "team": _text(metadata, "actor", "team"),
        "architecture": _architecture(metadata),
        "training_data": list(_training_data(metadata)),
        "licence": "unknown",
        "links": [repository] if repository.startswith(("https://", "http://")) else [],
        "hardware": ", ".join(filter(None, hardware)),
        "notes": _text(metadata, "research goal", "description"),
        "release": {"version": release.version, "digest": release.digest},
        "runs": [{"file": name} for name in _files(folder)],
    }
    required_fields = {"tag": "system", "actor, team": "team", "data, training data": "training_data"}
    faults = [f"{DOCUMENT}: {field} is missing" for field, name in required_fields.items() if not document[name]]
    return document, faults if document["runs"] else [*faults, f"{DOCUMENT}: there is no run beside it"]


def _at(value: Any, *names: str) -> Any:
    for name in names:
        value = value.get(name) if isinstance(value, dict) else None
    return value


def _text(metadata: Any, *names: str) -> str:
    value = _at(metadata, *names)
    return value.strip() if isinstance(value, str) and value != PLACEHOLDER else ""


def _items_of(metadata: Any, *names: str) -> list[Any]:
    value = _at(metadata, *names)
    return value if isinstance(value, list) else [value]


def _training_data(metadata: Any) -> Iterator[str]:
    for source in _items_of(metadata, "data", "training data"):
        identifier = _text(source, "ir_datasets").rpartition("#")[2].removeprefix("https://ir-datasets.com/")
        if name := identifier or _text(source, "name"):
            yield "none" if name.lower() == "nothing" else name


def _architecture(metadata: Any) -> str:
    parts = set()
    for stage, flag in product(_items_of(metadata, "method", "retrieval"), _ARCHITECTURES):
        if _text(stage, flag).lower() in ("yes", "true", "on"):
            parts.add(_ARCHITECTURES[flag])
    return parts.pop() if len(parts) == 1 else "hybrid" if parts else "other"


def _files(folder: Path) -> Iterator[str]:
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder)
        is_hidden = any(part.startswith(".") for part in name.parts)
        if is_file(path) and not is_hidden and path.suffix.lower() not in _NO_RUNS:
            yield name.as_posix()
