"""Where a program waits for the device: seen by torch's dispatcher, whatever the device is."""

import traceback
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

TORCH = str(Path(torch.__file__).parent)
READS = ("_local_scalar_dense", "nonzero", "equal")
COPIES = ("_to_copy", "copy_")


class Waits(TorchDispatchMode):
    """Counts operators that the host waits for, by the innermost file outside torch.

    They are reads of a number, masks that become indices, copies to the host, and copies from it that do not say
    ``non_blocking``.
    """

    def __init__(self) -> None:
        super().__init__()
        self.places: Counter[str] = Counter()
        self.steps = 0

    def during(self, call: Callable[..., Any]) -> Callable[..., Any]:
        """The call, watched; ``steps`` counts how often it was made."""

        def watched(*arguments: Any, **options: Any) -> Any:
            self.steps += 1
            with self:
                return call(*arguments, **options)

        return watched

    def __torch_dispatch__(self, call: Any, types: Any, inputs: Any = (), options: Any = None) -> Any:
        options = options or {}
        output = call(*inputs, **options)
        if _waits(call.overloadpacket.__name__, inputs, options, output):
            frames = [frame for frame in traceback.extract_stack()[:-1] if not frame.filename.startswith(TORCH)]
            self.places[f"{frames[-1].filename}:{frames[-1].name}: {call}"] += 1
        return output


def _waits(name: str, inputs: Any, options: Any, output: Any) -> bool:
    tensors = [value for value in tree_leaves((inputs, options)) if isinstance(value, torch.Tensor)]
    if name in READS:
        return any(tensor.is_cuda for tensor in tensors)
    if name == "index":
        return any(tensor.is_cuda and tensor.dtype == torch.bool for tensor in tensors[1:])
    if name not in COPIES:
        return False
    source, target = (tensors[0], output) if name == "_to_copy" else (tensors[1], tensors[0])
    if source.device.type == target.device.type:
        return False
    non_blocking = options.get("non_blocking", len(inputs) > 2 and inputs[2])
    return source.is_cuda or not non_blocking
