"""Sparse search: exact is brute force over the passages that share a term."""

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
from eval_kit.models.sparse import Sparse
from eval_kit.search import resident, shards, sparse
from eval_kit.search.shards import Shards

QUERIES = pl.DataFrame({"query_id": [f"q{n}" for n in range(7)], "text": texts(7, 1, 6)})
WHERE = [None, "cpu"]
"""scipy; one sparse product in torch, as on a GPU."""


def encoded(folder: Path, weights: np.ndarray, ids: list[str]) -> Shards:
    rows = iter(weights)
    return shards.write(
        ((one, "text") for one in ids),
        folder,
        lambda some: sparse.arrays_of(csr_matrix(np.array([next(rows) for _ in some]))),
        "fixed",
    )


def brute_force(queries: np.ndarray, weights: np.ndarray, ids: list[str], depth: int) -> list[list[tuple[str, float]]]:
    rankings = []
    for scores in queries @ weights.T:
        hits = [(one, float(score)) for one, score in zip(ids, scores, strict=True) if score > 0]
        rankings.append(sorted(sorted(hits, reverse=True), key=lambda hit: -hit[1])[:depth])
    return rankings


@pytest.mark.parametrize("device", WHERE)
@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_exact_is_brute_force_at_every_tie(device: str | None, data: st.DataObject, tmp_path_factory):
    whole = st.integers(0, 2).map(float)
    count = data.draw(st.integers(1, 30))
    weights = data.draw(numpy_arrays(np.float32, (count, 4), elements=whole))
    queries = data.draw(numpy_arrays(np.float32, (data.draw(st.integers(1, 4)), 4), elements=whole))
    ids = data.draw(st.lists(st.text("a1é-", min_size=1, max_size=4), min_size=count, max_size=count, unique=True))
    depth = data.draw(st.integers(1, 35))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shards, "SHARD", data.draw(st.integers(1, 20)))
        patch.setattr(sparse, "GROUP", data.draw(st.integers(1, 4)))
        patch.setattr(sparse, "BLOCK", data.draw(st.integers(1, 40)))
        patch.setattr(resident, "room", lambda device: data.draw(st.sampled_from([0, np.inf])))
        stored = encoded(tmp_path_factory.mktemp("weights"), weights, ids)
        for _ in range(2):  # the second time from the device, where there was room
            found = list(sparse.exact(csr_matrix(queries), stored, depth, device))
            assert found == brute_force(queries, weights, ids, depth)


def test_a_checkpoint_is_searched_as_the_library_would(tmp_path: Path):
    from sentence_transformers import SparseEncoder

    model = SparseEncoder(str(tiny("sparse")))
    made = Sparse(str(tiny("sparse")), encode_batch=4)
    made.index(passages(60), tmp_path)
    found = dict(made.search(QUERIES, tmp_path, 10))
    theirs = model.similarity(
        model.encode_query(QUERIES["text"].to_list()), model.encode_document([text for _, text in passages(60)])
    ).numpy()
    assert list(found) == QUERIES["query_id"].to_list()
    for hits, scores in zip(found.values(), theirs, strict=True):
        assert [score for _, score in hits] == pytest.approx(sorted(scores.tolist(), reverse=True)[:10], rel=1e-4)
        assert all(scores[int(one[1:])] == pytest.approx(score, rel=1e-4) for one, score in hits)


def test_a_masked_language_model_is_taken_as_splade_and_others_are_refused():
    weights = Sparse(str(tiny("masked"))).encode_queries(["alpha beta"])
    assert weights.shape == (1, 33) and (weights.data > 0).all()
    for name, what in (("dense", "is a dense encoder"), ("bert", "is a bare transformer"), ("cross", "is a cross-enc")):
        with pytest.raises(UserError, match=f"{what}.*, not a sparse encoder"):
            Sparse(str(tiny(name)))
