"""With several GPUs, sentence-transformers' own processes encode and re-rank: here two that compute on the CPU."""

from pathlib import Path
from typing import Any

import polars as pl
import pytest
import torch
from sentence_transformers.base.model import BaseModel

from eval_kit.models.opening import retriever
from eval_kit.search import shards
from tests.tiny_checkpoints import passages, tiny

QUERIES = pl.DataFrame({"query_id": ["a", "b", "c"], "text": ["alpha beta", "gamma delta omega", "xi"]})


@pytest.mark.slow
@pytest.mark.parametrize("architecture", ["dense", "sparse", "multivector", "cross"])
def test_two_processes_find_what_one_finds(architecture: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shards, "SHARD", 16)
    monkeypatch.setattr("eval_kit.models.cross.QUERIES_AT_ONCE", 1)
    pools: list[Any] = []
    start = BaseModel.start_multi_process_pool

    def of_two(self: Any) -> Any:
        pools.append(start(self, ["cpu", "cpu"]))
        return pools[-1]

    monkeypatch.setattr(BaseModel, "start_multi_process_pool", of_two)
    rankings: list[dict[str, Any]] = []
    for gpus in (1, 2):
        monkeypatch.setattr(torch.cuda, "device_count", lambda gpus=gpus: gpus)
        made: Any = retriever(architecture, tiny(architecture), {"encode_batch": 4})
        made.index(passages(40), tmp_path / str(gpus))
        rankings.append(dict(made.search(QUERIES, tmp_path / str(gpus), 10)))
        assert len(pools) == gpus - 1
    for query, ranking in rankings[0].items():
        (ids, scores), (others, other_scores) = (zip(*hits[query], strict=True) for hits in (rankings[0], rankings[1]))
        assert ids == others and len(ranking) > 2
        assert scores == pytest.approx(other_scores, abs=1e-5)
