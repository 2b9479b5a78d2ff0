"""Out-of-distribution alignment: correlations against scipy, Table 5's layout, and the strict readers."""

import json
import re

import numpy as np
import polars as pl
import pytest
from rich.console import Console
from scipy import stats

from eval_kit.errors import UserError
from eval_kit.pages.page import result_page
from eval_kit.protocols.align import DOMAINS, KINDS, TRAININGS, align, align_files, layout, read
from eval_kit.protocols.in_domain import in_domain
from eval_kit.release.reference import load
from eval_kit.tables import terminal

NAMES = ["dataset", "training", "kind", "n", "value", "low", "high", "p"]


def models(n=24, seed=0):
    """n models of each training; the extrapolation ones' scores tell their BEIR scores better. With ties."""
    rng = np.random.default_rng(seed)
    rows = []
    for training, noise in (("interpolation", 2.0), ("extrapolation", 0.3)):
        ability = rng.normal(size=n)
        scores = np.round(0.5 + 0.1 * ability, 2)
        for dataset, sign in (("nq", 1), ("touche-2020", -1)):
            values = 0.3 + 0.05 * sign * (ability + noise * rng.normal(size=n))
            rows += [(f"m{i}", training, scores[i], dataset, values[i]) for i in range(n)]
    names = ["system", "training", "score", "dataset", "value"]
    return pl.DataFrame(rows, names, orient="row")


def test_correlations_are_scipys():
    table = models()
    found = align(table)
    assert found.height == 2 * 2 * 2
    for row in found.iter_rows(named=True):
        here = table.filter(pl.col("dataset") == row["dataset"], pl.col("training") == row["training"])
        whole = {"spearman": stats.spearmanr, "kendall": stats.kendalltau}[row["kind"]]
        expected = whole(here["score"].to_numpy(), here["value"].to_numpy())
        assert row["value"] == pytest.approx(expected.statistic, abs=1e-12)
        assert row["p"] == pytest.approx(expected.pvalue)
        assert row["n"] == 24
        assert row["low"] < row["value"] < row["high"]
    by = {(row["dataset"], row["training"], row["kind"]): row["value"] for row in found.iter_rows(named=True)}
    assert by["nq", "extrapolation", "spearman"] > by["nq", "interpolation", "spearman"]
    assert by["touche-2020", "extrapolation", "kendall"] < 0
    too_few = align(models(n=2))
    assert too_few.select("value", "n").rows() == [(None, 2)] * 8
    assert set(align(models().filter(training="interpolation"))["training"]) == {"interpolation"}


def test_a_table_is_read_as_written(tmp_path):
    table = models()
    order = ["training", "system", "dataset"]
    table.pivot("dataset", index=["system", "training", "score"], values="value").write_csv(tmp_path / "m.csv")
    assert read(tmp_path / "m.csv").sort(order).equals(table.sort(order))
    found = align_files([tmp_path / "m.csv"], seed=3)
    document = json.loads(json.dumps(found.as_json(), allow_nan=False))
    assert document["alignment"] == align(table, seed=3).to_dicts()
    assert (document["provenance"]["resamples"], document["provenance"]["seed"]) == (10_000, 3)
    [source] = document["provenance"]["files"]
    assert len(source["sha256"]) == 64


def shown(table: pl.DataFrame) -> tuple[list[str], list[list[str]]]:
    """Table 5's lines as a terminal with colours has them, and the words of each without its styles."""
    console = Console(width=100, force_terminal=True, color_system="standard")
    with console.capture() as capture:
        terminal.show(layout(table), console)
    lines = capture.get().splitlines()
    return lines, [re.sub(r"\x1b\[[0-9;]*m", "", line).split() for line in lines]


def test_the_layout_is_table_5s():
    cells = load("cikm2022-table5")["cells"]
    rows = [
        (cell["test_set"], cell["training"], cell["measure"].partition("(")[0], 24, cell["value"], None, None, 0.1)
        for cell in cells
    ]
    lines, plain = shown(pl.DataFrame(rows, NAMES, orient="row"))
    assert plain[:2] == [["Spearman", "Kendall"], ["Datasets", "Domain", "n", "Inter.", "Extra.", "Inter.", "Extra."]]
    assert plain[2] == ["TREC-Covid", "Bio-Medical", "24", "0.537", "0.841", "0.359", "0.645"]
    assert plain[-1] == ["Touché-2020", "Argument", "24", "-0.307", "-0.410", "-0.216", "-0.278"]
    names = list(dict.fromkeys(cell["test_set"].removeprefix("beir.") for cell in cells))
    assert [line[0] for line in plain[2:]] == [DOMAINS[name][0].split()[0] for name in names]
    assert set(names) == set(DOMAINS)
    # bold in the paper: Extra. of the first nine, Inter. of Arguana, none of the last four
    numbers = [line[-4:] for line in plain[2:]]
    bold = [re.findall(r"\x1b\[1m\s*(-?[\d.]+)", line) for line in lines[2:]]
    assert bold == [[v[1], v[3]] if i < 9 else [v[0], v[2]] if i == 9 else [] for i, v in enumerate(numbers)]


