"""What GPUs there are, what they compute in, and how much of one an index may take."""

import os
from types import SimpleNamespace

import pytest
import torch

from baselines import config
from eval_kit.search import gpus, resident


def test_gpus_are_called_as_the_environment_calls_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.delenv("CUDA_DEVICE_ORDER", raising=False)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert gpus.gpus() == ["0", "1"] and os.environ["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"
    for visible in ("3, GPU-8932f937", "3,GPU-8932f937,-1,4"):  # what follows an entry that is no GPU does not count
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
        assert gpus.gpus() == ["3", "GPU-8932f937"]
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert gpus.gpus() == []


@pytest.mark.parametrize(("supported", "instead"), [(True, None), (False, "float16")])
def test_a_card_without_bfloat16_trains_in_float16(
    supported: bool, instead: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert gpus.instead_of_bfloat16() is None  # there is no GPU
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: supported)
    of_card = gpus.instead_of_bfloat16()
    chosen = config.choose("day", instead_of_bfloat16=of_card)
    assert of_card == instead and chosen["splade"].precision == (instead or "bfloat16")
    assert config.choose("mini", ["biencoder"], None, None, of_card)["biencoder"].precision == "float32"
    forced = config.choose("day", ["splade"], precision="float32", instead_of_bfloat16=of_card)
    assert forced["splade"].precision == "float32"


def test_memory_that_torch_has_reserved_without_using_it_counts_as_free(monkeypatch: pytest.MonkeyPatch) -> None:
    """A card of 24 GB on which a training has reserved 20 and left 1 in use."""
    billion = 10**9
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (4 * billion, 24 * billion))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda device: 20 * billion)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda device: billion)
    assert resident.room(SimpleNamespace(type="cuda")) > 13 * billion
    assert resident.room(torch.device("cpu")) == 0
