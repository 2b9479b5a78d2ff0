"""What a bi-encoder needs around its search: prompts, lengths, poolings, precision."""

from pathlib import Path

import numpy as np
import pytest
from scipy.sparse import csr_matrix
from sentence_transformers import SentenceTransformer

from eval_kit.errors import UserError
from eval_kit.models.dense import Dense
from eval_kit.models.opening import retriever
from tests.search.oracle import QUERIES
from tests.tiny_checkpoints import passages, tiny


def test_prompts_lengths_pooling_and_a_second_encoder_change_the_vectors(tmp_path: Path):
    def vectors(**options: object) -> np.ndarray:
        return np.asarray(Dense(str(tiny("dense")), **options).encode_queries(["alpha beta gamma delta"]))

    model = SentenceTransformer(str(tiny("dense")))
    plain = vectors(similarity="dot")
    assert np.allclose(vectors(similarity="dot", query_prompt="psi "), model.encode("psi alpha beta gamma delta"))
    assert np.allclose(vectors(similarity="dot", query_length=4), model.encode("alpha beta"))
    assert not np.allclose(plain, model.encode("alpha beta"), atol=0.01)
    cls = np.asarray(Dense(str(tiny("bert")), pooling="cls").encode_queries(["alpha beta"]))
    two = {"query_model": str(tiny("bert")), "pooling": "cls", "similarity": "dot"}
    other = np.asarray(Dense(str(tiny("dense")), **two).encode_queries(["alpha beta"]))
    assert np.allclose(cls, other) and not np.allclose(cls, model.encode(["alpha beta"]), atol=0.01)


def test_half_precision_is_stored_in_half_the_bytes_and_searched_alike(tmp_path: Path):
    best, sizes = [], []
    for store in ("float32", "float16"):
        made = retriever("dense", tiny("dense"), {"store": store})
        made.index(passages(60), tmp_path / store)
        best.append([hits[0][0] for _, hits in made.search(QUERIES, tmp_path / store, 10)])
        sizes.append((tmp_path / store / "vectors.npy").stat().st_size - 128)
    assert best[0] == best[1]
    assert sizes == [60 * 32 * 4, 60 * 32 * 2]


def test_mistakes_are_one_sentence(tmp_path: Path):
    damaged = tmp_path / "damaged"
    damaged.mkdir()
    for path in tiny("bert").iterdir():
        (damaged / path.name).write_bytes(path.read_bytes()[:900] if "safetensors" in path.name else path.read_bytes())
    for make, sentence in (
        (lambda: Dense(str(damaged), pooling="cls").encode_queries(["a"]), "damaged. "),
        (lambda: list(Dense(str(tiny("dense"))).search(QUERIES, tmp_path)), "no finished index"),
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
