"""A transformer's layers as compiled code: fewer kernels to launch, and less to read and write between them."""

from typing import Any

from baselines.options import Trained

BACKEND = "inductor"


def compile_layers(model: Any, options: Trained) -> None:
    """Compile a model's layers for a GPU, where the option ``compile`` says so; on a CPU nothing is compiled.

    One code serves all layers, whatever the number and length of the texts. The model is the same: names of weights,
    outputs and gradients, up to the last digits; dropout draws other numbers. What torch cannot compile runs as it is.
    """
    import torch
    from transformers.modeling_layers import GradientCheckpointingLayer

    if not options.compile or not torch.cuda.is_available():
        return
    torch._dynamo.config.suppress_errors = True
    for module in model.modules():
        if isinstance(module, GradientCheckpointingLayer):  # transformers' class of all layers
            module.compile(dynamic=True, backend=BACKEND)
