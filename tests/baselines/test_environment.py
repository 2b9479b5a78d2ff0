"""A process that does cells has its threads, and one GPU."""

import os

import pytest
import torch

from baselines.environment import environment, restrict


@pytest.mark.parametrize(
    ("place", "seen", "expected"),
    [
        (0, [], "before"),
        (0, ["0", "1", "2"], "0"),
        (2, ["0", "1", "2"], "2"),
        (4, ["0", "1", "2"], "1"),
        (7, ["5"], "5"),
    ],
)
def test_parts_take_gpus_in_turn(monkeypatch: pytest.MonkeyPatch, place: int, seen: list[str], expected: str):
    monkeypatch.setattr(os, "environ", {"CUDA_VISIBLE_DEVICES": "before"})
    monkeypatch.setattr("eval_kit.search.gpus.gpus", lambda: seen)
    restrict(threads=1, place=place)
    assert os.environ["CUDA_VISIBLE_DEVICES"] == expected
    assert os.environ["OMP_NUM_THREADS"] == "1" and torch.get_num_threads() == 1


def test_a_task_without_a_gpu_sees_none():
    assert environment(threads=2, gpus=0)["CUDA_VISIBLE_DEVICES"] == ""
    assert "CUDA_VISIBLE_DEVICES" not in environment(threads=2, gpus=1)
