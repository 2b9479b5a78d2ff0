"""The commands, as they are typed."""

import json
import shutil

import polars as pl

from eval_kit import __version__
from tests.beir_folders import beir_folder
from tests.eval_kit.plain_runs import plain_run


def test_the_version(command):
    for module in ("eval_kit", "eval_kit.cli"):
        assert command(module, "--version").stdout == f"eval_kit {__version__}\n"


def test_an_option_of_one_value_is_given_once(command):
    done = command("eval_kit", "score", "none.trec", "--format", "csv", "--format=latex")
    assert done.returncode == 2 and "--format" in done.stderr and "twice" in done.stderr


def test_compare(mini_release, command, tmp_path):
    relevant = dict(
        mini_release.qrels("dl19").filter(relevance=3).unique("query_id").select("query_id", "passage_id").iter_rows()
    )
    text = plain_run(mini_release, "dl19", "dl20")
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "a & b.trec").write_text(text)
    (tmp_path / "runs" / "c.trec").write_text(text + "".join(f"{q} Q0 {p} 2 0.5 t\n" for q, p in relevant.items()))
    where = ("--release", mini_release.folder.resolve())
    done = command(
        "eval_kit", "compare", "runs", *where, "--test-set", "dl19", "--json", "c.json", cwd=tmp_path, status=0
    )
    document = json.loads((tmp_path / "c.json").read_text())
    assert document["systems"] == ["a & b", "c"]
    assert {row["test_set"] for row in document["comparison"]} == {"dl19"}
    assert r"\&" in command("eval_kit", "compare", "runs", *where, "--format", "latex", cwd=tmp_path).stdout
    shutil.copy(tmp_path / "runs" / "c.trec", tmp_path / "d.trec")
    done = command("eval_kit", "compare", "runs/c.trec", "d.trec", *where, "--format", "csv", cwd=tmp_path, status=0)
    assert done.stderr.count("byte for byte") == 1, done.stderr
    assert pl.read_csv(done.stdout.encode(), infer_schema=False)["system"].unique().sort().to_list() == ["c", "d"]


def test_beir(command, tmp_path):
    dataset = beir_folder(tmp_path / "toy", [], {"q1": "a"}, [("q1", "d1")])
    run = tmp_path / "toy.trec"
    run.write_text("q1 Q0 d2 1 2.0 t\nq1 Q0 d1 2 1.0 t\n")
    done = command("eval_kit", "score", run, "--dataset", dataset, status=0)
    assert "0.631" in done.stdout  # 1 / log2(3)
