"""Pages of results in a real browser: what they lead with, that nothing is out of reach, and that all can be read."""

import json
import re
from dataclasses import replace
from pathlib import Path

import browser
import numpy as np
import polars as pl
import pytest

from eval_kit import plots
from eval_kit.models.card import Card
from eval_kit.models.typos import with_typos
from eval_kit.pages.page import result_page
from eval_kit.pages.report import report
from eval_kit.protocols.clean import clean
from eval_kit.protocols.compare import compare
from eval_kit.protocols.generalise import generalise
from eval_kit.protocols.scoring import score
from eval_kit.protocols.similarity import similarity
from eval_kit.protocols.variations import variations
from eval_kit.release import open_release
from eval_kit.runs.training import TrainingQueries
from tests.beir_folders import beir_folder
from tests.eval_kit.protocols.test_compare import write_runs

WIDTHS = (400, 700, 1000, 1400, 1920)
MOST_BYTES = 300_000
NONE = pl.Series([], dtype=pl.String)
LONG = "การทดสอบระบบค้นคืน-検索評価データセット第三版-с очень длинным названием, которое не помещается"
ASTRAY = """[...document.querySelectorAll('.scroll > table')].flatMap((table) => {
  if (!table.checkVisibility()) return [];
  const region = table.parentElement.getBoundingClientRect();
  const places = [];
  [...table.rows].forEach((row, y) => {
    places[y] ??= [];
    for (const cell of row.cells) {
      let x = 0;
      while (places[y][x]) x++;
      for (let i = 0; i < cell.colSpan; i++)
        for (let j = 0; j < cell.rowSpan; j++) (places[y + j] ??= [])[x + i] = cell;
    }
  });
  const heads = places[table.tHead.rows.length - 1];
  return places.slice(table.tHead.rows.length).flatMap((row) => row.map((cell, x) => {
    const [box, head] = [cell, heads[x]].map((one) => one.getBoundingClientRect());
    const under = head && Math.abs(box.left - head.left) < 1 && Math.abs(box.right - head.right) < 1;
    const [across, down] = [(box.left + box.right) / 2, (box.top + box.bottom) / 2];
    const inSight = across < Math.min(region.right, innerWidth) && down > 0 && down < innerHeight;
    const covered = inSight && document.elementFromPoint(across, down)?.closest('td, th') !== cell;
    return under && !covered ? null : cell.outerHTML.slice(0, 200);
  })).filter(Boolean);
})"""
UNMARKED = """new Promise((done) => requestAnimationFrame(() => setTimeout(() => done(
  [...document.querySelectorAll('.scroll')].filter((one) => one.checkVisibility()
  && one.scrollWidth > one.clientWidth + 1 !== one.matches('.more-right')).map((one) => one.outerHTML.slice(0, 300)),
  50))))"""
ILLEGIBLE = """(() => {
  const parse = (colour) => colour.match(/[\\d.]+/g).map(Number);
  const light = (colour) => parse(colour).slice(0, 3).map((one) => one / 255)
    .map((one) => (one <= 0.04045 ? one / 12.92 : ((one + 0.055) / 1.055) ** 2.4))
    .reduce((sum, one, at) => sum + one * [0.2126, 0.7152, 0.0722][at], 0);
  const behind = (one) => {
    for (; one; one = one.parentElement) {
      const colour = getComputedStyle(one).backgroundColor;
      if ((parse(colour)[3] ?? 1) === 1) return colour;
    }
    return 'rgb(255, 255, 255)';
  };
  return [...document.querySelectorAll('body *')].filter((one) => {
    if (!one.checkVisibility() || one.matches('script, title')) return false;
    if (![...one.childNodes].some((node) => node.nodeType === 3 && node.data.trim())) return false;
    for (let up = one; up; up = up.parentElement) if (getComputedStyle(up).opacity < 1) return true;
    const style = getComputedStyle(one);
    const [a, b] = [light(one.closest('svg') ? style.fill : style.color), light(behind(one))].sort((x, y) => y - x);
    return (a + 0.05) / (b + 0.05) < 4.5;
  }).map((one) => one.outerHTML.slice(0, 200));
})()"""
UNNAMED = """[...document.querySelectorAll('svg:not([aria-hidden]), button, input, [tabindex="0"]')].filter((one) =>
  one.checkVisibility() && !(one.ariaLabel || one.labels?.length || (one.tagName !== 'svg' && one.textContent.trim())))
  .concat([...document.querySelectorAll('svg:not([aria-hidden]):not([role=img])')]).map((one) => one.outerHTML)"""
