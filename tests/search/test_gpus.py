"""Which GPUs a process may use, and how much of one an index may take."""

import os
from types import SimpleNamespace

import pytest
import torch

from eval_kit.search import gpus, resident


@pytest.mark.parametrize(
    ("visible", "expected"),
    [
        ("", []),
        ("-1", []),
        ("NoDevFiles", []),
        ("1,0", ["1", "0"]),
        ("0, 1", ["0", "1"]),
        ("0,-1,1", ["0"]),  # as CUDA reads it: what follows an entry that is no GPU does not count
        ("GPU-8932f937,MIG-1c", ["GPU-8932f937", "MIG-1c"]),
    ],
)
def test_visible_devices_are_read_as_cuda_reads_them(
    visible: str, expected: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert gpus.gpus() == expected
    monkeypatch.setattr(torch.cuda, "is_available", lambda: bool(expected))
    gpus.refuse_unseen_gpus()


def test_numbers_are_in_the_order_of_nvidia_smi(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_DEVICE_ORDER", raising=False)
    gpus.gpus()
    assert os.environ["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"
    monkeypatch.setenv("CUDA_DEVICE_ORDER", "FASTEST_FIRST")
    gpus.gpus()
    assert os.environ["CUDA_DEVICE_ORDER"] == "FASTEST_FIRST"


def test_memory_that_torch_has_reserved_without_using_it_counts_as_free(monkeypatch: pytest.MonkeyPatch) -> None:
    """A card of 24 GB on which a training has reserved 20 and left 1 in use."""
    billion = 10**9
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (4 * billion, 24 * billion))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda device: 20 * billion)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda device: billion)
    assert resident.room(SimpleNamespace(type="cuda")) > 13 * billion
    assert resident.room(torch.device("cpu")) == 0
