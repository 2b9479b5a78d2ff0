"""The schemas themselves, and how their errors read."""

import json
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from eval_kit.documents import DOCUMENTS, Manifest, schema
from eval_kit.errors import UserError
from eval_kit.files import strict_json
from eval_kit.release import Release
from tests import schemas


def test_the_published_schemas_are_valid_and_those_of_the_classes():
    assert {"cell", "reference", "release", "scores"} | set(DOCUMENTS) <= set(schemas.names())
    for name in schemas.names():
        published = json.loads((schemas.FOLDER / f"{name}.schema.json").read_text())
        assert published["$schema"] == "https://json-schema.org/draft/2020-12/schema"
        Draft202012Validator.check_schema(published)
        if name in DOCUMENTS:
            assert ordered(published) == ordered(schema(name)), "run: python docs/reference.py schemas"


def ordered(value: Any) -> Any:
    """The choices of every anyOf by their text: msgspec 0.20 has null first, and later versions last."""
    if isinstance(value, dict):
        return {name: ordered(part) for name, part in value.items()}
    return sorted(value, key=str) if isinstance(value, list) else value


def test_a_wrong_field_is_named_with_its_file(mini_release: Release, tmp_path: Path):
    manifest = mini_release.manifest.as_json()
    schemas.validate("release", manifest)
    manifest["tables"][2]["rows"] = "many"
    path = tmp_path / "manifest.json"
    path.write_text(json.dumps(manifest))
    with pytest.raises(UserError, match=rf"^{path} .*\$\.tables\[2\]\.rows"):
        strict_json.load(Manifest, path)
