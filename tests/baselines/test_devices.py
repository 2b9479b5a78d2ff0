"""Encoding and re-ranking by a process a device: here two that compute on the CPU."""

import gc
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import torch
from tiny_checkpoints import passages, tiny

from baselines.runners import local
from eval_kit.models import devices, retriever
from eval_kit.search import processes, shards, texts
from tests.baselines.tiny_cells import tiny_options

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
    monkeypatch.setattr("eval_kit.models.cross.QUERIES_AT_ONCE", 1)
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
    assert "_model" in vars(model) and "_model" not in vars(small)
    assert small.identity == model.identity


def test_a_teachers_scores_are_computed_where_its_model_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """On the CPU, where its vectors arrive, they would take a second a step beside a GPU that waits."""
    import sentence_transformers.util

    from baselines.training.distillation import teacher

    where: list[Any] = []
    original = sentence_transformers.util.maxsim

    def maxsim(*sides: Any, **options: Any) -> Any:
        where.append(options.get("device"))
        return original(*sides, **options)

    monkeypatch.setattr(sentence_transformers.util, "maxsim", maxsim)
    label = teacher(tiny_options("biencoder", teacher=str(tiny("multivector")), distillation="kl"))
    assert label is not None
    [scores] = label(["alpha"], [["alpha beta"], ["gamma"]])
    assert len(scores) == 2 and where == [torch.device("cpu")]


def test_a_task_without_gpus_is_shown_none() -> None:
    """Ray shows it all GPUs of its machine."""
    assert local.environment(threads=1, gpus=0)["CUDA_VISIBLE_DEVICES"] == ""
    assert "CUDA_VISIBLE_DEVICES" not in local.environment(threads=1, gpus=1) | local.environment(threads=1)


@pytest.mark.slow
def test_a_re_ranker_starts_its_processes_once(two: list[Any], tmp_path: Path) -> None:
    kept = texts.write(passages(40), tmp_path / "texts")
    cross: Any = retriever("cross", tiny("cross"), {"candidates": 10})
    cross.index(kept, tmp_path / "cross")
    parts = [list(cross.search(QUERIES[row], tmp_path / "cross")) for row in range(3)]
    assert len(parts) == 3 and len(two) == 1 and "_model" not in vars(cross)
    del cross
    gc.collect()
    with pytest.raises(RuntimeError, match="after shutdown"):
        two[0].submit(print)
