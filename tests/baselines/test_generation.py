"""Queries that a T5 writes: folders for GenQ and docT5query, the same however often they were stopped."""

import json
from collections import Counter
from itertools import islice
from pathlib import Path

import pytest
from msgspec.structs import replace
from tiny_checkpoints import tiny, tiny_t5

from baselines import config, generation
from baselines.generation import generate
from baselines.grid.grid import cells
from baselines.grid.stages import run_cell
from baselines.options import Recipe
from builder import rebuilt
from builder import release as releases
from builder.sources import beir
from eval_kit.errors import UserError
from eval_kit.files.beir import judged_queries, read_corpus, read_documents, read_fields, read_qrels
from eval_kit.release import open_release
from tests.beir_folders import beir_folder

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def recipe() -> Recipe:
    return replace(config.recipe("genq"), model=str(tiny_t5()), queries=3)


@pytest.fixture(scope="module")
def nfcorpus(shared: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The first documents of NFCorpus, with a query each."""
    documents = list(islice(read_documents(shared / "beir" / "nfcorpus" / "corpus.jsonl"), 60))
    rows = [{"_id": name, "title": title, "text": text[:200]} for name, title, text in documents]
    relevant = [("q1", documents[0][0])]
    return beir_folder(tmp_path_factory.mktemp("few") / "nfcorpus", rows, {"q1": "statins and cancer"}, relevant)


@pytest.fixture(scope="module")
def generated(nfcorpus: Path, recipe: Recipe) -> Path:
    folder = nfcorpus.parent / "generated"
    generate(nfcorpus, folder, replace(recipe, passages=50))
    return folder


def content(folder: Path) -> dict[str, str]:
    return {str(path.relative_to(folder)): path.read_text() for path in sorted(folder.rglob("*.*"))}


def test_each_passage_has_its_queries(generated: Path, nfcorpus: Path) -> None:
    corpus = dict(read_corpus(generated / "corpus.jsonl"))
    assert len(corpus) == 50 and corpus.items() <= dict(read_corpus(nfcorpus / "corpus.jsonl")).items()
    train, dev = (judged_queries(generated, split) for split in ("train", "dev"))
    assert not set(train["query_id"]) & set(dev["query_id"]) and 1 <= dev.height < train.height
    qrels = read_qrels(generated / "qrels" / "train.tsv", set(train["query_id"]))
    counts = Counter(qrels["passage_id"])
    assert set(counts) <= set(corpus) and max(counts.values()) == 3
    assert all(text.strip() for text in train["text"]) and len(set(train["text"])) > 50


def test_stopped_and_with_another_seed(
    nfcorpus: Path, recipe: Recipe, generated: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(generation, "SHARD", 16)
    plain = replace(recipe, passages=50)
    generate(nfcorpus, tmp_path / "whole", plain)
    draw, calls = generation.Generator.queries, []

    def stopping(self, texts, seed):
        calls.append(seed)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return draw(self, texts, seed)

    monkeypatch.setattr(generation.Generator, "queries", stopping)
    with pytest.raises(KeyboardInterrupt):
        generate(nfcorpus, tmp_path / "stopped", plain)
    assert not (tmp_path / "stopped").exists()
    generate(nfcorpus, tmp_path / "stopped", plain)
    assert calls == [[0, 0], [0, 1], [0, 2], [0, 2], [0, 3]], "finished shards are not generated again"
    assert content(tmp_path / "stopped") == content(tmp_path / "whole")
    assert not list(tmp_path.glob(".*.generating"))
    generate(nfcorpus, tmp_path / "other", plain, seed=1)
    assert content(tmp_path / "other") != content(tmp_path / "whole")
    with pytest.raises(UserError, match="whole: already exists"):
        generate(nfcorpus, tmp_path / "whole", plain)


def test_passages_are_expanded_for_bm25(nfcorpus: Path, recipe: Recipe, tmp_path: Path) -> None:
    generate(nfcorpus, tmp_path / "nfcorpus", replace(recipe, expand=True, passages=None))
    plain, expanded = (dict(read_corpus(folder / "corpus.jsonl")) for folder in (nfcorpus, tmp_path / "nfcorpus"))
    assert plain == expanded, "the queries are a field of their own"
    written = dict(read_fields(tmp_path / "nfcorpus" / "corpus.jsonl", ["queries"]))
    assert list(written) == list(plain) and all(text.strip() for [text] in written.values())
    for file in ("queries.jsonl", "qrels/test.tsv"):
        assert (tmp_path / "nfcorpus" / file).read_text() == (nfcorpus / file).read_text()


def test_genq_trains_on_them(generated: Path, tmp_path: Path) -> None:
    """From generated queries by a release without negatives to a model, by the config as it is but for the sizes."""
    source = beir.collection(generated)
    releases.write(rebuilt.draft(source, ["resttest"]), tmp_path / "release")
    options = config.load("genq")
    small = {"backbone": str(tiny("bert")), "batch_size": 8, "query_length": 32, "passage_length": 64, "depth": 20}
    options = {name: replace(own, **small, loader_processes=0, precision="float32") for name, own in options.items()}
    plan = config.read("genq")
    grid = cells(options, open_release(str(tmp_path / "release")), tmp_path / "grid", plan.shifts, control=plan.control)
    [cell] = grid
    outcome = run_cell(cell)
    assert outcome.state == "done", outcome.reason
    assert cell.published_run == tmp_path / "grid" / "control" / "biencoder-genq.all.none.trec" and cell.model.is_dir()
    training = json.loads((cell.folder / "done.json").read_text())["training"]
    assert training["train_queries"] > 50 and training["last_loss"] < training["first_loss"]


def test_mistakes(nfcorpus: Path, recipe: Recipe, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"mini\.json: generates no queries; genq and doct5query do"):
        config.recipe("mini")
    with pytest.raises(UserError, match="cannot be loaded: there is no such folder"):
        generate(nfcorpus, tmp_path / "out", replace(recipe, model=str(tmp_path / "nothing")))
    with pytest.raises(UserError, match="cannot be loaded"):
        generate(nfcorpus, tmp_path / "out", replace(recipe, model=str(tiny("bert"))))
    assert not (tmp_path / "out").exists()
