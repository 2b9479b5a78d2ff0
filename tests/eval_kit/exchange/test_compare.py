"""Comparisons: figures against scipy and a plain bootstrap, what may not be compared, and exports nothing breaks."""

import csv
import io
import json
import re
from html import unescape
from pathlib import Path

import msgspec
import numpy as np
import polars as pl
import pytest
from markdown_it import MarkdownIt
from rich.console import Console
from scipy import stats as scipy_stats

from eval_kit.documents import Provenance
from eval_kit.errors import UserError
from eval_kit.exchange import sources as compare_sources
from eval_kit.exchange.compare import ROWS, compare
from eval_kit.exchange.sources import Source, load
from eval_kit.protocols.grid_results import protocols
from eval_kit.protocols.scoring import score
from eval_kit.protocols.slices import Slices
from eval_kit.release import Release
from eval_kit.shifts import SHIFTS
from eval_kit.stats.losses import draws
from eval_kit.tables.latex import to_latex
from eval_kit.tables.table import Column, Table
from tests.eval_kit.submissions import submit

PROVENANCE = {
    "kit_version": "1",
    "release": {"version": "1.0.0", "kind": "mini", "digest": "a" * 64, "missing": []},
    "tie_rule": "rule",
    "runs": [],
}
KEY = ("system", "test_set", "figure", "measure")
NASTY = "<b>x</b> & 100% |_$#{}~^\\ [a](http://x) *`!"


def source(name, values, provenance=PROVENANCE, measure="RR@10", missing=0, trained_on="no") -> Source:
    """A system's values: test set → values of q0, q1, …"""
    rows = [
        (name, test_set, "", measure, f"q{i:02}", float(value), missing, trained_on)
        for test_set, column in values.items()
        for i, value in enumerate(column)
    ]
    frame = pl.DataFrame(rows, compare_sources._VALUES, orient="row")
    return Source(f"{name}.json", [name], frame, msgspec.convert(provenance, Provenance))


def test_figures_are_those_of_scipy_and_of_a_plain_bootstrap():
    rng = np.random.default_rng(1)
    base = {test_set: rng.random(60) for test_set in ("a", "b")}
    near = {test_set: column + rng.normal(0.05, 0.1, 60) for test_set, column in base.items()}
    far = {test_set: column + rng.normal(0.2, 0.1, 60) for test_set, column in base.items()}
    found = compare([source("base", base), source("near", near), source("far", far)], resamples=400, seed=5)
    assert found.systems == ["base", "near", "far"]
    assert list(found.rows.columns) == list(ROWS)
    rows = {(row["test_set"], row["system"]): row for row in found.rows.iter_rows(named=True)}
    for (test_set, system), row in rows.items():
        assert row["queries"] == 60
        if system == "base":
            assert (row["difference"], row["p"], row["p_holm"], row["low"]) == (None, None, None, None)
            continue
        mine = {"near": near, "far": far}[system][test_set]
        assert row["value"] == pytest.approx(mine.mean())
        assert row["difference"] == pytest.approx((mine - base[test_set]).mean())
        assert row["p"] == pytest.approx(scipy_stats.ttest_rel(mine, base[test_set]).pvalue)
        resampled = [(mine - base[test_set])[draw].mean() for some in draws(60, 400, 5) for draw in some]
        assert (row["low"], row["high"]) == pytest.approx(tuple(np.quantile(resampled, [0.025, 0.975])))
    raw = {key: row["p"] for key, row in rows.items() if key[1] != "base"}
    highest = 0.0
    for place, key in enumerate(sorted(raw, key=raw.__getitem__)):
        highest = max(highest, min(1.0, (4 - place) * raw[key]))
        assert rows[key]["p_holm"] == pytest.approx(highest), "the family is both systems on both test sets"
    turned = compare([source("base", base), source("far", far)], baseline="far", resamples=400, seed=5).rows
    backwards = turned.filter(pl.col("system") == "base", pl.col("test_set") == "a").to_dicts()[0]
    assert backwards["difference"] == pytest.approx(-rows["a", "far"]["difference"])


def test_equal_systems_and_single_queries_have_no_test_and_the_order_of_queries_does_not_matter():
    same = compare([source("one", {"a": [0.1, 0.5]}), source("two", {"a": [0.1, 0.5]})], resamples=50).rows[1]
    assert same["p_holm"].to_list() == [None]
    assert same["difference"].to_list() == [0.0]
    single = compare([source("one", {"a": [0.1]}), source("two", {"a": [0.5]})], resamples=50).rows[1]
    assert (single["low"][0], single["p"][0], single["queries"][0]) == (None, None, 1)
    first, second = source("one", {"a": [0.1, 0.5, 0.9]}), source("two", {"a": [0.3, 0.4, 0.2]})
    turned = Source("two", ["two"], second.values.reverse(), second.provenance)
    assert compare([first, turned], resamples=50).rows.equals(compare([first, second], resamples=50).rows)


