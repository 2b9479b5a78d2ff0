"""What a grid keeps of how its models encode, of checkpoints of random weights."""

import json
from pathlib import Path

import numpy as np
import pytest
from tiny_checkpoints import tiny

from baselines import systems
from baselines.grid.encodings import keep_encodings
from eval_kit.models.dense import Dense
from eval_kit.models.sparse import Sparse
from eval_kit.release import Release
from eval_kit.search.passages import passages
from eval_kit.stats.vectors import read
from tests.baselines.tiny_cells import tiny_cell


def test_a_bi_encoders_query_vectors(mini_release: Release, tmp_path: Path) -> None:
    cell = tiny_cell("biencoder", mini_release, tmp_path, ("wh", "who"))
    cell.folder.mkdir(parents=True)
    dense = Dense(str(tiny("dense")))
    keep_encodings(cell, dense)
    vectors = read(cell.query_vectors[0])
    train, test = (mini_release.table("wh", split) for split in ("train", "test"))
    test_ids = set(test.filter(cluster="who")["query_id"])
    assert set(vectors.query_ids) == test_ids | set(train.filter(train["cluster"] != "who")["query_id"])
    sample = test.filter(cluster="who").head(3)
    assert vectors.of(sample["query_id"]) == pytest.approx(dense.encode_queries(sample["text"].to_list()), abs=1e-5)
    assert set(cell.outputs.values()) == {
        tmp_path / "runs" / f"biencoder.wh.who{ending}" for ending in (".trec", ".npy", ".ids.txt")
    }


@pytest.mark.slow
def test_the_sparsity_of_splade(trainable_release: Release, tmp_path: Path) -> None:
    cell = tiny_cell("splade", trainable_release, tmp_path)
    sparse = Sparse(str(tiny("sparse")))
    sparse.index(passages(cell.release), systems.index_folder(cell))
    keep_encodings(cell, sparse)
    kept = json.loads(cell.sparsity.read_text())
    texts = [text for _, text in passages(cell.release)]
    assert kept["passage"] == pytest.approx(np.mean(sparse.encode_passages(texts)["lengths"]))
    queries = sparse.encode_queries(cell.test_queries()["text"].to_list())
    assert kept["query"] == pytest.approx(np.mean((queries != 0).sum(axis=1)))
    assert cell.outputs == {cell.run: cell.published}
