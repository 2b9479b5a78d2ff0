"""Dense search: exact is brute force, with trec_eval's order at every tie; and what a bi-encoder needs around it."""

from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays as numpy_arrays
from scipy.sparse import csr_matrix
from tiny_checkpoints import passages, texts, tiny

from eval_kit.errors import UserError
from eval_kit.models import retriever
from eval_kit.models.dense import Dense
from eval_kit.search import dense, resident, shards
from eval_kit.search.shards import Shards

QUERIES = pl.DataFrame({"query_id": [f"q{n}" for n in range(7)], "text": texts(7, 1, 6)})
WHERE = [None, "cpu"]
"""faiss; blocks of a matrix product in torch, as on a GPU."""


def encoded(folder: Path, vectors: np.ndarray, ids: list[str]) -> Shards:
    rows = iter(vectors)
    return shards.write(
        ((one, "text") for one in ids), folder, lambda some: {"vectors": np.array([next(rows) for _ in some])}, "fixed"
    )


def brute_force(queries: np.ndarray, vectors: np.ndarray, ids: list[str], depth: int) -> list[list[tuple[str, float]]]:
    rankings = []
    for scores in queries @ vectors.T:
        hits = [(one, float(score)) for one, score in zip(ids, scores, strict=True)]
        rankings.append(sorted(sorted(hits, reverse=True), key=lambda hit: -hit[1])[:depth])
    return rankings


@pytest.mark.parametrize("device", WHERE)
@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_exact_is_brute_force_at_every_tie(device: str | None, data: st.DataObject, tmp_path_factory):
    whole = st.integers(-2, 2).map(float)
    count = data.draw(st.integers(1, 40))
    vectors = data.draw(numpy_arrays(np.float32, (count, 2), elements=whole))
    queries = data.draw(numpy_arrays(np.float32, (data.draw(st.integers(1, 5)), 2), elements=whole))
    ids = data.draw(st.lists(st.text("a1é-", min_size=1, max_size=4), min_size=count, max_size=count, unique=True))
    depth = data.draw(st.integers(1, 45))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shards, "SHARD", data.draw(st.integers(1, 20)))
        patch.setattr(dense, "GROUP", data.draw(st.integers(1, 5)))
        patch.setattr(dense, "BLOCK", data.draw(st.integers(1, 50)))
        patch.setattr(resident, "room", lambda device: data.draw(st.sampled_from([0, np.inf])))
        stored = encoded(tmp_path_factory.mktemp("vectors"), vectors, ids)
        for _ in range(2):  # the second time from the device, where there was room
            assert list(dense.exact(queries, stored, depth, device)) == brute_force(queries, vectors, ids, depth)


def test_an_index_that_fits_on_the_device_is_read_once(real, monkeypatch: pytest.MonkeyPatch):
    stored, _, queries, _ = real
    monkeypatch.setattr(resident, "room", lambda device: np.inf)
    first = list(dense.exact(queries, stored, 100, "cpu"))
    monkeypatch.setattr(Shards, "blocks", None)
    assert list(dense.exact(queries, stored, 100, "cpu")) == first
    stored.resident.clear()


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> tuple[Shards, np.ndarray, np.ndarray, list[str]]:
    """5,000 vectors around 50 centres, in shards of 700."""
    random = np.random.default_rng(0)
    centres = random.normal(size=(50, 24))
    vectors = (centres[random.integers(0, 50, 5_000)] + 0.3 * random.normal(size=(5_000, 24))).astype(np.float32)
    queries = (centres[random.integers(0, 50, 40)] + 0.3 * random.normal(size=(40, 24))).astype(np.float32)
    ids = [f"{number}" for number in random.permutation(5_000)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shards, "SHARD", 700)
        return encoded(tmp_path_factory.mktemp("real"), vectors, ids), vectors, queries, ids


@pytest.mark.parametrize("device", WHERE)
def test_exact_is_brute_force_over_many_shards(real, device):
    stored, vectors, queries, ids = real
    found = list(dense.exact(queries, stored, 100, device))
    for hits, expected in zip(found, brute_force(queries, vectors, ids, 100), strict=True):
        assert [one for one, _ in hits] == [one for one, _ in expected]
        assert np.allclose([score for _, score in hits], [score for _, score in expected], rtol=1e-5)


def hits_of(model: Path | str, folder: Path, **options: object) -> dict[str, list[tuple[str, float]]]:
    made = retriever("dense", model, options)
    made.index(passages(60), folder)
    return dict(made.search(QUERIES, folder, 10))


@pytest.mark.parametrize("similarity", ["dot", "cosine"])
def test_a_checkpoint_is_searched_as_the_library_would(similarity, tmp_path: Path):
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.util import semantic_search

    model = SentenceTransformer(str(tiny("dense")), similarity_fn_name=similarity)
    found = hits_of(tiny("dense"), tmp_path, similarity=similarity)
    expected = semantic_search(
        model.encode_query(QUERIES["text"].to_list(), convert_to_tensor=True),
        model.encode_document([text for _, text in passages(60)], convert_to_tensor=True),
        top_k=10,
        score_function=model.similarity,
    )
    assert list(found) == QUERIES["query_id"].to_list()
    for hits, theirs in zip(found.values(), expected, strict=True):
        assert [one for one, _ in hits] == [f"p{hit['corpus_id']}" for hit in theirs]
        assert np.allclose([score for _, score in hits], [hit["score"] for hit in theirs], atol=1e-4)


