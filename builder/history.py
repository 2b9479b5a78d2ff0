"""The version history of a release: how each version differs from its predecessor, newest first."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from builder.diff import diff
from eval_kit.documents import Manifest
from eval_kit.errors import UserError
from eval_kit.files import atomic, schemas
from eval_kit.release import Release

FILE = "reports/history.json"


def read(folder: Path) -> list[dict[str, Any]]:
    """The steps of ``reports/history.json`` (schema ``history``); none if a release has no such file.

    Raises:
        UserError: the file is not readable or does not follow its schema.
    """
    path = folder / FILE
    if not path.is_file():
        return []
    try:
        document = schemas.read("history", path)
    except UserError as error:
        raise UserError(f"{error}; write it again with 'python -m builder card --previous'") from error
    steps: list[dict[str, Any]] = document["versions"]
    return steps


def write(release: Release, previous: Release) -> None:
    """Record in the folder of ``release`` how it differs from ``previous``, ahead of the history of ``previous``.

    Raises:
        UserError: ``previous`` has the same or a later version, or the file cannot be written.
    """
    if number(previous.version) >= number(release.version):
        raise UserError(
            f"{previous.folder}: holds version {previous.version}, which does not come before {release.version}; "
            "name the version before"
        )
    changes = [
        {
            "config": table.config,
            "split": table.split,
            "entered": len(table.entered),
            "left": len(table.left),
            "moved": len(table.moved),
            "whole": table.whole,
        }
        for table in diff(previous, release)
    ]
    step = {"release": _named(release.manifest), "previous": _named(previous.manifest), "changes": changes}
    document = {"versions": [step, *read(previous.folder)]}
    path = release.folder / FILE
    path.parent.mkdir(exist_ok=True)
    atomic.write_text(path, json.dumps(document, indent=1) + "\n")


def tells(steps: Sequence[Mapping[str, Any]], manifest: Manifest, previous: Mapping[str, Any]) -> bool:
    """Whether the newest step leads from the release of ``previous`` to that of ``manifest``."""
    before = {"version": previous["version"], "digest": previous["digest"]}
    ends = {"release": _named(manifest), "previous": before}
    return bool(steps) and all(steps[0][name] == end for name, end in ends.items())


def number(version: str) -> tuple[int, ...]:
    """A semantic version as numbers, which compare as versions do."""
    return tuple(int(part) for part in version.split("."))


def _named(manifest: Manifest) -> dict[str, str]:
    return {"version": manifest.version, "digest": manifest.digest}
