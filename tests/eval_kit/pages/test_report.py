"""The report in a real headless browser: sorted, filtered, narrow, printed, and never fooled."""

import re
from dataclasses import dataclass
from html import unescape
from pathlib import Path

import browser
import numpy as np
import polars as pl
import pytest
from jinja2 import UndefinedError
from markupsafe import Markup
from planted_oracle import oracle_ranking

import eval_kit
from eval_kit.errors import UserError
from eval_kit.markup import element
from eval_kit.output import emit
from eval_kit.pages.page import TEMPLATES, render, result_page
from eval_kit.pages.report import Report
from eval_kit.pages.report import report as report_on
from eval_kit.protocols.grid_results import Protocols, protocol
from eval_kit.protocols.in_out import in_and_out_by_query, overall
from eval_kit.protocols.similarity import figure_3, queries_to_encode
from eval_kit.protocols.variations import Variations, variations
from eval_kit.release import Release
from eval_kit.runs import writer as run_files
from eval_kit.runs.given import take
from eval_kit.runs.wordings import grid_and_worded
from eval_kit.stats.vectors import Vectors
from eval_kit.svg import MARKERS, loss_bar, span, swatch
from tests.eval_kit.plain_runs import plain_run, ranked_run

mini = pytest.importorskip("builder.sources.mini", exc_type=ImportError)

EVIL = "<b onclick=alert(1)>x & 'y' \"z\""
MAX_BYTES = 2_000_000
A4_PIXELS = 718  # 210 mm less two margins of 10 mm


@dataclass(frozen=True)
class Grid:
    """A scored grid on a mini release: the oracle and the same with noise, under an evil name."""

    release: Release
    runs: Path
    found: Protocols
    values: pl.DataFrame
    vectors: Vectors


@pytest.fixture(scope="module")
def grid(mini_release, tmp_path_factory) -> Grid:
    folder = tmp_path_factory.mktemp("report")
    test_sets = mini_release.test_sets
    made = mini.generate(mini.MiniParameters(queries=1_500))
    rng = np.random.default_rng(0)

    def write(system: str, cell: str, shift: str, held_out: str | None, ids: pl.Series, noise: float) -> Path:
        ranking = oracle_ranking(made, shift, held_out, ids.unique().sort())
        ranking = ranking.with_columns(score=pl.col("score") + pl.Series(rng.normal(0, noise, ranking.height)))
        ranking = ranking.sort("query_id", "score", descending=[False, True])
        ranking = ranking.with_columns(rank=pl.int_range(1, 101).over("query_id"))
        run = folder / f"{system}.{cell}.trec"
        run_files.write(ranking.select("query_id", "passage_id", "rank", "score").iter_rows(), run, "test")
        return run

    runs = []
    dev, dl = test_sets["dev"].queries, pl.concat(test_sets[name].queries for name in ("dl19", "dl20"))
    for system, noise in (("oracle", 1e-9), (EVIL, 2.0)):
        for shift, clusters in made.strengths.items():
            ids = pl.concat(test_sets[f"{shift}.{cluster}"].queries for cluster in clusters)
            runs += [write(system, f"{shift}.{cluster}", shift, cluster, ids, noise) for cluster in clusters]
        for number in range(1, 6):
            runs.append(write(system, f"resttest.b{number}", "topic", f"c{number - 1}", dev, noise))
        for regime, held_out in (("interpolate", None), ("extrapolate", "c0")):
            runs.append(write(system, f"restrain.{regime}_small", "topic", held_out, dl, noise))
    everything = pl.concat(test_set.queries for test_set in test_sets.values())
    found = protocol(runs, mini_release, [write("bm25", "all", "topic", "c0", everything, 4.0)])
    needed = queries_to_encode(found, mini_release)
    vectors = Vectors("bag.npy", needed["query_id"], rng.random((needed.height, 8)))
    return Grid(mini_release, folder, found, found.values, vectors)