def test_prompts_lengths_pooling_and_a_second_encoder_change_the_vectors(tmp_path: Path):
    def vectors(**options: object) -> np.ndarray:
        return np.asarray(Dense(str(tiny("dense")), **options).encode_queries(["alpha beta gamma delta"]))

    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(str(tiny("dense")))
    plain = vectors(similarity="dot")
    assert np.allclose(vectors(similarity="dot", query_prompt="psi "), model.encode("psi alpha beta gamma delta"))
    assert np.allclose(vectors(similarity="dot", query_length=4), model.encode("alpha beta"))
    assert not np.allclose(plain, model.encode("alpha beta"), atol=0.01)
    cls = np.asarray(Dense(str(tiny("bert")), pooling="cls").encode_queries(["alpha beta"]))
    other = np.asarray(
        Dense(str(tiny("dense")), query_model=str(tiny("bert")), pooling="cls").encode_queries(["alpha beta"])
    )
    assert np.allclose(cls, other) and not np.allclose(cls, model.encode(["alpha beta"]), atol=0.01)


def test_half_precision_is_stored_in_half_the_bytes_and_searched_alike(tmp_path: Path):
    whole, half = hits_of(tiny("dense"), tmp_path / "whole"), hits_of(tiny("dense"), tmp_path / "half", store="float16")
    assert [hits[0][0] for hits in whole.values()] == [hits[0][0] for hits in half.values()]
    size = [(tmp_path / one / "vectors.npy").stat().st_size - 128 for one in ("whole", "half")]
    assert size == [60 * 32 * 4, 60 * 32 * 2]


@pytest.mark.slow
def test_tct_colbert_is_encoded_as_pyserini_does():
    from eval_kit.search import lucene

    lucene.start()
    from pyserini.encode import TctColBertDocumentEncoder, TctColBertQueryEncoder

    model = str(tiny("bert"))
    ours = Dense(model, pooling="tct-colbert", encode_batch=2)
    asked, answers = texts(5, 3, 50), texts(5, 4)
    theirs = np.stack([TctColBertQueryEncoder(model).encode(text) for text in asked])
    assert np.allclose(ours.encode_queries(asked), theirs, atol=1e-5)
    theirs = TctColBertDocumentEncoder(model, device="cpu").encode(answers)
    assert np.allclose(ours.encode_passages(answers)["vectors"], theirs, atol=1e-5)


def test_repbert_is_the_mean_of_all_tokens_with_passages_of_type_one():
    import torch
    from transformers import AutoModel, AutoTokenizer

    model, tokenizer = AutoModel.from_pretrained(tiny("bert")).eval(), AutoTokenizer.from_pretrained(tiny("bert"))
    ours = Dense(str(tiny("bert")), pooling="repbert")
    for text in ("alpha beta", " ".join(["gamma"] * 40)):
        for kind, most in ((0, 20), (1, 256)):
            ids = tokenizer(" ".join(text.split()[:most]), return_tensors="pt")["input_ids"]
            with torch.inference_mode():
                mean = model(ids, token_type_ids=torch.full_like(ids, kind)).last_hidden_state.mean(1).numpy()
            found = ours.encode_passages([text])["vectors"] if kind else ours.encode_queries([text])
            assert np.allclose(found, mean, atol=1e-5)


@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("sparse", "is a sparse encoder"),
        ("multivector", "is a late-interaction encoder"),
        ("cross", "is a cross-encoder"),
        ("bert", "is a bare transformer, not a dense encoder (SentenceTransformer); name its pooling"),
        ("masked", "is a masked language model, not a dense encoder (SentenceTransformer); name its pooling"),
    ],
)
def test_a_checkpoint_of_another_architecture_is_refused(name, what):
    with pytest.raises(UserError) as error:
        Dense(str(tiny(name)))
    assert str(error.value).startswith(f"{tiny(name)}: {what}")


def test_mistakes_are_one_sentence(tmp_path: Path):
    (tmp_path / "empty").mkdir()
    damaged = tmp_path / "damaged"
    damaged.mkdir()
    for path in tiny("bert").iterdir():
        (damaged / path.name).write_bytes(path.read_bytes()[:900] if "safetensors" in path.name else path.read_bytes())
    for make, sentence in (
        (lambda: Dense(str(tmp_path / "absent")), "absent: cannot be loaded: there is no such folder"),
        (lambda: Dense(str(tmp_path / "empty")), "empty: cannot be loaded: the folder holds no model"),
        (lambda: Dense(str(damaged), pooling="cls").encode_queries(["a"]), "damaged: cannot be loaded: "),
        (lambda: Dense(str(tiny("dense")), similarity="l2"), "no similarity 'l2'; there are dot, cosine"),
        (lambda: list(Dense(str(tiny("dense"))).search(QUERIES, tmp_path)), "holds no index, or one that is not"),
    ):
        with pytest.raises(UserError) as error:
            make()
        assert sentence in str(error.value) and "\n" not in str(error.value)


NOT_FINITE = np.array([[1, 0], [np.nan, 1], [0, np.inf]], np.float32)


@pytest.mark.parametrize("form", [np.asarray, csr_matrix, list])
def test_a_query_without_finite_numbers_is_refused(form, monkeypatch: pytest.MonkeyPatch):
    model = Dense(str(tiny("dense")))
    monkeypatch.setattr(model, "_encode", lambda texts, role: form(NOT_FINITE[: len(texts)]))
    model.encode_queries(["a"])
    with pytest.raises(UserError, match=r"gives NaN or infinity for a query$"):
        model.encode_queries(["a", "b"])
