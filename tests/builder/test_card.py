"""The dataset card: its YAML by the library's classes, and what people must find in it."""

import json
import shutil
from pathlib import Path

import browser
import pytest
from drafts import small_draft, written
from huggingface_hub import DatasetCard
from markdown_it import MarkdownIt
from msgspec import structs

from builder import card as cards
from builder import release as releases
from builder.card import check_card
from eval_kit.documents import Input, Lack, Rule, Variation
from eval_kit.errors import UserError
from eval_kit.release import Release, open_release
from eval_kit.tables.markdown import escape

HEADLINE = "Of 4 test queries, 1 stands in training too."


def test_yaml_says_what_the_manifest_says(release: Release) -> None:
    """Its configs, paths and labels are what ``load_dataset`` finds by them, in test_load_dataset.py."""
    data = DatasetCard.load(release.folder / "README.md").data.to_dict()
    assert data["task_categories"] == ["text-retrieval"] and len(data["size_categories"]) == 1
    licence = ("apache-2.0", None) if release.manifest.kind == "mini" else ("other", "LICENSE.md")
    assert (data["license"], data.get("license_link")) == licence
    patterns = [split["path"] for config in data["configs"] for split in config["data_files"]]
    for table, pattern in zip(release.manifest.tables, patterns, strict=True):
        assert list(release.folder.glob(pattern)) == [release.folder / table.path]
    assert sum(info["download_size"] for info in data["dataset_info"]) == sum(
        (release.folder / table.path).stat().st_size for table in release.manifest.tables
    )
    for info in data["dataset_info"]:
        assert info["dataset_size"] == sum(split["num_bytes"] for split in info["splits"]) > 0
    check_card(release.folder, release.manifest)


def test_text_for_people(release: Release) -> None:
    text = DatasetCard.load(release.folder / "README.md").text
    for table in release.manifest.tables:
        if table.config != "variations":
            assert f"{table.split} {table.rows:,}" in text
        assert escape(table.rule.text) in text
    published = release.manifest.kind == "published"
    # BEIR's, or MS MARCO's, both tracks' and that of the typos
    assert text.count("\n@") == 4 + (4 if published else 1) and text.count("{") == text.count("}")
    assert release.digest in text and "{{" not in text.split("```bibtex")[0]
    sections = ["## Load", "## Score", "## Configs", "## Test sets", "## Intended use and limits", "## Licences"]
    assert sorted(sections, key=text.index) == sections
    assert (release.folder / "README.md").read_text().count("\n") <= 400
    if published:
        top = text.split("\n## ")[0]
        assert "not the authors' own release" in top and "non-commercial research only" in top and "upstream" not in top
        licences = text.split("## Licences")[1].split("\n## ")[0]
        assert (release.folder / "LICENSE.md").read_text().partition("\n\n")[2].strip() in licences
        for words in ("Apache-2.0", "CC BY-NC-SA 4.0", "MIT", "none stated", "non-commercial research only", "NIST"):
            assert words in licences
        assert "| topic.c0, RR@10 | 0.192 | 0.332 → 0.304 (8.3%) |" in text  # ECIR 2023, Table 2
        assert f"| naver/ms-marco-shift | {sum('naver/' in file.id for file in release.manifest.inputs)} |" in licences


def test_a_card_of_other_data_is_refused(tmp_path: Path) -> None:
    release = written(tmp_path / "ms-marco-shift")
    text = (release.folder / "README.md").read_text()
    for changed, words in (
        (text.replace("version: 1.0.0", "version: 1.0.1"), "describes another release"),
        (text.replace("num_examples: 4", "num_examples: 5"), "describes another release"),
        (text.replace("'0': short", "'0': long"), "describes another release"),
        (text.replace("configs:", "configs: ["), "The YAML of .* is not valid"),
        (text.split("---\n", 2)[2], "describes another release"),
    ):
        (release.folder / "README.md").write_text(text)
        check_card(release.folder, release.manifest)
        (release.folder / "README.md").write_text(changed)
        with pytest.raises(UserError, match=words):
            check_card(release.folder, release.manifest)
    with pytest.raises(UserError, match="describes another release"):
        check_card(release.folder, releases.describe(small_draft(version="2.0.0")))


def add_audit(folder: Path, digest: str) -> None:
    """An audit of the content of that digest."""
    (folder / "reports").mkdir(exist_ok=True)
    audit = {"headline": HEADLINE, "release": {"version": "1.0.0", "digest": digest, "kind": "mini"}}
    (folder / "reports/audit.json").write_text(json.dumps(audit))


