"""Vectors as they come in: what is read is what was written, and what cannot be used is refused with its place."""

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from eval_kit.errors import UserError
from eval_kit.stats.vectors import Vectors, check_ids, get, read
from tests.tiny_checkpoints import tiny

VALUES = np.random.default_rng(1).normal(size=(4, 3)).astype(np.float32)
IDS = ["9", "10", "q-3", "007"]
TEXTS = pl.DataFrame({"query_id": ["1", "2", "1"], "text": ["alpha beta", "gamma", "alpha beta"]})


def write_npy(folder: Path, values: Any = VALUES, ids: list[str] = IDS) -> Path:
    path = folder / "queries.npy"
    np.save(path, values)
    (folder / "queries.ids.txt").write_text("".join(f"{one}\n" for one in ids))
    return path


def test_vectors_are_given_in_the_order_asked_for(tmp_path: Path):
    vectors = read(write_npy(tmp_path))
    assert vectors.query_ids.to_list() == IDS
    assert np.allclose(vectors.of(pl.Series(["007", "9", "007"])), VALUES[[3, 0, 3]])
    assert read(write_npy(tmp_path, VALUES.astype(np.float16))).values.dtype == np.float16
    (tmp_path / "queries.ids.txt").write_bytes(b"9\r\n10\r\nq-3\r\n007")
    assert read(tmp_path / "queries.npy").query_ids.to_list() == IDS


def with_nan() -> Any:
    values = VALUES.copy()
    values[1:3, 0] = np.nan
    return values


@pytest.mark.parametrize(
    ("values", "ids", "place"),
    [
        (with_nan(), IDS, "query 10"),
        (VALUES / np.float32(0), IDS, "query 9"),
        (VALUES, IDS[:3], "3 query ids"),
        (VALUES, ["9", "9", "10", "11"], "'9'"),
        (VALUES, ["9", "10", "", "11"], "Vector 3"),
        (VALUES, ["9", "10", None, "11"], "Vector 3"),
        (VALUES.ravel(), IDS, "(12,)"),
        (VALUES[:0], [], "(0, 3)"),
        (VALUES.astype(np.int64), IDS, "int64"),
    ],
)
@pytest.mark.filterwarnings("ignore:divide by zero")
def test_vectors_that_cannot_be_used(values: Any, ids: list[str | None], place: str):
    with pytest.raises(UserError) as refused:
        Vectors("mine", pl.Series("query_id", ids, pl.String), values)
    assert "mine" in str(refused.value) and place in str(refused.value)


def test_queries_without_a_vector_and_ids_that_occur_twice_are_refused():
    with pytest.raises(UserError, match="2 of 3 queries"):
        Vectors("mine", pl.Series(IDS), VALUES).of(pl.Series(["8", "9", "7"]))
    check_ids(pl.Series(IDS))
    with pytest.raises(UserError, match="'9'"):
        check_ids(pl.Series([*IDS, "9"]))


@pytest.mark.parametrize(
    ("damage", "place"),
    [
        (lambda path: path.write_bytes(b""), "queries.npy"),
        (lambda path: path.write_bytes(path.read_bytes()[:-5]), "queries.npy"),
        (lambda path: np.save(path, np.array([{}], dtype=object), allow_pickle=True), "queries.npy"),
        (Path.unlink, "queries.npy"),
        (lambda path: path.with_suffix(".ids.txt").unlink(), "queries.ids.txt"),
        (lambda path: path.with_suffix(".ids.txt").write_bytes(b"9\n\xff\n"), "queries.ids.txt:2"),
    ],
)
def test_files_that_cannot_be_read(damage: Any, place: str, tmp_path: Path):
    path = write_npy(tmp_path)
    damage(path)
    with pytest.raises(UserError, match=place):
        get(path, TEXTS)


def test_a_model_encodes_each_query_once(tmp_path: Path):
    pytest.importorskip("sentence_transformers")  # not in the environment of make test-oldest
    from sentence_transformers import SentenceTransformer

    vectors = get(tiny("dense"), TEXTS)
    assert vectors.query_ids.to_list() == ["1", "2"] and vectors.source == str(tiny("dense"))
    texts = TEXTS["text"].to_list()[:2]
    assert np.allclose(vectors.values, SentenceTransformer(str(tiny("dense"))).encode(texts), atol=1e-5)
    for name in (tmp_path, tiny("sparse"), tiny("cross")):
        with pytest.raises(UserError, match=str(name)):
            get(name, TEXTS)


def test_a_pooling_that_was_made_up_is_said_and_cls_is_the_first_token():
    pytest.importorskip("sentence_transformers")
    from transformers import AutoModel, AutoTokenizer

    folder = tiny("bert")
    model, tokenizer = AutoModel.from_pretrained(folder).eval(), AutoTokenizer.from_pretrained(folder)
    hidden = [model(**tokenizer(text, return_tensors="pt")).last_hidden_state[0].detach() for text in TEXTS["text"][:2]]
    with pytest.warns(UserWarning, match="mean"):
        assert np.allclose(get(folder, TEXTS).values, [tokens.mean(0) for tokens in hidden], atol=1e-5)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert np.allclose(get(f"{folder}:cls", TEXTS).values, [tokens[0] for tokens in hidden], atol=1e-5)
