"""Comparisons: figures against scipy and a plain bootstrap, what may not be compared, and exports nothing breaks."""

import csv
import io
import re
from dataclasses import replace
from html import unescape
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from markdown_it import MarkdownIt
from rich.console import Console
from scipy import stats as scipy_stats

from eval_kit.errors import UserError
from eval_kit.pages.page import result_page
from eval_kit.protocols.by_part import in_order
from eval_kit.protocols.compare import ROWS, Comparison, compare
from eval_kit.protocols.scoring import score
from eval_kit.release import Release, open_release
from eval_kit.stats.differences import CANNOT_TELL, NOT_WORSE, WORSE
from eval_kit.tables.latex import to_latex
from eval_kit.tables.table import Column, Table
from tests.beir_folders import beir_folder
from tests.eval_kit.plain_runs import ranked_run

NASTY = "<b>x</b> & 100% |_$#{}~^\\ [a](http://x) *`!"


def write_runs(release: Release, folder: Path, names, seed: int, *sets: str) -> list[Path]:
    """Runs that find a relevant passage at a random rank, by name."""
    rng = np.random.default_rng(seed)
    relevant = {}
    for qrels in sorted({release.test_sets[name].qrels for name in sets}):
        rows = release.qrels(qrels).filter(pl.col("relevance") > 0).sort("query_id", "passage_id")
        relevant |= dict(rows.group_by("query_id").agg(pl.col("passage_id").first()).iter_rows())
    queries = sorted({query for name in sets for query in release.test_sets[name].queries})
    paths = []
    for name in names:
        found = [(query, relevant.get(query, "none"), int(rng.integers(1, 15))) for query in queries]
        paths.append(ranked_run(folder / f"{name}.trec", found, 14))
    return paths


@pytest.fixture(scope="module")
def runs(mini_release, tmp_path_factory) -> list[Path]:
    return write_runs(mini_release, tmp_path_factory.mktemp("runs"), ["one", "two", "three"], 0, "dl19", "dl20")


def ranked(folder: Path, **ranks: list[int]) -> tuple[Release, list[Path]]:
    """A collection with a query for each rank, and a run of each name that finds the relevant passages there."""
    queries = [f"q{i}" for i in range(len(next(iter(ranks.values()))))]
    toy = beir_folder(folder / "toy", [], dict.fromkeys(queries, "t"), [(query, "p") for query in queries])
    paths = []
    for name, of_run in ranks.items():
        found = [(query, "p", rank) for query, rank in zip(queries, of_run, strict=True)]
        paths.append(ranked_run(folder / f"{name}.trec", found, 8))
    return open_release(toy), paths


def test_figures_are_those_of_scipy(mini_release, runs):
    found = compare(runs, mini_release, measures=["nDCG@10"])
    assert found.systems == ["one", "two", "three"]
    assert [run["run"] for run in found.provenance["runs"]] == found.systems
    assert list(found.rows.columns) == list(ROWS)
    values: dict[tuple[str, str], np.ndarray] = {}
    per_query = score(runs, mini_release).per_query().filter(measure="nDCG@10").sort("query_id")
    for (test_set, system), rows in per_query.group_by("test_set", "run"):
        values[test_set, system] = rows["value"].to_numpy()
    rows = {(row["test_set"], row["system"]): row for row in found.rows.iter_rows(named=True)}
    assert set(rows) == set(values) and len(rows) == 6
    for (test_set, system), row in rows.items():
        mine, base = values[test_set, system], values[test_set, "one"]
        assert row["queries"] == len(mine)
        assert row["value"] == pytest.approx(mine.mean())
        if system == "one":
            assert (row["difference"], row["p"], row["p_holm"], row["low"]) == (None, None, None, None)
            continue
        assert row["difference"] == pytest.approx((mine - base).mean())
        assert row["p"] == pytest.approx(scipy_stats.ttest_rel(mine, base).pvalue)
        interval = scipy_stats.ttest_rel(mine, base).confidence_interval(1 - 0.05 / 4)
        assert (row["low"], row["high"]) == pytest.approx(tuple(interval))
        assert (row["helped"], row["hurt"]) == tuple(np.count_nonzero(s * (mine - base) > 1e-9) for s in (1, -1))
    raw = {key: row["p"] for key, row in rows.items() if key[1] != "one"}
    highest = 0.0
    for place, key in enumerate(sorted(raw, key=raw.__getitem__)):
        highest = max(highest, min(1.0, (4 - place) * raw[key]))
        assert rows[key]["p_holm"] == pytest.approx(highest), "the family is both systems on both test sets"
    turned = compare(runs, mini_release, "two", measures=["nDCG@10"], test_sets=["dl19"]).rows
    assert set(turned["test_set"]) == {"dl19"}
    backwards = turned.row(by_predicate=pl.col("system") == "one", named=True)
    assert backwards["difference"] == pytest.approx(-rows["dl19", "two"]["difference"])


