"""The audit in a release's ``reports/``, as far as the card quotes it.

The content digest does not cover reports. So the audit names the release that it was made from, and an outdated one is
noticed.
"""

from dataclasses import dataclass
from pathlib import Path

from eval_kit.documents import Manifest
from eval_kit.errors import UserError
from eval_kit.files import strict_json

AUDIT = "reports/audit.json"
_AGAIN = "Make the report again: python -m builder audit"


@dataclass(frozen=True)
class Reports:
    """What the card shows: the audit's headline; ``outdated`` lists reports that were made from other content."""

    headline: str
    outdated: list[str]


def read(folder: Path, manifest: Manifest) -> Reports:
    """The audit of the release in ``folder``, if there is one."""
    if not (folder / AUDIT).is_file():
        return Reports("", [])
    try:
        document = strict_json.read(folder / AUDIT)
    except UserError as error:
        raise UserError(f"{error}", do=_AGAIN) from error
    release = document.get("release") if isinstance(document, dict) else None
    if not isinstance(release, dict):
        raise UserError(f"{folder / AUDIT} is not a report", do=_AGAIN)
    if release.get("digest") != manifest.digest:
        return Reports("", [AUDIT])
    headline = document.get("headline")
    if not isinstance(headline, str):
        raise UserError(f"{folder / AUDIT} has no headline", do=_AGAIN)
    return Reports(headline, [])
