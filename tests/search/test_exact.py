"""Exact search is brute force, with trec_eval's order at every tie; a checkpoint is searched as its library would."""

import re
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays as numpy_arrays
from scipy.sparse import csr_matrix
from sentence_transformers import MultiVectorEncoder

from eval_kit.errors import UserError
from eval_kit.models.opening import retriever
from eval_kit.search import dense, late, resident, shards, sparse
from eval_kit.search.shards import Arrays, Shards
from tests.search.oracle import QUERIES, brute_force, maxsim, tokens, written
from tests.tiny_checkpoints import passages, tiny


class Engine(NamedTuple):
    """A way to search; what it is asked with, what it keeps of passages, and how it scores them by definition."""

    module: ModuleType
    asked: Callable[[list[np.ndarray]], Any]
    arrays: Callable[[list[np.ndarray]], Arrays]
    score: Callable[[np.ndarray, np.ndarray], float | None]


def matrix(rows: list[np.ndarray]) -> csr_matrix:
    return csr_matrix(np.array(rows))


def of_shared_terms(query: np.ndarray, passage: np.ndarray) -> float | None:
    return float(query @ passage) or None


DENSE = Engine(dense, np.array, lambda rows: {"vectors": np.array(rows)}, lambda query, row: float(query @ row))
SPARSE = Engine(sparse, matrix, lambda rows: sparse.arrays_of(matrix(rows)), of_shared_terms)
LATE = Engine(late, list, tokens, maxsim)
WHERE = [(DENSE, None), (DENSE, "cpu"), (SPARSE, None), (SPARSE, "cpu"), (LATE, "cpu")]
"""On the CPU by faiss and by scipy, unless blocks of a matrix product in torch are asked for, as on a GPU."""


def rows_of(engine: Engine, shortest: int = 0) -> st.SearchStrategy[np.ndarray]:
    shape = {dense: st.just(2), sparse: st.just(4), late: st.tuples(st.integers(shortest, 4), st.just(2))}
    return numpy_arrays(
        np.float32, shape[engine.module], elements=st.integers(0 if engine is SPARSE else -2, 2).map(float)
    )


@pytest.mark.parametrize(("engine", "device"), WHERE)
@settings(max_examples=20, deadline=None)
@given(data=st.data())
def test_exact_is_brute_force_at_every_tie(engine: Engine, device: str | None, data: st.DataObject, tmp_path_factory):
    rows = data.draw(st.lists(rows_of(engine), min_size=1, max_size=30))
    queries = data.draw(st.lists(rows_of(engine, shortest=1), min_size=1, max_size=5))
    ids = st.lists(st.text("a1é-", min_size=1, max_size=4), min_size=len(rows), max_size=len(rows), unique=True)
    drawn, depth = data.draw(ids), data.draw(st.integers(1, 35))
    room = data.draw(st.sampled_from([0, np.inf]))
    expected = brute_force(queries, rows, drawn, depth, engine.score)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shards, "SHARD", data.draw(st.integers(1, 20)))
        patch.setattr(engine.module, "GROUP", data.draw(st.integers(1, 5)))
        patch.setattr(engine.module, "BLOCK_ON_CPU" if engine is LATE else "BLOCK", data.draw(st.integers(1, 50)))
        patch.setattr(resident, "room", lambda device: room)
        stored = written(tmp_path_factory.mktemp("rows"), rows, drawn, engine.arrays)
        for _ in range(2):
            assert list(engine.module.exact(engine.asked(queries), stored, depth, device)) == expected
            if room and device and engine is not LATE:
                patch.setattr(Shards, "blocks", None)  # what fits on the device is read once


def test_l2_searches_as_colbert_v02_where_what_is_masked_counts_zero(tmp_path: Path):
    """``rank`` of colbert/ranking/index_ranker.py: (D @ Q) * mask, and its maximum."""
    draw = np.random.default_rng(3)
    rows = [draw.normal(size=(length, 3)).astype(np.float32) for length in (1, 1, 2, 3, 5)]
    queries = [draw.normal(size=(length, 3)).astype(np.float32) for length in (1, 2, 7)]

    def rank(query: np.ndarray, passage: np.ndarray) -> float:
        padded = np.concatenate([passage, draw.normal(size=(6 - len(passage), 3))])
        return float(((padded @ query.T) * (np.arange(6) < len(passage))[:, None]).max(0).sum())

    stored = written(tmp_path, rows, [f"p{number}" for number in range(5)])
    model = retriever("multivector", tiny("multivector"), {"similarity": "l2", "engine": "exact"})
    for hits, expected in zip(
        model.hits(queries, stored, None, 5),
        brute_force(queries, rows, list(map(bytes.decode, stored.ids)), 5, rank),
        strict=True,
    ):
        assert dict(hits) == pytest.approx(dict(expected), abs=1e-6)
    with pytest.raises(UserError, match="Unknown similarity 'dot'"):
        retriever("multivector", tiny("multivector"), {"similarity": "dot"})


def test_plaid_scores_passages_nearly_as_the_library_would(tmp_path: Path):
    """Exact search of checkpoints of every architecture is in tests/models/test_models.py."""
    model = MultiVectorEncoder(str(tiny("multivector")))
    made = retriever("multivector", tiny("multivector"), {"engine": "plaid", "encode_batch": 4, "steps": 100})
    made.index(passages(60), tmp_path)
    documents = model.encode_document([text for _, text in passages(60)])
    theirs = model.similarity(model.encode_query(QUERIES["text"].to_list()), documents).tolist()
    for (_, hits), scores in zip(made.search(QUERIES, tmp_path, 10), theirs, strict=True):
        assert dict(hits) == pytest.approx({passage: scores[int(passage[1:])] for passage, _ in hits}, rel=0.05)
        assert hits


KINDS = {
    "dense": "a dense encoder",
    "sparse": "a sparse encoder",
    "multivector": "a late-interaction encoder",
    "cross": "a cross-encoder",
    "bert": "a bare transformer",
    "masked": "a masked language model",
}


@pytest.mark.parametrize("architecture", ["dense", "sparse", "multivector", "cross"])
def test_a_checkpoint_of_another_architecture_is_refused(architecture: str):
    for name in KINDS.keys() - {architecture, "masked" if architecture == "sparse" else ""}:
        with pytest.raises(UserError) as error:
            retriever(architecture, tiny(name), {})
        sentence = rf"{re.escape(str(tiny(name)))} is {KINDS[name]}.* needs {KINDS[architecture]}"
        pooling = r".* [Nn]ame its pooling" if architecture == "dense" and name in ("bert", "masked") else ""
        assert re.match(sentence + pooling, str(error.value))
