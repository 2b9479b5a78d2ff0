"""Batches of texts, and what happens on a GPU that is too small for them."""

import logging
from typing import Any

import numpy as np
import pytest
import torch

from eval_kit.errors import UserError
from eval_kit.models.opening import retriever
from eval_kit.search.encoders import Batch, batches, token_counts
from tests.tiny_checkpoints import tiny

CPU = torch.device("cpu")


def holding(most: int, seen: list[int]):
    def encode(size: int) -> int:
        seen.append(size)
        if size > most:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return size

    return encode


def test_a_batch_that_does_not_fit_is_halved_said_and_not_tried_again(caplog: pytest.LogCaptureFixture):
    batch, seen = Batch(32), []
    with caplog.at_level(logging.WARNING):
        assert [batch.of(CPU, holding(10, seen)) for _ in range(2)] == [8, 8]
    assert seen == [32, 16, 8, 8]
    assert [record.getMessage() for record in caplog.records] == [
        f"out of memory at {size} texts in a batch; continuing with {size // 2}" for size in (32, 16)
    ]


def test_a_text_that_does_not_fit_is_one_sentence():
    with pytest.raises(UserError, match="does not fit into the GPU"):
        Batch(4).of(CPU, holding(0, []))


def test_memory_that_another_process_of_an_evaluation_lacks_is_halved_too():
    """As sentence-transformers raises it in the process that evaluates, whichever of them was short of memory."""
    failed = "Distributed evaluator inference failed:\nRank 1:\nTraceback: torch.OutOfMemoryError: CUDA out of memory"

    def encode(size: int) -> int:
        if size > 10:
            raise RuntimeError(failed)
        return size

    assert Batch(None).of(CPU, encode) == 8
    with pytest.raises(RuntimeError, match="something else"):
        Batch(None).of(CPU, lambda size: raised(RuntimeError("something else")))


@pytest.mark.parametrize("pool", [None, {"processes": ["one", "other"]}])
def test_batches_are_the_same_whatever_computes_them(pool: dict[str, list[str]] | None):
    texts = ["a", "bbb", ("bb", "b"), "cc", "dd", "e"]
    computed: list[list[object]] = []

    def encode(inputs: list[object], batch_size: int, chunk_size: int, pool: object, show_progress_bar: bool):
        assert batch_size == chunk_size == 2
        for start in range(0, len(inputs), chunk_size):
            computed.append(inputs[start : start + chunk_size])
        return inputs

    seen = {
        int(row): text for rows, part in batches(encode, texts, 2, pool) for row, text in zip(rows, part, strict=True)
    }
    assert [seen[row] for row in range(6)] == texts
    assert computed == [["bbb", ("bb", "b")], ["cc", "dd"], ["a", "e"]]


def raised(error: Exception) -> None:
    raise error


@pytest.mark.parametrize("kind", ["dense", "sparse", "multivector", "cross"])
def test_a_processor_reads_texts_of_as_many_tokens_together(kind: str):
    """Long words are one token here, letters of the alphabet [UNK]: characters say little about tokens."""
    random = np.random.default_rng(2)
    texts = [
        " ".join(random.choice(["omicron", "xi"] if row % 2 else ["pi", "mu"], random.integers(1, 60)))
        + " upsilon" * int(random.integers(0, 30))
        for row in range(96)
    ]
    model: Any = retriever(kind, tiny(kind), {"encode_batch": 8})
    counted = token_counts(model.of_role("document"), "document", texts)
    assert counted == [min(len(text.split()), 128) for text in texts]
    seen, lengths = list[int](), list[int]()

    def note(_: Any, inputs: Any) -> None:
        mask = inputs[0]["attention_mask"]
        seen.append(mask.numel())
        lengths.append(int(mask.sum()))

    model.of_role("document").register_forward_pre_hook(note)
    if kind == "cross":
        model.scores([("alpha beta", text) for text in texts])
    else:
        model.encode_passages(texts)
    assert len(seen) == 12
    assert sum(seen) < 1.1 * sum(lengths)


def test_models_whose_tokenizer_cannot_tell_are_sorted_by_characters():
    class Words:
        tokenizer = "another"

    assert token_counts([Words()], "document", ["a", "bb"]) is None
    assert next(batches(lambda texts, **_: texts, ["a", "bbb", "cc"], 2))[1] == ["bbb", "cc"]