def test_equal_systems_and_single_queries_have_no_test_and_the_order_of_queries_does_not_matter(tmp_path):
    release, (one, two) = ranked(tmp_path / "same", one=[1, 3], two=[1, 3])
    same = compare([one, two], release).rows.filter(system="two")
    assert set(same["p_holm"]) == {None} and set(same["difference"]) == {0.0}
    release, paths = ranked(tmp_path / "single", one=[2], two=[1])
    single = compare(paths, release).rows.filter(system="two")
    assert (single["low"][0], single["p"][0], single["queries"][0]) == (None, None, 1)
    release, paths = ranked(tmp_path / "turned", one=[1, 2, 3, 5], two=[4, 3, 1, 2])
    found = compare(paths, release).rows
    paths[1].write_text("".join(reversed(paths[1].read_text().splitlines(keepends=True))))
    assert compare(paths, release).rows.equals(found)


def test_what_cannot_be_compared_is_refused(mini_release, tmp_path, runs):
    """Names that are none are in test_verbs.py."""
    [other] = write_runs(mini_release, tmp_path, ["other"], 3, "wh.how")
    with pytest.raises(UserError, match="at least two systems"):
        compare(runs[:1], mini_release)
    with pytest.raises(UserError, match="no test set"):
        compare([runs[0], other], mini_release)


def test_what_one_side_lacks_is_named(mini_release, tmp_path):
    [one] = write_runs(mini_release, tmp_path, ["one"], 1, "dl19", "dl20")
    [two] = write_runs(mini_release, tmp_path, ["two"], 2, "dl19", "wh.how")
    lines = two.read_text().splitlines(keepends=True)
    query = mini_release.test_sets["dl19"].queries[0]
    two.write_text("".join(line for line in lines if line.split()[0] != query))
    found = compare([one, two], mini_release)
    assert sorted(found.left_out) == ["one: dl20", "two: wh.how"]
    assert set(found.rows["test_set"]) == {"dl19"}
    assert any("one: dl20; two: wh.how" in note for note in found.notes())
    assert found.said()[0] == "two has no results for 1 of the 43 queries of dl19, scored as 0"


@pytest.fixture(scope="module")
def nasty(mini_release, runs):
    found = compare(runs[:2], mini_release, measures=["RR@10"], test_sets=["dl19"])
    names = {"one": f"{NASTY}1", "two": f"{NASTY}2\n"}
    return replace(found, rows=found.rows.with_columns(pl.col("system").replace(names)), systems=list(names.values()))


def test_markdown_and_the_html_made_of_it_show_names_as_they_are(nasty):
    text = nasty.to_markdown()
    lines = text.splitlines()
    text = text[text.index("\n|") + 1 : text.index("<details>")]
    lines = text.splitlines()
    assert "<" not in text
    assert lines[1] == "| :-- | :-- | --: | --: | --: | --: | --: | --: |"
    cells = [len(re.split(r"(?<!\\)\|", line)) for line in lines[:3]]
    assert cells == [10, 10, 10], "no name adds a column"
    html = MarkdownIt("commonmark").enable("table").render(text)
    heads = [unescape(one) for one in re.findall(r"<th[^>]*>(.*?)</th>", html)]
    assert heads == [
        "test set",
        "measure",
        "n",
        f"{NASTY}1",
        f"{NASTY}2\\n",
        "Δ [95 % interval]",
        "+/−/=",
        "would find",
    ]
    assert set(re.findall(r"</?([a-z0-9]+)", html)) == {"table", "thead", "tbody", "tr", "th", "td", "strong"}
    assert re.search(r"-0\.\d{4} \[-0\.\d{4}, \+0\.\d{4}\]° \| \d+/\d+/\d+ \| 0\.\d{4} \|$", lines[2])


def test_latex_sets_signed_numbers_alone_as_mathematics():
    for text, latex in (
        ("-4.3% to 5.3%", r"$-4.3\%$ to 5.3\%"),
        ("+0.01 [-0.02, +0.03]", "$+0.01$ {[}$-0.02$, $+0.03${]}"),
        ("-1,234.5", "$-1,234.5$"),
        ("1e-05", "1e-05"),
        ("-", "-"),
    ):
        assert f"\n{latex} \\\\\n" in to_latex(Table([Column("n", "number")], [[[text]]]))


