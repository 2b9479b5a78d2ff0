"""Encoding and re-ranking by a process a device: here two that compute on the CPU."""

from pathlib import Path
from typing import Any

import polars as pl
import pytest
import torch
from tiny_checkpoints import passages, tiny

from baselines.architectures import devices, retriever
from search import processes, shards, texts

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
    kept = texts.write(passages(40), tmp_path / "texts")
    dense = retriever("dense", tiny("dense"), {})
    cross = retriever("cross", tiny("cross"), {"candidates": 10})
    monkeypatch.setattr("baselines.architectures.cross.QUERIES_AT_ONCE", 1)
    both: list[Any] = []
    for name in ("two", "one"):
        dense.index(kept, tmp_path / name / "dense")
        cross.index(kept, tmp_path / name / "cross")
        vectors = (tmp_path / name / "dense" / "vectors.npy").read_bytes()
        both.append((vectors, list(cross.search(QUERIES, tmp_path / name / "cross"))))
        monkeypatch.setattr(devices, "visible", lambda: ["cpu"])
    assert both[0] == both[1]
    assert len(two) == 2 and all(pool._max_workers == 2 for pool in two)


def test_a_retriever_is_sent_without_its_model() -> None:
    model: Any = retriever("dense", tiny("dense"), {"encode_batch": 3})
    model.encode_queries(["alpha"])
    small = devices.unloaded(model)
    assert "_passages" in vars(model) and "_passages" not in vars(small)
    assert small.identity == model.identity
