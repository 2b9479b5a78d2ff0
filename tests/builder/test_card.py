"""The dataset card: its YAML by the library's classes, and what people must find in it."""

import json
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import browser
import matplotlib
import pytest
from drafts import small_draft
from huggingface_hub import DatasetCard
from markdown_it import MarkdownIt

from builder import card as cards
from builder import release as releases
from builder import reports
from builder.card import check_card
from eval_kit.errors import UserError
from eval_kit.release import Release, open_release, read_manifest

type Run = Callable[..., subprocess.CompletedProcess[str]]
HEADLINE = "Of 4 test queries, 1 stands in training too."


@pytest.fixture(params=["mini_release", "published_release"])
def release(request: pytest.FixtureRequest) -> Release:
    return request.getfixturevalue(request.param)  # type: ignore[no-any-return]


def test_yaml_says_what_the_manifest_says(release: Release) -> None:
    data = DatasetCard.load(release.folder / "README.md").data.to_dict()
    assert data["task_categories"] == ["text-retrieval"] and len(data["size_categories"]) == 1
    assert data["license"] == ("apache-2.0" if release.manifest.kind == "mini" else "other")
    assert {one["config_name"]: [split["split"] for split in one["data_files"]] for one in data["configs"]} == (
        release.configs
    )
    assert data.get("license_link") == (None if data["license"] == "apache-2.0" else "LICENSE.md")
    assert [one["config_name"] for one in data["configs"] if one.get("default")] == ["topic"]
    paths = {split["path"] for one in data["configs"] for split in one["data_files"]}
    assert paths == {table.path for table in release.manifest.tables}
    features = {one["config_name"]: {item["name"]: item for item in one["features"]} for one in data["dataset_info"]}
    for table in release.manifest.tables:
        for column in table.columns:
            if column.labels:
                names = features[table.config][column.name]["dtype"]["class_label"]["names"]
                assert names == {str(code): label for code, label in enumerate(column.labels)}
    check_card(release.folder, release.manifest)


def test_text_for_people(release: Release) -> None:
    text = DatasetCard.load(release.folder / "README.md").text
    for config, splits in release.configs.items():
        section = text.split(f"\n### {config}\n")[1].split("\n##")[0]
        row = json.loads(section.split("```json\n")[1].split("\n```")[0])
        assert list(row) == release.table(config, splits[0]).columns and None not in row.values()
    for table in release.manifest.tables:
        assert f"{table.split} {table.rows:,}" in text and table.rule.text in text
    papers = 5 + (release.manifest.kind == "published")  # that of the typos
    assert text.count("\n@") == papers and text.count("{") == text.count("}")
    assert release.digest in text and "{{" not in text.split("```bibtex")[0]
    sections = ["## Load", "## Score", "## Configs", "## Test sets", "## Intended use and limits", "## Licences"]
    places = [text.index(one) for one in sections]
    assert places == sorted(places)
    if release.manifest.kind == "published":
        licences = text.split("## Licences")[1].split("\n## ")[0]
        assert licences.strip() in (release.folder / "LICENSE.md").read_text()
        for words in ("Apache-2.0", "CC BY-NC-SA 4.0", "MIT", "none stated", "non-commercial research only", "NIST"):
            assert words in licences
        assert text.count("| [") - len(release.configs) == len(release.manifest.inputs)


def write(place: Path, **draft: Any) -> Path:
    releases.write(small_draft(**draft), place / "ms-marco-shift")
    return place / "ms-marco-shift"


def row_of(folder: Path, config: str) -> dict[str, Any]:
    text = (folder / "README.md").read_text().split(f"\n### {config}\n")[1]
    row: dict[str, Any] = json.loads(text.split("```json\n")[1].split("\n```")[0])
    return row


