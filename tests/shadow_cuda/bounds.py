"""One training step at a paper's full size, without its memory: FakeTensors on the shadow device.

The step is the product's own: ``systems.train`` runs up to its first step, whose tensors are then FakeTensors. The
backbone is a BERT of the paper's depth and width; the passages are made up, and as long as MS MARCO's. What the
optimiser's own step and CUDA's context take (about 1 GB) is left out, and so is a teacher: a tiny one stands in for it.
Backbones of one depth are one, as all are BERT's width; only their vocabularies differ.
"""

import weakref
from itertools import combinations
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map
from torch.utils.flop_counter import FlopCounterMode

from baselines import config, systems
from baselines.cell import Cell
from baselines.options import Trained
from baselines.training import batches, grouping
from eval_kit.release import open_release
from eval_kit.runs import names
from tests.shadow_cuda.made_up import backbone, made_up
from tests.tiny_checkpoints import tiny

CONFIGS = ("paper", "paper-cikm2022", "cikm2022-tables8-9")
LEFT_OUT = (
    "evaluate_every", "patience", "loader_processes", "tune", "epochs", "mine_every", "static_negatives",
    "random_weights",
)  # fmt: skip
"""Options that do not change a step."""


def layers_of(backbone: str) -> int:
    """The depth of a backbone that a paper's config names."""
    return 6 if "distilbert" in backbone else 12


def step_of(options: Trained) -> dict[str, Any]:
    """What decides a system's step: two systems that agree in it have the same."""
    decides = {
        name: value for name, value in options.as_json().items() if name not in (*LEFT_OUT, "steps", "negatives_from")
    }
    return decides | {"backbone": layers_of(str(options.backbone))}


class FirstStepError(Exception):
    """Ends the training; its argument holds the figures."""


def step(config_name: str, system: str, folder: Path) -> dict[str, float]:
    """Peak memory in GB, kernels, and TFLOP (matrix products) of the first step of a paper's system."""
    options = config.read(config_name).systems[system]
    release = folder / "release"
    opened = open_release(release) if release.exists() else made_up(release, 40_000)
    assert isinstance(options, Trained)
    layers = layers_of(str(options.backbone))
    model = backbone(folder / f"backbone-{layers}", layers, 768, 12)
    chosen = {name: value for name, value in options.as_json().items() if name not in LEFT_OUT}
    chosen |= {"steps": 1, "backbone": str(model)}
    if options.teacher is not None:
        chosen |= {"teacher": str(tiny("multivector"))}
    checked = config.parse({"systems": {system: chosen}}, "bounds").systems[system]
    cell = Cell(names.RunName(system, "topic", "c0"), opened, checked, folder / config_name)
    try:
        # a batch as it is drawn has the mean length
        with patch("transformers.Trainer.training_step", _measured), patch.object(batches, "WINDOW", 1):
            systems.system(system).train(cell)
    except FirstStepError as ended:
        figures: dict[str, float] = ended.args[0]
        return figures
    raise AssertionError("no step was taken")


def _measured(trainer: Any, model: Any, inputs: Any, *_: Any) -> None:
    """In the place of a trainer's step."""
    fake = FakeTensorMode(allow_non_fake_inputs=True)

    def faked(value: Any) -> Any:
        return fake.from_tensor(value) if type(value) is torch.Tensor else value

    model.train()
    prepared = trainer._prepare_inputs(inputs)
    inputs = tree_map(faked, prepared)
    _keep_widths(prepared)
    for module in {*model.modules(), *trainer.loss.modules()}:
        for name, value in module._parameters.items():
            if value is not None and type(value.data) is torch.Tensor:
                module._parameters[name] = torch.nn.Parameter(fake.from_tensor(value.data), value.requires_grad)
        for name, value in module._buffers.items():
            module._buffers[name] = faked(value)
    weights = sum(parameter.numel() * parameter.element_size() for parameter in model.parameters())
    kernels = _Kernels()
    counted = FlopCounterMode(display=False)
    groups = patch.object(grouping, "_rows", _rows)
    with patch("torch.nn.functional.scaled_dot_product_attention", _attention), groups, counted, kernels:
        with trainer.compute_loss_context_manager():
            loss = trainer.compute_loss(model, inputs)
        loss.backward()
    raise FirstStepError(
        {
            "peak_gb": round((3 * weights + kernels.peak) / 1e9, 1),  # with the two moments of AdamW
            "kernels": kernels.count,
            "tflop": round(counted.get_total_flops() / 1e12, 1),
        }
    )


_widths: dict[tuple[int, int], list[int]] = {}
"""The tokens of the longest text of each group, by the shape of the texts: fake tensors do not know their values."""


def _keep_widths(prepared: dict[str, Any]) -> None:
    """Of each column of texts, and of columns that the library embeds together."""
    masks = [mask for name, mask in prepared.items() if name.endswith("attention_mask")]
    for together in (some for count in range(1, len(masks) + 1) for some in combinations(masks, count)):
        lengths = torch.cat([mask.sum(1).cpu() for mask in together]).sort().values.split(grouping.GROUP)
        shape = sum(map(len, together)), max(mask.shape[1] for mask in together)
        _widths[shape] = [int(group.max()) for group in lengths]


def _rows(value: Any, rows: Any, width: int) -> Any:
    """As the trainer's own, by the widths that are kept; pairs, which a loss makes of texts, at their full width."""
    if getattr(value, "ndim", 0) != 2:
        return value
    value.group = getattr(value, "group", -1) + 1
    known = _widths.get(tuple(value.shape))
    return value[rows, : known[value.group]] if known else value[rows]


def _attention(query: Any, key: Any, value: Any, attn_mask: Any = None, dropout_p: float = 0.0, **options: Any) -> Any:
    """The memory-efficient kernel, which CUDA takes under a mask of padding."""
    if attn_mask is not None:
        attn_mask = attn_mask.to(query.dtype).expand(*query.shape[:3], key.shape[2])  # only its size matters
    return torch.ops.aten._scaled_dot_product_efficient_attention(
        query, key.to(query.dtype), value.to(query.dtype), attn_mask, True, dropout_p, False, scale=options.get("scale")
    )[0]


class _Kernels(TorchDispatchMode):
    """Counts operations that compute, and the bytes of what they returned and what is still held."""

    count = held = peak = 0

    def __init__(self) -> None:
        super().__init__()
        self._seen: Any = weakref.WeakSet()

    def _freed(self, size: int) -> None:
        self.held -= size

    def __torch_dispatch__(self, call: Any, types: Any, inputs: Any = (), options: Any = None) -> Any:
        if call is torch.ops.aten._local_scalar_dense.default:
            return 0  # the library asks whether a teacher's scores hold NaN
        output = call(*inputs, **(options or {}))
        self.count += not call.is_view and call.namespace == "aten"
        for tensor in tree_leaves(output):
            if isinstance(tensor, torch.Tensor) and tensor.device.type == "cuda":
                storage = tensor.untyped_storage()
                if storage not in self._seen:
                    self._seen.add(storage)
                    self.held += storage.nbytes()
                    self.peak = max(self.peak, self.held)
                    weakref.finalize(storage, self._freed, storage.nbytes())
        return output