def test_intervals_counts_and_strange_names_are_shown_and_no_tie_is_bold():
    rows = [("[red]<x>", TRAININGS[side], kind, 24 - side, 0.5, 0.1, 0.8, 0.1) for side in (0, 1) for kind in KINDS]
    lines, plain = shown(pl.DataFrame(rows, NAMES, orient="row"))
    assert plain[2] == ["[red]<x>", "24/23", *["0.500"] * 4]
    assert " ".join(plain[3]) == " ".join(["[0.10, 0.80]"] * 4)
    assert "\x1b[1m" not in "".join(lines[2:])


HEADER = "system,training,score,nq\n"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", ":1: expected the header"),
        ("system,training,score\n", ":1: has no dataset column"),
        ("system,training,score,nq,nq\n", ":1: expected the header"),
        ("system,training,score,\n", ":1: expected the header"),
        ("\ufeff" + HEADER, ":1: holds a byte-order mark"),
        (HEADER, ":2: no model follows"),
        (HEADER + "a,interpolation,0.5\n", ":2: 3 columns, the header has 4"),
        (HEADER + "a,interpolation,0.5,\n", ":2: '' is not a finite number"),
        (HEADER + "a,interpolation,1_0,1\n", ":2: '1_0' is not a finite number"),
        (HEADER + "a,interpolation,1e999,1\n", ":2: '1e999' is not a finite number"),
        (HEADER + "a,inter,1,1\n", ":2: the training 'inter' is neither interpolation nor extrapolation"),
        (HEADER + " ,interpolation,1,1\n", ":2: the system has no name"),
        (HEADER + "a,interpolation,1,1\n" * 2, ":3: a appears twice for interpolation"),
        (HEADER + "ÿ\n", "m.csv:2: is not UTF-8"),
        (HEADER + "a,x,1,1\n" * 7, "; and 2 more"),
        (HEADER + 'a,"x"y,1,1\n', ":2: is not CSV"),
    ],
)
def test_faults_of_csv(tmp_path, text, sentence):
    path = tmp_path / "m.csv"
    path.write_text(text, encoding="latin-1" if "ÿ" in text else "utf-8")
    with pytest.raises(UserError, match=re.escape(sentence)):
        read(path)


def test_other_files_are_refused(tmp_path):
    (tmp_path / "m.txt").write_text("x")
    for name, sentence in (("m.txt", "expected a .csv file"), ("gone.csv", "cannot be read")):
        with pytest.raises(UserError, match=sentence):
            read(tmp_path / name)


def beir_report(run, values):
    """A report as ``eval_kit score --dataset --json`` writes it, of what is read of it."""
    rows = [{"system": run, "dataset": dataset, "measure": "nDCG@10", "value": v} for dataset, v in values.items()]
    return [*rows, *(row | {"measure": "R@100", "value": 0.9} for row in rows)]


def suite_document(*reports):
    return {"rows": [row for report in reports for row in report], "notes": [], "provenance": {}}


def protocol(shift, measure, rows):
    names = ("system", "size", "avg_in", "out") if shift == "restrain" else ("system", "avg_in", "out")
    results = [dict(zip(names, row, strict=True)) | {"measure": name} for row in rows for name in ("R@100", measure)]
    return {"protocols": {shift: results}, "matrices": {}, "untrained": {}, "provenance": {}}


