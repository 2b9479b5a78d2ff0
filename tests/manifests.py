"""Manifests that tests edit as JSON."""

from typing import Any

import msgspec

from eval_kit.documents import Manifest
from eval_kit.files import digests


def release_digest(document: dict[str, Any]) -> str:
    """The digest that fits the document; the one that it has if no manifest can be made of it."""
    try:
        return digests.release_digest(msgspec.convert(document, Manifest))
    except msgspec.ValidationError:
        return str(document["digest"])