def test_an_audit_is_quoted_while_it_is_of_this_content(tmp_path: Path, command) -> None:
    release = written(tmp_path / "ms-marco-shift")
    folder, card = release.folder, release.folder / "README.md"
    plain = card.read_bytes()
    add_audit(folder, release.digest)
    done = command("builder", "card", folder)
    assert (done.returncode, done.stdout) == (0, f"{card}: written\n"), done.stderr
    text = card.read_text()
    assert HEADLINE in text and "(reports/audit.json)" in text
    assert not list(folder.glob(".*"))
    check_card(folder, release.manifest)

    add_audit(folder, "0" * 64)
    done = command("builder", "card", folder)
    assert done.returncode == 0 and card.read_bytes() == plain
    assert done.stdout.splitlines()[1].startswith("  Skipped reports/audit.json")
    headless = json.dumps({"release": {"digest": release.digest}})
    for content, words in (
        ("{", "reports/audit.json:1: is not JSON"),
        ("[]", r"reports/audit\.json"),
        (headless, r"reports/audit\.json has no headline"),
    ):
        (folder / "reports/audit.json").write_text(content)
        with pytest.raises(UserError, match=words):
            cards.write(folder)
    assert card.read_bytes() == plain


def test_a_folder_whose_name_is_not_utf_8_is_one_sentence(tmp_path: Path) -> None:
    folder = written(tmp_path / "ms-marco-shift").folder.rename(tmp_path / "\udcff")
    for use in (cards.write, open_release):
        with pytest.raises(UserError, match=r"is not UTF-8"):
            use(folder)


HOSTILE = "</script><script>alert(1)</script>\x1b[31m [x](javascript:alert(2)) `|` **b**\u202e\n# heading"


def test_what_a_manifest_says_is_text(tmp_path: Path) -> None:
    release = written(tmp_path / "ms-marco-shift")
    replace, manifest = structs.replace, release.manifest
    source = Input(id=HOSTILE, url="javascript:alert(3)", bytes=1, sha256="0" * 64, licence=HOSTILE)
    worded = Variation("length.short", "typo", None, 1, "typo", None, HOSTILE, HOSTILE, 3)
    hostile = replace(
        manifest,
        kind="rebuilt",
        built_from=HOSTILE,
        code_version=HOSTILE,
        tables=[replace(table, rule=Rule(HOSTILE, HOSTILE)) for table in manifest.tables],
        inputs=[source],
        missing=[Lack(HOSTILE, HOSTILE)],
        remarks=[HOSTILE],
        variations=[worded],
    )
    text = cards.texts(release.folder, hostile)["README.md"].split("---\n", 2)[2]
    html = MarkdownIt("commonmark", {"html": True}).enable("table").render(text)
    shown = "&lt;/script&gt;&lt;script&gt;alert(1)&lt;/script&gt;\\x1b[31m [x](javascript:alert(2)) `|` **b**"
    assert html.count(shown) >= 11
    for active in ("<script", 'href="javascript', "\x1b", "\u202e", "<h1>heading"):
        assert active not in html


def test_in_a_browser(release: Release, tmp_path: Path) -> None:
    """CommonMark with tables."""
    shutil.copytree(release.folder, folder := tmp_path / "ms-marco-shift")
    add_audit(folder, release.digest)
    cards.write(folder)
    markdown = DatasetCard.load(folder / "README.md").text
    html = MarkdownIt("commonmark", {"html": True}).enable("table").render(markdown)
    page = folder / "card.html"
    page.write_text(f"<!doctype html><meta charset=utf-8><title>card</title><body>{html}")
    with browser.browser() as tab:
        tab.open(page)
        headings = tab.texts("h2, h3")
        assert HEADLINE in tab.js("document.body.innerText") and tab.console == []
        assert "Configs" in headings and len(headings) == len(set(headings))
        columns = "[...document.querySelectorAll('table')].map((one) => [...one.rows].map((row) => row.cells.length))"
        for table in tab.js(columns):
            assert len(set(table)) == 1 and len(table) > 1
        prose = tab.js("[...document.querySelectorAll('p, li, td, h2')].map((one) => one.innerText).join('\\n')")
        for leftover in ("{{", "{%", "|--", "```", "## ", "]("):
            assert leftover not in prose
        assert len(tab.texts("pre")) == 5
