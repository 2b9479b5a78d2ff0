"""The documentation: its notebook runs and shows what it says, its generated page is current, and the site builds."""

import importlib
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

ROOT = Path(__file__).parents[2]
NOTEBOOK = ROOT / "docs" / "tutorials" / "your-model.ipynb"


@pytest.fixture
def from_docs(monkeypatch):
    """A module of ``docs/``, which is no package."""
    monkeypatch.syspath_prepend(ROOT / "docs")
    return importlib.import_module


def test_the_notebook_shows_what_its_cells_give(from_docs, mini_release, tmp_path, monkeypatch):
    notebook = from_docs("notebook")
    (tmp_path / "mini").symlink_to(mini_release.folder)
    monkeypatch.chdir(tmp_path)
    cells = notebook.shown(NOTEBOOK)
    for (code, shown), given in zip(cells, notebook.run([code for code, _ in cells]), strict=True):
        assert given == shown, code
    assert "mine" in (tmp_path / "report.html").read_text(encoding="utf-8")
    code, shown = [cell for cell in cells if cell[1]][-1]
    assert f"```python\n{code}\n```\n\n```text\n{shown.rstrip()}\n```" in notebook.markdown(NOTEBOOK)


def test_the_first_use_of_a_glossary_word_is_a_link(from_docs):
    glossary = "| word | meaning |\n|---|---|\n| pivot | a run |\n| near, far | queries |\n"
    page = "# A pivot\n\n`pivot` and [pivot](a.md): two pivots, a pivot, *far* and near.\n"
    linked = from_docs("glossary_links").linked(page, "tutorials/x.md", glossary)
    links = {"two pivots": "two [pivots](../glossary.md#pivot)", "*far*": "[*far*](../glossary.md#far)"}
    for plain, link in links.items():
        page = page.replace(plain, link)
    assert linked == page


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
        assert picture.stat().st_size < 60_000 and f"assets/{picture.name})" in text


def test_the_published_losses_are_those_of_the_printed_tables(from_docs):
    published = from_docs("published")
    for page in published.PAGES:
        assert published.PLACE.search(page.read_text(encoding="utf-8"))[0] == published.table(), "run: make pages"


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
    html = hooks.on_page_markdown(page, SimpleNamespace(file=SimpleNamespace(src_uri="results.md")))
    assert [html.count("<figure>"), html.count("static on c")] == [2, 64 + 5]
    assert html.count("static on ") == 64 + 15
