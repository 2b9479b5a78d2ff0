"""Encoding and re-ranking by a process a device: here two that compute on the CPU."""

import gc
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import torch
from tiny_checkpoints import passages, tiny

from eval_kit.models import devices, retriever
from eval_kit.search import processes, shards, texts

QUERIES = pl.DataFrame({"query_id": ["a", "b", "c"], "text": ["alpha beta", "gamma delta omega", "xi"]})


@pytest.fixture
def two(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Two devices; the processes that were given to callers."""
    begun = []
    original = processes.ProcessPoolExecutor

    def pool(*arguments: Any, **options: Any) -> Any:
        begun.append(original(*arguments, **options))
        return begun[-1]

    monkeypatch.setattr(devices, "visible", lambda: ["cpu", "cpu"])
    monkeypatch.setattr(processes, "ProcessPoolExecutor", pool)
    monkeypatch.setattr(shards, "SHARD", 8)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    torch.set_num_threads(1)
    return begun


@pytest.mark.slow
def test_two_devices_make_the_index_and_the_order_that_one_makes(
    two: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their processes are started once for an index and once for all searches of a re-ranker, and end with it."""
    kept = texts.write(passages(40), tmp_path / "texts")
    dense = retriever("dense", tiny("dense"), {})
    monkeypatch.setattr("eval_kit.models.cross.QUERIES_AT_ONCE", 1)
    both: list[Any] = []
    for name in ("two", "one"):
        cross: Any = retriever("cross", tiny("cross"), {"candidates": 10})
        dense.index(kept, tmp_path / name / "dense")
        cross.index(kept, tmp_path / name / "cross")
        vectors = (tmp_path / name / "dense" / "vectors.npy").read_bytes()
        parts = [list(cross.search(QUERIES[row], tmp_path / name / "cross")) for row in range(3)]
        both.append((vectors, parts))
        if name == "two":
            assert "_model" not in vars(cross)
        monkeypatch.setattr(devices, "visible", lambda: ["cpu"])
    assert both[0] == both[1]
    assert len(two) == 2 and all(pool._max_workers == 2 for pool in two)
    gc.collect()
    with pytest.raises(RuntimeError, match="after shutdown"):
        two[1].submit(print)


def test_a_retriever_is_sent_without_its_model() -> None:
    model: Any = retriever("dense", tiny("dense"), {"encode_batch": 3})
    model.encode_queries(["alpha"])
    small = devices.without_model(model)
    assert "_model" in vars(model) and "_model" not in vars(small)
    assert small.identity == model.identity
