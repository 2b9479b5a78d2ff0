"""The reports in a release's ``reports/``, as far as the card shows them, and the history of its versions among them.

The content digest does not cover reports. So each JSON report names the release that it was made from, and an outdated
one is noticed; a picture goes with the JSON report of the same run.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from builder.diff import diff
from eval_kit.documents import Count, Document, Manifest, ReleaseName
from eval_kit.errors import UserError
from eval_kit.files import atomic, strict_json
from eval_kit.release import Release
from eval_kit.release.release import HISTORY

AUDIT = "reports/audit.json"
SIMILARITY = "reports/similarity.json"
PICTURES = {
    "reports/similarity.png": "How alike the clusters are: weighted Jaccard of words, mean cosine of queries",
    "reports/topics.png": "Topic test queries, projected to two dimensions by t-SNE; the encoder is in the title",
}
"""With their captions; their data are in ``similarity.json``."""


class Audit(Struct, frozen=True):
    """What the card quotes of an audit."""

    headline: str


class Change(Document, frozen=True):
    """How a table differs: how many rows, known by their ids, are new, are gone, or have other columns.

    ``whole`` says what happened to the table as a whole, and is empty where rows are counted.
    """

    config: str
    split: str
    entered: Count
    left: Count
    moved: Count
    whole: str


class Step(Document, frozen=True):
    """A version, and the tables and test sets in which it differs from the one before."""

    release: ReleaseName
    previous: ReleaseName
    changes: list[Change]


class History(Document, frozen=True):
    """``reports/history.json``: the versions, newest first."""

    versions: Annotated[list[Step], Meta(min_length=1)]


@dataclass(frozen=True)
class Reports:
    """What the card shows: the audit's headline, pictures with their captions, the earlier versions.

    ``outdated`` lists reports that were made from other content and are not shown.
    """

    headline: str
    pictures: Mapping[str, str]
    history: list[Step]
    outdated: list[str]


def read(folder: Path, manifest: Manifest) -> Reports:
    """The reports of the release in ``folder``; each is optional.

    Raises:
        UserError: a report is not readable, or not what this program writes.
    """
    audit, similarity, steps = _json(folder / AUDIT), _json(folder / SIMILARITY), history(folder)
    digests = {name: _digest(report) for name, report in ((AUDIT, audit), (SIMILARITY, similarity)) if report}
    if steps:
        digests[HISTORY] = steps[0].release.digest
    of_this = [name for name, digest in digests.items() if digest == manifest.digest]
    pictures = {}
    if SIMILARITY in of_this:
        pictures = {path: caption for path, caption in PICTURES.items() if (folder / path).is_file()}
    return Reports(
        headline=_convert(folder / AUDIT, audit, Audit).headline if AUDIT in of_this else "",
        pictures=pictures,
        history=steps if HISTORY in of_this else [],
        outdated=[name for name in digests if name not in of_this],
    )


def history(folder: Path) -> list[Step]:
    """How each version differs from the one before, newest first; empty without such a report.

    Raises:
        UserError: the report is not readable, or not what this program writes.
    """
    document = _json(folder / HISTORY)
    return _convert(folder / HISTORY, document, History).versions if document else []


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
        counts = len(table.entered), len(table.left), len(table.moved)
        changes.append(Change(table.config, table.split, *counts, table.whole))
    _write_history(release.folder, [Step(name_of(release), name_of(previous), changes), *history(previous.folder)])


def add_history_of_part(out: Path, part: Manifest, folder: Path, manifest: Manifest) -> None:
    """Record in ``out`` the history of the release in ``folder`` of which only ``part`` is published.

    What is not in the part left in this version, or never entered.
    """
    steps = history(folder)
    if not steps or steps[0].release != name_of(manifest):
        return
    changes = {}
    for change in steps[0].changes:
        changes[change.config, change.split] = change
    for key in sorted(_contents(manifest) - _contents(part)):
        before = changes.pop(key, None)
        if before is None or before.whole != "entered":
            changes[key] = Change(*key, entered=0, left=0, moved=0, whole="left")
    _write_history(out, [Step(name_of(part), steps[0].previous, list(changes.values())), *steps[1:]])


def _contents(manifest: Manifest) -> set[tuple[str, str]]:
    """The tables, test sets and variations, named as in a change."""
    contents = set(map(attrgetter("key"), manifest.tables))
    for test_set in manifest.test_sets:
        contents.add(("test_sets", test_set.name))
    for variation in manifest.variations:
        contents.add(("variations", variation.full_name))
    return contents


def _write_history(folder: Path, steps: list[Step]) -> None:
    (folder / HISTORY).parent.mkdir(parents=True, exist_ok=True)
    atomic.write_text(folder / HISTORY, json.dumps(History(steps).as_json(), indent=1) + "\n")


def version_number(version: str) -> tuple[int, ...]:
    """A semantic version as numbers, which compare as versions do."""
    return tuple(map(int, version.split(".")))


def name_of(release: Release | Manifest) -> ReleaseName:
    """What a report calls a release by."""
    return ReleaseName(release.version, release.digest)


def _digest(report: Mapping[str, Any]) -> str | None:
    """The content digest that a report says it was made from."""
    release = report.get("release")
    return release.get("digest") if isinstance(release, dict) else None


def _convert[R: Struct](path: Path, report: Mapping[str, Any], kind: type[R]) -> R:
    try:
        return msgspec.convert(report, kind)
    except msgspec.ValidationError as error:
        what = kind.__name__.lower()
        raise UserError(f"{path}: not a valid {what} document: {error}; make the report again") from error


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
