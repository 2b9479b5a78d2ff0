"""The reports in a release's ``reports/``, as far as the card shows them.

The content digest does not cover reports. So each JSON report names the release that it was made from, and an outdated
one is noticed; a picture goes with the JSON report of the same run.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from builder import history
from eval_kit.documents import Manifest
from eval_kit.errors import UserError
from eval_kit.files import strict_json
from eval_kit.files.schemas import validate

AUDIT = "reports/audit.json"
SIMILARITY = "reports/similarity.json"
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
    audit, similarity, steps = _json(folder / AUDIT), _json(folder / SIMILARITY), history.read(folder)
    made_of = {AUDIT: audit, SIMILARITY: similarity, history.FILE: steps[0] if steps else {}}
    of_this = {name for name, report in made_of.items() if report and _digest(report) == manifest.digest}
    if AUDIT in of_this:
        _follow_schema(folder / AUDIT, "audit", audit)
    return Reports(
        headline=audit["headline"] if AUDIT in of_this else "",
        pictures={
            path: caption for path, caption in PICTURES.items() if SIMILARITY in of_this and (folder / path).is_file()
        },
        history=steps if history.FILE in of_this else [],
        outdated=[name for name, report in made_of.items() if report and name not in of_this],
    )


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
