"""The schemas themselves, and how their errors read."""

import json
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from eval_kit.documents import DOCUMENTS, schema
from eval_kit.files import schemas
from eval_kit.release import Release

SUBMISSION = {
    "system": "MyModel",
    "team": "Us",
    "architecture": "dense",
    "training_data": ["MS MARCO train"],
    "licence": "Apache-2.0",
    "release": {"version": "1.0.0", "digest": "0" * 64},
    "runs": [{"file": "mymodel.topic.c0.trec", "shift": "topic", "held_out": "c0"}],
}


def test_there_is_a_schema_for_everything_exchanged():
    assert {"cell", "config", "reference", "release", "scores", "submission"} <= set(schemas.names())
    for name in schemas.names():
        document = json.loads((schemas.FOLDER / f"{name}.schema.json").read_text())
        assert document["$schema"] == "https://json-schema.org/draft/2020-12/schema"
        Draft202012Validator.check_schema(document)


@pytest.mark.parametrize("name", DOCUMENTS)
def test_the_published_schema_is_that_of_the_class(name: str):
    published = json.loads((schemas.FOLDER / f"{name}.schema.json").read_text())
    assert ordered(published) == ordered(schema(name)), "run: python docs/reference.py schemas"


def ordered(value: Any) -> Any:
    """The choices of every anyOf by their text: msgspec 0.20 has null first, and later versions last."""
    if isinstance(value, dict):
        return {name: ordered(part) for name, part in value.items()}
    return sorted(value, key=str) if isinstance(value, list) else value


def test_errors_name_the_path_and_the_reason(mini_release: Release):
    manifest = mini_release.manifest.as_json()
    schemas.validate("release", manifest)
    manifest["tables"][2]["rows"] = "many"
    del manifest["seed"]
    with pytest.raises(schemas.SchemaError, match=r"\$\.tables\[2\]\.rows: 'many' is not of type 'integer'") as error:
        schemas.validate("release", manifest)
    assert "$: 'seed' is a required property" in str(error.value)


@pytest.mark.parametrize("file", ["../secret.trec", "a/../../b.trec", "/etc/passwd", "a\\b.trec", ".."])
def test_a_submission_may_not_leave_its_folder(file: str):
    schemas.validate("submission", SUBMISSION)
    with pytest.raises(schemas.SchemaError, match=r"\$\.runs\[0\]\.file"):
        schemas.validate("submission", {**SUBMISSION, "runs": [{"file": file}]})


def test_an_unknown_schema_is_the_callers_mistake():
    with pytest.raises(KeyError, match="no schema named 'manifest'"):
        schemas.validate("manifest", {})
