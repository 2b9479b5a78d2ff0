"""Batches of texts on a GPU that is too small for them."""

import logging

import pytest
import torch

from baselines.architectures.encoding import Batch
from eval_kit.errors import UserError

CPU = torch.device("cpu")


def holding(most: int, seen: list[int]):
    def encode(size: int) -> int:
        seen.append(size)
        if size > most:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return size

    return encode


def test_a_batch_that_does_not_fit_is_halved_said_and_not_tried_again(caplog: pytest.LogCaptureFixture):
    batch, seen = Batch(None), []
    with caplog.at_level(logging.WARNING):
        assert [batch.of(CPU, holding(10, seen)) for _ in range(2)] == [8, 8]
    assert seen == [32, 16, 8, 8]
    assert [record.getMessage() for record in caplog.records] == [
        f"out of memory at {size} texts in a batch; continuing with {size // 2}" for size in (32, 16)
    ]


def test_a_text_that_does_not_fit_is_one_sentence():
    with pytest.raises(UserError, match="cannot hold a single text; shorten the texts"):
        Batch(4).of(CPU, holding(0, []))
