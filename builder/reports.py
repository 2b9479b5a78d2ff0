"""The reports in a release's ``reports/``, as far as the card shows them.

The content digest does not cover reports. So each JSON report names the release that it was made from, and an outdated
one is noticed; a picture goes with the JSON report of the same run.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from eval_kit.documents import Manifest
from eval_kit.errors import UserError
from eval_kit.files import strict_json

AUDIT = "reports/audit.json"
SIMILARITY = "reports/similarity.json"
PICTURES = {
    "reports/similarity.png": "How alike the clusters are: weighted Jaccard of words, mean cosine of queries",
    "reports/topics.png": "Topic test queries, projected to two dimensions by t-SNE; the encoder is in the title",
}
"""With their captions; their data are in ``similarity.json``."""


@dataclass(frozen=True)
class Reports:
    """What the card shows: the audit's headline, and pictures with their captions.

    ``outdated`` lists reports that were made from other content and are not shown.
    """

    headline: str
    pictures: Mapping[str, str]
    outdated: list[str]


def read(folder: Path, manifest: Manifest) -> Reports:
    """The reports of the release in ``folder``; each is optional.

    Raises:
        UserError: a report is not readable, or not what this program writes.
    """
    reports = {name: _json(folder / name) for name in (AUDIT, SIMILARITY) if (folder / name).is_file()}
    of_this = [name for name, report in reports.items() if _digest(report) == manifest.digest]
    headline = reports[AUDIT].get("headline") if AUDIT in of_this else ""
    if not isinstance(headline, str):
        raise UserError(f"{folder / AUDIT}: has no headline; make the report again")
    pictures = {}
    if SIMILARITY in of_this:
        pictures = {path: caption for path, caption in PICTURES.items() if (folder / path).is_file()}
    return Reports(headline, pictures, outdated=[name for name in reports if name not in of_this])


def _digest(report: Mapping[str, Any]) -> str | None:
    """The content digest that a report says it was made from."""
    release = report.get("release")
    return release.get("digest") if isinstance(release, dict) else None


def _json(path: Path) -> dict[str, Any]:
    try:
        document = strict_json.read(path)
    except UserError as error:
        raise UserError(f"{error}; make the report again") from error
    if not isinstance(document, dict):
        raise UserError(f"{path}: is not a report; make the report again")
    return document
