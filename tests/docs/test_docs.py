"""The documentation: its notebook runs and shows what it says, its generated page is current, and the site builds."""

import importlib
import re
import subprocess
import sys
from pathlib import Path

import notebooks
import pytest

from eval_kit.release.reference import load

ROOT = Path(__file__).parents[2]
NOTEBOOK = ROOT / "docs" / "tutorials" / "your-model.ipynb"


@pytest.fixture
def from_docs(monkeypatch):
    """A module of ``docs/``, which is no package."""
    monkeypatch.syspath_prepend(ROOT / "docs")
    return importlib.import_module


@pytest.mark.slow
def test_the_notebook_shows_what_its_cells_give(from_docs, mini_release, tmp_path, monkeypatch):
    pytest.importorskip("mkdocs")
    (tmp_path / "mini").symlink_to(mini_release.folder)
    monkeypatch.chdir(tmp_path)
    cells = notebooks.shown(NOTEBOOK)
    for (code, shown), given in zip(cells, notebooks.run([code for code, _ in cells]), strict=True):
        assert given == shown, code
    assert "mine" in (tmp_path / "report.html").read_text(encoding="utf-8")
    page = from_docs("hooks").of_notebook(NOTEBOOK)
    assert all(shown.rstrip() in page for _, shown in cells)


@pytest.mark.parametrize("name", ["test-sets", "clusters"])
def test_a_page_of_the_published_release_is_current(name, from_docs, published_release):
    page = (ROOT / "docs" / "reference" / f"{name}.md").read_text(encoding="utf-8")
    run = f"run: python docs/reference.py {name} RELEASE > docs/reference/{name}.md"
    assert from_docs("reference").PAGES_OF_A_RELEASE[name](published_release) == page, run


def test_pictures_are_small_and_shown_and_the_drawn_one_is_current(from_docs):
    assets = ROOT / "docs" / "assets"
    drawn = from_docs("pictures").forest()
    assert (assets / "forest.svg").read_text(encoding="utf-8") == drawn, "run: python docs/pictures.py"
    text = "".join(path.read_text(encoding="utf-8") for path in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])
    for picture in [*assets.glob("*.svg"), *assets.glob("*.png")]:
        assert picture.stat().st_size < 100_000 and f"assets/{picture.name})" in text


def test_the_published_losses_are_those_of_the_printed_tables():
    """In and Out are means over the parts that a paper prints, and the loss is between them."""
    text = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    head, _, *rows = text[text.index("| RR@10 × 100") :].split("\n\n")[0].splitlines()
    names = {"BM25": "bm25 bm25", "bi-encoder": "biencoder dr-base", "SPLADE": "splade splade"}
    names |= {"ColBERT": "colbert colbert", "monoBERT": "monobert reranker"}
    shifts = {"topics": "topic", "question words": "wh", "lengths": "length"}
    values: dict[tuple[str, ...], list[float]] = {}
    for name in ("ecir2023-table2", "ecir2023-table3", "cikm2022-table7"):
        for cell in load(name)["cells"]:
            if cell["measure"] == "RR@10":
                side = {"inter": "in", "extra": "out"}.get(cell["figure"], cell["figure"])
                values.setdefault((cell["system"], cell["test_set"].split(".")[0], side), []).append(cell["value"])
    means = {key: 100 * sum(each) / len(each) for key, each in values.items()}
    assert [row.split("|")[1].strip() for row in rows] == list(names)
    for system, *printed in ([cell.strip() for cell in row.split("|")[1:-1]] for row in rows):
        for title, cell in zip(head.split("|")[2:-1], printed, strict=True):
            shift = shifts.get(title.strip(), "dev")
            of = names[system].split()[shift == "dev"]
            if (of, shift, "in") in means:
                seen, unseen = means[of, shift, "in"], means[of, shift, "out"]
                assert cell == f"{seen:.1f} → {unseen:.1f} ({1 - unseen / seen:.1%})"
            else:
                assert cell == f"{means[of, shift, 'value']:.1f}"


def test_every_table_of_the_evidence_has_rows(from_docs):
    """A pattern that fits no cage, or a claim that has another name now, would leave a table empty without a word."""
    rates = from_docs("rates")
    page = (ROOT / "docs" / "evidence.md").read_text(encoding="utf-8")
    asked = [match.groups() for match in rates.DIRECTIVE.finditer(page)]
    text = rates.filled(page)
    assert asked and "<!--" not in text
    for claims, _ in asked:
        table = text.partition(f"| | {' | '.join(claims.split('; '))} |")[2].split("\n\n")[0].splitlines()[2:]
        columns = list(zip(*(row.split("|")[2:-1] for row in table), strict=True))
        assert len(columns) == len(claims.split("; "))
        assert all(any(cell.strip(" -/") for cell in column) for column in columns), claims


def test_what_contributors_are_told_to_read_and_change_is_there():
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    named = re.findall(r"`([a-z_]+/[a-z_0-9/.]+)`", text)
    assert [name for name in named if not (ROOT / name).exists()] == []
    path = text.partition("## What to read first")[2].partition("##")[0]
    total = sum((ROOT / name).read_text(encoding="utf-8").count("\n") for name in re.findall(r"`(.+?)`", path))
    [printed] = re.findall(r"([\d,]+) lines", path)
    assert total == pytest.approx(int(printed.replace(",", "")), abs=100)


@pytest.mark.slow
def test_the_site_builds_without_a_warning(tmp_path):
    pytest.importorskip("mkdocs")
    command = [sys.executable, "-m", "mkdocs", "build", "--site-dir", str(tmp_path / "site")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    pages = sorted((tmp_path / "site").rglob("*.html"))
    assert len(pages) > 20
    for page in pages:
        text = page.read_text(encoding="utf-8")
        assert 'src="http' not in text and "fonts.googleapis" not in text, page


def test_the_figures_of_the_results_show_every_part(from_docs):
    pytest.importorskip("mkdocs")
    hooks = from_docs("hooks")
    page = (ROOT / "docs" / "results.md").read_text(encoding="utf-8")
    html = hooks.on_page_markdown(page)
    assert [html.count("<figure>"), html.count("static on c")] == [2, 64 + 5]
    assert html.count("static on ") == 64 + 15