@pytest.fixture(scope="module")
def worded(grid, tmp_path_factory) -> list[Path]:
    """Runs of dl19 and of two of its typos: the oracle is at rank 1 and falls to rank 3, the other has nothing."""
    folder = tmp_path_factory.mktemp("worded")
    relevant = dict(
        grid.release.qrels("dl19").filter(relevance=3).group_by("query_id").agg(pl.first("passage_id")).iter_rows()
    )
    runs = []
    for name in ("dl19", "dl19.typo.delete.1", "dl19.typo.insert.1"):
        for system in ("oracle", EVIL):
            rank = 99 if system == EVIL else 1 if name == "dl19" else 3
            found = [(query, relevant.get(query, "x"), rank) for query in grid.release.test_sets["dl19"].queries]
            runs.append(ranked_run(folder / f"{system}.{name}.trec", found, 3))
    return runs


@pytest.fixture(scope="module")
def changes(grid, worded) -> Variations:
    return variations(worded, grid.release)


@pytest.fixture(scope="module")
def report(grid, changes, tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("written") / "report.html"
    out.write_text(result_page(Report(grid.found, changes, grid.release, grid.vectors)))
    return out


@pytest.fixture(scope="module")
def chromium():
    with browser.browser() as tab:
        yield tab


@pytest.fixture
def tab(chromium):
    """A tab with nothing recorded; at the end nothing may have gone wrong in it or been fetched."""
    chromium.console.clear()
    chromium.requests.clear()
    chromium.media()
    chromium.size(1200)
    yield chromium
    assert chromium.console == []
    assert [url for url in chromium.requests if not url.startswith(("file:", "data:"))] == []


def numbers(tab, selector: str) -> list[float]:
    return [float(text.replace("\u2212", "-")) for text in tab.texts(selector)]


# What is in the report


def text_of(report: Path) -> str:
    """The words between the tags, as a browser collapses their white space."""
    return " ".join(unescape(re.sub(r"<[^>]+>", "", report.read_text())).split())


def test_the_report_is_one_small_file_the_same_every_time_and_names_release_and_runs(grid, changes, report):
    text = report.read_text()
    assert result_page(Report(grid.found, changes, grid.release, grid.vectors)) == text
    assert report.stat().st_size < MAX_BYTES
    foreign = r"""(?:src|href)\s*=\s*["'](?!#|data:)|url\(|@import|https?://(?!www\.w3\.org/2000/svg)"""
    assert not re.search(foreign, text)
    assert grid.release.digest in text
    for run in grid.found.provenance["runs"]:
        assert run["sha256"] in text
        assert str(Path(run["file"]).parent) not in text  # nobody else's business where the runs lay


def test_the_summary_says_the_loss_over_all_clusters_as_the_protocol_gives_it(grid, report):
    """By plain loops in tests/independent/test_protocol_by_hand.py."""
    assert set(grid.values["system"]) == {"oracle", EVIL}, "the untrained system is not of the grid"
    row = grid.found.standings("topic").row(by_predicate=pl.col("system") == "oracle", named=True)
    figure, low, high = (f"{100 * row[f'rel_loss{end}']:.1f} %" for end in ("", "_low", "_high"))
    said = f"oracle loses {figure} of its RR@10 on topics it never saw in training"
    assert f"{said} (95 % interval over queries: {low} to {high})." in text_of(report)
    for shift, part in (("resttest", ""), ("restrain", "small")):
        pairs = in_and_out_by_query(grid.values, shift, grid.release)
        for one in grid.found.standings(shift).to_dicts():
            assert one.get("size", "") == part
            mine = pairs.filter(system=one["system"], measure=one["measure"])
            means = mine["inside"].mean(), mine["out"].mean()
            assert (one["avg_in"], one["out"]) == pytest.approx(means)


def test_seeds_are_averaged(grid):
    wh = grid.values.filter(pl.col("shift") == "wh", pl.col("system") == "oracle")
    twice = pl.concat([wh, wh.with_columns(seed=pl.lit(1, pl.Int64), value=pl.col("value") / 2)])
    both, single = (overall(values, "wh", grid.release, "RR@10").row(0, named=True) for values in (twice, wh))
    assert both["queries"] == single["queries"]
    assert both["avg_in"] == pytest.approx(0.75 * single["avg_in"])
    assert both["rel_loss"] == pytest.approx(single["rel_loss"])


def test_a_report_of_a_grid_and_variations_is_one_result(grid, changes, tmp_path):
    both = Report(grid.found, changes, grid.release)
    assert both.content() == grid.found.content() | {"variations": changes.as_json()}
    assert set(both.summary()) == {*grid.found.summary(), *changes.summary()}
    assert len(both.provenance["runs"]) > len(grid.found.provenance["runs"])
    assert both.to_polars().height == grid.found.to_polars().height + changes.to_polars().height
    assert both.notes() == [*grid.found.notes(), *changes.notes()]
    emit(both, page=tmp_path / "r.html")
    assert result_page(both) == (tmp_path / "r.html").read_text()
    alone = Report(None, changes, grid.release, "some-model")
    assert alone.as_json() == changes.as_json()
    with pytest.raises(UserError, match="vectors some-model"):
        result_page(alone)


def test_a_report_on_variations_alone(grid, worded, tmp_path):
    eval_kit.write_page(report_on(worded, grid.release), tmp_path / "report.html")
    text = text_of(tmp_path / "report.html")
    assert "2 systems on query variations" in text and "What query variations cost oracle" in text
    assert "Skip to the results" in text and "In − Out" not in text
    [cells, varied] = take(
        cells=["s.topic.c0.trec", "s.topic.c1.trec"], varied=["s.topic.c0.dl19.typo.delete.1.trec", *worded]
    )
    of_grid, of_variations = grid_and_worded([*cells, *varied], grid.release)
    assert of_grid == cells
    assert set(of_variations) == {cells[0], *varied}


def test_the_figures_of_similarity(grid, report):
    """Figure 3 tells its correlation; those of r come with vectors only."""
    found = figure_3(grid.found, grid.release).as_json()["correlations"]["oracle"][0]
    text = unescape(re.sub(r"<[^>]+>", " ", report.read_text())).replace("\u2212", "-")
    assert found["estimate"]["low"] is None  # of eight clusters, no interval
    assert f"{found['estimate']['value']:+.3f}, p = {found['p']:.3f}" in text
    assert 'aria-label="Figure 3' in report.read_text()
    plain = result_page(Report(grid.found, None, grid.release))
    for number, with_vectors in ((4, 3), (5, 3), (6, 12)):  # a panel a shift; Figure 6 also a measure and system
        assert report.read_text().count(f'aria-label="Figure {number}') == with_vectors
        assert f'aria-label="Figure {number}' not in plain
    assert "Figures 4 to 6 need query vectors" in plain


def test_runs_that_find_nothing_and_vectors_that_tell_nothing(grid, tmp_path):
    runs = [tmp_path / f"zero.wh.{cluster}.trec" for cluster in grid.found.clusters["wh"]]
    for run in runs:
        run.write_text(plain_run(grid.release, "wh.wha", "wh.how", "wh.who"))
    found = protocol(runs, grid.release)
    needed = queries_to_encode(found, grid.release)
    alike = Vectors("alike.npy", needed["query_id"], np.ones((needed.height, 4)))
    page = tmp_path / "zero.html"
    emit(Report(found, None, grid.release, alike), page=page)
    assert "zero has no loss of RR@10 on wh words it never saw in training that could be told." in text_of(page)
    assert not re.search(r"""[="'\s>](-?inf|nan)["'\s<%]""", page.read_text())


# Its parts


def test_markup_escapes_all_but_markup():
    made = element("p", "<&>", Markup("<b>"), title="\"'<", hidden=None, open=True, data_x=1.50)
    assert made == '<p title="&#34;&#39;&lt;" open data-x="1.5">&lt;&amp;&gt;<b></p>'
    assert element("p", f"{Markup('<b>')}") == "<p>&lt;b&gt;</p>"  # an f-string forgets what was markup: safe


def test_templates_escape_text_and_data():
    template = TEMPLATES.from_string('<p title="{{ value }}">{{ value }}</p><script>{{ value|tojson }}</script>')
    assert template.render(value="</script><!--&") == (
        '<p title="&lt;/script&gt;&lt;!--&amp;">&lt;/script&gt;&lt;!--&amp;</p>'
        '<script>"\\u003c/script\\u003e\\u003c!--\\u0026"</script>'
    )
    with pytest.raises(ValueError, match="JSON"):
        template.render(value=float("nan"))
    with pytest.raises(UndefinedError):
        TEMPLATES.from_string("{{ vlaue }}").render(value="x")


def test_bars_share_a_scale_and_systems_differ_by_marker():
    assert span([0.1, None, 0.3, -0.05]) == (-0.05, 0.3)
    assert span([-13.0, 0.5]) == (-1.0, 0.5)
    assert span([]) == span([0.0]) == (0.0, 1.0)
    bar = loss_bar(-13.0, -20.0, -2.0, (-1.0, 0.5), harm=-1)
    assert 'class="bar harm"' in bar
    assert all(0 <= float(x) <= 96 for x in re.findall(r'\bx[12]?="([^"]+)"', bar)), "in their cell"
    assert "rect" not in loss_bar(None, None, None, (0.0, 1.0))
    shapes = {re.sub(r'class="swatch s\d"', "", swatch(place)) for place in range(MARKERS)}
    assert len(shapes) == MARKERS, "not by colour alone"


# In the browser


def test_an_evil_name_is_shown_as_text_and_a_legend_button_hides_its_system(tab, report):
    tab.open(report)
    assert tab.js("document.querySelectorAll('[onclick]').length") == 0
    assert tab.js("document.querySelectorAll('b').length === document.querySelectorAll('.standings b').length")
    assert any(EVIL in text for text in tab.texts(".standings li"))
    assert EVIL in tab.texts("th.who")
    series = "[...document.querySelector('figure').querySelectorAll('.series')]"
    shown = f"{series}.map((one) => getComputedStyle(one).display !== 'none')"
    assert tab.js(shown) == [True, True]
    tab.click(".legend button")
    assert tab.js(shown) == [False, True]
    tab.press("Enter")
    assert tab.js(shown) == [True, True]


OPEN_ALL = "[...document.querySelectorAll('details')].forEach((details) => (details.open = true))"


def test_print_shows_what_matters(tab, report):
    tab.open(report)
    tab.media("print")
    assert tab.texts(".controls, nav, .more") == []
    assert tab.js("getComputedStyle(document.querySelector('.scroll')).overflowX") == "visible"
    tab.js(OPEN_ALL)
    tab.size(A4_PIXELS)
    assert tab.js("document.documentElement.scrollWidth") == A4_PIXELS
    tab.media()
    assert tab.pdf().startswith(b"%PDF")
    tab.media("print", prefers_color_scheme="dark")
    assert tab.js("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"


def test_nothing_is_fetched_even_if_it_were_asked_for(tab, tmp_path):
    template = TEMPLATES.from_string(
        "{% extends 'page.html.j2' %}{% block title %}x{% endblock %}"
        "{% block body %}<img src='https://example.invalid/a.png' alt=''>"
        "<script>document.title = 'run'</script>{% endblock %}"
    )
    (tmp_path / "page.html").write_text(render(template, []))
    tab.open(tmp_path / "page.html")
    assert tab.js("document.title") == "x"
    assert any("Content Security Policy" in one for one in tab.console)
    tab.console.clear()
    tab.requests[:] = [url for url in tab.requests if "example.invalid" not in url]  # asked for, and blocked