def test_long_values_of_a_sample_are_cut(tmp_path: Path) -> None:
    row = row_of(write(tmp_path, texts=["x " * 500, "b", "c", "d"]), "length")
    assert len(row["text"]) == 201 and (row["query_id"], row["cluster"]) == ("1", "short")
    fenced = row_of(write(tmp_path / "fenced", texts=["``` out of the block", "b", "c", "d"]), "length")
    assert fenced["text"] == "''' out of the block"


def test_a_card_of_other_data_is_refused(tmp_path: Path) -> None:
    folder = write(tmp_path)
    manifest = read_manifest(folder)
    card = folder / "README.md"
    check_card(folder, manifest)
    text = card.read_text()
    changes = {
        "its configs are not": text.replace("version: 1.0.0", "version: 1.0.1"),
        "is not the card": text.replace("num_examples: 4", "num_examples: 5"),
        "its YAML is not valid": text.replace("configs:", "configs: ["),
        "its configs are not those": text.split("---\n", 2)[2],
        "is not the card of": text.replace("id for id", "nearly").replace("pseudo-words", "words"),
    }
    licences = (folder / "LICENSE.md").read_text()
    (folder / "LICENSE.md").write_text(licences + "and more\n")
    with pytest.raises(UserError, match=r"LICENSE\.md: is not the file of"):
        check_card(folder, manifest)
    (folder / "LICENSE.md").write_text(licences)
    for words, changed in changes.items():
        card.write_text(changed)
        with pytest.raises(UserError, match=words):
            check_card(folder, manifest)
    other = releases.describe(replace(small_draft(), version="2.0.0"))
    card.write_text(text)
    with pytest.raises(UserError, match="its configs are not"):
        check_card(folder, other)


def add_reports(folder: Path, digest: str) -> None:
    """An audit, and the pictures of a run on the content of that digest."""
    release = {"version": "1.0.0", "digest": digest}
    (folder / "reports").mkdir(exist_ok=True)
    audit = {"headline": HEADLINE, "release": {**release, "kind": "mini"}}
    (folder / "reports/audit.json").write_text(json.dumps(audit))
    (folder / "reports/similarity.json").write_text(json.dumps({"release": release}))
    matplotlib.use("agg")
    from matplotlib import pyplot

    for name in ("similarity", "topics"):
        pyplot.figure(figsize=(6, 3)).add_subplot().imshow([[1, 2], [3, 4]])
        pyplot.savefig(folder / f"reports/{name}.png")
        pyplot.close()


def test_reports_are_shown_while_they_are_of_this_content(tmp_path: Path, command: Run) -> None:
    folder = write(tmp_path)
    plain = (folder / "README.md").read_bytes()
    add_reports(folder, open_release(folder).digest)
    done = command("builder", "card", folder)
    assert (done.returncode, done.stdout) == (0, f"{folder}/README.md: written\n"), done.stderr
    text = (folder / "README.md").read_text()
    assert HEADLINE in text and "(reports/audit.json)" in text
    assert "](reports/similarity.png)" in text and "](reports/topics.png)" in text
    assert not list(folder.glob(".*"))
    check_card(folder, open_release(folder).manifest)

    (folder / "reports/topics.png").unlink()
    assert command("builder", "card", folder).returncode == 0
    assert "topics.png" not in (folder / "README.md").read_text()

    add_reports(folder, "0" * 64)
    done = command("builder", "card", folder)
    assert done.returncode == 0 and (folder / "README.md").read_bytes() == plain
    assert [line.split(",")[0] for line in done.stdout.splitlines()[1:]] == [
        "  remark: left out reports/audit.json",
        "  remark: left out reports/similarity.json",
    ]
    digest = open_release(folder).digest
    for content, words in (
        ("{", "reports/audit.json:1: is not JSON"),
        ("[]", "reports/audit.json: is not a report"),
        (
            json.dumps({"release": {"digest": digest}}),
            "reports/audit.json: not a valid audit document: Object missing required field `headline`",
        ),
    ):
        (folder / "reports/audit.json").write_text(content)
        done = command("builder", "card", folder)
        assert (done.returncode, done.stderr.count("\n")) == (2, 1) and words in done.stderr
    assert (folder / "README.md").read_bytes() == plain