DEAD = """[...document.querySelectorAll('a[href^="#"]')].map((one) => decodeURI(one.hash.slice(1)))
  .filter((id) => !document.getElementById(id))"""


def numbers(texts: list[str]) -> list[float]:
    return [float(text.split()[0].rstrip("?°≈").replace("\u2212", "-")) for text in texts]


@pytest.fixture(scope="module")
def runs(mini_release, tmp_path_factory) -> list[Path]:
    folder = tmp_path_factory.mktemp("pages")
    return write_runs(mini_release, folder, ["pivot", "a-system-with-a-rather-long-name"], 3, "dev", "dl19")


@pytest.fixture(scope="module")
def compared(runs, mini_release):
    return compare(runs, mini_release)


@pytest.fixture(scope="module")
def many(mini_release, tmp_path_factory):
    """Twenty-one systems."""
    names = [f"system-{number:02}" for number in range(21)]
    runs = write_runs(mini_release, tmp_path_factory.mktemp("many"), names, 4, "dev", "dl19")
    return compare(runs, mini_release, test_sets=["dev", "dl19"])


@pytest.fixture(scope="module")
def cards(mini_release, runs, tmp_path_factory) -> dict[str, Card]:
    """A card with everything; one of one run on one test set; one with long names that are not Latin."""
    folder = tmp_path_factory.mktemp("cards")
    worded = [folder / f"{run.stem}{ending}.trec" for run in runs for ending in ("", ".dl19.typo.delete.1")]
    for number, path in enumerate(worded):
        path.write_bytes(runs[number // 2].read_bytes())
    training = TrainingQueries(Path("train.tsv"), mini_release.queries("dev").head(40), NONE, NONE)
    compared = compare(runs, mini_release, by=[dict.fromkeys(mini_release.queries("dev")["query_id"], LONG)])
    whole = Card(
        *(compared, variations(worded, mini_release), None, compared.provenance, "hub/some-model", compared.systems[1]),
        *(mini_release, clean(training, mini_release, test_sets=["dev"])),
        generalise(runs[1:], runs[:1], mini_release, trained_on=training),
        again=["eval_kit", "run", "hub/some-model"],
    )
    scores = score(runs[:1], mini_release, test_sets=["dl19"])
    one = Card(scores, None, [], scores.provenance, "bm25", "pivot", mini_release)
    fields = [{"text": f"検索の話題 {i} запрос", "metadata": {"тема": f"{LONG} {i % 40}"}} for i in range(80)]
    texts = {f"ด{i}": of for i, of in enumerate(fields)}
    foreign = beir_folder(folder / LONG, [], texts, [(query, "p") for query in texts])
    with pytest.warns(UserWarning, match="no insert, swap_key"):
        release = with_typos(open_release(foreign), ["test.typo"])
    assert [name for name in release.variations if ".delete." in name] == ["test.typo.delete.1"]
    paths = write_runs(release, folder, ["ランク付け", "ранжирование-с-длинным-именем"], 5, "test")
    forty = compare(paths, release, by=["metadata.тема"])
    odd = Card(forty, None, None, forty.provenance, LONG, forty.systems[1], release)
    return {"whole": whole, "one": one, "odd": odd}


@pytest.fixture(scope="module")
def pages(cards, compared, many, runs, mini_release, tmp_path_factory) -> dict[str, Path]:
    """Every kind of page."""
    folder = tmp_path_factory.mktemp("written")
    training = ["pseudo words"]
    results = {**cards, "compare": compared, "many": many, "variations": cards["whole"].variations}
    results |= {"generalise": generalise(runs[1:], runs[:1], mini_release, trained_on=training)}
    results |= {"clean": cards["whole"].leaks, "similarity": similarity(mini_release)}
    clusters = ("wha", "how", "who")
    held_out = [f"mine.wh.{cluster}" for cluster in clusters]
    grid = write_runs(mini_release, folder, held_out, 6, *(f"wh.{cluster}" for cluster in clusters))
    worded = write_runs(mini_release, folder, ["mine.dl19", "mine.dl19.typo.delete.1"], 7, "dl19")
    results |= {"report": report([*grid, *worded], mini_release)}
    results |= {"score": score(runs, mini_release)}
    for name, result in results.items():
        (folder / f"{name}.html").write_text(result_page(result))
    return {name: folder / f"{name}.html" for name in results}


@pytest.fixture(scope="module")
def tab():
    with browser.browser() as one:
        yield one


def test_every_page_fits_every_screen_and_can_be_read(tab, pages):
    for name, path in pages.items():
        assert path.stat().st_size < MOST_BYTES, name
        tab.console.clear()
        tab.requests.clear()
        for width in WIDTHS:
            tab.size(width)
            tab.open(path)
            assert tab.js("document.documentElement.scrollWidth") <= width, (name, width)
            assert tab.js(ASTRAY) == [], (name, width, "a cell is covered, or under another's heading")
            assert tab.js(UNMARKED) == [], (name, width, "a shadow says where something goes on")
        tab.js("[...document.querySelectorAll('details')].forEach((one) => (one.open = true))")
        for scheme, medium in (("light", ""), ("dark", ""), ("dark", "print")):
            tab.media(medium, prefers_color_scheme=scheme)
            assert tab.js(ILLEGIBLE) == [], (name, scheme, medium)
        tab.media()
        assert (tab.js(UNNAMED), tab.js(DEAD)) == ([], []), name
        assert tab.console == [], name
        assert [url for url in tab.requests if not url.startswith(("file:", "data:"))] == []
        assert ("synthetic" in " ".join(tab.texts(".badge"))) == (name != "odd")
        assert tab.texts("h1") and tab.js("document.querySelectorAll('svg.plot').length > 0"), name


def test_any_table_sorts_by_numbers_with_intervals_and_with_the_keyboard(tab, compared, pages):
    tab.size(1400)
    tab.open(pages["compare"])
    values = compared.rows.filter(pl.col("difference").is_not_null())["difference"]
    table = "table:not(details table)"
    tab.click(f"{table} thead th:nth-last-child(3) button")
    shown = numbers(tab.texts(f"{table} td:nth-last-child(3)"))
    assert len(shown) == len(values)
    assert shown == sorted(shown, reverse=True)
    tab.press("Enter")  # the button has the focus
    assert numbers(tab.texts(f"{table} td:nth-last-child(3)")) == sorted(shown)
    assert tab.js("document.querySelector('thead th:nth-last-child(3)').ariaSort") == "ascending"
    tab.js("document.querySelector('thead th.first button').focus({focusVisible: true})")
    assert tab.js("getComputedStyle(document.activeElement).outlineStyle") == "solid"


def test_many_systems_stand_best_first_and_are_found_by_words(tab, many, pages):
    tab.size(1400)
    tab.open(pages["many"])
    rows = many.rows.filter(pl.struct("test_set", "measure") == pl.struct("test_set", "measure").first())
    first = rows.sort("value", descending=True, maintain_order=True)
    table = "document.querySelector('.many-columns table')"
    assert (
        tab.js(f"[...{table}.tBodies[0].rows].map((row) => row.cells[0].firstChild.data)") == first["system"].to_list()
    )
    tab.click(".controls input[type=search]")
    tab.type("system-07")
    assert tab.js(f"[...{table}.tBodies[0].rows].filter((row) => row.checkVisibility()).length") == 1
    assert tab.js("document.querySelector('.controls label').innerText.trim()") == "Filter"
    assert (
        tab.js("document.querySelectorAll('svg.plot').length") == 2
    )  # one a test set, as these are fewer than the systems


def test_a_card_says_what_a_stranger_asks(cards, mini_release, tab, pages):
    card = cards["whole"]
    page, document = pages["whole"].read_text(), json.loads(json.dumps(card.as_json()))
    assert "<h1>hub/some-model on mini</h1>" in page
    assert document["said"] == card.said()
    assert card.to_markdown().startswith("# hub/some-model on ")
    rows = card.figures_of.first_measures().filter(pl.col("queries") >= 30)
    worst = min(rows.iter_rows(named=True), key=lambda row: row["difference"])
    facts = {fact.about: fact for fact in card.facts()}
    assert facts["Worst test set"].verdict == worst["test_set"]
    assert re.match(r"0\.0 % of \S+ lost on ", facts["Typos"].verdict)  # the runs of both wordings are the same
    assert int(facts["Leaks"].text.split()[0]) >= 40
    assert facts["Far from training"].verdict in ("cannot tell", "loses on them", "does not lose on them")
    assert not any("trained-on" in fact.shell for fact in cards["one"].facts()), "there is no command to add it to"
    one, odd = (replace(cards[name], again=["eval_kit", "run"]) for name in ("one", "odd"))
    lacking = one.facts()[-1].command
    assert {"--variation", "dl19.typo"} <= set(lacking)
    assert "--trained-on" not in lacking  # BM25 was trained on nothing
    assert odd.facts()[-1].command[-3:-1] == ["test.typo", "--trained-on"]
    tab.open(pages["whole"])
    assert "hub/some-model" in tab.texts("h1")[0] and tab.texts("dt") == list(facts)
    assert tab.js("document.querySelector('svg.plot g title').textContent") != ""


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
    assert drawn.count('class="few"') == 1
