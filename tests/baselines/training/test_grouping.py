"""A batch that is embedded in groups by length has the embeddings and the gradients of the whole."""

from typing import Any

import pytest
import torch
from sentence_transformers import CrossEncoder
from tiny_checkpoints import texts, tiny

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