def test_version_history(tmp_path: Path, command: Run) -> None:
    texts = ["what is  a cat", "how do dogs say it", "naïve café ☕ prices", "d\\ne"]
    first = write(tmp_path / "1")
    second = write(tmp_path / "2", version="1.0.1", texts=texts)
    third = write(tmp_path / "3", version="1.1.0", texts=texts, names=("short",))
    assert command("builder", "card", second, "--previous", first).returncode == 0
    assert command("builder", "card", third, "--previous", second).returncode == 0
    document = json.loads((third / reports.HISTORY).read_text())
    versions = [(one["previous"]["version"], one["release"]["version"]) for one in document["versions"]]
    assert versions == [("1.0.1", "1.1.0"), ("1.0.0", "1.0.1")]
    told = (third / "README.md").read_text().split("## Version history\n")[1]
    steps = {part.split("\n")[0]: part for part in told.split("\n## ")[0].split("\n### ")[1:]}
    assert list(steps) == ["1.1.0, after 1.0.1", "1.0.1, after 1.0.0"]
    assert "| test_sets/length.long | left | | |\n" in steps["1.1.0, after 1.0.1"]
    assert "| length/test | 0 | 0 | 1 |\n" in steps["1.0.1, after 1.0.0"]
    check_card(third, open_release(third).manifest)

    before = (third / reports.HISTORY).read_bytes()
    for previous, words in ((third, "does not come before 1.1.0"), (tmp_path / "nowhere", "there is no such folder")):
        done = command("builder", "card", third, "--previous", previous)
        assert (done.returncode, done.stderr.count("\n")) == (2, 1) and words in done.stderr
    assert (third / reports.HISTORY).read_bytes() == before
    (second / reports.HISTORY).write_text('{"versions": []}')
    done = command("builder", "card", third, "--previous", second)
    assert done.returncode == 2 and "not a valid history document" in done.stderr


def test_versions_compare_as_numbers() -> None:
    assert reports.version_number("1.10.0") > reports.version_number("1.9.9")


@pytest.fixture
def page(release: Release, tmp_path: Path) -> Path:
    """The card as a browser shows it: CommonMark with tables, beside the pictures."""
    if browser.binary() is None:
        pytest.skip(f"NO BROWSER: none of {', '.join(browser.NAMES)} is installed; the card was NOT opened in one")
    shutil.copytree(release.folder, folder := tmp_path / "ms-marco-shift")
    add_reports(folder, release.digest)
    cards.write(folder)
    markdown = DatasetCard.load(folder / "README.md").text
    html = MarkdownIt("commonmark", {"html": True}).enable("table").render(markdown)
    (folder / "card.html").write_text(f"<!doctype html><meta charset=utf-8><title>card</title><body>{html}")
    return folder / "card.html"


def test_in_a_browser(page: Path, release: Release) -> None:
    with browser.browser() as tab:
        tab.open(page)
        assert tab.js("[...document.images].map((one) => one.naturalWidth > 100 && one.alt.length > 0)") == [True, True]
        headings = tab.texts("h2, h3")
        assert HEADLINE in tab.js("document.body.innerText") and tab.console == []
        assert set(release.configs) <= set(headings) and len(headings) == len(set(headings))
        columns = "[...document.querySelectorAll('table')].map((one) => [...one.rows].map((row) => row.cells.length))"
        for table in tab.js(columns):
            assert len(set(table)) == 1 and len(table) > 1
        prose = tab.js("[...document.querySelectorAll('p, li, td, h2')].map((one) => one.innerText).join('\\n')")
        for leftover in ("{{", "{%", "|--", "```", "## ", "]("):
            assert leftover not in prose
        assert len(tab.texts("pre")) == 5 + len(release.configs)
