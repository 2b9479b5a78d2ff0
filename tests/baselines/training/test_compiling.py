"""Layers compiled for a GPU, here for the CPU: the same outputs and gradients, from one code for all sizes."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch._dynamo.testing import CompileCounterWithBackend

from baselines.training import compiling
from tests.baselines.tiny_cells import tiny_options

SHAPES = ((32, 20), (32, 31), (7, 40))
"""Texts and tokens of batches."""


@pytest.fixture
def compile_layers(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Any], None]]:
    """Compiles a model's layers as where there is a GPU, with no code compiled before."""

    def on_a_gpu(model: Any) -> None:
        with monkeypatch.context() as patched:
            patched.setattr(torch.cuda, "is_available", lambda: True)
            compiling.compile_layers(model, tiny_options("biencoder", compile=True))
        monkeypatch.setattr(torch._dynamo.config, "suppress_errors", False)

    torch._dynamo.reset()
    yield on_a_gpu
    torch._dynamo.reset()


def bert(layers: int = 9) -> Any:
    from transformers import BertConfig, BertForMaskedLM, set_seed

    set_seed(13)
    sizes = {"vocab_size": 100, "hidden_size": 32, "num_hidden_layers": layers, "num_attention_heads": 2}
    return BertForMaskedLM(
        BertConfig(**sizes, intermediate_size=64, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    )


def distilbert() -> Any:
    from transformers import DistilBertConfig, DistilBertForMaskedLM, set_seed

    set_seed(13)
    sizes = {"vocab_size": 100, "dim": 32, "n_layers": 6, "n_heads": 2, "hidden_dim": 64}
    return DistilBertForMaskedLM(DistilBertConfig(**sizes, dropout=0.0, attention_dropout=0.0))


def stepped(model: Any) -> list[list[torch.Tensor]]:
    """For each shape the logits of two groups in bfloat16's autocast, and the gradient of every weight.

    Autocast keeps no copy of the weights: plain layers would add the groups' gradients in it, in bfloat16.
    """
    steps = []
    torch.manual_seed(5)
    for texts, tokens in SHAPES:
        ids = torch.randint(5, 100, (texts, tokens))
        mask = torch.ones_like(ids)
        mask[0, tokens // 2 :] = 0
        model.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, cache_enabled=False):
            first, rest = (
                model(input_ids=ids[rows], attention_mask=mask[rows]).logits
                for rows in (slice(texts // 2), slice(texts // 2, None))
            )
            logits = torch.cat([first, rest]).float()
        logits.logsumexp(-1).mean().backward()
        steps.append([logits.detach(), *(weights.grad.clone() for weights in model.parameters())])
    return steps


@pytest.mark.parametrize("made", [bert, distilbert])
def test_one_code_serves_all_layers_and_sizes_with_the_same_gradients(
    compile_layers: Callable[[Any], None], monkeypatch: pytest.MonkeyPatch, made: Callable[[], Any]
) -> None:
    plain, model = made(), made()
    counter = CompileCounterWithBackend("aot_eager")  # type: ignore[no-untyped-call]
    monkeypatch.setattr(compiling, "BACKEND", counter)
    compile_layers(model)
    for expected, computed in zip(stepped(plain), stepped(model), strict=True):
        assert all(map(torch.equal, expected, computed))
    assert 0 < counter.frame_count <= 4  # of 18 or 27, were there one for each layer and shape
    assert list(model.state_dict()) == list(plain.state_dict())


def test_nothing_is_compiled_on_a_cpu_or_without_the_option(monkeypatch: pytest.MonkeyPatch) -> None:
    model = bert(1)
    compiling.compile_layers(model, tiny_options("biencoder", compile=True))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    compiling.compile_layers(model, tiny_options("biencoder"))
    assert all(module._compiled_call_impl is None for module in model.modules())
