"""The reports in a release's ``reports/``, as far as the card shows them, and the history of its versions among them.

The content digest does not cover reports. So each JSON report names the release that it was made from, and an outdated
one is noticed; a picture goes with the JSON report of the same run.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from builder.diff import diff
from eval_kit.documents import Manifest
from eval_kit.errors import UserError
from eval_kit.files import atomic, strict_json
from eval_kit.files.schemas import validate
from eval_kit.release import Release

AUDIT = "reports/audit.json"
SIMILARITY = "reports/similarity.json"
HISTORY = "reports/history.json"
PICTURES = {
    "reports/similarity.png": "How alike the clusters are: weighted Jaccard of words, mean cosine of queries",
    "reports/topics.png": "Topic test queries, projected to two dimensions by t-SNE; the encoder is in the title",
}
"""With their captions; their data are in ``similarity.json``."""


@dataclass(frozen=True)
class Reports:
    """What the card shows: the audit's headline, pictures with their captions, the earlier versions.

    ``outdated`` lists reports that were made from other content and are not shown.
    """

    headline: str
    pictures: Mapping[str, str]
    history: list[dict[str, Any]]
    outdated: list[str]


def read(folder: Path, manifest: Manifest) -> Reports:
    """The reports of the release in ``folder``; each is optional.

    Raises:
        UserError: a report is not readable or does not follow its schema.
    """
    audit, similarity, steps = _json(folder / AUDIT), _json(folder / SIMILARITY), history(folder)
    made_of = {AUDIT: audit, SIMILARITY: similarity, HISTORY: steps[0] if steps else {}}
    of_this = {name for name, report in made_of.items() if report and _digest(report) == manifest.digest}
    if AUDIT in of_this:
        _follow_schema(folder / AUDIT, "audit", audit)
    pictures = {}
    if SIMILARITY in of_this:
        pictures = {path: caption for path, caption in PICTURES.items() if (folder / path).is_file()}
    return Reports(
        headline=audit["headline"] if AUDIT in of_this else "",
        pictures=pictures,
        history=steps if HISTORY in of_this else [],
        outdated=[name for name, report in made_of.items() if report and name not in of_this],
    )


def history(folder: Path) -> list[dict[str, Any]]:
    """How each version differs from the one before, newest first (schema ``history``); empty without such a report.

    Raises:
        UserError: the report is not readable or does not follow its schema.
    """
    document = _json(folder / HISTORY)
    if document:
        _follow_schema(folder / HISTORY, "history", document)
    steps: list[dict[str, Any]] = document.get("versions", [])
    return steps


def add_history(release: Release, previous: Release) -> None:
    """Record in the folder of ``release`` how it differs from ``previous``, ahead of the history of ``previous``.

    Raises:
        UserError: ``previous`` has the same or a later version, or the file cannot be written.
    """
    if version_number(previous.version) >= version_number(release.version):
        raise UserError(
            f"{previous.folder}: holds version {previous.version}, which does not come before {release.version}; "
            "name the version before"
        )
    changes = []
    for table in diff(previous, release):
        counts = {"entered": len(table.entered), "left": len(table.left), "moved": len(table.moved)}
        changes.append(asdict(table) | counts)
    ends = {"release": identity(release.manifest.as_json()), "previous": identity(previous.manifest.as_json())}
    path = release.folder / HISTORY
    path.parent.mkdir(exist_ok=True)
    document = {"versions": [ends | {"changes": changes}, *history(previous.folder)]}
    atomic.write_text(path, json.dumps(document, indent=1) + "\n")


def version_number(version: str) -> tuple[int, ...]:
    """A semantic version as numbers, which compare as versions do."""
    return tuple(map(int, version.split(".")))


def identity(manifest: Mapping[str, Any]) -> dict[str, str]:
    """What a report calls a release by: version and digest, from its manifest as JSON."""
    return {"version": manifest["version"], "digest": manifest["digest"]}


def _digest(report: Mapping[str, Any]) -> str | None:
    """The content digest that a report says it was made from."""
    release = report.get("release")
    return release.get("digest") if isinstance(release, dict) else None


def _follow_schema(path: Path, name: str, report: Mapping[str, Any]) -> None:
    try:
        validate(name, report)
    except UserError as error:
        raise UserError(f"{path}: {error}; make the report again") from error


def _json(path: Path) -> dict[str, Any]:
    """A report, empty where there is none."""
    if not path.is_file():
        return {}
    try:
        document = strict_json.read(path)
    except UserError as error:
        raise UserError(f"{error}; make the report again") from error
    if not isinstance(document, dict):
        raise UserError(f"{path}: is not a report; make the report again")
    return document