def test_what_was_not_scored_alike_is_refused():
    base, two = source("base", {"a": [0.1, 0.2]}), {"a": [0.3, 0.2]}
    strange = {
        "different release versions, '1.0.0' and '2.0.0'": {"release": PROVENANCE["release"] | {"version": "2.0.0"}},
        "different release digests": {"release": PROVENANCE["release"] | {"digest": "b" * 64}},
        "different tie rules, 'rule' and 'other'": {"tie_rule": "other"},
        "different versions of eval_kit": {"kit_version": "2"},
    }
    cases = {sentence: source("two", two, PROVENANCE | changes) for sentence, changes in strange.items()} | {
        "base and two were scored with different measures on a": source("two", two, measure="RR@100"),
        "base and two were scored on different queries of a": source("two", {"a": [0.1]}),
        "two systems are called base": source("base", two),
        "base shares no test set with two": source("two", {"b": [0.1]}),
    }
    for sentence, second in cases.items():
        with pytest.raises(UserError) as error:
            compare([base, second])
        assert sentence in str(error.value)
    with pytest.raises(UserError, match="at least two systems"):
        compare([base])
    with pytest.raises(UserError, match="there is no system x"):
        compare([base, source("two", two)], baseline="x")


def test_what_one_side_lacks_is_named():
    two = source("two", {"a": [0.3, 0.1], "c": [0.1, 0.2]}, missing=1)
    found = compare([source("base", {"a": [0.1, 0.2], "b": [0.1, 0.2]}), two], resamples=50)
    assert found.left_out == ["base: b", "two: c"]
    assert set(found.rows["test_set"]) == {"a"}
    assert "covered by one side only: base: b; two: c" in found.to_markdown()
    assert "Missing from two: 1 queries of a" in found.to_markdown()


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
        lines = []
        for query in queries:
            rank = int(rng.integers(1, 15))
            lines += [f"{query} Q0 filler{i} 1 {20 - i} t\n" for i in range(1, rank)]
            lines.append(f"{query} Q0 {relevant.get(query, 'none')} 1 {20 - rank} t\n")
        paths.append(folder / f"{name}.trec")
        paths[-1].write_text("".join(lines))
    return paths


def never() -> Release:
    raise AssertionError("no release is needed")


def write_scores(runs, release, path: Path) -> Path:
    scores = score(runs, release)
    path.write_text(json.dumps(scores.as_json()))
    path.with_suffix(".tsv").write_text(scores.per_query().write_csv(separator="\t"))
    return path


@pytest.fixture(scope="module")
def runs(mini_release, tmp_path_factory) -> list[Path]:
    return write_runs(mini_release, tmp_path_factory.mktemp("runs"), ["one", "two"], 0, "dl19", "dl20")


def test_runs_and_the_documents_of_score_compare_alike(mini_release, tmp_path, runs):
    def compared(sources, release=never, **options):
        return compare(load(sources, release, **options), resamples=200)

    direct = compared(runs, lambda: mini_release)
    assert direct.systems == ["one", "two"]
    assert set(direct.rows["test_set"]) == {"dl19", "dl20"}
    values = score(runs, mini_release).per_query()
    for row in direct.rows.filter(pl.col("system") == "two").iter_rows(named=True):
        mine = values.filter(test_set=row["test_set"], measure=row["measure"]).sort("query_id")
        pair = [mine.filter(pl.col("run") == name)["value"].to_numpy() for name in ("two", "one")]
        if row["p"] is None:
            assert np.ptp(pair[0] - pair[1]) == 0
        else:
            assert row["p"] == pytest.approx(scipy_stats.ttest_rel(*pair).pvalue)
    assert direct.rows["p"].drop_nulls().len() >= 4
    documents = [write_scores([run], mini_release, tmp_path / f"{run.stem}.json") for run in runs]
    assert compared(documents).rows.equals(direct.rows)
    assert compared([write_scores(runs, mini_release, tmp_path / "both.json")]).rows.equals(direct.rows)
    mixed = compared([documents[0], runs[1]], lambda: mini_release)
    assert mixed.rows.equals(direct.rows)
    assert [run["run"] for run in mixed.provenance["runs"]] == ["one", "two"]
    chosen = compared([documents[0], runs[1]], lambda: mini_release, measures=["nDCG@10"])
    assert chosen.rows.equals(direct.rows.filter(pl.col("measure") == "nDCG@10"))
    with pytest.raises(UserError, match=r"one\.json: has no P@5; score its runs again with --measure P@5"):
        load([documents[0], runs[1]], lambda: mini_release, measures=["P@5"])
    json.dumps(mixed.as_json(), allow_nan=False)


