"""Pages of results in a real browser: what they lead with, and that nothing of a table is out of reach."""

import json
import re
from pathlib import Path

import browser
import numpy as np
import polars as pl
import pytest

from eval_kit import plots
from eval_kit.models.run import Card
from eval_kit.pages.page import result_page
from eval_kit.protocols.compare import compare
from eval_kit.protocols.generalise import generalise
from tests.eval_kit.protocols.test_compare import write_runs

WIDTHS = (400, 1024, 1400, 1920)
EDGES = """[...document.querySelectorAll('.scroll .first, .scroll .last')].filter((one) => one.checkVisibility())
  .map((one) => one.getBoundingClientRect()).filter((box) => box.left < -0.5 || box.right > innerWidth + 0.5).length"""


@pytest.fixture(scope="module")
def runs(mini_release, tmp_path_factory) -> list[Path]:
    folder = tmp_path_factory.mktemp("pages")
    return write_runs(mini_release, folder, ["pivot", "a-system-with-a-rather-long-name"], 3, "dev", "dl19")


@pytest.fixture(scope="module")
def compared(runs, mini_release):
    return compare(runs, mini_release, resamples=50)


@pytest.fixture(scope="module")
def tab():
    with browser.browser() as one:
        yield one


def test_first_and_last_columns_stay_on_the_page(tab, runs, mini_release, compared, tmp_path):
    training = pl.DataFrame({"query_id": ["1"], "text": ["pseudo words"]})
    verdicts = generalise(runs[1:], mini_release, runs[:1], trained_on=training)
    for name, result in (("compare", compared), ("generalise", verdicts)):
        path = tmp_path / f"{name}.html"
        path.write_text(result_page(result))
        tab.console.clear()
        for width in WIDTHS:
            tab.size(width)
            tab.open(path)
            assert tab.js("document.documentElement.scrollWidth") <= width
            assert tab.js(EDGES) == 0
            is_cut = tab.js("[...document.querySelectorAll('.scroll')].map((b) => b.scrollWidth > b.clientWidth + 1)")
            is_marked = tab.js("[...document.querySelectorAll('.scroll')].map((b) => b.matches('.more-right'))")
            assert is_cut == is_marked, "a shadow says where a table goes on"
        assert tab.console == []
        assert "synthetic" in " ".join(tab.texts(".badge"))
    assert set(tab.texts("td.last")) <= {"cannot tell", "degrades", "does not"}


def test_any_table_sorts_by_numbers_with_intervals(tab, compared, tmp_path):
    (tmp_path / "page.html").write_text(result_page(compared))
    tab.size(1400)
    tab.open(tmp_path / "page.html")
    values = compared.rows.filter(pl.col("difference").is_not_null())["difference"]
    tab.click("thead th.last button")
    shown = [float(text.split()[0].replace("\u2212", "-")) for text in tab.texts("td.last")]
    assert len(shown) == len(values)
    assert shown == sorted(shown, reverse=True)
    tab.click("thead th.last button")
    assert [float(text.split()[0].replace("\u2212", "-")) for text in tab.texts("td.last")] == sorted(shown)


def test_a_card_names_model_data_and_what_is_lacking(compared, mini_release):
    system = compared.systems[1]
    card = Card(compared, None, None, compared.provenance, "hub/some-model", system, mini_release)
    page, document = result_page(card), json.loads(json.dumps(card.as_json()))
    assert "<h1>hub/some-model on mini</h1>" in page
    assert document["summary"] == card.said()
    assert card.to_markdown().startswith("# hub/some-model on ")
    rows = compared.first_measures().filter(pl.col("queries") >= 30)
    worst = min(rows.iter_rows(named=True), key=lambda row: row["difference"])
    facts = {fact.about: fact for fact in card.facts()}
    assert facts["Worst test set"].verdict == worst["test_set"]
    assert {"--variation", "dl19.typo", "--trained-on", "--by"} <= set(facts["Next"].command)
    assert len(page.encode()) < 300_000


def test_a_forest_draws_each_interval_where_its_numbers_are():
    rows = [plots.Effect("a", 0.5, 0.25, 1.0, 100), plots.Effect("b", -0.5, -1.0, 0.0, 12, True)]
    drawn = str(plots.forest([*rows, plots.Effect("c", None, None, None, 0)], "axis", "title"))
    ends = [
        (float(a), float(b)) for a, b in re.findall(r'<line x1="([\d.]+)" y1="[\d.]+" x2="([\d.]+)"[^>]*"range"', drawn)
    ]
    at = [float(x) for x in re.findall(r"translate\(([\d.]+) ", drawn)]
    scale = np.polyfit([0.25, 1.0], ends[0], 1)
    assert np.allclose(ends[1], np.polyval(scale, [-1.0, 0.0]), atol=0.02)
    assert np.allclose(at, np.polyval(scale, [0.5, -0.5]), atol=0.02)
    assert drawn.count('class="faint"') == 1