def test_latex_is_balanced_and_escaped(nasty):
    text = nasty.to_latex()
    body = [line for line in text.splitlines() if not line.startswith("%")]
    assert (body[0], *body[-2:]) == (r"\begin{table}", r"\end{tabular}}", r"\end{table}")
    named = [line for line in body if "100" in line and not line.startswith(r"\caption")]
    assert len(named) == 2 and all(len(re.findall(r"(?<!\\)&", line)) == named[0].count(" & ") for line in named)
    for line in named:
        assert line.endswith(r" \\")
        for special in "%$#_":
            assert not re.search(rf"(?<!\\){re.escape(special)}", line.replace(r"$^\circ$", "")), special
        plain = re.sub(r"\\[{}]", "", line)
        assert plain.count("{") == plain.count("}") and "<" not in line
        signs = {f"text{sign}" for sign in ("less", "greater", "bar", "asciitilde", "asciicircum", "backslash")}
        assert signs <= set(re.findall(r"\\([A-Za-z]+)", line)) <= {*signs, "textbf", "circ", "approx"}
    assert "\n2" not in text


def test_latex_has_a_system_a_row_and_the_measures_of_each_test_set_under_its_name(runs, mini_release):
    """As a paper prints it: no intervals; what is not significant has its mark, in all as many as the table has."""
    result = compare(runs, mini_release)
    tables = result.to_latex().split(r"\begin{table}")[1:]
    rows = [line.split(" & ") for line in tables[0].splitlines() if line.count(" & ") > 4]
    measures = result.rows.select("test_set", "measure").n_unique()
    wide = score(runs, mini_release, measures=[f"nDCG@{k}" for k in range(1, 9)]).to_latex()
    assert [text.count("nDCG@") for text in wide.split(r"\begin{tabular}")[1:]] == [8] * wide.count(", n = ")
    assert len(tables) == 1 and len(rows) == 1 + 3 and {len(row) for row in rows} == {1 + measures}
    assert all(name in tables[0] for name in ("dl19, n = ", "dl20, n = ")) and "{[}" not in tables[0]
    open_ones = result.rows.filter(pl.col("p_holm") >= 0.05).height
    assert sum(line.count(r"^\circ$") for line in tables[0].splitlines() if " & " in line) == open_ones > 0
    for row in rows[1:]:
        values = result.rows.filter(system=pl.lit(row[0].replace(r"\_", "_")))["value"]
        shown = [float(re.search(r"\d\.\d+", cell)[0]) for cell in row[1:]]
        assert shown == pytest.approx(values.to_list(), abs=5e-5)


def test_csv_gives_a_spreadsheet_no_formula_and_a_terminal_no_control():
    names = ["=1+1", "+1", "-1", "@x", "\tx", "a=1", "\x1b[31m", "-", '"', "a,b"]
    frame = pl.DataFrame({"system": names, "value": [-1.5] * len(names)})
    rows = list(csv.reader(io.StringIO(Comparison(frame, frame, [], [], {}).to_csv(), newline="")))
    shown = ["'=1+1", "'+1", "'-1", "'@x", r"'\tx", "a=1", r"\x1b[31m", "'-", '"', "a,b"]
    assert rows == [["system", "value"], *([name, "-1.5"] for name in shown)]


def test_the_screen_shows_names_as_they_are(nasty, mini_release):
    console = Console(width=250)
    with console.capture() as capture:
        nasty.show(console)
    text = capture.get()
    assert f"{NASTY}1" in text
    assert f"{NASTY}2\\n" in text
    origin = f"mini release {mini_release.version} ({mini_release.digest[:16]}), eval_kit "
    assert nasty.method()[-1].startswith(origin)


def test_what_is_not_significant_is_marked(tmp_path):
    a = [1, 2, 3, 4, 5, 6] * 6
    release, paths = ranked(tmp_path, a=a, b=a[1:] + a[:1], c=[1] * 36)
    [table] = compare(paths, release, measures=["RR@10"]).tables()
    marks = {name.text: (name.below, change.mark) for name, _, change in table.rows()}
    assert marks == {"a": ("baseline", ""), "b": ("", "°"), "c": ("", "")}


