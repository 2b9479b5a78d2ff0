"""A batch that is embedded in groups by length has the embeddings and the gradients of the whole."""

from typing import Any

import pytest
import torch
from sentence_transformers import CrossEncoder
from tiny_checkpoints import texts, tiny

from baselines.systems.splade import _greatest_first
from baselines.training import grouping

TEXTS = texts(50, 3)


def embedded(model: Any, group: int | None, monkeypatch: pytest.MonkeyPatch) -> tuple[Any, list[Any], list[int]]:
    """Embeddings, gradients, and the tokens of each forward pass."""
    widths: list[int] = []
    model.train()
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    model[0].register_forward_pre_hook(lambda _, arguments: widths.append(arguments[0]["input_ids"].numel()))
    is_cross = isinstance(model, CrossEncoder)
    output = "scores" if is_cross else "sentence_embedding"
    if group is not None:
        monkeypatch.setattr(grouping, "GROUP", group)
        grouping.by_length(model, output)
    inputs = [("alpha beta", text) for text in TEXTS] if is_cross else TEXTS
    vectors = model(model.preprocess(inputs, task="document"))[output]
    vectors.square().sum().backward()
    return vectors.detach(), [p.grad for p in model.parameters() if p.grad is not None], widths


@pytest.mark.parametrize("architecture", ["dense", "sparse", "cross"])
def test_groups_change_what_is_computed_at_once_and_nothing_else(
    architecture: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sentence_transformers import SentenceTransformer, SparseEncoder

    kind = {"dense": SentenceTransformer, "sparse": SparseEncoder, "cross": CrossEncoder}[architecture]
    whole, grouped = (embedded(kind(str(tiny(architecture)), device="cpu"), group, monkeypatch) for group in (None, 8))
    assert torch.allclose(whole[0], grouped[0], atol=1e-5)
    for expected, actual in zip(whole[1], grouped[1], strict=True):
        assert torch.allclose(expected, actual, atol=1e-3, rtol=1e-4)
    assert len(whole[2]) == 1 and len(grouped[2]) == 7
    assert sum(grouped[2]) < 0.7 * sum(whole[2])


def test_only_the_vectors_are_returned() -> None:
    from sentence_transformers import SparseEncoder

    model = SparseEncoder(str(tiny("sparse")), device="cpu")
    grouping.by_length(model)
    for training in (True, False):
        model.train(training)
        assert set(model(model.preprocess(TEXTS[:3]))) == {"sentence_embedding"}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_greatest_logit_first_gives_the_same_weights_bit_for_bit(dtype: torch.dtype) -> None:
    from sentence_transformers.sparse_encoder.modules import SpladePooling

    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(6, 9, 40, generator=generator).to(dtype)
    logits[0] = -logits[0].abs()
    mask = (torch.arange(9) < torch.tensor([9, 1, 4, 7, 9, 2])[:, None]).long()
    for training in (True, False):
        results = []
        for is_changed in (False, True):
            pooling = SpladePooling().train(training)
            if is_changed:
                _greatest_first([pooling])
            given = logits.clone().requires_grad_(training)
            weights = pooling({"token_embeddings": given * 1, "attention_mask": mask})["sentence_embedding"]
            if training:
                weights.square().sum().backward()
            results.append((weights.detach(), given.grad))
        assert torch.equal(results[0][0], results[1][0])
        if training and dtype == torch.float32:
            assert torch.equal(results[0][1], results[1][1])
