"""The dataset card: its YAML by the library's classes, and what people must find in it."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from drafts import small_draft
from huggingface_hub import DatasetCard

from builder import release as releases
from builder.card import check_card, sample
from eval_kit.errors import UserError
from eval_kit.release import Release


@pytest.fixture(params=["mini_release", "published_release"])
def release(request: pytest.FixtureRequest) -> Release:
    return request.getfixturevalue(request.param)  # type: ignore[no-any-return]


def test_yaml_says_what_the_manifest_says(release: Release) -> None:
    data = DatasetCard.load(release.folder / "README.md").data.to_dict()
    assert data["task_categories"] == ["text-retrieval"] and len(data["size_categories"]) == 1
    assert data["license"] == ("apache-2.0" if release.manifest["kind"] == "mini" else "other")
    assert {one["config_name"]: [split["split"] for split in one["data_files"]] for one in data["configs"]} == (
        release.configs
    )
    paths = {split["path"] for one in data["configs"] for split in one["data_files"]}
    assert paths == {table["path"] for table in release.manifest["tables"]}
    features = {one["config_name"]: {item["name"]: item for item in one["features"]} for one in data["dataset_info"]}
    for table in release.manifest["tables"]:
        for column in table["columns"]:
            if "labels" in column:
                names = features[table["config"]][column["name"]]["dtype"]["class_label"]["names"]
                assert names == {str(code): label for code, label in enumerate(column["labels"])}
    check_card(release.folder / "README.md", release.manifest)


def test_text_for_people(release: Release) -> None:
    text = DatasetCard.load(release.folder / "README.md").text
    for config, splits in release.configs.items():
        section = text.split(f"\n### {config}\n")[1].split("\n##")[0]
        row = json.loads(section.split("```json\n")[1].split("\n```")[0])
        assert list(row) == release.table(config, splits[0]).columns and None not in row.values()
    for table in release.manifest["tables"]:
        assert f"{table['split']} {table['rows']:,}" in text and table["rule"]["text"] in text
    assert text.count("\n@") == 5 and text.count("{") == text.count("}")
    assert release.digest in text and "{{" not in text.split("```bibtex")[0]
    sections = ["## Load", "## Score", "## Configs", "## Test sets", "## Intended use and limits", "## Licences"]
    places = [text.index(one) for one in sections]
    assert places == sorted(places)
    if release.manifest["kind"] == "published":
        licences = text.split("## Licences")[1].split("\n## ")[0]
        for words in ("Apache-2.0", "CC BY-NC-SA 4.0", "MIT", "none stated", "non-commercial research only", "NIST"):
            assert words in licences
        assert text.count("| [") - len(release.configs) == len(release.manifest["inputs"])


def test_long_values_of_a_sample_are_cut() -> None:
    draft = small_draft(texts=["x " * 500, "b", "c", "d"])
    row = json.loads(sample(draft.tables, "length"))
    assert len(row["text"]) == 201 and row["query_id"] == "1"
    assert sample(draft.tables, "topic") == ""


def test_a_card_of_other_data_is_refused(tmp_path: Path) -> None:
    manifest = releases.write(small_draft(), tmp_path / "ms-marco-shift")
    card = tmp_path / "ms-marco-shift" / "README.md"
    check_card(card, manifest)
    text = card.read_text()
    changes = {
        "its configs are not": text.replace("version: 1.0.0", "version: 1.0.1"),
        "its dataset_info is not": text.replace("num_examples: 4", "num_examples: 5"),
        "its YAML is not valid": text.replace("configs:", "configs: ["),
        "its configs are not those": text.split("---\n", 2)[2],
    }
    for words, changed in changes.items():
        card.write_text(changed)
        with pytest.raises(UserError, match=words):
            check_card(card, manifest)
    other = releases.describe(replace(small_draft(), version="2.0.0"))
    card.write_text(text)
    with pytest.raises(UserError, match="its configs are not"):
        check_card(card, other)