def test_runs_of_one_system_on_several_tracks_are_one_system(shared, published_release, tmp_path):
    for system in ("tas-b", "bm25"):
        for track, year in (("dl19", "2019"), ("dl20", "2020")):
            original = shared / "real-slice" / "runs" / f"{system}.{track}.trec"
            (tmp_path / f"{system}.{track}.trec").symlink_to(original)
            (tmp_path / f"{system}.{year}.res").symlink_to(original)
    for names in (("dl19.trec", "dl20.trec"), ("2019.res", "2020.res")):
        paths = [tmp_path / f"{system}.{name}" for system in ("tas-b", "bm25") for name in names]
        found = compare(paths, published_release)
        assert found.systems == ["tas-b", "bm25"]
        assert not found.left_out
        assert {"dl19", "dl20"} <= set(found.rows["test_set"])
        assert len(found.provenance["runs"]) == 4
    alike = [tmp_path / "bm25.dl19.trec", tmp_path / "bm25.2019.res"]  # on one track: two systems
    assert compare(alike, published_release).systems == ["bm25.dl19", "bm25.2019"]


def test_a_gate_on_few_queries_says_that_it_tested_none(tmp_path: Path) -> None:
    release, runs = ranked(tmp_path, a=[1] * 6, b=[2, 3, 2, 3, 2, 3])
    result = compare(runs, release, measures=["RR@10"], no_worse_than=0.1)
    *_, table = result.tables()
    [[part, verdict, *_]] = table.rows()
    assert part.text == "test" and "not tested" in verdict.text and result.exit_status == 3
    assert "not tested" in result.summary()[0] and "not tested" in result_page(result)


@pytest.mark.parametrize("measure", ["RR@10", "ASL@10"])
def test_a_gate_knows_which_way_a_measure_is_better(measure: str, tmp_path: Path) -> None:
    """Of ASL, which counts what is read in vain, lower is better."""
    release, (low, high) = ranked(tmp_path, low=[4, 6, 5, 7, 8] * 3, high=[1, 2, 3] * 5)
    assert compare([high, low], release, measures=[measure], no_worse_than=0.1).verdict == WORSE
    assert compare([low, high], release, measures=[measure], no_worse_than=0.1).verdict == NOT_WORSE


def test_of_a_search_length_a_query_can_lose_more_than_one(tmp_path: Path) -> None:
    """One of sixty queries reads one passage more; that another reads ten in vain is not excluded."""
    release, runs = ranked(tmp_path, a=[1] * 60, b=[2, *[1] * 59])
    assert compare(runs, release, measures=["ASL@10"], no_worse_than=0.3).exit_status == 3


def test_the_gate_says_which_part_fails(tmp_path: Path) -> None:
    release, runs = ranked(tmp_path, a=[1, 2] * 60, b=[1, 2] * 30 + [3, 3] * 30)
    parts = {f"q{n}": "old" if n < 60 else "new" for n in range(120)}
    result = compare(runs, release, measures=["RR@10"], by=[parts], no_worse_than=0.05)
    assert result.parts["part"].to_list() == ["new", "old", "all queries"]
    gate = result.summary()[0]
    assert gate.index("worse") < gate.index("new") < gate.index("n = 60") < gate.index("no query changed")
    assert [row[0].text for row in result.tables()[1].rows()][::2] == ["new", "old"]
    once = compare(runs, release, measures=["RR@10"], no_worse_than=0.05)
    assert once.verdict == WORSE
    release, runs = ranked(tmp_path / "three", a=[1] * 120, b=[1] * 40 + [2] * 40 + [9] * 40)
    parts = {f"q{n}": ["same", "little", "great"][n // 40] for n in range(120)}
    table = compare(runs, release, measures=["RR@10"], by=[parts], no_worse_than=0.05).tables()[1]
    assert [row[0].text for row in table.rows()] == ["great", "little", "all queries", "same"]


def test_of_a_system_of_two_tracks_each_run_says_how_deep_it_is(shared: Path, published_release: Release) -> None:
    runs = [
        shared / "real-slice/runs" / f"{name}.{track}.trec" for name in ("bm25", "tas-b") for track in ("dl19", "dl20")
    ]
    result = compare(runs, published_release)
    [note] = [note for note in result.cautions() if "is really" in note]
    assert result.systems == ["bm25", "tas-b"]
    assert note.startswith("bm25.dl19, bm25.dl20, tas-b.dl19 and tas-b.dl20 have")


def test_parts_stand_by_what_is_drawn_together_and_those_of_a_gate_by_what_they_show() -> None:
    rows = pl.DataFrame({"part": list("abc"), "difference": [0.5, 0.1, -0.2], "pooled": [0.0, 0.1, -0.1]})
    rows = rows.with_columns(system=pl.lit("s"), measure=pl.lit("RR@10"), is_beside=pl.lit(None, pl.Boolean))
    for verdict, order in ((None, "bac"), (CANNOT_TELL, "abc")):
        assert "".join(in_order(rows.with_columns(verdict=pl.lit(verdict, pl.String)))["part"]) == order