def test_documents_whose_values_are_not_their_own(mini_release, tmp_path, runs):
    path = write_scores(runs[:1], mini_release, tmp_path / "scores.json")
    table, document = path.with_suffix(".tsv"), json.loads(path.read_text())
    good = table.read_text()
    lines = good.splitlines(keepends=True)
    measure, last = document["measures"][0]["measure"], document["measures"][-1]
    first, second = (line.split("\t") for line in lines[1:3])
    twice = "\t".join([*second[:3], first[3], *second[4:]])
    tables = {
        f"does not match the document's {measure} of one on dl19": lines[0] + "".join(lines[2:]),
        "score again": "".join([*lines[:-1], re.sub(r"[^\t]+\n$", "0.123\n", lines[-1])]),
        f"does not match the document's {measure}": "".join([lines[0], lines[2], *lines[2:]]),
        "of one on dl19; score again": "".join([*lines[:2], twice, *lines[3:]]),
        "is not the table that --per-query writes": good.replace("query_id", "qid", 1),
        "is not the table that --per-query writes: run": good.replace(lines[1], lines[1].replace("dl19", "")),
        "is not the table": "run\n",
        "holds control characters": good.replace("one", "o\x1bne"),
    }
    lacking = f"has {last['measure']} of one on dl20, which scores.json lacks"
    documents = {
        lacking: json.dumps({**document, "measures": document["measures"][:-1]}),
        "not a valid scores document": json.dumps({**document, "provenance": {}}),
        "is not JSON": "{",
    }
    for file, cases, whole in ((table, tables, good), (path, documents, path.read_text())):
        for sentence, text in cases.items():
            file.write_text(text)
            with pytest.raises(UserError, match=re.escape(sentence)):
                load([path], never)
        file.write_text(whole)
    table.unlink()
    with pytest.raises(UserError, match=r"write them with eval_kit score --json scores\.json --per-query scores\.tsv"):
        load([path], never)
    with pytest.raises(UserError, match=r"gone\.json"):
        load([tmp_path / "gone.json", path], never)


def grid(release: Release, folder: Path, system: str, seed: int) -> Path:
    """A submission with grids of all three kinds, and a plain run of TREC DL 2019."""
    folder.mkdir()
    cells = {shift: [f"s.{shift}.{part}" for part in SHIFTS[shift].parts(release)] for shift in ("wh", "resttest")}
    files = write_runs(release, folder, cells["wh"], seed, "wh.wha", "wh.how", "wh.who")
    files += write_runs(release, folder, cells["resttest"], seed + 1, "dev")
    sizes = [f"s.restrain.{regime}_small" for regime in ("interpolate", "extrapolate")]
    files += write_runs(release, folder, sizes, seed + 2, "dl20")
    files += write_runs(release, folder, ["plain"], seed + 3, "dl19")
    return submit(release, folder, [file.name for file in files], system)


def test_submissions_are_compared_by_in_and_out(mini_release, tmp_path):
    folders = [grid(mini_release, tmp_path / name, name, seed) for name, seed in (("alpha", 10), ("beta", 20))]
    found = compare(load(folders, lambda: mini_release), resamples=100)
    assert found.systems == ["alpha", "beta"]
    values = {row[:-1]: row[-1] for row in found.rows.select(*KEY, "value").iter_rows()}
    assert ("dl19", "") in {(test_set, figure) for _, test_set, figure, _ in values}
    for folder in folders:
        results = protocols(list(folder.glob("s.*.trec")), mini_release).results
        for shift, suffix in (("wh", ""), ("resttest", ""), ("restrain", " small")):
            for row in results[shift].iter_rows(named=True):
                test_set = {"wh": f"wh.{row.get('cluster')}", "resttest": "dev", "restrain": "dl20"}[shift]
                key = folder.name, test_set
                assert values[*key, f"In{suffix}", row["measure"]] == pytest.approx(row["avg_in"])
                assert values[*key, f"Out{suffix}", row["measure"]] == pytest.approx(row["out"])
    assert all(str(tmp_path) in run["file"] for run in found.provenance["runs"])


def test_two_plain_runs_of_one_test_set_in_a_submission(mini_release, tmp_path):
    files = write_runs(mini_release, tmp_path, ["x", "y"], 0, "dl19")
    with pytest.raises(UserError, match="two of its runs cover dl19"):
        load([submit(mini_release, tmp_path, [file.name for file in files])], lambda: mini_release)


@pytest.fixture(scope="module")
def nasty():
    rng = np.random.default_rng(3)
    values = rng.random(30)
    better = values + 0.1 + rng.normal(0, 0.01, 30)
    return compare([source(f"{NASTY}1", {"a": values}), source(f"{NASTY}2\n", {"a": better})], resamples=100)