def test_the_kits_own_results_are_read(tmp_path):
    def write(name, document):
        (tmp_path / name).write_text(json.dumps(document))
        return tmp_path / name

    restrain = protocol("restrain", "nDCG@10", [("a", "14k", 0.5, 0.4), ("a", "45k", 0.6, 0.5), ("b", "14k", 0.7, 0.3)])
    systems = {}
    for number, model in enumerate(("a.14k", "a.45k", "b.14k")):
        system, _, size = model.partition(".")
        for regime in ("interpolate", "extrapolate"):
            values = {"fiqa": 0.1 * number, "cqadupstack.tex": 0.2, "cqadupstack": 0.3 + 0.05 * number}
            run = f"{system}.restrain.{regime}_{size}"
            systems[run] = beir_report(run, values)
    files = [write("protocol.json", restrain), write("suite.json", suite_document(*systems.values()))]
    found = align_files(files)
    assert found.models.filter(dataset="cqadupstack", system="b.14k")["value"].to_list() == pytest.approx([0.4, 0.4])
    assert found.models.filter(dataset="fiqa-2018", training="extrapolation").select("system", "score").rows() == [
        ("a.14k", 0.4),
        ("a.45k", 0.5),
        ("b.14k", 0.3),
    ]
    values = {row["dataset"] + row["training"]: row["value"] for row in found.correlations.iter_rows(named=True)}
    assert values["fiqa-2018interpolation"] == pytest.approx(1)  # of Kendall, the last: three models in one order
    page = result_page(found)
    assert page.count("<svg") == 4 and "a.45k: 0.500, FiQA 0.100" in page

    # ReSTTest: one model for both trainings; of several files
    resttest = write("resttest.json", protocol("resttest", "RR@10", [("a", 0.3, 0.2), ("b", 0.4, 0.1)]))
    reports = [write(f"{system}.json", suite_document(beir_report(system, {"nq": 0.5}))) for system in ("a", "b")]
    models = align_files([*reports, resttest]).models
    assert models.select("system", "training", "score", "value").rows() == [
        ("a", "interpolation", 0.3, 0.5),
        ("a", "extrapolation", 0.2, 0.5),
        ("b", "interpolation", 0.4, 0.5),
        ("b", "extrapolation", 0.1, 0.5),
    ]
    for paths, sentence in (
        ([resttest, reports[0]], "lack b on nq: run b.nq.trec"),
        ([resttest, resttest], "give one file of eval_kit protocol --json and at least one of score --dataset --json"),
        ([resttest, reports[0], reports[0]], "scores a on nq, as an earlier file does"),
        ([resttest, write("other.json", {"rows": [{}]})], "other.json: is not in the format of eval_kit"),
        ([write("null.json", protocol("resttest", "RR@10", [("a", None, 0)])), reports[0]], "null.json: is not in the"),
        ([resttest, write("text.json", suite_document(beir_report("a", {"nq": "half"})))], "text.json: is not in the"),
        ([resttest, write("list.json", [])], "list.json: expected results"),
        ([write("topic.json", protocol("topic", "RR@10", [])), reports[0]], "neither restrain nor resttest"),
    ):
        with pytest.raises(UserError, match=re.escape(sentence)):
            align_files(paths)


def test_in_domain_figures_of_own_systems_are_correlated_beside_the_papers(tmp_path, command):
    rng = np.random.default_rng(3)
    figures = {f"s{number}": dict(zip(("msmarco", "nq", "fiqa"), rng.random(3), strict=True)) for number in range(6)}
    suite = tmp_path / "suite.json"
    systems = {system: beir_report(system, values) for system, values in figures.items()}
    suite.write_text(json.dumps(suite_document(*systems.values())))
    own = in_domain([suite]).to_polars().row(-1, named=True)
    inside = [values["msmarco"] for values in figures.values()]
    outside = [(values["nq"] + values["fiqa"]) / 2 for values in figures.values()]
    expected = stats.spearmanr(inside, outside)
    assert (own["systems"], own["n"], own["datasets"]) == ("the given results", 6, 2)
    assert (own["spearman"], own["p"]) == pytest.approx((expected.statistic, expected.pvalue), abs=1e-12)
    for page, given in (("own.html", [suite]), ("paper.html", [])):
        done = command("eval_kit", "align", *given, "--page", tmp_path / page)
        assert done.returncode == 0, done.stderr
        assert done.stdout.count("BEIR, Table 2") == 3 and ("the given results" in done.stdout) == bool(given)
        assert "trained on MS MARCO" in (tmp_path / page).read_text()
    for values, sentence in (({"nq": 0.5, "msmarco": 0.1}, "fiqa"), ({"nq": 0.5, "fiqa": 0.1}, "msmarco")):
        suite.write_text(json.dumps(suite_document(*systems.values(), beir_report("s6", values))))
        with pytest.raises(UserError, match=f"s6 has no result on {sentence}"):
            in_domain([suite])
    suite.write_text(json.dumps(suite_document(beir_report("s0", {"msmarco": 0.2}))))
    assert command("eval_kit", "align", suite).stderr.count("are on msmarco alone") == 1