def test_markdown_and_the_html_made_of_it_show_names_as_they_are(nasty):
    text = nasty.to_markdown()
    lines = text.splitlines()
    assert "<" not in text
    assert lines[1] == "| :-- | :-- | --: | --: | --: | --: |"
    cells = [len(re.split(r"(?<!\\)\|", line)) for line in lines[:3]]
    assert cells == [8, 8, 8], "no name adds a column"
    html = MarkdownIt("commonmark").enable("table").render(text)
    heads = [unescape(one) for one in re.findall(r"<th[^>]*>(.*?)</th>", html)]
    assert heads == ["test set", "measure", "n", f"{NASTY}1", f"{NASTY}2\\n", "Δ [95 % interval]"]
    assert set(re.findall(r"</?([a-z0-9]+)", html)) == {"table", "thead", "tbody", "tr", "th", "td", "p"}
    assert re.search(r"\+0\.\d{4} \[\+0\.\d{4}, \+0\.\d{4}\] \|$", lines[2])


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
    assert (body[0], body[-1]) == (r"\begin{tabular}{llrrrr}", r"\end{tabular}")
    header = body[2]
    assert header.endswith(r" \\")
    assert len(re.findall(r"(?<!\\)&", header)) == 5
    for special in "%$#_":
        assert not re.search(rf"(?<!\\){re.escape(special)}", header.replace(r"$\Delta$", "")), special
    plain = re.sub(r"\\[{}]", "", header)
    assert plain.count("{") == plain.count("}")
    signs = ["less", "greater", "bar", "asciitilde", "asciicircum", "backslash"]
    assert set(re.findall(r"\\([A-Za-z]+)", header)) == {"Delta", *(f"text{sign}" for sign in signs)}
    assert "<" not in header
    assert "\n2" not in text


def test_csv_gives_a_spreadsheet_no_formula_and_a_terminal_no_control():
    names = ["=1+1", "+1", "-1", "@x", "\tx", "a=1", "\x1b[31m", "-", '"', "a,b"]
    frame = pl.DataFrame({"system": names, "value": [-1.5] * len(names)})
    rows = list(csv.reader(io.StringIO(Slices(frame, [], {}).to_csv(), newline="")))
    shown = ["'=1+1", "'+1", "'-1", "'@x", r"'\tx", "a=1", r"\x1b[31m", "'-", '"', "a,b"]
    assert rows == [["system", "value"], *([name, "-1.5"] for name in shown)]


def test_csv_and_the_screen_show_names_as_they_are(nasty):
    rows = list(csv.DictReader(io.StringIO(nasty.to_csv(), newline="")))
    assert [row["system"] for row in rows] == [f"{NASTY}1", f"{NASTY}2\\n"], "controls are written out"
    assert float(rows[1]["difference"]) == nasty.rows["difference"][1]
    assert rows[0]["difference"] == ""
    console = Console(width=250)
    with console.capture() as capture:
        nasty.show(console)
    text = capture.get()
    assert f"{NASTY}1" in text
    assert f"{NASTY}2\\n" in text
    assert "mini release 1.0.0 (aaaaaaaaaaaaaaaa), eval_kit 1; ties: rule" in text


def test_what_is_not_significant_is_marked():
    rng = np.random.default_rng(0)
    noise, values = rng.normal(0, 0.1, 40), rng.random(40)
    systems = {"a": values, "b": values + noise - noise.mean(), "c": values + 0.1 + noise}
    found = compare([source(name, {"t": column}) for name, column in systems.items()], resamples=100)
    row = found.to_markdown().splitlines()[2].split(" | ")
    assert row[5].endswith("°")
    assert not row[7].endswith("° |")


def test_runs_of_one_system_on_several_tracks_are_one_system(shared, published_release, tmp_path):
    for system in ("tas-b", "bm25"):
        for track, year in (("dl19", "2019"), ("dl20", "2020")):
            original = shared / "real-slice" / "runs" / f"{system}.{track}.trec"
            (tmp_path / f"{system}.{track}.trec").symlink_to(original)
            (tmp_path / f"{system}.{year}.res").symlink_to(original)
    for names in (("dl19.trec", "dl20.trec"), ("2019.res", "2020.res")):
        paths = [tmp_path / f"{system}.{name}" for system in ("tas-b", "bm25") for name in names]
        found = compare(load(paths, lambda: published_release), resamples=20)
        assert found.systems == ["tas-b", "bm25"]
        assert not found.left_out
        assert {"dl19", "dl20"} <= set(found.rows["test_set"])
        assert len(found.provenance["runs"]) == 4
    alike = [tmp_path / "bm25.dl19.trec", tmp_path / "bm25.2019.res"]  # on one track: two systems
    assert compare(load(alike, lambda: published_release), resamples=20).systems == ["bm25.dl19", "bm25.2019"]
